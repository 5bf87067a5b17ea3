//! Group commit: who syncs, who waits, who is woken.
//!
//! At any time at most one party has the *turn*: it alone takes the filling group, writes it and
//! syncs it. Nobody holds a lock that appenders need while the disk works.
//!
//! | situation | who syncs, and why |
//! |---|---|
//! | a thread waits and nobody has the turn | that thread itself: no hand-over to another thread and back |
//! | the same, but several waited when the last turn ended | the flusher: until it is awake, the others have appended too, and share the sync |
//! | others queued up meanwhile | the flusher thread, round after round, until no one waits: it need not be woken for the next round |
//! | a task waits | the flusher, because a task must not block |
//! | a task waits that may block ([`crate::may_block`]), nobody has the turn, and the last sync was quick enough | that task's thread, as above |
//! | no flusher ([`crate::Options::without_threads`]) | whoever waits |
//!
//! Invariant: `durable` rises only after the sync that covers it has returned, and whoever waits
//! for an LSN at or below it is woken after it has risen.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::Lsn;
use crate::error::{IoFailure, Poisoned, SyncError};
use crate::filling::{Filling, Group};
use crate::fs::FsLock;
use crate::options::Options;
use crate::segments::{self, SegmentInfo};
use crate::sync::{Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock};
use crate::writer::{WriteError, Writer};

/// How long to leave a full disk alone before the background sync tries again.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(100);

/// Somebody who waits for an LSN.
#[derive(Debug)]
struct Waiter {
    id: u64,
    lsn: Lsn,
    waker: Waker,
    /// Wants a sync now, as opposed to following whatever becomes durable.
    wants_sync: bool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Somebody has the turn.
    taken: bool,
    /// The turn was given to the flusher, which has not noticed yet.
    handed_to_flusher: bool,
    /// The flusher should take a turn although no one waits: the buffer is filling up.
    wanted: bool,
    /// Several waited for a sync when the last turn ended: they are likely to come back together.
    crowd: bool,
    stop: bool,
    waiters: Vec<Waiter>,
    next_id: u64,
    /// How many want the turn for themselves, to seal or to close.
    turn_requests: usize,
    /// How often the disk was found full, and the last time's error.
    times_full: u64,
    full: Option<(Instant, IoFailure)>,
}

/// What is between `open` and `close`, shared by handles, futures and the flusher.
#[derive(Debug)]
pub(crate) struct Shared {
    pub options: Options,
    pub dir: PathBuf,
    pub log_id: u64,
    opened_by: u32,
    pub filling: Mutex<Filling>,
    pub durable: Arc<AtomicU64>,
    /// How long the last group took to be written and synced, in microseconds.
    last_sync_us: AtomicU64,
    /// Number and first LSN of the segments that readers can use.
    pub segments: Arc<Mutex<Vec<(u64, Lsn)>>>,
    /// The newest segment that was sealed before there was a next one; 0 if none.
    sealed: AtomicU64,
    poisoned: OnceLock<Poisoned>,
    /// Locked by whoever has the turn, and for a moment by who asks for statistics.
    pub writer: Mutex<Writer>,
    /// The buffer that is not filling.
    idle_group: Mutex<Group>,
    queue: Mutex<Queue>,
    flusher_wake: Condvar,
    turn_free: Condvar,
    pub lock: Mutex<Option<Box<dyn FsLock>>>,
}

/// What comes before the work of [`Shared::with_turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Writing everything that was appended.
    WriteAll,
    /// Nothing: the work does not depend on what is in the buffer.
    Nothing,
}

/// One answer to a waiter's question.
#[derive(Debug)]
pub(crate) enum Poll {
    Done(Result<(), SyncError>),
    /// The waker will be called.
    Wait,
    /// Nobody syncs, and there is no flusher or the caller may block: it now has the turn.
    YourTurn,
}

/// A wait as its owner sees it.
#[derive(Debug)]
pub(crate) struct Wait {
    pub lsn: Lsn,
    pub wants_sync: bool,
    id: Option<u64>,
    times_full: Option<u64>,
}

impl Wait {
    pub fn new(lsn: Lsn, wants_sync: bool) -> Wait {
        Wait {
            lsn,
            wants_sync,
            id: None,
            times_full: None,
        }
    }
}

