//! Which outcomes a replay hands out, and in which order.
//!
//! Invariant: what is inside a plan step that has its result is not looked at, as in recovery.

use std::collections::HashSet;

use crate::journal::{Journal, seen};
use crate::step::{StepId, StepKind};

/// Plan steps that have their result: what is inside is not looked at again.
pub(super) struct InDonePlan<'a>(HashSet<&'a str>);

impl InDonePlan<'_> {
    pub fn of(journal: &Journal) -> InDonePlan<'_> {
        let steps = journal.steps.iter();
        let done =
            steps.filter(|(_, step)| step.kind == StepKind::PlanStep && step.outcome.is_some());
        InDonePlan(done.map(|(id, _)| id.as_str()).collect())
    }

    pub fn has(&self, id: &StepId) -> bool {
        let path = id.as_str();
        !self.0.is_empty()
            && path
                .match_indices('/')
                .any(|(at, _)| self.0.contains(&path[..at]))
    }
}

/// The outcomes that the code is given, in the order in which it saw them: what it had not seen when
/// something was last recorded comes last.
pub(super) fn to_hand_out(journal: &Journal) -> Vec<(u64, StepId)> {
    let inside = InDonePlan::of(journal);
    let steps = journal.steps.iter();
    let mut due: Vec<_> = steps
        .filter(|(id, step)| {
            step.outcome.is_some() && step.kind != StepKind::Patched && !inside.has(id)
        })
        .map(|(id, step)| (seen(step), id.clone()))
        .collect();
    due.sort();
    due.into_iter().map(|((_, last), id)| (last, id)).collect()
}
