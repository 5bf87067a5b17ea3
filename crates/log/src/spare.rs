//! The next segment, prepared ahead.
//!
//! Filling a segment with zeros takes a while; it happens in a thread of its own while the
//! segment before still has room. A full disk is met here, where it can be waited out, and not in
//! the middle of an append.

use std::io;
use std::path::PathBuf;

use crate::error::IoFailure;
use crate::fs::{Fs, FsFile, PlaceError};
use crate::rules::Mutant;
use crate::segment::{self, SegmentHeader};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, thread};

/// Why there is no next segment.
#[derive(Debug)]
pub(crate) enum SpareError {
    /// It could not be made, most likely because the disk is full. It can be tried again.
    NotNow(IoFailure),
    /// A sync failed on the way: final.
    Sync(IoFailure),
}

#[derive(Debug)]
enum State {
    Empty,
    Preparing,
    Ready(Prepared),
    /// A sync failed. It stays that way.
    Failed(IoFailure),
}

/// A segment that nothing was written into yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub number: u64,
    pub size_bytes: u64,
    pub file: Box<dyn FsFile>,
}

/// A place for one prepared segment.
#[derive(Debug)]
pub(crate) struct Spare {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    mutant: Mutant,
    threads: bool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Spare {
    pub fn new(
        fs: Arc<dyn Fs>,
        dir: PathBuf,
        mutant: Mutant,
        threads: bool,
        found: Option<Prepared>,
    ) -> Arc<Spare> {
        let state = found.map_or(State::Empty, State::Ready);
        Arc::new(Spare {
            fs,
            dir,
            mutant,
            threads,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// The sync failure that ended preparation, if one did.
    pub fn failure(&self) -> Option<IoFailure> {
        match &*lock(&self.state) {
            State::Failed(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    /// The number of the prepared segment, if there is one.
    pub fn ready(&self) -> Option<u64> {
        match &*lock(&self.state) {
            State::Ready(prepared) => Some(prepared.number),
            _ => None,
        }
    }

    /// Starts preparing a segment, unless there is one already or work on it is under way.
    pub fn prepare_ahead(self: &Arc<Spare>, header: SegmentHeader) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Empty) {
            return;
        }
        *state = State::Preparing;
        drop(state);
        if self.threads {
            let spare = Arc::clone(self);
            let spawned = thread::Builder::new()
                .name("dalsegno-prepare".into())
                .spawn(move || spare.prepare(header));
            if spawned.is_ok() {
                return;
            }
            // No thread to be had: do it here.
        }
        self.prepare(header);
    }

    /// Takes the prepared segment, waiting for it or making it if need be.
    pub fn take(&self, header: SegmentHeader) -> Result<Box<dyn FsFile>, SpareError> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Preparing => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                State::Failed(failure) => return Err(SpareError::Sync(failure.clone())),
                State::Empty | State::Ready(..) => break,
            }
        }
        match std::mem::replace(&mut *state, State::Empty) {
            State::Ready(found) if found.fits(header) => Ok(found.file),
            // A batch that is larger than what was prepared has it made anew, under the same name.
            _ => {
                drop(state);
                segment::prepare(self.fs.as_ref(), &self.dir, header, self.mutant)
                    .map_err(|e| self.explain(header, e))
            }
        }
    }

    /// Puts a segment that was taken back, unused.
    pub fn put_back(&self, header: SegmentHeader, file: Box<dyn FsFile>) {
        *lock(&self.state) = State::Ready(Prepared::new(header, file));
    }

    /// Waits until no thread works on a segment any more.
    pub fn settle(&self) {
        drop(self.settled());
    }

    /// The same, and closes the prepared one.
    pub fn release(&self) {
        let mut state = self.settled();
        if matches!(*state, State::Ready(..)) {
            *state = State::Empty;
        }
    }

    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while matches!(*state, State::Preparing) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state
    }

    fn prepare(&self, header: SegmentHeader) {
        let prepared = segment::prepare(self.fs.as_ref(), &self.dir, header, self.mutant);
        let next = match prepared.map_err(|e| self.explain(header, e)) {
            Ok(file) => State::Ready(Prepared::new(header, file)),
            // Whoever needs the segment tries again, and reports what is wrong then.
            Err(SpareError::NotNow(_)) => State::Empty,
            Err(SpareError::Sync(failure)) => State::Failed(failure),
        };
        *lock(&self.state) = next;
        self.changed.notify_all();
    }

    fn explain(&self, header: SegmentHeader, error: PlaceError) -> SpareError {
        let path = segment::path(&self.dir, header.number);
        let failure = |e: io::Error, what| IoFailure::new(what, &path, e);
        match error {
            PlaceError::NotPlaced(e) => SpareError::NotNow(failure(e, "make")),
            PlaceError::Sync(e) => SpareError::Sync(failure(e, "sync")),
        }
    }
}

impl Prepared {
    pub fn new(header: SegmentHeader, file: Box<dyn FsFile>) -> Prepared {
        Prepared {
            number: header.number,
            size_bytes: header.size_bytes,
            file,
        }
    }

    fn fits(&self, header: SegmentHeader) -> bool {
        self.number == header.number && self.size_bytes >= header.size_bytes
    }
}
