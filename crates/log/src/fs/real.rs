//! The operating system's file system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Fs, FsFile, FsLock, LockError, OpenMode};

/// Files and folders of this machine. Folders are made 0700, files 0600.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl Fs for RealFs {
    fn absolute(&self, dir: &Path) -> io::Result<PathBuf> {
        std::path::absolute(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) => Path::new("."),
            // The root, which needs no name.
            None => return Ok(()),
        };
        if dir.is_dir() {
            // Whoever made it may have been killed before its name was durable. A folder that we
            // may not read is not one that we made this in.
            return match self.sync_dir(parent) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                other => other,
            };
        }
        self.create_dir(parent)?;
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => self.sync_dir(parent),
            // Somebody else was faster, or it is a file: then opening it will say so.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is no text is none of ours; but the folder is not empty.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        let mut options = OpenOptions::new();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::Write => options.read(true).write(true),
            OpenMode::CreateNew => options.read(true).write(true).create_new(true).mode(0o600),
        };
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only the first bytes: the file is from outside and may be anything.
                let read = Read::by_ref(&mut file)
                    .take(200)
                    .read_to_string(&mut holder);
                return Err(match read {
                    Ok(_) => LockError::Held(holder.trim().to_owned()),
                    Err(_) => LockError::Held(String::new()),
                });
            }
            Err(TryLockError::Error(e)) => return Err(LockError::Io(e)),
        }
        // The text only names the owner; the lock itself is the kernel's and ends with us.
        leave_name(&mut file, owner).map_err(LockError::Io)?;
        Ok(Box::new(RealLock {
            file,
            taken_by: std::process::id(),
        }))
    }

    fn unique(&self) -> u64 {
        // RandomState is seeded by the operating system.
        RandomState::new().hash_one(std::time::SystemTime::now())
    }
}

fn leave_name(file: &mut File, owner: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(owner.as_bytes())
}

#[derive(Debug)]
struct RealLock {
    file: File,
    taken_by: u32,
}

impl FsLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Explicitly, because a fork of this process has the file open too, and closing it here
        // would leave the lock with the fork. The fork itself must not give it up.
        if std::process::id() == self.taken_by {
            // An error changes nothing: the lock ends with the process at the latest.
            drop(self.file.unlock());
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

impl FsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}
