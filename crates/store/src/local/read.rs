//! Reading streams, payloads and lists: sealed segments through their indexes, then the recent
//! part.
//!
//! Invariant: events are handed out only with a chain that fits; a hole or another event in its
//! place is an error that names it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use dalsegno_log::SegmentInfo;

use super::indexes::{self, Handle, decode};
use super::recent::RecentEvent;
use super::record::{self, Record};
use super::{Core, Inner, lock};
use crate::error::StoreError;
use crate::event::{Body, Event, Payload, Version};
use crate::hash::Hash;
use crate::index::{EndedRun, StreamPart};
use crate::name::{StreamId, StreamKind};
use crate::payload;
use crate::state::{State, Status, StreamState, field};
use crate::store::{Recorded, RunInfo, RunQuery};

/// What is needed to read without holding the lock.
struct Plan {
    sealed: Arc<Vec<SegmentInfo>>,
    /// The events of the stream that are in no sealed segment.
    recent: Vec<RecentEvent>,
    /// The first of these, or what would be.
    recent_first: Option<u64>,
}

impl Inner {
    /// Events of a stream from a sequence on.
    pub fn read(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.refresh()?;
        let from = from.max(1);
        let until = from.saturating_add(limit as u64).saturating_sub(1);
        let plan = {
            let core = lock(&self.core);
            if core.state.retiring.contains(stream) {
                // It is gone, though some of it may still be on disk.
                return Ok(Vec::new());
            }
            let part = core.recent.part(stream);
            Plan {
                sealed: Arc::clone(&core.sealed),
                recent: part.map_or_else(Vec::new, |part| part.events_until(until)),
                recent_first: part.map(super::recent::Part::first),
            }
        };
        let mut chain = Chain {
            stream,
            from,
            until,
            next: None,
            hash: Hash::ZERO,
            found: Vec::new(),
        };
        // Only if the recent part does not begin early enough; its chain begins where that of the
        // segments ends, though.
        if plan.recent_first.is_none_or(|first| first > 1) {
            self.read_sealed(&plan, &mut chain)?;
        }
        chain.found.reserve(plan.recent.len());
        for event in &plan.recent {
            chain.take(&event.bytes, event.hash)?;
        }
        Ok(chain.found)
    }

    fn read_sealed(&self, plan: &Plan, chain: &mut Chain<'_>) -> Result<(), StoreError> {
        let sealed = &plan.sealed;
        // Newest first, until one begins early enough.
        let mut parts = Vec::new();
        for (at, info) in sealed.iter().enumerate().rev() {
            let stream = chain.stream;
            let summary = self
                .indexes
                .ask(&self.disk, &sealed[..at], info, |handle| {
                    handle.index.stream_summary(stream)
                })?;
            let Some(summary) = summary else { continue };
            let begins_early_enough = summary.first <= chain.from;
            let wanted = summary.first <= chain.until;
            let last = summary.first + summary.count - 1;
            if last < chain.from {
                // All of it is before: only its hash is needed.
                chain.begin(last + 1, summary.after);
                break;
            }
            if wanted {
                chain.begin(summary.first, summary.before);
                parts.push((at, *info));
            }
            if begins_early_enough {
                break;
            }
        }
        for (at, info) in parts.into_iter().rev() {
            self.read_part(&sealed[..at], &info, chain)?;
        }
        Ok(())
    }

    fn read_part(
        &self,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        chain: &mut Chain<'_>,
    ) -> Result<(), StoreError> {
        let stream = chain.stream;
        let until = chain.until;
        let mark = (chain.next, chain.hash, chain.found.len());
        // If what the index says is not what the segment has, it was rewritten in between.
        let mut attempts = 0;
        loop {
            let read = self.indexes.ask(&self.disk, older, info, |handle| {
                let Some(part) = handle.index.stream(stream)? else {
                    return Ok(Ok(()));
                };
                Ok(read_places(handle, &part, until, chain))
            })?;
            match read {
                Err(e) if attempts < 2 => {
                    attempts += 1;
                    (chain.next, chain.hash) = (mark.0, mark.1);
                    chain.found.truncate(mark.2);
                    self.indexes.close(info.number);
                    drop(e);
                }
                other => return other,
            }
        }
    }

    /// The bytes of a payload.
    pub fn payload(&self, payload: &Payload) -> Result<Vec<u8>, StoreError> {
        match &payload.body {
            Body::Inline(bytes) => Ok(bytes.clone()),
            Body::Stored { root, bytes } => {
                self.refresh()?;
                let limit = self.options.limits.payload_bytes.max(*bytes);
                let fetch = |hash: &Hash| self.piece(hash);
                payload::assemble(root, *bytes, limit, fetch).map_err(|e| match e {
                    payload::AssembleError::Fetch { error, .. } => error,
                    other => {
                        let what = format!("the payload {root}");
                        StoreError::damaged(what, "its pieces", other.to_string())
                    }
                })
            }
        }
    }

    /// A piece as stored.
    pub fn piece(&self, hash: &Hash) -> Result<Arc<[u8]>, StoreError> {
        self.find_piece(hash)?.ok_or_else(|| {
            let what = format!("the payload piece {hash}");
            StoreError::damaged(what, "a record with it", "none")
        })
    }

