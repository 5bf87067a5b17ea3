//! Reading a log beside the process that writes it.
//!
//! A view takes no lock and changes nothing. It sees whole batches only, and shows a record only
//! after having synced the file it stands in, so that no power cut can take back what was shown;
//! unless the writer has handed the log over at that end, and so knows that it is durable.
//! (One exception is beyond a reader's power: if a sync of the writer's failed, the last group may
//! be in the cache and not on the disk until the log is opened for writing again.)
//!
//! Everything it reads may change under its eyes: what looks wrong is looked at again before it is
//! called damage.

use std::io;
use std::path::Path;

use crate::Lsn;
use crate::cursor::{Cursor, Expect, Frame, Mark, Step};
use crate::error::{Damage, IoFailure, OpenError, ReadError};
use crate::frame::Kind;
use crate::fs::{Fs, FsFile, OpenMode};
use crate::handover::HandOver;
use crate::layout::{self, BEFORE_THE_FIRST};
use crate::options::Options;
use crate::reader::{ATTEMPTS, Reader, Source, is_not_found, read_error};
use crate::segment::{self, SegmentHeader};
use crate::segments::{self, SegmentInfo, SegmentReader};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::tail::{self, Verdict};

/// A log, open for reading only.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-view-{}", std::process::id()));
/// # let log = dalsegno_log::Log::open(&dir)?;
/// use dalsegno_log::LogView;
///
/// let view = LogView::open(&dir)?;
/// # log.wait_durable(log.append(b"news")?)?;
/// let mut reader = view.read_from(view.first_lsn())?;
/// view.refresh()?; // the writer has gone on
/// while let Some(record) = reader.next_record()? {
///     println!("{}: {} bytes", record.lsn, record.payload.len());
/// }
/// # assert_eq!(reader.next_lsn(), 2);
/// # drop(log);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LogView {
    source: Source,
    end: Mutex<End>,
}

/// How far the view has looked.
#[derive(Debug)]
struct End {
    number: u64,
    cursor: Cursor,
    /// Behind the last whole batch.
    whole: Mark,
    last_lsn: Lsn,
    sealed: bool,
}

impl LogView {
    /// Opens the log in a folder with the default [`Options`].
    ///
    /// # Errors
    /// See [`Options::open_read_only`].
    pub fn open(dir: impl AsRef<Path>) -> Result<LogView, OpenError> {
        Options::new().open_read_only(dir)
    }

    pub(crate) fn open_with(dir: &Path, options: Options) -> Result<LogView, OpenError> {
        let mut source = Source {
            fs: options.fs,
            dir: dir.to_owned(),
            log_id: 0,
            segments: Arc::default(),
            limit: Arc::new(AtomicU64::new(0)),
            mutant: options.mutant,
        };
        let numbers = match layout::numbers(source.fs.as_ref(), dir) {
            Err(failure) if failure.error.kind() != io::ErrorKind::NotFound => {
                return Err(failure.into());
            }
            other => other.unwrap_or_default(),
        };
        if numbers.is_empty() {
            return Err(missing(&source));
        }
        retry(|| {
            source.log_id = log_id(&source)?;
            let view = LogView {
                end: Mutex::new(anchor(&source)?),
                source: source.clone(),
            };
            let mut end = lock(&view.end);
            view.look(&mut end).map_err(|e| view.open_error(e))?;
            view.check_tail(&mut end)?;
            drop(end);
            Ok(view)
        })
    }

    /// Looks for what the writer has added, and returns the last LSN that can be read now.
    ///
    /// # Errors
    /// The log is damaged or could not be read.
    pub fn refresh(&self) -> Result<Lsn, ReadError> {
        let mut end = lock(&self.end);
        self.look(&mut end)?;
        Ok(end.last_lsn)
    }

    /// The log's own number; see [`crate::Log::log_id`].
    pub fn log_id(&self) -> u64 {
        self.source.log_id
    }

    /// The last LSN that can be read; 0 if none.
    pub fn last_lsn(&self) -> Lsn {
        self.source.limit.load(Ordering::Acquire)
    }

    /// The first LSN that has not been dropped.
    pub fn first_lsn(&self) -> Lsn {
        self.source.first_lsn()
    }

