//! The indexes of all sealed segments: opened when asked, made again when missing or damaged.
//!
//! Invariant: whatever an index answers about its segment is checked against the segment where it
//! is used; and an index that cannot answer is made again from the segment, never believed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use dalsegno_log::fs::{FsFile, OpenMode};
use dalsegno_log::{SegmentInfo, SegmentReader};

use super::bytes_file::BytesFile;
use super::disk::Disk;
use super::folder::Folder;
use super::lock;
use super::record::{self, Record};
use crate::error::StoreError;
use crate::event::{Event, Version};
use crate::hash::Hash;
use crate::index::{self, Contents, EndedRun, Identity, Index, IndexError, StreamPart};
use crate::name::StreamId;
use crate::rules::Rule;
use crate::state::{COUNT_LIMIT, Status, field};

/// More events than damage can take from a stream within one segment.
const HOLE_LIMIT: u64 = 1 << 20;
/// So many segments are kept open, with their indexes.
const OPEN_LIMIT: usize = 128;
/// So many of them are remembered until somebody asks.
const REBUILT_LIMIT: usize = 100;
/// An index that is wrong is made again; one that is wrong again is no accident.
const ATTEMPTS: usize = 3;

/// A sealed segment and its index.
#[derive(Debug)]
pub(crate) struct Handle {
    pub info: SegmentInfo,
    pub index: Index,
    pub segment: SegmentReader,
}

impl Handle {
    fn new(info: &SegmentInfo, index: Index, segment: SegmentReader) -> Handle {
        Handle {
            info: *info,
            index,
            segment,
        }
    }
}

/// Shows that the caller holds [`Indexes::making`].
type Making<'a> = Option<&'a MutexGuard<'a, ()>>;

/// What is open.
#[derive(Debug, Default)]
struct Open {
    /// The most recently used is at the back.
    handles: VecDeque<Arc<Handle>>,
    /// The part that was read last: who reads a long stream asks for it again with every page.
    part: Option<(SegmentInfo, Arc<StreamPart>)>,
    /// Rises when something was closed: what was opened before that must not be kept.
    generation: u64,
}

/// The indexes of a store.
#[derive(Debug)]
pub(crate) struct Indexes {
    folder: Folder,
    /// Only the owner of the store writes.
    writes: bool,
    open: Mutex<Open>,
    rebuilt: Mutex<Vec<String>>,
    /// Why the last index could not be written.
    trouble: Mutex<Option<String>>,
    /// Held while an index is made from its segment, and while a segment changes: an index that
    /// was made from the file before must not be placed after.
    making: Mutex<()>,
}

pub(crate) fn file_name(segment: u64) -> String {
    format!("{segment:016}.index")
}

/// The segment that a file of the index folder is of.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".index")?;
    digits.parse().ok().filter(|_| digits.len() == 16)
}

impl Indexes {
    pub fn new(folder: Folder, writes: bool) -> Indexes {
        Indexes {
            folder,
            writes,
            open: Mutex::default(),
            rebuilt: Mutex::default(),
            trouble: Mutex::default(),
            making: Mutex::default(),
        }
    }

