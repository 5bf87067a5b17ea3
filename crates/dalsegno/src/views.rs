//! What a store's runs look like from outside: tasks, sessions, checkpoints, and the log of
//! recoveries. All of it is read from the events, on any store, also beside its owner.
//!
//! | view | what it shows |
//! |---|---|
//! | [`list`] | every run in a line, with what it waits for: reads no more than the ends of those that wait |
//! | [`journal`] | what one run has done so far |
//! | [`tasks`] | every run, with its current checkpoint while it is not finished |
//! | [`sessions`], [`session`] | which process had which runs, and where those are that it had last |
//! | [`checkpoints`] | of one run: the current one, the one before, and those that are pinned |
//! | [`recovery_log`] | every recovery from a crash, with what was known then |
//!
//! Invariant: a view never changes anything, and never fails because of one run's damage where it
//! shows many: it says so at that run.

use std::collections::{BTreeMap, BTreeSet};

use dalsegno_store::{Event, Kind, RunInfo, RunQuery, Status, Store, StoreError, StreamId};
use serde_json::{Value, json};

use crate::error::Error;
use crate::journal::{Checkpoint, Journal, bytes_of, load};
use crate::orders;
use crate::record;
use crate::recovery::{Recovered, read_event};
use crate::resource::NotedResource;

/// Events read at once.
const PAGE: usize = 1024;

/// A run, as a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Task {
    /// What the store lists of it.
    pub info: RunInfo,
    /// The session that had it last.
    pub session: Option<String>,
    /// What it waits for, if it is not finished and not in memory.
    pub waits: Vec<String>,
    /// Its current checkpoint; `None` once it is finished.
    pub checkpoint: Option<Checkpoint>,
    /// Why its events cannot be read, if they cannot.
    pub damage: Option<String>,
}

/// One opening of a store by one process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Session {
    /// Its name.
    pub name: String,
    /// The runs that it had last.
    pub tasks: Vec<Task>,
    /// Runs that it had, and that another session has had since.
    pub earlier: Vec<String>,
}

/// A written state, with all that it holds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CheckpointView {
    /// The task.
    pub run: String,
    /// What was written.
    pub checkpoint: Checkpoint,
    /// Steps that were begun and had no outcome.
    pub pending: Vec<String>,
    /// What the run depended on outside.
    pub resources: Vec<NotedResource>,
    /// The state as JSON; `null` if it has none or it cannot be read.
    pub state: Value,
    /// Why the state cannot be read.
    pub damage: Option<String>,
}

/// The checkpoints of a run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Checkpoints {
    /// The last one.
    pub current: Option<CheckpointView>,
    /// The one before.
    pub previous: Option<CheckpointView>,
    /// Those that are kept for looking at, in order.
    pub pinned: Vec<CheckpointView>,
}

impl Checkpoints {
    /// The newest of current and previous that can be read.
    pub fn good(&self) -> Option<&CheckpointView> {
        let both = [&self.current, &self.previous].into_iter().flatten();
        both.into_iter().find(|view| view.damage.is_none())
    }
}

/// A recovery from a crash.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecoveryEntry {
    /// What was done with which run, and why.
    pub recovered: Recovered,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// The session that found it.
    pub session: String,
    /// The event of the run.
    pub sequence: u64,
    /// What the run was doing, what it knew, what had changed last, what was in doubt and what
    /// was to come next: as [`crate::Why::to_json`], with what was found of its resources. If it
    /// cannot be read, why not, as `damage`.
    pub report: Value,
}

/// A run in a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// What the store lists of it.
    pub info: RunInfo,
    /// What it waits for, if it is not finished and not in memory, as in `approval refund#1`.
    pub waits: Vec<String>,
    /// A person has said what may move it on, and nobody has taken it up since.
    pub answered: bool,
}

impl Listed {
    /// Whether it asks for an approval, or only a person can move it on.
    pub fn needs_person(&self) -> bool {
        let asks = |wait: &String| wait.starts_with("approval ");
        (self.info.attention.is_some() && !self.answered) || self.waits.iter().any(asks)
    }
}

