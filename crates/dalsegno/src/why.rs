//! Why a run is where it is: what it was doing, what it knew, what changed last, what is in doubt,
//! what comes next; and if it is not moving, why not and what to do.
//!
//! Invariant: it is a pure function over what is recorded, what the store lists, and what the
//! process that executes the run knows, if it is asked. So a reader beside the owner gets the same
//! answer but for what only the owner can know.

use dalsegno_store::{
    Event, Kind, Payload, RunInfo, RunQuery, Status, Store, StoreError, StreamId, Version,
};

use crate::budget::Usage;
use crate::engine::Dalsegno;
use crate::error::Error;
use crate::journal::{self, Journal, bytes_of};

mod events;
mod json;
mod next;
mod page;
mod standing;
mod steps;
mod time;

pub use events::event_words;
pub use next::Next;
pub use standing::Standing;
pub(crate) use standing::{Here, Notes};
pub use steps::{InDoubt, StepLine};
pub use time::utc;

/// So many finished steps are shown.
const LAST_STEPS: usize = 5;
/// So many events are shown, of so many that are read.
const LAST_EVENTS: usize = 8;
const EVENTS_READ: u64 = 24;
/// So much of a state or result is shown.
const SHOWN_BYTES: usize = 2000;

/// Why a run is where it is. Print it for a page, or take [`Why::to_json`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Why {
    /// The run.
    pub run: String,
    /// Its agent.
    pub agent: String,
    /// Where it is in its life.
    pub status: Status,
    /// When it was created, in microseconds since 1970.
    pub created_us: u64,
    /// When its last event happened.
    pub updated_us: u64,
    /// When this was asked.
    pub asked_us: u64,
    /// The session that had it last.
    pub session: Option<String>,
    /// Steps that were begun and have no outcome.
    pub open: Vec<StepLine>,
    /// The last steps that have one, the newest last.
    pub last: Vec<StepLine>,
    /// What it knew.
    pub knew: Knew,
    /// The last events, the newest last.
    pub changed: Vec<Change>,
    /// Steps of which nobody knows whether they happened.
    pub in_doubt: Vec<InDoubt>,
    /// What comes next.
    pub next: Vec<Next>,
    /// Whether it is moving, and if not, what sort of reason there is.
    pub standing: Standing,
    /// That reason, in words.
    pub because: String,
    /// What to do about it; empty if there is nothing to do.
    pub to_do: String,
}

/// What a run knew.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Knew {
    /// What it was given.
    pub input: Option<String>,
    /// The last written state.
    pub checkpoint: Option<KnownState>,
    /// The memory that it saw last.
    pub memory: Option<Version>,
    /// Signals that have come and that nobody has taken.
    pub signals: Vec<String>,
    /// What it depends on outside, with fingerprints.
    pub resources: Vec<String>,
    /// What it has used.
    pub usage: Usage,
    /// What could not be read, and what is used instead.
    pub damage: Option<String>,
}

/// A written state.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KnownState {
    /// Its event.
    pub sequence: u64,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// The step that wrote it, or the turn that it ended.
    pub place: String,
    /// Which step of the task, of how many.
    pub progress: Option<(u64, u64)>,
    /// The state, or why it cannot be shown.
    pub state: Option<String>,
}

/// Something that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The event.
    pub sequence: u64,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// In words.
    pub what: String,
}

/// All that an answer follows from.
pub(crate) struct Facts<'a> {
    pub run: &'a StreamId,
    pub journal: &'a Journal,
    pub info: Option<&'a RunInfo>,
    /// The last events, in order.
    pub recent: &'a [Event],
    /// The content of the last written state.
    pub state: Option<Result<Vec<u8>, String>>,
    pub notes: Notes,
    pub now_us: u64,
}

impl Why {
    /// The answer.
    pub(crate) fn of(facts: Facts<'_>) -> Why {
        let journal = facts.journal;
        let mut next = next::of(journal, &facts.notes);
        let mut in_doubt = steps::in_doubt(journal);
        let told = standing::of(&facts, &next);
        if told.standing == Standing::Moving && facts.notes.here.is_some() {
            next = next::under_way(next, journal);
            in_doubt.clear();
        }
        Why {
            run: facts.run.name().to_owned(),
            agent: journal.created.agent.clone(),
            status: journal.status,
            created_us: journal.created.time_us,
            updated_us: journal.last_us,
            asked_us: facts.now_us,
            session: journal.session.clone(),
            open: steps::open(journal),
            last: steps::last(journal, LAST_STEPS),
            knew: knew(journal, facts.state),
            changed: events::last(facts.recent, LAST_EVENTS),
            in_doubt,
            next,
            standing: told.standing,
            because: told.because,
            to_do: told.to_do,
        }
    }

    /// The answer for a run whose events cannot be read.
    fn broken(run: &StreamId, info: Option<&RunInfo>, error: &StoreError, now_us: u64) -> Why {
        let mut journal = Journal::default();
        if let Some(info) = info {
            journal.created.agent = info.agent.clone().unwrap_or_default();
            journal.created.time_us = info.created_us;
            journal.status = info.status;
            journal.last_us = info.updated_us;
        }
        let mut why = Why::of(Facts {
            run,
            journal: &journal,
            info: None,
            recent: &[],
            state: None,
            notes: Notes::default(),
            now_us,
        });
        why.standing = Standing::Broken;
        why.next = Vec::new();
        let listed = info.and_then(|info| info.attention.clone());
        let listed = listed.map_or(String::new(), |reason| format!("; {reason}"));
        why.because = format!("its events cannot be read: {error}{listed}");
        why.to_do = standing::MEND.to_owned();
        why
    }
}

