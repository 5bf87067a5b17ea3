//! What can go wrong for who starts and watches runs.

use dalsegno_store::{NameError, StoreError};

use crate::failure::Failure;

/// Why something could not be done with a run or a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A memory.
    #[cfg(feature = "memory")]
    #[error(transparent)]
    Memory(#[from] dalsegno_memory::MemoryError),
    /// A name that cannot be one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No such agent.
    #[error(
        "there is no agent {agent:?} here, only {known}: register it before the store is opened"
    )]
    AgentNotFound {
        /// What was asked for.
        agent: String,
        /// What there is.
        known: String,
    },
    /// A run of this name has another agent or input.
    #[error(
        "run {run:?} exists and was started with another {what}: use another name, or the same {what}"
    )]
    AlreadyStarted {
        /// The run.
        run: String,
        /// Agent or input.
        what: &'static str,
    },
    /// No such run.
    #[error("there is no run {0:?}: see the list of what there is")]
    RunNotFound(String),
    /// The run is over.
    #[error("run {run:?} is {status}: it takes nothing more")]
    RunEnded {
        /// The run.
        run: String,
        /// How it ended.
        status: String,
    },
    /// The run ended in a failure.
    #[error("run {run:?} failed: {failure}")]
    RunFailed {
        /// The run.
        run: String,
        /// How.
        failure: Failure,
    },
    /// Somebody ended the run.
    #[error("run {0:?} was cancelled")]
    RunCancelled(String),
    /// Only a person can move the run on.
    #[error("run {run:?} needs a person: {reason}")]
    NeedsAttention {
        /// The run.
        run: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The run asks nobody for this.
    #[error("run {run:?} asks for no approval {approval:?}: {open}")]
    NoSuchApproval {
        /// The run.
        run: String,
        /// What was to be answered.
        approval: String,
        /// What it asks for.
        open: String,
    },
    /// It has its answer.
    #[error("approval {approval:?} of run {run:?} cannot be answered: {why}")]
    ApprovalClosed {
        /// The run.
        run: String,
        /// Which.
        approval: String,
        /// Answered before, or expired.
        why: String,
    },
    /// No step of this identity is in doubt.
    #[error("step {step:?} of run {run:?} is not in doubt: {open}")]
    NotInDoubt {
        /// The run.
        run: String,
        /// Which.
        step: String,
        /// What is.
        open: String,
    },
    /// What was said has not been taken up.
    #[error(
        "what was said to run {run:?} was not taken up within {waited:?}: it is on disk and is not \
         lost; the process that owns the store takes it up when it is running"
    )]
    NotTaken {
        /// The run.
        run: String,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// What was said was looked at and refused.
    #[error("run {run:?} has not taken what was said to it: {why}")]
    Refused {
        /// The run.
        run: String,
        /// Why.
        why: String,
    },
    /// The run has no such event.
    #[error("run {run:?} has no event {sequence}: its events are 1 to {head}")]
    NoSuchEvent {
        /// The run.
        run: String,
        /// What was asked for.
        sequence: u64,
        /// Its last event.
        head: u64,
    },
    /// The run cannot be forked like this.
    #[error("run {run:?} cannot be forked there: {why}")]
    Fork {
        /// The run.
        run: String,
        /// Why, and what to do.
        why: String,
    },
    /// A value could not be written or read as JSON.
    #[error("{what} cannot be written or read as JSON: {why}")]
    Encoding {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A step's name that cannot be one.
    #[error("{0}")]
    StepName(String),
    /// The run does not go on here.
    #[error("{0}")]
    Stopped(String),
    /// There is no tokio runtime.
    #[error("there is no tokio runtime here: call this inside of one")]
    NoRuntime,
    /// A database was asked for.
    #[error(
        "this program was built without databases: build it with the feature \"postgres\" of \
         the crate dalsegno"
    )]
    NoDatabases,
    /// The process cannot wait for signals.
    #[error("signals of the operating system cannot be waited for: {0}")]
    Signals(String),
    /// It was closed.
    #[error("the store was closed: open it again")]
    Closed,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Encoding {
            what: "a value",
            why: failure.to_string(),
        }
    }
}
