//! An open file and a held lock of the simulated disk.
//!
//! Invariant: a handle works only in the process life that opened it. After a reboot or a restart
//! it gives the crash error for ever, and dropping it touches nothing.

use std::fmt;
use std::io;
use std::path::PathBuf;

use dalsegno_log::fs::{FsFile, FsLock};

use super::SimDisk;
use super::choose::Random;
use super::fault::{OpKind, errno};
use super::folder::InodeId;
use super::state::{Fate, State, os_error};
use super::system::Told;
use super::versions::AfterFailure;

/// No file may grow past this; a wild offset is a mistake, not a test.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// As a chance, in a thousand.
const ALWAYS: u16 = 1000;

pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) inode: InodeId,
    pub(super) generation: u64,
    pub(super) writable: bool,
    /// For the trace; the file may have another name by now.
    pub(super) name: String,
}

impl SimFile {
    fn op<T: Told>(
        &self,
        kind: OpKind,
        what: impl FnOnce() -> String,
        run: impl FnOnce(&mut State, Fate) -> io::Result<T>,
    ) -> io::Result<T> {
        let what = || format!("{}{}", self.name, what());
        self.disk.op(kind, Some(self.generation), what, run)
    }

    fn writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(os_error(errno::EBADF))
        }
    }
}

impl FsFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let asked = buf.len();
        self.op(
            OpKind::Read,
            || format!(" @{offset} +{asked}"),
            |state, fate| {
                fail(fate)?;
                let short = match fate {
                    Fate::Short => ALWAYS,
                    _ => state.plan.faults.read_short,
                };
                let asked = shortened(state, asked, short);
                Ok(state.inode(self.inode)?.read(&mut buf[..asked], offset))
            },
        )
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let asked = buf.len();
        self.op(
            OpKind::Write,
            || format!(" @{offset} +{asked}"),
            |state, fate| {
                self.writable()?;
                if offset.saturating_add(asked as u64) > MAX_FILE_BYTES {
                    return Err(os_error(errno::EFBIG));
                }
                let allowed = match fate {
                    Fate::Go => {
                        let short = state.plan.faults.write_short;
                        shortened(state, asked, short)
                    }
                    Fate::Short => shortened(state, asked, ALWAYS),
                    Fate::Fail(errno::EIO) => state.rng.index(asked + 1),
                    Fate::Fail(_) => 0,
                    Fate::Crash => asked,
                };
                let room = room(state, self.inode, offset, allowed)?;
                state.inode(self.inode)?.write(&buf[..room], offset);
                fail(fate)?;
                if room == 0 && asked > 0 {
                    return Err(os_error(errno::ENOSPC));
                }
                Ok(room)
            },
        )
    }

    fn sync(&self) -> io::Result<()> {
        self.op(OpKind::Sync, String::new, |state, fate| {
            let Err(error) = fail(fate) else {
                state.inode(self.inode)?.sync();
                return Ok(());
            };
            let mut chooser = Random::new(state.rng.fork());
            let revert = state.rng.chance(500);
            let after = if revert {
                AfterFailure::Revert
            } else {
                AfterFailure::Keep
            };
            state.inode(self.inode)?.fail_sync(&mut chooser, after);
            Err(error)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.op(OpKind::Len, String::new, |state, fate| {
            fail(fate)?;
            Ok(state.inode(self.inode)?.len())
        })
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.op(
            OpKind::Truncate,
            || format!(" to {len}"),
            |state, fate| {
                self.writable()?;
                if len > MAX_FILE_BYTES {
                    return Err(os_error(errno::EFBIG));
                }
                if happens(state, fate) {
                    state.inode(self.inode)?.truncate(len);
                }
                fail(fate)
            },
        )
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.generation == self.generation
            && let Some(inode) = state.inodes.get_mut(&self.inode)
        {
            inode.opens = inode.opens.saturating_sub(1);
        }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

pub(super) struct SimLock {
    pub(super) disk: SimDisk,
    pub(super) path: PathBuf,
    pub(super) token: u64,
}

impl FsLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        // After a reboot somebody else may hold the lock on the same path.
        if state
            .locks
            .get(&self.path)
            .is_some_and(|lock| lock.token == self.token)
        {
            state.locks.remove(&self.path);
        }
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The error of an operation that is fated to fail.
pub(super) fn fail(fate: Fate) -> io::Result<()> {
    match fate {
        Fate::Fail(errno) => Err(os_error(errno)),
        Fate::Go | Fate::Short | Fate::Crash => Ok(()),
    }
}

/// Whether an all-or-nothing change is made. After EIO nobody can know.
pub(super) fn happens(state: &mut State, fate: Fate) -> bool {
    match fate {
        Fate::Go | Fate::Short | Fate::Crash => true,
        Fate::Fail(errno::EIO) => state.rng.chance(500),
        Fate::Fail(_) => false,
    }
}

fn shortened(state: &mut State, asked: usize, per_mille: u16) -> usize {
    if asked > 1 && state.rng.chance(per_mille) {
        state.rng.range(1, asked as u64 - 1) as usize
    } else {
        asked
    }
}

/// How many of `asked` bytes at `offset` the disk has room for. Bytes that were allocated before
/// always have room.
fn room(state: &mut State, inode: InodeId, offset: u64, asked: usize) -> io::Result<usize> {
    let allocated = state.inode(inode)?.allocated();
    let end = offset + asked as u64;
    let Some(capacity) = state.capacity else {
        return Ok(asked);
    };
    if end <= allocated {
        return Ok(asked);
    }
    let last = allocated.saturating_add(capacity.saturating_sub(state.used()));
    Ok(last.min(end).saturating_sub(offset) as usize)
}
