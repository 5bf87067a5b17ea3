//! Retention: finished runs that are old leave the store, and their space with them.
//!
//! 1. If asked for, the runs are written into portable files.
//! 2. `RunsRetired` names them. When it is durable, they are gone; everything behind this point is
//!    about space only, and is taken up again by the next retention, wherever a crash interrupted it.
//! 3. Payload pieces that nothing refers to any more are found.
//! 4. Each sealed segment from before 2 is rewritten without all of these; its index first goes and
//!    then is made again. Segments at the beginning of the log with nothing left in them are dropped.
//! 5. `SpaceReclaimed` says that it is done.
//!
//! Invariants: nothing that belongs to a stream that has not ended, or to a run that is not named,
//! is ever removed; while there is an event that cannot be read, no piece is. No new event refers to a piece from before 2 (`State::pieces_from`), so that
//! what 3 finds stays true while appends go on. `RunsRetired` repeats which letters were taken last,
//! because the events that say so may go with their runs.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::SegmentInfo;

use super::record::{self, Record};
use super::{Inner, LocalStore, indexes, lock};
use crate::error::StoreError;
use crate::event::{Body, Event};
use crate::fields::{Fields, Value};
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::StreamId;
use crate::payload;
use crate::rules::Rule;
use crate::state::{State, field};
use crate::store::NewEvent;
use crate::transfer::Export;

mod preview;

pub use preview::WouldRetire;

/// So many senders of letters are named in one event.
const SENDERS_PER_EVENT: usize = 128;
/// So many runs are in one portable file.
const RUNS_PER_ARCHIVE: usize = 1000;
/// `SpaceReclaimed`: how many bytes.
const BYTES: u64 = 1;

/// Which finished runs are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Those that ended before this time, in microseconds since 1970.
    pub ended_before_us: u64,
    /// Write them into portable files in the store's folder `archive` first.
    pub archive: bool,
}

/// What retention came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retired {
    /// Runs that are gone.
    pub runs: Vec<StreamId>,
    /// Runs that were to be archived and could not be read, with what is wrong. They stay.
    pub left: Vec<(StreamId, String)>,
    /// Portable files that have them.
    pub archives: Vec<PathBuf>,
    /// The size of the log's segments before, without those written since.
    pub bytes_before: u64,
    /// Their size now.
    pub bytes_after: u64,
    /// How many records of the log are gone.
    pub records_removed: u64,
}

impl LocalStore {
    /// Lets finished runs go, and gives their space back. Also takes up what an earlier one could
    /// not finish. Appends and reads go on meanwhile.
    ///
    /// # Errors
    /// A file could not be read or written. Whatever was begun is taken up again next time.
    pub fn retire(&self, retention: &Retention) -> Result<Retired, StoreError> {
        let archive = retention.archive.then(|| self.inner.folder.archive());
        self.retire_with(retention, archive.as_deref())
    }

    /// The same with the runs first written into portable files in a folder of the caller's, which
    /// is made if it is missing.
    ///
    /// # Errors
    /// As [`LocalStore::retire`].
    pub fn retire_into(
        &self,
        retention: &Retention,
        archive: &Path,
    ) -> Result<Retired, StoreError> {
        let fs = &self.inner.folder.fs;
        let absolute = fs.absolute(archive);
        let archive = absolute.map_err(|e| dalsegno_log::IoFailure::new("find", archive, e))?;
        self.retire_with(retention, Some(&archive))
    }

    /// What [`LocalStore::retire`] would do. Changes nothing, and works beside an owner. Reads the
    /// whole log.
    ///
    /// # Errors
    /// A file could not be read.
    pub fn would_retire(&self, retention: &Retention) -> Result<WouldRetire, StoreError> {
        self.inner.would_retire(retention)
    }
}

impl LocalStore {
    fn retire_with(
        &self,
        retention: &Retention,
        archive: Option<&Path>,
    ) -> Result<Retired, StoreError> {
        let inner = &self.inner;
        let _one_at_a_time = lock(&inner.retiring);
        let mut done = Retired::default();
        inner.reclaim(&mut done)?;
        let mut runs = inner.old_runs(retention)?;
        if let Some(archive) = archive.filter(|_| !runs.is_empty()) {
            runs = self.archive(runs, archive, &mut done)?;
        }
        for runs in by_bytes(&runs, inner.options.own_event_bytes() / 2) {
            inner.append_own_at(|lsn, state| {
                let events = [runs_retired(runs, lsn)].into_iter();
                let mut letters = letters_taken(state);
                if inner.options.mutant.breaks(Rule::RepeatLetters) {
                    letters = letters_taken(&State::default());
                }
                events.chain(letters).collect()
            })?;
        }
        done.runs = runs;
        inner.reclaim(&mut done)?;
        Ok(done)
    }

