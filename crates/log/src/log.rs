//! The log as its user sees it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::Lsn;
use crate::commit::{Before, Shared, Wait};
use crate::error::{
    AppendError, DropError, IoFailure, OpenError, ReadError, RewriteError, SyncError,
};
use crate::frame;
use crate::fs::Fs;
use crate::options::Options;
use crate::park::Durable;
use crate::reader::{Follower, Reader, Source};
use crate::recovery::{self, Recovery};
use crate::rewrite::{self, Rewritten};
use crate::rules::Rule;
use crate::segment;
use crate::segments::{self, SegmentInfo, SegmentReader};
use crate::spare::Spare;
use crate::stats::{Lag, SyncTimes};
use crate::sync::{Arc, Mutex, lock, thread};

/// Above this, the flusher starts to write out although no one waits.
const WRITE_OUT_BYTES: usize = 1024 * 1024;

/// A log, open for writing. Cheap to clone; all clones are the same log.
///
/// A fork of the process can read from it, but not write: its waits end in an error, and the log
/// of the process that opened it is not touched.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-log-{}", std::process::id()));
/// use dalsegno_log::Log;
///
/// let log = Log::open(&dir)?;
/// let lsn = log.append(b"charged the card")?; // has a number, is in memory
/// log.wait_durable(lsn)?; // is on disk
///
/// let mut reader = log.read_from(lsn)?;
/// while let Some(record) = reader.next_record()? {
///     assert_eq!(record.payload, b"charged the card");
/// }
/// log.close()?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    handle: Arc<Handle>,
}

/// Closes the log when the last clone goes.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    spare: Arc<Spare>,
    recovery: Recovery,
    flusher: Mutex<Option<thread::JoinHandle<()>>>,
    /// Held while segments are removed or rewritten. The numbers of those whose rewritten file is
    /// known to be durable under its name.
    changing: Mutex<BTreeSet<u64>>,
}

