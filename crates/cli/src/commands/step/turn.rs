//! What a step of a script is told, whoever has told it: the store, or the worker that has its run.

use dalsegno::script::{Asked, Permit};
use dalsegno::{Attention, AttentionKind, Effect};

use crate::line::{FromWorker, Granted, Line};

/// What to do about a step.
#[derive(Debug)]
pub enum Turn {
    /// Nothing: this is what it came to.
    Recorded(Came),
    /// Do it.
    Execute(Right),
    /// Find out whether it happened; why nobody knows.
    InDoubt(Right, String),
    /// Its name stands for something else: what is recorded, and what was asked for.
    Mismatch(String, String),
    /// Only a person can move the run on.
    NeedsPerson(Asks),
    /// The run is this.
    Ended(String),
    /// The worker is about to hand the run over.
    Stopping,
}

/// What a step came to.
#[derive(Debug)]
pub struct Came {
    pub step: String,
    pub attempts: u64,
    pub failure: Option<String>,
    pub output: Option<Vec<u8>>,
}

/// What a person is asked.
#[derive(Debug)]
pub struct Asks {
    pub reason: String,
    /// The step in doubt, if that is why.
    pub in_doubt: Option<String>,
}

impl From<&Attention> for Asks {
    fn from(attention: &Attention) -> Asks {
        let step = attention.step.as_ref().map(ToString::to_string);
        Asks {
            reason: attention.reason.clone(),
            in_doubt: step.filter(|_| attention.kind == AttentionKind::InDoubt),
        }
    }
}

/// The right to execute a step, once.
#[derive(Debug)]
#[must_use = "a step that is not finished is in doubt"]
pub struct Right {
    pub step: String,
    pub effect: Effect,
    pub attempt: u64,
    /// The same on every attempt, process and machine.
    pub key: String,
    pub by: By,
}

/// Who is told what it came to.
#[derive(Debug)]
pub enum By {
    Store(Permit),
    /// With the process group of the script.
    Worker(Line, u32),
}

impl From<Permit> for Right {
    fn from(permit: Permit) -> Right {
        Right {
            step: permit.step().to_string(),
            effect: permit.effect(),
            attempt: permit.attempt(),
            key: permit.key().to_owned(),
            by: By::Store(permit),
        }
    }
}

impl Right {
    /// As a worker has given it.
    pub fn of_worker(granted: Granted, line: Line) -> Right {
        Right {
            step: granted.step,
            effect: granted.effect.into(),
            attempt: granted.attempt,
            key: granted.key,
            by: By::Worker(line, granted.group),
        }
    }
}

impl From<Asked> for Turn {
    fn from(asked: Asked) -> Turn {
        match asked {
            Asked::Recorded(came) => Turn::Recorded(Came {
                step: came.step.to_string(),
                attempts: came.attempts,
                failure: came.failure.map(|failure| failure.to_string()),
                output: came.output,
            }),
            Asked::Execute(permit) => Turn::Execute(permit.into()),
            Asked::InDoubt(permit, why) => Turn::InDoubt(permit.into(), why),
            Asked::Mismatch(then, now) => Turn::Mismatch(then, now),
            Asked::NeedsPerson(attention) => Turn::NeedsPerson(Asks::from(&attention)),
            Asked::Ended(status) => Turn::Ended(status.to_string()),
            Asked::Stopping => Turn::Stopping,
        }
    }
}

impl Turn {
    /// What a worker has said; an error is what it said instead of an answer.
    pub fn of_worker(said: FromWorker, line: Line) -> Result<Turn, FromWorker> {
        Ok(match said {
            FromWorker::Recorded {
                step,
                attempts,
                failure,
                output,
            } => Turn::Recorded(Came {
                step,
                attempts,
                failure,
                output: output.map(String::into_bytes),
            }),
            FromWorker::Execute(granted) => Turn::Execute(Right::of_worker(granted, line)),
            FromWorker::InDoubt(granted, why) => {
                Turn::InDoubt(Right::of_worker(granted, line), why)
            }
            FromWorker::Mismatch { then, now } => Turn::Mismatch(then, now),
            FromWorker::NeedsPerson { reason, in_doubt } => {
                Turn::NeedsPerson(Asks { reason, in_doubt })
            }
            FromWorker::Ended(status) => Turn::Ended(status),
            FromWorker::Stopping => Turn::Stopping,
            other @ (FromWorker::Finished { .. } | FromWorker::Refused { .. }) => {
                return Err(other);
            }
        })
    }
}
