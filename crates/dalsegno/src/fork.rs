//! Forks: a new run that shares the past of another one, up to an event, and goes its own way.
//!
//! ```no_run
//! # async fn try_again(app: dalsegno::Dalsegno) -> Result<(), dalsegno::Error> {
//! use dalsegno::Fork;
//!
//! let fork = Fork::at(12).named("order-42 without discount").with_outcome("discount#1", &0)?;
//! let run = app.fork("order-42", fork).await?;
//! let total: u64 = run.result().await?;
//! # Ok(()) }
//! ```
//!
//! A fork is a new lineage: its idempotency keys come from its own name. Its stream begins with
//! `RunCreated` and `RunForked` (origin, event, the origin's hash there), then copies of what the code
//! needs of the shared past; each copy names its original as its cause. A loop's past is its state
//! after the last turn before the event, and what followed.
//!
//! | in the shared past | in the fork |
//! |---|---|
//! | a step with an outcome | the same outcome; it is never repeated |
//! | a `once` or `idempotent` step, or a child run, that got its outcome later in the origin | that outcome |
//! | a `once` step that is being executed at this moment | the fork is refused |
//! | a `once` step of which nobody knows, in the origin either | in doubt, with the **origin's** key, so that a probe asks for what was sent |
//! | an `idempotent` step of which nobody knows | repeated with the origin's key |
//! | a step of which it is known that it did not happen, or a read or model call without an outcome | done by the fork, with its own key |
//! | a child run without an outcome | not inherited: the fork starts its own (a child that the code names itself must have another name there) |
//! | a sleep, or the time limit of a wait for a signal | goes on until the same time |
//! | a signal that nobody has taken | copied: origin and fork each can take it |
//! | a request for approval, an answer that is not used | **not** inherited: the fork asks for itself |
//! | a wish to cancel, attention, leases, the parent of a child run | not inherited |
//! | a resource that the run depends on | the same |
//! | messages of a conversation, also of earlier turns | the same |
//! | what was used, and the budget | counts in the fork, too; its time begins anew |
//!
//! With a changed outcome, everything recorded after that step's outcome is cut away. That is
//! allowed for `once` steps as well: nothing is done or undone outside, the fork only believes
//! something else. Outcomes of approvals cannot be changed: only people answer. With a changed input
//! of the run, copies of steps that depend on it will not fit to what the code does, and the fork
//! stops in attention; fork at event 1 to begin anew.
//!
//! Invariant: a fork is one append. It is there as a whole or not at all, so no crash can leave one
//! that could start with half of its past. The price: a past that is larger than one append may be
//! (10,000 events by default, `dalsegno_store::Limits`) is refused.

use std::collections::HashMap;

use dalsegno_store::{Append, NewPayload, Store, StoreError, StreamId};
use serde::Serialize;

use crate::ctx::encode;
use crate::engine::{Dalsegno, Engine, RunHandle};
use crate::error::Error;
use crate::failure::{Failure, Result as StepResult};
use crate::journal::{self, Journal};
use crate::replay::find;
use crate::run::same_payload;
use crate::step::{StepId, StepKind};

mod copy;
mod past;

/// Where to fork a run, and what is to be different.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `Dalsegno::fork`"]
pub struct Fork {
    at: Option<u64>,
    name: Option<String>,
    outcomes: HashMap<StepId, StepResult<NewPayload>>,
    input: Option<NewPayload>,
}

impl Fork {
    /// After this event of the origin, which is the last that is shared.
    pub fn at(sequence: u64) -> Fork {
        Fork {
            at: Some(sequence),
            ..Fork::at_end()
        }
    }

    /// After the last event there is.
    pub fn at_end() -> Fork {
        Fork {
            at: None,
            name: None,
            outcomes: HashMap::new(),
            input: None,
        }
    }

    /// The name of the new run. Without one it is made of the origin's name and the event.
    pub fn named(mut self, name: &str) -> Fork {
        self.name = Some(name.to_owned());
        self
    }

    /// A step had another result. What follows its outcome is not shared.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn with_outcome<T>(mut self, step: &str, value: &T) -> Result<Fork, Error>
    where
        T: Serialize + ?Sized,
    {
        let value = encode(value)?;
        self.outcomes.insert(StepId::new(step), Ok(value));
        Ok(self)
    }

    /// A step had failed. What follows its outcome is not shared.
    pub fn with_failure(mut self, step: &str, failure: Failure) -> Fork {
        let failure = failure.at(step);
        self.outcomes.insert(StepId::new(step), Err(failure));
        self
    }

    /// The run was started with another input.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn with_input<T: Serialize + ?Sized>(mut self, input: &T) -> Result<Fork, Error> {
        self.input = Some(encode(input)?);
        Ok(self)
    }
}

impl Dalsegno {
    /// Forks a run, and starts the fork. The origin is not touched, and may go on or have ended.
    /// Forking the same again under the same name is one run.
    ///
    /// # Errors
    /// There is no such run, event or step; the agent is not registered; the name is taken; or the
    /// shared past does not fit into one append.
    pub async fn fork(&self, origin: &str, fork: Fork) -> Result<RunHandle, Error> {
        let engine = &self.engine;
        if engine.is_closing() {
            return Err(Error::Closed);
        }
        let id = record(&*engine.store, Some(engine), origin, fork).await?;
        engine.launch(&id);
        let engine = std::sync::Arc::clone(engine);
        Ok(RunHandle { engine, id })
    }
}

