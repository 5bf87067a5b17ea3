//! Copying a store into another folder, also beside its owner: a backup that opens as it is.
//!
//! | order | what | why there |
//! |---:|---|---|
//! | 1 | letters | one that is taken up meanwhile is an event in the log, and its file a leftover |
//! | 2 | snapshots | none may be ahead of the log |
//! | 3 | the log | see `copy.rs` of the log |
//! | 4 | archives, and what was set aside | a run is in an archive before the log says that it is gone |
//! | 5 | the marker | what has none is no store: a copy that was interrupted is not taken for one |
//!
//! Indexes are not copied: they follow from the log.
//!
//! Invariant: the copy is what the store was at one moment after the copying began.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::fs::{FsFile, OpenMode, place_file};
use dalsegno_log::{IoFailure, OpenError, ReadError};

use super::folder::Folder;
use super::options::Options;
use super::snapshots;
use crate::error::StoreError;

/// So often it is tried again when segments were dropped meanwhile.
const ATTEMPTS: usize = 5;
const PART_BYTES: usize = 1024 * 1024;

/// What a copy of a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCopy {
    /// The folder.
    pub dir: PathBuf,
    /// The last position that is part of it.
    pub position: u64,
    /// The bytes of its files.
    pub bytes: u64,
}

impl Options {
    /// Copies a store into a folder, which must be empty or missing. Changes nothing in the store,
    /// and works beside its owner.
    ///
    /// # Errors
    /// There is no store or it is damaged, the folder is not empty, or a file could not be read or
    /// written. What was copied stays, and is no store.
    pub fn copy(
        &self,
        dir: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<StoreCopy, StoreError> {
        let from = Folder::open(Arc::clone(&self.fs), dir.as_ref(), false)?;
        let to = to.as_ref();
        let absolute = self.fs.absolute(to);
        let to = absolute.map_err(|e| IoFailure::new("find", to, e))?;
        let to = Folder::new(Arc::clone(&self.fs), to, from.id);
        if !to.list(&to.dir)?.is_empty() {
            let taken = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
            return Err(IoFailure::new("copy a store into", &to.dir, taken).into());
        }
        let mut copy = Copy { from, to, bytes: 0 };
        copy.folder(Folder::mailbox, |name| !name.ends_with(".tmp"))?;
        let good = copy.good_snapshots()?;
        copy.folder(Folder::snapshots, |name| {
            good.iter().any(|good| good == name)
        })?;
        let position = copy.log(self)?;
        for folder in [Folder::archive, Folder::aside] {
            copy.folder(folder, |name| !name.ends_with(".tmp"))?;
        }
        let created = self.fs.create_dir(&copy.to.dir);
        created.map_err(|e| IoFailure::new("create", &copy.to.dir, e))?;
        copy.to.write_marker()?;
        Ok(StoreCopy {
            dir: copy.to.dir,
            position,
            bytes: copy.bytes,
        })
    }
}

struct Copy {
    from: Folder,
    to: Folder,
    bytes: u64,
}

impl Copy {
    /// Snapshots that can be read; the log has what the others had.
    fn good_snapshots(&self) -> Result<Vec<String>, StoreError> {
        let mut good = Vec::new();
        for info in snapshots::list(&self.from)? {
            match snapshots::load(&self.from, &info) {
                Ok(_) => good.push(info.file),
                Err(e @ StoreError::Version { .. }) => return Err(e),
                Err(_) => {}
            }
        }
        Ok(good)
    }

    fn log(&mut self, options: &Options) -> Result<u64, StoreError> {
        let mut attempt = 1;
        loop {
            let view = match options.log.open_read_only(self.from.log()) {
                Ok(view) => view,
                // Made when the store is first opened for writing.
                Err(OpenError::Missing { .. }) => return Ok(0),
                Err(e) => return Err(e.into()),
            };
            match view.copy_to(self.to.log()) {
                Ok(bytes) => {
                    self.bytes += bytes;
                    return Ok(view.last_lsn());
                }
                Err(ReadError::Io(e))
                    if e.error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Copies files of a folder; one that goes away meanwhile is not missed.
    fn folder(
        &mut self,
        which: impl Fn(&Folder) -> PathBuf,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        let (from, to) = (which(&self.from), which(&self.to));
        for name in self.from.list(&from)? {
            if !wanted(&name) {
                continue;
            }
            let path = from.join(&name);
            let file = match self.from.fs.open(&path, OpenMode::Read) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(IoFailure::new("read", &path, e).into()),
            };
            let created = self.to.fs.create_dir(&to);
            created.map_err(|e| IoFailure::new("create", &to, e))?;
            self.bytes += self.file(&*file, &to, &to.join(&name))?;
        }
        Ok(())
    }

    fn file(&self, from: &dyn FsFile, dir: &Path, path: &Path) -> Result<u64, StoreError> {
        let mut offset = 0;
        place_file(self.to.fs.as_ref(), dir, path, |to| {
            let mut part = vec![0; PART_BYTES];
            loop {
                let read = from.read_full(&mut part, offset)?;
                to.write_full(&part[..read], offset)?;
                offset += read as u64;
                if read < part.len() {
                    return Ok(());
                }
            }
        })
        .map_err(|e| IoFailure::new("copy to", path, e.into()))?;
        Ok(offset)
    }
}
