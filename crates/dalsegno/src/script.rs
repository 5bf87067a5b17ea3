//! Runs whose code is not ours: a shell script that asks for one step at a time, each from a
//! process of its own.
//!
//! ```text
//! ask(step)        recorded? hand it back. Else: lease, intent, durable       → Permit
//!   … the store can be let go of; the effect; the store is opened again …
//! permit.finish()  outcome, and the run waits for the next step; durable
//! ```
//!
//! The same events as of any other run, by the same rules ([`crate::Run::begin`]). Two things are
//! different. Nobody can tell whether a script has come to everything that is recorded, so steps are
//! known by their names alone: a name stands for one step of the run. And a step that failed is not
//! an outcome unless that is said: it is tried again when the script is run again.
//!
//! Where processes share the store, the lease has to be kept while the effect is under way
//! ([`Permit::keep`]), by the handle that took it. A script that a worker has started asks that
//! worker, which holds the run all the time ([`ScriptRun`], see `script/held.rs`).
//!
//! Invariant: a [`Permit`] writes under the lease that it was given with. If somebody else has taken
//! the run meanwhile, it can record nothing.

use std::sync::Arc;
use std::time::Duration;

use dalsegno_store::{
    Append, Fields, Kind, NewEvent, NewPayload, Payload, Status, Store, StoreError, StreamId,
};

use crate::attention::Attention;
use crate::effect::{Durability, Effect};
use crate::error::Error;
use crate::failure::Failure;
use crate::journal::{self, Journal, Outcome, StepRecord, bytes_of};
use crate::ledger::Ledger;
use crate::record;
use crate::run::{self, Around, Begun, Hold, Run, Settings, Step, Stopped};
use crate::runtime::{Runtime, Tokio};
use crate::step::{Occurrences, StepId, StepKind, check_name};
use crate::syncer::Syncer;

mod held;
mod permit;

pub(crate) use held::Script;
pub use held::{Busy, ScriptRun};
pub use permit::Permit;
use permit::{A_PERSON, NEXT_STEP, let_go};

/// How long a lease is said to be held. It ends with the process that owns the store.
const LEASE_US: u64 = 60_000_000;
/// The same where processes share the store: so long a run is not worked on when its process was
/// killed.
const SHARED_LEASE_US: u64 = 8_000_000;
/// Who executes a step calls [`Permit::keep`] so often.
pub const KEEP_EVERY: Duration = Duration::from_secs(2);

fn lease_us(store: &dyn Store) -> u64 {
    match store.is_shared() {
        true => SHARED_LEASE_US,
        false => LEASE_US,
    }
}

/// A step that a script asks for.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The run; it is made if there is none.
    pub run: &'a str,
    /// The agent that the run is of.
    pub agent: &'a str,
    /// Who asks.
    pub worker: &'a str,
    /// The name of the step.
    pub name: &'a str,
    /// What it does to the world.
    pub effect: Effect,
    /// What it is to do; compared with the record.
    pub input: NewPayload,
}

/// What to do about a step of a script.
#[derive(Debug)]
pub enum Asked {
    /// Nothing: this is what it came to.
    Recorded(Came),
    /// Do it, and call [`Permit::finish`].
    Execute(Permit),
    /// Find out whether it happened; why nobody knows.
    InDoubt(Permit, String),
    /// Its name stands for something else: what is recorded, and what was asked for.
    Mismatch(String, String),
    /// Only a person can move the run on.
    NeedsPerson(Attention),
    /// The run has ended, or has been told to end.
    Ended(Status),
    /// Nothing: who holds the run is about to let go of it, and another process goes on.
    Stopping,
}

/// What a step came to.
#[derive(Debug)]
pub struct Came {
    /// Which step.
    pub step: StepId,
    /// How often it was begun.
    pub attempts: u64,
    /// Why it failed for good, if it did.
    pub failure: Option<Failure>,
    /// Its result, also if it failed.
    pub output: Option<Vec<u8>>,
}

/// What a step that was executed came to.
#[derive(Clone, Debug)]
pub enum Ended {
    /// It was done.
    Done,
    /// It failed, and is tried again when it is asked for again.
    FailedForNow(Failure),
    /// It failed for good.
    Failed(Failure),
}

/// Whether the names can be names.
///
/// # Errors
/// One of them cannot.
pub fn check(ask: &Ask<'_>) -> Result<(), Error> {
    identify(ask).map(drop)
}

