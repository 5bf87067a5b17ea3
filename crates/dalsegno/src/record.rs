//! Events of a run as they are written: the numbers of their fields, and how to make them.
//!
//! Invariant: numbers are part of the format (`docs/format.md`) and never change their meaning.
//! What is written here is read in `journal.rs` and nowhere else.

use dalsegno_store::{Fields, Kind, NewEvent, NewPayload, Value};

use crate::budget::{Budget, Usage};
use crate::effect::Effect;
use crate::failure::Failure;
use crate::step::{StepId, StepKind};

/// Fields of events about a step: `StepIntended`, `StepSucceeded`, `StepFailed`, `StepResolved`,
/// `DecisionCommitted`, `RetrievalPerformed`, `ApprovalRequested`, `ApprovalAnswered`, and the user's own kinds.
pub mod step {
    /// Its identity.
    pub const STEP: u64 = 1;
    /// What it does, a [`crate::StepKind`].
    pub const KIND: u64 = 2;
    /// What it does to the world, an [`crate::Effect`].
    pub const EFFECT: u64 = 3;
    /// Which attempt, from 1; left out for the first.
    pub const ATTEMPT: u64 = 4;
    /// `StepIntended`: the event of the approval that it uses up.
    pub const APPROVAL: u64 = 5;
    /// `StepIntended`: the child run.
    pub const CHILD: u64 = 6;
    /// `StepIntended` in a fork: the idempotency key that the origin sent it with.
    pub const KEY: u64 = 7;
    /// `StepSucceeded`: the event that the result is in, if not in this one.
    pub const SOURCE: u64 = 5;
    /// `StepSucceeded`: tokens read and written by the model, cost in millionths, others' steps.
    pub const TOKENS_IN: u64 = 6;
    /// See [`TOKENS_IN`].
    pub const TOKENS_OUT: u64 = 7;
    /// See [`TOKENS_IN`].
    pub const COST: u64 = 8;
    /// Steps of a child that has ended.
    pub const STEPS: u64 = 9;
    /// `StepSucceeded`: nothing but whether the code has seen by now what the step came to, which
    /// another event says: 1 if it has, 0 if it saw others before it; or left out.
    pub const SEEN: u64 = 10;
    /// `StepSucceeded`, `RetrievalPerformed`: what was asked and what came of it, in words for people.
    pub const SUMMARY: u64 = 11;
    /// `StepIntended`, `ApprovalRequested`, `TimerSet`: 1 if it was begun while the code had not seen
    /// what another step came to, which may be recorded; or left out.
    pub const BESIDE: u64 = 12;
}

/// Fields of `StepFailed` and `RunFailed`.
pub mod failure {
    /// What sort, a [`crate::FailureKind`].
    pub const KIND: u64 = 20;
    /// What is known, a [`crate::Certainty`].
    pub const CERTAINTY: u64 = 21;
    /// In words.
    pub const MESSAGE: u64 = 22;
    /// The step inside that failed, if it is another.
    pub const STEP: u64 = 23;
    /// When it is tried again, in microseconds since 1970; without it the failure is final.
    pub const RETRY_AT: u64 = 24;
}

/// Fields of `StepResolved`.
pub mod resolved {
    /// What became of it: 1 happened, 2 did not happen, 3 fail the run.
    pub const VERDICT: u64 = 2;
    /// Who said so: `probe`, or a person.
    pub const BY: u64 = 3;
    /// In words.
    pub const NOTE: u64 = 4;
    /// Which attempt it is about. What is said of an earlier one does not count for a later.
    pub const ATTEMPT: u64 = 5;
}

/// Fields of `ApprovalRequested` and `ApprovalAnswered` beside the step.
pub mod approval {
    /// The hash of exactly what is approved.
    pub const HASH: u64 = 2;
    /// `ApprovalRequested`: until when an answer counts.
    pub const EXPIRES: u64 = 3;
    /// `ApprovalAnswered`: 1 yes, 2 no.
    pub const VERDICT: u64 = 3;
    /// `ApprovalAnswered`: who.
    pub const BY: u64 = 4;
    /// `ApprovalAnswered`: in words.
    pub const NOTE: u64 = 5;
}

