//! How a local store is opened, and what it allows.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dalsegno_log::OpenError;
use dalsegno_log::fs::Fs;

use super::LocalStore;
use crate::error::StoreError;
use crate::rules::Mutant;
#[cfg(feature = "mutants")]
use crate::rules::Rule;
use crate::store::Limits;

/// The smallest segment that the largest records fit into.
const SMALLEST_SEGMENT_BYTES: u64 = 32 * 1024;
/// Segments grow from a part of their size, because opening reads the newest one whole: a small store is
/// to be open at once.
const FIRST_SEGMENT_PART: u64 = 16;

/// The time in microseconds since 1970.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    pub fn now_us(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

fn system_now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 is no reason to stop.
    since.map_or(0, |since| since.as_micros() as u64)
}

/// How to open a [`LocalStore`].
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-so-{}", std::process::id()));
/// use std::time::Duration;
/// let store = dalsegno_store::Options::new()
///     .bounded(Duration::from_millis(20))
///     .open(&dir)?;
/// # drop(store);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) log: dalsegno_log::Options,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) segment_bytes: u64,
    pub(crate) snapshot_bytes: u64,
    pub(crate) snapshot_every: Duration,
    pub(crate) threads: bool,
    pub(crate) create: bool,
    pub(crate) mutant: Mutant,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The defaults: strict durability, segments of 16 MiB, a snapshot every 1 MiB of log or
    /// minute with events.
    pub fn new() -> Options {
        let options = Options {
            log: dalsegno_log::Options::new(),
            fs: Arc::new(dalsegno_log::fs::RealFs),
            clock: Clock(Arc::new(system_now_us)),
            limits: Limits::default(),
            segment_bytes: 0,
            snapshot_bytes: 1 << 20,
            snapshot_every: Duration::from_secs(60),
            threads: true,
            create: true,
            mutant: Mutant::default(),
        };
        options.segment_bytes(16 << 20)
    }

    /// The size of a log segment, from 32 KiB to 1 GiB. The events of one append have to fit into
    /// a segment. The first ones of a store are smaller, from a sixteenth of that on.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.segment_bytes = bytes;
        let first = (bytes / FIRST_SEGMENT_PART).max(SMALLEST_SEGMENT_BYTES);
        self.log = self.log.segment_bytes(bytes).first_segment_bytes(first);
        self
    }

    /// Bounds what a crash can take to a span of time, see [`dalsegno_log::Options::bounded`].
    pub fn bounded(mut self, bound: Duration) -> Options {
        self.log = self.log.bounded(bound);
        self
    }

    /// How large payloads, events and appends may be.
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// A snapshot after so many bytes of log, if there are more than the last snapshot had; at most a few
    /// in a second, but for those that a sealed segment gets.
    pub fn snapshot_bytes(mut self, bytes: u64) -> Options {
        self.snapshot_bytes = bytes;
        self
    }

    /// A snapshot after so much time, if anything happened.
    pub fn snapshot_every(mut self, time: Duration) -> Options {
        self.snapshot_every = time;
        self
    }

    /// An error if there is no store, instead of a new one.
    pub fn existing_only(mut self) -> Options {
        self.create = false;
        self
    }

    /// The file system to use instead of the operating system's.
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Options {
        self.log = self.log.fs(Arc::clone(&fs));
        self.fs = fs;
        self
    }

    /// The clock to use instead of the machine's: microseconds since 1970.
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Options {
        self.clock = Clock(Arc::new(clock));
        self
    }

    /// Starts no thread: indexes and snapshots are made by the appends that make them due. For
    /// simulation.
    pub fn without_threads(mut self) -> Options {
        self.log = self.log.without_threads();
        self.threads = false;
        self
    }

    /// Switches one rule off, for showing that a test notices.
    #[cfg(feature = "mutants")]
    pub fn break_rule(mut self, rule: Rule) -> Options {
        self.mutant = Mutant(Some(rule));
        self
    }

    /// Opens the store in a folder for writing, and recovers it from a crash if need be.
    ///
    /// # Errors
    /// It is open elsewhere, is no store, is damaged or from a newer version, or the file system
    /// failed.
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<LocalStore, StoreError> {
        self.check()?;
        LocalStore::open_with(dir.as_ref(), self)
    }

    /// Opens the store in a folder for reading, also beside its owner.
    ///
    /// # Errors
    /// As [`Options::open`], except that an owner is no hindrance.
    pub fn open_read_only(&self, dir: impl AsRef<Path>) -> Result<LocalStore, StoreError> {
        LocalStore::open_read_only_with(dir.as_ref(), self)
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.segment_bytes < SMALLEST_SEGMENT_BYTES {
            return Err(StoreError::Open(OpenError::Options(format!(
                "a segment of {} bytes is below {SMALLEST_SEGMENT_BYTES}, which a store needs",
                self.segment_bytes
            ))));
        }
        Ok(())
    }

    /// What one append may take of a segment.
    pub(crate) fn batch_bytes(&self) -> u64 {
        self.segment_bytes / 4 * 3
    }

    /// What one of the store's own events may take.
    pub(crate) fn own_event_bytes(&self) -> u64 {
        self.segment_bytes / 4
    }

    /// What one event may take.
    pub(crate) fn event_bytes(&self) -> u64 {
        self.limits.event_bytes.min(self.segment_bytes / 4)
    }
}