/// What a step of a script came to, if that is recorded. Needs no more than to read.
///
/// # Errors
/// The store, or a name that cannot be one. A run of another agent.
pub async fn look(store: &dyn Store, ask: &Ask<'_>) -> Result<Option<Asked>, Error> {
    let (id, step) = identify(ask)?;
    if store.head(&id).await?.is_none() {
        return Ok(None);
    }
    let journal = load(store, &id, ask.agent).await?;
    recorded(store, &id, journal.steps.get(&step.id), &step).await
}

/// Begins a step of a script. When this returns, all that has to be is durable.
///
/// # Errors
/// The store, or a name that cannot be one. A run of another agent.
pub async fn ask(store: &Arc<dyn Store>, ask: &Ask<'_>) -> Result<Asked, Error> {
    let (id, step) = identify(ask)?;
    store.take_letters().await?;
    if store.head(&id).await?.is_none() {
        let fields = Fields::new().with(record::created::AGENT, ask.agent);
        let created = NewEvent::new(Kind::RunCreated).with_fields(fields);
        let append = Append::to(id.clone(), vec![created]).expecting(0);
        store.append(vec![append]).await?;
    }
    let journal = load(&**store, &id, ask.agent).await?;
    let found = journal.steps.get(&step.id);
    if let Some(known) = recorded(&**store, &id, found, &step).await? {
        if journal.status == Status::Checkpointed && journal.is_answered() {
            go_on(store, &id, ask.worker, &journal).await?;
        }
        return Ok(known);
    }
    if let Some(asked) = told_to_stop(store, &id, ask, &journal).await? {
        return Ok(asked);
    }
    begin(store, &id, ask, journal, step).await
}

/// Ends the run of a script: with a result, or in a failure.
///
/// # Errors
/// The store; there is no such run, it is of another agent, or has ended otherwise.
pub async fn end(
    store: &Arc<dyn Store>,
    run: &str,
    agent: &str,
    worker: &str,
    result: Result<Option<NewPayload>, Failure>,
) -> Result<Status, Error> {
    let id = StreamId::run(run)?;
    store.take_letters().await?;
    if store.head(&id).await?.is_none() {
        return Err(Error::RunNotFound(run.to_owned()));
    }
    let journal = load(&**store, &id, agent).await?;
    let (event, status) = match result {
        Ok(output) => {
            let mut event = NewEvent::new(Kind::RunCompleted);
            event.output = output;
            (event, Status::Completed)
        }
        Err(failure) => {
            let fields = record::failure_fields(&failure, None);
            let event = NewEvent::new(Kind::RunFailed).with_fields(fields);
            (event, Status::Failed)
        }
    };
    if journal.status.is_final() {
        return match journal.status == status {
            true => Ok(status),
            false => Err(Error::RunEnded {
                run: run.to_owned(),
                status: journal.status.to_string(),
            }),
        };
    }
    if let (Some((step, _)), Status::Completed) = (journal.open_steps().first(), status) {
        let reason = format!("{step} is not finished: nobody knows how it ended");
        let run = run.to_owned();
        return Err(Error::NeedsAttention { run, reason });
    }
    let token = store
        .take_lease(&id, worker, lease_us(&**store))
        .await?
        .token;
    let events = started(&journal, worker).into_iter().chain([event]);
    durable(store, Append::to(id, events.collect()).under(token)).await?;
    Ok(status)
}

/// Hands the `once` step that a dead process has left open to a person, who can say what became of
/// it then; `None` if there is none. Only for who knows that the process is dead.
///
/// # Errors
/// The store; there is no such run, or it is of another agent.
pub async fn hand_to_person(
    store: &Arc<dyn Store>,
    run: &str,
    agent: &str,
    worker: &str,
) -> Result<Option<Attention>, Error> {
    let id = StreamId::run(run)?;
    store.take_letters().await?;
    if store.head(&id).await?.is_none() {
        return Err(Error::RunNotFound(run.to_owned()));
    }
    let journal = load(&**store, &id, agent).await?;
    let mut open = journal.open_steps().into_iter();
    let left = open.find(|(_, step)| step.effect == Effect::Once);
    let Some((step, record)) = left.filter(|_| journal.status == Status::Running) else {
        return Ok(None);
    };
    let token = store
        .take_lease(&id, worker, lease_us(&**store))
        .await?
        .token;
    let started = Append::to(id.clone(), started(&journal, worker)).under(token);
    store.append(vec![started]).await?;
    let permit = Permit {
        run: id,
        step: step.clone(),
        effect: record.effect,
        attempt: record.attempts,
        key: journal.key_of(step),
        token,
        input: record.input.as_ref().map(run::shown).unwrap_or_default(),
        begun_us: record.begun_us,
        held: None,
    };
    permit.escalate(store, run::PROCESS_ENDED).await.map(Some)
}

