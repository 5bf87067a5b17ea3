//! A file system in memory, to open a log made of any bytes and fast enough to do so often.
//!
//! It loses nothing and tears nothing. It counts what is asked of it, so that a test can tell work
//! that ends from work that does not, and it refuses to remove a file when told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode};

type Content = Arc<Mutex<Vec<u8>>>;

/// Clones are the same file system.
#[derive(Clone, Debug, Default)]
pub struct MemFs(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: Mutex<BTreeMap<PathBuf, Content>>,
    locks: Mutex<BTreeSet<PathBuf>>,
    calls: AtomicU64,
    removals_to_refuse: AtomicU64,
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl MemFs {
    pub fn new() -> MemFs {
        MemFs::default()
    }

    /// Another file system with the same files.
    pub fn copy(&self) -> MemFs {
        let copy = MemFs::new();
        for (path, content) in hold(&self.0.files).iter() {
            copy.put(path, hold(content).clone());
        }
        copy
    }

    pub fn put(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        let content = Arc::new(Mutex::new(bytes));
        hold(&self.0.files).insert(path.as_ref().to_owned(), content);
    }

    pub fn get(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let content = hold(&self.0.files).get(path.as_ref()).cloned()?;
        let bytes = hold(&content).clone();
        Some(bytes)
    }

    /// The files there are, by path.
    pub fn paths(&self) -> Vec<PathBuf> {
        hold(&self.0.files).keys().cloned().collect()
    }

    pub fn total_bytes(&self) -> usize {
        let files = hold(&self.0.files);
        files.values().map(|content| hold(content).len()).sum()
    }

    /// How much has been asked of this file system.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    pub fn refuse_removals(&self, times: u64) {
        self.0.removals_to_refuse.store(times, Ordering::Relaxed);
    }

    fn count(&self) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Fs for MemFs {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.count();
        let files = hold(&self.0.files);
        let inside = files.keys().filter(|path| path.parent() == Some(dir));
        let names = inside.filter_map(|path| path.file_name()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        self.count();
        let mut files = hold(&self.0.files);
        let content = match (files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(content), _) => Arc::clone(content),
            (None, OpenMode::CreateNew) => {
                let content = Content::default();
                files.insert(path.to_owned(), Arc::clone(&content));
                content
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let fs = self.clone();
        Ok(Box::new(MemFile { fs, content }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = hold(&self.0.files);
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let refuse = &self.0.removals_to_refuse;
        let less = |n: u64| n.checked_sub(1);
        let refused = refuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if refused.is_ok() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match hold(&self.0.files).remove(path) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path, _owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        if !hold(&self.0.locks).insert(path.to_owned()) {
            return Err(LockError::Held("a test".into()));
        }
        let (fs, path) = (self.clone(), path.to_owned());
        Ok(Box::new(MemLock { fs, path }))
    }

    fn unique(&self) -> u64 {
        0x5eed
    }
}

#[derive(Debug)]
struct MemLock {
    fs: MemFs,
    path: PathBuf,
}

impl FsLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        hold(&self.fs.0.locks).remove(&self.path);
    }
}

#[derive(Debug)]
struct MemFile {
    fs: MemFs,
    content: Content,
}

impl FsFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.count();
        let content = hold(&self.content);
        let from = usize::try_from(offset).map_or(content.len(), |at| at.min(content.len()));
        let n = buf.len().min(content.len() - from);
        buf[..n].copy_from_slice(&content[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.fs.count();
        let mut content = hold(&self.content);
        let at = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = at + buf.len();
        if end > content.len() {
            content.resize(end, 0);
        }
        content[at..end].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(hold(&self.content).len() as u64)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        hold(&self.content).resize(len as usize, 0);
        Ok(())
    }
}
