//! Two recorded runs side by side: where they first differ.
//!
//! Steps are compared by their identities, in the order in which they were begun; that parallel
//! branches came in another order is no difference. What a clock, a die or an id gave is not
//! compared, or no two runs would be the same.
//!
//! Invariant: comparing a run with itself finds nothing, and which run is named first decides only
//! which side is which.

use std::collections::HashMap;
use std::fmt;

use dalsegno_store::{Payload, Status};

use crate::journal::{Journal, Outcome, StepRecord};
use crate::replay::Side;
use crate::run::shown;
use crate::step::StepKind;
use crate::timeline::{TimedStep, Timeline};

/// What comparing two runs came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunDiff {
    /// Steps that both have done the same before they differ, or in all.
    pub same_steps: usize,
    /// Where they first differ; `None` if they do not.
    pub difference: Option<Difference>,
}

/// The first place where two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// What sort.
    pub kind: DifferenceKind,
    /// The first run.
    pub left: Side,
    /// The other one.
    pub right: Side,
}

/// What sort of difference it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// They are of different agents.
    Agent,
    /// They were given different inputs.
    RunInput,
    /// A step of one is not there in the other, which does something else or nothing.
    Step,
    /// The same identity, but a step of another kind.
    Kind,
    /// The same step with another input.
    Input,
    /// The same step came to something else.
    Outcome,
    /// The same steps, and another end.
    End,
}

impl DifferenceKind {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            DifferenceKind::Agent => "agent",
            DifferenceKind::RunInput => "run-input",
            DifferenceKind::Step => "step",
            DifferenceKind::Kind => "kind",
            DifferenceKind::Input => "input",
            DifferenceKind::Outcome => "outcome",
            DifferenceKind::End => "end",
        }
    }
}

impl fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Where two runs first differ.
pub fn diff(left: &Timeline, right: &Timeline) -> RunDiff {
    let none = |difference| RunDiff {
        same_steps: 0,
        difference: Some(difference),
    };
    if let Some(difference) = beginnings(&left.journal, &right.journal) {
        return none(difference);
    }
    let first_left = first_other(left, right);
    let first_right = first_other(right, left);
    // Whichever comes first in its own run; a step that both have is seen from both sides.
    let (at, difference) = match (first_left, first_right) {
        (None, None) => {
            return RunDiff {
                same_steps: left.steps.len(),
                difference: ends(&left.journal, &right.journal),
            };
        }
        (Some((at, found)), Some((other, _))) if at <= other => (at, found),
        (Some((at, found)), None) => (at, found),
        (_, Some((at, found))) => (at, found.turned()),
    };
    RunDiff {
        same_steps: at,
        difference: Some(difference),
    }
}

impl Difference {
    fn turned(self) -> Difference {
        Difference {
            kind: self.kind,
            left: self.right,
            right: self.left,
        }
    }
}

fn beginnings(left: &Journal, right: &Journal) -> Option<Difference> {
    let (a, b) = (&left.created, &right.created);
    let said = |what: String| Side::other(what, Some(1));
    if a.agent != b.agent {
        return Some(Difference {
            kind: DifferenceKind::Agent,
            left: said(format!("agent {}", a.agent)),
            right: said(format!("agent {}", b.agent)),
        });
    }
    let given = |input: &Option<Payload>| match input {
        Some(input) => format!("given {}", shown(input)),
        None => "given nothing".to_owned(),
    };
    (a.input != b.input).then(|| Difference {
        kind: DifferenceKind::RunInput,
        left: said(given(&a.input)),
        right: said(given(&b.input)),
    })
}

/// The first step of one run that the other has not done the same, and its place.
fn first_other(one: &Timeline, other: &Timeline) -> Option<(usize, Difference)> {
    let known: HashMap<_, _> = other.steps.iter().map(|step| (&step.id, step)).collect();
    one.steps.iter().enumerate().find_map(|(at, step)| {
        let found = match known.get(&step.id) {
            Some(same) => compare(step, same)?,
            None => Difference {
                kind: DifferenceKind::Step,
                left: side(step),
                right: instead(one, other),
            },
        };
        Some((at, found))
    })
}

/// What a run does that does not come to a step of the other: a step of its own, or nothing.
fn instead(one: &Timeline, other: &Timeline) -> Side {
    let known: HashMap<_, _> = one.steps.iter().map(|step| (&step.id, ())).collect();
    let mut own = other.steps.iter().filter(|s| !known.contains_key(&s.id));
    match own.next() {
        Some(step) => side(step),
        None => Side::other(end_of(&other.journal), Some(other.journal.last)),
    }
}

fn compare(a: &TimedStep, b: &TimedStep) -> Option<Difference> {
    let (left, right) = (&a.record, &b.record);
    let kind = match () {
        () if left.kind != right.kind => DifferenceKind::Kind,
        () if left.input != right.input => DifferenceKind::Input,
        () if left.kind != StepKind::Value && differs(left, right) => DifferenceKind::Outcome,
        () => return None,
    };
    let told = |step: &TimedStep| {
        let mut side = side(step);
        if kind == DifferenceKind::Outcome {
            side.what = Some(outcome(&step.record));
        }
        side
    };
    Some(Difference {
        kind,
        left: told(a),
        right: told(b),
    })
}

fn differs(left: &StepRecord, right: &StepRecord) -> bool {
    match (&left.outcome, &right.outcome) {
        (Some(Outcome::Failed(a)), Some(Outcome::Failed(b))) => a.message() != b.message(),
        (a, b) => a != b,
    }
}

fn side(step: &TimedStep) -> Side {
    Side::of_step(&step.id, &step.record)
}

fn outcome(step: &StepRecord) -> String {
    match &step.outcome {
        Some(Outcome::Succeeded(Some(output))) => format!("came to {}", shown(output)),
        Some(Outcome::Succeeded(None)) => "was done".to_owned(),
        Some(Outcome::Failed(failure)) => format!("failed: {failure}"),
        None => "has no outcome".to_owned(),
    }
}

fn ends(left: &Journal, right: &Journal) -> Option<Difference> {
    let same = left.status == right.status && left.end == right.end;
    // How far two runs have come that are under way is no difference in what they did.
    let open = |journal: &Journal| !journal.status.is_final();
    let both_open = open(left) && open(right);
    (!same && !both_open).then(|| Difference {
        kind: DifferenceKind::End,
        left: Side::other(end_of(left), Some(left.last)),
        right: Side::other(end_of(right), Some(right.last)),
    })
}

fn end_of(journal: &Journal) -> String {
    match (&journal.end, journal.status) {
        (Some(Outcome::Succeeded(Some(output))), _) => format!("ends with {}", shown(output)),
        (Some(Outcome::Succeeded(None)), _) => "ends".to_owned(),
        (Some(Outcome::Failed(failure)), _) => format!("fails: {failure}"),
        (None, Status::Cancelled) => "was cancelled".to_owned(),
        (None, status) => format!("has come no further: {status}"),
    }
}
