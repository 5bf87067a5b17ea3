//! The folder of a store: what is where in it, and the marker that says it is one.
//!
//! | name | what it is |
//! |---|---|
//! | `store` | the marker: format and id. Placed first, never changed |
//! | `log/` | the truth |
//! | `index/` | for each sealed segment of the log, what is where in it. Can be deleted |
//! | `snapshots/` | states. Can be deleted |
//! | `helpers/` | what memories keep so that they open faster. Can be deleted |
//! | `mailbox/` | letters from other processes |
//! | `archive/` | portable files of runs that were retired |
//! | `aside/` | what repairing removed |
//!
//! Invariant: a folder with anything in it that is no store is never changed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::IoFailure;
use dalsegno_log::fs::{Fs, OpenMode, place_file};

use crate::error::StoreError;
use crate::hash::Hash;
use crate::rules::Mutant;

/// The format of stores that this version writes.
pub const FORMAT: u64 = 1;

pub(crate) const MARKER: &str = "store";
pub(crate) const LOG: &str = "log";
const TITLE: &str = "dalsegno store";
/// A marker has less than 200 bytes.
const MARKER_LIMIT_BYTES: usize = 4096;

/// The folder of a store.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub fs: Arc<dyn Fs>,
    pub dir: PathBuf,
    /// A number that tells this store from others.
    pub id: u64,
    pub mutant: Mutant,
}