/// Fields of `RunCreated`.
pub mod created {
    /// The agent.
    pub const AGENT: u64 = 1;
    /// The run that started it.
    pub const PARENT: u64 = 2;
    /// The step of that run.
    pub const PARENT_STEP: u64 = 3;
    /// Whom its keys are derived from, if not from its own name.
    pub const LINEAGE: u64 = 4;
    /// What it may spend: steps.
    pub const STEPS: u64 = 6;
    /// What it may spend: tokens.
    pub const TOKENS: u64 = 7;
    /// What it may spend: cost in millionths.
    pub const COST: u64 = 8;
    /// What it may spend: time in microseconds.
    pub const WALL: u64 = 9;
    /// The agent is a loop, whose last turn stands for what was before: 1, or left out.
    pub const LOOP: u64 = 10;
}

/// Fields of `RunForked`, which is the second event of a fork.
pub mod forked {
    /// The run whose past it shares.
    pub const ORIGIN: u64 = 1;
    /// Up to and including this event of it.
    pub const SEQUENCE: u64 = 2;
    /// The hash of the origin's stream there.
    pub const HASH: u64 = 3;
    /// Of a loop: the turn whose state stands for what was before.
    pub const TURN: u64 = 4;
    /// The steps whose outcome was changed, as a list.
    pub const CHANGED: u64 = 5;
    /// Of a loop: what was used up to the end of that turn, as a list of steps, tokens read and
    /// written, and cost.
    pub const USED: u64 = 6;
}

/// Fields of `RunStarted`.
pub mod started {
    /// The worker.
    pub const WORKER: u64 = 1;
    /// The session: one opening of the store by one process.
    pub const SESSION: u64 = 2;
    /// Whether the worker before died while it had the run.
    pub const RECOVERED: u64 = 3;
    /// Model calls whose outcomes are there and are not paid again.
    pub const SAVED_CALLS: u64 = 4;
    /// Their tokens.
    pub const SAVED_TOKENS: u64 = 5;
    /// Their cost in millionths.
    pub const SAVED_COST: u64 = 6;
    /// Steps that are not done again.
    pub const REPLAYED: u64 = 7;
}

/// Fields of `RunCheckpointed`: what the run waits for, as lists of words.
pub mod checkpointed {
    /// What it waits for.
    pub const WAITS: u64 = 1;
    /// The steps of those waits, in the same order; left out if the code does not wait itself.
    pub const STEPS: u64 = 2;
}

/// Fields of `CheckpointWritten`.
pub mod checkpoint {
    /// The step that wrote it, if it was one.
    pub const STEP: u64 = 1;
    /// The number of turns done, for a loop.
    pub const TURN: u64 = 2;
    /// Which step of the task it is, as the agent counts.
    pub const AT: u64 = 3;
    /// Of how many.
    pub const OF: u64 = 4;
    /// Steps that were under way, as a list of identities.
    pub const PENDING: u64 = 5;
    /// The session that wrote it.
    pub const SESSION: u64 = 6;
    /// It is to be kept for looking at: 1, or left out.
    pub const PINNED: u64 = 7;
}

/// Fields of `ResourceNoted`.
pub mod resource {
    /// What it is, a [`crate::ResourceKind`].
    pub const KIND: u64 = 1;
    /// Which: a path, an address, or a name of the user's.
    pub const NAME: u64 = 2;
    /// What it looked like; left out when the run does not depend on it any more.
    pub const FINGERPRINT: u64 = 3;
    /// What to do if it has changed, a [`crate::IfChanged`].
    pub const POLICY: u64 = 4;
    /// The run does not depend on it any more: 1, or left out.
    pub const RELEASED: u64 = 5;
    /// It had changed, and that was accepted: 1 by a person, 2 by its policy.
    pub const ACCEPTED: u64 = 6;
    /// The branch of a repository, or the validator of a custom one.
    pub const DETAIL: u64 = 7;
}