/// Runs in the order of their names, for a list: of each that waits, only its last events are read.
///
/// # Errors
/// The store cannot be read.
pub async fn list(store: &dyn Store, query: &RunQuery) -> Result<Vec<Listed>, Error> {
    let infos = store.runs(query).await?;
    let written_down = |info: &&RunInfo| info.status == Status::Checkpointed;
    let heads = infos.iter().filter(written_down);
    let heads: Vec<_> = heads.map(|info| (info.run.clone(), info.head)).collect();
    // A reason to be looked at, the giving back of the lease, and an answer follow the writing down.
    let mut ends = store.last_events(&heads, 4).await?.into_iter();
    let listed = infos.into_iter().map(|info| {
        let end = match written_down(&&info) {
            // What cannot be read is said where that run is looked at.
            true => ends.next().and_then(Result::ok).map(Journal::fold),
            false => None,
        };
        let end = end.unwrap_or_default();
        let answered = end.is_answered();
        let cleared = info.attention.is_none() && end.waits == ["a person"];
        let waits = match answered || cleared {
            true => vec!["the next process".to_owned()],
            false => end.waits,
        };
        Listed {
            info,
            waits,
            answered,
        }
    });
    Ok(listed.collect())
}

/// What a run has done so far.
///
/// # Errors
/// There is no such run, or the store cannot be read.
pub async fn journal(store: &dyn Store, run: &str) -> Result<Journal, Error> {
    Ok(orders::journal(store, run).await?.1)
}

/// All runs, in the order of their names.
///
/// # Errors
/// The store cannot be read.
pub async fn tasks(store: &dyn Store) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for info in store.runs(&RunQuery::default()).await? {
        tasks.push(task(store, info).await?);
    }
    Ok(tasks)
}

async fn task(store: &dyn Store, info: RunInfo) -> Result<Task, Error> {
    let (journal, damage) = match load(store, &info.run, None).await {
        Ok(journal) => (journal, None),
        Err(e @ (StoreError::Damaged { .. } | StoreError::Read(_))) => {
            (Journal::default(), Some(e.to_string()))
        }
        Err(e) => return Err(e.into()),
    };
    let finished = info.status.is_final();
    Ok(Task {
        session: journal.session,
        waits: match info.status {
            Status::Checkpointed => journal.waits,
            _ => Vec::new(),
        },
        checkpoint: journal.checkpoint.filter(|_| !finished),
        damage: damage.or(journal.damage),
        info,
    })
}

/// All sessions that had a run, in the order of their names. For this every event of every run is
/// read.
///
/// # Errors
/// The store cannot be read.
pub async fn sessions(store: &dyn Store) -> Result<Vec<Session>, Error> {
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut of = |name: String, had: &dyn Fn(&mut Session)| {
        let session = sessions.entry(name).or_insert_with_key(|name| Session {
            name: name.clone(),
            tasks: Vec::new(),
            earlier: Vec::new(),
        });
        had(session);
    };
    for task in tasks(store).await? {
        let run = task.info.run.name().to_owned();
        for session in had_by(store, &task.info.run).await? {
            if task.session.as_ref() != Some(&session) {
                of(session, &|session| session.earlier.push(run.clone()));
            }
        }
        if let Some(session) = task.session.clone() {
            of(session, &|session| session.tasks.push(task.clone()));
        }
    }
    Ok(sessions.into_values().collect())
}

/// The sessions that started a run, each once. Of a run whose events are lost none is known.
async fn had_by(store: &dyn Store, run: &StreamId) -> Result<BTreeSet<String>, Error> {
    let mut sessions = BTreeSet::new();
    let mut from = 1;
    loop {
        let page = match store.events(run, from, PAGE).await {
            Ok(page) => page,
            Err(StoreError::Damaged { .. } | StoreError::Read(_)) => return Ok(sessions),
            Err(e) => return Err(e.into()),
        };
        let Some(last) = page.last() else {
            return Ok(sessions);
        };
        from = last.sequence + 1;
        let started = page.iter().filter(|event| event.kind == Kind::RunStarted);
        let session = |event: &Event| {
            event
                .fields
                .text(record::started::SESSION)
                .map(str::to_owned)
        };
        sessions.extend(started.filter_map(session));
    }
}

/// A session; `None` if it never had a run.
///
/// # Errors
/// The store cannot be read.
pub async fn session(store: &dyn Store, name: &str) -> Result<Option<Session>, Error> {
    let all = sessions(store).await?;
    Ok(all.into_iter().find(|session| session.name == name))
}

/// The checkpoints of a run: where its code wrote one, and where its turns ended.
///
/// # Errors
/// There is no such run, or the store cannot be read.
pub async fn checkpoints(store: &dyn Store, run: &str) -> Result<Checkpoints, Error> {
    let (id, journal) = orders::journal(store, run).await?;
    let mut found = Checkpoints::default();
    let newest = newest(store, &id, journal.last, 2).await?;
    let mut newest = newest.into_iter();
    if let Some(current) = newest.next() {
        found.current = Some(view(store, &id, current).await?);
    }
    if let Some(previous) = newest.next() {
        found.previous = Some(view(store, &id, previous).await?);
    }
    for sequence in journal.pinned {
        for event in store.events(&id, sequence, 1).await? {
            let checkpoint = Checkpoint::of(event);
            found.pinned.push(view(store, &id, checkpoint).await?);
        }
    }
    Ok(found)
}