impl Folder {
    /// Finds the store in a folder; makes one in an empty or missing folder if `create` says so.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, create: bool) -> Result<Folder, StoreError> {
        let absolute = fs.absolute(dir);
        let dir = absolute.map_err(|e| IoFailure::new("find", dir, e))?;
        let path = dir.join(MARKER);
        match fs.open(&path, OpenMode::Read) {
            Ok(file) => {
                let mut bytes = vec![0; MARKER_LIMIT_BYTES];
                let length = match file.read_full(&mut bytes, 0) {
                    // A folder can be opened, but not read: perhaps it is the store.
                    Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                        let why = format!("{MARKER} is a folder in it, and no file");
                        return Err(StoreError::NotAStore { dir, why });
                    }
                    read => read.map_err(|e| IoFailure::new("read", &path, e))?,
                };
                let id = read_marker(&path, &bytes[..length])?;
                Ok(Folder::new(fs, dir, id))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Folder::create(fs, dir, create),
            Err(e) => Err(IoFailure::new("open", &path, e).into()),
        }
    }

    fn create(fs: Arc<dyn Fs>, dir: PathBuf, create: bool) -> Result<Folder, StoreError> {
        let not_a_store = |why: String| StoreError::NotAStore {
            dir: dir.clone(),
            why,
        };
        match fs.list(&dir) {
            Ok(names) => {
                // What a crash can leave of the marker does not count.
                let half_made = format!("{MARKER}.tmp");
                let foreign = names.iter().find(|name| **name != half_made);
                if let Some(name) = foreign {
                    return Err(not_a_store(format!(
                        "it has {name} in it, but no file named {MARKER}"
                    )));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(IoFailure::new("list", &dir, e).into()),
        }
        if !create {
            return Err(not_a_store("there is nothing in it".into()));
        }
        let failed = |operation, e| IoFailure::new(operation, &dir, e);
        fs.create_dir(&dir).map_err(|e| failed("create", e))?;
        let id = fs.unique();
        let folder = Folder::new(fs, dir, id);
        folder.write_marker()?;
        Ok(folder)
    }

    /// A store that is known to be there, or is about to be.
    pub fn new(fs: Arc<dyn Fs>, dir: PathBuf, id: u64) -> Folder {
        Folder {
            fs,
            dir,
            id,
            mutant: Mutant::default(),
        }
    }

    /// Places the marker once more if nothing has been written behind it yet: the sync of its name
    /// may have failed, or never come, and then it can be seen and yet be lost.
    pub fn settle_marker(&self) -> Result<(), StoreError> {
        match self.list(&self.log())?.is_empty() {
            true => self.write_marker(),
            false => Ok(()),
        }
    }

    /// Places the marker.
    pub fn write_marker(&self) -> Result<(), StoreError> {
        self.place(&self.dir, MARKER, marker(self.id).as_bytes())
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    pub fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    pub fn snapshots(&self) -> PathBuf {
        self.dir.join("snapshots")
    }

    pub fn helpers(&self) -> PathBuf {
        self.dir.join("helpers")
    }

    pub fn mailbox(&self) -> PathBuf {
        self.dir.join("mailbox")
    }

    pub fn archive(&self) -> PathBuf {
        self.dir.join("archive")
    }

    pub fn aside(&self) -> PathBuf {
        self.dir.join("aside")
    }

    /// The files in a folder of the store; none if it is missing.
    pub fn list(&self, dir: &Path) -> Result<Vec<String>, StoreError> {
        match self.fs.list(dir) {
            Ok(mut names) => {
                names.sort_unstable();
                Ok(names)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(IoFailure::new("list", dir, e).into()),
        }
    }

    /// All of a file, if it is not longer than `limit`.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, StoreError> {
        let failed = |e| IoFailure::new("read", path, e);
        let file = self.fs.open(path, OpenMode::Read).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        if length > limit {
            let (what, size) = ("a file", length);
            return Err(StoreError::TooLarge { what, size, limit });
        }
        let mut bytes = vec![0; length as usize];
        let got = file.read_full(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Puts a file in place: complete and durable, or absent.
    pub fn place(&self, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let created = self.fs.create_dir(dir);
        created.map_err(|e| IoFailure::new("create", dir, e))?;
        let path = dir.join(name);
        place_file(self.fs.as_ref(), dir, &path, |file| {
            file.write_full(bytes, 0)
        })
        .map_err(|e| IoFailure::new("write", &path, e.into()))?;
        Ok(())
    }

    /// Removes files that may be there; durable when it returns.
    pub fn remove(&self, dir: &Path, names: &[String]) -> Result<(), StoreError> {
        for name in names {
            let path = dir.join(name);
            match self.fs.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(IoFailure::new("remove", &path, e).into());
                }
                _ => {}
            }
        }
        if !names.is_empty() {
            let synced = self.fs.sync_dir(dir);
            synced.map_err(|e| IoFailure::new("sync", dir, e))?;
        }
        Ok(())
    }
}

fn marker(id: u64) -> String {
    let text = format!("{TITLE}\nformat {FORMAT}\nid {id:016x}\n");
    let hash = Hash::of(text.as_bytes());
    format!("{text}blake3 {hash}\n")
}

fn read_marker(path: &Path, bytes: &[u8]) -> Result<u64, StoreError> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let dir = path.parent().unwrap_or(path).to_owned();
    if lines.next() != Some(TITLE) {
        let why = format!("the file {MARKER} is not the marker of a store");
        return Err(StoreError::NotAStore { dir, why });
    }
    let format = lines.next().and_then(|line| line.strip_prefix("format "));
    // A newer format may have a marker of another form from here on.
    match format.and_then(|format| format.parse::<u64>().ok()) {
        Some(found) if found > FORMAT => {
            return Err(StoreError::Version {
                path: path.to_owned(),
                found,
                known: FORMAT,
            });
        }
        _ => {}
    }
    let id = lines.next().and_then(|line| line.strip_prefix("id "));
    let id = id.and_then(|id| u64::from_str_radix(id, 16).ok());
    match id.filter(|id| marker(*id).as_bytes() == bytes) {
        Some(id) => Ok(id),
        None => Err(StoreError::damaged(
            path.display().to_string(),
            "the marker of a store",
            format!("{:?}", text.chars().take(160).collect::<String>()),
        )),
    }
}