    /// Why the last index could not be written; `None` if it could.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// Which indexes had to be made again, and why, since the last time this was asked.
    pub fn take_rebuilt(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.rebuilt))
    }

    /// Forgets what is open of a segment, because it is about to change.
    pub fn close(&self, segment: u64) {
        let mut open = lock(&self.open);
        open.handles.retain(|handle| handle.info.number != segment);
        open.part = None;
        open.generation += 1;
    }

    /// Forgets everything that is open.
    pub fn close_all(&self) {
        let mut open = lock(&self.open);
        open.handles.clear();
        open.part = None;
        open.generation += 1;
    }

    /// Changes a segment. Its index goes first, durably, so that none survives that is of the
    /// segment as it was.
    pub fn while_changing<T>(
        &self,
        segment: u64,
        change: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _alone = lock(&self.making);
        self.folder
            .remove(&self.folder.index(), &[file_name(segment)])?;
        let changed = change();
        self.close(segment);
        changed
    }

    /// Asks the index of a segment. If it cannot answer, it is made again, and asked again.
    ///
    /// `older` are the sealed segments before it, ascending.
    pub fn ask<T>(
        &self,
        disk: &Disk,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        question: impl FnMut(&Handle) -> Result<T, IndexError>,
    ) -> Result<T, StoreError> {
        self.ask_within(None, disk, older, info, question)
    }

    /// What a segment holds of a stream, from its index.
    pub fn part(
        &self,
        handle: &Handle,
        stream: &StreamId,
    ) -> Result<Option<Arc<StreamPart>>, IndexError> {
        let generation = {
            let open = lock(&self.open);
            if let Some((info, part)) = &open.part
                && *info == handle.info
                && part.stream == *stream
            {
                return Ok(Some(Arc::clone(part)));
            }
            open.generation
        };
        let part = handle.index.stream(stream)?.map(Arc::new);
        let mut open = lock(&self.open);
        if let Some(part) = &part
            && open.generation == generation
        {
            open.part = Some((handle.info, Arc::clone(part)));
        }
        Ok(part)
    }

    /// As [`Indexes::ask`], for who may be making an index.
    fn ask_within<T>(
        &self,
        making: Making<'_>,
        disk: &Disk,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        mut question: impl FnMut(&Handle) -> Result<T, IndexError>,
    ) -> Result<T, StoreError> {
        let mut why = None;
        for _ in 0..ATTEMPTS {
            let handle = self.handle(making, disk, older, info, why.take())?;
            match question(&handle) {
                Ok(answer) => return Ok(answer),
                Err(e) => why = Some(e.to_string()),
            }
            self.close(info.number);
        }
        let path = self.path(info.number);
        let found = why.unwrap_or_default();
        Err(StoreError::damaged(
            path.display().to_string(),
            "an index",
            found,
        ))
    }

    fn path(&self, segment: u64) -> std::path::PathBuf {
        self.folder.index().join(file_name(segment))
    }

    /// An open index. With a reason it is made again, whatever there is.
    fn handle(
        &self,
        making: Making<'_>,
        disk: &Disk,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        rebuild: Option<String>,
    ) -> Result<Arc<Handle>, StoreError> {
        if rebuild.is_none()
            && let Some(handle) = self.find_open(info)
        {
            return Ok(handle);
        }
        let generation = lock(&self.open).generation;
        let handle = match (making, rebuild) {
            (None, None) => {
                let segment = disk.open_segment(info.number)?;
                let identity = self.identity(info, &segment)?;
                match self.open_file(&identity) {
                    Ok(index) => Handle::new(info, index, segment),
                    Err(why) => {
                        let guard = lock(&self.making);
                        self.make(&guard, disk, older, info, why)?
                    }
                }
            }
            (None, why) => {
                let guard = lock(&self.making);
                self.make(&guard, disk, older, info, why)?
            }
            (Some(guard), why) => self.make(guard, disk, older, info, why)?,
        };
        let handle = Arc::new(handle);
        let mut open = lock(&self.open);
        if open.generation == generation {
            open.handles.push_back(Arc::clone(&handle));
        }
        if open.handles.len() > OPEN_LIMIT {
            open.handles.pop_front();
        }
        Ok(handle)
    }

    fn find_open(&self, info: &SegmentInfo) -> Option<Arc<Handle>> {
        let mut open = lock(&self.open);
        let found = open.handles.iter().position(|h| h.info == *info)?;
        let handle = open.handles.remove(found)?;
        open.handles.push_back(Arc::clone(&handle));
        Some(handle)
    }

    /// Makes the index of a segment, unless a good one has turned up and there is no reason to.
    fn make(
        &self,
        making: &MutexGuard<'_, ()>,
        disk: &Disk,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        why: Option<String>,
    ) -> Result<Handle, StoreError> {
        let mut segment = disk.open_segment(info.number)?;
        let identity = self.identity(info, &segment)?;
        if why.is_none()
            && let Ok(index) = self.open_file(&identity)
        {
            return Ok(Handle::new(info, index, segment));
        }
        if let Some(why) = why {
            let file = file_name(info.number);
            if self.folder.mutant.breaks(Rule::RebuildIndex) {
                return Err(StoreError::damaged(file, "an index", why));
            }
            let mut rebuilt = lock(&self.rebuilt);
            if rebuilt.len() < REBUILT_LIMIT {
                rebuilt.push(format!("{file}: {why}"));
            }
        }
        let index = self.build(making, disk, older, &mut segment, &identity)?;
        Ok(Handle::new(info, index, segment))
    }

    fn identity(
        &self,
        info: &SegmentInfo,
        segment: &SegmentReader,
    ) -> Result<Identity, StoreError> {
        Ok(Identity {
            store: self.folder.id,
            segment: info.number,
            first_lsn: info.first_lsn,
            last_lsn: info.last_lsn,
            segment_bytes: segment.file_bytes()?,
        })
    }

    /// The index as a file has it; otherwise what is wrong with that, if there is one.
    fn open_file(&self, identity: &Identity) -> Result<Index, Option<String>> {
        let path = self.path(identity.segment);
        let file = match self.folder.fs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(None),
            Err(e) => return Err(Some(e.to_string())),
        };
        Index::open(file, &path, identity).map_err(|e| Some(e.to_string()))
    }

    /// Makes an index from its segment, and places it if this is the owner.
    fn build(
        &self,
        making: &MutexGuard<'_, ()>,
        disk: &Disk,
        older: &[SegmentInfo],
        segment: &mut SegmentReader,
        identity: &Identity,
    ) -> Result<Index, StoreError> {
        let contents = self.contents(Some(making), disk, older, segment)?;
        let path = self.path(identity.segment);
        let wrong = |e: IndexError| {
            StoreError::damaged(path.display().to_string(), "an index", e.to_string())
        };
        let bytes = index::encode(identity, &contents).map_err(wrong)?;
        if self.writes {
            let name = file_name(identity.segment);
            let placed = self.folder.place(&self.folder.index(), &name, &bytes);
            // A full disk must not keep anybody from reading: this one is used as it is.
            *lock(&self.trouble) = placed.err().map(|e| e.to_string());
        }
        let file: Box<dyn FsFile> = Box::new(BytesFile(bytes));
        Index::open(file, &path, identity).map_err(wrong)
    }

    /// What an index is of that was made when its segment's file had the length it says. That may
    /// have been another: when the sync of a seal fails, the file may be cut off behind the seal
    /// now, and no longer after a power cut. Such an index is not as it should be, but as it was
    /// written; and it is made again when it is asked.
    fn identity_then(
        &self,
        info: &SegmentInfo,
        segment: &SegmentReader,
        found: &[u8],
    ) -> Result<Identity, StoreError> {
        let now = self.identity(info, segment)?;
        let Some(claimed) = index::claimed_identity(found) else {
            return Ok(now);
        };
        let segment_bytes = claimed.segment_bytes;
        let then = Identity {
            segment_bytes,
            ..now
        };
        // Unless its header is not what was written.
        let file: Box<dyn FsFile> = Box::new(BytesFile(found.to_vec()));
        let opened = Index::open(file, &self.path(info.number), &then);
        Ok(if opened.is_ok() { then } else { now })
    }

    /// The bytes that the index of a segment must have; `found` is the one that there is.
    pub fn expected_bytes(
        &self,
        disk: &Disk,
        older: &[SegmentInfo],
        info: &SegmentInfo,
        found: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mut segment = disk.open_segment(info.number)?;
        let identity = self.identity_then(info, &segment, found)?;
        let contents = self.contents(None, disk, older, &mut segment)?;
        index::encode(&identity, &contents).map_err(|e| {
            let path = self.path(info.number);
            StoreError::damaged(path.display().to_string(), "an index", e.to_string())
        })
    }

    /// Checks the bytes of an index by its own rules.
    pub fn check_bytes(
        &self,
        disk: &Disk,
        info: &SegmentInfo,
        bytes: Vec<u8>,
    ) -> Result<(), StoreError> {
        let segment = disk.open_segment(info.number)?;
        let identity = self.identity_then(info, &segment, &bytes)?;
        let path = self.path(info.number);
        let file: Box<dyn FsFile> = Box::new(BytesFile(bytes));
        let checked = Index::open(file, &path, &identity).and_then(|index| index.check());
        checked
            .map_err(|e| StoreError::damaged(path.display().to_string(), "an index", e.to_string()))
    }

    /// Reads a whole segment.
    fn contents(
        &self,
        making: Making<'_>,
        disk: &Disk,
        older: &[SegmentInfo],
        segment: &mut SegmentReader,
    ) -> Result<Contents, StoreError> {
        let mut parts: HashMap<StreamId, StreamPart> = HashMap::new();
        let mut pieces: HashMap<Hash, u64> = HashMap::new();
        let mut ended: HashMap<StreamId, u64> = HashMap::new();
        while let Some((offset, log_record)) = segment.next_record()? {
            // What cannot be read cannot be found either; opening and verifying name it.
            match Record::read(log_record.lsn, log_record.payload) {
                Err(_) => {}
                Ok(Record::Piece(hash, _)) => {
                    pieces.entry(hash).or_insert(offset);
                }
                Ok(Record::Event(bytes)) => {
                    let Ok(peek) = record::peek(log_record.lsn, bytes) else {
                        continue;
                    };
                    if peek.sequence >= COUNT_LIMIT {
                        continue;
                    }
                    let part = match parts.get_mut(&peek.stream) {
                        Some(part) => part,
                        None => {
                            let before = match peek.sequence {
                                1 => Hash::ZERO,
                                _ => self.head_within(making, disk, older, &peek.stream)?,
                            };
                            let stream = peek.stream.clone();
                            parts.entry(stream.clone()).or_insert(StreamPart {
                                stream,
                                first: peek.sequence,
                                before,
                                after: before,
                                places: Vec::new(),
                            })
                        }
                    };
                    let next = part.first + part.places.len() as u64;
                    let missing = peek.sequence.checked_sub(next);
                    // The state does not take in an event twice either.
                    let Some(missing) = missing.filter(|missing| *missing <= HOLE_LIMIT) else {
                        continue;
                    };
                    // Where events are missing, the one behind stands in: whoever reads it sees
                    // that it is another.
                    let places = part.places.len() + missing as usize + 1;
                    part.places.resize(places, offset);
                    part.after = part.after.chain(bytes);
                    if peek.ends_run {
                        ended.insert(peek.stream, offset);
                    }
                }
            }
        }
        let mut contents = Contents {
            pieces: pieces.into_iter().collect(),
            ..Contents::default()
        };
        for (run, offset) in ended {
            let Some(part) = parts.get(&run) else {
                continue;
            };
            // One that cannot be read is no end: its run is in the state, in attention.
            let Some(last) = readable(event_at(segment, offset))? else {
                continue;
            };
            let first = match part.first {
                1 => readable(event_at(segment, part.places[0]))?,
                _ => self.first_within(making, disk, older, &run)?,
            };
            contents
                .ended
                .extend(ended_run(first.as_ref(), &last, part));
        }
        contents.streams = parts.into_values().collect();
        Ok(contents)
    }

    /// The chain hash of a stream at the end of the given segments.
    pub fn head_in(
        &self,
        disk: &Disk,
        segments: &[SegmentInfo],
        stream: &StreamId,
    ) -> Result<Hash, StoreError> {
        self.head_within(None, disk, segments, stream)
    }

    fn head_within(
        &self,
        making: Making<'_>,
        disk: &Disk,
        segments: &[SegmentInfo],
        stream: &StreamId,
    ) -> Result<Hash, StoreError> {
        for (at, info) in segments.iter().enumerate().rev() {
            let older = &segments[..at];
            let summary = self.ask_within(making, disk, older, info, |h| {
                h.index.stream_summary(stream)
            })?;
            if let Some(summary) = summary {
                return Ok(summary.after);
            }
        }
        Ok(Hash::ZERO)
    }

    /// The first event of a stream, if the given segments have it.
    pub fn first_event(
        &self,
        disk: &Disk,
        segments: &[SegmentInfo],
        stream: &StreamId,
    ) -> Result<Option<Event>, StoreError> {
        self.first_within(None, disk, segments, stream)
    }

    fn first_within(
        &self,
        making: Making<'_>,
        disk: &Disk,
        segments: &[SegmentInfo],
        stream: &StreamId,
    ) -> Result<Option<Event>, StoreError> {
        for (at, info) in segments.iter().enumerate().rev() {
            let older = &segments[..at];
            let summary = self.ask_within(making, disk, older, info, |h| {
                h.index.stream_summary(stream)
            })?;
            if summary.is_some_and(|summary| summary.first == 1) {
                return self.ask_within(making, disk, older, info, |handle| {
                    let part = handle.index.stream(stream)?;
                    let place = part.and_then(|part| part.places.first().copied());
                    let event = place.map(|at| readable(event_at(&handle.segment, at)));
                    Ok(event.transpose().map(Option::flatten))
                })?;
            }
        }
        Ok(None)
    }
}

