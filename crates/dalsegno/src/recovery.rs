//! What was done with each unfinished run when a store was opened, and why.
//!
//! Two places have it: [`Dalsegno::recovered`] for this opening, in memory; and, for a run whose
//! worker died, a `RunRecovered` event in its own stream with the whole report, so that
//! [`crate::views::recovery_log`] can be read ever after.
//!
//! Invariant: no unfinished run is passed over. What is not gone on with says why.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dalsegno_store::{Event, Fields, Kind, NewEvent, NewPayload};
use serde_json::Value;

use crate::bell::Bell;
use crate::engine::Dalsegno;
use crate::failure::numbered;
use crate::record::{bounded, recovered as field};

pub(crate) mod plan;

pub use plan::{Planned, recovery_plan};

/// What was done with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryAction {
    /// It goes on where it was.
    Resumed,
    /// It had not begun, and begins now.
    Started,
    /// It waits, as before.
    StillWaiting,
    /// Only a person can move it on.
    NeedsPerson,
    /// This process has not registered its agent.
    NotRegistered,
    /// Events of it are lost.
    Broken,
    /// What it depends on has changed, and it is to fail then.
    Failed,
}

// The numbers are part of the format.
numbered! { RecoveryAction:
    Resumed = 1, "resumed";
    Started = 2, "started";
    StillWaiting = 3, "still-waiting";
    NeedsPerson = 4, "needs-person";
    NotRegistered = 5, "not-registered";
    Broken = 6, "broken";
    Failed = 7, "failed";
}

impl RecoveryAction {
    /// Whether this process will not do anything with the run.
    pub(crate) fn is_stuck(self) -> bool {
        matches!(self, RecoveryAction::NotRegistered | RecoveryAction::Broken)
    }
}

/// What was done with a run that was not finished, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The run.
    pub run: String,
    /// Its agent.
    pub agent: String,
    /// What was done.
    pub action: RecoveryAction,
    /// Why, in words.
    pub why: String,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, agent) = (&self.run, &self.agent);
        write!(f, "{run} of {agent}: {}: {}", self.action, self.why)
    }
}

impl Dalsegno {
    /// What was done with each run that was not finished when this store was opened, in the order
    /// of their names. Waits until all were looked at, which goes on after the opening.
    ///
    /// ```no_run
    /// # async fn docs(app: dalsegno::Dalsegno) {
    /// for run in app.recovered().await {
    ///     println!("{run}");
    /// }
    /// # }
    /// ```
    pub async fn recovered(&self) -> Vec<Recovered> {
        self.engine.recovered.all().await
    }
}

/// What was done with the runs that were found.
#[derive(Debug, Default)]
pub(crate) struct Recoveries {
    list: Mutex<List>,
    complete: Bell,
}

#[derive(Debug, Default)]
struct List {
    recovered: Vec<Recovered>,
    is_complete: bool,
}

impl Recoveries {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, recovered: Recovered) {
        self.list().recovered.push(recovered);
    }

    /// There are no more, or nobody looks any more.
    pub fn complete(&self) {
        self.list().is_complete = true;
        self.complete.ring();
    }

    async fn all(&self) -> Vec<Recovered> {
        loop {
            let rung = self.complete.count();
            {
                let mut list = self.list();
                if list.is_complete {
                    list.recovered.sort_by(|a, b| a.run.cmp(&b.run));
                    return list.recovered.clone();
                }
            }
            self.complete.after(rung).await;
        }
    }
}

/// The event that a run was recovered, with its report.
pub(crate) fn recovered_event(
    action: RecoveryAction,
    why: &str,
    session: &str,
    previous: Option<u64>,
    report: &Value,
) -> NewEvent {
    let mut fields = Fields::new()
        .with(field::ACTION, action.number())
        .with(field::WHY, bounded(why))
        .with(field::SESSION, session);
    if let Some(previous) = previous {
        fields = fields.with(field::PREVIOUS, previous);
    }
    let event = NewEvent::new(Kind::RunRecovered).with_fields(fields);
    event.with_input(NewPayload::json(report.to_string()))
}

/// What such an event says: what was done and why, the session, and the event of the one before.
pub(crate) fn read_event(event: &Event) -> (RecoveryAction, String, String, Option<u64>) {
    let fields = &event.fields;
    let action = fields.number(field::ACTION);
    let action = action.and_then(RecoveryAction::from_number);
    let text = |key| fields.text(key).unwrap_or_default().to_owned();
    let previous = fields.number(field::PREVIOUS);
    (
        action.unwrap_or(RecoveryAction::Resumed),
        text(field::WHY),
        text(field::SESSION),
        previous,
    )
}