    /// Writes runs into portable files; those that are in one now.
    fn archive(
        &self,
        mut runs: Vec<StreamId>,
        dir: &Path,
        done: &mut Retired,
    ) -> Result<Vec<StreamId>, StoreError> {
        // One that has lost something since it ended must not keep the others from going.
        runs.retain(|run| {
            let only = Export::Streams(BTreeSet::from([run.clone()]));
            let whole = match self.export_to(&only, std::io::sink()) {
                Err(e @ StoreError::Damaged { .. }) => Err(e.to_string()),
                _ => Ok(()),
            };
            done.left
                .extend(whole.clone().err().map(|why| (run.clone(), why)));
            whole.is_ok()
        });
        let created = self.inner.folder.fs.create_dir(dir);
        created.map_err(|e| dalsegno_log::IoFailure::new("create", dir, e))?;
        let position = lock(&self.inner.core).applied;
        for (n, runs) in runs.chunks(RUNS_PER_ARCHIVE).enumerate() {
            let path = dir.join(format!("runs-{position:020}-{n}.dalsegno"));
            let runs: BTreeSet<StreamId> = runs.iter().cloned().collect();
            self.export_file(&Export::Streams(runs), &path)?;
            done.archives.push(path);
        }
        Ok(runs)
    }
}

/// The pieces that stay.
#[derive(Default)]
pub(super) struct Live {
    pieces: HashSet<Hash>,
    /// There is an event that cannot be read: any piece may be its.
    is_unknown: bool,
}

impl Live {
    fn contains(&self, piece: &Hash) -> bool {
        self.is_unknown || self.pieces.contains(piece)
    }
}

impl Inner {
    /// The finished runs that are to go.
    fn old_runs(&self, retention: &Retention) -> Result<Vec<StreamId>, StoreError> {
        let (ended, ()) = self.ended_and(|_| ())?;
        let old = ended
            .into_values()
            .filter(|run| run.ended_us < retention.ended_before_us);
        Ok(old.map(|run| run.run).collect())
    }

    /// Frees the space of runs that are gone, if there are any.
    fn reclaim(&self, done: &mut Retired) -> Result<(), StoreError> {
        let log = self.disk.log()?;
        let (retiring, until, applied) = {
            let core = lock(&self.core);
            let state = &core.state;
            (state.retiring.clone(), state.pieces_from, core.applied)
        };
        if retiring.is_empty() {
            return Ok(());
        }
        log.wait_durable(applied)?;
        log.seal()?;
        self.maintain()?;
        let sealed = Arc::clone(&lock(&self.core).sealed);
        let old: Vec<SegmentInfo> = sealed
            .iter()
            .filter(|segment| segment.first_lsn < until)
            .copied()
            .collect();
        let live = self.live_pieces(&old, &retiring)?;
        let keep = |lsn: u64, payload: &[u8]| match Record::read(lsn, payload) {
            Ok(Record::Event(bytes)) => {
                record::peek(lsn, bytes).map_or(true, |peek| !retiring.contains(&peek.stream))
            }
            Ok(Record::Piece(hash, _)) => lsn >= until || live.contains(&hash),
            // Nobody knows whose it is.
            Err(_) => true,
        };
        let mut empty = 0;
        let mut all_empty = true;
        for (at, segment) in old.iter().enumerate() {
            let rewritten = self.indexes.while_changing(segment.number, || {
                Ok(log.rewrite_segment(segment.number, keep)?)
            })?;
            self.indexes
                .ask(&self.disk, &sealed[..at], segment, |_| Ok(()))?;
            done.bytes_before += rewritten.bytes_before;
            done.bytes_after += rewritten.bytes_after;
            done.records_removed += rewritten.records_removed;
            all_empty = all_empty && rewritten.records_kept == 0;
            if all_empty {
                empty = at + 1;
                done.bytes_after -= rewritten.bytes_after;
            }
        }
        self.drop_empty(&sealed, empty)?;
        let freed = done.bytes_before.saturating_sub(done.bytes_after);
        let fields = Fields::new().with(BYTES, freed);
        let event = NewEvent::new(Kind::SpaceReclaimed).with_fields(fields);
        let appended = self.append_own(vec![event])?;
        log.wait_durable(appended.position)?;
        self.snapshot(false)?;
        Ok(())
    }