impl Log {
    /// Opens the log in a folder with the default [`Options`].
    ///
    /// # Errors
    /// See [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Log, OpenError> {
        Options::new().open(dir)
    }

    pub(crate) fn new(shared: Arc<Shared>, spare: Arc<Spare>, recovery: Recovery) -> Log {
        Log {
            handle: Arc::new(Handle {
                shared,
                spare,
                recovery,
                flusher: Mutex::new(None),
                changing: Mutex::new(BTreeSet::new()),
            }),
        }
    }

    /// From here on closing waits for the flusher's end.
    pub(crate) fn has_flusher(&self, flusher: thread::JoinHandle<()>) {
        *lock(&self.handle.flusher) = Some(flusher);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// What opening found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.handle.recovery
    }

    /// Appends one record and returns its LSN. It is in memory then; [`Log::wait_durable`] or
    /// [`Log::durable`] say when it is on disk.
    ///
    /// # Errors
    /// All of [`AppendError`] mean that nothing was written.
    pub fn append(&self, record: impl AsRef<[u8]>) -> Result<Lsn, AppendError> {
        let record = record.as_ref();
        self.push(&[record], &[crc32c::crc32c(record)])
    }

    /// Appends records that belong together: after a crash all of them are there, or none.
    /// Returns their LSNs; wait for the last one.
    ///
    /// Blocks while more than [`Options::buffer_bytes`] wait for the disk.
    ///
    /// # Errors
    /// All of [`AppendError`] mean that nothing was written.
    pub fn append_batch<R: AsRef<[u8]>>(
        &self,
        records: &[R],
    ) -> Result<RangeInclusive<Lsn>, AppendError> {
        if records.is_empty() {
            return Err(AppendError::EmptyBatch);
        }
        // Asked once: an `as_ref` that panics or changes its answer must not tear a batch.
        let records: Vec<&[u8]> = records.iter().map(AsRef::as_ref).collect();
        let crcs: Vec<u32> = records
            .iter()
            .map(|record| crc32c::crc32c(record))
            .collect();
        let first = self.push(&records, &crcs)?;
        Ok(first..=first + (records.len() as u64 - 1))
    }

    fn push(&self, records: &[&[u8]], crcs: &[u32]) -> Result<Lsn, AppendError> {
        let shared = &self.handle.shared;
        let bytes: u64 = records
            .iter()
            .map(|record| frame::frame_bytes(record.len()))
            .sum();
        let limit_bytes = shared.options.batch_limit_bytes();
        if bytes > limit_bytes {
            return Err(AppendError::TooLarge { bytes, limit_bytes });
        }
        loop {
            if let Some(poisoned) = shared.poisoned() {
                return Err(poisoned.clone().into());
            }
            let mut filling = lock(&shared.filling);
            if filling.closed {
                return Err(AppendError::Closed);
            }
            let waiting = filling.bytes();
            // A group has to fit into a segment, like a batch.
            let capacity = limit_bytes.min(shared.options.buffer_bytes as u64);
            let full = waiting > 0 && waiting as u64 + bytes > capacity;
            let bound_reached = shared.options.bound.is_some_and(|bound| {
                filling
                    .oldest()
                    .is_some_and(|since| since.elapsed() >= bound)
            });
            if !full && !bound_reached {
                let first = filling.push(records, crcs);
                let now_waiting = filling.bytes();
                drop(filling);
                if shared.options.bound.is_some() && waiting == 0 {
                    shared.first_record_waits();
                }
                if now_waiting >= WRITE_OUT_BYTES && waiting < WRITE_OUT_BYTES {
                    shared.request_flush();
                }
                return Ok(first);
            }
            let last = filling.next_lsn - 1;
            drop(filling);
            match shared.wait(last) {
                Ok(()) => {}
                Err(SyncError::NoSpace(failure)) => return Err(AppendError::NoSpace(failure)),
                Err(SyncError::Poisoned(poisoned)) => return Err(poisoned.into()),
                Err(SyncError::Closed | SyncError::NotAppended { .. }) => {
                    return Err(AppendError::Closed);
                }
            }
        }
    }

    /// Blocks until the log is durable up to and including `lsn`. A thread that finds the disk
    /// idle syncs by itself; others share the next sync.
    ///
    /// # Errors
    /// Whether the record is on disk is unknown then, except for [`SyncError::NotAppended`].
    pub fn wait_durable(&self, lsn: Lsn) -> Result<(), SyncError> {
        self.check_appended(lsn)?;
        self.handle.shared.wait(lsn)
    }

    /// The same as a future, for any runtime.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-fut-{}", std::process::id()));
    /// # let log = dalsegno_log::Log::open(&dir)?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let lsn = log.append(b"a fact")?;
    /// log.durable(lsn).await?;
    /// assert!(log.durable_lsn() >= lsn);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # drop(log);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durable(&self, lsn: Lsn) -> Durable {
        let wait = self.check_appended(lsn).map(|()| Wait::new(lsn, true));
        Durable::new(Arc::clone(&self.handle.shared), wait)
    }

    fn check_appended(&self, lsn: Lsn) -> Result<(), SyncError> {
        if lsn <= self.handle.shared.durable() {
            return Ok(());
        }
        let last = self.last_lsn();
        if lsn > last {
            return Err(SyncError::NotAppended { lsn, last });
        }
        Ok(())
    }

    /// The log's own number, drawn by chance when it was made. It never changes, and tells whether
    /// files beside the log belong to it.
    pub fn log_id(&self) -> u64 {
        self.handle.shared.log_id
    }

    /// The last LSN given out; 0 if none ever was.
    pub fn last_lsn(&self) -> Lsn {
        lock(&self.handle.shared.filling).next_lsn - 1
    }

    /// Everything up to this LSN is durable; 0 if nothing is.
    pub fn durable_lsn(&self) -> Lsn {
        self.handle.shared.durable()
    }

    /// The first LSN that has not been dropped.
    pub fn first_lsn(&self) -> Lsn {
        let segments = lock(&self.handle.shared.segments);
        segments.first().map_or(1, |(_, lsn)| *lsn)
    }

    /// How far durability is behind.
    pub fn lag(&self) -> Lag {
        lock(&self.handle.shared.filling).lag()
    }

    /// How the disk has behaved. Waits for a sync that is under way.
    pub fn sync_times(&self) -> SyncTimes {
        lock(&self.handle.shared.writer).times.clone()
    }

    /// Reads durable records from an LSN on. `lsn` may be the next one to come. If that record was
    /// removed on purpose, it begins with the next one that there is.
    ///
    /// # Errors
    /// The record was dropped, is damaged, or could not be read.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader, ReadError> {
        Reader::new(self.source(), lsn)
    }

    pub(crate) fn source(&self) -> Source {
        let shared = &self.handle.shared;
        Source {
            fs: Arc::clone(&shared.options.fs),
            dir: shared.dir.clone(),
            log_id: shared.log_id,
            segments: Arc::clone(&shared.segments),
            limit: Arc::clone(&shared.durable),
            mutant: shared.options.mutant,
        }
    }

    /// Like [`Log::read_from`], and then waits for more.
    ///
    /// # Errors
    /// The record was dropped, is damaged, or could not be read.
    pub fn follow(&self, lsn: Lsn) -> Result<Follower, ReadError> {
        Ok(Follower::new(
            self.read_from(lsn)?,
            Arc::clone(&self.handle.shared),
        ))
    }

    /// Makes everything durable and seals the current segment, so that its file never changes
    /// again. Does nothing to a segment without records.
    ///
    /// # Errors
    /// The disk is full, the log is closed, or a write or sync failed.
    pub fn seal(&self) -> Result<(), SyncError> {
        let shared = &self.handle.shared;
        shared.with_turn(Before::WriteAll, |writer| {
            writer.seal_if_used()?;
            if !writer.has_active() {
                shared.newest_is_sealed();
            }
            Ok(())
        })
    }

    /// The segments there are, ascending, with what is durable in them. All but the newest are
    /// sealed; that one is after [`Log::seal`], until the next record is written.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.handle.shared.list_segments()
    }

    /// Opens one segment, to read its durable records in order or each at its offset.
    ///
    /// # Errors
    /// There is no such segment, its header is damaged, or it could not be read.
    pub fn open_segment(&self, number: u64) -> Result<SegmentReader, ReadError> {
        let shared = &self.handle.shared;
        let info = segments::find(&shared.list_segments(), number);
        SegmentReader::open(self.source(), info.ok_or(ReadError::NoSegment { number })?)
    }

    /// Replaces a sealed segment by one without the records for which `keep` says false, and says
    /// what came of it. The others keep their LSNs and their bytes, and get other offsets; readers
    /// pass over those that are gone. Whoever reads the segment at the moment finishes the old file.
    ///
    /// When this returns `Ok`, no crash brings the removed records back, also those that an earlier
    /// rewrite removed whose end nobody saw. If it fails, or a crash interrupts it, the segment is
    /// as it was, or rewritten. If there is nothing to remove, the file stays as it is.
    ///
    /// Appending, waiting and reading go on meanwhile. Needs room for the new file beside the old
    /// one. `keep` is asked about each record once, in order, before anything is changed; it may
    /// read the log, but must not close it, drop segments or rewrite them.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-rw-{}", std::process::id()));
    /// # let log = dalsegno_log::Log::open(&dir)?;
    /// log.append_batch(&[b"keep", b"lose", b"keep"])?;
    /// log.seal()?;
    /// let number = log.segments()[0].number;
    /// let done = log.rewrite_segment(number, |_, payload| payload == b"keep")?;
    /// assert_eq!((done.records_kept, done.records_removed), (2, 1));
    /// # drop(log);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The segment is not there, not sealed or damaged, the log is closed or poisoned, or the new
    /// file could not be written. No record to be kept is ever lost.
    pub fn rewrite_segment(
        &self,
        number: u64,
        keep: impl FnMut(Lsn, &[u8]) -> bool,
    ) -> Result<Rewritten, RewriteError> {
        let mut named = lock(&self.handle.changing);
        let shared = &self.handle.shared;
        if lock(&shared.filling).closed {
            return Err(RewriteError::Closed);
        }
        shared.check_ours().map_err(rewrite::sync_error)?;
        if let Some(poisoned) = shared.poisoned() {
            return Err(poisoned.clone().into());
        }
        match segments::find(&shared.list_segments(), number) {
            None => Err(RewriteError::NoSegment { number }),
            Some(info) if !info.sealed => Err(RewriteError::NotSealed { number }),
            Some(_) => {
                // If it fails, nobody knows: a rename that reports an error may have happened.
                let was_named = named.remove(&number);
                let done = rewrite::rewrite(shared, number, was_named, keep)?;
                named.insert(number);
                Ok(done)
            }
        }
    }

    /// Removes the segments all of whose records are below `lsn`, except the newest one, and says
    /// how many. Readers that are inside one finish it.
    ///
    /// # Errors
    /// It could not be written down that they are gone, or a file could not be removed.
    pub fn drop_before(&self, lsn: Lsn) -> Result<usize, DropError> {
        let _one_at_a_time = lock(&self.handle.changing);
        let shared = &self.handle.shared;
        let (fs, dir) = (shared.options.fs.as_ref(), &shared.dir);
        let segments = lock(&shared.segments).clone();
        // The next one's first record tells where a segment ends.
        let count = segments
            .windows(2)
            .take_while(|pair| pair[1].1 <= lsn)
            .count();
        if count == 0 {
            return Ok(0);
        }
        let (oldest, _) = segments[count];
        if !shared.options.mutant.breaks(Rule::RecordDrop) {
            // Also on a full disk, where what waits in the buffer cannot be written.
            shared.with_turn(Before::Nothing, |writer| {
                let opened = writer.write_dropped(oldest)?;
                lock(&shared.segments).extend(opened);
                Ok(())
            })?;
        }
        lock(&shared.segments).retain(|(number, _)| *number >= oldest);
        // From here on it is only about space: what a crash brings back, the next opening removes.
        for (number, _) in &segments[..count] {
            let path = segment::path(dir, *number);
            fs.remove(&path)
                .map_err(|e| IoFailure::new("remove", &path, e))?;
        }
        self.remove_torn_tails(fs, dir, oldest)?;
        Ok(count)
    }

    /// Torn tails saved from segments that are gone have done their service.
    fn remove_torn_tails(&self, fs: &dyn Fs, dir: &Path, oldest: u64) -> Result<(), DropError> {
        let names = fs.list(dir).map_err(|e| IoFailure::new("list", dir, e))?;
        for name in names {
            if recovery::parse_torn_name(&name).is_some_and(|number| number < oldest) {
                let path = dir.join(name);
                fs.remove(&path)
                    .map_err(|e| IoFailure::new("remove", &path, e))?;
            }
        }
        Ok(())
    }

    /// Makes everything durable and closes the log for all clones. Dropping the last clone does
    /// the same, but cannot say what went wrong.
    ///
    /// # Errors
    /// With [`SyncError::NoSpace`] the log stays open: free some space and close it again. Else a
    /// write or sync failed, now or before, or the log was closed already.
    pub fn close(&self) -> Result<(), SyncError> {
        self.handle.close(OnFullDisk::StayOpen, Ending::Close)
    }

    /// The same for a process that lets another one go on soon: neither this nor the next opening
    /// needs a sync for it. Instead of a mark in the log there is a note beside it; if a crash takes
    /// that, the next opening recovers as usual.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-ho-{}", std::process::id()));
    /// let log = dalsegno_log::Log::open(&dir)?;
    /// log.append(b"a fact")?;
    /// log.hand_over()?;
    /// let log = dalsegno_log::Log::open(&dir)?;
    /// assert!(log.recovery().handed_over);
    /// # drop(log);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Log::close`].
    pub fn hand_over(&self) -> Result<(), SyncError> {
        self.handle.close(OnFullDisk::StayOpen, Ending::HandOver)
    }
}

