//! Everything the simulated machine knows, behind one mutex.
//!
//! Words: an operation is *begun* (counted, and its fate decided) before it touches anything. A
//! *generation* is one life of the process; handles and locks of an earlier one are dead.
//!
//! Invariant: once `crashed` is set, nothing changes until a reboot or a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use super::choose::Chooser;
use super::crashed_error;
use super::fault::{FaultPlan, OpKind, errno};
use super::folder::{Folder, InodeId};
use super::inode::Inode;
use crate::rng::Rng;

/// Lines that the trace holds before it forgets the oldest.
const TRACE_LINES: usize = 1000;

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) owner: String,
    pub(super) token: u64,
}

/// What is to become of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Go,
    Fail(i32),
    /// It reads or writes less than asked.
    Short,
    /// The power goes while it runs.
    Crash,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) rng: Rng,
    pub(super) folders: BTreeMap<PathBuf, Folder>,
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    next_id: u64,
    pub(super) locks: BTreeMap<PathBuf, Lock>,
    pub(super) plan: FaultPlan,
    pub(super) capacity: Option<u64>,
    pub(super) ops: u64,
    pub(super) crash_at: Option<u64>,
    /// How many more syncs, of files or folders, come before the one at which the power goes.
    pub(super) syncs_to_crash: Option<u64>,
    pub(super) crashed: bool,
    pub(super) generation: u64,
    trace: Option<VecDeque<String>>,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            folders: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_id: 1,
            locks: BTreeMap::new(),
            plan: FaultPlan::default(),
            capacity: None,
            ops: 0,
            crash_at: None,
            syncs_to_crash: None,
            crashed: false,
            generation: 0,
            trace: None,
        }
    }

    /// Counts an operation and decides its fate. An error if there is no machine to run it: the
    /// power is off, or the caller belongs to an earlier life.
    pub(super) fn begin(&mut self, kind: OpKind, generation: u64) -> io::Result<(u64, Fate)> {
        if self.crashed || generation != self.generation {
            return Err(crashed_error());
        }
        let number = self.ops;
        self.ops += 1;
        let mut crash = self.crash_at.is_some_and(|at| number >= at);
        if matches!(kind, OpKind::Sync | OpKind::SyncDir)
            && let Some(more) = &mut self.syncs_to_crash
        {
            crash |= *more == 0;
            *more = more.saturating_sub(1);
        }
        if crash {
            self.crashed = true;
            return Ok((number, Fate::Crash));
        }
        let fate = self.plan.next(number, kind, &mut self.rng);
        Ok((number, fate))
    }

    pub(super) fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(super) fn add_inode(&mut self) -> InodeId {
        let id = self.new_id();
        self.inodes.insert(id, Inode::default());
        id
    }

    pub(super) fn folder(&mut self, dir: &Path) -> io::Result<&mut Folder> {
        self.folders
            .get_mut(dir)
            .ok_or_else(|| os_error(errno::ENOENT))
    }

    pub(super) fn add_folder(&mut self, dir: &Path) {
        for part in dir.ancestors() {
            self.folders.entry(part.to_owned()).or_default();
        }
    }

    /// The file that `path` leads to now.
    pub(super) fn find(&self, path: &Path) -> io::Result<InodeId> {
        let (dir, name) = split(path)?;
        self.folders
            .get(dir)
            .and_then(|folder| folder.get(&name))
            .ok_or_else(|| os_error(errno::ENOENT))
    }

    /// Gives a file this content, durable at once like its name. The folder must be there.
    pub(super) fn put_file(
        &mut self,
        path: &Path,
        bytes: &[u8],
        takes_room: bool,
    ) -> io::Result<()> {
        let (dir, name) = split(path)?;
        self.folder(dir)?;
        let id = match self.find(path) {
            Ok(id) => id,
            Err(_) => self.add_inode(),
        };
        self.inode(id)?.replace(bytes, takes_room);
        self.folder(dir)?.put_durable(&name, id);
        Ok(())
    }

    pub(super) fn inode(&mut self, id: InodeId) -> io::Result<&mut Inode> {
        self.inodes
            .get_mut(&id)
            .ok_or_else(|| os_error(errno::ENOENT))
    }

    /// Bytes of room taken by all files that have a name or are open.
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<_> = self.folders.values().flat_map(Folder::visible).collect();
        self.inodes
            .iter()
            .filter(|(id, inode)| inode.opens > 0 || named.contains(id))
            .map(|(_, inode)| inode.allocated())
            .sum()
    }

    /// Forgets files that neither a handle nor a name leads to, now or after a crash.
    pub(super) fn collect(&mut self) {
        let named: BTreeSet<_> = self
            .folders
            .values()
            .flat_map(|f| f.visible().chain(f.survivors()))
            .collect();
        self.inodes
            .retain(|id, inode| inode.opens > 0 || named.contains(id));
    }

    /// The process is gone, with its handles and locks; the machine is not.
    pub(super) fn end_process(&mut self) {
        self.generation += 1;
        self.locks.clear();
        self.crashed = false;
        self.crash_at = None;
        self.syncs_to_crash = None;
        self.forget_handles();
    }

    pub(super) fn forget_handles(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.opens = 0;
        }
    }

    pub(super) fn lose_power(&mut self, chooser: &mut dyn Chooser) {
        self.forget_handles();
        // Names first: about files that no name leads to any more there is nothing to choose.
        for folder in self.folders.values_mut() {
            folder.crash(chooser);
        }
        self.collect();
        for inode in self.inodes.values_mut() {
            inode.crash(chooser);
        }
    }

    pub(super) fn set_trace(&mut self, on: bool) {
        self.trace = on.then(VecDeque::new);
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.trace.iter().flatten().cloned().collect()
    }

    /// `line` is only made if somebody wants to read it.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LINES {
                trace.pop_front();
            }
            trace.push_back(line());
        }
    }
}

/// A path's folder and name.
pub(super) fn split(path: &Path) -> io::Result<(&Path, String)> {
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => Ok((dir, name.to_string_lossy().into_owned())),
        _ => Err(os_error(errno::EINVAL)),
    }
}

pub(super) fn os_error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