impl Shared {
    pub fn new(
        options: Options,
        dir: PathBuf,
        writer: Writer,
        log_id: u64,
        next_lsn: Lsn,
        segments: Vec<(u64, Lsn)>,
        lock: Box<dyn FsLock>,
    ) -> Shared {
        Shared {
            options,
            dir,
            log_id,
            opened_by: std::process::id(),
            filling: Mutex::new(Filling::new(next_lsn)),
            durable: Arc::new(AtomicU64::new(next_lsn - 1)),
            last_sync_us: AtomicU64::new(0),
            segments: Arc::new(Mutex::new(segments)),
            sealed: AtomicU64::new(0),
            poisoned: OnceLock::new(),
            writer: Mutex::new(writer),
            idle_group: Mutex::new(Group::default()),
            queue: Mutex::new(Queue::default()),
            flusher_wake: Condvar::new(),
            turn_free: Condvar::new(),
            lock: Mutex::new(Some(lock)),
        }
    }

    pub fn durable(&self) -> Lsn {
        self.durable.load(Ordering::Acquire)
    }

    /// The segments there are, with what is durable in them.
    pub fn list_segments(&self) -> Vec<SegmentInfo> {
        let segments = lock(&self.segments);
        // Under the lock: a segment is added before what is in it counts as durable.
        let sealed = self.sealed.load(Ordering::Acquire);
        segments::list(&segments, sealed, self.durable())
    }

    /// The writer has sealed the newest segment and has not begun another.
    pub fn newest_is_sealed(&self) {
        if let Some((number, _)) = lock(&self.segments).last() {
            self.sealed.store(*number, Ordering::Release);
        }
    }

    pub fn poisoned(&self) -> Option<&Poisoned> {
        self.poisoned.get()
    }

    /// From here on nothing is acknowledged.
    pub fn poison(&self, cause: IoFailure) -> Poisoned {
        self.poisoned.get_or_init(|| Poisoned { cause }).clone()
    }

    /// Whether this is the process that opened the log, and not a fork of it. A fork has the
    /// files open and knows positions in them, but they are the other process's to write.
    pub fn is_ours(&self) -> bool {
        std::process::id() == self.opened_by
    }

    pub fn check_ours(&self) -> Result<(), SyncError> {
        if self.is_ours() {
            return Ok(());
        }
        let why = "it was opened by the process that this one is a fork of";
        Err(self.stop_because(why).into())
    }

    /// Waits in this thread, syncing itself if it is alone and nobody else does.
    pub fn wait(&self, lsn: Lsn) -> Result<(), SyncError> {
        if self.durable() >= lsn {
            return Ok(());
        }
        self.check_ours()?;
        let mut queue = lock(&self.queue);
        if !queue.taken && !queue.crowd && !queue.stop && self.durable() < lsn {
            queue.taken = true;
            drop(queue);
            return self.use_turn(|shared| shared.write_up_to(lsn));
        }
        drop(queue);
        crate::park::block_on(self, Wait::new(lsn, true))
    }

    /// Whether who is polled on this thread may keep it for a sync.
    fn may_lead(&self, queue: &Queue) -> bool {
        if queue.crowd || queue.turn_requests > 0 {
            return false;
        }
        let last = Duration::from_micros(self.last_sync_us.load(Ordering::Relaxed));
        crate::park::may_block_for().is_some_and(|limit| last <= limit)
    }

    /// Answers a waiter, registering it to be woken if the answer is not there yet.
    pub fn poll(&self, wait: &mut Wait, waker: &Waker) -> Poll {
        if self.durable() >= wait.lsn {
            wait.id = None;
            return Poll::Done(Ok(()));
        }
        // In a fork nobody would ever answer.
        if let Err(error) = self.check_ours() {
            return Poll::Done(Err(error));
        }
        let mut queue = lock(&self.queue);
        if let Some(result) = self.answer(&queue, wait) {
            self.leave(&mut queue, wait);
            return Poll::Done(result);
        }
        if wait.wants_sync && !queue.taken {
            queue.taken = true;
            if !self.options.threads || self.may_lead(&queue) {
                return Poll::YourTurn;
            }
            queue.handed_to_flusher = true;
            self.flusher_wake.notify_one();
        }
        // Whoever was woken has left the queue; who is polled for another reason has not.
        self.leave(&mut queue, wait);
        let id = queue.next_id;
        queue.next_id += 1;
        queue.waiters.push(Waiter {
            id,
            lsn: wait.lsn,
            waker: waker.clone(),
            wants_sync: wait.wants_sync,
        });
        wait.id = Some(id);
        Poll::Wait
    }