fn identify(ask: &Ask<'_>) -> Result<(StreamId, Step), Error> {
    let id = StreamId::run(ask.run)?;
    Ok((id, step(ask.name, ask.effect, ask.input.clone())?))
}

fn step(name: &str, effect: Effect, input: NewPayload) -> Result<Step, Error> {
    check_name(name).map_err(Error::StepName)?;
    let step = Occurrences::default().take("", name);
    let mut step = Step::new(step, StepKind::Tool, effect);
    step.input = Some(input);
    Ok(step)
}

async fn load(store: &dyn Store, id: &StreamId, agent: &str) -> Result<Journal, Error> {
    let journal = journal::load(store, id, None).await?;
    match journal.created.agent == agent {
        true => Ok(journal),
        false => Err(Error::AlreadyStarted {
            run: id.name().to_owned(),
            what: "agent",
        }),
    }
}

/// What is recorded of a step, if that is all there is to it.
async fn recorded(
    store: &dyn Store,
    id: &StreamId,
    found: Option<&StepRecord>,
    step: &Step,
) -> Result<Option<Asked>, Error> {
    let Some(found) = found else {
        return Ok(None);
    };
    if run::compare(found, step).is_some() {
        let then = found.input.as_ref().map(run::shown);
        let now = step.input.as_ref().map(run::shown_new);
        let words = |side: Option<String>| side.unwrap_or_else(|| "nothing".to_owned());
        return Ok(Some(Asked::Mismatch(words(then), words(now))));
    }
    let (failure, payload) = match &found.outcome {
        None => return Ok(None),
        Some(Outcome::Succeeded(payload)) => (None, payload.clone()),
        Some(Outcome::Failed(failure)) => {
            (Some(failure.clone()), output_of(store, id, found).await?)
        }
    };
    let output = match payload {
        Some(payload) => Some(bytes_of(store, &payload).await?),
        None => None,
    };
    Ok(Some(Asked::Recorded(Came {
        step: step.id.clone(),
        attempts: found.attempts,
        failure,
        output,
    })))
}

/// What a step that failed had printed.
async fn output_of(
    store: &dyn Store,
    id: &StreamId,
    found: &StepRecord,
) -> Result<Option<Payload>, Error> {
    let event = store.events(id, found.last, 1).await?.pop();
    Ok(event.and_then(|event| event.output))
}

/// Ends a run that is to end; says so of one that has, or that needs a person.
async fn told_to_stop(
    store: &Arc<dyn Store>,
    id: &StreamId,
    ask: &Ask<'_>,
    journal: &Journal,
) -> Result<Option<Asked>, Error> {
    if journal.status.is_final() {
        return Ok(Some(Asked::Ended(journal.status)));
    }
    let (event, status) = if let Some(why) = &journal.fail {
        let failure = Failure::terminal(why);
        let fields = record::failure_fields(&failure, None);
        (
            NewEvent::new(Kind::RunFailed).with_fields(fields),
            Status::Failed,
        )
    } else if let Some(why) = &journal.cancel {
        let fields = Fields::new().with(record::cancel::REASON, why.as_str());
        (
            NewEvent::new(Kind::RunCancelled).with_fields(fields),
            Status::Cancelled,
        )
    } else {
        let waits = journal.attention.clone().filter(|_| !journal.is_answered());
        return Ok(waits.map(Asked::NeedsPerson));
    };
    let token = store
        .take_lease(id, ask.worker, lease_us(&**store))
        .await?
        .token;
    durable(store, Append::to(id.clone(), vec![event]).under(token)).await?;
    Ok(Some(Asked::Ended(status)))
}

