//! The one door to the file system.
//!
//! Everything the log does to a disk goes through [`Fs`] and [`FsFile`]. There are two
//! implementations: [`RealFs`] here, and the simulated disk of the `dalsegno-sim` crate, which
//! loses, tears, reorders and fails whatever POSIX allows it to.
//!
//! What the log may rely on, and nothing more:
//!
//! | call | promise |
//! |---|---|
//! | `write_at` | after a crash each 512-byte sector holds some state it had since the last `sync`, independently of its neighbours; the call may write less than asked |
//! | `sync` of a file | content and length written before it survive a crash; says nothing about the name |
//! | `sync_dir` | names created, renamed and removed before it survive a crash |
//! | failed `sync` | what it covered may be lost although it can still be read, and a later `sync` reports success |
//! | `lock` | at most one holder, released when the holder's process ends, however it ends |

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) mod place;
mod real;

pub use place::{PlaceError, place_file};
pub use real::RealFs;

/// How [`Fs::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading (and for `sync`).
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A new, empty file; an error if the name is taken.
    CreateNew,
}

/// Why [`Fs::lock`] did not give the lock.
#[derive(Debug)]
pub enum LockError {
    /// Somebody holds it; the text is what the holder left in the file.
    Held(String),
    /// The file system failed.
    Io(io::Error),
}

/// A held lock. Dropping it releases the lock.
pub trait FsLock: Send + Sync + fmt::Debug {}

/// What the log asks of a file system.
pub trait Fs: Send + Sync + fmt::Debug {
    /// The path that means the same folder also after the process has gone to another one.
    fn absolute(&self, dir: &Path) -> io::Result<PathBuf> {
        Ok(dir.to_owned())
    }

    /// Creates a folder and its missing parents, readable by their owner only, and makes their
    /// names durable. Not an error if it is already there.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names of the files in a folder, in any order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens a file. New files are readable by their owner only.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>>;

    /// Gives a file another name in the same folder, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the lock that the file at `path` stands for, and leaves `owner` in it for others to
    /// read.
    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError>;

    /// A number that no other caller is likely to get.
    fn unique(&self) -> u64;
}

/// An open file. Positions are explicit; there is no cursor.
#[allow(clippy::len_without_is_empty)] // Nobody asks.
pub trait FsFile: Send + Sync + fmt::Debug {
    /// Reads at most `buf.len()` bytes; 0 at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at most `buf.len()` bytes and says how many.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes content and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;
}

impl dyn FsFile + '_ {
    /// Fills `buf` from `offset` until it is full or the file ends; says how much it got.
    pub fn read_full(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes all of `buf` at `offset`, through short writes and interruptions.
    pub fn write_full(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.write_at(&buf[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