/// What closing does when there is no room for what waits in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnFullDisk {
    StayOpen,
    CloseAnyway,
}

/// How a log is let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// With a mark in the log.
    Close,
    /// With a note beside it.
    HandOver,
}

impl Handle {
    fn close(&self, on_full_disk: OnFullDisk, ending: Ending) -> Result<(), SyncError> {
        // No segments may be about to be dropped or rewritten when the lock is given up.
        let _no_changes = lock(&self.changing);
        lock(&self.shared.filling).closed = true;
        let fs = self.shared.options.fs.as_ref();
        let result = self.shared.with_turn(Before::WriteAll, |writer| {
            match ending == Ending::HandOver && writer.hand_over(fs) {
                true => Ok(()),
                false => writer.write_closed(),
            }
        });
        if matches!(result, Err(SyncError::NoSpace(_))) && on_full_disk == OnFullDisk::StayOpen {
            lock(&self.shared.filling).closed = false;
            return result;
        }
        if !self.shared.is_ours() {
            return result;
        }
        self.shared.stop();
        let flusher = lock(&self.flusher).take();
        // The flusher itself gets here if the last clone was dropped in a waker.
        if let Some(flusher) = flusher.filter(|f| f.thread().id() != thread::current().id()) {
            // If it panicked, the log is poisoned, and `result` says so.
            drop(flusher.join());
        }
        self.spare.release();
        lock(&self.shared.writer).release_files();
        // Last of all: from here on another process may write.
        drop(lock(&self.shared.lock).take());
        result
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a fork there is nothing to close: the log is the other process's.
        if self.shared.is_ours() && lock(&self.shared.lock).is_some() {
            drop(self.close(OnFullDisk::CloseAnyway, Ending::Close));
        }
    }
}
