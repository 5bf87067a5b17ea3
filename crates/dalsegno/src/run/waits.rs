//! What a run waits for, and when it is idle.
//!
//! A run is *idle* when its code can do nothing until something comes from outside: no step is being
//! executed, and at least one wait is open. Then it can be written down and leave memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Run, RunState, Stopped};
use crate::journal::Outcome;
use crate::step::StepId;

/// Something that the code waits for.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The step.
    pub step: StepId,
    /// In words, as in `signal paid` or `approval refund#1`.
    pub what: String,
    /// When it is over at the latest, in microseconds since 1970.
    pub due_us: Option<u64>,
}

/// What a run can do when its code has nothing to do.
#[derive(Debug)]
pub(crate) enum Idle {
    /// Something is being executed, or the code waits for something of its own.
    No,
    /// Nothing until something comes, or until a time.
    Waiting { due_us: Option<u64> },
    /// Nothing but see what is held back to keep the order.
    Held,
    /// Nothing ever: it waits, and has not come to everything that is recorded.
    Astray,
}

/// Counts a step as being executed until it is dropped.
pub(crate) struct Active {
    run: Arc<Run>,
    once: bool,
    unbroken: bool,
    /// What to stop the run for if the step is dropped unfinished.
    doubt: Option<Box<dyn FnOnce() -> Stopped + Send + Sync>>,
}

impl Active {
    pub fn new(run: &Arc<Run>) -> Active {
        run.state().active += 1;
        Active {
            run: Arc::clone(run),
            once: false,
            unbroken: false,
            doubt: None,
        }
    }

    /// It is brought to its end: neither the run nor a turn ends before it.
    pub fn is_unbroken(&mut self, state: &mut RunState) {
        self.unbroken = true;
        state.unbroken += 1;
    }

    /// If it is dropped before [`Active::end`], nobody knows what became of it.
    pub fn in_doubt(&mut self, why: impl FnOnce() -> Stopped + Send + Sync + 'static) {
        self.doubt = Some(Box::new(why));
        self.is_once();
    }

    /// It must not be left unfinished, if that can be helped.
    pub fn is_once(&mut self) {
        self.once = true;
        self.run.state().active_once += 1;
    }

    /// The outcome is known.
    pub fn end(mut self) {
        self.doubt = None;
    }
}

impl std::fmt::Debug for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Active")
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut state = self.run.state();
        state.active = state.active.saturating_sub(1);
        if self.once {
            state.active_once = state.active_once.saturating_sub(1);
        }
        if self.unbroken {
            state.unbroken -= 1;
        }
        let is_settled = state.settling && state.unbroken == 0;
        // Who decides whether the run is idle has to look again, unless code outside is at work,
        // whose end is told; and who waits for its turn, or for a run that stops.
        let may_be_idle = !state.polling && state.outside == 0;
        let is_awaited = is_settled || state.journal.order.wants_more;
        if may_be_idle || state.stopped.is_some() || is_awaited {
            state.wake();
        }
        drop(state);
        if let Some(why) = self.doubt.take() {
            self.run.stop(why());
        }
    }
}

/// Waits until something is so.
pub(crate) struct Until<T, F> {
    run: Arc<Run>,
    wait: Wait,
    key: Option<u64>,
    check: F,
    result: std::marker::PhantomData<fn() -> T>,
}

// Nothing in it is pinned.
impl<T, F> Unpin for Until<T, F> {}

impl Run {
    /// Waits until `check` finds something in what is known of the run. It is asked again whenever
    /// something has come.
    pub(crate) fn until<T, F>(self: &Arc<Self>, wait: Wait, check: F) -> Until<T, F>
    where
        F: FnMut(&mut RunState) -> Option<T>,
    {
        Until {
            run: Arc::clone(self),
            wait,
            key: None,
            check,
            result: std::marker::PhantomData,
        }
    }

    /// Waits until the code has come to everything that is recorded, and has seen it.
    pub(crate) async fn replayed(self: &Arc<Self>, what: impl FnOnce() -> String) {
        let has_seen_all = |state: &mut RunState| {
            let journal = &state.journal;
            journal.remaining == 0 && journal.unseen == 0
        };
        if has_seen_all(&mut self.state()) {
            return;
        }
        self.park(what(), has_seen_all).await;
    }

    /// Waits until what was begun and the code let go of is at its end. Nothing of it may be recorded
    /// behind the end of a turn or of the run. `false` if the run has stopped meanwhile, or some of it
    /// was given up for that.
    pub(crate) async fn settled(&self) -> bool {
        let mut has_waited = false;
        std::future::poll_fn(|context| {
            let mut state = self.state();
            state.settling = state.unbroken > 0;
            if !state.settling {
                let may_end = state.stopped.is_none() || !(has_waited || state.gave_up);
                return Poll::Ready(may_end);
            }
            has_waited = true;
            state.wakes(context.waker());
            Poll::Pending
        })
        .await
    }

