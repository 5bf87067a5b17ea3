//! Whether a run is moving, and if not, why not and what to do.
//!
//! The first row that applies is the answer:
//!
//! | recorded, listed or known here | standing |
//! |---|---|
//! | it has ended | `Ended` |
//! | the store lists an attention that the run did not raise | `Broken` |
//! | attention, and nobody has answered | `NeedsPerson` |
//! | this process has not registered its agent | `NotRegistered` |
//! | it waits for a place in this process | `Queued` |
//! | it is in this process's memory, and something is under way | `Moving` |
//! | this process could not go on with it | `HeldElsewhere`, `StoreFailing` |
//! | a worker had it, and nobody holds it | `WorkerGone` |
//! | a worker has it | `Moving`, `HeldElsewhere` |
//! | nobody has begun it, or its process has closed | `WaitsForProcess` |
//! | it waits | by what it waits for |

use std::fmt;

use dalsegno_store::Status;

use super::next::Next;
use super::{Facts, utc};
use crate::attention::{Attention, AttentionKind};
use crate::journal::{Journal, Outcome};

/// What to do about damage.
pub(super) const MEND: &str = "see all damage with verify, then restore a copy or repair";

/// Whether a run is moving, and if not, what sort of reason there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It is being executed.
    Moving,
    /// It is over.
    Ended,
    /// Only a person can move it on.
    NeedsPerson,
    /// It has asked a person, and waits for the answer.
    WaitsForApproval,
    /// It waits for a signal.
    WaitsForSignal,
    /// It waits for another run.
    WaitsForChild,
    /// It waits for a time.
    WaitsForTime,
    /// A step has failed, and is tried again later.
    WaitsForRetry,
    /// No process has it; one that has its agent takes it up.
    WaitsForProcess,
    /// This process cannot execute it: its agent is not registered.
    NotRegistered,
    /// It waits for a place in this process.
    Queued,
    /// Another worker has it.
    HeldElsewhere,
    /// Its worker is gone, and nobody has taken it up.
    WorkerGone,
    /// Something could not be read or written.
    StoreFailing,
    /// Events of it are lost or cannot be read.
    Broken,
}

impl Standing {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Standing::Moving => "moving",
            Standing::Ended => "ended",
            Standing::NeedsPerson => "needs-person",
            Standing::WaitsForApproval => "waits-for-approval",
            Standing::WaitsForSignal => "waits-for-signal",
            Standing::WaitsForChild => "waits-for-child",
            Standing::WaitsForTime => "waits-for-time",
            Standing::WaitsForRetry => "waits-for-retry",
            Standing::WaitsForProcess => "waits-for-process",
            Standing::NotRegistered => "not-registered",
            Standing::Queued => "queued",
            Standing::HeldElsewhere => "held-elsewhere",
            Standing::WorkerGone => "worker-gone",
            Standing::StoreFailing => "store-failing",
            Standing::Broken => "broken",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What is known outside of the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// What the process that executes runs knows; `None` if another one asks.
    pub here: Option<Here>,
}

/// What the process that executes runs knows of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Here {
    pub session: String,
    /// The agents that are registered, if the run's own is not.
    pub only: Option<String>,
    /// It is in memory.
    pub resident: bool,
    /// A step is being executed.
    pub busy: bool,
    /// What its code waits for, if it is in memory.
    pub waits: Vec<String>,
    /// How many wait for a place before it.
    pub queued: Option<usize>,
    /// How many may be in memory.
    pub max_running: usize,
    /// Why it could not be gone on with.
    pub not_moving: Option<String>,
}

/// The answer, with its reason and what to do.
pub(super) struct Told {
    pub standing: Standing,
    pub because: String,
    pub to_do: String,
}

fn told(standing: Standing, because: impl Into<String>, to_do: impl Into<String>) -> Told {
    Told {
        standing,
        because: because.into(),
        to_do: to_do.into(),
    }
}

/// By the table above.
pub(super) fn of(facts: &Facts<'_>, next: &[Next]) -> Told {
    let journal = facts.journal;
    if journal.status.is_final() {
        return ended(journal);
    }
    let listed = facts.info.and_then(|info| info.attention.as_deref());
    match (&journal.attention, listed) {
        (None, Some(reason)) => return told(Standing::Broken, reason, MEND),
        (Some(attention), _) if !journal.answered => {
            let to_do = for_a_person(attention, facts.run.name());
            return told(Standing::NeedsPerson, attention.reason.as_str(), to_do);
        }
        _ => {}
    }
    if let Some(here) = &facts.notes.here
        && let Some(told) = here_and_now(facts, here)
    {
        return told;
    }
    match journal.status {
        Status::Pending => told(
            Standing::WaitsForProcess,
            "no process has begun it",
            format!("start one that has agent {:?}", journal.created.agent),
        ),
        Status::Running => running(facts),
        _ => waiting(journal, next, facts.run.name()),
    }
}

