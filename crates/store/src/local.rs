//! The local store: a folder with a log, owned by one process and readable by all.
//!
//! ```text
//! append ─► check against the state ─► log ─► state, recent part     durable() waits for the log
//! read   ─► indexes of sealed segments, then the recent part
//! keeper ─► index a sealed segment, write a snapshot, prune
//! ```
//!
//! Invariants: the log is the truth, everything else follows from it; an event is in the state
//! exactly if it is in the log; order in the log is order in the state. See `folder.rs` for what
//! is where.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dalsegno_log::SegmentInfo;

mod append;
mod bytes_file;
mod chaining;
mod contract;
mod copy;
mod disk;
mod folder;
mod forgetting;
mod helpers;
mod history;
mod indexes;
mod keeper;
mod leases;
mod letters;
mod lists;
mod opening;
mod options;
mod payloads;
mod read;
mod recent;
mod record;
mod repair;
mod retention;
mod snapshots;
mod transfer;
mod verify;
mod watch;

pub use copy::StoreCopy;
pub use folder::FORMAT;
pub use opening::Opened;
pub use options::Options;
pub use repair::StoreRepair;
pub use retention::{Retention, Retired, WouldRetire};
pub use snapshots::{SnapshotInfo, SnapshotRole};
pub use verify::{Problem, StoreReport};

use crate::error::StoreError;
use crate::state::State;
use disk::Disk;
use folder::Folder;
use indexes::Indexes;
use keeper::Keeper;
use leases::Leases;
use recent::Recent;
use watch::Watch;

/// A store in a folder.
///
/// Cloning gives another handle to the same store. When the last one is dropped, everything
/// appended is made durable; [`LocalStore::close`] does the same and says whether it worked.
#[derive(Clone, Debug)]
pub struct LocalStore {
    inner: Arc<Inner>,
    _open: Arc<Open>,
}

/// Closes the store when the last handle is gone. Not [`Inner`] does, which the keeper's thread
/// may have in hand at that moment: the folder is free when the drop returns.
#[derive(Debug)]
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        drop(self.0.close(Ending::Close));
    }
}

pub(crate) struct Inner {
    folder: Folder,
    options: Options,
    disk: Disk,
    core: Mutex<Core>,
    indexes: Indexes,
    watch: Watch,
    leases: Mutex<Leases>,
    letters: letters::Boxes,
    keeper: Keeper,
    closing: Mutex<()>,
    /// Held by retention, which is done by one at a time and not during an import.
    retiring: Mutex<()>,
    /// Held while helpers are written or removed: two may want to do that to the same one.
    helping: Mutex<helpers::Helping>,
    opened: Opened,
}

/// Without what is in it, which is long and the user's.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.folder.dir)
            .finish_non_exhaustive()
    }
}

/// What changes with every append, under one lock.
#[derive(Debug)]
pub(crate) struct Core {
    state: State,
    recent: Recent,
    /// Sealed segments whose records are not in `recent`, ascending.
    sealed: Arc<Vec<SegmentInfo>>,
    /// The last LSN that is in the state.
    applied: u64,
    /// The last LSN that is in a snapshot.
    snapshot: u64,
    /// Pieces in records below this LSN may be on their way out, because they are forgotten.
    erasing_from: u64,
    /// It was seen to, since the store was opened, that there are no pieces that a crash left.
    without_leftovers: bool,
    /// Bytes appended since the store was opened.
    written: u64,
    closed: bool,
}