/// Fields of `RunRecovered`. The report is its input, as JSON.
pub mod recovered {
    /// What was done with the run, a [`crate::RecoveryAction`].
    pub const ACTION: u64 = 1;
    /// Why, in words.
    pub const WHY: u64 = 2;
    /// The session that found it.
    pub const SESSION: u64 = 3;
    /// The event of the recovery before, if there was one.
    pub const PREVIOUS: u64 = 4;
}

/// Fields of `AttentionRaised`.
pub mod attention {
    /// In words.
    pub const REASON: u64 = 1;
    /// What sort, a [`crate::AttentionKind`].
    pub const KIND: u64 = 2;
    /// The step it is about.
    pub const STEP: u64 = 3;
    /// What is known, as JSON.
    pub const EVIDENCE: u64 = 4;
}

/// Fields of `SignalReceived`.
pub mod signal {
    /// Its name.
    pub const NAME: u64 = 1;
    /// Who sent it, if a run did.
    pub const FROM: u64 = 2;
}

/// Fields of `CancelRequested`.
pub mod cancel {
    /// Why.
    pub const REASON: u64 = 1;
}

/// Fields of `BudgetSet`.
pub mod budget {
    /// Steps.
    pub const STEPS: u64 = 1;
    /// Tokens.
    pub const TOKENS: u64 = 2;
    /// Cost in millionths.
    pub const COST: u64 = 3;
    /// Time in microseconds.
    pub const WALL: u64 = 4;
}

/// A step is about to be done.
pub(crate) fn intended(
    id: &StepId,
    kind: StepKind,
    effect: Effect,
    attempt: u64,
    input: Option<NewPayload>,
) -> NewEvent {
    let mut fields = Fields::new()
        .with(step::STEP, id.as_str())
        .with(step::KIND, kind.number())
        .with(step::EFFECT, effect.number());
    if attempt > 1 {
        fields = fields.with(step::ATTEMPT, attempt);
    }
    let mut event = NewEvent::new(Kind::StepIntended).with_fields(fields);
    event.input = input;
    event
}

/// A step was done.
pub(crate) fn succeeded(id: &StepId, kind: StepKind, output: Option<NewPayload>) -> NewEvent {
    let fields = Fields::new()
        .with(step::STEP, id.as_str())
        .with(step::KIND, kind.number());
    let mut event = NewEvent::new(Kind::StepSucceeded).with_fields(fields);
    event.output = output;
    event
}

/// Something was looked up in a memory: what was asked, and what was found.
pub(crate) fn retrieved(
    id: &StepId,
    input: Option<NewPayload>,
    output: Option<NewPayload>,
) -> NewEvent {
    let mut event = succeeded(id, StepKind::Retrieval, output);
    event.kind = Kind::RetrievalPerformed;
    event.input = input;
    event
}

/// With what was asked and what came of it, in words.
pub(crate) fn with_summary(mut event: NewEvent, summary: Option<&str>) -> NewEvent {
    if let Some(summary) = summary {
        event.fields = event.fields.with(step::SUMMARY, summary);
    }
    event
}

/// The code has seen what a step came to, later than that was recorded.
pub(crate) fn seen(id: &StepId, kind: StepKind) -> NewEvent {
    let mut event = succeeded(id, kind, None);
    event.fields = event.fields.with(step::SEEN, 1);
    event
}

/// The code has not seen what a step came to, although it is recorded, or is being recorded.
pub(crate) fn not_seen(id: &StepId, kind: StepKind) -> NewEvent {
    let mut event = succeeded(id, kind, None);
    event.fields = event.fields.with(step::SEEN, 0);
    event
}

/// With what it used.
pub(crate) fn with_usage(mut event: NewEvent, usage: &Usage) -> NewEvent {
    for (key, number) in [
        (step::TOKENS_IN, usage.tokens_in),
        (step::TOKENS_OUT, usage.tokens_out),
        (step::COST, usage.cost_micros),
        (step::STEPS, usage.steps),
    ] {
        if number > 0 {
            event.fields = event.fields.with(key, number);
        }
    }
    event
}