    /// Reads records from an LSN on, up to where the last [`LogView::refresh`] came.
    ///
    /// # Errors
    /// The record was dropped, is damaged, or could not be read.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader, ReadError> {
        Reader::new(self.source.clone(), lsn)
    }

    /// The segments there are, ascending, up to where the last [`LogView::refresh`] came.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let end = lock(&self.end);
        // It goes on to the next one, which may be no more than prepared.
        let sealed = end.number - u64::from(!end.sealed);
        segments::list(&lock(&self.source.segments), sealed, end.last_lsn)
    }

    /// Opens one segment, to read its records in order or each at its offset, up to where the last
    /// [`LogView::refresh`] came.
    ///
    /// # Errors
    /// There is no such segment, its header is damaged, or it could not be read.
    pub fn open_segment(&self, number: u64) -> Result<SegmentReader, ReadError> {
        let info = segments::find(&self.segments(), number);
        let info = info.ok_or(ReadError::NoSegment { number })?;
        SegmentReader::open(self.source.clone(), info)
    }

    pub(crate) fn fs(&self) -> &dyn Fs {
        self.source.fs.as_ref()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.source.dir
    }

    /// The file of a segment.
    pub(crate) fn open_file(&self, number: u64) -> Result<Box<dyn FsFile>, ReadError> {
        let path = segment::path(self.dir(), number);
        let file = self.fs().open(&path, OpenMode::Read);
        Ok(file.map_err(|e| IoFailure::new("read", &path, e))?)
    }

    /// Looks at the segment that was being written to at the last [`LogView::refresh`], and up to
    /// where it was whole then; `None` if there was none.
    pub(crate) fn with_newest<T>(
        &self,
        look: impl FnOnce(&SegmentHeader, &dyn FsFile, u64) -> T,
    ) -> Option<T> {
        let end = lock(&self.end);
        let cursor = &end.cursor;
        (!end.sealed).then(|| look(cursor.segment_header(), cursor.file(), end.whole.offset))
    }

    /// Walks to the end of what is there and shows it.
    fn look(&self, end: &mut End) -> Result<(), ReadError> {
        let before = end.last_lsn;
        if end.cursor.offset() == segment::HEADER_BYTES {
            // Nothing of it was read yet, and its file may have been made anew since.
            self.enter(end, end.number)?;
        }
        let mut read_afresh = false;
        loop {
            if end.sealed && !self.enter(end, end.number + 1)? {
                break;
            }
            let step = end.cursor.step();
            match step.map_err(|e| self.source.read_failure(end.number, e))? {
                Step::Frame(frame) => {
                    self.note_segments(end, &frame);
                    end.sealed = frame.header.kind == Kind::Seal;
                    if frame.header.ends_batch() {
                        end.whole = end.cursor.mark();
                        end.last_lsn = end.cursor.expect().map_or(0, |e| e.lsn - 1);
                        // Not for each frame: one of a batch that never ends would do it for ever.
                        read_afresh = false;
                    }
                }
                Step::Bad(bad) => {
                    let at = end.cursor.offset();
                    end.cursor.back_to(end.whole);
                    if !end.cursor.rewritten() && !self.next_has_started(end.number)? {
                        break;
                    }
                    // The writer is further on than this; so this must be whole by now. What was
                    // rewritten has been whole ever since.
                    if read_afresh {
                        let damage = tail::damage(end.number, at, &bad);
                        return Err(ReadError::Damage(damage));
                    }
                    read_afresh = true;
                }
            }
        }
        if end.last_lsn > before || self.last_lsn() < end.last_lsn {
            if !self.was_handed_over(end) {
                let synced = end.cursor.file().sync();
                let path = segment::path(&self.source.dir, end.number);
                synced.map_err(|e| IoFailure::new("sync", &path, e))?;
            }
            self.source.limit.store(end.last_lsn, Ordering::Release);
        }
        Ok(())
    }

    /// Whether the writer has said of this end that it is durable.
    fn was_handed_over(&self, end: &End) -> bool {
        let note = HandOver::find(self.source.fs.as_ref(), &self.source.dir);
        let (Some(note), Some(expect)) = (note, end.cursor.expect()) else {
            return false;
        };
        let found = HandOver {
            log_id: self.source.log_id,
            segment: end.number,
            offset: end.cursor.offset(),
            group: expect.group,
            epoch: expect.epoch,
            next_lsn: expect.lsn,
            // Nothing else can have these numbers: a log never goes back behind such an end.
            chain: note.chain,
            spare: 0,
        };
        !end.sealed && expect.group_ended && note.is_of(&found)
    }

    /// Goes to the start of a segment; false if it is not there yet.
    fn enter(&self, end: &mut End, number: u64) -> Result<bool, ReadError> {
        let continues = number != end.number;
        let expect = end.cursor.expect();
        match self.source.open(number, expect) {
            Ok(cursor) => {
                end.whole = cursor.mark();
                end.cursor = cursor;
                end.number = number;
                end.sealed = false;
                Ok(true)
            }
            Err(e) if is_not_found(&e) && !self.is_behind(number)? => Ok(!continues),
            Err(e) if is_not_found(&e) => {
                // The writer has gone on, and dropped what would have come next.
                let fresh = retry(|| anchor(&self.source)).map_err(read_error)?;
                *end = fresh;
                Ok(true)
            }
            Err(e) => Err(read_error(e)),
        }
    }

    /// Whether the log has gone on past a segment that is not there.
    fn is_behind(&self, number: u64) -> Result<bool, ReadError> {
        let numbers = layout::numbers(self.source.fs.as_ref(), &self.source.dir)?;
        Ok(numbers.last().is_some_and(|newest| *newest > number))
    }

    fn next_has_started(&self, number: u64) -> Result<bool, ReadError> {
        match self.source.open(number + 1, None) {
            Ok(mut cursor) => {
                let step = cursor.step();
                let step = step.map_err(|e| self.source.read_failure(number + 1, e))?;
                Ok(matches!(step, Step::Frame(_)))
            }
            Err(e) if is_not_found(&e) => self.is_behind(number + 1),
            Err(error) => Err(read_error(error)),
        }
    }

    /// At opening: is what follows the end really no more than a write under way?
    fn check_tail(&self, end: &mut End) -> Result<(), OpenError> {
        // Lengths first. A segment is cut only after its seal was written, so whoever finds it
        // short and looks then must find the seal.
        let (number, file) = (end.number, end.cursor.file());
        let file_bytes = file
            .len()
            .map_err(|e| self.source.read_failure(number, e))?;
        self.look(end).map_err(|e| self.open_error(e))?;
        if end.number == number && !end.sealed {
            let (header, from) = (end.cursor.segment_header(), end.cursor.offset());
            if let Some(damage) = layout::cut_short(header, file_bytes, from) {
                let dir = self.source.dir.clone();
                return Err(OpenError::Damage { dir, damage });
            }
        }
        match self.tail_damage(end)? {
            None => Ok(()),
            Some(damage) => {
                let dir = self.source.dir.clone();
                Err(OpenError::Damage { dir, damage })
            }
        }
    }

    /// What is wrong with the bytes behind the last whole batch.
    fn tail_damage(&self, end: &mut End) -> Result<Option<Damage>, OpenError> {
        let failed = |e| self.source.read_failure(end.number, e);
        let from = end.cursor.offset();
        let group = end.cursor.expect().map_or(0, |e| e.group_of_a_bad_frame());
        let rest =
            tail::examine(end.cursor.file(), end.cursor.seed(), from, group).map_err(failed)?;
        let written = rest.written_until.is_some();
        if end.cursor.rewritten() && end.sealed && !written {
            return Ok(None);
        }
        let may_be_torn = !end.cursor.rewritten();
        if tail::verdict(may_be_torn, written, rest.later_frame.is_some()) != Verdict::Damage {
            return Ok(None);
        }
        // Later groups are there, so this one must be whole by now. Up to the first bad frame,
        // which may be in the middle of a batch.
        end.cursor.forget_read_ahead();
        let bad = loop {
            match end.cursor.step().map_err(failed)? {
                Step::Bad(bad) => break Some(tail::damage(end.number, end.cursor.offset(), &bad)),
                // The next look shows it.
                Step::Frame(frame) if frame.header.ends_batch() => break None,
                Step::Frame(_) => {}
            }
        };
        end.cursor.back_to(end.whole);
        Ok(bad)
    }

    /// Takes in what a mark says about which segments there are.
    fn note_segments(&self, end: &End, frame: &Frame) {
        let mut segments = lock(&self.source.segments);
        let is_new = segments
            .last()
            .is_none_or(|(number, _)| *number < end.number);
        if frame.header.kind == Kind::Start && is_new {
            segments.push((end.number, frame.header.lsn));
        }
        if let Some(oldest) = layout::oldest_in(&end.cursor, frame, end.number) {
            segments.retain(|(number, _)| *number >= oldest);
        }
    }

    fn open_error(&self, error: ReadError) -> OpenError {
        let dir = self.source.dir.clone();
        match error {
            ReadError::Damage(damage) => OpenError::Damage { dir, damage },
            ReadError::Io(failure) => failure.into(),
            ReadError::Dropped { .. } | ReadError::NoSegment { .. } => {
                let gone = io::Error::from(io::ErrorKind::NotFound);
                IoFailure::new("read a segment in", &dir, gone).into()
            }
        }
    }
}

