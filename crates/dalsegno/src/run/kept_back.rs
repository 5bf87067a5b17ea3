//! Outcomes that the code has seen, and that are not recorded yet.
//!
//! Some may never be: those that a coarser granularity keeps back. The others are only *late*, so
//! that an outcome and the next intent are one append: they are recorded with whatever is recorded
//! next, or when the code pauses, or by the syncer within half of the bound, whichever is first.
//!
//! Invariant: what was taken from here stands in the stream before anything that is recorded after
//! it was taken. While it is on its way, nobody else of the run records.

use std::sync::Arc;
use std::task::Poll;

use dalsegno_store::{Limits, NewEvent};

use super::{Run, RunState, Stopped};
use crate::budget::Usage;
use crate::step::StepId;

/// So many are kept back at most, however many the store takes at once: they are in memory.
const LIMIT: usize = 256;

/// What is not recorded yet, in the order in which the code saw it.
#[derive(Debug)]
pub(crate) struct KeptBack {
    list: Vec<Kept>,
    /// So many at most: the next one is recorded, and takes them along in one append.
    limit: usize,
    /// So many bytes at most.
    limit_bytes: usize,
    /// Some were taken, and are on their way to the store.
    under_way: bool,
    /// Somebody waits until they have arrived, to record what comes after them.
    awaited: bool,
    /// The syncer knows that something is late.
    syncer_knows: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Kept {
    step: StepId,
    pub event: NewEvent,
    late: bool,
}

impl KeptBack {
    /// Empty. What fits into it, the store takes.
    pub fn new(limits: &Limits) -> KeptBack {
        let half_event = (limits.event_bytes / 2).min(limits.payload_bytes);
        KeptBack {
            list: Vec::new(),
            limit: LIMIT.min(limits.batch_events as usize / 4),
            limit_bytes: half_event as usize,
            under_way: false,
            awaited: false,
            syncer_knows: false,
        }
    }

    /// Whether the store surely takes what is kept back and more events of so many bytes at once.
    pub fn fit_with(&self, bytes: usize) -> bool {
        bytes <= self.limit_bytes
    }

    /// Whether one more event fits.
    pub fn has_room_for(&self, event: &NewEvent) -> bool {
        let kept: usize = self.list.iter().map(|kept| bytes_of(&kept.event)).sum();
        self.list.len() < self.limit && kept + bytes_of(event) <= self.limit_bytes
    }

    /// Keeps an event that may never be recorded.
    pub fn keep(&mut self, step: StepId, event: NewEvent) {
        let late = false;
        self.list.push(Kept { step, event, late });
    }

    /// Keeps an event that is recorded in any case, and with what stands before it. Whether the
    /// syncer is to hear of it.
    pub fn keep_for_soon(&mut self, step: StepId, event: NewEvent) -> bool {
        let late = true;
        self.list.push(Kept { step, event, late });
        !std::mem::replace(&mut self.syncer_knows, true)
    }

    /// Whether something is to be recorded when the code pauses.
    pub fn is_late(&self) -> bool {
        !self.under_way && self.list.iter().any(|kept| kept.late)
    }

    /// Forgets those inside a plan step that may be. What they used.
    fn forget_inside(&mut self, plan_step: &StepId) -> Usage {
        let inside = format!("{plan_step}/");
        let mut used = Usage::default();
        self.list.retain(|kept| {
            let forget = !kept.late && kept.step.as_str().starts_with(&inside);
            if let (true, Some(usage)) = (forget, super::append::used(&kept.event)) {
                used.add(&usage);
            }
            !forget
        });
        used
    }
}

/// What an event weighs in memory and in an append.
pub(super) fn bytes_of(event: &NewEvent) -> usize {
    let payloads = [&event.input, &event.output].into_iter().flatten();
    payloads.map(|payload| payload.bytes.len()).sum()
}

impl Run {
    /// Forgets outcomes that were kept back inside a plan step, which has its own now. What they
    /// used.
    pub(crate) fn forget_kept_back(&self, plan_step: &StepId) -> Usage {
        let mut state = self.state();
        let used = state.kept_back.forget_inside(plan_step);
        // It counts with the plan step.
        state.journal.usage.subtract(&used);
        used
    }

    /// Those that may never be recorded are not recorded any more.
    pub(crate) fn drop_kept_back(&self) {
        self.state().kept_back.list.retain(|kept| kept.late);
    }

    /// Whether something is to be recorded when the code pauses.
    pub(crate) fn is_late(&self) -> bool {
        self.state().kept_back.is_late()
    }

    /// Records what is late. If that fails, the run has stopped.
    pub(crate) async fn record_late(self: &Arc<Self>) {
        if !self.is_late() {
            return;
        }
        if let Err(super::NotRecorded::Refused(why)) = self.record(Vec::new()).await {
            self.stop(Stopped::Store(why));
        }
    }

    /// The same, for the syncer, who has to be told again of what comes from here on.
    pub(crate) async fn record_what_nobody_waits_for(self: &Arc<Self>) {
        self.state().kept_back.syncer_knows = false;
        self.record_late().await;
    }

    /// Takes all of it, to be recorded now. Waits while somebody else does that.
    pub(super) async fn take_kept_back(self: &Arc<Self>) -> Taken {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            if state.kept_back.under_way {
                state.kept_back.awaited = true;
                state.wakes(context.waker());
                return Poll::Pending;
            }
            let list = std::mem::take(&mut state.kept_back.list);
            state.kept_back.under_way = !list.is_empty();
            let (run, limit) = (Arc::clone(self), state.kept_back.limit.max(1));
            Poll::Ready(Taken { run, list, limit })
        })
        .await
    }
}

/// What was taken to be recorded. Who drops it without saying what became of it stops the run: it
/// would go on without knowing what its record says.
pub(super) struct Taken {
    run: Arc<Run>,
    pub list: Vec<Kept>,
    /// So many at a time.
    limit: usize,
}

impl Taken {
    /// The first of them, if they are too many for one append.
    pub fn first_part(&self) -> Option<Vec<NewEvent>> {
        let (first, rest) = self.list.split_at_checked(self.limit)?;
        let part = || first.iter().map(|kept| kept.event.clone()).collect();
        (!rest.is_empty()).then(part)
    }

    /// The first so many are recorded.
    pub fn recorded_first(&mut self, count: usize) {
        self.list.drain(..count);
    }

    /// It is recorded.
    pub fn recorded(mut self) {
        self.end(|_, _| {});
    }

    /// It is still to be recorded, if anything is.
    pub fn not_recorded(mut self) {
        self.end(|state, list| {
            let newer = std::mem::replace(&mut state.kept_back.list, list);
            state.kept_back.list.extend(newer);
        });
    }

    fn end(&mut self, end: impl FnOnce(&mut RunState, Vec<Kept>)) {
        let list = std::mem::take(&mut self.list);
        if list.is_empty() {
            return;
        }
        let mut state = self.run.state();
        state.kept_back.under_way = false;
        end(&mut state, list);
        if std::mem::take(&mut state.kept_back.awaited) {
            state.wake();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.list.is_empty() {
            return;
        }
        self.end(|_, _| {});
        let why = "what it did was dropped while it was being recorded: it goes on from its record \
                   when it is taken up again";
        self.run.stop(Stopped::Store(why.into()));
    }
}
