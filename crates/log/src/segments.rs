//! Segments one by one: which there are, and random access to the records of one.
//!
//! Invariant: as for every reader, what is handed out is durable and fully checked. An offset is of
//! use only in the file it was found in: rewriting a segment gives it another file. The LSN of what
//! was read tells whether it is what was meant.

use std::path::PathBuf;

use crate::Lsn;
use crate::cursor::{Cursor, Frame, Step};
use crate::error::{Damage, IoFailure, ReadError};
use crate::frame::{self, HEADER_BYTES, Kind};
use crate::fs::FsFile;
use crate::reader::{Record, Source};
use crate::rules::{Mutant, Rule};
use crate::segment::{self, checksum_text};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::tail;

/// What the first read of a record takes in: most records are shorter than this.
const FIRST_READ_BYTES: usize = 4 * 1024;
/// Records that are no further apart are read together: a longer read costs less than one more.
const NEAR_BYTES: u64 = 4 * 1024;
/// As much as is read together.
const STRETCH_BYTES: u64 = 256 * 1024;

/// One segment, as [`crate::Log::segments`] and [`crate::LogView::segments`] list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// Its number; its file is named after it.
    pub number: u64,
    /// The LSN it begins with.
    pub first_lsn: Lsn,
    /// The LSN it ends with, or for one that is not sealed the last that is durable. One below
    /// `first_lsn` if it has no record. Records inside may have been removed.
    pub last_lsn: Lsn,
    /// Nothing is ever added to it. It can be rewritten.
    pub sealed: bool,
}

/// Makes the list from number and first LSN of each. `sealed` is the last one that is known to be,
/// `last_lsn` the last that can be read.
pub(crate) fn list(segments: &[(u64, Lsn)], sealed: u64, last_lsn: Lsn) -> Vec<SegmentInfo> {
    let ends = segments.iter().skip(1).map(|(_, first)| first - 1);
    let ends = ends.chain([last_lsn]);
    let newest = segments.last().map_or(0, |(number, _)| *number);
    segments
        .iter()
        .zip(ends)
        .map(|(&(number, first_lsn), last_lsn)| SegmentInfo {
            number,
            first_lsn,
            last_lsn: last_lsn.max(first_lsn - 1),
            sealed: number < newest || number <= sealed,
        })
        .collect()
}

/// The one with this number.
pub(crate) fn find(segments: &[SegmentInfo], number: u64) -> Option<SegmentInfo> {
    segments.iter().find(|info| info.number == number).copied()
}

/// Reads the records of one segment, in order or each at its offset. Made by
/// [`crate::Log::open_segment`] and [`crate::LogView::open_segment`].
///
/// Holds an open file and little else; keep it for as long as there is something to read. It goes
/// on reading the file it has opened, also after the segment was rewritten or dropped.
///
/// An offset is of use only in the file it was found in. Rewriting a segment gives it another file,
/// in which a record has another offset: a reader opened after that finds at the old one a record
/// with another LSN, or nothing that is a record.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-segments-{}", std::process::id()));
/// let log = dalsegno_log::Log::open(&dir)?;
/// log.wait_durable(log.append(b"a fact")?)?;
/// let newest = log.segments().pop().ok_or("there is one")?;
/// let mut segment = log.open_segment(newest.number)?;
/// let mut places = Vec::new();
/// while let Some((offset, record)) = segment.next_record()? {
///     places.push((record.lsn, offset));
/// }
/// let mut buffer = Vec::new();
/// let record = segment.record_at(places[0].1, &mut buffer)?;
/// assert_eq!((record.lsn, record.payload), (1, b"a fact".as_slice()));
/// # drop(log);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentReader {
    number: u64,
    path: PathBuf,
    cursor: Cursor,
    mutant: Mutant,
    /// Up to here may be read.
    limit: Arc<AtomicU64>,
    next: Lsn,
    /// The seal has been read.
    ended: bool,
}

