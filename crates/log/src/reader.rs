//! Reading records in order, and following the end.
//!
//! Invariant: a reader hands out durable records only, each fully checked, by ascending LSN. It
//! passes over LSNs only where the log itself says that records were removed on purpose, or given
//! up by a repair. What it cannot read it names; it never skips.

use std::path::PathBuf;

use crate::Lsn;
use crate::commit::{Shared, Wait};
use crate::cursor::{Bad, Cursor, Frame, Step};
use crate::error::{IoFailure, OpenError, ReadError};
use crate::frame::Kind;
use crate::fs::{Fs, OpenMode};
use crate::layout;
use crate::park::{self, Durable};
use crate::rules::Mutant;
use crate::segment;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::tail;

/// A record as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the order of all records, from 1. A number left out is that of a record that
    /// was removed on purpose, or given up by a repair.
    pub lsn: Lsn,
    /// What was appended.
    pub payload: &'a [u8],
}

/// Reads records in order. Made by [`crate::Log::read_from`] and [`crate::LogView::read_from`].
#[derive(Debug)]
pub struct Reader {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    segments: Arc<Mutex<Vec<(u64, Lsn)>>>,
    /// Up to here may be read.
    limit: Arc<AtomicU64>,
    mutant: Mutant,
    next: Lsn,
    at: Option<(u64, Cursor)>,
}

impl Reader {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        dir: PathBuf,
        segments: Arc<Mutex<Vec<(u64, Lsn)>>>,
        limit: Arc<AtomicU64>,
        mutant: Mutant,
        lsn: Lsn,
    ) -> Result<Reader, ReadError> {
        let first = lock(&segments).first().map_or(1, |(_, lsn)| *lsn);
        if lsn < first {
            return Err(ReadError::Dropped { lsn, first });
        }
        Ok(Reader {
            fs,
            dir,
            segments,
            limit,
            mutant,
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
            if self.next > self.limit.load(Ordering::Acquire) {
                return Ok(None);
            }
            if self.at.is_none() {
                self.at = Some(self.seek()?);
            }
            let Some((number, cursor)) = &mut self.at else {
                return Ok(None);
            };
            let number = *number;
            let step = cursor
                .step()
                .map_err(|e| IoFailure::new("read", &segment::path(&self.dir, number), e))?;
            match step {
                Step::Frame(frame) if frame.header.kind == Kind::Record => {
                    self.next = frame.header.lsn + 1;
                    return Ok(Some(frame));
                }
                Step::Frame(frame) if frame.header.kind == Kind::Seal => {
                    let expect = cursor.expect();
                    let cursor = self.open(number + 1, expect)?;
                    self.at = Some((number + 1, cursor));
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
            let segments = lock(&self.segments);
            let after = segments.partition_point(|(_, first)| *first <= self.next);
            match after.checked_sub(1).and_then(|i| segments.get(i)) {
                Some((number, _)) => *number,
                None => return Err(self.dropped(&segments)),
            }
        };
        let mut cursor = self.open(number, None)?;
        let path = segment::path(&self.dir, number);
        let mut seek = || -> std::io::Result<Option<Bad>> {
            // The segment's start, then whatever is below the record. Marks are read in full.
            loop {
                if cursor.skip_below(self.next)? {
                    continue;
                }
                let here = cursor.mark();
                match cursor.step()? {
                    // The seal, if all from the record on are gaps that the reader has passed.
                    Step::Frame(frame)
                        if frame.next_lsn() > self.next || frame.header.kind == Kind::Seal =>
                    {
                        cursor.back_to(here);
                        return Ok(None);
                    }
                    Step::Frame(_) => {}
                    Step::Bad(bad) => return Ok(Some(bad)),
                }
            }
        };
        match seek().map_err(|e| IoFailure::new("read", &path, e))? {
            None => Ok((number, cursor)),
            Some(bad) => {
                let damage = tail::damage(number, cursor.offset(), &bad);
                Err(ReadError::Damage(damage))
            }
        }
    }

    fn open(
        &self,
        number: u64,
        expect: Option<crate::cursor::Expect>,
    ) -> Result<Cursor, ReadError> {
        let opened = layout::open_segment(self.fs.as_ref(), &self.dir, number, OpenMode::Read);
        match opened {
            Ok((file, header)) => Ok(Cursor::new(file, header, expect, self.mutant)),
            Err(error) => {
                let segments = lock(&self.segments);
                if segments.first().is_some_and(|(oldest, _)| *oldest > number) {
                    return Err(self.dropped(&segments));
                }
                Err(read_error(error))
            }
        }
    }

    fn dropped(&self, segments: &[(u64, Lsn)]) -> ReadError {
        ReadError::Dropped {
            lsn: self.next,
            first: segments.first().map_or(1, |(_, lsn)| *lsn),
        }
    }
}

pub(crate) fn read_error(error: OpenError) -> ReadError {
    match error {
        OpenError::Damage { damage, .. } => ReadError::Damage(damage),
        OpenError::Io(failure) => failure.into(),
        other => IoFailure::new("read", "a segment".as_ref(), std::io::Error::other(other)).into(),
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
