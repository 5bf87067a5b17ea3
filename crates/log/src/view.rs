//! Reading a log beside the process that writes it.
//!
//! A view takes no lock and changes nothing. It sees whole batches only, and shows a record only
//! after having synced the file it stands in, so that no power cut can take back what was shown.
//! (One exception is beyond a reader's power: if a sync of the writer's failed, the last group may
//! be in the cache and not on the disk until the log is opened for writing again.)

use std::io;
use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::cursor::{Cursor, Frame, Mark, Step};
use crate::error::{IoFailure, OpenError, ReadError};
use crate::frame::Kind;
use crate::fs::{Fs, OpenMode};
use crate::layout::{self, BEFORE_THE_FIRST};
use crate::options::Options;
use crate::reader::{Reader, read_error};
use crate::segment;
use crate::segments::{self, SegmentInfo, SegmentReader};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use crate::tail::{self, Verdict};

/// How often opening starts over when segments are dropped under its eyes.
const ATTEMPTS: usize = 8;

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
    options: Options,
    dir: PathBuf,
    segments: Arc<Mutex<Vec<(u64, Lsn)>>>,
    limit: Arc<AtomicU64>,
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
    /// The oldest segment that belongs to the log.
    oldest: u64,
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
        let mut attempt = 1;
        loop {
            match LogView::try_open(dir, options.clone()) {
                // A segment was listed and then dropped by the writer.
                Err(OpenError::Io(failure))
                    if failure.error.kind() == io::ErrorKind::NotFound
                        && failure.path != dir
                        && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    fn try_open(dir: &Path, options: Options) -> Result<LogView, OpenError> {
        let fs = options.fs.as_ref();
        let missing = || OpenError::Missing {
            dir: dir.to_owned(),
        };
        let numbers = match layout::numbers(fs, dir) {
            Err(failure) if failure.error.kind() == io::ErrorKind::NotFound => {
                return Err(missing());
            }
            other => other?,
        };
        let (oldest, newest) = layout::newest_run(&numbers).ok_or_else(missing)?;
        let damaged = |damage| OpenError::Damage {
            dir: dir.to_owned(),
            damage,
        };
        let mut segments = Vec::new();
        for number in oldest..=newest {
            let (file, header) = layout::open_segment(fs, dir, number, OpenMode::Read)?;
            let path = segment::path(dir, number);
            let start = layout::first_lsn(file, header, options.mutant)
                .map_err(|e| IoFailure::new("read", &path, e))?;
            match start {
                Some(lsn) => layout::add_started(&mut segments, number, lsn).map_err(damaged)?,
                None => break,
            }
        }
        // From the start of the last segment that has one.
        let number = segments.last().map_or(oldest, |(number, _)| *number);
        let (file, header) = layout::open_segment(fs, dir, number, OpenMode::Read)?;
        let expect = (number == 1).then_some(BEFORE_THE_FIRST);
        let cursor = Cursor::new(file, header, expect, options.mutant);
        let first = segments.last().map_or(1, |(_, lsn)| *lsn);
        let view = LogView {
            segments: Arc::new(Mutex::new(segments)),
            limit: Arc::new(AtomicU64::new(first - 1)),
            end: Mutex::new(End {
                number,
                whole: cursor.mark(),
                cursor,
                last_lsn: first - 1,
                sealed: false,
                oldest: 1,
            }),
            dir: dir.to_owned(),
            options,
        };
        let mut end = lock(&view.end);
        view.look(&mut end).map_err(|e| view.open_error(e))?;
        view.check_tail(&mut end)?;
        if end.oldest < oldest {
            return Err(view.open_error(ReadError::Damage(layout::missing(oldest - 1))));
        }
        drop(end);
        Ok(view)
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

    /// The last LSN that can be read; 0 if none.
    pub fn last_lsn(&self) -> Lsn {
        self.limit.load(Ordering::Acquire)
    }

    /// The first LSN that has not been dropped.
    pub fn first_lsn(&self) -> Lsn {
        lock(&self.segments).first().map_or(1, |(_, lsn)| *lsn)
    }

    /// Reads records from an LSN on, up to where the last [`LogView::refresh`] came.
    ///
    /// # Errors
    /// The record was dropped, is damaged, or could not be read.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader, ReadError> {
        Reader::new(
            Arc::clone(&self.options.fs),
            self.dir.clone(),
            Arc::clone(&self.segments),
            Arc::clone(&self.limit),
            self.options.mutant,
            lsn,
        )
    }

    /// The segments there are, ascending, up to where the last [`LogView::refresh`] came.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let end = lock(&self.end);
        // It goes on to the next one, which may be no more than prepared.
        let sealed = end.number - u64::from(!end.sealed);
        segments::list(&lock(&self.segments), sealed, end.last_lsn)
    }

    /// Opens one segment, to read its records in order or each at its offset, up to where the last
    /// [`LogView::refresh`] came.
    ///
    /// # Errors
    /// There is no such segment, its header is damaged, or it could not be read.
    pub fn open_segment(&self, number: u64) -> Result<SegmentReader, ReadError> {
        let info = segments::find(&self.segments(), number);
        SegmentReader::open(
            self.fs(),
            &self.dir,
            info.ok_or(ReadError::NoSegment { number })?,
            Arc::clone(&self.limit),
            self.options.mutant,
        )
    }

    fn fs(&self) -> &dyn Fs {
        self.options.fs.as_ref()
    }

    /// Walks to the end of what is there and shows it.
    fn look(&self, end: &mut End) -> Result<(), ReadError> {
        let before = end.last_lsn;
        let mut read_afresh = false;
        loop {
            if end.sealed && !self.enter_next(end)? {
                break;
            }
            let path = segment::path(&self.dir, end.number);
            let step = end.cursor.step();
            match step.map_err(|e| IoFailure::new("read", &path, e))? {
                Step::Frame(frame) => {
                    let header = frame.header;
                    self.note_segments(end, &frame);
                    end.sealed = header.kind == Kind::Seal;
                    if header.ends_batch() {
                        end.whole = end.cursor.mark();
                        end.last_lsn = end.cursor.expect().map_or(0, |e| e.lsn - 1);
                        // Not for each frame: one of a batch that never ends would do it for ever.
                        read_afresh = false;
                    }
                }
                Step::Bad(bad) => {
                    end.cursor.back_to(end.whole);
                    if !end.cursor.rewritten() && !self.next_has_started(end.number)? {
                        break;
                    }
                    // The writer is further on than this; so this must be whole by now. What was
                    // rewritten has been whole ever since.
                    if read_afresh {
                        let damage = tail::damage(end.number, end.cursor.offset(), &bad);
                        return Err(ReadError::Damage(damage));
                    }
                    read_afresh = true;
                }
            }
        }
        if end.last_lsn > before {
            let path = segment::path(&self.dir, end.number);
            let synced = end.cursor.file().sync();
            synced.map_err(|e| IoFailure::new("sync", &path, e))?;
            self.limit.store(end.last_lsn, Ordering::Release);
        }
        Ok(())
    }

    /// Goes from a sealed segment to the next one, if it is there.
    fn enter_next(&self, end: &mut End) -> Result<bool, ReadError> {
        let number = end.number + 1;
        match layout::open_segment(self.fs(), &self.dir, number, OpenMode::Read) {
            Ok((file, header)) => {
                let expect = end.cursor.expect();
                end.cursor = Cursor::new(file, header, expect, self.options.mutant);
                end.whole = end.cursor.mark();
                end.number = number;
                end.sealed = false;
                Ok(true)
            }
            Err(OpenError::Io(failure)) if failure.error.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(read_error(error)),
        }
    }

    fn next_has_started(&self, number: u64) -> Result<bool, ReadError> {
        let path = segment::path(&self.dir, number + 1);
        match layout::open_segment(self.fs(), &self.dir, number + 1, OpenMode::Read) {
            Ok((file, header)) => {
                let start = layout::first_lsn(file, header, self.options.mutant);
                Ok(start
                    .map_err(|e| IoFailure::new("read", &path, e))?
                    .is_some())
            }
            Err(OpenError::Io(failure)) if failure.error.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(read_error(error)),
        }
    }

    /// At opening: is what follows the end really no more than a write under way?
    fn check_tail(&self, end: &mut End) -> Result<(), OpenError> {
        let mut read_afresh = false;
        loop {
            let path = segment::path(&self.dir, end.number);
            let group = end.cursor.expect().map_or(0, |e| e.group_of_a_bad_frame());
            let (seed, from) = (end.cursor.seed(), end.cursor.offset());
            let rest = tail::examine(end.cursor.file(), seed, from, group)
                .map_err(|e| IoFailure::new("read", &path, e))?;
            let written = rest.written_until.is_some();
            if tail::verdict(true, written, rest.later_frame.is_some()) != Verdict::Damage {
                return Ok(());
            }
            if read_afresh {
                let bad = match end.cursor.step() {
                    Ok(Step::Bad(bad)) => bad,
                    // It has become whole meanwhile; the next refresh shows it.
                    Ok(Step::Frame(_)) => {
                        end.cursor.back_to(end.whole);
                        return Ok(());
                    }
                    Err(e) => return Err(IoFailure::new("read", &path, e).into()),
                };
                return Err(OpenError::Damage {
                    dir: self.dir.clone(),
                    damage: tail::damage(end.number, from, &bad),
                });
            }
            // The writer may have gone on between our looking here and there.
            read_afresh = true;
            self.look(end).map_err(|e| self.open_error(e))?;
        }
    }

    /// Takes in what a mark says about which segments there are.
    fn note_segments(&self, end: &mut End, frame: &Frame) {
        let mut segments = lock(&self.segments);
        let is_new = segments
            .last()
            .is_none_or(|(number, _)| *number < end.number);
        if frame.header.kind == Kind::Start && is_new {
            segments.push((end.number, frame.header.lsn));
        }
        if let Some(oldest) = layout::oldest_in(&end.cursor, frame) {
            end.oldest = oldest;
            segments.retain(|(number, _)| *number >= oldest);
        }
    }

    fn open_error(&self, error: ReadError) -> OpenError {
        match error {
            ReadError::Damage(damage) => OpenError::Damage {
                dir: self.dir.clone(),
                damage,
            },
            ReadError::Io(failure) => failure.into(),
            ReadError::Dropped { .. } | ReadError::NoSegment { .. } => {
                let gone = io::Error::from(io::ErrorKind::NotFound);
                IoFailure::new("read a segment in", &self.dir, gone).into()
            }
        }
    }
}
