//! The work behind the appends: an index for each sealed segment, snapshots, pruning.
//!
//! A thread of its own does it, or the append that makes it due if there are no threads. For who
//! reads beside the owner, the thread looks for news instead, while somebody waits for them.
//!
//! Invariant: nothing here is needed for correctness. What fails is tried again later, and said in
//! [`super::LocalStore::health`]; the log has everything meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dalsegno_log::{IoFailure, ReadError};

use super::disk::Disk;
use super::disk::Records;
use super::snapshots::{self, SnapshotInfo};
use super::{Core, Inner, lock};
use crate::error::StoreError;
use crate::rules::Rule;

/// How often a reader looks for news while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked again for what was moved.
const LOOKS: usize = 3;
/// How often the thread wakes up by itself.
const WAKE_EVERY: Duration = Duration::from_secs(5);
/// A store that is busy has other things to sync than snapshots. It writes one with each segment anyway.
const SNAPSHOT_REST: Duration = Duration::from_millis(250);

/// Does the work behind the appends.
#[derive(Debug)]
pub(crate) struct Keeper {
    threads: bool,
    waker: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// One at a time.
    pub working: Mutex<()>,
    schedule: Mutex<Schedule>,
    /// How much had been written when the work was last looked at.
    looked_at: AtomicU64,
}

#[derive(Debug)]
struct Schedule {
    last_snapshot: Instant,
    last_snapshot_bytes: u64,
    /// How large the last snapshot was.
    size: u64,
    /// Why the last piece of work failed.
    trouble: Option<String>,
}

impl Keeper {
    pub fn new(threads: bool) -> Keeper {
        Keeper {
            threads,
            waker: Mutex::default(),
            thread: Mutex::default(),
            working: Mutex::default(),
            schedule: Mutex::new(Schedule {
                last_snapshot: Instant::now(),
                last_snapshot_bytes: 0,
                size: 0,
                trouble: None,
            }),
            looked_at: AtomicU64::new(0),
        }
    }

    /// Starts the thread.
    pub fn start(&self, inner: &Arc<Inner>) {
        if !self.threads {
            return;
        }
        let (waker, wakes) = channel();
        let weak = Arc::downgrade(inner);
        let every = match inner.disk {
            Disk::Owner(_) => WAKE_EVERY.min(inner.options.snapshot_every),
            Disk::Reader(_) => LOOK_EVERY,
        };
        let spawned = std::thread::Builder::new()
            .name("dalsegno-keeper".into())
            .spawn(move || work(&weak, &wakes, every));
        // Without a thread, appends do the work.
        if let Ok(thread) = spawned {
            *lock(&self.waker) = Some(waker);
            *lock(&self.thread) = Some(thread);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        drop(lock(&self.waker).take());
        let thread = lock(&self.thread).take();
        // The thread itself may be the last one to let go of the store.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            drop(thread.join());
        }
    }

    /// Something was appended; so many bytes by now.
    pub fn appended(&self, inner: &Inner, written: u64) {
        let step = (inner.options.segment_bytes / 16).min(inner.options.snapshot_bytes / 4);
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        if written.saturating_sub(looked_at) < step.max(1) {
            return;
        }
        self.looked_at.store(written, Ordering::Relaxed);
        match &*lock(&self.waker) {
            Some(waker) => drop(waker.send(())),
            None => drop(inner.maintain_quietly()),
        }
    }

    /// Why the last piece of work failed; `None` if it did not.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.schedule).trouble.clone()
    }
}

fn work(store: &Weak<Inner>, wakes: &Receiver<()>, every: Duration) {
    let mut wait = every;
    loop {
        match wakes.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) => while wakes.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(inner) = store.upgrade() else {
            return;
        };
        match inner.disk {
            Disk::Owner(_) => {
                // What has failed is not tried again at once.
                wait = match inner.maintain_quietly() {
                    true => inner.next_snapshot().map_or(every, |due| due.min(every)),
                    false => every,
                };
            }
            Disk::Reader(_) if inner.watch.has_watchers() => drop(inner.refresh()),
            Disk::Reader(_) => {}
        }
    }
}

impl Inner {
    /// Whether nothing has failed.
    fn maintain_quietly(&self) -> bool {
        let trouble = self.maintain().err().map(|e| e.to_string());
        let is_well = trouble.is_none();
        lock(&self.keeper.schedule).trouble = trouble;
        is_well
    }

    /// Indexes what was sealed, and writes a snapshot if one is due.
    pub fn maintain(&self) -> Result<(), StoreError> {
        let _one_at_a_time = lock(&self.keeper.working);
        let sealed_some = self.index_sealed()?;
        if sealed_some || self.next_snapshot() == Some(Duration::ZERO) {
            self.write_snapshot(false)?;
        }
        Ok(())
    }

    /// Gives each newly sealed segment its index, and forgets its records in memory.
    fn index_sealed(&self) -> Result<bool, StoreError> {
        let sealed = Arc::clone(&lock(&self.core).sealed);
        let last = sealed.last().map_or(0, |segment| segment.number);
        let segments = self.disk.segments();
        let new = segments.iter().filter(|s| s.sealed && s.number > last);
        let mut list = (*sealed).clone();
        for info in new {
            self.indexes.ask(&self.disk, &list, info, |_| Ok(()))?;
            list.push(*info);
            let mut core = lock(&self.core);
            // On what is there now: retention drops segments beside this.
            let mut sealed = (*core.sealed).clone();
            sealed.push(*info);
            core.sealed = Arc::new(sealed);
            core.recent.forget_until(info.last_lsn);
        }
        Ok(list.len() > sealed.len())
    }

