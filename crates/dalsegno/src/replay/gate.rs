//! The record as a replay hands it out: one outcome at a time, in the order in which they were
//! recorded, and only when the code can do nothing else.
//!
//! So the code sees what it saw then, in the order in which it saw it, however its branches ran
//! beside each other; and code that comes to its steps in another order is found out.
//!
//! Invariant: a step gets its outcome when it is released, and nothing else is ever handed out. What
//! the record has no outcome of waits until everything recorded is handed out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::task::{Poll, Waker};

use dalsegno_store::NewPayload;

use super::{Divergence, DivergenceKind, Side};
use crate::attention::{Attention, AttentionKind};
use crate::ctx::Ctx;
use crate::failure::Result;
use crate::journal::Outcome;
use crate::run::{Run, Stopped, same_payload, shown, shown_new};
use crate::step::{StepId, StepKind};

/// A step that the code has come to.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub id: StepId,
    pub kind: StepKind,
    pub input: Option<NewPayload>,
}

impl Wanted {
    pub fn side(&self) -> Side {
        Side {
            step: Some(self.id.clone()),
            kind: Some(self.kind),
            input: self.input.as_ref().map(shown_new),
            ..Side::default()
        }
    }
}

/// The code is at the end of a turn.
#[derive(Debug)]
pub(crate) struct TurnEnd {
    pub turn: u64,
    pub state: NewPayload,
    waker: Option<Waker>,
}

/// Where the code is, and what it may have.
#[derive(Debug, Default)]
pub(crate) struct ReplayGate {
    /// Steps whose call was made.
    called: HashSet<StepId>,
    /// Steps that were awaited.
    begun: HashSet<StepId>,
    /// Steps that may have their outcome.
    released: HashSet<StepId>,
    /// Steps that wait for their outcome, or for the end of the record, in the order in which the
    /// code came to them.
    waiting: BTreeMap<u64, (Wanted, Option<Waker>)>,
    /// Where each of them is.
    places: HashMap<StepId, u64>,
    /// Steps that have come to the end of the record.
    pub beyond: Vec<Wanted>,
    /// How often the code came to something.
    pub arrivals: u64,
    /// How often it came to the end of the record.
    pub ends: u64,
    pub turn_end: Option<TurnEnd>,
    turns_released: u64,
    /// Lookups in a memory that could not be compared.
    pub unchecked: u64,
    /// What was found out where the code was.
    pub found: Option<Divergence>,
}

impl ReplayGate {
    /// The code has made the call of a step.
    pub fn called(&mut self, id: &StepId) {
        self.called.insert(id.clone());
    }

    pub fn is_called(&self, id: &StepId) -> bool {
        self.called.contains(id)
    }

    pub fn is_begun(&self, id: &StepId) -> bool {
        self.begun.contains(id)
    }

    pub fn is_waiting(&self, id: &StepId) -> bool {
        self.places.contains_key(id)
    }