fn knew(journal: &Journal, state: Option<Result<Vec<u8>, String>>) -> Knew {
    let checkpoint = journal.checkpoint.as_ref().map(|written| KnownState {
        sequence: written.sequence,
        time_us: written.time_us,
        place: match (&written.step, written.turn) {
            (Some(step), _) => step.to_string(),
            (None, Some(turn)) => format!("turn {turn}"),
            (None, None) => "an unnamed place".to_owned(),
        },
        progress: written.progress,
        state: state.map(|state| match state {
            Ok(bytes) => shorten(&String::from_utf8_lossy(&bytes), SHOWN_BYTES),
            Err(why) => format!("cannot be read: {why}"),
        }),
    });
    let signals = journal.signals.values().map(|signal| signal.name.clone());
    Knew {
        input: journal.created.input.as_ref().map(crate::run::shown),
        checkpoint,
        memory: journal.memory,
        signals: signals.collect(),
        resources: journal.resources.values().map(|r| r.to_string()).collect(),
        usage: journal.usage,
        damage: journal.damage.clone(),
    }
}

/// A text that is not longer than so many bytes.
pub(crate) fn shorten(text: &str, limit_bytes: usize) -> String {
    if text.len() <= limit_bytes {
        return text.to_owned();
    }
    let mut end = limit_bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes)", &text[..end], text.len())
}

/// Why a run is where it is, as anybody can see who can read the store.
///
/// ```no_run
/// # async fn docs(store: &dyn dalsegno_store::Store) -> Result<(), dalsegno::Error> {
/// println!("{}", dalsegno::why(store, "order-42").await?);
/// # Ok(()) }
/// ```
///
/// # Errors
/// There is no such run, or the store cannot be read.
pub async fn why(store: &dyn Store, run: &str) -> Result<Why, Error> {
    let id = StreamId::run(run)?;
    ask(store, &id, None, system_now_us(), |_| Notes::default()).await
}

/// The same for a run that was listed, which is not looked for again.
pub(crate) async fn of_listed(store: &dyn Store, info: &RunInfo) -> Result<Why, Error> {
    let (id, info) = (&info.run, Some(info));
    ask(store, id, info, system_now_us(), |_| Notes::default()).await
}

fn system_now_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}

impl Dalsegno {
    /// Why a run is where it is: what it was doing, what it knew, what changed last, what is in
    /// doubt, what comes next; and if it is not moving, why not and what to do.
    ///
    /// # Errors
    /// There is no such run, or the store cannot be read.
    pub async fn why(&self, run: &str) -> Result<Why, Error> {
        let id = StreamId::run(run)?;
        let now_us = self.engine.runtime.now_us();
        let notes = |agent: &str| self.engine.notes(&id, agent);
        ask(&*self.engine.store, &id, None, now_us, notes).await
    }
}

async fn ask(
    store: &dyn Store,
    id: &StreamId,
    known: Option<&RunInfo>,
    now_us: u64,
    notes: impl FnOnce(&str) -> Notes,
) -> Result<Why, Error> {
    let journal = match journal::load(store, id, None).await {
        Ok(journal) => journal,
        Err(StoreError::NotFound { .. }) => {
            return Err(Error::RunNotFound(id.name().to_owned()));
        }
        Err(e @ (StoreError::Damaged { .. } | StoreError::Read(_))) => {
            let info = listed(store, id, known).await?;
            return Ok(Why::broken(id, info.as_ref(), &e, now_us));
        }
        Err(e) => return Err(e.into()),
    };
    let info = match journal.status.is_final() {
        true => None,
        false => listed(store, id, known).await?,
    };
    let recent = recent(store, id, journal.last).await?;
    let written = journal.checkpoint.as_ref().and_then(|c| c.state.as_ref());
    let state = state_of(store, written).await;
    let notes = notes(&journal.created.agent);
    Ok(Why::of(Facts {
        run: id,
        journal: &journal,
        info: info.as_ref(),
        recent: &recent,
        state,
        notes,
        now_us,
    }))
}

/// What the store lists of a run that has not ended.
async fn listed(
    store: &dyn Store,
    id: &StreamId,
    known: Option<&RunInfo>,
) -> Result<Option<RunInfo>, Error> {
    if let Some(info) = known {
        return Ok(Some(info.clone()));
    }
    let query = RunQuery {
        status: vec![Status::Pending, Status::Running, Status::Checkpointed],
        ..RunQuery::default()
    };
    let all = store.runs(&query).await?;
    Ok(all.into_iter().find(|info| info.run == *id))
}

/// The last events of a run that say something about it.
pub(crate) async fn recent(
    store: &dyn Store,
    id: &StreamId,
    last: u64,
) -> Result<Vec<Event>, StoreError> {
    let from = last.saturating_sub(EVENTS_READ - 1).max(1);
    let mut events = store.events(id, from, EVENTS_READ as usize).await?;
    events.retain(|event| !matches!(event.kind, Kind::LeaseTaken | Kind::LeaseReleased));
    Ok(events)
}

/// The content of the last written state.
pub(crate) async fn state_of(
    store: &dyn Store,
    written: Option<&Payload>,
) -> Option<Result<Vec<u8>, String>> {
    Some(bytes_of(store, written?).await.map_err(|e| e.to_string()))
}
