//! The steps of a run, as lines to be read.

use crate::effect::Effect;
use crate::journal::{Journal, Outcome, StepRecord};
use crate::run::shown;
use crate::step::{StepId, StepKind};

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepLine {
    /// Which.
    pub step: String,
    /// What it does.
    pub kind: StepKind,
    /// What it does to the world.
    pub effect: Effect,
    /// How often it was begun.
    pub attempts: u64,
    /// When it was first begun, in microseconds since 1970.
    pub begun_us: u64,
    /// What went in.
    pub input: Option<String>,
    /// What it came to: a result, or a failure; `None` if it is open.
    pub outcome: Option<Result<String, String>>,
}

/// A step of which nobody knows whether it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InDoubt {
    /// Which.
    pub step: String,
    /// The key that it was sent with.
    pub key: String,
    /// Which attempt.
    pub attempt: u64,
    /// Since when, in microseconds since 1970.
    pub since_us: u64,
    /// What went in.
    pub input: Option<String>,
}

fn line(id: &StepId, step: &StepRecord) -> StepLine {
    StepLine {
        step: id.to_string(),
        kind: step.kind,
        effect: step.effect,
        attempts: step.attempts,
        begun_us: step.begun_us,
        input: step.input.as_ref().map(shown),
        outcome: step.outcome.as_ref().map(|outcome| match outcome {
            Outcome::Succeeded(output) => Ok(match (&step.summary, output) {
                (Some(summary), _) => summary.to_string(),
                (None, output) => output.as_ref().map_or_else(String::new, shown),
            }),
            Outcome::Failed(failure) => Err(failure.message().to_owned()),
        }),
    }
}

/// Steps that were begun and have no outcome, in order.
pub(super) fn open(journal: &Journal) -> Vec<StepLine> {
    let steps = journal.open_steps().into_iter();
    steps.map(|(id, step)| line(id, step)).collect()
}

/// The last steps that have an outcome, the newest last.
pub(super) fn last(journal: &Journal, count: usize) -> Vec<StepLine> {
    let steps = journal.steps.iter();
    let mut done: Vec<_> = steps.filter(|(_, step)| step.outcome.is_some()).collect();
    let newest = done.len().saturating_sub(count);
    if newest > 0 {
        // There may be very many.
        done.select_nth_unstable_by_key(newest, |(_, step)| step.last);
        done.drain(..newest);
    }
    done.sort_by_key(|(_, step)| step.last);
    done.into_iter().map(|(id, step)| line(id, step)).collect()
}

/// Open steps that must not be sent again before somebody knows.
pub(super) fn in_doubt(journal: &Journal) -> Vec<InDoubt> {
    let open = journal.open_steps().into_iter();
    let once = open.filter(|(_, step)| step.effect == Effect::Once);
    once.map(|(id, step)| InDoubt {
        step: id.to_string(),
        key: journal.key_of(id),
        attempt: step.attempts,
        since_us: step.begun_us,
        input: step.input.as_ref().map(shown),
    })
    .collect()
}