    /// What the code wants now, in the order in which it came to it.
    pub fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        let waiting = self.waiting.values().map(|(wanted, _)| wanted);
        self.beyond.iter().chain(waiting)
    }

    /// A step may have its outcome.
    pub fn release(&mut self, id: &StepId) {
        self.released.insert(id.clone());
        let place = self.places.get(id);
        let waiting = place.and_then(|place| self.waiting.get_mut(place));
        if let Some(waker) = waiting.and_then(|(_, waker)| waker.take()) {
            waker.wake();
        }
    }

    /// The code may begin the next turn; steps of the one before never come again.
    pub fn release_turn(&mut self) {
        self.called.clear();
        self.begun.clear();
        self.released.clear();
        if let Some(end) = self.turn_end.take() {
            self.turns_released = end.turn;
            end.waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Who waits looks again.
    pub fn wake(&mut self) {
        let wakers = self.waiting.values_mut();
        wakers
            .filter_map(|(_, waker)| waker.take())
            .for_each(Waker::wake);
    }
}

impl Run {
    /// The code has come to a step: in a replay it waits here for its turn.
    pub(crate) async fn at_step(
        self: &Arc<Self>,
        id: &StepId,
        kind: StepKind,
        input: Option<&NewPayload>,
    ) {
        if !self.is_replay() {
            return;
        }
        let wanted = Wanted {
            id: id.clone(),
            kind,
            input: input.cloned(),
        };
        let Some(place) = self.take_place(wanted.clone()) else {
            return;
        };
        if self.compare_now(&wanted).is_some() {
            return std::future::pending().await;
        }
        std::future::poll_fn(|context| {
            let mut state = self.state();
            let recorded = state.journal.steps.get(id);
            let has_outcome = recorded.is_some_and(|step| step.outcome.is_some());
            let remaining = state.journal.remaining;
            let is_open = recorded.is_some_and(|step| step.outcome.is_none());
            let Some(gate) = &mut state.gate else {
                return Poll::Ready(());
            };
            let passes = match has_outcome {
                true => gate.released.contains(id),
                // Its steps are recorded, whether it has ended or not.
                false if kind == StepKind::PlanStep && is_open => true,
                false => remaining == 0,
            };
            if passes {
                let known = gate.beyond.iter().any(|known| known.id == *id);
                if remaining == 0 && !has_outcome && !known {
                    gate.beyond.push(wanted.clone());
                }
                return Poll::Ready(());
            }
            if let Some((_, waker)) = gate.waiting.get_mut(&place.key) {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn take_place(self: &Arc<Self>, wanted: Wanted) -> Option<Place> {
        let mut state = self.state();
        let gate = state.gate.as_mut()?;
        gate.arrivals += 1;
        gate.begun.insert(wanted.id.clone());
        let key = gate.arrivals;
        gate.places.insert(wanted.id.clone(), key);
        gate.waiting.insert(key, (wanted, None));
        drop(state);
        let run = Arc::clone(self);
        Some(Place { run, key })
    }

    /// Stops the replay if a step is not what is recorded.
    fn compare_now(&self, wanted: &Wanted) -> Option<Stopped> {
        let (kind, recorded) = {
            let state = self.state();
            let found = state.journal.steps.get(&wanted.id)?;
            let same_input = match (&found.input, &wanted.input) {
                (Some(then), Some(now)) => same_payload(then, now),
                (None, Some(_)) => found.attempts == 0,
                // Who compares it later has it.
                (Some(_), None) => !matches!(wanted.kind, StepKind::Model | StepKind::Tool),
                (None, None) => true,
            };
            let kind = match () {
                () if found.kind != wanted.kind => DivergenceKind::Kind,
                () if !same_input => DivergenceKind::Input,
                () => return None,
            };
            (kind, Side::of_step(&wanted.id, found))
        };
        Some(self.diverged(Divergence {
            kind,
            recorded,
            now: wanted.side(),
        }))
    }

    /// The code does something else than what is recorded: the replay ends here.
    pub(crate) fn diverged(&self, divergence: Divergence) -> Stopped {
        let reason = divergence.to_string();
        if let Some(gate) = &mut self.state().gate {
            gate.found.get_or_insert(divergence);
        }
        let attention = Attention::new(AttentionKind::Mismatch, reason);
        self.stop(Stopped::Attention(attention))
    }

    /// The code is at the end of a turn: it waits here until the next one may begin.
    pub(crate) async fn at_turn_end(self: &Arc<Self>, turn: u64, state: NewPayload) {
        if let Some(gate) = &mut self.state().gate {
            gate.arrivals += 1;
            let waker = None;
            gate.turn_end = Some(TurnEnd { turn, state, waker });
        }
        std::future::poll_fn(|context| {
            let mut state = self.state();
            let Some(gate) = &mut state.gate else {
                return Poll::Ready(());
            };
            if gate.turns_released >= turn {
                return Poll::Ready(());
            }
            if let Some(end) = &mut gate.turn_end {
                end.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// A step's place among those that wait.
struct Place {
    run: Arc<Run>,
    key: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gate) = &mut self.run.state().gate
            && let Some((wanted, _)) = gate.waiting.remove(&self.key)
        {
            gate.places.remove(&wanted.id);
        }
    }
}

impl Ctx {
    /// In a replay: the code decides what was decided.
    pub(crate) async fn same_decision(
        &self,
        id: &StepId,
        outcome: &Outcome,
        now: Result<NewPayload>,
    ) {
        let (true, Outcome::Succeeded(Some(then)), Ok(now)) = (self.run.is_replay(), outcome, now)
        else {
            return;
        };
        let forked = self.run.state().journal.forked.clone();
        if forked.is_some_and(|forked| forked.changed.contains(id)) {
            // A person decided otherwise.
            return;
        }
        if !same_payload(then, &now) {
            let what = |value: String| format!("decides {value}");
            let (then, now) = (what(shown(then)), what(shown_new(&now)));
            self.differs(id, DivergenceKind::Decision, then, now).await;
        }
    }

    /// In a replay: what the code writes down is what was written down.
    pub(crate) async fn same_content(&self, id: &StepId, now: Option<&NewPayload>) {
        if !self.run.is_replay() {
            return;
        }
        let then = {
            let state = self.run.state();
            let step = state.journal.steps.get(id);
            step.and_then(|step| step.input.clone())
        };
        if let (Some(then), Some(now)) = (then, now)
            && !same_payload(&then, now)
        {
            let (then, now) = (shown(&then), shown_new(now));
            self.differs(id, DivergenceKind::Input, then, now).await;
        }
    }

    /// In a replay: a person is asked for what they were asked for.
    pub(crate) async fn same_request(&self, id: &StepId, name: &str, shown: Option<&NewPayload>) {
        if !self.run.is_replay() {
            return;
        }
        let hash = self.approval_hash(id, name, shown);
        let asked = {
            let state = self.run.state();
            state.journal.approvals.get(id).cloned()
        };
        if let Some(asked) = asked.filter(|asked| asked.hash != hash.as_bytes()) {
            let then = asked.payload.as_ref().map(crate::run::shown);
            let now = shown.map(shown_new);
            let what =
                |of: Option<String>| format!("asks for {}", of.as_deref().unwrap_or("nothing"));
            self.differs(id, DivergenceKind::Input, what(then), what(now))
                .await;
        }
    }

    pub(crate) async fn differs(
        &self,
        id: &StepId,
        kind: DivergenceKind,
        then: String,
        now: String,
    ) {
        let recorded = {
            let state = self.run.state();
            let step = state.journal.steps.get(id);
            step.map_or_else(Side::default, |step| Side::of_step(id, step))
        };
        let now = Side {
            event: None,
            input: None,
            what: Some(now),
            ..recorded.clone()
        };
        let recorded = Side {
            input: None,
            what: Some(then),
            ..recorded
        };
        self.run.diverged(Divergence {
            kind,
            recorded,
            now,
        });
        std::future::pending().await
    }
}
