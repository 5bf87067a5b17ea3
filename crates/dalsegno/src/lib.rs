//! Crash-safe agents: a dead process resumes at the first unfinished step, and nothing happens twice.
//!
//! `cargo add tokio --features full`, paste this, run it, kill it half-way, run it again:
//!
//! ```no_run
#![doc = include_str!("../examples/report.rs")]
//! ```
//!
//! An agent is an async function over a [`Ctx`], or a loop with a state ([`Builder::loop_agent`]).
//! What it does through the `Ctx` are *steps*: each is recorded when it is done, and handed back from
//! the record ever after. What a step does to the world decides what recovery may do:
//!
//! | [`Effect`] | a crash in the middle of it |
//! |---|---|
//! | `read_only` (models are) | it runs again |
//! | `idempotent` | it runs again with the same [`Call::key`] |
//! | `once` (tools, unless you say otherwise) | its [`StepCall::probe`] is asked whether it happened; else a person is |
//!
//! | to | call |
//! |---|---|
//! | ask a model, use a tool | [`Ctx::model`], [`Ctx::tool`] |
//! | decide, plan, run things beside each other | [`Ctx::decide`], [`Ctx::plan_step`], [`Ctx::branch`], [`Ctx::each`] |
//! | wait | [`Ctx::sleep`], [`Ctx::signal`], [`Ctx::approval`] |
//! | start other agents, and tell them | [`Ctx::child`], [`Ctx::send_signal`] |
//! | get what is never the same | [`Ctx::now`], [`Ctx::random`], [`Ctx::uuid`] |
//! | note something | [`Ctx::event`], [`Ctx::checkpoint`], [`Ctx::conversation`] |
//! | know something, together with other agents | [`Ctx::memory`], [`Ctx::embed`]: see [`memory`] |
//! | change code under runs that are under way | [`Ctx::patched`] |
//! | try a step again, limit its time, ask a person for it | [`StepCall::retry`], [`StepCall::timeout`], [`StepCall::approval`] |
//!
//! Who opened the store speaks to runs by their names: [`Dalsegno::approve`], [`Dalsegno::signal`],
//! [`Dalsegno::cancel`], [`Dalsegno::start_with`]; [`Dalsegno::why`] says what a run waits for,
//! and what to do. Another process does the same through a [`Remote`].
//!
//! Code between steps runs again on every resume, so it must come to the same steps: no clock, no
//! randomness, no I/O outside of steps. If it does something else than what is recorded, the run
//! stops and shows both sides, and nothing is executed.
//!
//! **What is promised**: outcomes are recorded exactly once; a `once` effect is sent at most once;
//! what is in doubt is probed, or handed to a person, and never guessed. More is not possible without
//! the other side's help. With [`Durability::Bounded`] (the default, 20 ms) a power cut can take
//! what was read and what models said in that time, never an effect nor what one depended on.
//!
//! The feature `testkit` kills your agent at every moment, in your tests: `testkit::CrashEverywhere`.

mod agent;
mod attention;
mod bell;
pub mod binding;
mod budget;
mod ctx;
mod diff;
mod effect;
mod engine;
mod error;
mod failure;
mod fork;
mod journal;
mod ledger;
#[cfg(feature = "memory")]
mod memories;
#[cfg(feature = "memory")]
pub mod memory;
mod orders;
pub mod record;
mod recovery;
mod remote;
mod replay;
mod resource;
mod rules;
mod run;
mod runtime;
pub mod script;
mod start;
mod step;
mod syncer;
#[cfg(feature = "testkit")]
pub mod testkit;
mod timeline;
pub mod views;
mod why;
mod worker;

pub use agent::Turn;
pub use attention::{Attention, AttentionKind};
pub use budget::{Budget, Usage};
pub use ctx::{
    Answer, ApprovalWait, Call, CheckpointCall, ChildRun, Conversation, Ctx, Gate, Probe, Retry,
    SignalWait, SignalWaitFor, StepCall,
};
pub use diff::{Difference, DifferenceKind, RunDiff, diff};
pub use effect::{Durability, Effect, Granularity};
pub use engine::{Builder, Dalsegno, RunHandle};
pub use error::Error;
pub use failure::{Certainty, Failure, FailureError, FailureKind, Result};
pub use fork::{Fork, fork_in};
pub use journal::{
    ApprovalAnswer, ApprovalRecord, Checkpoint, Created, Forked, Journal, Outcome, StepRecord,
    Steps, Verdict,
};
pub use recovery::{Planned, Recovered, RecoveryAction, recovery_plan};
pub use remote::{Remote, Sent, Taken};
pub use replay::{
    Divergence, DivergenceGroup, DivergenceKind, ReplayVerdict, Replayed, ShadowReport, Side,
    shadow_replay,
};
pub use resource::{IfChanged, NotedResource, Resource, ResourceKind};
#[cfg(feature = "mutants")]
pub use rules::Rule;
pub use run::{Begun, Done, Doubt, Run, Step, Stopped, Ticket};
pub use runtime::{BoxFuture, Runtime, Tokio};
pub use start::{Start, create_in};
pub use step::{STEP_NAME_LIMIT_BYTES, StepId, StepKind};
pub use timeline::{Life, TimedStep, Timeline, timeline};
pub use why::{
    Change, InDoubt, Knew, KnownState, Next, Standing, StepLine, Why, event_words, utc, why,
};
pub use worker::Worker;
