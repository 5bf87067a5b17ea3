//! Following all runs of a database, whose events have no common order: each run is followed for
//! itself, and what is new is put in the order of its times.
//!
//! Invariant: an event is handed out once, and those of one run in their order.

use std::collections::BTreeMap;

use dalsegno_store::{Event, RunInfo, RunQuery, Status, Store, StreamId};

use super::PAGE;
use crate::exit::Result;
use crate::output::time;

/// Of the runs that have ended, so many are looked at.
const ENDED: usize = 1000;
/// Of so many runs the last events are looked for at the beginning.
const NEWEST: usize = 50;
/// A run that has not changed for so long is none that has just begun, only one that others had
/// kept out of the list.
const OLD_US: u64 = 300_000_000;

/// How far each run was read.
pub struct Seen {
    runs: BTreeMap<StreamId, u64>,
    /// What is to be printed first.
    last: Vec<Event>,
}

impl Seen {
    /// Everything up to now, but for the last so many events.
    pub async fn new(store: &dyn Store, count: usize) -> Result<Seen> {
        let listed = listed(store).await?;
        let runs = listed.iter();
        let runs = runs.map(|info| (info.run.clone(), info.head.sequence));
        let mut newest: Vec<&RunInfo> = listed.iter().collect();
        newest.sort_by_key(|info| std::cmp::Reverse(info.updated_us));
        let newest = newest.iter().take(NEWEST);
        let newest: Vec<_> = newest.map(|info| (info.run.clone(), info.head)).collect();
        let mut last = Vec::new();
        for events in store.last_events(&newest, count).await? {
            last.extend(events?);
        }
        in_order(&mut last);
        last.drain(..last.len().saturating_sub(count));
        Ok(Seen {
            runs: runs.collect(),
            last,
        })
    }

    /// What has come since.
    pub async fn news(&mut self, store: &dyn Store) -> Result<Vec<Event>> {
        let mut news = std::mem::take(&mut self.last);
        let old_us = time::now_us().saturating_sub(OLD_US);
        let mut found = Vec::new();
        for info in listed(store).await? {
            let head = info.head.sequence;
            let seen = match self.runs.get(&info.run) {
                Some(seen) => *seen,
                None if info.updated_us < old_us => head,
                None => 0,
            };
            let mut next = seen + 1;
            while next <= head {
                let page = store.events(&info.run, next, PAGE).await?;
                let Some(last) = page.last() else {
                    break;
                };
                next = last.sequence + 1;
                found.extend(page);
            }
            self.runs.insert(info.run, next - 1);
        }
        in_order(&mut found);
        news.extend(found);
        Ok(news)
    }
}

/// By their times; those of one run stay in their order, also if a clock went back.
fn in_order(events: &mut [Event]) {
    let mut latest: BTreeMap<StreamId, u64> = BTreeMap::new();
    let mut times = Vec::with_capacity(events.len());
    for event in events.iter() {
        let time = latest.entry(event.stream.clone()).or_default();
        *time = event.time_us.max(*time);
        times.push(((event.stream.clone(), event.sequence), *time));
    }
    let times: BTreeMap<_, _> = times.into_iter().collect();
    events.sort_by_cached_key(|event| {
        let key = (event.stream.clone(), event.sequence);
        (times.get(&key).copied(), key)
    });
}

async fn listed(store: &dyn Store) -> Result<Vec<RunInfo>> {
    let live = RunQuery {
        status: vec![Status::Pending, Status::Running, Status::Checkpointed],
        ..RunQuery::default()
    };
    let ended = RunQuery {
        status: vec![Status::Completed, Status::Failed, Status::Cancelled],
        newest: true,
        limit: ENDED,
        ..RunQuery::default()
    };
    // Those that go on first: one that ends in between is listed twice, not missed.
    let mut all = store.runs(&live).await?;
    all.extend(store.runs(&ended).await?);
    Ok(all)
}
