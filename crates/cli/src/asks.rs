//! What a run asks a person for.

use dalsegno::{Effect, Journal, StepId};

/// Approvals that nobody has answered yet and that still count, in the order of their names.
pub fn approvals(journal: &Journal, now_us: u64) -> Vec<&StepId> {
    let open = journal.approvals.iter().filter(|(_, asked)| {
        let late = asked.expires_us.is_some_and(|until| until < now_us);
        asked.answer.is_none() && !asked.used && !late
    });
    let mut names: Vec<_> = open.map(|(id, _)| id).collect();
    names.sort_unstable_by_key(|id| id.as_str());
    names
}

/// Steps of which nobody knows whether they happened, in the order of their names.
pub fn in_doubt(journal: &Journal) -> Vec<&StepId> {
    let open = journal.steps.iter();
    let open = open.filter(|(_, step)| step.effect == Effect::Once && step.is_open());
    let mut names: Vec<_> = open.map(|(id, _)| id).collect();
    names.sort_unstable_by_key(|id| id.as_str());
    names
}

/// Whether only a person can move it on.
pub fn needs_person(journal: &Journal, now_us: u64) -> bool {
    let goes_on = !journal.status.is_final();
    let attention = journal.attention.is_some() && !journal.is_answered();
    goes_on && (attention || !approvals(journal, now_us).is_empty())
}
