//! When the code sees what steps came to, and what is noted of it.
//!
//! An outcome is recorded, and then the code sees it: at once, or a moment later if a disk or a
//! network is waited for. What the code sees in that moment has overtaken it.
//!
//! Invariant: in front of whatever is recorded next it is noted which outcomes were overtaken, or let
//! go of, and when the code saw them after all (see `journal/order.rs`).

use std::sync::Arc;

use super::{Run, RunState};
use crate::journal::are_ordered;
use crate::record;
use crate::step::{StepId, StepKind};

/// An outcome on its way to the record, and to the code.
#[derive(Debug)]
pub(super) struct OnItsWay {
    id: StepId,
    kind: StepKind,
    is_overtaken: bool,
}

/// The same, in the hands of who shows it to the code.
pub(crate) struct Showing {
    run: Arc<Run>,
    key: u64,
}

impl Run {
    /// To be called before an outcome is recorded.
    pub(crate) fn showing(self: &Arc<Self>, id: &StepId, kind: StepKind) -> Showing {
        let mut state = self.state();
        let key = state.next_wait;
        state.next_wait += 1;
        let on_its_way = OnItsWay {
            id: id.clone(),
            kind,
            is_overtaken: false,
        };
        state.on_their_way.insert(key, on_its_way);
        drop(state);
        let run = Arc::clone(self);
        Showing { run, key }
    }

    /// To be held by whoever will see what a recorded step came to.
    pub(crate) fn sight(self: &Arc<Self>, id: &StepId) -> Sight {
        Sight(Arc::clone(self), id.clone())
    }
}

impl RunState {
    /// Whether an outcome is on its way to the code, other than that of this step.
    pub(super) fn is_another_on_its_way(&self, step: Option<&str>) -> bool {
        let mut others = self.on_their_way.values();
        others.any(|other| Some(other.id.as_str()) != step)
    }
}

impl Showing {
    /// The code sees it now.
    pub fn seen(self) {
        let mut state = self.run.state();
        if let Some(this) = state.on_their_way.remove(&self.key) {
            if this.is_overtaken {
                let seen = record::seen(&this.id, this.kind);
                state.kept_back.keep(this.id.clone(), seen);
            }
            state.overtakes(&this.id);
        }
    }

    /// It is not recorded: there is nothing to see yet.
    pub fn not_recorded(self) {
        self.run.state().on_their_way.remove(&self.key);
    }
}

impl Drop for Showing {
    /// The code lets go of it: nothing that it does from here on depends on it.
    fn drop(&mut self) {
        let mut state = self.run.state();
        if let Some(this) = state.on_their_way.remove(&self.key)
            && !this.is_overtaken
        {
            let not_seen = record::not_seen(&this.id, this.kind);
            state.kept_back.keep(this.id, not_seen);
        }
    }
}

impl RunState {
    /// The code sees what a step came to, before what is on its way.
    pub(super) fn overtakes(&mut self, id: &StepId) {
        for other in self.on_their_way.values_mut() {
            if !other.is_overtaken && are_ordered(id, &other.id) {
                other.is_overtaken = true;
                let not_seen = record::not_seen(&other.id, other.kind);
                self.kept_back.keep(other.id.clone(), not_seen);
            }
        }
    }

    /// The code goes on although it has not seen what these came to.
    pub(super) fn passes_over(&mut self, steps: Vec<StepId>) {
        if self.journal.remaining > 0 || self.gate.is_some() {
            return;
        }
        for id in steps {
            if let Some(kind) = self.journal.passed_over(&id) {
                let not_seen = record::not_seen(&id, kind);
                self.kept_back.keep(id, not_seen);
            }
        }
    }

    /// The code sees what a recorded step came to. That it had not by now is noted if it was before.
    pub fn shown(&mut self, id: &StepId) {
        let is_live = self.journal.remaining == 0 && self.gate.is_none();
        if let Some(kind) = is_live.then(|| self.journal.seen_at_last(id)).flatten() {
            self.kept_back.keep(id.clone(), record::seen(id, kind));
        }
        if self.journal.shown(id) {
            self.wake();
        }
    }

    /// Notes for the next append that the code has seen by now what a step came to.
    pub fn saw(&mut self, id: &StepId) {
        self.overtakes(id);
        if self.journal.remaining > 0 || self.gate.is_some() {
            return;
        }
        let step = self.journal.steps.get(id);
        if let Some(kind) = step.filter(|s| s.seen.is_none()).map(|step| step.kind) {
            self.kept_back.keep(id.clone(), record::seen(id, kind));
        }
    }
}

/// What a recorded step came to is seen by the code, or the code lets go of it.
pub(crate) struct Sight(Arc<Run>, StepId);

impl Drop for Sight {
    fn drop(&mut self) {
        self.0.state().shown(&self.1);
    }
}
