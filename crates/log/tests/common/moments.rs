//! A file system that lets something happen in the middle of what is done on it: before a certain
//! call, counted from when that was asked for.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode};

use super::mem_fs::MemFs;

/// Clones count together. Others on the same files count for themselves.
#[derive(Clone, Debug)]
pub struct Moments {
    fs: MemFs,
    next: Arc<Mutex<Option<Moment>>>,
}

struct Moment {
    calls_left: u64,
    happens: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {} calls", self.calls_left)
    }
}

impl Moments {
    pub fn of(fs: &MemFs) -> Moments {
        let (fs, next) = (fs.clone(), Arc::default());
        Moments { fs, next }
    }

    /// Before the `nth` call from now on, counted from 1.
    pub fn before_call(&self, nth: u64, happens: impl FnOnce() + Send + 'static) {
        let (calls_left, happens) = (nth, Box::new(happens));
        *self.next.lock().unwrap() = Some(Moment {
            calls_left,
            happens,
        });
    }

    /// Whether the moment has not come. It does not come any more.
    pub fn call_off(&self) -> bool {
        let called_off = self.next.lock().unwrap().take();
        // Dropped without the lock: what it holds may use this file system.
        called_off.is_some()
    }

    fn call(&self) {
        let mut next = self.next.lock().unwrap();
        let Some(moment) = &mut *next else {
            return;
        };
        moment.calls_left -= 1;
        let due = next.take_if(|moment| moment.calls_left == 0);
        // What happens may use this file system too.
        drop(next);
        if let Some(moment) = due {
            (moment.happens)();
        }
    }
}

impl Fs for Moments {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.call();
        self.fs.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.call();
        self.fs.list(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        self.call();
        let (fs, file) = (self.clone(), self.fs.open(path, mode)?);
        Ok(Box::new(MomentsFile { fs, file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call();
        self.fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call();
        self.fs.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call();
        self.fs.sync_dir(dir)
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        self.call();
        self.fs.lock(path, owner)
    }

    fn unique(&self) -> u64 {
        self.fs.unique()
    }
}

#[derive(Debug)]
struct MomentsFile {
    fs: Moments,
    file: Box<dyn FsFile>,
}

impl FsFile for MomentsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.call();
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.fs.call();
        self.file.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.call();
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.fs.call();
        self.file.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.fs.call();
        self.file.truncate(len)
    }
}