/// What only the process that executes runs can say.
fn here_and_now(facts: &Facts<'_>, here: &Here) -> Option<Told> {
    let journal = facts.journal;
    if let Some(known) = &here.only {
        let because = format!(
            "its agent {:?} is not registered in this process, only {known}",
            journal.created.agent
        );
        let to_do = "register it before the store is opened";
        return Some(told(Standing::NotRegistered, because, to_do));
    }
    if let Some(before) = here.queued {
        let because = format!(
            "{} runs are in memory, as many as may be, and {before} wait for a place before it",
            here.max_running
        );
        return Some(told(
            Standing::Queued,
            because,
            "wait, or raise max_running",
        ));
    }
    if here.resident && (here.busy || here.waits.is_empty()) {
        let because = format!("this process ({}) executes it", here.session);
        return Some(told(Standing::Moving, because, ""));
    }
    if here.resident {
        // It waits for something, if only for a moment.
        return None;
    }
    let why = here.not_moving.as_ref()?;
    let lease = facts.info.and_then(|info| info.lease.as_ref());
    let other = lease.filter(|lease| *lease.owner != *here.session);
    Some(match other {
        Some(lease) => held(&lease.owner, lease.until_us),
        None => told(
            Standing::StoreFailing,
            why.as_str(),
            "mend what it says, then open the store again",
        ),
    })
}

fn held(owner: &str, until_us: u64) -> Told {
    let because = format!("worker {owner} holds it until {}", utc(until_us));
    let to_do = "wait for that worker, or for its lease to end";
    told(Standing::HeldElsewhere, because, to_do)
}

/// A worker had it when it was last written about.
fn running(facts: &Facts<'_>) -> Told {
    let lease = facts.info.and_then(|info| info.lease.as_ref());
    let had = facts.journal.session.as_deref().unwrap_or("unknown");
    match (&facts.notes.here, lease) {
        (Some(here), Some(lease)) if *lease.owner == *here.session => {
            let because = format!("this process ({}) executes it", here.session);
            told(Standing::Moving, because, "")
        }
        (Some(_), Some(lease)) => held(&lease.owner, lease.until_us),
        (None, Some(lease)) => told(
            Standing::Moving,
            format!(
                "worker {} has taken it, and whether it lives cannot be seen from here",
                lease.owner
            ),
            "if that process is gone, start one: it goes on where the run was",
        ),
        (_, None) => told(
            Standing::WorkerGone,
            format!("its worker (session {had}) is gone"),
            format!(
                "start a process that has agent {:?}: it goes on where the run was",
                facts.journal.created.agent
            ),
        ),
    }
}

fn ended(journal: &Journal) -> Told {
    match (&journal.end, journal.status) {
        (Some(Outcome::Failed(failure)), _) => told(
            Standing::Ended,
            format!("it failed: {failure}"),
            "see the failure, then start another run",
        ),
        (_, Status::Cancelled) => {
            let why = journal.cancel.as_deref().unwrap_or_default();
            let because = match why.is_empty() {
                true => "it was cancelled".to_owned(),
                false => format!("it was cancelled: {why}"),
            };
            told(Standing::Ended, because, "")
        }
        _ => told(Standing::Ended, "it is done", ""),
    }
}

fn for_a_person(attention: &Attention, run: &str) -> String {
    let step = attention.step.as_ref().map_or("it", |step| step.as_str());
    match attention.kind {
        AttentionKind::InDoubt => format!(
            "look whether {step} happened, then resolve {run} {step}: happened, did not happen, or \
             fail the run"
        ),
        AttentionKind::Mismatch => {
            "bring the old code back or branch on ctx.patched, then clear the attention".to_owned()
        }
        AttentionKind::Budget => format!("raise the budget of {run}, or cancel it"),
        AttentionKind::Resource => {
            "bring it back as it was, or clear the attention to accept it as it is now".to_owned()
        }
        AttentionKind::Panic => "mend the agent's code, then clear the attention".to_owned(),
        AttentionKind::CrashLoop => {
            format!("see why the process ends during {step}, then clear the attention")
        }
        AttentionKind::Other => "see the reason, then clear the attention".to_owned(),
    }
}

/// A run that is written down and not in memory.
fn waiting(journal: &Journal, next: &[Next], run: &str) -> Told {
    let rank = |next: &&Next| match next {
        Next::Approval { .. } => 1,
        Next::Signal { .. } => 2,
        Next::Child { .. } => 3,
        Next::Retry { .. } => 4,
        Next::Time { .. } => 5,
        _ => 6,
    };
    let interrupted = journal.waits.iter().any(|wait| wait == "the next process");
    let first = next.iter().min_by_key(rank).filter(|_| !interrupted);
    match first {
        Some(Next::Approval { approval, .. }) => told(
            Standing::WaitsForApproval,
            format!("it waits for a person's answer to {approval}"),
            format!("approve or reject {approval} of {run}"),
        ),
        Some(Next::Signal { name, .. }) => told(
            Standing::WaitsForSignal,
            format!("it waits for the signal {name}"),
            format!("send {name} to {run}"),
        ),
        Some(Next::Child { run: child, .. }) => told(
            Standing::WaitsForChild,
            format!("it waits for the end of run {child}"),
            format!("see why {child} is not at its end"),
        ),
        Some(Next::Retry { step, at_us, .. }) => told(
            Standing::WaitsForRetry,
            format!("{step} has failed and is tried again at {}", utc(*at_us)),
            "",
        ),
        Some(Next::Time { until_us, .. }) => told(
            Standing::WaitsForTime,
            format!("it waits until {}", utc(*until_us)),
            "",
        ),
        _ => told(
            Standing::WaitsForProcess,
            "it was written down and can go on",
            format!("start a process that has agent {:?}", journal.created.agent),
        ),
    }
}