/// A lock that a panicking holder does not take from the others: what is under it is changed in
/// steps that each leave it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalStore {
    fn new(inner: Inner) -> LocalStore {
        let inner = Arc::new(inner);
        let open = Arc::new(Open(Arc::clone(&inner)));
        LocalStore { inner, _open: open }
    }

    /// Opens the store in a folder for writing, and recovers it from a crash if need be. Makes a
    /// store if the folder is empty or missing.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-ls-{}", std::process::id()));
    /// use dalsegno_store::{Append, Kind, LocalStore, NewEvent, Store, StreamId};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let store = LocalStore::open(&dir)?;
    /// let run = StreamId::run("order-42")?;
    /// let created = vec![NewEvent::new(Kind::RunCreated)];
    /// let appended = store.append(vec![Append::to(run.clone(), created)]).await?;
    /// store.durable(appended.position).await?;
    /// assert_eq!(store.read(&run, 1, 10).await?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// It is open elsewhere, is no store, is damaged or from a newer version, or the file system
    /// failed.
    pub fn open(dir: impl AsRef<Path>) -> Result<LocalStore, StoreError> {
        Options::new().open(dir)
    }

    /// The process that has the store in a folder open for writing, as in `process 4711`; `None` if
    /// none has. Asking is in nobody's way.
    pub fn owner_of(dir: impl AsRef<Path>) -> Option<String> {
        dalsegno_log::owner_of(dir.as_ref().join(folder::LOG))
    }

    /// What opening found and did.
    pub fn opened(&self) -> &Opened {
        &self.inner.opened
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.folder.dir
    }

    /// A hash over all that has not ended: the same for the same history, however it was read.
    pub fn state_digest(&self) -> crate::Hash {
        lock(&self.inner.core).state.digest()
    }

    /// The snapshots there are, newest first.
    ///
    /// # Errors
    /// The folder could not be read.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>, StoreError> {
        snapshots::list(&self.inner.folder)
    }

    /// Writes a snapshot now. A pinned one is a recovery point, kept until [`LocalStore::unpin`].
    ///
    /// # Errors
    /// The log is not durable, or the file could not be written.
    pub fn snapshot(&self, pinned: bool) -> Result<SnapshotInfo, StoreError> {
        self.inner.snapshot(pinned)
    }

    /// Gives up a recovery point. Whether there was one.
    ///
    /// # Errors
    /// The file could not be removed.
    pub fn unpin(&self, position: u64) -> Result<bool, StoreError> {
        self.inner.unpin(position)
    }

    /// Why indexes or snapshots could not be written lately; `None` if all is well. Nothing is lost
    /// meanwhile: the log has everything.
    pub fn health(&self) -> Option<String> {
        let keeper = self.inner.keeper.trouble();
        keeper.or_else(|| self.inner.indexes.trouble())
    }

    /// Indexes that were damaged and had to be made again, and what was wrong with them, since
    /// this was last asked.
    pub fn rebuilt_indexes(&self) -> Vec<String> {
        self.inner.indexes.take_rebuilt()
    }

    /// Ends the current segment of the log, and makes its index and a snapshot.
    ///
    /// # Errors
    /// The disk is full, or a write or sync failed.
    pub fn seal(&self) -> Result<(), StoreError> {
        self.inner.disk.log()?.seal()?;
        self.inner.maintain()
    }

    /// Makes everything durable, writes a snapshot and lets go of the folder. Other handles get
    /// errors from then on.
    ///
    /// # Errors
    /// It is not known whether the last events are on disk.
    pub fn close(&self) -> Result<(), StoreError> {
        self.inner.close(Ending::Close)
    }

    /// The same for a process that lets another one go on soon, and needs no sync for it: see
    /// [`dalsegno_log::Log::hand_over`]. A snapshot is written only if the next opening would have
    /// much to read.
    ///
    /// # Errors
    /// As [`LocalStore::close`].
    pub fn hand_over(&self) -> Result<(), StoreError> {
        self.inner.close(Ending::HandOver)
    }
}

/// How a store is let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Close,
    HandOver,
}

/// So many records behind the newest snapshot are read again at each opening of a store that is
/// handed over. Reading one takes a microsecond, writing a snapshot some syncs.
const HANDED_OVER_RECORDS: u64 = 2000;

impl Inner {
    fn close(&self, ending: Ending) -> Result<(), StoreError> {
        // Who closes too waits, and is told the same.
        let _one_at_a_time = lock(&self.closing);
        self.keeper.stop();
        let Disk::Owner(log) = &self.disk else {
            lock(&self.core).closed = true;
            self.watch.close();
            return Ok(());
        };
        let dirty = {
            let mut core = lock(&self.core);
            if std::mem::replace(&mut core.closed, true) {
                drop(core);
                return match log.close() {
                    Err(dalsegno_log::SyncError::Closed) => Ok(()),
                    other => Ok(other?),
                };
            }
            let behind = core.applied.saturating_sub(core.snapshot);
            match ending {
                Ending::Close => behind > 0,
                Ending::HandOver => behind > HANDED_OVER_RECORDS,
            }
        };
        if dirty && log.wait_durable(log.last_lsn()).is_ok() {
            // Without it the next opening takes longer, and that is all.
            drop(self.snapshot(false));
        }
        let closed = match ending {
            Ending::Close => log.close(),
            Ending::HandOver => log.hand_over(),
        };
        if let Err(dalsegno_log::SyncError::NoSpace(_)) = &closed {
            // It can be tried again when there is room.
            lock(&self.core).closed = false;
        } else {
            self.watch.close();
        }
        Ok(closed?)
    }
}
