//! Crash-safe agents: a dead process resumes at the first unfinished step, and nothing happens twice.

mod agent;
mod attention;
mod bell;
mod budget;
mod ctx;
mod effect;
mod engine;
mod error;
mod failure;
mod journal;
pub mod record;
mod rules;
mod run;
mod runtime;
mod step;
mod syncer;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use agent::Turn;
pub use attention::{Attention, AttentionKind};
pub use budget::{Budget, Usage};
pub use ctx::{
    Answer, ApprovalWait, Call, ChildRun, Ctx, Gate, Probe, Retry, SignalWait, SignalWaitFor,
    StepCall,
};
pub use effect::{Durability, Effect, Granularity};
pub use engine::{Builder, Dalsegno, RunHandle};
pub use error::Error;
pub use failure::{Certainty, Failure, FailureError, FailureKind, Result};
pub use journal::{
    ApprovalAnswer, ApprovalRecord, Checkpoint, Created, Journal, Outcome, StepRecord, Verdict,
};
#[cfg(feature = "mutants")]
pub use rules::Rule;
pub use run::{Begun, Done, Doubt, Run, Step, Stopped, Ticket};
pub use runtime::{BoxFuture, Runtime, Tokio};
pub use step::{STEP_NAME_LIMIT_BYTES, StepId, StepKind};