impl SegmentReader {
    pub(crate) fn open(source: Source, info: SegmentInfo) -> Result<SegmentReader, ReadError> {
        let number = info.number;
        let cursor = source
            .open(number, None)
            .map_err(|e| source.explain(info.first_lsn, number, e))?;
        Ok(SegmentReader {
            number,
            path: segment::path(&source.dir, number),
            cursor,
            mutant: source.mutant,
            limit: source.limit,
            next: info.first_lsn,
            ended: false,
        })
    }

    /// The segment's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The size of the file, unused space included.
    ///
    /// # Errors
    /// The file system failed.
    pub fn file_bytes(&self) -> Result<u64, ReadError> {
        let len = self.cursor.file().len();
        Ok(len.map_err(|e| IoFailure::new("measure", &self.path, e))?)
    }

    /// The next record of the segment with its offset in the file, or `None` at the end of what is
    /// durable. If the segment is not sealed, more may come: it can be called again.
    ///
    /// # Errors
    /// The record is damaged or could not be read. The reader stays where it is.
    pub fn next_record(&mut self) -> Result<Option<(u64, Record<'_>)>, ReadError> {
        let frame = self.advance()?;
        Ok(frame.map(|frame| {
            let record = Record {
                lsn: frame.header.lsn,
                payload: self.cursor.payload(&frame),
            };
            (frame.offset, record)
        }))
    }

    fn advance(&mut self) -> Result<Option<Frame>, ReadError> {
        let mut read_afresh = false;
        while !self.ended && self.next <= self.limit.load(Ordering::Acquire) {
            let step = self.cursor.step();
            match step.map_err(|e| IoFailure::new("read", &self.path, e))? {
                Step::Frame(frame) => {
                    self.next = self.next.max(frame.next_lsn());
                    self.ended = frame.header.kind == Kind::Seal;
                    if frame.header.kind == Kind::Record {
                        return Ok(Some(frame));
                    }
                    read_afresh = false;
                }
                // Read ahead before the writer wrote it: look again, once.
                Step::Bad(_) if !read_afresh => {
                    self.cursor.forget_read_ahead();
                    read_afresh = true;
                }
                Step::Bad(bad) => {
                    let offset = self.cursor.offset();
                    return Err(ReadError::Damage(tail::damage(self.number, offset, &bad)));
                }
            }
        }
        Ok(None)
    }

