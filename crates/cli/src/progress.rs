//! Shows on a terminal that long work goes on: a file system that counts what is read. Where signals
//! are watched for, reading ends with the first one.
//!
//! Invariant: nothing is shown where nobody looks: on a pipe, with `--json`, or for work that is
//! done in a moment.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode, RealFs};

use crate::interrupt;
use crate::output::Out;
use crate::output::size;

/// Not before, and not more often.
const EVERY_MS: u64 = 250;

/// The operating system's file system, with a count of what was read on stderr.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Shown>);

#[derive(Debug)]
struct Shown {
    what: &'static str,
    enabled: bool,
    began: Instant,
    bytes: AtomicU64,
    next_ms: AtomicU64,
}

impl Progress {
    /// Of work that is called so.
    pub fn new(what: &'static str, out: &Out) -> Progress {
        Progress(Arc::new(Shown {
            what,
            enabled: !out.is_json() && io::stderr().is_terminal(),
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            next_ms: AtomicU64::new(EVERY_MS),
        }))
    }

    /// As a file system.
    pub fn fs(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    fn read(&self, bytes: usize) {
        let bytes = bytes as u64;
        let total = self.0.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.say(|| format!("{} read", size::bytes(total)));
    }

    /// Says how far it is, if it is time to.
    pub fn say(&self, words: impl FnOnce() -> String) {
        let shown = &*self.0;
        if !shown.enabled {
            return;
        }
        let now_ms = shown.began.elapsed().as_millis() as u64;
        let due = shown.next_ms.load(Ordering::Relaxed);
        if now_ms >= due {
            shown.next_ms.store(now_ms + EVERY_MS, Ordering::Relaxed);
            let text = format!("\r\x1b[K{}: {}", shown.what, words());
            // Who does not see it misses nothing.
            drop(io::stderr().write_all(text.as_bytes()));
        }
    }

    /// Takes the line away again.
    pub fn end(&self) {
        if self.0.enabled && self.0.next_ms.load(Ordering::Relaxed) > EVERY_MS {
            drop(io::stderr().write_all(b"\r\x1b[K"));
        }
    }
}

impl Fs for Progress {
    fn absolute(&self, dir: &Path) -> io::Result<PathBuf> {
        RealFs.absolute(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        let file = RealFs.open(path, mode)?;
        Ok(Box::new(Counted(file, self.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.sync_dir(dir)
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        RealFs.lock(path, owner)
    }

    fn unique(&self) -> u64 {
        RealFs.unique()
    }
}

#[derive(Debug)]
struct Counted(Box<dyn FsFile>, Progress);

impl FsFile for Counted {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        interrupt::check()?;
        let read = self.0.read_at(buf, offset)?;
        self.1.read(read);
        Ok(read)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
}
