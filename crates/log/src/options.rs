//! How a log is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::Log;
use crate::error::{IoFailure, OpenError};
use crate::fs::{Fs, RealFs};
use crate::open::{self, FoundRecords};
use crate::rules::Mutant;
#[cfg(feature = "mutants")]
use crate::rules::Rule;
use crate::segment::{self, SegmentSizes};
use crate::view::LogView;

const SMALLEST_SEGMENT_BYTES: u64 = 2 * 1024;
const LARGEST_SEGMENT_BYTES: u64 = 1024 * 1024 * 1024;

/// Settings for opening a log; every one has a default.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-options-{}", std::process::id()));
/// use std::time::Duration;
///
/// let log = dalsegno_log::Options::new()
///     .segment_bytes(1 << 20)
///     .bounded(Duration::from_millis(50))
///     .open(&dir)?;
/// # drop(log);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) segment_bytes: u64,
    pub(crate) first_segment_bytes: Option<u64>,
    pub(crate) buffer_bytes: usize,
    pub(crate) bound: Option<Duration>,
    pub(crate) threads: bool,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) mutant: Mutant,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The defaults: segments of 16 MiB, a buffer of 8 MiB, no background sync.
    pub fn new() -> Options {
        Options {
            segment_bytes: 16 * 1024 * 1024,
            first_segment_bytes: None,
            buffer_bytes: 8 * 1024 * 1024,
            bound: None,
            threads: true,
            fs: Arc::new(RealFs),
            mutant: Mutant::default(),
        }
    }

    /// The size of a segment file, from 2 KiB to 1 GiB, rounded up to a multiple of 512. A batch
    /// has to fit into one segment.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.segment_bytes = bytes;
        self
    }

    /// The size of the first segment, if it is to be smaller than the others: each one is made twice as
    /// large as the one before it, until they have the size of all others. Opening reads the newest
    /// segment whole, so that a log that is small is open sooner. A batch that is larger gets a
    /// segment of the full size.
    pub fn first_segment_bytes(mut self, bytes: u64) -> Options {
        self.first_segment_bytes = Some(bytes);
        self
    }

    /// How much may wait in memory for the disk. Appending blocks while this is exceeded.
    pub fn buffer_bytes(mut self, bytes: usize) -> Options {
        self.buffer_bytes = bytes;
        self
    }

    /// Bounds what a crash can take: the appends of a span of time shorter than `bound`. Records
    /// are synced in the background, half a bound after they came at the latest; and if the disk
    /// cannot keep up, appending waits for it once the oldest record has waited for `bound`.
    /// [`Log::lag`] shows how far durability is behind.
    ///
    /// Without this, records become durable when somebody waits for them, when the buffer fills,
    /// and when the log is closed.
    pub fn bounded(mut self, bound: Duration) -> Options {
        self.bound = Some(bound);
        self
    }

    /// The file system to use instead of the operating system's.
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Options {
        self.fs = fs;
        self
    }

    /// Starts no thread: all work happens in the calls that need it, and futures block. With one
    /// calling thread the order of file system operations is then a function of the calls, which
    /// is what a simulation needs. Excludes [`Options::bounded`].
    pub fn without_threads(mut self) -> Options {
        self.threads = false;
        self
    }

    /// Switches one durability rule off, for showing that a test notices.
    #[cfg(feature = "mutants")]
    pub fn break_rule(mut self, rule: Rule) -> Options {
        self.mutant = Mutant(Some(rule));
        self
    }

    /// Opens the log in a folder for writing, and recovers it from a crash if need be. Makes the
    /// folder and an empty log if there is none.
    ///
    /// # Errors
    /// The log is open elsewhere, damaged, from a newer version, or the file system failed. The
    /// files of a log that is refused are not changed.
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<Log, OpenError> {
        self.open_reading(dir, |_| ()).map(|(log, ())| log)
    }

    /// The same for who has to read the log before using it: `read` is called with the records that
    /// were found while it is still being made certain that they are on disk, and what it gives is
    /// given out when that is so.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-or-{}", std::process::id()));
    /// # let log = dalsegno_log::Log::open(&dir)?;
    /// # log.append(b"a fact")?;
    /// # drop(log);
    /// let (log, first) = dalsegno_log::Options::new().open_reading(&dir, |found| {
    ///     let mut reader = found.read_from(found.first_lsn())?;
    ///     let record = reader.next_record()?;
    ///     Ok::<_, dalsegno_log::ReadError>(record.map(|record| record.payload.to_vec()))
    /// })?;
    /// assert_eq!(first?, Some(b"a fact".to_vec()));
    /// # drop(log);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Options::open`]; what went wrong in `read` is for it to say.
    pub fn open_reading<T>(
        &self,
        dir: impl AsRef<Path>,
        read: impl FnOnce(&FoundRecords) -> T,
    ) -> Result<(Log, T), OpenError> {
        let mut options = self.clone();
        options.segment_bytes = rounded(options.segment_bytes)?;
        if let Some(first) = options.first_segment_bytes {
            options.first_segment_bytes = Some(rounded(first)?);
        }
        if options.bound.is_some() && !options.threads {
            return Err(OpenError::Options(
                "a bound needs the thread that holds it".into(),
            ));
        }
        open::open_reading(&options.absolute(dir.as_ref())?, options, read)
    }

    /// Opens the log in a folder for reading only, also while another process writes to it.
    ///
    /// # Errors
    /// There is no log, it is damaged or from a newer version, or the file system failed.
    pub fn open_read_only(&self, dir: impl AsRef<Path>) -> Result<LogView, OpenError> {
        LogView::open_with(&self.absolute(dir.as_ref())?, self.clone())
    }

    /// How large segments are made.
    pub(crate) fn segment_sizes(&self) -> SegmentSizes {
        let largest = self.segment_bytes;
        SegmentSizes {
            first: self.first_segment_bytes.unwrap_or(largest).min(largest),
            largest,
        }
    }

    fn absolute(&self, dir: &Path) -> Result<PathBuf, IoFailure> {
        let absolute = self.fs.absolute(dir);
        absolute.map_err(|e| IoFailure::new("find", dir, e))
    }

    /// What a batch may take on disk.
    pub(crate) fn batch_limit_bytes(&self) -> u64 {
        self.segment_bytes
            - segment::HEADER_BYTES
            - segment::start_bytes()
            - segment::reserve_bytes()
    }
}

fn rounded(bytes: u64) -> Result<u64, OpenError> {
    // Over the limit if it cannot be rounded.
    let rounded = bytes.checked_next_multiple_of(512).unwrap_or(u64::MAX);
    if (SMALLEST_SEGMENT_BYTES..=LARGEST_SEGMENT_BYTES).contains(&rounded) {
        return Ok(rounded);
    }
    Err(OpenError::Options(format!(
        "a segment of {rounded} bytes is not between {SMALLEST_SEGMENT_BYTES} and \
         {LARGEST_SEGMENT_BYTES}"
    )))
}
