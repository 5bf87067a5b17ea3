//! A run as a document: `dalsegno.show/1`.

use dalsegno::{Life, Outcome, TimedStep, Usage};
use serde::Serialize;
use serde_json::Value;

use super::Shown;
use crate::asks;
use crate::output::event::{EventDocument, PayloadDocument, value};

#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    run: &'a str,
    agent: &'a str,
    /// The last event that this is about.
    at: u64,
    status: String,
    needs_person: bool,
    attention: Option<&'a str>,
    waits: &'a [String],
    approvals: Vec<&'a str>,
    in_doubt: Vec<&'a str>,
    created_us: u64,
    updated_us: u64,
    session: Option<&'a str>,
    parent: Option<String>,
    forked_from: Option<String>,
    input: Option<PayloadDocument<'a>>,
    result: Option<Value>,
    failure: Option<String>,
    checkpoint: Option<Checkpoint>,
    usage: UsageDocument,
    saved: SavedDocument,
    damage: Option<&'a str>,
    lives: Vec<LifeDocument<'a>>,
    /// Left out if the events were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<StepDocument<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<EventDocument<'a>>>,
    /// How many steps or events before these are not shown.
    left_out: u64,
}

#[derive(Serialize)]
struct Checkpoint {
    event: u64,
    time_us: u64,
    turn: Option<u64>,
    step: Option<String>,
    progress: Option<(u64, u64)>,
    pinned: bool,
    state: Option<Value>,
}

#[derive(Serialize)]
struct UsageDocument {
    calls: u64,
    tokens_in: u64,
    tokens_out: u64,
    cost_micros: u64,
}

#[derive(Serialize)]
struct SavedDocument {
    calls: u64,
    tokens_out: u64,
    cost_micros: u64,
}

#[derive(Serialize)]
struct LifeDocument<'a> {
    event: u64,
    time_us: u64,
    session: Option<&'a str>,
    recovered: bool,
    replayed_steps: u64,
    saved_calls: u64,
}

#[derive(Serialize)]
struct StepDocument<'a> {
    step: &'a str,
    kind: &'static str,
    effect: &'static str,
    state: &'static str,
    life: usize,
    replayed: usize,
    attempts: u64,
    begun_us: u64,
    done_us: Option<u64>,
    took_us: Option<u64>,
    first_event: u64,
    last_event: u64,
    child: Option<String>,
    usage: UsageDocument,
    input: Option<PayloadDocument<'a>>,
    result: Option<PayloadDocument<'a>>,
    failure: Option<String>,
    retry_at_us: Option<u64>,
}

/// A run as a document.
pub fn of(shown: &Shown) -> Document<'_> {
    let journal = shown.journal();
    let checkpoint = journal.checkpoint.as_ref().map(|written| Checkpoint {
        event: written.sequence,
        time_us: written.time_us,
        turn: written.turn,
        step: written.step.as_ref().map(ToString::to_string),
        progress: written.progress,
        pinned: written.pinned,
        state: shown.state.as_deref().map(value),
    });
    let approvals = asks::approvals(journal, shown.now_us);
    let in_doubt = asks::in_doubt(journal);
    let steps = &shown.timeline.steps;
    let attention = journal.attention.as_ref();
    let attention = attention.filter(|_| !journal.is_answered());
    Document {
        schema: "dalsegno.show/1",
        run: &shown.run,
        agent: &journal.created.agent,
        at: journal.last,
        status: journal.status.to_string(),
        needs_person: shown.needs_person(),
        attention: attention.map(|why| why.reason.as_str()),
        waits: &journal.waits,
        approvals: approvals.into_iter().map(|id| id.as_str()).collect(),
        in_doubt: in_doubt.into_iter().map(|id| id.as_str()).collect(),
        created_us: journal.created.time_us,
        updated_us: journal.last_us,
        session: journal.session.as_deref(),
        parent: journal
            .created
            .parent
            .as_ref()
            .map(|(run, _)| run.name().to_owned()),
        forked_from: journal
            .forked
            .as_ref()
            .map(|forked| forked.origin.name().to_owned()),
        input: journal.created.input.as_ref().map(PayloadDocument::of),
        result: shown.result.as_deref().map(value),
        failure: match &journal.end {
            Some(Outcome::Failed(failure)) => Some(failure.to_string()),
            _ => None,
        },
        checkpoint,
        usage: usage(&journal.usage),
        saved: SavedDocument {
            calls: journal.saved_calls,
            tokens_out: journal.saved.tokens_out,
            cost_micros: journal.saved.cost_micros,
        },
        damage: journal.damage.as_deref(),
        lives: shown.timeline.lives.iter().map(life).collect(),
        steps: shown
            .events
            .is_none()
            .then(|| steps.iter().map(step).collect()),
        events: shown
            .events
            .as_ref()
            .map(|events| events.iter().map(EventDocument::of).collect()),
        left_out: shown.left_out,
    }
}

fn usage(usage: &Usage) -> UsageDocument {
    UsageDocument {
        calls: usage.steps,
        tokens_in: usage.tokens_in,
        tokens_out: usage.tokens_out,
        cost_micros: usage.cost_micros,
    }
}

fn life(life: &Life) -> LifeDocument<'_> {
    LifeDocument {
        event: life.sequence,
        time_us: life.time_us,
        session: life.session.as_deref(),
        recovered: life.recovered,
        replayed_steps: life.replayed,
        saved_calls: life.saved_calls,
    }
}

fn step(step: &TimedStep) -> StepDocument<'_> {
    let record = &step.record;
    let done = record.outcome.as_ref();
    let retry_at_us = record.retry.as_deref().map(|(_, at)| *at);
    StepDocument {
        step: step.id.as_str(),
        kind: record.kind.word(),
        effect: record.effect.word(),
        state: super::page::state(record),
        life: step.life,
        replayed: step.replayed,
        attempts: record.attempts,
        begun_us: record.begun_us,
        done_us: done.map(|_| record.done_us),
        took_us: step.duration_us(),
        first_event: record.first,
        last_event: record.last,
        child: record.child.as_ref().map(|child| child.name().to_owned()),
        usage: usage(&record.usage),
        input: record.input.as_ref().map(PayloadDocument::of),
        result: match done {
            Some(Outcome::Succeeded(output)) => output.as_ref().map(PayloadDocument::of),
            _ => None,
        },
        failure: match (done, record.retry.as_deref()) {
            (Some(Outcome::Failed(failure)), _) | (None, Some((failure, _))) => {
                Some(failure.to_string())
            }
            _ => None,
        },
        retry_at_us,
    }
}