/// A step failed; for good, unless it is tried again.
pub(crate) fn failed(
    id: &StepId,
    kind: StepKind,
    failure: &Failure,
    retry_at: Option<u64>,
) -> NewEvent {
    let mut fields = failure_fields(failure, Some(id.as_str()))
        .with(step::STEP, id.as_str())
        .with(step::KIND, kind.number());
    if let Some(at) = retry_at {
        fields = fields.with(failure::RETRY_AT, at);
    }
    NewEvent::new(Kind::StepFailed).with_fields(fields)
}

/// How a failure is written, of a step or of the run.
pub(crate) fn failure_fields(failed: &Failure, of: Option<&str>) -> Fields {
    let fields = Fields::new()
        .with(failure::KIND, failed.kind().number())
        .with(failure::CERTAINTY, failed.certainty().number())
        .with(failure::MESSAGE, failed.message());
    match failed.step() {
        Some(inner) if Some(inner) != of => fields.with(failure::STEP, inner),
        _ => fields,
    }
}

/// A message that is not longer than an event can take. One that was cut is not cut again.
pub(crate) fn bounded(text: &str) -> String {
    const LIMIT_BYTES: usize = 8 << 10;
    // Room for what is said about the rest.
    const REST_BYTES: usize = 40;
    if text.len() <= LIMIT_BYTES {
        return text.to_owned();
    }
    let mut end = LIMIT_BYTES - REST_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes in all)", &text[..end], text.len())
}

/// A timer is set.
pub(crate) fn timer_set(id: &str, due_us: u64) -> NewEvent {
    use dalsegno_store::field;
    let fields = Fields::new()
        .with(field::TIMER, id)
        .with(field::DUE, due_us);
    NewEvent::new(Kind::TimerSet).with_fields(fields)
}

/// A timer's time has come.
pub(crate) fn timer_fired(id: &str) -> NewEvent {
    let fields = Fields::new().with(dalsegno_store::field::TIMER, id);
    NewEvent::new(Kind::TimerFired).with_fields(fields)
}

/// A timer is no longer wanted.
pub(crate) fn timer_cancelled(id: &str) -> NewEvent {
    let fields = Fields::new().with(dalsegno_store::field::TIMER, id);
    NewEvent::new(Kind::TimerCancelled).with_fields(fields)
}

/// The run is written down, and waits.
pub(crate) fn run_checkpointed(waits: &[String]) -> NewEvent {
    let waits = waits.iter().map(|wait| Value::Text(wait.clone())).collect();
    let fields = Fields::new().with(checkpointed::WAITS, Value::List(waits));
    NewEvent::new(Kind::RunCheckpointed).with_fields(fields)
}

/// The code of a run waits, in these steps. If they are very many, it is not said which: an event has its
/// limit, and most of them are recorded elsewhere.
pub(crate) fn code_waits(waits: &[(String, StepId)]) -> NewEvent {
    let (words, steps): (Vec<_>, Vec<_>) = waits.iter().cloned().unzip();
    let mut event = run_checkpointed(&words);
    let bytes: usize = steps.iter().map(|id| id.as_str().len()).sum();
    if bytes <= WAITED_IN_BYTES {
        let steps = steps.iter().map(|id| Value::from(id.as_str())).collect();
        event.fields = event.fields.with(checkpointed::STEPS, Value::List(steps));
    }
    event
}

/// So many bytes of steps that the code waits in are listed.
const WAITED_IN_BYTES: usize = 4096;

/// What a run may spend.
pub(crate) fn budget_set(limits: &Budget) -> NewEvent {
    let mut fields = Fields::new();
    for (key, limit) in [
        (budget::STEPS, limits.steps),
        (budget::TOKENS, limits.tokens),
        (budget::COST, limits.cost_micros),
        (budget::WALL, limits.wall_us()),
    ] {
        if let Some(limit) = limit {
            fields = fields.with(key, limit);
        }
    }
    NewEvent::new(Kind::BudgetSet).with_fields(fields)
}
