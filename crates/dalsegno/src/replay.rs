//! Replay: a recorded run again, against today's code.
//!
//! Every outcome comes from the record. Nothing is executed, nothing is appended: the store that the
//! code sees refuses every write. What comes of it is *the same path*, or the **first** place at
//! which the code does something else than what is recorded, with both sides.
//!
//! ```no_run
//! # async fn check(app: dalsegno::Dalsegno) -> Result<(), dalsegno::Error> {
//! let replayed = app.replay("order-42").await?;
//! if let Some(divergence) = replayed.divergence() {
//!     println!("{divergence}");
//! }
//! # Ok(()) }
//! ```
//!
//! | the code | what is said |
//! |---|---|
//! | comes to the same steps with the same inputs, and ends the same | [`ReplayVerdict::SameEnd`] |
//! | the same, and the record ends before the code does (unfinished, waiting, in doubt, cancelled) | [`ReplayVerdict::RecordEnds`] |
//! | another kind of step or other inputs at a recorded identity | diverged |
//! | a step more, a step less, other names, another order | diverged |
//! | another decision, other content of an event, mark or request, another state after a turn | diverged |
//! | another result, another failure, a panic | diverged |
//! | the same lookup in the same version of a memory, and it finds something else | diverged |
//!
//! A replay is stricter than recovery. Recovery takes the recorded decision if the code comes to
//! another one, and lets steps be served in any order. A replay hands out outcomes one at a time, in
//! the order in which they were recorded (`replay/gate.rs`), so it says both.
//!
//! What is not looked at: steps inside a plan step that has its result (as in recovery), how long a
//! sleep is, the content of signals that were sent, and what only the code's own futures do. A loop
//! is replayed from its first turn ([`Dalsegno::replay`]) or from its last
//! ([`Dalsegno::replay_last_turn`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use dalsegno_store::{Store, StoreError, StreamId};

use crate::agent::Agent;
use crate::engine::{Builder, Dalsegno};
use crate::error::Error;
use crate::journal::{Journal, StepRecord};
#[cfg(feature = "memory")]
use crate::memories::Memories;
use crate::run::shown;
use crate::runtime::{Runtime, Tokio};
use crate::step::{StepId, StepKind};

mod drive;
mod ends;
mod feed;
mod gate;
mod order;
mod read_only;
mod shadow;
mod verdict;

pub(crate) use gate::ReplayGate;
pub use shadow::{DivergenceGroup, ShadowReport, shadow_replay};

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The run.
    pub run: String,
    /// Its agent.
    pub agent: String,
    /// Outcomes that the code was given from the record.
    pub steps: u64,
    /// Lookups in a memory that could not be made again to be compared, because documents of that
    /// version were forgotten since.
    pub unchecked: u64,
    /// Of a loop: turns that ended as they had.
    pub turns: u64,
    /// What it came to.
    pub verdict: ReplayVerdict,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayVerdict {
    /// The run had ended, and the code ended the same, with the same result.
    SameEnd,
    /// The code went the same way as far as the record goes. The run has not ended, or not by its
    /// code.
    RecordEnds {
        /// What the code wants to do next, in words; empty if it has ended.
        next: Vec<String>,
    },
    /// The code does something else.
    Diverged(Box<Divergence>),
}

/// The first place where the code does something else than what is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// What sort.
    pub kind: DivergenceKind,
    /// What is recorded.
    pub recorded: Side,
    /// What the code does now.
    pub now: Side,
}

/// What sort of divergence it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DivergenceKind {
    /// The same step with another input or content.
    Input,
    /// The same identity, but a step of another kind.
    Kind,
    /// Another decision.
    Decision,
    /// Another step, or none, where a recorded one should come: removed, renamed, inserted before,
    /// or in another order.
    Step,
    /// A step after the last one of a run that has ended.
    Beyond,
    /// Another state after a turn, or a turn that ends elsewhere.
    Turn,
    /// Another result or failure.
    Result,
    /// What is recorded cannot be read as the type that the code wants.
    Unreadable,
    /// The same lookup in the same version of a memory finds something else.
    Retrieval,
    /// The code panics.
    Panic,
}

impl fmt::Display for DivergenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DivergenceKind::Input => "another input",
            DivergenceKind::Kind => "another kind of step",
            DivergenceKind::Decision => "another decision",
            DivergenceKind::Step => "another step",
            DivergenceKind::Beyond => "a step after the end",
            DivergenceKind::Turn => "another turn",
            DivergenceKind::Result => "another result",
            DivergenceKind::Unreadable => "an unreadable record",
            DivergenceKind::Retrieval => "another retrieval",
            DivergenceKind::Panic => "a panic",
        })
    }
}

/// One side of a divergence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Side {
    /// The step.
    pub step: Option<StepId>,
    /// What it does.
    pub kind: Option<StepKind>,
    /// What goes in, cut if it is long.
    pub input: Option<String>,
    /// Where it is recorded.
    pub event: Option<u64>,
    /// What else there is to say, as in `ends with 42`.
    pub what: Option<String>,
}

impl Side {
    /// A recorded step.
    pub(crate) fn of_step(id: &StepId, step: &StepRecord) -> Side {
        Side {
            step: Some(id.clone()),
            kind: Some(step.kind),
            input: step.input.as_ref().map(shown),
            event: Some(step.first),
            what: None,
        }
    }