/// A run that ended, from its first and last event.
pub(crate) fn ended_run(
    first: Option<&Event>,
    last: &Event,
    part: &StreamPart,
) -> Option<EndedRun> {
    Some(EndedRun {
        run: part.stream.clone(),
        status: Status::of_end(&last.kind)?,
        agent: first.and_then(|event| event.fields.text(field::AGENT).map(str::to_owned)),
        created_us: first.map_or(0, |event| event.time_us),
        ended_us: last.time_us,
        head: Version {
            sequence: last.sequence,
            hash: part.after,
        },
    })
}

/// The event whose record is at an offset.
pub(crate) fn event_at(segment: &SegmentReader, offset: u64) -> Result<Event, StoreError> {
    let mut buffer = Vec::new();
    let log_record = segment.record_at(offset, &mut buffer)?;
    match Record::read(log_record.lsn, log_record.payload)? {
        Record::Event(bytes) => decode(log_record.lsn, bytes),
        Record::Piece(..) => Err(StoreError::damaged(
            format!("record {} of the log", log_record.lsn),
            "an event",
            "a piece",
        )),
    }
}

/// An event, if its bytes are one: the disk may fail, but no event stops the index of its segment.
fn readable(event: Result<Event, StoreError>) -> Result<Option<Event>, StoreError> {
    match event {
        Ok(event) => Ok(Some(event)),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Decodes an event that the log holds.
pub(crate) fn decode(lsn: u64, bytes: &[u8]) -> Result<Event, StoreError> {
    Event::decode(bytes).map_err(|e| {
        let what = format!("record {lsn} of the log");
        StoreError::damaged(what, "an event", e.to_string())
    })
}