/// The newest checkpoints, looked for from the end, the newest first.
async fn newest(
    store: &dyn Store,
    id: &StreamId,
    last: u64,
    count: usize,
) -> Result<Vec<Checkpoint>, StoreError> {
    let mut found = Vec::new();
    let mut end = last;
    while end > 0 && found.len() < count {
        let from = end.saturating_sub(PAGE as u64) + 1;
        let page = store.events(id, from, (end - from + 1) as usize).await?;
        let written = page
            .into_iter()
            .rev()
            .filter(|event| event.kind == Kind::CheckpointWritten);
        found.extend(written.map(Checkpoint::of));
        end = from - 1;
    }
    found.truncate(count);
    Ok(found)
}

/// With what was known at that event.
async fn view(
    store: &dyn Store,
    id: &StreamId,
    checkpoint: Checkpoint,
) -> Result<CheckpointView, Error> {
    let then = load(store, id, Some(checkpoint.sequence)).await?;
    let (state, damage) = match &checkpoint.state {
        None => (Value::Null, None),
        Some(state) => match bytes_of(store, state).await {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(state) => (state, None),
                Err(e) => (Value::Null, Some(format!("the state is no JSON: {e}"))),
            },
            Err(e @ (StoreError::Damaged { .. } | StoreError::Read(_))) => {
                (Value::Null, Some(e.to_string()))
            }
            Err(e) => return Err(e.into()),
        },
    };
    let mut pending = checkpoint.pending.clone();
    for (step, _) in then.open_steps() {
        if !pending.iter().any(|known| known == step.as_str()) {
            pending.push(step.to_string());
        }
    }
    Ok(CheckpointView {
        run: id.name().to_owned(),
        pending,
        resources: then.resources.into_values().collect(),
        state,
        damage,
        checkpoint,
    })
}

/// Every recovery from a crash, of all runs, in the order in which they happened.
///
/// # Errors
/// The store cannot be read.
pub async fn recovery_log(store: &dyn Store) -> Result<Vec<RecoveryEntry>, Error> {
    let mut log = Vec::new();
    for info in store.runs(&RunQuery::default()).await? {
        // A run whose events are lost has no log that could be read; its task says so.
        let last = match load(store, &info.run, None).await {
            Ok(journal) => journal.recovered,
            Err(StoreError::Damaged { .. } | StoreError::Read(_)) => None,
            Err(e) => return Err(e.into()),
        };
        recoveries(store, &info, last, &mut log).await?;
    }
    log.sort_by(|a, b| {
        let order = |entry: &RecoveryEntry| (entry.time_us, entry.sequence);
        let runs = a.recovered.run.cmp(&b.recovered.run);
        order(a).cmp(&order(b)).then(runs)
    });
    Ok(log)
}

/// The recoveries of a run, from the last one back: each says where the one before is.
async fn recoveries(
    store: &dyn Store,
    info: &RunInfo,
    last: Option<u64>,
    log: &mut Vec<RecoveryEntry>,
) -> Result<(), Error> {
    let mut next = last;
    while let Some(sequence) = next {
        let page = match store.events(&info.run, sequence, 1).await {
            Ok(page) => page,
            Err(StoreError::Damaged { .. } | StoreError::Read(_)) => break,
            Err(e) => return Err(e.into()),
        };
        let Some(event) = page.into_iter().next() else {
            break;
        };
        if event.kind != Kind::RunRecovered {
            break;
        }
        let (action, why, session, previous) = read_event(&event);
        let report = match &event.input {
            None => Value::Null,
            Some(report) => match bytes_of(store, report).await {
                Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
                Err(e @ (StoreError::Damaged { .. } | StoreError::Read(_))) => {
                    json!({ "damage": e.to_string() })
                }
                Err(e) => return Err(e.into()),
            },
        };
        // Only ever back, whatever it says.
        next = previous.filter(|previous| *previous < sequence);
        log.push(RecoveryEntry {
            recovered: Recovered {
                run: info.run.name().to_owned(),
                agent: info.agent.clone().unwrap_or_default(),
                action,
                why,
            },
            time_us: event.time_us,
            session,
            sequence,
            report,
        });
    }
    Ok(())
}