async fn begin(
    store: &Arc<dyn Store>,
    id: &StreamId,
    ask: &Ask<'_>,
    mut journal: Journal,
    mut step: Step,
) -> Result<Asked, Error> {
    // What was recorded decides what may be done, not what the script says now.
    if let Some(found) = journal.steps.get(&step.id) {
        step.effect = found.effect;
    }
    let runtime: Arc<dyn Runtime> = Arc::new(Tokio::current().ok_or(Error::NoRuntime)?);
    let asked_us = runtime.now_us();
    let token = store
        .take_lease(id, ask.worker, lease_us(&**store))
        .await?
        .token;
    let hold = Hold::new(token, asked_us, lease_us(&**store), &runtime);
    // Taking it is an event.
    journal.last += 1;
    let started = started(&journal, ask.worker);
    let settings = Settings {
        durability: Durability::Strict,
        ..Settings::default()
    };
    let around = Around {
        store: Arc::clone(store),
        syncer: Syncer::new(Arc::clone(store), Arc::clone(&runtime), None),
        ledger: Ledger::new(Arc::clone(store)),
        #[cfg(feature = "memory")]
        memories: crate::memories::Memories::new(Arc::clone(store)),
        runtime,
    };
    let run = Run::new(id.clone(), around, settings, hold, journal);
    {
        // A script comes to its steps one process at a time: there is nothing to wait for.
        let journal = &mut run.state().journal;
        journal.remaining = 0;
        (journal.unseen, journal.order) = Default::default();
    }
    let run = Arc::new(run);
    let input = step.input.as_ref().map(run::shown_new).unwrap_or_default();
    let effect = step.effect;
    let begun = match run.record(started).await {
        Ok(_) => run.begin(step).await,
        Err(run::NotRecorded::Stopped(stopped)) => Err(stopped),
        Err(run::NotRecorded::Refused(why)) => Err(Stopped::Store(why)),
    };
    let permit = |step: StepId, attempt, key, begun_us| Permit {
        run: id.clone(),
        step,
        effect,
        attempt,
        key,
        token,
        input,
        begun_us,
        held: None,
    };
    match begun {
        Ok(Begun::Execute(mut ticket)) => {
            if let Some(active) = ticket.active.take() {
                active.end();
            }
            let now_us = run.runtime.now_us();
            let permit = permit(ticket.step.id, ticket.attempt, ticket.key, now_us);
            run.durable().await.map_err(stopped_by_store)?;
            Ok(Asked::Execute(permit))
        }
        Ok(Begun::InDoubt(doubt)) => {
            let permit = permit(
                doubt.step.id.clone(),
                doubt.attempt,
                doubt.key.clone(),
                doubt.begun_us,
            );
            Ok(Asked::InDoubt(permit, doubt.why.clone()))
        }
        // What it was to do was too large to be recorded.
        Ok(Begun::Recorded(outcome)) => {
            let (failure, output) = match outcome {
                Outcome::Failed(failure) => (Some(failure), None),
                Outcome::Succeeded(_) => (None, None),
            };
            let_go(store, id, token, Vec::new(), NEXT_STEP).await?;
            let step = Occurrences::default().take("", ask.name);
            Ok(Asked::Recorded(Came {
                step,
                attempts: 0,
                failure,
                output,
            }))
        }
        Err(Stopped::Attention(attention)) => {
            let events = vec![attention.event()];
            let_go(store, id, token, events, A_PERSON).await?;
            Ok(Asked::NeedsPerson(attention))
        }
        Err(stopped) => Err(stopped_by_store(stopped)),
    }
}

fn stopped_by_store(stopped: Stopped) -> Error {
    Error::Stopped(stopped.to_string())
}

/// The events that begin an execution.
fn started(journal: &Journal, worker: &str) -> Vec<NewEvent> {
    let mut fields = Fields::new()
        .with(record::started::WORKER, worker)
        .with(record::started::SESSION, worker);
    if journal.status == Status::Running {
        fields = fields.with(record::started::RECOVERED, 1);
        let done = journal.steps.values().filter(|step| step.outcome.is_some());
        fields = fields.with(record::started::REPLAYED, done.count() as u64);
    }
    let started = NewEvent::new(Kind::RunStarted).with_fields(fields);
    let cleared = journal.attention.is_some();
    let cleared = cleared.then(|| NewEvent::new(Kind::AttentionCleared));
    cleared.into_iter().chain([started]).collect()
}

/// A run whose question a person has answered waits for its next step again.
async fn go_on(
    store: &Arc<dyn Store>,
    id: &StreamId,
    worker: &str,
    journal: &Journal,
) -> Result<(), StoreError> {
    let token = store
        .take_lease(id, worker, lease_us(&**store))
        .await?
        .token;
    let started = Append::to(id.clone(), started(journal, worker)).under(token);
    store.append(vec![started]).await?;
    let_go(store, id, token, Vec::new(), NEXT_STEP).await
}

async fn durable(store: &Arc<dyn Store>, append: Append) -> Result<(), StoreError> {
    let appended = store.append(vec![append]).await?;
    store.durable(appended.position).await
}
