//! Heads and lists of streams and runs: what goes on from the state, what has ended from the
//! indexes and the recent part.
//!
//! Invariant: at any moment a run is in one of both, never in neither.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use dalsegno_log::SegmentInfo;

use super::indexes::{self, decode};
use super::recent::RecentEvent;
use super::{Core, Inner, lock};
use crate::error::StoreError;
use crate::event::Version;
use crate::hash::Hash;
use crate::index::EndedRun;
use crate::name::{StreamId, StreamKind};
use crate::state::{State, Status, StreamState, field};
use crate::store::{RunInfo, RunQuery};

impl Inner {
    /// A run that has ended, or another stream that is no longer in the state.
    pub fn ended(&self, core: &Core, stream: &StreamId) -> Result<Option<EndedRun>, StoreError> {
        if stream.kind() != StreamKind::Run || core.state.retiring.contains(stream) {
            return Ok(None);
        }
        if let Some(part) = core.recent.part(stream) {
            let sealed = Arc::clone(&core.sealed);
            let events = part.events_between(1, u64::MAX);
            return self.ended_recently(&sealed, stream, &events).map(Some);
        }
        for (at, info) in core.sealed.iter().enumerate().rev() {
            let older = &core.sealed[..at];
            let summary = self
                .indexes
                .ask(&self.disk, older, info, |h| h.index.stream_summary(stream))?;
            if summary.is_some() {
                return self.ended_in(older, info, stream).map(Some);
            }
        }
        Ok(None)
    }

    fn ended_in(
        &self,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        run: &StreamId,
    ) -> Result<EndedRun, StoreError> {
        let found = self.indexes.ask(&self.disk, older, info, |handle| {
            let Some(part) = handle.index.stream(run)? else {
                return Ok(Ok(None));
            };
            let last = part.places.last().copied().unwrap_or_default();
            let last = indexes::event_at(&handle.segment, last);
            Ok(last.map(|last| Some((part, last))))
        })?;
        let ended = match found? {
            Some((part, last)) => {
                let newest = [older, &[*info]].concat();
                let first = self.indexes.first_event(&self.disk, &newest, run)?;
                indexes::ended_run(first.as_ref(), &last, &part)
            }
            None => None,
        };
        let expected = "a run that is going on or has ended";
        ended.ok_or_else(|| StoreError::damaged(run.to_string(), expected, "neither"))
    }

    /// A run whose end is in the recent part.
    fn ended_recently(
        &self,
        sealed: &[SegmentInfo],
        run: &StreamId,
        events: &[RecentEvent],
    ) -> Result<EndedRun, StoreError> {
        let mut hash = Hash::ZERO;
        let mut first = None;
        if events.first().is_some_and(|event| event.sequence > 1) {
            hash = self.indexes.head_in(&self.disk, sealed, run)?;
            first = self.indexes.first_event(&self.disk, sealed, run)?;
        }
        for event in events {
            hash = hash.chain(&event.bytes);
        }
        if let (None, Some(event)) = (&first, events.first()) {
            first = Some(decode(0, &event.bytes)?);
        }
        let last = events.last().map(|event| decode(0, &event.bytes));
        let last = last.transpose()?;
        let status = last.as_ref().and_then(|last| Status::of_end(&last.kind));
        let (Some(last), Some(status)) = (last, status) else {
            let expected = "a run that is going on or has ended";
            return Err(StoreError::damaged(run.to_string(), expected, "neither"));
        };
        Ok(EndedRun {
            run: run.clone(),
            status,
            agent: first
                .as_ref()
                .and_then(|event| event.fields.text(field::AGENT).map(str::to_owned)),
            created_us: first.map_or(0, |event| event.time_us),
            ended_us: last.time_us,
            head: Version {
                sequence: last.sequence,
                hash,
            },
        })
    }

    /// The last event of a stream.
    pub fn head(&self, stream: &StreamId) -> Result<Option<Version>, StoreError> {
        self.refresh()?;
        let core = lock(&self.core);
        if let Some(state) = core.state.streams.get(stream) {
            return Ok(Some(state.head));
        }
        Ok(self.ended(&core, stream)?.map(|ended| ended.head))
    }

