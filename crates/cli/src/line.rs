//! What `dalsegno step` and the worker that started its script say to each other: one JSON document a
//! line over a Unix socket, one connection for each step.
//!
//! ```text
//! step                         worker
//! ask                    →     recorded, mismatch, needs_person, ended, stopping, refused: done
//!                              execute
//!   … the command …
//! outcome                →     finished: it is durable
//!                              in_doubt
//!   … the probe …
//! happened, unknown      →     finished, needs_person
//! did_not_happen         →     finished, or execute if it is to be done again
//! ```
//!
//! Invariant: who gets no answer knows that nothing was begun for it, or that what it did is not known to
//! be recorded. A line is never longer than [`LIMIT_BYTES`].

use std::io;

use dalsegno::Effect;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::process::OUTPUT_LIMIT_BYTES;

/// The environment of a command has the path of its worker's socket here.
pub const SOCKET: &str = "DALSEGNO_WORKER";

/// The longest line: the largest document that can be recorded, each of its characters escaped.
const LIMIT_BYTES: usize = 2 * OUTPUT_LIMIT_BYTES + (1 << 20);

/// What a step says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// May it begin?
    Ask {
        run: String,
        name: String,
        effect: EffectWord,
        /// What it is to do, as JSON.
        input: String,
        /// How long to wait for another step.
        wait_ms: u64,
    },
    /// What it came to, with its result as JSON.
    Outcome {
        came_to: CameTo,
        output: Option<String>,
    },
    /// A step in doubt happened.
    Happened { output: Option<String> },
    /// It did not.
    DidNotHappen { again: bool },
    /// Nobody knows.
    Unknown { why: String },
    /// The run ends with a result, or in a failure.
    End {
        run: String,
        result: Option<String>,
        fail: Option<String>,
    },
}

/// What a step came to.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CameTo {
    Done,
    /// It did nothing, and is tried again.
    NotDone(String),
    /// It may have done something, and is tried again.
    FailedForNow(String),
    Failed(String),
}

/// What the worker says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    Recorded {
        step: String,
        attempts: u64,
        failure: Option<String>,
        output: Option<String>,
    },
    Execute(Granted),
    InDoubt(Granted, String),
    Mismatch {
        then: String,
        now: String,
    },
    NeedsPerson {
        reason: String,
        /// The step in doubt, if that is why.
        in_doubt: Option<String>,
    },
    /// The run is completed, failed or cancelled.
    Ended(String),
    Stopping,
    /// What was said is recorded; why that was not possible as it is, if it was not.
    Finished {
        instead: Option<String>,
    },
    /// Nothing was done.
    Refused {
        what: String,
        hint: Option<String>,
    },
}

/// The right to execute a step.
#[derive(Debug, Deserialize, Serialize)]
pub struct Granted {
    pub step: String,
    pub effect: EffectWord,
    pub attempt: u64,
    pub key: String,
    /// The process group of the script, which ends with its worker.
    pub group: u32,
}

/// What a step does to the world.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectWord {
    ReadOnly,
    Idempotent,
    Once,
}

impl From<Effect> for EffectWord {
    fn from(effect: Effect) -> EffectWord {
        match effect {
            Effect::ReadOnly => EffectWord::ReadOnly,
            Effect::Idempotent => EffectWord::Idempotent,
            Effect::Once => EffectWord::Once,
        }
    }
}

impl From<EffectWord> for Effect {
    fn from(word: EffectWord) -> Effect {
        match word {
            EffectWord::ReadOnly => Effect::ReadOnly,
            EffectWord::Idempotent => Effect::Idempotent,
            EffectWord::Once => Effect::Once,
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Line {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
    /// What was read of the next line.
    begun: Vec<u8>,
}

impl Line {
    pub fn new(stream: UnixStream) -> Line {
        let (from, to) = stream.into_split();
        Line {
            from: BufReader::new(from),
            to,
            begun: Vec::new(),
        }
    }

    /// Says something.
    ///
    /// # Errors
    /// Nobody listens, or it is too long.
    pub async fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        if line.len() >= LIMIT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
        }
        line.push(b'\n');
        self.to.write_all(&line).await
    }

    /// What the other side says next; `None` if it has gone. Can be waited for and given up, and nothing
    /// is lost.
    ///
    /// # Errors
    /// It says something that is no line of ours.
    pub async fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            let read = self.from.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            self.begun.extend_from_slice(&read[..taken]);
            self.from.consume(taken);
            if self.begun.len() > LIMIT_BYTES {
                let too_long = "a line is too long";
                return Err(io::Error::new(io::ErrorKind::InvalidData, too_long));
            }
            if end.is_some() {
                let line = std::mem::take(&mut self.begun);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn both<T>(talk: impl AsyncFnOnce(Line, Line) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let (one, other) = UnixStream::pair().unwrap();
            talk(Line::new(one), Line::new(other)).await
        })
    }

    #[test]
    fn what_is_said_is_heard_and_an_end_is_an_end() {
        both(async |mut step, mut worker| {
            let unknown = ToWorker::Unknown {
                why: "line\nbreak".into(),
            };
            step.say(&unknown).await.unwrap();
            step.say(&ToWorker::DidNotHappen { again: true })
                .await
                .unwrap();
            let first = worker.hear().await.unwrap();
            assert!(matches!(first, Some(ToWorker::Unknown { why }) if why == "line\nbreak"));
            let second = worker.hear().await.unwrap();
            assert!(matches!(
                second,
                Some(ToWorker::DidNotHappen { again: true })
            ));
            drop(step);
            assert!(worker.hear::<ToWorker>().await.unwrap().is_none());
        });
    }

    #[test]
    fn nonsense_is_an_error() {
        both(async |mut step, mut worker| {
            step.say(&"hello").await.unwrap();
            assert!(worker.hear::<ToWorker>().await.is_err());
        });
    }
}
