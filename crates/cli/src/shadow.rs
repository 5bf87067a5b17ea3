//! A file system that only pretends to change anything: for saying what a command would do by doing
//! it, all of it, on a shadow.
//!
//! Files that were made or changed are in memory; all others are read from the disk.
//!
//! Invariant: nothing is ever written to the disk, no lock taken, no folder made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode, RealFs};

/// Changes that did not happen.
#[derive(Clone, Debug, Default)]
pub struct Shadow(Arc<Mutex<Changes>>);

type Bytes = Arc<Mutex<Vec<u8>>>;

#[derive(Debug, Default)]
struct Changes {
    /// What is in memory; `None` if it was removed.
    files: BTreeMap<PathBuf, Option<Bytes>>,
    folders: BTreeSet<PathBuf>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shadow {
    /// The file in memory, taken there if it is on disk.
    fn in_memory(&self, path: &Path) -> io::Result<Bytes> {
        let mut changes = lock(&self.0);
        match changes.files.get(path) {
            Some(Some(bytes)) => Ok(Arc::clone(bytes)),
            Some(None) => Err(ErrorKind::NotFound.into()),
            None => {
                let bytes = Arc::new(Mutex::new(std::fs::read(path)?));
                changes
                    .files
                    .insert(path.to_owned(), Some(Arc::clone(&bytes)));
                Ok(bytes)
            }
        }
    }
}

impl Fs for Shadow {
    fn absolute(&self, dir: &Path) -> io::Result<PathBuf> {
        RealFs.absolute(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if !dir.is_dir() {
            lock(&self.0).folders.insert(dir.to_owned());
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let changes = lock(&self.0);
        let mut names: BTreeSet<String> = match RealFs.list(dir) {
            Ok(names) => names.into_iter().collect(),
            Err(e) if e.kind() == ErrorKind::NotFound && changes.folders.contains(dir) => {
                BTreeSet::new()
            }
            Err(e) => return Err(e),
        };
        for (path, file) in &changes.files {
            let name = path.file_name().map(|name| name.to_string_lossy());
            if let (true, Some(name)) = (path.parent() == Some(dir), name) {
                match file {
                    Some(_) => names.insert(name.into_owned()),
                    None => names.remove(&*name),
                };
            }
        }
        Ok(names.into_iter().collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        let known = lock(&self.0).files.get(path).cloned();
        match (known, mode) {
            (None, OpenMode::Read) => RealFs.open(path, mode),
            (Some(Some(bytes)), OpenMode::Read) => Ok(Box::new(InMemory(bytes))),
            (Some(None), OpenMode::Read) => Err(ErrorKind::NotFound.into()),
            (_, OpenMode::Write) => Ok(Box::new(InMemory(self.in_memory(path)?))),
            (Some(Some(_)), OpenMode::CreateNew) => Err(ErrorKind::AlreadyExists.into()),
            (None, OpenMode::CreateNew) if path.symlink_metadata().is_ok() => {
                Err(ErrorKind::AlreadyExists.into())
            }
            (_, OpenMode::CreateNew) => {
                let bytes = Bytes::default();
                let mut changes = lock(&self.0);
                changes
                    .files
                    .insert(path.to_owned(), Some(Arc::clone(&bytes)));
                Ok(Box::new(InMemory(bytes)))
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let bytes = self.in_memory(from)?;
        let mut changes = lock(&self.0);
        changes.files.insert(from.to_owned(), None);
        changes.files.insert(to.to_owned(), Some(bytes));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut changes = lock(&self.0);
        let there = match changes.files.get(path) {
            Some(file) => file.is_some(),
            None => path.symlink_metadata().is_ok(),
        };
        if !there {
            return Err(ErrorKind::NotFound.into());
        }
        changes.files.insert(path.to_owned(), None);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Refused if somebody has the real one: what is read could change meanwhile.
    fn lock(&self, path: &Path, _: &str) -> Result<Box<dyn FsLock>, LockError> {
        let dir = path.parent().unwrap_or(path);
        match dalsegno_log::owner_of(dir) {
            Some(owner) => Err(LockError::Held(owner)),
            None => Ok(Box::new(NoLock)),
        }
    }

    fn unique(&self) -> u64 {
        RealFs.unique()
    }
}

#[derive(Debug)]
struct NoLock;

impl FsLock for NoLock {}

#[derive(Debug)]
struct InMemory(Bytes);

impl FsFile for InMemory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = lock(&self.0);
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let count = buf.len().min(bytes.len() - start);
        buf[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut bytes = lock(&self.0);
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + buf.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        lock(&self.0).resize(len, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn changes_are_seen_and_do_not_happen() {
        let dir = std::env::temp_dir().join(format!("dalsegno-shadow-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (a, b) = (dir.join("a"), dir.join("b"));
        std::fs::write(&a, b"real").unwrap();
        let shadow = Shadow::default();
        let file = shadow.open(&a, OpenMode::Write).unwrap();
        file.write_full(b"other", 2).unwrap();
        shadow.rename(&a, &b).unwrap();
        assert_eq!(shadow.list(&dir).unwrap(), ["b"]);
        assert!(shadow.open(&a, OpenMode::Read).is_err());
        let mut bytes = [0; 16];
        let read = shadow.open(&b, OpenMode::Read).unwrap();
        let count = read.read_full(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..count], b"reother");
        shadow.remove(&b).unwrap();
        assert!(shadow.remove(&b).is_err());
        assert_eq!(shadow.list(&dir).unwrap(), [""; 0]);
        shadow.create_dir(&dir.join("new")).unwrap();
        assert_eq!(shadow.list(&dir.join("new")).unwrap(), [""; 0]);
        assert_eq!(std::fs::read(&a).unwrap(), b"real");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
