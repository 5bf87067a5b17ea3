//! Opening a log for writing, from the lock to the thread that syncs.
//!
//! Where the log has a flusher, that thread begins by settling what was found (`recovery.rs`), and
//! whoever opens it reads the records meanwhile: one works while the other waits for the disk.
//!
//! Invariant: nothing that was read is given out before settling has returned.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use crate::Lsn;
use crate::commit::Shared;
use crate::error::{IoFailure, OpenError, ReadError};
use crate::fs::{Fs, FsLock, LockError};
use crate::layout::BEFORE_THE_FIRST;
use crate::log::Log;
use crate::options::Options;
use crate::reader::{Reader, Source};
use crate::recovery::Recovery;
use crate::segments::{self, SegmentInfo};
use crate::spare::Spare;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock, mpsc, thread};
use crate::walk::{Opening, Walked};
use crate::writer::{WriteError, Writer};

pub(crate) const LOCK_FILE: &str = "lock";

/// The records of a log that is being opened: see [`Options::open_reading`].
#[derive(Debug)]
pub struct FoundRecords {
    source: Source,
}

impl FoundRecords {
    fn of(log: &Log) -> FoundRecords {
        FoundRecords {
            source: log.source(),
        }
    }

    /// As [`Log::read_from`].
    ///
    /// # Errors
    /// The record was dropped, is damaged, or could not be read.
    pub fn read_from(&self, lsn: Lsn) -> Result<Reader, ReadError> {
        Reader::new(self.source.clone(), lsn)
    }

    /// As [`Log::segments`].
    pub fn segments(&self) -> Vec<SegmentInfo> {
        segments::list(&lock(&self.source.segments), 0, self.last_lsn())
    }

    /// The first LSN in the log, or the one it will begin with.
    pub fn first_lsn(&self) -> Lsn {
        self.source.first_lsn()
    }

    /// The last LSN in the log; one below the first if it has no record.
    pub fn last_lsn(&self) -> Lsn {
        self.source.limit.load(Ordering::Acquire)
    }
}

/// Opens a log and lets `read` have its records.
pub(crate) fn open_reading<T>(
    dir: &Path,
    options: Options,
    read: impl FnOnce(&FoundRecords) -> T,
) -> Result<(Log, T), OpenError> {
    let begun = Begun::new(dir, options)?;
    if !begun.options.threads {
        let log = begun.settle()?;
        let read = read(&FoundRecords::of(&log));
        return Ok((log, read));
    }
    let early = begun.records();
    let settling = Settling::start(begun)?;
    if let Some(records) = early {
        let read = catch_unwind(AssertUnwindSafe(|| read(&records)));
        // Whatever came of it: nothing goes on behind the back of who opens the log.
        let log = settling.wait();
        return match read {
            Ok(read) => Ok((log?, read)),
            Err(panic) => {
                drop(log);
                resume_unwind(panic)
            }
        };
    }
    let log = settling.wait()?;
    let read = read(&FoundRecords::of(&log));
    Ok((log, read))
}

/// The flusher, in its first task.
struct Settling {
    flusher: thread::JoinHandle<()>,
    settled: mpsc::Receiver<Result<Log, OpenError>>,
}

impl Settling {
    fn start(begun: Begun) -> Result<Settling, OpenError> {
        let (tell, settled) = mpsc::channel();
        let dir = begun.opening.dir.clone();
        let flush = move || match begun.settle() {
            Ok(log) => {
                let shared = Arc::clone(log.shared());
                if tell.send(Ok(log)).is_ok() {
                    shared.run_flusher();
                }
            }
            Err(e) => drop(tell.send(Err(e))),
        };
        let flusher = thread::Builder::new()
            .name("dalsegno-flush".into())
            .spawn(flush)
            .map_err(|e| IoFailure::new("start a thread for", &dir, e))?;
        Ok(Settling { flusher, settled })
    }

    fn wait(self) -> Result<Log, OpenError> {
        let Ok(log) = self.settled.recv() else {
            // It says nothing only if it panicked: then so does this.
            let panic = self.flusher.join().err();
            resume_unwind(panic.unwrap_or_else(|| Box::new("it has ended")));
        };
        let log = log?;
        log.has_flusher(self.flusher);
        Ok(log)
    }
}