    /// When the next snapshot is due; `None` if it is not known yet.
    fn next_snapshot(&self) -> Option<Duration> {
        let (applied, snapshot, written) = {
            let core = lock(&self.core);
            (core.applied, core.snapshot, core.written)
        };
        let schedule = lock(&self.keeper.schedule);
        let age = schedule.last_snapshot.elapsed();
        let since = written - schedule.last_snapshot_bytes;
        let by_size = since >= self.options.snapshot_bytes.max(schedule.size);
        let by_time = age >= self.options.snapshot_every;
        // Without a thread it is the appends that make it due, and the clock says nothing.
        let rest = match self.keeper.threads {
            true => SNAPSHOT_REST.saturating_sub(age),
            false => Duration::ZERO,
        };
        match applied > snapshot {
            true if by_time => Some(Duration::ZERO),
            true if by_size => Some(rest),
            _ => None,
        }
    }

    /// Writes a snapshot, now.
    pub fn snapshot(&self, pinned: bool) -> Result<SnapshotInfo, StoreError> {
        let _one_at_a_time = lock(&self.keeper.working);
        self.write_snapshot(pinned)
    }

    fn write_snapshot(&self, pinned: bool) -> Result<SnapshotInfo, StoreError> {
        let log = self.disk.log()?;
        let (state, lsn, written) = {
            let core = lock(&self.core);
            (core.state.clone(), core.applied, core.written)
        };
        if lsn > 0 && !self.options.mutant.breaks(Rule::SnapshotAfterDurable) {
            log.wait_durable(lsn)?;
        }
        let bytes = state.encode();
        let now_us = self.options.clock.now_us();
        snapshots::write(&self.folder, lsn, now_us, &bytes, pinned)?;
        {
            let mut schedule = lock(&self.keeper.schedule);
            schedule.last_snapshot = Instant::now();
            schedule.last_snapshot_bytes = written;
            schedule.size = bytes.len() as u64;
        }
        if !pinned {
            let mut core = lock(&self.core);
            core.snapshot = core.snapshot.max(lsn);
        }
        snapshots::prune(&self.folder)?;
        let file = snapshots::file_name(lsn, pinned);
        let found = snapshots::list(&self.folder)?;
        let found = found.into_iter().find(|info| info.file == file);
        found.ok_or_else(|| StoreError::damaged(file, "a file in snapshots", "none"))
    }

    /// Removes a pinned snapshot.
    pub fn unpin(&self, lsn: u64) -> Result<bool, StoreError> {
        self.disk.log()?;
        let _one_at_a_time = lock(&self.keeper.working);
        let file = snapshots::file_name(lsn, true);
        let there = snapshots::list(&self.folder)?;
        if !there.iter().any(|info| info.file == file) {
            return Ok(false);
        }
        self.folder.remove(&self.folder.snapshots(), &[file])?;
        Ok(true)
    }

    /// For who reads beside the owner: takes in what has been added.
    pub fn refresh(&self) -> Result<(), StoreError> {
        let mut core = lock(&self.core);
        if core.closed {
            return Err(StoreError::Closed);
        }
        let Disk::Reader(view) = &self.disk else {
            return Ok(());
        };
        if view.refresh()? == core.applied {
            return Ok(());
        }
        self.read_news(&mut core)?;
        let applied = core.applied;
        drop(core);
        self.watch.reached(applied);
        Ok(())
    }

    fn read_news(&self, core: &mut Core) -> Result<(), StoreError> {
        let segments = self.disk.segments().into_iter();
        let sealed: Vec<_> = segments.filter(|segment| segment.sealed).collect();
        // First: a run in there may have gone since, and its name be that of another by now.
        let last = sealed.last().map_or(0, |segment| segment.last_lsn);
        core.recent.forget_until(last);
        core.sealed = Arc::new(sealed);
        let mut notices = Vec::new();
        let before = (core.state.pieces_from, core.state.retiring.len());
        core.read_on(&self.disk, &mut notices)?;
        if before != (core.state.pieces_from, core.state.retiring.len()) {
            // Segments were rewritten: what is open of them still has what is gone.
            self.indexes.close_all();
        }
        Ok(())
    }

    /// Looks again if what was looked for has been moved meanwhile: retention drops segments and
    /// puts others in their place.
    pub fn looking_again<T>(
        &self,
        mut look: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..LOOKS {
            match look() {
                Err(e) if self.may_have_moved(&e) => {}
                other => return other,
            }
            self.indexes.close_all();
            if let Disk::Reader(view) = &self.disk {
                let mut core = lock(&self.core);
                view.refresh()?;
                self.read_news(&mut core)?;
            }
        }
        look()
    }

    fn may_have_moved(&self, e: &StoreError) -> bool {
        let gone = |failure: &IoFailure| failure.error.kind() == std::io::ErrorKind::NotFound;
        match e {
            StoreError::Read(ReadError::NoSegment { .. } | ReadError::Dropped { .. }) => true,
            StoreError::Read(ReadError::Io(failure)) | StoreError::Io(failure) => gone(failure),
            // An owner knows what it has rewritten.
            StoreError::Read(ReadError::Damage(_)) | StoreError::Damaged { .. } => {
                matches!(self.disk, Disk::Reader(_))
            }
            _ => false,
        }
    }
}
