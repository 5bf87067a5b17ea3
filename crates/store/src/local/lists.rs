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
use crate::engine::run_info;
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
            let ended = Ended::recently(self.summary_recently(&sealed, stream, &events)?, events);
            return self.with_hash(&sealed, ended).map(Some);
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

    /// A run whose end is in the recent part, without the hash of its head.
    fn summary_recently(
        &self,
        sealed: &[SegmentInfo],
        run: &StreamId,
        events: &[RecentEvent],
    ) -> Result<EndedRun, StoreError> {
        let first = match events.first() {
            Some(event) if event.sequence > 1 => {
                self.indexes.first_event(&self.disk, sealed, run)?
            }
            first => first.map(|event| decode(0, &event.bytes)).transpose()?,
        };
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
                hash: Hash::ZERO,
            },
        })
    }

    /// With the hash of its head, which follows from all of its events.
    fn with_hash(&self, sealed: &[SegmentInfo], ended: Ended) -> Result<EndedRun, StoreError> {
        let Ended { mut run, unhashed } = ended;
        if let Some(events) = unhashed {
            run.head.hash = self.hash_of(sealed, &run.run, &events)?;
        }
        Ok(run)
    }

    fn hash_of(
        &self,
        sealed: &[SegmentInfo],
        run: &StreamId,
        recent: &[RecentEvent],
    ) -> Result<Hash, StoreError> {
        let mut hash = Hash::ZERO;
        if recent.first().is_some_and(|event| event.sequence > 1) {
            hash = self.indexes.head_in(&self.disk, sealed, run)?;
        }
        let bytes = recent.iter().map(|event| &event.bytes);
        Ok(bytes.fold(hash, |hash, bytes| hash.chain(bytes)))
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
        let (sealed, ended, taken) = self.ended_unhashed_and(live)?;
        let hashed = |(id, ended)| Ok((id, self.with_hash(&sealed, ended)?));
        let ended = ended.into_iter().map(hashed);
        Ok((ended.collect::<Result<_, StoreError>>()?, taken))
    }

    /// The same without hashes that would have to be made first: for who lists few of many.
    fn ended_unhashed_and<T>(
        &self,
        live: impl FnOnce(&State) -> T,
    ) -> Result<(Sealed, BTreeMap<StreamId, Ended>, T), StoreError> {
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
            let ended = ended.into_iter().map(Ended::hashed);
            all.extend(ended.map(|ended| (ended.run.run.clone(), ended)));
        }
        for (run, events) in recent {
            let summary = self.summary_recently(&sealed, &run, &events)?;
            all.insert(run, Ended::recently(summary, events));
        }
        all.retain(|run, _| !gone.contains(run));
        Ok((sealed, all, taken))
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

    /// Runs, in the order of their names or the newest first.
    pub fn runs(&self, query: &RunQuery) -> Result<Vec<RunInfo>, StoreError> {
        self.refresh()?;
        let live = |state: &State| {
            let infos = state.streams.iter().filter_map(|(id, s)| live_info(id, s));
            infos.filter(|info| query.wants(info)).collect::<Vec<_>>()
        };
        let (sealed, ended, live) = match query.wants_ended() {
            true => self.ended_unhashed_and(live)?,
            false => (
                Sealed::default(),
                BTreeMap::new(),
                live(&lock(&self.core).state),
            ),
        };
        let live = live.into_iter().map(|info| (info, None));
        let ended = ended.into_values().map(|ended| {
            let Ended { run, unhashed } = ended;
            (ended_info(run), unhashed)
        });
        let ended = ended.filter(|(info, _)| query.wants(info));
        let mut wanted: Vec<_> = live.chain(ended).collect();
        wanted.sort_by(|(a, _), (b, _)| {
            let newer = b.updated_us.cmp(&a.updated_us);
            let by_time = newer.then_with(|| a.run.cmp(&b.run));
            if query.newest {
                by_time
            } else {
                a.run.cmp(&b.run)
            }
        });
        wanted.truncate(at_most(query.limit));
        let mut runs = Vec::with_capacity(wanted.len());
        for (mut info, unhashed) in wanted {
            if let Some(events) = unhashed {
                info.head.hash = self.hash_of(&sealed, &info.run, &events)?;
            }
            runs.push(info);
        }
        self.show_holders(&mut runs);
        Ok(runs)
    }
}

/// The sealed segments of a moment.
type Sealed = Arc<Vec<SegmentInfo>>;

/// A run that has ended.
struct Ended {
    run: EndedRun,
    /// Its recent events, if the hash of its head is still to be made of them.
    unhashed: Option<Vec<RecentEvent>>,
}

impl Ended {
    fn hashed(run: EndedRun) -> Ended {
        let unhashed = None;
        Ended { run, unhashed }
    }

    fn recently(run: EndedRun, events: Vec<RecentEvent>) -> Ended {
        let unhashed = Some(events);
        Ended { run, unhashed }
    }
}

fn at_most(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

fn live_info(run: &StreamId, stream: &StreamState) -> Option<RunInfo> {
    (run.kind() == StreamKind::Run).then(|| run_info(run, stream))
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
