//! The person whom runs ask.

use std::sync::Arc;

use dalsegno_store::{Body, RunQuery, Status};
use serde_json::Value;

use super::World;
use crate::engine::Dalsegno;
use crate::error::Error;
use crate::journal::Journal;

/// What a run asks, or waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// For an approval.
    Approval {
        /// The run.
        run: String,
        /// Which approval.
        approval: String,
        /// What is to be approved.
        shown: Value,
    },
    /// Whether a step happened.
    Doubt {
        /// The run.
        run: String,
        /// The step.
        step: String,
        /// The key that it was sent with.
        key: String,
    },
    /// For a signal.
    Signal {
        /// The run.
        run: String,
        /// Its name.
        name: String,
    },
}

/// What the person says.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Yes.
    Approve,
    /// No, because.
    Reject(String),
    /// It happened, and this was the result.
    Happened(Value),
    /// It did not happen.
    DidNotHappen,
    /// The run fails.
    FailRun,
    /// A signal.
    Signal(Value),
    /// Nothing: time goes on.
    Nothing,
}

pub(crate) type Person = Arc<dyn Fn(&Ask, &World) -> Reply + Send + Sync>;

/// Approves everything, and answers doubts by looking at the world.
pub(crate) fn honest(ask: &Ask, world: &World) -> Reply {
    match ask {
        Ask::Approval { .. } => Reply::Approve,
        Ask::Doubt { key, .. } => match world.under(key) {
            Some(result) => Reply::Happened(result),
            None => Reply::DidNotHappen,
        },
        Ask::Signal { .. } => Reply::Nothing,
    }
}

/// Looks at all runs and answers what they ask. How many answers were given.
pub(crate) async fn look(app: Dalsegno, person: Person, world: World) -> Result<usize, Error> {
    let query = RunQuery {
        status: vec![Status::Checkpointed],
        ..RunQuery::default()
    };
    let mut answers = 0;
    for info in app.runs(&query).await? {
        let run = info.run.name();
        let journal = app.journal(run).await?;
        for ask in asks(run, &journal) {
            answers += usize::from(answer(&app, &ask, person(&ask, &world)).await?);
        }
    }
    Ok(answers)
}

/// What a run asks a person.
pub fn asks(run: &str, journal: &Journal) -> Vec<Ask> {
    let run = run.to_owned();
    if let Some(step) = journal.in_doubt() {
        let (step, key) = (step.to_string(), journal.key_of(step));
        return vec![Ask::Doubt { run, step, key }];
    }
    let mut asks = Vec::new();
    let mut open: Vec<_> = journal.approvals.iter().collect();
    open.sort_by_key(|(id, _)| id.as_str().to_owned());
    for (id, asked) in open {
        let waits = journal.waits.contains(&format!("approval {id}"));
        if asked.answer.is_none() && waits {
            let shown = asked.payload.as_ref().map(|payload| match &payload.body {
                Body::Inline(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
                Body::Stored { .. } => Value::Null,
            });
            asks.push(Ask::Approval {
                run: run.clone(),
                approval: id.to_string(),
                shown: shown.unwrap_or_default(),
            });
        }
    }
    for wait in &journal.waits {
        if let Some(name) = wait.strip_prefix("signal ") {
            asks.push(Ask::Signal {
                run: run.clone(),
                name: name.to_owned(),
            });
        }
    }
    asks
}

async fn answer(app: &Dalsegno, ask: &Ask, reply: Reply) -> Result<bool, Error> {
    match (ask, reply) {
        (Ask::Approval { run, approval, .. }, Reply::Approve) => {
            app.approve(run, approval, "a person").await?;
        }
        (Ask::Approval { run, approval, .. }, Reply::Reject(why)) => {
            app.reject(run, approval, "a person", &why).await?;
        }
        (Ask::Doubt { run, step, .. }, Reply::Happened(result)) => {
            app.resolve_happened(run, step, &result, "a person").await?;
        }
        (Ask::Doubt { run, step, .. }, Reply::DidNotHappen) => {
            app.resolve_not_happened(run, step, "a person").await?;
        }
        (Ask::Doubt { run, step, .. }, Reply::FailRun) => {
            app.resolve_fail(run, step, "a person").await?;
        }
        (Ask::Signal { run, name }, Reply::Signal(value)) => {
            app.signal(run, name, &value).await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
