//! Reading records in order, and following the end.
//!
//! Invariant: a reader hands out durable records only, each fully checked, by ascending LSN. It
//! passes over LSNs only where the log itself says that records were removed on purpose, or given
//! up by a repair. What it cannot read it names; it never skips.

use std::io;
use std::path::PathBuf;

use crate::Lsn;
use crate::commit::{Shared, Wait};
use crate::cursor::{Bad, Cursor, Expect, Frame, Step};
use crate::error::{IoFailure, OpenError, ReadError};
use crate::frame::Kind;
use crate::fs::{Fs, FsFile, OpenMode};
use crate::layout;
use crate::park::{self, Durable};
use crate::rules::Mutant;
use crate::segment::{self, SegmentHeader};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::tail;

/// How often looking starts over when segments are dropped under its eyes.
pub(crate) const ATTEMPTS: usize = 8;

/// A record as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the order of all records, from 1. A number left out is that of a record that
    /// was removed on purpose, or given up by a repair.
    pub lsn: Lsn,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Where a log's records are, as a reader sees it. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub fs: Arc<dyn Fs>,
    pub dir: PathBuf,
    pub log_id: u64,
    /// Number and first LSN of every segment that has begun.
    pub segments: Arc<Mutex<Vec<(u64, Lsn)>>>,
    /// Up to here may be read.
    pub limit: Arc<AtomicU64>,
    pub mutant: Mutant,
}

impl Source {
    pub fn read_failure(&self, number: u64, error: io::Error) -> IoFailure {
        IoFailure::new("read", &segment::path(&self.dir, number), error)
    }

    /// A cursor at the start of a segment of this log.
    pub fn open(&self, number: u64, expect: Option<Expect>) -> Result<Cursor, OpenError> {
        let (file, header) = self.open_file(number)?;
        Ok(Cursor::new(file, header, expect, self.mutant))
    }

    /// The file of a segment of this log, and its header.
    pub fn open_file(&self, number: u64) -> Result<(Box<dyn FsFile>, SegmentHeader), OpenError> {
        let (file, header) =
            layout::open_segment(self.fs.as_ref(), &self.dir, number, OpenMode::Read)?;
        if header.log_id != self.log_id {
            return Err(OpenError::Damage {
                dir: self.dir.clone(),
                damage: layout::foreign(number, self.log_id, header.log_id),
            });
        }
        Ok((file, header))
    }

    pub fn first_lsn(&self) -> Lsn {
        lock(&self.segments).first().map_or(1, |(_, lsn)| *lsn)
    }

    /// Why a segment that was there cannot be opened: because it was dropped meanwhile?
    pub fn explain(&self, lsn: Lsn, number: u64, error: OpenError) -> ReadError {
        let dropped = |first| ReadError::Dropped { lsn, first };
        if let Some((oldest, first)) = lock(&self.segments).first()
            && *oldest > number
        {
            return dropped(*first);
        }
        if is_not_found(&error) {
            // By another process, and what is known here is out of date. It may be dropping more
            // while we look.
            let on_disk = (0..ATTEMPTS).find_map(|_| self.first_lsn_on_disk());
            if let Some(first) = on_disk.filter(|first| *first > lsn) {
                return dropped(first);
            }
        }
        read_error(error)
    }

    fn first_lsn_on_disk(&self) -> Option<Lsn> {
        let numbers = layout::numbers(self.fs.as_ref(), &self.dir).ok()?;
        let (oldest, _) = layout::newest_run(&numbers)?;
        let (file, header) =
            layout::open_segment(self.fs.as_ref(), &self.dir, oldest, OpenMode::Read).ok()?;
        layout::first_lsn(file, header, self.mutant).ok()?
    }
}

pub(crate) fn is_not_found(error: &OpenError) -> bool {
    matches!(error, OpenError::Io(failure) if failure.error.kind() == io::ErrorKind::NotFound)
}

/// Reads records in order. Made by [`crate::Log::read_from`] and [`crate::LogView::read_from`].
#[derive(Debug)]
pub struct Reader {
    source: Source,
    next: Lsn,
    at: Option<(u64, Cursor)>,
}

impl Reader {
    pub(crate) fn new(source: Source, lsn: Lsn) -> Result<Reader, ReadError> {
        let first = source.first_lsn();
        if lsn < first {
            return Err(ReadError::Dropped { lsn, first });
        }
        Ok(Reader {
            source,
            next: lsn,
            at: None,
        })
    }

