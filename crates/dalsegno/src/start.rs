//! How a run is created, and what can be said about it beside its agent, name and input.
//!
//! Invariant: a name stands for one run. Who creates the same again finds it, and who means something
//! else by it is told so.

use dalsegno_store::{Append, Fields, Kind, NewEvent, NewPayload, Store, StreamId, field};
use serde::Serialize;

use crate::budget::Budget;
use crate::ctx::encode;
use crate::error::Error;
use crate::record::created;

/// How a run is started.
///
/// ```
/// use dalsegno::{Budget, Start};
/// let start = Start::new()
///     .budget(Budget::default().tokens(50_000))
///     .queue("slow")
///     .priority(5);
/// assert_eq!(start, start.clone());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub(crate) budget: Budget,
    pub(crate) queue: String,
    pub(crate) priority: u32,
}

impl Start {
    /// Without limits, in the queue with the empty name, with priority 0.
    pub fn new() -> Start {
        Start::default()
    }

    /// What it and its children may use.
    pub fn budget(mut self, budget: Budget) -> Start {
        self.budget = budget;
        self
    }

    /// Only workers that look into this queue take it, and its children.
    pub fn queue(mut self, queue: impl Into<String>) -> Start {
        self.queue = queue.into();
        self
    }

    /// Workers take runs with a higher number first, and their children.
    pub fn priority(mut self, priority: u32) -> Start {
        self.priority = priority;
        self
    }

    /// Adds them to those of `RunCreated`.
    pub(crate) fn add_to(&self, mut fields: Fields) -> Fields {
        let budget = &self.budget;
        for (key, limit) in [
            (created::STEPS, budget.steps),
            (created::TOKENS, budget.tokens),
            (created::COST, budget.cost_micros),
            (created::WALL, budget.wall_us()),
        ] {
            if let Some(limit) = limit {
                fields = fields.with(key, limit);
            }
        }
        if !self.queue.is_empty() {
            fields = fields.with(field::QUEUE, self.queue.as_str());
        }
        if self.priority > 0 {
            fields = fields.with(field::PRIORITY, u64::from(self.priority));
        }
        fields
    }

    /// Out of those of `RunCreated`.
    pub(crate) fn of(fields: &Fields) -> Start {
        let number = |key| fields.number(key);
        let priority = number(field::PRIORITY).unwrap_or(0);
        Start {
            budget: Budget {
                steps: number(created::STEPS),
                tokens: number(created::TOKENS),
                cost_micros: number(created::COST),
                wall: number(created::WALL).map(std::time::Duration::from_micros),
            },
            queue: fields.text(field::QUEUE).unwrap_or_default().to_owned(),
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
        }
    }

    /// For a child: it shares its parent's budget, which is not its own.
    pub(crate) fn of_child(queue: &str, priority: u32) -> Start {
        Start::new().queue(queue).priority(priority)
    }
}

/// Creates a run in a store whose agents this process does not execute: a worker that has its agent
/// takes it up, or the next program that opens the store with it. Whether it is new; the same again
/// is one run. Durable when this returns.
///
/// A run of a loop that is created so is read from its beginning when it is taken up, not from its
/// last turn: nobody here knows that its agent is one.
///
/// # Errors
/// The name cannot be one, or is taken by a run with another agent or input; or the store.
pub async fn create_in<I: Serialize + ?Sized>(
    store: &dyn Store,
    agent: &str,
    run: &str,
    input: &I,
    start: &Start,
) -> Result<bool, Error> {
    let id = StreamId::run(run)?;
    let input = encode(input)?;
    create(store, &id, (agent, false), input, start).await
}

/// The one way to create a run that somebody starts. `agent` is its name, and whether it is a loop.
pub(crate) async fn create(
    store: &dyn Store,
    id: &StreamId,
    (agent, is_loop): (&str, bool),
    input: NewPayload,
    start: &Start,
) -> Result<bool, Error> {
    let mut fields = Fields::new().with(created::AGENT, agent);
    if is_loop {
        fields = fields.with(created::LOOP, 1);
    }
    let event = NewEvent::new(Kind::RunCreated).with_fields(start.add_to(fields));
    let append = Append::to(id.clone(), vec![event.with_input(input.clone())]).expecting(0);
    match store.append(vec![append]).await {
        Ok(appended) => {
            // Who is told that a run was started can rely on it.
            store.durable(appended.position).await?;
            Ok(true)
        }
        Err(e) => match store.head(id).await? {
            None => Err(e.into()),
            Some(_) => {
                check_same(store, id, agent, &input).await?;
                // Who has started it may still be waiting for the disk.
                let position = store.position().await?;
                store.durable(position).await?;
                Ok(false)
            }
        },
    }
}

/// Whether a run that exists is the one that was meant.
async fn check_same(
    store: &dyn Store,
    id: &StreamId,
    agent: &str,
    input: &NewPayload,
) -> Result<(), Error> {
    let first = store.events(id, 1, 1).await?;
    let Some(created) = first.first() else {
        return Ok(());
    };
    let run = id.name().to_owned();
    if created.fields.text(created::AGENT) != Some(agent) {
        return Err(Error::AlreadyStarted { run, what: "agent" });
    }
    let same = created.input.as_ref();
    if !same.is_some_and(|then| crate::run::same_payload(then, input)) {
        return Err(Error::AlreadyStarted { run, what: "input" });
    }
    Ok(())
}
