//! What a person says to a run, and what becomes of it.
//!
//! Invariant: an order is on disk when it is told to be sent. What is told afterwards (taken up,
//! refused, still waiting) is what the store says.

use std::time::Duration;

use dalsegno::{Remote, Sent};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::data;
use crate::exit::{Error, Result};
use crate::output::text::shown;

/// How long it is waited between two looks at most.
const LOOK_EVERY_AT_MOST: Duration = Duration::from_secs(1);

/// Something to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub run: String,
    pub what: What,
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// With the hash of what was shown.
    Approve {
        id: String,
        hash: String,
    },
    Deny {
        id: String,
        why: String,
    },
    Happened {
        step: String,
        result: Value,
    },
    DidNotHappen {
        step: String,
    },
    Fail {
        step: String,
    },
    Signal {
        name: String,
        value: Value,
    },
    Cancel {
        reason: String,
    },
    GoOn,
}

impl Order {
    /// In words, safe to print.
    pub fn words(&self) -> String {
        let what = match &self.what {
            What::Approve { id, .. } => format!("approve {id}"),
            What::Deny { id, .. } => format!("deny {id}"),
            What::Happened { step, .. } => format!("{step} happened"),
            What::DidNotHappen { step } => format!("{step} did not happen"),
            What::Fail { step } => format!("fail at {step}"),
            What::Signal { name, .. } => format!("signal {name}"),
            What::Cancel { .. } => "cancel".to_owned(),
            What::GoOn => "go on".to_owned(),
        };
        shown(&format!("{} · {what}", self.run))
    }
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not on disk yet.
    Sending,
    /// On disk, not taken up yet.
    Waiting,
    /// An event of the run now.
    Taken(u64),
    /// Not sent, or not taken, and why.
    Refused(String),
}

impl What {
    /// Whether it says what became of a step.
    pub fn is_about_doubt(&self) -> bool {
        matches!(
            self,
            What::Happened { .. } | What::DidNotHappen { .. } | What::Fail { .. }
        )
    }
}

/// News of an order.
#[derive(Clone, Debug)]
pub struct News {
    pub number: u64,
    pub fate: Fate,
}

/// Sends an order, and tells what becomes of it for as long as somebody listens.
pub async fn give(
    remote: Remote,
    by: String,
    order: Order,
    number: u64,
    tell: UnboundedSender<News>,
) {
    let say = |fate| tell.send(News { number, fate }).is_ok();
    let sent = match send(&remote, &by, &order).await {
        Ok(sent) => sent,
        Err(e) => {
            say(Fate::Refused(e.what));
            return;
        }
    };
    let mut every = Duration::from_millis(20);
    let mut told = false;
    loop {
        // If it cannot be looked now, the letter is there all the same.
        if sent.is_taken().await.unwrap_or(false) {
            break;
        }
        if !told && !say(Fate::Waiting) {
            return;
        }
        told = true;
        tokio::time::sleep(every).await;
        every = (every * 2).min(LOOK_EVERY_AT_MOST);
        if tell.is_closed() {
            return;
        }
    }
    say(match sent.taken_within(Duration::ZERO).await {
        Ok(taken) => match was_late(&remote, &order, taken.sequence).await {
            Some(why) => Fate::Refused(why),
            None => Fate::Taken(taken.sequence),
        },
        Err(dalsegno::Error::Refused { why, .. }) => Fate::Refused(shown(&why)),
        Err(e) => Fate::Refused(shown(&e.to_string())),
    });
}

async fn send(remote: &Remote, by: &str, order: &Order) -> Result<Sent> {
    let run = order.run.as_str();
    Ok(match &order.what {
        What::Approve { id, hash } => {
            check_is_as_shown(remote, run, id, hash).await?;
            remote.approve(run, id, by).await?
        }
        What::Deny { id, why } => remote.reject(run, id, by, why).await?,
        What::Happened { step, result } => remote.resolve_happened(run, step, result, by).await?,
        What::DidNotHappen { step } => remote.resolve_not_happened(run, step, by).await?,
        What::Fail { step } => remote.resolve_fail(run, step, by).await?,
        What::Signal { name, value } => remote.signal(run, name, value).await?,
        What::Cancel { reason } => remote.cancel(run, reason).await?,
        What::GoOn => remote.clear_attention(run).await?,
    })
}

/// The next turn of a loop may ask for something else under the same name.
async fn check_is_as_shown(remote: &Remote, run: &str, id: &str, hash: &str) -> Result<()> {
    let asked = data::asked(&**remote.store(), run).await?;
    match asked.iter().find(|asked| asked.id == id) {
        Some(asked) if asked.hash != hash => Err(Error::failed(
            "it asks for something else now than what was shown: look again",
        )),
        _ => Ok(()),
    }
}

/// Whether somebody else's answer came first, and counts: then this one was taken up for nothing.
async fn was_late(remote: &Remote, order: &Order, event: u64) -> Option<String> {
    let journal = data::journal(&**remote.store(), &order.run).await.ok()?;
    // What a loop knows nothing of any more it has gone on with.
    let (first, what) = match &order.what {
        What::Approve { id, .. } | What::Deny { id, .. } => {
            let answer = journal.approvals.get(id.as_str())?.answer.as_ref()?;
            let said = if answer.approved {
                "approved"
            } else {
                "denied"
            };
            (answer.sequence, format!("{said} by {}", answer.by))
        }
        What::Happened { step, .. } | What::DidNotHappen { step } | What::Fail { step } => {
            let step = journal.steps.get(step.as_str())?;
            step.outcome.as_ref()?;
            (step.last, "it has its outcome".to_owned())
        }
        What::Signal { .. } | What::Cancel { .. } | What::GoOn => return None,
    };
    let what = shown(&what);
    (first < event).then(|| format!("somebody was first, with event {first}: {what}"))
}