    /// Drops the first segments, which have nothing in them any more.
    fn drop_empty(&self, sealed: &[SegmentInfo], count: usize) -> Result<(), StoreError> {
        // The newest one stays; there is one behind the sealed ones or it is sealed itself.
        let count = count.min(sealed.len().saturating_sub(1));
        let Some(first) = sealed.get(count).filter(|_| count > 0) else {
            return Ok(());
        };
        // The keeper adds to the same list.
        let _not_meanwhile = lock(&self.keeper.working);
        {
            let mut core = lock(&self.core);
            let left = core.sealed.iter().filter(|s| s.number >= first.number);
            core.sealed = Arc::new(left.copied().collect());
        }
        self.disk.log()?.drop_before(first.first_lsn)?;
        let gone = &sealed[..count];
        let names: Vec<String> = gone
            .iter()
            .map(|segment| indexes::file_name(segment.number))
            .collect();
        gone.iter().for_each(|s| self.indexes.close(s.number));
        self.folder.remove(&self.folder.index(), &names)
    }

    /// The pieces that events of other runs refer to, directly or not.
    fn live_pieces(
        &self,
        segments: &[SegmentInfo],
        retiring: &BTreeSet<StreamId>,
    ) -> Result<Live, StoreError> {
        let mut live = Live::default();
        for segment in segments {
            let mut reader = self.disk.open_segment(segment.number)?;
            while let Some((_, record)) = reader.next_record()? {
                self.mark_event(record.lsn, record.payload, retiring, &mut live)?;
            }
        }
        Ok(live)
    }

    /// Marks what a record refers to, if it is an event of another run.
    pub(super) fn mark_event(
        &self,
        lsn: u64,
        record: &[u8],
        retiring: &BTreeSet<StreamId>,
        live: &mut Live,
    ) -> Result<(), StoreError> {
        let bytes = match Record::read(lsn, record) {
            Ok(Record::Event(bytes)) => bytes,
            Ok(Record::Piece(..)) => return Ok(()),
            Err(_) => {
                live.is_unknown = true;
                return Ok(());
            }
        };
        let Ok(event) = Event::decode(bytes) else {
            let goes = record::peek(lsn, bytes).is_ok_and(|peek| retiring.contains(&peek.stream));
            live.is_unknown |= !goes;
            return Ok(());
        };
        if retiring.contains(&event.stream) {
            return Ok(());
        }
        for payload in event.payloads() {
            if let Body::Stored { root, .. } = &payload.body {
                self.mark(*root, &mut live.pieces)?;
            }
        }
        Ok(())
    }

    fn mark(&self, root: Hash, live: &mut HashSet<Hash>) -> Result<(), StoreError> {
        let mut ahead = vec![root];
        while let Some(hash) = ahead.pop() {
            if !live.insert(hash) {
                continue;
            }
            // One that a repair gave up has nothing below it that could be kept.
            let Some(bytes) = self.find_piece(&hash)? else {
                continue;
            };
            let children = payload::children(&bytes).unwrap_or_default();
            ahead.extend(children.into_iter().map(|child| child.hash));
        }
        Ok(())
    }
}

/// Runs in parts, each of which has at most so many bytes of names, or one run.
fn by_bytes(runs: &[StreamId], limit: u64) -> Vec<&[StreamId]> {
    let mut parts = Vec::new();
    let mut rest = runs;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|run| {
            // The kind's word, and what CBOR needs.
            bytes += run.name().len() as u64 + 16;
            bytes <= limit
        });
        let (part, later) = rest.split_at(fits.count().max(1));
        parts.push(part);
        rest = later;
    }
    parts
}

fn runs_retired(runs: &[StreamId], lsn: u64) -> NewEvent {
    let names = runs.iter().map(|run| Value::Text(run.to_string()));
    let fields = Fields::new()
        .with(field::RUNS, Value::List(names.collect()))
        .with(field::PIECES_FROM, lsn);
    NewEvent::new(Kind::RunsRetired).with_fields(fields)
}

/// Which letters were taken last, in events of their own.
fn letters_taken(state: &State) -> Vec<NewEvent> {
    let letters: Vec<Value> = state
        .letters
        .iter()
        .map(|(sender, taken)| taken.to_value(sender))
        .collect();
    let mut parts: Vec<&[Value]> = letters.chunks(SENDERS_PER_EVENT).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let events = parts.into_iter().enumerate().map(|(at, letters)| {
        let mut fields = Fields::new().with(field::LETTERS, Value::List(letters.to_vec()));
        if at > 0 {
            fields = fields.with(field::MORE_LETTERS, 1);
        }
        NewEvent::new(Kind::RunsRetired).with_fields(fields)
    });
    events.collect()
}
