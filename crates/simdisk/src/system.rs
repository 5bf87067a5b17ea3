//! The disk as the log sees it: its [`Fs`] implementation.
//!
//! Invariant: every call goes through [`SimDisk::op`], so it is counted, can fail, can be the one
//! at which the power goes, and leaves its line in the trace. Only `unique`, which cannot fail, and
//! dropping a handle or a lock are no operations.

use std::io;
use std::path::Path;

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode};

use super::choose::Random;
use super::fault::{OpKind, errno};
use super::folder::{Change, InodeId};
use super::handle::{SimFile, SimLock, fail, happens};
use super::state::{Fate, Lock, State, os_error, split};
use super::{SimDisk, crashed_error};

impl SimDisk {
    /// Runs one operation. `generation` is that of the handle it comes from, if it comes from one.
    pub(super) fn op<T: Told>(
        &self,
        kind: OpKind,
        generation: Option<u64>,
        what: impl FnOnce() -> String,
        run: impl FnOnce(&mut State, Fate) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state();
        let generation = generation.unwrap_or(state.generation);
        let (number, fate) = state.begin(kind, generation)?;
        if fate == Fate::Crash {
            // The sectors of a write may reach the platter; the reboot decides. Of anything else
            // that was pending the reboot decides too, so there is nothing to do.
            if kind == OpKind::Write {
                let _lost = run(&mut state, fate);
            }
            state.note(|| format!("{number} {kind} {} -> power off", what()));
            return Err(crashed_error());
        }
        let result = run(&mut state, fate);
        state.note(|| match &result {
            Ok(value) => format!("{number} {kind} {} -> {}", what(), value.told()),
            Err(error) => format!("{number} {kind} {} -> {error}", what()),
        });
        result
    }
}

impl Fs for SimDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.op(
            OpKind::CreateDir,
            None,
            || dir.display().to_string(),
            |state, fate| {
                fail(fate)?;
                state.add_folder(dir);
                Ok(())
            },
        )
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.op(
            OpKind::List,
            None,
            || dir.display().to_string(),
            |state, fate| {
                fail(fate)?;
                Ok(state.folder(dir)?.names())
            },
        )
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        let what = || format!("{} {mode:?}", name_of(path));
        let opened = self.op(OpKind::Open, None, what, |state, fate| {
            fail(fate)?;
            let inode = open(state, path, mode)?;
            state.inode(inode)?.opens += 1;
            Ok(Opened {
                inode,
                generation: state.generation,
            })
        })?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode: opened.inode,
            generation: opened.generation,
            writable: mode != OpenMode::Read,
            name: name_of(path),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let what = || format!("{} {}", name_of(from), name_of(to));
        self.op(OpKind::Rename, None, what, |state, fate| {
            let inode = state.find(from)?;
            let ((dir, from), (to_dir, to)) = (split(from)?, split(to)?);
            if dir != to_dir {
                return Err(os_error(errno::EXDEV));
            }
            if happens(state, fate) && from != to {
                state
                    .folder(dir)?
                    .change(Change::Rename { from, to, inode });
            }
            fail(fate)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.op(
            OpKind::Remove,
            None,
            || name_of(path),
            |state, fate| {
                fail(fate)?;
                state.find(path)?;
                let (dir, name) = split(path)?;
                state.folder(dir)?.change(Change::Remove { name });
                Ok(())
            },
        )
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.op(
            OpKind::SyncDir,
            None,
            || dir.display().to_string(),
            |state, fate| {
                let Err(error) = fail(fate) else {
                    state.folder(dir)?.sync();
                    state.collect();
                    return Ok(());
                };
                // Without a handle there was no sync that could lose anything.
                if fate != Fate::Fail(errno::EMFILE) {
                    let mut chooser = Random::new(state.rng.fork());
                    state.folder(dir)?.fail_sync(&mut chooser);
                }
                Err(error)
            },
        )
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        let taken = self.op(
            OpKind::Lock,
            None,
            || name_of(path),
            |state, fate| {
                fail(fate)?;
                lock(state, path, owner)
            },
        );
        match taken.map_err(LockError::Io)? {
            Taken::Held(owner) => Err(LockError::Held(owner)),
            Taken::Ours(token) => Ok(Box::new(SimLock {
                disk: self.clone(),
                path: path.to_owned(),
                token,
            })),
        }
    }

    fn unique(&self) -> u64 {
        self.state().rng.next_u64()
    }
}

fn open(state: &mut State, path: &Path, mode: OpenMode) -> io::Result<InodeId> {
    let found = state.find(path);
    if mode != OpenMode::CreateNew {
        return found;
    }
    if found.is_ok() {
        return Err(os_error(errno::EEXIST));
    }
    let (dir, name) = split(path)?;
    state.folder(dir)?;
    let inode = state.add_inode();
    state.folder(dir)?.change(Change::Create { name, inode });
    Ok(inode)
}

/// The lock itself is a line in a table. Its file is there for others to see, durable at once and
/// outside of the capacity, so that it adds nothing to what a crash can do.
fn lock(state: &mut State, path: &Path, owner: &str) -> io::Result<Taken> {
    if let Some(held) = state.locks.get(path) {
        return Ok(Taken::Held(held.owner.clone()));
    }
    state.put_file(path, owner.as_bytes(), false)?;
    let token = state.new_id();
    state.locks.insert(
        path.to_owned(),
        Lock {
            owner: owner.to_owned(),
            token,
        },
    );
    Ok(Taken::Ours(token))
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

struct Opened {
    inode: InodeId,
    generation: u64,
}

enum Taken {
    Ours(u64),
    Held(String),
}

/// What the trace says about a success.
pub(super) trait Told {
    fn told(&self) -> String {
        "ok".to_owned()
    }
}

impl Told for () {}

impl Told for Opened {}

impl Told for usize {
    fn told(&self) -> String {
        format!("ok {self}")
    }
}

impl Told for u64 {
    fn told(&self) -> String {
        format!("ok {self}")
    }
}

impl Told for Vec<String> {
    fn told(&self) -> String {
        format!("ok [{}]", self.join(" "))
    }
}

impl Told for Taken {
    fn told(&self) -> String {
        match self {
            Self::Ours(_) => "ok".to_owned(),
            Self::Held(owner) => format!("held by {owner}"),
        }
    }
}
