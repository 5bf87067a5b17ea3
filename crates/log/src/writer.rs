//! The one place that writes to segments: groups, seals, marks.
//!
//! Durability rules kept here: a group is written only after the sync of the one before it
//! returned; nothing is reported as written before its own sync returned; a segment is sealed,
//! durably, before the next one's first frame; after any failed write or sync nothing is written
//! again.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use crate::Lsn;
use crate::error::IoFailure;
use crate::frame::{self, Kind, LAST_OF_BATCH, PlaceSeed, Stamp};
use crate::fs::{Fs, FsFile};
use crate::handover::HandOver;
use crate::marks::{Ending, Seal, Start};
use crate::recovery::Found;
use crate::rules::{Mutant, Rule};
use crate::segment::{self, SegmentHeader, SegmentSizes};
use crate::spare::{Spare, SpareError};
use crate::stats::SyncTimes;
use crate::sync::Arc;

/// Why a group was not written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// There is no room for a new segment. Nothing was written; it can be tried again.
    NoSpace(IoFailure),
    /// A write or a sync failed. What is on disk is unknown.
    Fatal(IoFailure),
}

#[derive(Debug)]
struct Active {
    number: u64,
    file: Box<dyn FsFile>,
    seed: PlaceSeed,
    offset: u64,
    file_bytes: u64,
    first_lsn: Lsn,
    chain: u32,
}

/// Owns the files being written.
#[derive(Debug)]
pub(crate) struct Writer {
    dir: PathBuf,
    log_id: u64,
    sizes: SegmentSizes,
    mutant: Mutant,
    active: Option<Active>,
    spare: Arc<Spare>,
    next_number: u64,
    /// How the last sealed segment ended.
    previous: Ending,
    /// The oldest segment that belongs to the log.
    oldest: u64,
    group: u64,
    epoch: u64,
    /// The epoch of the last group.
    written_epoch: u64,
    /// Something was written since the log was opened.
    used: bool,
    next_lsn: Lsn,
    pub times: SyncTimes,
    scratch: Vec<u8>,
}

impl Writer {
    pub fn new(
        found: Found,
        dir: PathBuf,
        sizes: SegmentSizes,
        mutant: Mutant,
        spare: Arc<Spare>,
    ) -> Writer {
        let log_id = found.log_id;
        Writer {
            dir,
            log_id,
            sizes,
            mutant,
            active: found.active.map(|active| Active {
                seed: PlaceSeed::new(log_id, active.number),
                number: active.number,
                file: active.file,
                offset: active.offset,
                file_bytes: active.file_bytes,
                first_lsn: active.first_lsn,
                chain: active.chain,
            }),
            spare,
            next_number: found.next_number,
            previous: found.previous,
            oldest: found.oldest,
            group: found.expect.group,
            epoch: found.expect.epoch + 1,
            written_epoch: found.expect.epoch,
            // A log that was not closed wants to be, even if nothing more is written.
            used: !found.clean || found.handed_over,
            next_lsn: found.expect.lsn,
            times: SyncTimes::default(),
            scratch: Vec::new(),
        }
    }