    /// All runs that have ended, and are not being removed; and what `live` takes from the same
    /// moment, so that a run is in one of both.
    pub fn ended_and<T>(
        &self,
        live: impl FnOnce(&State) -> T,
    ) -> Result<(BTreeMap<StreamId, EndedRun>, T), StoreError> {
        let (sealed, recent, gone, taken) = {
            let core = lock(&self.core);
            let taken = live(&core.state);
            // One that is in the state has not ended: it has lost its beginning, or events follow
            // its end, and it is in attention.
            let live = &core.state.streams;
            let parts = core.recent.parts();
            let recent: Vec<_> = parts
                .filter(|(run, part)| part.ended && !live.contains_key(*run))
                .map(|(run, part)| (run.clone(), part.events_between(1, u64::MAX)))
                .collect();
            let runs = live.keys().filter(|id| id.kind() == StreamKind::Run);
            let mut gone: HashSet<StreamId> = runs.cloned().collect();
            gone.extend(core.state.retiring.iter().cloned());
            (Arc::clone(&core.sealed), recent, gone, taken)
        };
        let mut all = BTreeMap::new();
        for (at, info) in sealed.iter().enumerate() {
            let ended = self.indexes.ask(&self.disk, &sealed[..at], info, |h| {
                let mut ended = Vec::new();
                h.index.for_each_ended(|run| ended.push(run))?;
                Ok(ended)
            })?;
            all.extend(ended.into_iter().map(|ended| (ended.run.clone(), ended)));
        }
        for (run, events) in recent {
            let ended = self.ended_recently(&sealed, &run, &events)?;
            all.insert(run, ended);
        }
        all.retain(|run, _| !gone.contains(run));
        Ok((all, taken))
    }

    /// Streams of one kind with their heads.
    pub fn streams(
        &self,
        kind: StreamKind,
        after: Option<&StreamId>,
        limit: usize,
    ) -> Result<Vec<(StreamId, Version)>, StoreError> {
        self.refresh()?;
        let live = |state: &State| {
            let streams = state.streams.iter().filter(|(id, _)| id.kind() == kind);
            let heads = streams.map(|(id, stream)| (id.clone(), stream.head));
            heads.collect::<BTreeMap<StreamId, Version>>()
        };
        let all = match kind {
            StreamKind::Run => {
                let (ended, mut all) = self.ended_and(live)?;
                all.extend(ended.into_iter().map(|(run, ended)| (run, ended.head)));
                all
            }
            StreamKind::Memory | StreamKind::Store => live(&lock(&self.core).state),
        };
        let wanted = all
            .into_iter()
            .filter(|(id, _)| after.is_none_or(|after| id > after));
        Ok(wanted.take(at_most(limit)).collect())
    }

    /// Runs, in the order of their names.
    pub fn runs(&self, query: &RunQuery) -> Result<Vec<RunInfo>, StoreError> {
        self.refresh()?;
        let live = |state: &State| {
            let infos = state.streams.iter().filter_map(|(id, s)| live_info(id, s));
            let infos = infos.map(|info| (info.run.clone(), info));
            infos.collect::<BTreeMap<StreamId, RunInfo>>()
        };
        let all = match query.wants_ended() {
            true => {
                let (ended, mut all) = self.ended_and(live)?;
                let ended = ended.into_iter();
                all.extend(ended.map(|(run, ended)| (run, ended_info(ended))));
                all
            }
            false => live(&lock(&self.core).state),
        };
        let wanted = all.into_values().filter(|run| query.wants(run));
        let mut wanted: Vec<_> = wanted.take(at_most(query.limit)).collect();
        self.show_holders(&mut wanted);
        Ok(wanted)
    }
}

fn at_most(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

fn live_info(run: &StreamId, stream: &StreamState) -> Option<RunInfo> {
    if run.kind() != StreamKind::Run {
        return None;
    }
    Some(RunInfo {
        run: run.clone(),
        // One that lost its beginning.
        status: stream.status.unwrap_or(Status::Pending),
        agent: stream.agent.as_deref().map(str::to_owned),
        created_us: stream.created_us,
        updated_us: stream.updated_us,
        head: stream.head,
        attention: stream.attention.clone(),
        lease: stream.lease.clone(),
        next_timer_us: stream.timers.values().min().copied(),
    })
}

fn ended_info(ended: EndedRun) -> RunInfo {
    RunInfo {
        run: ended.run,
        status: ended.status,
        agent: ended.agent,
        created_us: ended.created_us,
        updated_us: ended.ended_us,
        head: ended.head,
        attention: None,
        lease: None,
        next_timer_us: None,
    }
}