    /// The same; `None` if it is not there.
    pub fn find_piece(&self, hash: &Hash) -> Result<Option<Arc<[u8]>>, StoreError> {
        let sealed = {
            let core = lock(&self.core);
            if let Some((_, bytes)) = core.recent.get_piece(hash) {
                return Ok(Some(Arc::clone(bytes)));
            }
            Arc::clone(&core.sealed)
        };
        for (at, info) in sealed.iter().enumerate().rev() {
            let found = self
                .indexes
                .ask(&self.disk, &sealed[..at], info, |handle| {
                    let Some(place) = handle.index.piece(hash)? else {
                        return Ok(Ok(None));
                    };
                    Ok(piece_at(handle, place, hash).map(Some))
                })?;
            if let Some(bytes) = found? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Whether a piece is stored, at this LSN or later, with everything below it.
    pub fn is_stored(&self, hash: &Hash, from: u64) -> Result<bool, StoreError> {
        let sealed = {
            let core = lock(&self.core);
            if let Some((lsn, _)) = core.recent.get_piece(hash) {
                return Ok(*lsn >= from);
            }
            Arc::clone(&core.sealed)
        };
        let young = sealed.iter().enumerate().rev();
        for (at, info) in young.take_while(|(_, info)| info.first_lsn >= from) {
            let found = self
                .indexes
                .ask(&self.disk, &sealed[..at], info, |h| h.index.piece(hash))?;
            if found.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A run that has ended, or another stream that is no longer in the state.
    pub fn ended(&self, core: &Core, stream: &StreamId) -> Result<Option<EndedRun>, StoreError> {
        if stream.kind() != StreamKind::Run || core.state.retiring.contains(stream) {
            return Ok(None);
        }
        if let Some(part) = core.recent.part(stream) {
            let sealed = Arc::clone(&core.sealed);
            let events = part.events_until(u64::MAX);
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
                .map(|(run, part)| (run.clone(), part.events_until(u64::MAX)))
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
        agent: stream.agent.clone(),
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

/// Reads the events of a part, up to a sequence.
fn read_places(
    handle: &Handle,
    part: &StreamPart,
    until: u64,
    chain: &mut Chain<'_>,
) -> Result<(), StoreError> {
    let wanted = until.saturating_add(1).saturating_sub(part.first);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let wanted = wanted.min(part.places.len());
    let whole = wanted == part.places.len();
    chain.found.reserve(wanted);
    handle
        .segment
        .records_at(&part.places[..wanted], |log_record| {
            match Record::read(log_record.lsn, log_record.payload)? {
                Record::Event(bytes) => chain.take(bytes, None),
                Record::Piece(..) => {
                    let what = format!("record {} of the log", log_record.lsn);
                    Err(StoreError::damaged(what, "an event", "a piece"))
                }
            }
        })?;
    if whole && chain.hash != part.after {
        let (expected, found) = (part.after.to_string(), chain.hash.to_string());
        return Err(StoreError::damaged(
            part.stream.to_string(),
            expected,
            found,
        ));
    }
    Ok(())
}

fn piece_at(handle: &Handle, place: u64, hash: &Hash) -> Result<Arc<[u8]>, StoreError> {
    let mut buffer = Vec::new();
    let log_record = handle.segment.record_at(place, &mut buffer)?;
    match Record::read(log_record.lsn, log_record.payload)? {
        Record::Piece(found, bytes) if found == *hash => Ok(Arc::from(bytes)),
        _ => {
            let what = format!("record {} of the log", log_record.lsn);
            let expected = format!("the piece {hash}");
            Err(StoreError::damaged(what, expected, "something else"))
        }
    }
}

/// Events of a stream as they are read, one after the other.
struct Chain<'a> {
    stream: &'a StreamId,
    from: u64,
    until: u64,
    /// The sequence that must come next; `None` before anything is known.
    next: Option<u64>,
    hash: Hash,
    found: Vec<Recorded>,
}

impl Chain<'_> {
    /// Where to begin, and the hash before.
    fn begin(&mut self, next: u64, hash: Hash) {
        (self.next, self.hash) = (Some(next), hash);
    }

    /// The next event; with its hash, if that was computed when it was appended.
    fn take(&mut self, bytes: &[u8], hash: Option<Hash>) -> Result<(), StoreError> {
        let expected = self.next.unwrap_or(1);
        let damaged = |found: String| {
            let expected = format!("event {expected}");
            StoreError::damaged(self.stream.to_string(), expected, found)
        };
        if expected < self.from {
            // Only its hash is needed, and that it is the one.
            let peek = record::peek(0, bytes).map_err(|_| damaged("other bytes".into()))?;
            if peek.sequence != expected || peek.stream != *self.stream {
                let found = format!("event {} of {}", peek.sequence, peek.stream);
                return Err(damaged(found));
            }
            self.hash = hash.unwrap_or_else(|| self.hash.chain(bytes));
        } else {
            let event = Event::decode_near(bytes, Some(self.stream));
            let event = event.map_err(|e| damaged(e.to_string()))?;
            if event.sequence != expected || event.stream != *self.stream {
                let found = format!("event {} of {}", event.sequence, event.stream);
                return Err(damaged(found));
            }
            self.hash = hash.unwrap_or_else(|| self.hash.chain(bytes));
            let hash = self.hash;
            self.found.push(Recorded { event, hash });
        }
        self.next = Some(expected.saturating_add(1));
        Ok(())
    }
}