    /// The LSN from which on the next record is looked for.
    pub fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// The next record that there is, or `None` at the end. More may come: it can be called again.
    ///
    /// # Errors
    /// The record was dropped, is damaged, or could not be read. The reader stays where it is.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let frame = self.advance()?;
        Ok(frame.and_then(|frame| self.record(&frame)))
    }

    /// The record that `advance` has found.
    fn record(&self, frame: &Frame) -> Option<Record<'_>> {
        self.at.as_ref().map(|(_, cursor)| Record {
            lsn: frame.header.lsn,
            payload: cursor.payload(frame),
        })
    }

    fn advance(&mut self) -> Result<Option<Frame>, ReadError> {
        let mut read_afresh = false;
        loop {
            // Again behind each gap: there may be nothing but a gap before the end.
            if self.next > self.source.limit.load(Ordering::Acquire) {
                return Ok(None);
            }
            if self.at.is_none() {
                self.at = Some(self.seek()?);
            }
            let Some((number, cursor)) = &mut self.at else {
                return Ok(None);
            };
            let number = *number;
            let here = cursor.mark();
            let step = cursor
                .step()
                .map_err(|e| self.source.read_failure(number, e))?;
            match step {
                Step::Frame(frame) if frame.header.kind == Kind::Record => {
                    self.next = frame.header.lsn + 1;
                    return Ok(Some(frame));
                }
                Step::Frame(frame) if frame.header.kind == Kind::Seal => {
                    match self.source.open(number + 1, cursor.expect()) {
                        Ok(next) => self.at = Some((number + 1, next)),
                        Err(e) => {
                            cursor.back_to(here);
                            return Err(self.source.explain(self.next, number + 1, e));
                        }
                    }
                    read_afresh = false;
                }
                Step::Frame(frame) => self.next = self.next.max(frame.next_lsn()),
                // Read ahead before the writer wrote it: look again, once.
                Step::Bad(_) if !read_afresh => {
                    cursor.forget_read_ahead();
                    read_afresh = true;
                }
                Step::Bad(bad) => {
                    let damage = tail::damage(number, cursor.offset(), &bad);
                    return Err(ReadError::Damage(damage));
                }
            }
        }
    }

    /// Goes to the segment that has the next record, and there to the record.
    fn seek(&self) -> Result<(u64, Cursor), ReadError> {
        let number = {
            let segments = lock(&self.source.segments);
            let after = segments.partition_point(|(_, first)| *first <= self.next);
            match after.checked_sub(1).and_then(|i| segments.get(i)) {
                Some((number, _)) => *number,
                None => {
                    let (lsn, first) = (self.next, segments.first().map_or(1, |(_, lsn)| *lsn));
                    return Err(ReadError::Dropped { lsn, first });
                }
            }
        };
        let mut cursor = self
            .source
            .open(number, None)
            .map_err(|e| self.source.explain(self.next, number, e))?;
        match seek_in(&mut cursor, self.next) {
            Ok(None) => Ok((number, cursor)),
            Ok(Some(bad)) => {
                let damage = tail::damage(number, cursor.offset(), &bad);
                Err(ReadError::Damage(damage))
            }
            Err(e) => Err(self.source.read_failure(number, e).into()),
        }
    }
}

/// Moves to the record with an LSN: over the segment's start, and whatever is below the record.
/// Marks are read in full.
fn seek_in(cursor: &mut Cursor, lsn: Lsn) -> io::Result<Option<Bad>> {
    loop {
        if cursor.skip_below(lsn)? {
            continue;
        }
        let here = cursor.mark();
        match cursor.step()? {
            // The seal, if all from the record on are gaps that the reader has passed.
            Step::Frame(frame) if frame.next_lsn() > lsn || frame.header.kind == Kind::Seal => {
                cursor.back_to(here);
                return Ok(None);
            }
            Step::Frame(_) => {}
            Step::Bad(bad) => return Ok(Some(bad)),
        }
    }
}

pub(crate) fn read_error(error: OpenError) -> ReadError {
    match error {
        OpenError::Damage { damage, .. } => ReadError::Damage(damage),
        OpenError::Io(failure) => failure.into(),
        other => IoFailure::new("read", "a segment".as_ref(), io::Error::other(other)).into(),
    }
}

/// Reads records in order and waits for those to come. Made by [`crate::Log::follow`].
#[derive(Debug)]
pub struct Follower {
    reader: Reader,
    shared: Arc<Shared>,
}

impl Follower {
    pub(crate) fn new(reader: Reader, shared: Arc<Shared>) -> Follower {
        Follower { reader, shared }
    }

    /// The next record; blocks until it is durable. `None` once the log is closed, or stopped by a
    /// failed write, and everything durable has been read.
    ///
    /// # Errors
    /// As [`Reader::next_record`].
    pub fn next_blocking(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let frame = loop {
            let waited = park::block_on(&self.shared, self.wait());
            let frame = self.reader.advance()?;
            if frame.is_some() || waited.is_err() {
                break frame;
            }
            // There was nothing but a gap up to the end; on behind it.
        };
        Ok(frame.and_then(|frame| self.reader.record(&frame)))
    }

    /// The next record, as a future for any runtime. Like [`Follower::next_blocking`] otherwise.
    ///
    /// # Errors
    /// As [`Reader::next_record`].
    pub async fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let frame = loop {
            let waited = Durable::new(Arc::clone(&self.shared), Ok(self.wait())).await;
            let frame = self.reader.advance()?;
            if frame.is_some() || waited.is_err() {
                break frame;
            }
        };
        Ok(frame.and_then(|frame| self.reader.record(&frame)))
    }

    fn wait(&self) -> Wait {
        Wait::new(self.reader.next_lsn(), false)
    }
}
