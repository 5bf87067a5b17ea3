//! Who works on a run of a script, while the store itself is free for others.
//!
//! The lock is the kernel's, on a file in the store's folder, and a command that is run has it too:
//! so it is held while any process of the step is alive, also if `dalsegno step` itself was killed.
//! Whoever comes next waits for what that one left behind.
//!
//! A run in a database has no such lock: its lease says who works on it (see `step/access.rs`).
//!
//! Invariant: who has the lock has it on the file that is in the folder now. The file goes with an
//! orderly end, so a process that a command has left in the background keeps nobody out.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dalsegno_store::Hash;

use crate::address::Place;
use crate::exit::{Error, READ_ONLY, Result};
use crate::output::text::shown;

const FOLDER: &str = "locks";
/// How often it is looked again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The right to work on a run.
#[derive(Debug)]
pub struct RunLock {
    /// `None` of a run in a database, where the lease alone says who works on it.
    held: Option<(PathBuf, File)>,
}

impl RunLock {
    /// Takes the lock of a run if nobody has it; `what` is what it is taken for, for others to read.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn try_take(store: &Path, run: &str, what: &str) -> Result<Option<RunLock>> {
        if Place::of(store).is_database() {
            return Ok(Some(RunLock { held: None }));
        }
        let path = path_of(store, run)?;
        match try_take(&path, what).map_err(|e| failed("lock", &path, &e))? {
            Taken::Ours(file) => Ok(Some(RunLock::held(path, file))),
            Taken::Held(_) => Ok(None),
        }
    }

    /// Waits for the lock of a run.
    ///
    /// # Errors
    /// Somebody else has it for longer, who is named; or the folder cannot be written.
    pub async fn take(store: &Path, run: &str, what: &str, wait: Duration) -> Result<RunLock> {
        if Place::of(store).is_database() {
            return Ok(RunLock { held: None });
        }
        let path = path_of(store, run)?;
        let until = Instant::now() + wait;
        loop {
            match try_take(&path, what).map_err(|e| failed("lock", &path, &e))? {
                Taken::Ours(file) => return Ok(RunLock::held(path, file)),
                Taken::Held(by) if Instant::now() >= until => return Err(held(run, &by, wait)),
                Taken::Held(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Who works on a run, without taking anything or making a file: `None` if nobody does.
    ///
    /// # Errors
    /// The file may not be read.
    pub fn holder(store: &Path, run: &str) -> std::io::Result<Option<String>> {
        let mut file = match File::open(file_of(store, run)) {
            Ok(file) => file,
            // It went with an orderly end.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(text_of(&mut file))),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// For the commands that work under it.
    pub fn file(&self) -> Option<&File> {
        self.held.as_ref().map(|(_, file)| file)
    }

    fn held(path: PathBuf, file: File) -> RunLock {
        let held = Some((path, file));
        RunLock { held }
    }

    /// Gives it up, also for whatever the commands have left behind.
    pub fn release(self) {
        // Who cannot remove it leaves a file of no meaning.
        if let Some((path, _)) = &self.held {
            drop(std::fs::remove_file(path));
        }
    }
}

fn path_of(store: &Path, run: &str) -> Result<PathBuf> {
    let folder = store.join(FOLDER);
    if !folder.is_dir() {
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        match made {
            // Somebody else was faster.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|e| failed("make", &folder, &e))?,
        }
    }
    Ok(file_of(store, run))
}

fn file_of(store: &Path, run: &str) -> PathBuf {
    let name = format!("{}.run", Hash::of(run.as_bytes()));
    store.join(FOLDER).join(name)
}

/// What it was taken for, in words. They are for people only.
fn text_of(file: &mut File) -> String {
    let mut by = String::new();
    drop(file.take(400).read_to_string(&mut by));
    by
}

enum Taken {
    Ours(File),
    Held(String),
}

fn try_take(path: &Path, what: &str) -> std::io::Result<Taken> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Taken::Held(text_of(&mut file))),
        Err(TryLockError::Error(e)) => return Err(e),
    }
    // It may have been removed by who had it, between our opening and locking it.
    let is_there = std::fs::metadata(path).is_ok_and(|there| {
        file.metadata()
            .is_ok_and(|ours| (there.ino(), there.dev()) == (ours.ino(), ours.dev()))
    });
    if !is_there {
        return Ok(Taken::Held(String::new()));
    }
    // The words are for people only: a full disk has no room for them, and is no reason.
    let mut words = || {
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "process {} {what}", std::process::id())
    };
    drop(words());
    Ok(Taken::Ours(file))
}

fn held(run: &str, by: &str, wait: Duration) -> Error {
    let by = match by.trim() {
        "" => "another process".to_owned(),
        by => shown(by),
    };
    let run = shown(run);
    Error::failed(format!(
        "run {run:?} is being worked on by {by}, or by a command that it has left behind"
    ))
    .hint(format!(
        "it was waited for {wait:?}: wait longer with --wait, or stop it"
    ))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let place = shown(&path.display().to_string());
    let failed = Error::failed(format!("cannot {what} {place}: {error}"));
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            failed.hint("run this as the user that the store belongs to")
        }
        std::io::ErrorKind::ReadOnlyFilesystem => failed.hint(READ_ONLY),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            failed.hint("make room, and run it again")
        }
        _ => failed,
    }
}