    /// Reads the one record at an offset that [`SegmentReader::next_record`] gave, into `buffer`,
    /// and checks all of it. Takes one read of the file for a short record and two for a long one.
    /// Any number of threads may do this at a time. The record's LSN tells whether it is the one
    /// that was meant, if the segment may have been rewritten since.
    ///
    /// # Errors
    /// [`ReadError::Damage`] if what is at the offset is damaged, or is no durable record, as with
    /// an offset from before a rewrite; or it could not be read.
    pub fn record_at<'b>(
        &self,
        offset: u64,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Record<'b>, ReadError> {
        buffer.resize(FIRST_READ_BYTES, 0);
        let got = self.read(buffer, offset)?;
        let header = self.record_header(offset, &buffer[..got])?;
        // Before allocating: the length is from outside.
        let frame_bytes = header.frame_bytes();
        if frame_bytes > got as u64 {
            if frame_bytes > self.file_bytes()?.saturating_sub(offset) {
                let found = format!("a frame of {frame_bytes} bytes");
                return Err(self.bad(offset, "a frame within the file", found));
            }
            buffer.resize(frame_bytes as usize, 0);
            let rest = self.read(&mut buffer[got..], offset + got as u64)?;
            if got + rest < buffer.len() {
                let found = "the end of the file".into();
                return Err(self.bad(offset, "the rest of a frame", found));
            }
        }
        self.checked(offset, &header, &buffer[..frame_bytes as usize])
    }

    /// Reads the records at several offsets, as [`SegmentReader::record_at`] does, in fewer reads
    /// of the file where they lie near each other. Offsets that ascend are best.
    ///
    /// # Errors
    /// As for [`SegmentReader::record_at`], or what `each` says; the records after that one are
    /// not read.
    pub fn records_at<E: From<ReadError>>(
        &self,
        offsets: &[u64],
        mut each: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut stretch, mut single) = (Vec::new(), Vec::new());
        let mut rest = offsets;
        while let [start, ..] = rest {
            let near = |pair: &&[u64]| {
                let apart = pair[1].checked_sub(pair[0]);
                apart.is_some_and(|apart| apart <= NEAR_BYTES) && pair[1] - start <= STRETCH_BYTES
            };
            let count = 1 + rest.windows(2).take_while(near).count();
            let (now, later) = rest.split_at(count);
            let length = (now[count - 1] - start) as usize + FIRST_READ_BYTES;
            if stretch.len() < length {
                stretch.resize(length, 0);
            }
            let got = self.read(&mut stretch[..length], *start)?;
            for offset in now {
                let from = ((offset - start) as usize).min(got);
                let bytes = &stretch[from..got];
                let header = self.record_header(*offset, bytes)?;
                let length = usize::try_from(header.frame_bytes()).ok();
                let record = match length.and_then(|length| bytes.get(..length)) {
                    Some(frame) => self.checked(*offset, &header, frame)?,
                    None => self.record_at(*offset, &mut single)?,
                };
                each(record)?;
            }
            rest = later;
        }
        Ok(())
    }

    fn bad(&self, offset: u64, expected: &str, found: String) -> ReadError {
        ReadError::Damage(Damage {
            segment: self.number,
            offset,
            expected: expected.into(),
            found,
        })
    }

    /// The header of a durable record, from the bytes that are at its offset.
    fn record_header(&self, offset: u64, bytes: &[u8]) -> Result<frame::Header, ReadError> {
        if bytes.len() < HEADER_BYTES {
            return Err(self.bad(offset, "a record", "the end of the file".into()));
        }
        let header = frame::decode(bytes, self.cursor.seed(), offset)
            .map_err(|not_a_frame| self.bad(offset, "a record", format!("{not_a_frame:?}")))?;
        if header.kind != Kind::Record {
            return Err(self.bad(offset, "a record", format!("{:?}", header.kind)));
        }
        if header.lsn > self.limit.load(Ordering::Acquire) {
            let found = format!("LSN {}", header.lsn);
            return Err(self.bad(offset, "a durable record", found));
        }
        Ok(header)
    }

    /// The record that a whole frame holds.
    fn checked<'b>(
        &self,
        offset: u64,
        header: &frame::Header,
        frame: &'b [u8],
    ) -> Result<Record<'b>, ReadError> {
        let (payload, padding) = frame[HEADER_BYTES..].split_at(header.payload_bytes as usize);
        let crc = crc32c::crc32c(payload);
        if crc != header.payload_crc && !self.mutant.breaks(Rule::CheckPayload) {
            let expected = format!("payload {}", checksum_text(header.payload_crc));
            return Err(self.bad(offset, &expected, checksum_text(crc)));
        }
        if padding.iter().any(|byte| *byte != 0) {
            let found = format!("{padding:02x?}");
            return Err(self.bad(offset, "zeros up to the next frame", found));
        }
        Ok(Record {
            lsn: header.lsn,
            payload,
        })
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        let file: &dyn FsFile = self.cursor.file();
        let got = file.read_full(buffer, offset);
        Ok(got.map_err(|e| IoFailure::new("read", &self.path, e))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_last_are_sealed_and_end_where_the_next_begins() {
        let listed = list(&[(3, 10), (4, 12), (5, 12)], 0, 15);
        let told: Vec<_> = listed
            .iter()
            .map(|s| (s.number, s.first_lsn, s.last_lsn, s.sealed))
            .collect();
        assert_eq!(
            told,
            [(3, 10, 11, true), (4, 12, 11, true), (5, 12, 15, false)]
        );
    }

    #[test]
    fn the_last_one_is_sealed_if_that_is_known() {
        assert!(list(&[(1, 1)], 1, 4)[0].sealed);
        assert!(!list(&[(1, 1), (2, 5)], 1, 4)[1].sealed);
        assert!(list(&[], 0, 0).is_empty());
        // Begun, with nothing in it that is durable.
        assert_eq!(list(&[(2, 5)], 0, 3)[0].last_lsn, 4);
    }
}
