//! What a step does to the world outside, and what has to be on disk when.
//!
//! **The rule of output commit**, which everything else rests on, is kept in [`waits`] and nowhere
//! else: *an effect that can be seen from outside starts only when everything that it can depend on,
//! and that it is about to start, survives a crash.* What cannot be seen from outside waits for
//! nothing: if a crash takes it, it is done again, and nobody can tell.
//!
//! | effect | intent durable before it runs | outcome durable before the run goes on | intent and no outcome, after a crash |
//! |---|---|---|---|
//! | `read_only` | no | `strict` only | run it again |
//! | `idempotent` | yes | `strict` only | run it again, with the same key |
//! | `once` | yes | yes | ask the probe; else a person |
//!
//! Positions are of the whole store, so waiting for the intent waits for every earlier event of
//! every run as well: an outcome and the next step's intent share one sync.

use std::time::Duration;

use crate::failure::numbered;

/// What a step does to the world outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing that anybody could notice. May run any number of times.
    ReadOnly,
    /// Something that the other side does once for each idempotency key, however often it is asked.
    Idempotent,
    /// Something that must not be sent twice. What is not said to be anything else is this.
    Once,
}

// The numbers are part of the format.
numbered! { Effect:
    ReadOnly = 1, "read-only";
    Idempotent = 2, "idempotent";
    Once = 3, "once";
}

/// How much a crash of the whole machine may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: each outcome is on disk before the run goes on.
    Strict,
    /// What was recorded in the last so many milliseconds. Never an effect that can be seen from
    /// outside, nor anything that one depended on.
    Bounded(Duration),
}

impl Default for Durability {
    /// Bounded to 20 ms.
    fn default() -> Durability {
        Durability::Bounded(Duration::from_millis(20))
    }
}

/// Which outcomes are written down, and when. What `once` and `idempotent` steps did always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// Each outcome when it is there.
    #[default]
    ToolCall,
    /// Inside a plan step only the plan step's own: a crash inside repeats its reads and model
    /// calls.
    PlanStep,
    /// At each decision, with all that led to it: a crash repeats the reads and model calls since
    /// the last one.
    Decision,
}

/// Where a step is when the question is whether to wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The intent is recorded, the effect has not begun.
    BeforeEffect,
    /// The outcome is recorded, the run has not seen it.
    AfterOutcome,
}

/// Whether to wait until everything recorded so far is durable.
pub(crate) fn waits(effect: Effect, durability: Durability, moment: Moment) -> bool {
    match (moment, effect, durability) {
        (Moment::BeforeEffect, Effect::ReadOnly, _) => false,
        (Moment::BeforeEffect, Effect::Idempotent | Effect::Once, _) => true,
        (Moment::AfterOutcome, Effect::Once, _) => true,
        (Moment::AfterOutcome, _, Durability::Strict) => true,
        (Moment::AfterOutcome, _, Durability::Bounded(_)) => false,
    }
}

/// Whether an outcome may be kept back, to be recorded later or never: only if nobody outside can
/// have seen it.
pub(crate) fn may_be_kept_back(effect: Effect) -> bool {
    effect == Effect::ReadOnly
}
