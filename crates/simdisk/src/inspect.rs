//! What a test does to the disk from outside, with a screwdriver.
//!
//! Invariant: nothing here is an operation: it is not counted, cannot fail by chance, and works
//! while the power is off.

use std::io;
use std::path::Path;

use super::SimDisk;
use super::fault::errno;
use super::inode::Inode;
use super::state::{os_error, split};

/// What a crash could still take away, see [`SimDisk::unsynced`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsynced {
    /// Sectors with a pending version.
    pub sectors: usize,
    /// Files whose length is pending.
    pub lengths: usize,
    /// Pending changes of names.
    pub entries: usize,
}

impl SimDisk {
    /// The names in a folder as a reader sees them, sorted; none if there is no such folder.
    #[must_use]
    pub fn files(&self, dir: impl AsRef<Path>) -> Vec<String> {
        self.state()
            .folders
            .get(dir.as_ref())
            .map(|folder| folder.names())
            .unwrap_or_default()
    }

    /// The length of a file as a reader sees it.
    pub fn file_len(&self, path: impl AsRef<Path>) -> io::Result<u64> {
        let mut state = self.state();
        let id = state.find(path.as_ref())?;
        Ok(state.inode(id)?.len())
    }

    /// The content of a file as a reader sees it.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let id = state.find(path.as_ref())?;
        let inode = state.inode(id)?;
        let mut bytes = vec![0; inode.len() as usize];
        inode.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Puts a file with this content on the platter, and makes its folder durable, which is created
    /// if it is missing. Open handles see the new content.
    pub fn write_raw(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let path = path.as_ref();
        let (dir, _) = split(path)?;
        state.add_folder(dir);
        state.folder(dir)?.sync();
        state.put_file(path, bytes, true)
    }

    /// Bit rot: flips bit `bit` (0 to 7) of the byte at `offset`, on the platter, in the cache and
    /// in what is pending. An error if the file has no such byte.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u32) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(path.as_ref())?;
        if state.inode(id)?.flip_bit(offset, bit) {
            Ok(())
        } else {
            Err(os_error(errno::EINVAL))
        }
    }

    /// What is not durable yet. What a failed sync gave up is not counted: nobody will save it.
    #[must_use]
    pub fn unsynced(&self) -> Unsynced {
        let state = self.state();
        Unsynced {
            sectors: state.inodes.values().map(Inode::dirty_sectors).sum(),
            lengths: state
                .inodes
                .values()
                .filter(|inode| inode.dirty_len())
                .count(),
            entries: state.folders.values().map(|folder| folder.pending()).sum(),
        }
    }

    /// At most how many combinations a crash now has; the exact number is what
    /// [`Enumerate::seen`](super::Enumerate::seen) says at the end. Stops counting at `u64::MAX`.
    #[must_use]
    pub fn outcomes(&self) -> u64 {
        let state = self.state();
        let names = state
            .folders
            .values()
            .map(|f| 1_u64.checked_shl(f.pending() as u32));
        let files = state.inodes.values().map(|inode| Some(inode.outcomes()));
        names
            .chain(files)
            .fold(1, |n, k| n.saturating_mul(k.unwrap_or(u64::MAX)))
    }

    /// Bytes of room taken, as the capacity counts them.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used()
    }
}