    /// The answer, if there is one. Under the queue's lock, so that no turn can end in between.
    fn answer(&self, queue: &Queue, wait: &mut Wait) -> Option<Result<(), SyncError>> {
        if self.durable() >= wait.lsn {
            return Some(Ok(()));
        }
        if let Some(poisoned) = self.poisoned() {
            return Some(Err(poisoned.clone().into()));
        }
        if queue.stop {
            return Some(Err(SyncError::Closed));
        }
        let seen = *wait.times_full.get_or_insert(queue.times_full);
        match &queue.full {
            Some((_, failure)) if wait.wants_sync && seen != queue.times_full => {
                Some(Err(SyncError::NoSpace(failure.clone())))
            }
            _ => None,
        }
    }

    fn leave(&self, queue: &mut Queue, wait: &mut Wait) {
        if let Some(id) = wait.id.take() {
            queue.waiters.retain(|waiter| waiter.id != id);
        }
    }

    /// A waiter went away.
    pub fn forget(&self, wait: &mut Wait) {
        if wait.id.is_some() {
            self.leave(&mut lock(&self.queue), wait);
        }
    }

    /// Asks the flusher to write out what has gathered.
    pub fn request_flush(&self) {
        let mut queue = lock(&self.queue);
        if !queue.wanted {
            queue.wanted = true;
            self.flusher_wake.notify_one();
        }
    }

    /// Tells the flusher that there is something to be synced within the bound.
    pub fn first_record_waits(&self) {
        // Under the lock, so that the flusher cannot miss it between looking and sleeping.
        let _queue = lock(&self.queue);
        self.flusher_wake.notify_one();
    }

    /// Waits for the turn and does some work with it: writes marks, seals.
    pub fn with_turn<T>(
        &self,
        first: Before,
        work: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
    ) -> Result<T, SyncError> {
        self.get_turn()?;
        self.use_turn(|shared| {
            if first == Before::WriteAll {
                let last = lock(&shared.filling).next_lsn - 1;
                shared.write_up_to(last)?;
            }
            let worked = work(&mut lock(&shared.writer));
            worked.map_err(|e| shared.write_error(e))
        })
    }

    /// Runs `work` while nobody else changes the names in the folder. If its sync fails, names that
    /// others gave would be lost with its own, and nobody else would be told.
    pub fn with_folder<T>(
        &self,
        work: impl FnOnce() -> Result<T, WriteError>,
    ) -> Result<T, SyncError> {
        self.get_turn()?;
        self.use_turn(|shared| {
            let settled = lock(&shared.writer).settle_spare();
            settled
                .and_then(|()| work())
                .map_err(|e| shared.write_error(e))
        })
    }