    /// No step.
    pub(crate) fn other(what: impl Into<String>, event: Option<u64>) -> Side {
        Side {
            event,
            what: Some(what.into()),
            ..Side::default()
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let (Some(step), Some(kind)) = (&self.step, self.kind) {
            parts.push(format!("{kind} {step}"));
        }
        parts.extend(self.input.as_ref().map(|input| format!("with {input}")));
        parts.extend(self.what.clone());
        parts.extend(self.event.map(|event| format!("(event {event})")));
        f.write_str(&parts.join(" "))
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Divergence {
            kind,
            recorded,
            now,
        } = self;
        write!(f, "{kind}: recorded {recorded}, now {now}")
    }
}

impl Replayed {
    /// Whether the code goes the same way.
    pub fn is_same(&self) -> bool {
        self.divergence().is_none()
    }

    /// Where it does not.
    pub fn divergence(&self) -> Option<&Divergence> {
        match &self.verdict {
            ReplayVerdict::Diverged(divergence) => Some(divergence),
            _ => None,
        }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}): {} steps replayed",
            self.run, self.agent, self.steps
        )?;
        if self.unchecked > 0 {
            let many = self.unchecked;
            write!(
                f,
                " ({many} retrievals not compared, documents were forgotten since)"
            )?;
        }
        match &self.verdict {
            ReplayVerdict::SameEnd => write!(f, ", the same end"),
            ReplayVerdict::RecordEnds { next } if next.is_empty() => {
                write!(f, ", the record ends here, and so does the code")
            }
            ReplayVerdict::RecordEnds { next } => {
                write!(f, ", the record ends here; next: {}", next.join(", "))
            }
            ReplayVerdict::Diverged(divergence) => write!(f, ", then {divergence}"),
        }
    }
}

/// Where a replay of a loop begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartAt {
    First,
    LastTurn,
}

/// What a replay needs.
pub(crate) struct Parts<'a> {
    pub store: &'a Arc<dyn Store>,
    pub runtime: Arc<dyn Runtime>,
    pub agents: &'a HashMap<String, Arc<dyn Agent>>,
    /// For reading only.
    #[cfg(feature = "memory")]
    pub memories: Arc<Memories>,
}

impl Dalsegno {
    /// Replays a run against the agents of this process. A loop is replayed from its first turn, each
    /// turn's state compared.
    ///
    /// # Errors
    /// There is no such run, its agent is not registered, or it cannot be read. That the code does
    /// something else is no error: see [`Replayed::divergence`].
    pub async fn replay(&self, run: &str) -> Result<Replayed, Error> {
        drive::replay(&self.replay_parts(), run, StartAt::First).await
    }

    /// The same; a loop is replayed from its last turn, as recovery does.
    ///
    /// # Errors
    /// As [`Dalsegno::replay`].
    pub async fn replay_last_turn(&self, run: &str) -> Result<Replayed, Error> {
        drive::replay(&self.replay_parts(), run, StartAt::LastTurn).await
    }

    fn replay_parts(&self) -> Parts<'_> {
        Parts {
            store: &self.engine.store,
            runtime: Arc::clone(&self.engine.runtime),
            agents: &self.engine.agents,
            #[cfg(feature = "memory")]
            memories: to_read(&self.engine.store),
        }
    }

    /// What a run had done when one of its events was its last: the fold over it and those before.
    ///
    /// # Errors
    /// There is no such run or event, or it could not be read.
    pub async fn journal_at(&self, run: &str, sequence: u64) -> Result<Journal, Error> {
        let store = &*self.engine.store;
        let (id, head) = find(store, run).await?;
        if sequence == 0 || sequence > head {
            return Err(Error::NoSuchEvent {
                run: run.to_owned(),
                sequence,
                head,
            });
        }
        Ok(crate::journal::load(store, &id, Some(sequence)).await?)
    }
}

impl Builder {
    /// Replays a run of a store that may be open for reading only, without opening anything for
    /// writing, and without taking up any run.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// # async fn check(builder: dalsegno::Builder) -> Result<(), dalsegno::Error> {
    /// let store = dalsegno_store::Options::new().open_read_only("recorded")?;
    /// let store: Arc<dyn dalsegno_store::Store> = Arc::new(store);
    /// assert!(builder.replay_store(&store, "order-42").await?.is_same());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Dalsegno::replay`], or there is no runtime.
    pub async fn replay_store(&self, store: &Arc<dyn Store>, run: &str) -> Result<Replayed, Error> {
        drive::replay(&self.replay_parts(store)?, run, StartAt::First).await
    }

    fn replay_parts<'a>(&'a self, store: &'a Arc<dyn Store>) -> Result<Parts<'a>, Error> {
        let runtime: Arc<dyn Runtime> = match &self.runtime {
            Some(runtime) => Arc::clone(runtime),
            None => Arc::new(Tokio::current().ok_or(Error::NoRuntime)?),
        };
        Ok(Parts {
            store,
            runtime,
            agents: &self.agents,
            #[cfg(feature = "memory")]
            memories: to_read(store),
        })
    }
}

/// The memories of a store, to be read.
#[cfg(feature = "memory")]
fn to_read(store: &Arc<dyn Store>) -> Arc<Memories> {
    Memories::new(Arc::new(read_only::ReadOnly(Arc::clone(store))))
}

/// A run and its last event.
pub(crate) async fn find(store: &dyn Store, run: &str) -> Result<(StreamId, u64), Error> {
    let id = StreamId::run(run)?;
    match store.head(&id).await {
        Ok(Some(head)) => Ok((id, head.sequence)),
        Ok(None) | Err(StoreError::NotFound { .. }) => Err(Error::RunNotFound(run.to_owned())),
        Err(e) => Err(e.into()),
    }
}