    /// Waits until it is a recorded step's turn to be seen.
    pub(crate) async fn in_turn(self: &Arc<Self>, id: &StepId) {
        if self.state().journal.is_its_turn(id) {
            return;
        }
        self.park(id.to_string(), |state| state.journal.is_its_turn(id))
            .await;
    }

    async fn park(self: &Arc<Self>, what: String, may_go_on: impl Fn(&mut RunState) -> bool) {
        let key = {
            let mut state = self.state();
            let key = state.next_wait;
            state.next_wait += 1;
            state.parked.insert(key, what);
            key
        };
        let _parked = Parked(Arc::clone(self), key);
        std::future::poll_fn(|context| {
            let mut state = self.state();
            if may_go_on(&mut state) {
                return Poll::Ready(());
            }
            state.wakes(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// The code can do nothing, and waits for what is held back to keep the order: it sees one of
    /// those. `false` if there is none that it may see.
    pub(crate) fn let_one_through(&self) -> bool {
        let mut state = self.state();
        let Some(through) = state.journal.let_one_through() else {
            return false;
        };
        state.passes_over(through);
        state.wake();
        true
    }

    /// What the run can do now that its code has nothing to do.
    pub(crate) fn idle(&self) -> Idle {
        let state = self.state();
        let is_at_work = state.woken || state.active > 0 || state.outside > 0;
        if is_at_work || (state.waits.is_empty() && state.parked.is_empty()) {
            return Idle::No;
        }
        if state.journal.order.wants_more {
            return Idle::Held;
        }
        if state.journal.remaining > 0 {
            return Idle::Astray;
        }
        if state.journal.unseen > 0 && !state.parked.is_empty() {
            return Idle::Held;
        }
        if state.waits.is_empty() {
            return Idle::No;
        }
        let due_us = state.waits.values().filter_map(|wait| wait.due_us).min();
        Idle::Waiting { due_us }
    }

    /// Whether a step is being executed.
    pub(crate) fn is_busy(&self) -> bool {
        self.state().active > 0
    }

    /// Whether code of the run is at work outside of its future.
    pub(crate) fn is_outside(&self) -> bool {
        self.state().outside > 0
    }

    /// Whether a `once` step is being executed.
    pub(crate) fn is_busy_with_once(&self) -> bool {
        self.state().active_once > 0
    }

    /// Whether the code has not come to everything that is recorded.
    pub(crate) fn is_astray(&self) -> bool {
        self.state().journal.remaining > 0
    }

    /// What the code waits for, in words.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let state = self.state();
        state.waits.values().map(|wait| wait.what.clone()).collect()
    }

    /// The same, with the steps that it waits in.
    pub(crate) fn waits_in(&self) -> Vec<(String, StepId)> {
        let state = self.state();
        let waits = state.waits.values();
        waits
            .map(|wait| (wait.what.clone(), wait.step.clone()))
            .collect()
    }

    /// What the code wants to do, and may not before it has come to everything recorded.
    pub(crate) fn parked(&self) -> Vec<String> {
        self.state().parked.values().cloned().collect()
    }
}

impl RunState {
    /// What a step that is ended from outside came to, if the code may see it: then it has.
    pub fn see(&mut self, id: &StepId) -> Option<Outcome> {
        // While the code comes to what is recorded, whoever is active reads an outcome that was
        // before this one.
        let is_at_work = self.active + self.outside > 0;
        if self.journal.remaining > 0 && is_at_work && !self.journal.order.is_empty() {
            self.journal.order.wants_more = true;
            return None;
        }
        let outcome = self.journal.outcome_in_order(id)?;
        self.saw(id);
        Some(outcome)
    }
}

struct Parked(Arc<Run>, u64);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.state().parked.remove(&self.1);
    }
}

impl<T, F> Future for Until<T, F>
where
    F: FnMut(&mut RunState) -> Option<T>,
{
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut state = this.run.state();
        if let Some(found) = (this.check)(&mut state) {
            return Poll::Ready(found);
        }
        if this.key.is_none() {
            let key = state.next_wait;
            state.next_wait += 1;
            state.waits.insert(key, this.wait.clone());
            this.key = Some(key);
        }
        state.wakes(context.waker());
        Poll::Pending
    }
}

impl<T, F> Drop for Until<T, F> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.run.state().waits.remove(&key);
        }
    }
}