    /// Closes the file being written. Nothing is written after it.
    pub fn release_files(&mut self) {
        self.active = None;
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A segment is begun and not sealed.
    pub fn has_active(&self) -> bool {
        self.active.is_some()
    }

    /// Waits until no thread prepares a segment; an error if that has failed.
    pub fn settle_spare(&self) -> Result<(), WriteError> {
        self.spare.settle();
        self.spare
            .failure()
            .map_or(Ok(()), |failure| Err(WriteError::Fatal(failure)))
    }

    /// Writes frames, whose first LSN continues the log, as one group and syncs it. When this
    /// returns, they are durable. Says which segment they opened, if they did.
    pub fn write_group(
        &mut self,
        frames: &mut Vec<u8>,
        records: u64,
    ) -> Result<Option<(u64, Lsn)>, WriteError> {
        let opened = self.write(frames, segment::reserve_bytes())?;
        self.next_lsn += records;
        self.prepare_ahead();
        Ok(opened)
    }

    /// Marks that the log is open from here on.
    pub fn write_opened(&mut self) -> Result<Option<(u64, Lsn)>, WriteError> {
        self.write_mark(Kind::Opened, &self.oldest.to_le_bytes())
    }

    /// Marks that the segments below `oldest` are no longer part of the log.
    pub fn write_dropped(&mut self, oldest: u64) -> Result<Option<(u64, Lsn)>, WriteError> {
        let opened = self.write_mark(Kind::Dropped, &oldest.to_le_bytes())?;
        self.oldest = oldest;
        Ok(opened)
    }

    /// Marks the log as closed in good order, in the space there is.
    pub fn write_closed(&mut self) -> Result<(), WriteError> {
        if !self.used {
            // It says what it is already: opening and closing alone must not fill a disk.
            return Ok(());
        }
        let mark = frame::frame_bytes(0) + segment::seal_bytes();
        match &self.active {
            Some(active) if active.offset + mark <= active.file_bytes => {
                self.write_mark(Kind::Closed, &[]).map(|_| ())
            }
            // A new segment for a mark would be a waste; a seal is as good an end.
            Some(_) => self.seal(),
            None => match self.write_mark(Kind::Closed, &[]) {
                // All is sealed; only that it was closed cannot be said.
                Ok(_) | Err(WriteError::NoSpace(_)) => Ok(()),
                Err(fatal) => Err(fatal),
            },
        }
    }

    /// Leaves a note of where the log ends, for who opens it next. Whether that worked. Everything
    /// that was written is synced.
    pub fn hand_over(&self, fs: &dyn Fs) -> bool {
        let Some(active) = &self.active else {
            return false;
        };
        self.spare.settle();
        if self.spare.failure().is_some() {
            return false;
        }
        let note = HandOver {
            log_id: self.log_id,
            segment: active.number,
            offset: active.offset,
            group: self.group,
            epoch: self.written_epoch,
            next_lsn: self.next_lsn,
            chain: active.chain,
            spare: self.spare.ready().unwrap_or(0),
        };
        note.leave(fs, &self.dir).is_ok()
    }

    /// Seals the active segment, if it has any record. The next group opens a new one, for which
    /// there is room: that is made sure of first.
    pub fn seal_if_used(&mut self) -> Result<(), WriteError> {
        match &self.active {
            Some(active) if active.first_lsn < self.next_lsn => {
                let header = self.next_header(0);
                let file = self.spare.take(header).map_err(no_spare)?;
                self.spare.put_back(header, file);
                self.seal()
            }
            _ => Ok(()),
        }
    }

    fn write_mark(&mut self, kind: Kind, payload: &[u8]) -> Result<Option<(u64, Lsn)>, WriteError> {
        let mut frames = Vec::new();
        encode_mark(&mut frames, kind, self.next_lsn, payload);
        self.write(&mut frames, segment::seal_bytes())
    }

    /// Writes a group where it leaves at least `reserve` bytes free: in the active segment, or at
    /// the start of the next.
    fn write(
        &mut self,
        frames: &mut Vec<u8>,
        reserve: u64,
    ) -> Result<Option<(u64, Lsn)>, WriteError> {
        if let Some(failure) = self.spare.failure() {
            return Err(WriteError::Fatal(failure));
        }
        let fits =
            |active: &Active| active.offset + frames.len() as u64 + reserve <= active.file_bytes;
        let mut opened = None;
        if !self.active.as_ref().is_some_and(fits) {
            let start = segment::HEADER_BYTES + segment::start_bytes();
            self.rotate(start + frames.len() as u64 + reserve)?;
            opened = Some((self.next_number - 1, self.next_lsn));
            self.prepend_start(frames);
        }
        self.append(frames, false)?;
        Ok(opened)
    }

    fn seal(&mut self) -> Result<(), WriteError> {
        let Some(active) = &self.active else {
            return Ok(());
        };
        let seal = Seal {
            first_lsn: active.first_lsn,
            chain: active.chain,
            original: None,
        };
        let mut frames = Vec::new();
        encode_mark(&mut frames, Kind::Seal, self.next_lsn, &seal.encode());
        self.append(&mut frames, true)?;
        if let Some(active) = self.active.take() {
            self.previous = Ending {
                offset: active.offset,
                chain: active.chain,
            };
        }
        Ok(())
    }

    /// Begins the next segment, which is to have so much room.
    fn rotate(&mut self, room: u64) -> Result<(), WriteError> {
        // The new segment first: if there is no room for one, nothing has changed.
        let number = self.next_number;
        let header = self.next_header(room);
        let path = segment::path(&self.dir, number);
        if number > segment::LAST_NUMBER {
            let error = io::Error::other("there are no more segment numbers");
            return Err(WriteError::Fatal(IoFailure::new("make", &path, error)));
        }
        let file = self.spare.take(header).map_err(no_spare)?;
        let file_bytes = file
            .len()
            .map_err(|e| WriteError::Fatal(IoFailure::new("measure", &path, e)))?;
        self.seal()?;
        self.active = Some(Active {
            number,
            seed: PlaceSeed::new(self.log_id, number),
            offset: segment::HEADER_BYTES,
            file_bytes,
            first_lsn: self.next_lsn,
            chain: 0,
            file,
        });
        self.next_number += 1;
        Ok(())
    }

    fn next_header(&self, room: u64) -> SegmentHeader {
        let SegmentSizes { largest, .. } = self.sizes;
        debug_assert!(room <= largest, "a group of {room} bytes");
        let size = self.sizes.of(self.next_number);
        SegmentHeader {
            log_id: self.log_id,
            number: self.next_number,
            size_bytes: if room <= size { size } else { largest },
            rewritten: false,
        }
    }

    fn prepend_start(&mut self, frames: &mut Vec<u8>) {
        let start = Start {
            previous: self.previous,
            oldest: self.oldest,
        };
        let payload = start.encode();
        self.scratch.clear();
        encode_mark(&mut self.scratch, Kind::Start, self.next_lsn, &payload);
        self.scratch.extend_from_slice(frames);
        std::mem::swap(frames, &mut self.scratch);
    }

    /// One group at the end of the active segment: write, then sync.
    fn append(&mut self, frames: &mut [u8], sealing: bool) -> Result<(), WriteError> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        let (dir, number) = (&self.dir, active.number);
        // The path is made only to be said: this is done for every group.
        let failed = |what: &'static str| {
            move |e: io::Error| {
                WriteError::Fatal(IoFailure::new(what, &segment::path(dir, number), e))
            }
        };
        let stamp = Stamp {
            seed: active.seed,
            offset: active.offset,
            group: self.group + 1,
            epoch: self.epoch,
        };
        let chain = frame::stamp(frames, stamp, active.chain);
        active
            .file
            .write_full(frames, active.offset)
            .map_err(failed("write to"))?;
        self.used = true;
        active.offset += frames.len() as u64;
        active.chain = chain;
        self.group += 1;
        self.written_epoch = self.epoch;
        if sealing {
            // In the same sync as the seal. A crash may leave either without the other, which
            // recovery treats as a group that was not finished.
            active
                .file
                .truncate(active.offset)
                .map_err(failed("truncate"))?;
        }
        let skip = self.mutant.breaks(Rule::AcknowledgeAfterSync)
            || sealing && self.mutant.breaks(Rule::SealBeforeNext);
        if skip {
            return Ok(());
        }
        let started = Instant::now();
        let mut synced = active.file.sync();
        if synced.is_err() && self.mutant.breaks(Rule::FailedSyncIsFinal) {
            synced = active.file.sync();
        }
        synced.map_err(failed("sync"))?;
        self.times.add(started.elapsed(), frames.len());
        Ok(())
    }

    fn prepare_ahead(&self) {
        if let Some(active) = &self.active
            && active.offset > active.file_bytes / 2
        {
            self.spare.prepare_ahead(self.next_header(0));
        }
    }
}

fn no_spare(error: SpareError) -> WriteError {
    match error {
        SpareError::NotNow(failure) => WriteError::NoSpace(failure),
        SpareError::Sync(failure) => WriteError::Fatal(failure),
    }
}

pub(crate) fn encode_mark(out: &mut Vec<u8>, kind: Kind, next_lsn: Lsn, payload: &[u8]) {
    let crc = crc32c::crc32c(payload);
    frame::encode(out, kind, LAST_OF_BATCH, next_lsn, payload, crc);
}