/// Tries again while segments that were listed are dropped before they are read.
fn retry<T>(mut work: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let mut attempt = 1;
    loop {
        match work() {
            Err(e) if is_not_found(&e) && attempt < ATTEMPTS => attempt += 1,
            other => return other,
        }
    }
}

fn missing(source: &Source) -> OpenError {
    OpenError::Missing {
        dir: source.dir.clone(),
    }
}

fn log_id(source: &Source) -> Result<u64, OpenError> {
    let numbers = layout::numbers(source.fs.as_ref(), &source.dir)?;
    let newest = *numbers.last().ok_or_else(|| missing(source))?;
    let (_, header) =
        layout::open_segment(source.fs.as_ref(), &source.dir, newest, OpenMode::Read)?;
    Ok(header.log_id)
}

/// Finds the segments there are, and a place to start looking from: where the last one that has
/// begun was whole just now. All before that place has been checked.
fn anchor(source: &Source) -> Result<End, OpenError> {
    let numbers = layout::numbers(source.fs.as_ref(), &source.dir)?;
    let (lowest, newest) = layout::newest_run(&numbers).ok_or_else(|| missing(source))?;
    let mut segments: Vec<(u64, Lsn)> = Vec::new();
    let mut last: Option<layout::Scan> = None;
    // From the newest down, for the one that knows the oldest.
    for number in (lowest..=newest).rev() {
        let (file, header) = source.open_file(number)?;
        let scan = layout::scan(file, header, before_the_first(number), source.mutant)
            .map_err(|e| source.read_failure(number, e))?;
        if scan.first_lsn.is_some() {
            last = Some(scan);
            break;
        }
    }
    let oldest = last.as_ref().map_or(1, |scan| scan.oldest);
    let damaged = |damage| {
        let dir = source.dir.clone();
        OpenError::Damage { dir, damage }
    };
    if let Some(damage) = layout::gap(&numbers, oldest) {
        return Err(damaged(damage));
    }
    let number = last.as_ref().map_or(lowest, |scan| scan.header.number);
    for number in oldest..=number {
        let mut cursor = source.open(number, None)?;
        let step = cursor.step();
        match step.map_err(|e| source.read_failure(number, e))? {
            Step::Frame(frame) => {
                layout::add_started(&mut segments, number, frame.header.lsn).map_err(damaged)?;
            }
            Step::Bad(bad) if last.is_some() => {
                return Err(damaged(tail::damage(number, cursor.offset(), &bad)));
            }
            Step::Bad(_) => {}
        }
    }
    let first = segments.last().map_or(1, |(_, lsn)| *lsn);
    *lock(&source.segments) = segments;
    let at_end = last.as_ref().and_then(|scan| scan.at_end);
    let sealed = last.as_ref().is_some_and(layout::Scan::sealed);
    let cursor = match last {
        Some(scan) => scan.into_cursor(source.mutant),
        None => source.open(number, before_the_first(number))?,
    };
    Ok(End {
        number,
        whole: cursor.mark(),
        cursor,
        last_lsn: at_end.map_or(first, |expect| expect.lsn) - 1,
        sealed,
    })
}

fn before_the_first(number: u64) -> Option<Expect> {
    (number == 1).then_some(BEFORE_THE_FIRST)
}
