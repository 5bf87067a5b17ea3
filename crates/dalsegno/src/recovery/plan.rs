//! What is to be done with each unfinished run, decided from what is recorded.
//!
//! | status | attention | last event | action |
//! |---|---|---|---|
//! | pending, running | yes | | broken: the run itself raises none there |
//! | pending | no | | started |
//! | running | no | | resumed |
//! | checkpointed | yes | attention raised | needs a person |
//! | checkpointed | yes | checkpointed | broken: the run did not raise it |
//! | checkpointed | yes | an answer | resumed |
//! | checkpointed | yes | anything else | needs a person |
//! | checkpointed | no | checkpointed | still waiting; resumed if a process closed |
//! | checkpointed | no | anything else | resumed |
//!
//! Invariant: a program that opens the store and one that only asks ([`recovery_plan`]) decide by
//! the same lines.

use dalsegno_store::{Event, Kind, RunInfo, RunQuery, Status, Store, StoreError};

use super::{Recovered, RecoveryAction};
use crate::error::Error;
use crate::journal::Journal;
use crate::why::{self, Why};

/// What a program would do with a run that is not finished, if it opened the store now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// What would be done with which run, and why.
    pub recovered: Recovered,
    /// Where the run is: what it was doing, what is in doubt, what comes next, what to do.
    pub why: Why,
}

/// What a program that has all agents would do with each unfinished run if it opened the store
/// now, in the order of their names. Changes nothing.
///
/// ```no_run
/// # async fn docs(store: &dyn dalsegno_store::Store) -> Result<(), dalsegno::Error> {
/// for run in dalsegno::recovery_plan(store).await? {
///     println!("{}", run.recovered);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The store cannot be read.
pub async fn recovery_plan(store: &dyn Store) -> Result<Vec<Planned>, Error> {
    let mut planned = Vec::new();
    for info in unfinished(store).await? {
        let found = match at_first_sight(&info, None) {
            Some(found) => found,
            None => match news(store, &info).await {
                Ok(found) => found,
                Err(e @ (StoreError::Damaged { .. } | StoreError::Read(_))) => {
                    Found::stays(RecoveryAction::Broken, e.to_string())
                }
                Err(e) => return Err(e.into()),
            },
        };
        let why = why::of_listed(store, &info).await?;
        let recovered = Recovered {
            run: info.run.name().to_owned(),
            agent: info.agent.unwrap_or_default(),
            action: found.action,
            why: found.why,
        };
        planned.push(Planned { recovered, why });
    }
    Ok(planned)
}

/// The runs that have not ended.
pub(crate) async fn unfinished(store: &dyn Store) -> Result<Vec<RunInfo>, StoreError> {
    let query = RunQuery {
        status: vec![Status::Pending, Status::Running, Status::Checkpointed],
        ..RunQuery::default()
    };
    store.runs(&query).await
}

/// What to do with a run that has not ended; `None` if its last events have to be read. `missing`
/// says why nobody here can execute its agent.
pub(crate) fn at_first_sight(info: &RunInfo, missing: Option<String>) -> Option<Found> {
    Some(match (info.status, &info.attention, missing) {
        (Status::Pending | Status::Running, Some(reason), _) => Found::broken(reason),
        (_, _, Some(why)) => Found::stays(RecoveryAction::NotRegistered, why),
        (Status::Pending, None, None) => {
            Found::goes_on(RecoveryAction::Started, "nobody had begun it")
        }
        (Status::Running, None, None) => Found::goes_on(
            RecoveryAction::Resumed,
            "its worker ended while it had it: its own report says what it was doing",
        ),
        _ => return None,
    })
}

/// What has come for a run since it was written down.
pub(crate) async fn news(store: &dyn Store, info: &RunInfo) -> Result<Found, StoreError> {
    // Giving back the lease follows the writing down.
    let from = info.head.sequence.saturating_sub(2).max(1);
    let last = store.events(&info.run, from, 3).await?;
    let mut events = last
        .iter()
        .rev()
        .filter(|event| event.kind != Kind::LeaseReleased);
    let Some(event) = events.next() else {
        return Ok(Found::goes_on(RecoveryAction::Resumed, "it can go on"));
    };
    Ok(match (&event.kind, &info.attention) {
        (Kind::AttentionRaised, Some(reason)) => {
            Found::stays(RecoveryAction::NeedsPerson, reason.clone())
        }
        // The run did not raise it: that would follow in the same append.
        (Kind::RunCheckpointed, Some(reason)) => Found::broken(reason),
        (Kind::RunCheckpointed, None) => waits(event),
        // Whether that is enough, the run finds out.
        (kind, Some(reason)) => {
            let answer = matches!(
                kind,
                Kind::StepResolved | Kind::BudgetSet | Kind::CancelRequested
            );
            match answer {
                true => Found::goes_on(RecoveryAction::Resumed, came(kind)),
                false => Found::goes_on(RecoveryAction::NeedsPerson, reason.as_str()),
            }
        }
        (kind, None) => Found::goes_on(RecoveryAction::Resumed, came(kind)),
    })
}

fn came(kind: &Kind) -> String {
    format!("something came for it while no process had it: {kind}")
}

/// What is to be done with a run that is written down, and for which nothing has come.
fn waits(checkpointed: &Event) -> Found {
    let mut journal = Journal::default();
    journal.apply(checkpointed.clone());
    let waits = journal.waits;
    // A process that closed has interrupted it.
    if waits.iter().any(|wait| wait == "the next process") {
        let why = "the process before closed while it had it";
        return Found::goes_on(RecoveryAction::Resumed, why);
    }
    let why = format!("it waits for {}", waits.join(", "));
    Found::stays(RecoveryAction::StillWaiting, why)
}

/// What was found of a run.
pub(crate) struct Found {
    pub action: RecoveryAction,
    pub why: String,
    /// It is taken up.
    pub go_on: bool,
}

impl Found {
    fn goes_on(action: RecoveryAction, why: impl Into<String>) -> Found {
        Found {
            action,
            why: why.into(),
            go_on: true,
        }
    }

    pub fn stays(action: RecoveryAction, why: String) -> Found {
        Found {
            action,
            why,
            go_on: false,
        }
    }

    fn broken(reason: &str) -> Found {
        let why = format!("{reason}: see all damage with verify, then restore a copy or repair");
        Found::stays(RecoveryAction::Broken, why)
    }
}
