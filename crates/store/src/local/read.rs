//! Reading streams: sealed segments through their indexes, then the recent part.
//!
//! Invariant: events are handed out only with a chain that fits; a hole or another event in its
//! place is an error that names it.

use std::sync::Arc;

use dalsegno_log::SegmentInfo;

use super::indexes::Handle;
use super::recent::RecentEvent;
use super::record::Record;
use super::{Inner, chaining, lock};
use crate::error::StoreError;
use crate::event::{Event, Head, Version};
use crate::hash::Hash;
use crate::index::StreamPart;
use crate::name::StreamId;
use crate::store::Recorded;

/// What is needed to read without holding the lock.
struct Plan {
    sealed: Arc<Vec<SegmentInfo>>,
    /// The events of the stream that are in no sealed segment.
    recent: Vec<RecentEvent>,
    /// The first of these, or what would be.
    recent_first: Option<u64>,
}

impl Inner {
    /// Events of a stream from a sequence on. Only if they are hashed is their chain compared, and
    /// are those of the same segment before them read.
    pub fn read(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
        hashed: bool,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.refresh()?;
        self.read_known(stream, from, limit, hashed)
    }

    /// The last events of each of these streams. It is looked once what there is, not for each.
    pub fn last_events(
        &self,
        streams: &[(StreamId, Version)],
        limit: usize,
    ) -> Result<Vec<Result<Vec<Event>, StoreError>>, StoreError> {
        self.refresh()?;
        let read = streams.iter().map(|(stream, head)| {
            let from = head.sequence.saturating_sub(limit as u64) + 1;
            let read = self.looking_again(|| self.read_known(stream, from, limit, false))?;
            Ok(read.into_iter().map(|recorded| recorded.event).collect())
        });
        Ok(read.collect())
    }

    fn read_known(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
        hashed: bool,
    ) -> Result<Vec<Recorded>, StoreError> {
        let from = from.max(1);
        let until = from.saturating_add(limit as u64).saturating_sub(1);
        let plan = {
            let core = lock(&self.core);
            if core.state.retiring.contains(stream) {
                // It is gone, though some of it may still be on disk.
                return Ok(Vec::new());
            }
            let part = core.recent.part(stream);
            let begin = if hashed { 1 } else { from };
            Plan {
                sealed: Arc::clone(&core.sealed),
                recent: part.map_or_else(Vec::new, |part| part.events_between(begin, until)),
                recent_first: part.map(super::recent::Part::first),
            }
        };
        let mut chain = Chain {
            stream,
            from,
            until,
            hashed,
            next: (!hashed).then_some(from),
            hash: Hash::ZERO,
            found: Vec::new(),
        };
        // Only if the recent part does not begin early enough; its chain begins where that of the
        // segments ends, though.
        let enough = if hashed { 1 } else { from };
        if plan.recent_first.is_none_or(|first| first > enough) {
            self.read_sealed(&plan, &mut chain)?;
        }
        read_recent(&plan.recent, &mut chain)?;
        Ok(chain.found)
    }

