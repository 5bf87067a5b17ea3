//! The whole history of a run, step by step: when each was done, by which life of the run, and how
//! often it was handed back from the record instead of being done again.
//!
//! A *life* is one process that took the run up: it is started once, and again after every crash
//! and every wait that it did not stay in memory for.
//!
//! Invariant: it is a fold over the run's events from the first on. Unlike a [`Journal`] it keeps
//! the steps of a loop's earlier turns.

use dalsegno_store::{Event, Kind, Store, StreamId};

use crate::budget::Usage;
use crate::error::Error;
use crate::journal::{Journal, StepRecord};
use crate::record;
use crate::replay::find;
use crate::step::StepId;

/// Events read at once.
const PAGE: usize = 4096;

/// What a run has done, step by step.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Timeline {
    /// What it has come to.
    pub journal: Journal,
    /// Its steps, in the order in which they were begun.
    pub steps: Vec<TimedStep>,
    /// The processes that took it up, in order.
    pub lives: Vec<Life>,
}

/// A step, with when and by whom it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimedStep {
    /// Which.
    pub id: StepId,
    /// What is recorded of it.
    pub record: StepRecord,
    /// Which life did it, from 1: the one in which its outcome was recorded, or in which it was
    /// begun if it has none. 0 if that was before any, as in a fork.
    pub life: usize,
    /// How many later lives took its outcome from the record.
    pub replayed: usize,
}

/// A process that took a run up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Life {
    /// Its `RunStarted` event.
    pub sequence: u64,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// The session.
    pub session: Option<String>,
    /// The process before died while it had the run.
    pub recovered: bool,
    /// Steps that it did not have to do again, if the process before died.
    pub replayed: u64,
    /// Model calls that were not paid again, if the process before died.
    pub saved_calls: u64,
    /// Their tokens and cost.
    pub saved: Usage,
}

impl TimedStep {
    /// From its first intent to its outcome, with all attempts and what lay between them; `None` if
    /// it has no outcome, or only that was recorded.
    pub fn duration_us(&self) -> Option<u64> {
        let record = &self.record;
        let known = record.outcome.is_some() && record.first < record.last;
        known.then(|| record.done_us.saturating_sub(record.begun_us))
    }
}

impl Timeline {
    /// The fold over events of a run, from its first on.
    pub fn fold(events: impl IntoIterator<Item = Event>) -> Timeline {
        let mut timeline = Timeline::default();
        events.into_iter().for_each(|event| timeline.apply(event));
        timeline.end()
    }

    fn apply(&mut self, event: Event) {
        if event.kind == Kind::RunStarted {
            self.lives.push(Life::of(&event));
        }
        let ends_turn = event.kind == Kind::CheckpointWritten
            && event.fields.number(record::checkpoint::TURN).is_some();
        if ends_turn {
            // The journal forgets them here.
            self.take_steps();
        }
        self.journal.apply(event);
    }

    fn end(mut self) -> Timeline {
        self.take_steps();
        self
    }

    /// Takes in the steps that the journal knows. They come again in no later life.
    fn take_steps(&mut self) {
        let lives = &self.lives;
        let steps = self.journal.steps.iter().map(|(id, record)| {
            let started_before = |sequence| lives.partition_point(|l| l.sequence < sequence);
            let life = started_before(record.last);
            TimedStep {
                id: id.clone(),
                record: record.clone(),
                life,
                replayed: match record.outcome {
                    Some(_) => lives.len() - life,
                    None => 0,
                },
            }
        });
        let from = self.steps.len();
        self.steps.extend(steps);
        self.steps[from..].sort_by_key(|step| step.record.first);
    }
}

impl Life {
    fn of(started: &Event) -> Life {
        let fields = &started.fields;
        let number = |key| fields.number(key).unwrap_or(0);
        Life {
            sequence: started.sequence,
            time_us: started.time_us,
            session: fields.text(record::started::SESSION).map(str::to_owned),
            recovered: number(record::started::RECOVERED) == 1,
            replayed: number(record::started::REPLAYED),
            saved_calls: number(record::started::SAVED_CALLS),
            saved: Usage {
                tokens_out: number(record::started::SAVED_TOKENS),
                cost_micros: number(record::started::SAVED_COST),
                ..Usage::default()
            },
        }
    }
}

/// What a run has done, step by step, up to an event if one is given.
///
/// ```no_run
/// # async fn docs(store: &dyn dalsegno_store::Store) -> Result<(), dalsegno::Error> {
/// for step in dalsegno::timeline(store, "order-42", None).await?.steps {
///     println!("{} took {:?} µs", step.id, step.duration_us());
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// There is no such run or event, or it could not be read.
pub async fn timeline(store: &dyn Store, run: &str, up_to: Option<u64>) -> Result<Timeline, Error> {
    let (id, head) = find(store, run).await?;
    if let Some(sequence) = up_to.filter(|at| *at == 0 || *at > head) {
        return Err(Error::NoSuchEvent {
            run: run.to_owned(),
            sequence,
            head,
        });
    }
    read(store, &id, up_to.unwrap_or(head)).await
}

async fn read(store: &dyn Store, id: &StreamId, last: u64) -> Result<Timeline, Error> {
    let mut timeline = Timeline::default();
    let mut from = 1;
    while from <= last {
        let limit = PAGE.min((last - from + 1) as usize);
        let page = store.events(id, from, limit).await?;
        let Some(end) = page.last() else { break };
        from = end.sequence + 1;
        page.into_iter().for_each(|event| timeline.apply(event));
    }
    Ok(timeline.end())
}