/// A log that is locked and was read. Nothing was changed yet.
struct Begun {
    options: Options,
    opening: Opening,
    walked: Walked,
    lock: Box<dyn FsLock>,
    /// The folder was there, so that its name has to be made durable only before this returns.
    was_there: bool,
}

impl Begun {
    fn new(dir: &Path, options: Options) -> Result<Begun, OpenError> {
        let fs = options.fs.as_ref();
        let was_there = fs.list(dir).is_ok();
        if !was_there {
            make_folder(fs, dir)?;
        }
        let lock = take_lock(fs, dir)?;
        let opening = Opening {
            fs: Arc::clone(&options.fs),
            dir: dir.to_owned(),
            sizes: options.segment_sizes(),
            mutant: options.mutant,
        };
        Ok(Begun {
            walked: opening.walk()?,
            options,
            opening,
            lock,
            was_there,
        })
    }

    /// The records, if settling changes nothing about where they are.
    fn records(&self) -> Option<FoundRecords> {
        let end = self.walked.end.as_ref().filter(|end| end.goes_on())?;
        let next_lsn = end.scan.at_end.unwrap_or(BEFORE_THE_FIRST).lsn;
        let source = Source {
            fs: Arc::clone(&self.opening.fs),
            dir: self.opening.dir.clone(),
            log_id: end.scan.header.log_id,
            segments: Arc::new(Mutex::new(end.started.clone())),
            limit: Arc::new(AtomicU64::new(next_lsn - 1)),
            mutant: self.opening.mutant,
        };
        Some(FoundRecords { source })
    }

    fn settle(self) -> Result<Log, OpenError> {
        let (opening, options) = (self.opening, self.options);
        let mut found = opening.settle(self.walked)?;
        // Who left a note had the folder made, durably.
        if self.was_there && !found.handed_over {
            make_folder(opening.fs.as_ref(), &opening.dir)?;
        }
        let spare = Spare::new(
            opening.fs,
            opening.dir.clone(),
            opening.mutant,
            options.threads,
            found.spare.take(),
        );
        let mut segments = std::mem::take(&mut found.started);
        let (log_id, next_lsn) = (found.log_id, found.expect.lsn);
        let (clean, torn, ends_in_mark) = (found.clean, found.torn.take(), found.ends_in_mark);
        let handed_over = found.handed_over;
        let mut writer = Writer::new(
            found,
            opening.dir.clone(),
            opening.sizes,
            opening.mutant,
            Arc::clone(&spare),
        );
        if !ends_in_mark && !handed_over {
            segments.extend(writer.write_opened().map_err(|e| match e {
                WriteError::NoSpace(failure) | WriteError::Fatal(failure) => failure,
            })?);
        }
        let recovery = Recovery {
            first_lsn: segments.first().map_or(next_lsn, |(_, lsn)| *lsn),
            last_lsn: next_lsn - 1,
            epoch: writer.epoch(),
            clean,
            torn,
            handed_over,
        };
        let shared = Shared::new(
            options,
            opening.dir,
            writer,
            log_id,
            next_lsn,
            segments,
            self.lock,
        );
        Ok(Log::new(Arc::new(shared), spare, recovery))
    }
}

fn make_folder(fs: &dyn Fs, dir: &Path) -> Result<(), OpenError> {
    let made = fs.create_dir(dir);
    made.map_err(|e| IoFailure::new("make the folder", dir, e).into())
}

pub(crate) fn take_lock(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn FsLock>, OpenError> {
    let path = dir.join(LOCK_FILE);
    let me = format!("process {}", std::process::id());
    fs.lock(&path, &me).map_err(|e| match e {
        LockError::Held(owner) => OpenError::Locked {
            dir: dir.to_owned(),
            owner: if owner.is_empty() {
                "another process".into()
            } else {
                owner
            },
        },
        LockError::Io(e) => IoFailure::new("lock", &path, e).into(),
    })
}
