//! A file system in memory, to open a log made of any bytes and fast enough to do so often.
//!
//! It loses nothing and tears nothing. It counts what is asked of it, so that a test can tell work
//! that ends from work that does not. When told to, it is full, and refuses to open or to remove
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode};

/// What the operating system says of too many open files.
const EMFILE: i32 = 24;

type Content = Arc<Mutex<Vec<u8>>>;

/// Clones are the same file system.
#[derive(Clone, Debug, Default)]
pub struct MemFs(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: Mutex<BTreeMap<PathBuf, Content>>,
    locks: Mutex<BTreeSet<PathBuf>>,
    calls: AtomicU64,
    syncs: AtomicU64,
    bytes_read: AtomicU64,
    open_files: AtomicU64,
    most_open_files: AtomicU64,
    full: AtomicBool,
    opens_to_refuse: AtomicU64,
    removals_to_refuse: AtomicU64,
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether this is one of the times that were to be refused; then it is one less.
fn refused(times: &AtomicU64) -> bool {
    let less = |n: u64| n.checked_sub(1);
    times
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok()
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

    /// Of files and of folders.
    pub fn syncs(&self) -> u64 {
        self.0.syncs.load(Ordering::Relaxed)
    }

    pub fn bytes_read(&self) -> u64 {
        self.0.bytes_read.load(Ordering::Relaxed)
    }

    /// The most files that were open at a time while `work` was done, beyond those before it.
    pub fn most_open_files(&self, work: impl FnOnce()) -> u64 {
        let before = self.0.open_files.load(Ordering::Relaxed);
        self.0.most_open_files.store(before, Ordering::Relaxed);
        work();
        self.0.most_open_files.load(Ordering::Relaxed) - before
    }

    /// No file can be made while there is no room. Those there are do not grow.
    pub fn set_full(&self, full: bool) {
        self.0.full.store(full, Ordering::Relaxed);
    }

    /// As if too many files were open, so many times.
    pub fn refuse_opens(&self, times: u64) {
        self.0.opens_to_refuse.store(times, Ordering::Relaxed);
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
        // Of the folder that its name is in.
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
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
        if refused(&self.0.opens_to_refuse) {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        let mut files = hold(&self.0.files);
        let content = match (files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::CreateNew) if self.0.full.load(Ordering::Relaxed) => {
                return Err(io::ErrorKind::StorageFull.into());
            }
            (Some(content), _) => Arc::clone(content),
            (None, OpenMode::CreateNew) => {
                let content = Content::default();
                files.insert(path.to_owned(), Arc::clone(&content));
                content
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let fs = self.clone();
        let open = self.0.open_files.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.most_open_files.fetch_max(open, Ordering::Relaxed);
        Ok(Box::new(MemFile { fs, content }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = hold(&self.0.files);
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if refused(&self.0.removals_to_refuse) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match hold(&self.0.files).remove(path) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
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

impl Drop for MemFile {
    fn drop(&mut self) {
        self.fs.0.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FsFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.count();
        let content = hold(&self.content);
        let from = usize::try_from(offset).map_or(content.len(), |at| at.min(content.len()));
        let n = buf.len().min(content.len() - from);
        buf[..n].copy_from_slice(&content[from..from + n]);
        self.fs.0.bytes_read.fetch_add(n as u64, Ordering::Relaxed);
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
        self.fs.0.syncs.fetch_add(1, Ordering::Relaxed);
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