/// Forks a run in a store that this process owns and executes no agents of; the name of the fork.
/// It is started by the next program that opens the store with its agent.
///
/// # Errors
/// As [`Dalsegno::fork`], but for the agent.
pub async fn fork_in(store: &dyn Store, origin: &str, fork: Fork) -> Result<String, Error> {
    let id = record(store, None, origin, fork).await?;
    Ok(id.name().to_owned())
}

/// Appends the fork, durably, unless it is there. With the engine that executes the store's agents,
/// if there is one.
async fn record(
    store: &dyn Store,
    engine: Option<&Engine>,
    origin: &str,
    fork: Fork,
) -> Result<StreamId, Error> {
    let (from, head) = find(store, origin).await?;
    let at = fork.at.unwrap_or(head);
    if at == 0 || at > head {
        return Err(Error::NoSuchEvent {
            run: origin.to_owned(),
            sequence: at,
            head,
        });
    }
    let refused = |why: String| Error::Fork {
        run: origin.to_owned(),
        why,
    };
    let seen = journal::load(store, &from, Some(at)).await?;
    let cut = cut(&seen, &fork, at).map_err(refused)?;
    let shared = match cut == at {
        true => seen,
        false => journal::load(store, &from, Some(cut)).await?,
    };
    if let Some(engine) = engine
        && !engine.agents.contains_key(&shared.created.agent)
    {
        return Err(engine.no_agent(&shared.created.agent));
    }
    if fork.input.is_some() && shared.turn.is_some() {
        let why = "its input was used before its first turn: fork before that turn's end, or \
                   leave the input as it is";
        return Err(refused(why.into()));
    }
    let name = fork.name.clone();
    let name = name.unwrap_or_else(|| format!("{origin}@{cut}"));
    let id = StreamId::run(&name)?;
    let past = past::read(store, &from, &shared, cut, head).await?;
    check_changed(&past, &fork).map_err(refused)?;
    if engine.is_some_and(|engine| engine.is_busy_with_once(&from))
        && let Some(step) = past.first_unknown_once()
        && !fork.outcomes.contains_key(step)
    {
        // Its probe could say that it did not happen, a moment before it does.
        return Err(refused(format!(
            "{step} is under way in it: wait for its outcome, or say what it is"
        )));
    }
    let events = copy::events(store, &past, &fork).await?;
    let count = events.len();
    let append = Append::to(id.clone(), events.clone()).expecting(0);
    match store.append(vec![append]).await {
        Ok(appended) => {
            store.durable(appended.position).await?;
        }
        Err(StoreError::TooLarge { what, size, limit }) => {
            let why = format!(
                "its past of {count} events does not fit into one append: {what} takes {size}, \
                 the limit is {limit}: fork at an earlier event, or raise the store's limits"
            );
            return Err(refused(why));
        }
        Err(e) => {
            if !is_same_fork(store, &id, &events).await? {
                return Err(match store.head(&id).await? {
                    None => e.into(),
                    Some(_) => Error::AlreadyStarted {
                        run: name,
                        what: "past",
                    },
                });
            }
        }
    }
    Ok(id)
}

/// Whether a run begins with exactly these events.
async fn is_same_fork(
    store: &dyn Store,
    id: &StreamId,
    events: &[dalsegno_store::NewEvent],
) -> Result<bool, Error> {
    let there = store.read(id, 1, events.len()).await;
    let there = match there {
        Ok(there) => there,
        Err(StoreError::NotFound { .. }) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    let same = |then: &Option<dalsegno_store::Payload>, now: &Option<NewPayload>| match (then, now)
    {
        (None, None) => true,
        (Some(then), Some(now)) => same_payload(then, now),
        _ => false,
    };
    Ok(there.len() == events.len()
        && there.iter().zip(events).all(|(there, new)| {
            let there = &there.event;
            there.kind == new.kind
                && there.fields == new.fields
                && there.cause == new.cause
                && same(&there.input, &new.input)
                && same(&there.output, &new.output)
        }))
}

/// The last event that is shared: the one asked for, or the first outcome that is changed.
fn cut(seen: &Journal, fork: &Fork, at: u64) -> Result<u64, String> {
    let mut cut = at;
    for id in fork.outcomes.keys() {
        let Some(step) = seen.steps.get(id) else {
            return Err(format!(
                "there is no step {id} up to event {at}{}: see the run's journal there",
                match seen.turn {
                    Some(_) => " in that turn",
                    None => "",
                }
            ));
        };
        match step.kind {
            StepKind::Model
            | StepKind::Tool
            | StepKind::Retrieval
            | StepKind::Decision
            | StepKind::PlanStep
            | StepKind::Signal
            | StepKind::Child
            | StepKind::Value
            | StepKind::Patched => {}
            StepKind::Approval => {
                return Err(format!("{id} is an approval: only a person answers it"));
            }
            StepKind::Memory => {
                return Err(format!(
                    "{id} is a write to a memory, which the fork shares: change what came before it"
                ));
            }
            StepKind::Sleep
            | StepKind::SendSignal
            | StepKind::Event
            | StepKind::Checkpoint
            | StepKind::Message => {
                return Err(format!("{id} is a {}: it has no result", step.kind));
            }
        }
        if step.outcome.is_some() {
            cut = cut.min(step.last);
        }
    }
    Ok(cut)
}

/// Steps whose outcome is changed have to be known at the fork.
fn check_changed(past: &past::Past, fork: &Fork) -> Result<(), String> {
    for id in fork.outcomes.keys() {
        if !past.shared.steps.contains_key(id) {
            return Err(format!(
                "{id} comes after event {}, the first outcome that is changed: change one of them",
                past.cut
            ));
        }
    }
    Ok(())
}