    /// Waits for the turn.
    fn get_turn(&self) -> Result<(), SyncError> {
        self.check_ours()?;
        let mut queue = lock(&self.queue);
        queue.turn_requests += 1;
        while queue.taken {
            queue = self
                .turn_free
                .wait(queue)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        queue.turn_requests -= 1;
        if queue.stop {
            return Err(SyncError::Closed);
        }
        queue.taken = true;
        Ok(())
    }

    /// With the turn: does some writing, and ends the turn. Also if the writing panics: then the
    /// log stops, and nobody is left waiting.
    pub fn use_turn<T>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, SyncError>,
    ) -> Result<T, SyncError> {
        struct OnPanic<'a>(&'a Shared);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                let poisoned = self.0.stop_because("it panicked");
                self.0.end_turn(Some(&poisoned.into()));
            }
        }
        let on_panic = OnPanic(self);
        let result = match self.poisoned() {
            // Rule: after a failed write or sync nothing is written.
            Some(poisoned) => Err(poisoned.clone().into()),
            None => work(self),
        };
        std::mem::forget(on_panic);
        self.end_turn(result.as_ref().err());
        result
    }

    fn stop_because(&self, why: &'static str) -> Poisoned {
        let error = io::Error::other(why);
        self.poison(IoFailure::new("write to", &self.dir, error))
    }

    fn write_up_to(&self, lsn: Lsn) -> Result<(), SyncError> {
        // Once is enough, unless a group has come back from a full disk.
        while self.durable() < lsn {
            self.write_next_group()?;
        }
        Ok(())
    }

    /// With the turn: writes and syncs the next group.
    pub fn write_next_group(&self) -> Result<(), SyncError> {
        let mut group = lock(&self.idle_group);
        lock(&self.filling).take(&mut group);
        if group.records == 0 {
            return Ok(());
        }
        let mut writer = lock(&self.writer);
        let records = group.records;
        let begun = Instant::now();
        match writer.write_group(&mut group.bytes, records) {
            Ok(opened) => {
                let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.last_sync_us.store(took_us, Ordering::Relaxed);
                drop(writer);
                if let Some(segment) = opened {
                    lock(&self.segments).push(segment);
                }
                lock(&self.filling).landed();
                self.durable.store(group.last_lsn, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                drop(writer);
                if matches!(error, WriteError::NoSpace(_)) {
                    lock(&self.filling).give_back(&mut group);
                }
                Err(self.write_error(error))
            }
        }
    }

    fn write_error(&self, error: WriteError) -> SyncError {
        match error {
            WriteError::NoSpace(failure) => SyncError::NoSpace(failure),
            WriteError::Fatal(failure) => self.poison(failure).into(),
        }
    }

    /// Gives the turn back or on, and wakes everybody whose answer is there.
    fn end_turn(&self, error: Option<&SyncError>) {
        let mut woken = Vec::new();
        let mut queue = lock(&self.queue);
        if error.is_some() {
            queue.wanted = false;
        }
        queue.full = match error {
            Some(SyncError::NoSpace(failure)) => {
                queue.times_full += 1;
                Some((Instant::now(), failure.clone()))
            }
            _ => None,
        };
        let waiting = queue.waiters.iter().filter(|waiter| waiter.wants_sync);
        queue.crowd = waiting.count() > 1;
        let durable = self.durable();
        let all = error.is_some() || !self.options.threads;
        queue.waiters.retain_mut(|waiter| {
            let stays = waiter.lsn > durable && !all;
            if !stays {
                woken.push(std::mem::replace(&mut waiter.waker, Waker::noop().clone()));
            }
            stays
        });
        let more = queue.wanted || queue.waiters.iter().any(|waiter| waiter.wants_sync);
        if more && self.options.threads && queue.turn_requests == 0 && !queue.stop {
            queue.handed_to_flusher = true;
            self.flusher_wake.notify_one();
        } else {
            queue.taken = false;
            if queue.turn_requests > 0 {
                self.turn_free.notify_one();
            }
        }
        drop(queue);
        for waker in woken {
            waker.wake();
        }
    }

    /// Tells everybody that it is over.
    pub fn stop(&self) {
        let mut queue = lock(&self.queue);
        queue.stop = true;
        self.flusher_wake.notify_all();
        // All of them: who finds the log stopped does not pass the turn on.
        self.turn_free.notify_all();
        drop(queue);
        self.wake_everybody();
    }

    fn wake_everybody(&self) {
        let waiters = std::mem::take(&mut lock(&self.queue).waiters);
        for waiter in waiters {
            waiter.waker.wake();
        }
    }

    /// The flusher thread: takes turns while somebody waits, and holds the bound.
    pub fn run_flusher(&self) {
        /// Somebody's waker may panic in here. Then nobody is left to wait for.
        struct OnPanic<'a>(&'a Shared);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                self.0.stop_because("its flusher thread panicked");
                self.0.wake_everybody();
            }
        }
        let on_panic = OnPanic(self);
        self.flush_until_stopped();
        std::mem::forget(on_panic);
    }

    fn flush_until_stopped(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if queue.handed_to_flusher || (queue.wanted && !queue.taken && !queue.stop) {
                queue.handed_to_flusher = false;
                queue.wanted = false;
                queue.taken = true;
                drop(queue);
                // Who waits is told of an error; nobody else needs to know.
                drop(self.use_turn(Shared::write_next_group));
                queue = lock(&self.queue);
                continue;
            }
            if queue.stop {
                return;
            }
            queue = self.rest(queue);
        }
    }

    /// Sleeps until called, or until the bound asks for a sync.
    fn rest<'q>(&self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        let deadline = self.options.bound.and_then(|bound| {
            // Half of the bound is left for the sync itself.
            let due = lock(&self.filling).oldest()?.checked_add(bound / 2)?;
            let again = queue.full.as_ref().map(|(at, _)| *at + FULL_DISK_PAUSE);
            Some(again.map_or(due, |again| due.max(again)))
        });
        let Some(deadline) = deadline.filter(|_| self.poisoned().is_none()) else {
            return self
                .flusher_wake
                .wait(queue)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        let now = Instant::now();
        if now >= deadline && !queue.taken {
            queue.wanted = true;
            return queue;
        }
        // If somebody else is syncing, look again when that may be over.
        let pause = (deadline.saturating_duration_since(now)).max(Duration::from_millis(1));
        self.flusher_wake
            .wait_timeout(queue, pause)
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .0
    }
}
