//! Comparing all that a store answers with the history.

use std::collections::{BTreeMap, BTreeSet};

use dalsegno_store::{
    LocalStore, Recorded, RunInfo, RunQuery, Store, StoreError, StreamId, StreamKind, Version,
};

use super::history::History;
use super::{MAILBOX, World, now};
use crate::rng::Rng;

/// Why a comparison did not end well.
pub(super) enum Trouble {
    /// The store could not answer.
    Failed(StoreError),
    /// It answered wrongly.
    Wrong(String),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Failed(error)
    }
}

impl From<String> for Trouble {
    fn from(what: String) -> Trouble {
        Trouble::Wrong(what)
    }
}

impl Trouble {
    pub fn told(self) -> String {
        match self {
            Trouble::Failed(error) => error.to_string(),
            Trouble::Wrong(what) => what,
        }
    }
}

/// All events of a store in the order of its clock, read in parts of any size.
pub(super) fn all_events(
    store: &LocalStore,
    names: &BTreeSet<StreamId>,
    rng: &mut Rng,
) -> Result<Vec<Recorded>, Trouble> {
    let mut names = names.clone();
    let mut heads = BTreeMap::new();
    for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
        heads.extend(now(store.streams(kind, None, 0))?);
    }
    names.extend(heads.keys().cloned());
    let mut all = Vec::new();
    for name in &names {
        let mut chain = Version::START;
        loop {
            let limit = rng.range(1, 40) as usize;
            let events = now(store.read(name, chain.sequence + 1, limit))?;
            let last = events.len() < limit;
            for recorded in events {
                chain = chain.after(&recorded.event.encode());
                let place = (&recorded.event.stream, recorded.event.sequence);
                if place != (name, chain.sequence) || recorded.hash != chain.hash {
                    let wrong = format!("read {recorded:?} as event {} of {name}", chain.sequence);
                    return Err(Trouble::Wrong(wrong));
                }
                all.push(recorded);
            }
            if last {
                break;
            }
        }
        let listed = heads.get(name).copied().unwrap_or(Version::START);
        let head = now(store.head(name))?.unwrap_or(Version::START);
        if listed != chain || head != chain {
            let wrong = format!("{name} was read up to {chain:?}, but is {listed:?} and {head:?}");
            return Err(Trouble::Wrong(wrong));
        }
    }
    all.sort_by_key(|recorded| recorded.event.clock);
    Ok(all)
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// One who has just become the owner: with the one before, all leases ended.
    NewOwner,
    /// One who reads beside the owner, and cannot know how long a lease is held.
    Reader,
}

/// State and lists are those of the history.
pub(super) fn same_answers(
    store: &LocalStore,
    history: &History,
    asked: Asked,
) -> Result<(), Trouble> {
    if store.state_digest() != history.state.digest() {
        return Err(Trouble::Wrong(
            "the state is another than that of all events".into(),
        ));
    }
    let runs = now(store.runs(&RunQuery::default()))?;
    let expected = expected_runs(history, asked);
    if runs != expected {
        return Err(Trouble::Wrong(format!(
            "runs are {runs:?}, expected {expected:?}"
        )));
    }
    let timers = now(store.timers_due(u64::MAX, usize::MAX))?;
    let mut due = expected_timers(history);
    due.sort();
    let found: Vec<_> = timers
        .into_iter()
        .map(|t| (t.due_us, t.run, t.id))
        .collect();
    if found != due || now(store.next_timer_us())? != due.first().map(|(due, ..)| *due) {
        return Err(Trouble::Wrong(format!(
            "timers are {found:?}, expected {due:?}"
        )));
    }
    Ok(())
}

/// Payloads are as they were given.
pub(super) fn same_payloads(
    store: &LocalStore,
    history: &History,
    of: impl Fn(usize) -> bool,
) -> Result<(), Trouble> {
    for (_, entry) in history.visible().filter(|(at, _)| of(*at)) {
        let event = &entry.event;
        for (payload, bytes) in [&event.input, &event.output]
            .into_iter()
            .zip(&entry.payloads)
        {
            let (Some(payload), Some(bytes)) = (payload, bytes) else {
                continue;
            };
            if now(store.payload(payload))?[..] != bytes[..] {
                let place = format!("event {} of {}", event.sequence, event.stream);
                return Err(Trouble::Wrong(format!("another payload in {place}")));
            }
        }
    }
    Ok(())
}

fn expected_runs(history: &History, asked: Asked) -> Vec<RunInfo> {
    let streams = history.state.streams.iter().chain(&history.ended);
    let mut runs: Vec<RunInfo> = streams
        .filter(|(run, _)| run.kind() == StreamKind::Run)
        .filter_map(|(run, stream)| {
            Some(RunInfo {
                run: run.clone(),
                status: stream.status?,
                agent: stream.agent.as_deref().map(str::to_owned),
                created_us: stream.created_us,
                updated_us: stream.updated_us,
                head: stream.head,
                attention: stream.attention.clone(),
                lease: stream.lease.clone().filter(|_| asked == Asked::Reader),
                next_timer_us: stream.timers.values().min().copied(),
            })
        })
        .collect();
    runs.sort_by(|a, b| a.run.cmp(&b.run));
    runs
}

fn expected_timers(history: &History) -> Vec<(u64, StreamId, String)> {
    let streams = history.state.streams.iter();
    let timers = streams.flat_map(|(run, stream)| {
        let timers = stream.timers.iter();
        timers.map(|(id, due)| (*due, run.clone(), id.clone()))
    });
    timers.collect()
}

impl World {
    /// The store just opened has what it must have; from now on, the history is what it has.
    pub(super) fn compare_opened(&mut self, store: &LocalStore) -> Result<(), String> {
        let found = all_events(store, &self.history.names, &mut self.rng).map_err(Trouble::told)?;
        let mut history = self.history.clone();
        history.adopt(&found, &self.post, self.sizes, self.blind_openings)?;
        let opened = store.opened();
        let recorded = history
            .entries
            .last()
            .is_some_and(|last| last.event.kind == dalsegno_store::Kind::StoreRecovered);
        let all_was_well = opened.clean && opened.notices.is_empty();
        if !all_was_well && !recorded {
            return Err("a recovery was not recorded".into());
        }
        same_answers(store, &history, Asked::NewOwner).map_err(Trouble::told)?;
        let offset = self.rng.below(3) as usize;
        same_payloads(store, &history, |at| at % 3 == offset).map_err(Trouble::told)?;
        // What an opening has reported stays; but for its own words, which are not durable yet.
        let own = usize::from(!all_was_well);
        history.durable = history.entries.len() - own;
        self.history = history;
        self.blind_openings = 0;
        self.check_post(&self.disk.files(MAILBOX))
    }

    /// A view beside the store shows the beginning of the history, and no less than was
    /// acknowledged.
    pub(super) fn compare_view(&mut self, view: &LocalStore) -> Result<(), Trouble> {
        let found = all_events(view, &self.history.names, &mut self.rng)?;
        let (count, read) = self.history.check_beginning(&found)?;
        if let Some(Recorded { event, .. }) = found.get(read) {
            return Err(Trouble::Wrong(format!(
                "an event that nobody appended: {event:?}"
            )));
        }
        let mut history = self.history.clone();
        history.truncate(count);
        same_answers(view, &history, Asked::Reader)?;
        let offset = self.rng.below(5) as usize;
        same_payloads(view, &history, |at| at % 5 == offset)
    }
}