    fn read_sealed(&self, plan: &Plan, chain: &mut Chain<'_>) -> Result<(), StoreError> {
        let sealed = &plan.sealed;
        if let Some(at) = self.beginning_in(sealed, chain) {
            return self.read_part(&sealed[..at], &sealed[at], chain);
        }
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
                if chain.hashed {
                    chain.begin(last + 1, summary.after);
                }
                break;
            }
            if wanted {
                if chain.hashed {
                    chain.begin(summary.first, summary.before);
                }
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

    /// The segment that has all that is wanted of the beginning of a stream. It is looked for from
    /// both ends: how a long run began is not to take longer the more segments came after it. What
    /// cannot be read is not for this to say: the stream may have nothing in it.
    fn beginning_in(&self, sealed: &[SegmentInfo], chain: &Chain<'_>) -> Option<usize> {
        if chain.hashed || chain.from > 1 {
            return None;
        }
        let ask = |at: usize| {
            let summary = |handle: &Handle| handle.index.stream_summary(chain.stream);
            let (older, info) = (&sealed[..at], &sealed[at]);
            self.indexes.ask(&self.disk, older, info, summary).ok()
        };
        for oldest in 0..sealed.len() {
            let newest = sealed.len() - 1 - oldest;
            if oldest > newest {
                return None;
            }
            if let Some(summary) = ask(oldest)? {
                let last = summary.first + summary.count - 1;
                let has_all = summary.first <= chain.from && last >= chain.until;
                return has_all.then_some(oldest);
            }
            if ask(newest)?.is_some_and(|summary| summary.first <= chain.from) {
                return None;
            }
        }
        None
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
                let Some(part) = self.indexes.part(handle, stream)? else {
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
    let skipped = match chain.hashed {
        true => 0,
        false => usize::try_from(chain.from.saturating_sub(part.first)).unwrap_or(usize::MAX),
    };
    let skipped = skipped.min(wanted);
    let whole = chain.hashed && wanted == part.places.len();
    chain.take_all(wanted - skipped, |take| {
        let places = &part.places[skipped..wanted];
        handle.segment.records_at(places, |log_record| {
            match Record::read(log_record.lsn, log_record.payload)? {
                Record::Event(bytes) => take(bytes),
                Record::Piece(..) => {
                    let what = format!("record {} of the log", log_record.lsn);
                    Err(StoreError::damaged(what, "an event", "a piece"))
                }
            }
        })
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

/// Takes in recent events. Those that were appended here have their hash already; those that were
/// there at opening stand before them, and have none.
fn read_recent(events: &[RecentEvent], chain: &mut Chain<'_>) -> Result<(), StoreError> {
    let found_here = events.iter().position(|event| event.hash.is_some());
    let (old, new) = events.split_at(found_here.unwrap_or(events.len()));
    chain.take_all(old.len(), |take| {
        old.iter().try_for_each(|event| take(&event.bytes))
    })?;
    chain.found.reserve(new.len());
    for event in new {
        let hash = match (&event.hash, chain.hashed) {
            (Some(hash), _) => **hash,
            (None, true) => chain.hash.chain(&event.bytes),
            (None, false) => Hash::ZERO,
        };
        chain.take(&event.bytes, hash)?;
    }
    Ok(())
}

/// Takes the bytes of an event.
type Take<'a> = dyn FnMut(&[u8]) -> Result<(), StoreError> + 'a;

/// Events of a stream as they are read, one after the other.
struct Chain<'a> {
    stream: &'a StreamId,
    from: u64,
    until: u64,
    /// Hashes are wanted, and so everything before that they follow from.
    hashed: bool,
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

    /// The next events, about so many: `read` gives each to the function that it gets. Their hashes
    /// are computed meanwhile.
    fn take_all(
        &mut self,
        count: usize,
        read: impl FnOnce(&mut Take<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (before, found_before) = (self.hash, self.found.len());
        self.found.reserve(count);
        if !self.hashed {
            return read(&mut |bytes| self.take(bytes, Hash::ZERO));
        }
        let hashes = chaining::hashes(before, count, |compute| {
            read(&mut |bytes| {
                compute(bytes);
                self.take(bytes, Hash::ZERO)
            })
        })?;
        // From the end: those before the first that is wanted were not kept.
        let found = self.found[found_before..].iter_mut().rev();
        for (recorded, hash) in found.zip(hashes.iter().rev()) {
            recorded.hash = *hash;
        }
        self.hash = hashes.last().copied().unwrap_or(before);
        Ok(())
    }

    /// The next event and the hash after it.
    fn take(&mut self, bytes: &[u8], hash: Hash) -> Result<(), StoreError> {
        let expected = self.next.unwrap_or(1);
        let damaged = |found: String| {
            let expected = format!("event {expected}");
            StoreError::damaged(self.stream.to_string(), expected, found)
        };
        let head = Head::decode(bytes, Some(self.stream)).map_err(|e| damaged(e.to_string()))?;
        if head.sequence != expected || head.stream != *self.stream {
            let found = format!("event {} of {}", head.sequence, head.stream);
            return Err(damaged(found));
        }
        // Of one before those that are wanted, only the hash is needed, and that it is the one.
        if expected >= self.from {
            // Where it stays, rather than moved there: it is large.
            let (sequence, clock, time_us) = (head.sequence, head.clock, head.time_us);
            let event = Event::new(head.stream, sequence, clock, time_us, head.kind);
            self.found.push(Recorded { event, hash });
            if let Some(last) = self.found.last_mut() {
                let read = head.rest.read_into(&mut last.event);
                read.map_err(|e| damaged(e.to_string()))?;
            }
        }
        self.hash = hash;
        self.next = Some(expected.saturating_add(1));
        Ok(())
    }
}
