//! Which operations fail, and with what.
//!
//! There are two sources: probabilities for long runs ([`Faults`]), and a script for tests that
//! want one failure at one place, given by its kind or by its number ([`Fault`]).
//!
//! Invariant: a scripted failure fires exactly once, and before chance is asked.

use std::fmt;

use super::state::Fate;
use crate::rng::Rng;

/// The error numbers that the disk gives by itself.
pub mod errno {
    /// No such file.
    pub const ENOENT: i32 = 2;
    /// Interrupted; nothing was done.
    pub const EINTR: i32 = 4;
    /// The hardware failed.
    pub const EIO: i32 = 5;
    /// The handle does not allow this.
    pub const EBADF: i32 = 9;
    /// The name is taken.
    pub const EEXIST: i32 = 17;
    /// A rename to another folder.
    pub const EXDEV: i32 = 18;
    /// An argument that makes no sense.
    pub const EINVAL: i32 = 22;
    /// Too many open files.
    pub const EMFILE: i32 = 24;
    /// A file larger than the simulator wants to hold.
    pub const EFBIG: i32 = 27;
    /// The disk is full.
    pub const ENOSPC: i32 = 28;
}

/// The kinds of operations that are counted and can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// `Fs::create_dir`
    CreateDir,
    /// `Fs::list`
    List,
    /// `Fs::open`
    Open,
    /// `Fs::rename`
    Rename,
    /// `Fs::remove`
    Remove,
    /// `Fs::sync_dir`
    SyncDir,
    /// `Fs::lock`
    Lock,
    /// `FsFile::read_at`
    Read,
    /// `FsFile::write_at`
    Write,
    /// `FsFile::sync`
    Sync,
    /// `FsFile::len`
    Len,
    /// `FsFile::truncate`
    Truncate,
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateDir => "create_dir",
            Self::List => "list",
            Self::Open => "open",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::SyncDir => "sync_dir",
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Len => "len",
            Self::Truncate => "truncate",
        })
    }
}

/// What can go wrong with one operation, if it is of a kind to which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO: to any kind. See [`Faults`] for what has happened nevertheless.
    Broken,
    /// ENOSPC: to what takes room, now or when it is synced.
    Full,
    /// EMFILE: to opening a file, and to syncing a folder, which has to be opened.
    TooManyFiles,
    /// EINTR: to reading and writing.
    Interrupted,
    /// Less than asked, but at least one byte: of reading and writing.
    Short,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] = [
        Fault::Broken,
        Fault::Full,
        Fault::TooManyFiles,
        Fault::Interrupted,
        Fault::Short,
    ];

    fn fate(self, kind: OpKind) -> Option<Fate> {
        use OpKind::{CreateDir, Open, Read, Rename, Sync, SyncDir, Truncate, Write};
        match (self, kind) {
            (Fault::Broken, _) => Some(Fate::Fail(errno::EIO)),
            (Fault::Full, CreateDir | Open | Write | Rename | Truncate | Sync | SyncDir) => {
                Some(Fate::Fail(errno::ENOSPC))
            }
            (Fault::TooManyFiles, Open | SyncDir) => Some(Fate::Fail(errno::EMFILE)),
            (Fault::Interrupted, Read | Write) => Some(Fate::Fail(errno::EINTR)),
            (Fault::Short, Read | Write) => Some(Fate::Short),
            _ => None,
        }
    }
}

/// How often an operation fails by chance, each in a thousand. The default is never.
///
/// | failure | what has happened nevertheless |
/// |---|---|
/// | `write_eio` | some of the first bytes may be written |
/// | `rename_eio`, `truncate_eio` | all of it or nothing: POSIX promises neither |
/// | `sync_eio` | some sectors reached the platter; the others are no longer dirty, and read as new or as old |
/// | `sync_dir_eio` | some names are durable; the others are visible, and no later sync saves them |
/// | the others | nothing |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// `open` fails with EIO.
    pub open_eio: u16,
    /// `open` fails with EMFILE.
    pub open_emfile: u16,
    /// `rename` fails with EIO.
    pub rename_eio: u16,
    /// `remove` fails with EIO.
    pub remove_eio: u16,
    /// `sync_dir` fails with EIO.
    pub sync_dir_eio: u16,
    /// `read_at` fails with EIO.
    pub read_eio: u16,
    /// `read_at` fails with EINTR.
    pub read_eintr: u16,
    /// `read_at` gives less than asked, but at least one byte.
    pub read_short: u16,
    /// `write_at` fails with EIO.
    pub write_eio: u16,
    /// `write_at` fails with EINTR.
    pub write_eintr: u16,
    /// `write_at` writes less than asked, but at least one byte.
    pub write_short: u16,
    /// `sync` fails with EIO.
    pub sync_eio: u16,
    /// `truncate` fails with EIO.
    pub truncate_eio: u16,
}

impl Faults {
    fn draw(&self, kind: OpKind, rng: &mut Rng) -> Option<i32> {
        let (first, second) = match kind {
            OpKind::Open => (
                (self.open_eio, errno::EIO),
                (self.open_emfile, errno::EMFILE),
            ),
            OpKind::Read => ((self.read_eio, errno::EIO), (self.read_eintr, errno::EINTR)),
            OpKind::Write => (
                (self.write_eio, errno::EIO),
                (self.write_eintr, errno::EINTR),
            ),
            OpKind::Rename => ((self.rename_eio, errno::EIO), (0, 0)),
            OpKind::Remove => ((self.remove_eio, errno::EIO), (0, 0)),
            OpKind::SyncDir => ((self.sync_dir_eio, errno::EIO), (0, 0)),
            OpKind::Sync => ((self.sync_eio, errno::EIO), (0, 0)),
            OpKind::Truncate => ((self.truncate_eio, errno::EIO), (0, 0)),
            OpKind::CreateDir | OpKind::List | OpKind::Lock | OpKind::Len => return None,
        };
        [first, second]
            .into_iter()
            .find(|(often, _)| rng.chance(*often))
            .map(|(_, errno)| errno)
    }
}

#[derive(Clone, Debug)]
struct Scripted {
    kind: OpKind,
    /// Operations of the kind that go by before.
    skip: u64,
    errno: i32,
}

/// A fault of operations by their number.
#[derive(Clone, Debug)]
struct Numbered {
    from: u64,
    until: u64,
    fault: Fault,
}

/// Chance and script together.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultPlan {
    pub(super) faults: Faults,
    script: Vec<Scripted>,
    numbered: Option<Numbered>,
    /// How many operations a numbered fault has hit.
    pub(super) hit: u64,
}

impl FaultPlan {
    pub(super) fn script(&mut self, kind: OpKind, skip: u64, errno: i32) {
        self.script.push(Scripted { kind, skip, errno });
    }

    pub(super) fn number(&mut self, from: u64, until: u64, fault: Fault) {
        self.numbered = Some(Numbered { from, until, fault });
    }

    /// Asked once for each operation.
    pub(super) fn next(&mut self, number: u64, kind: OpKind, rng: &mut Rng) -> Fate {
        let hits = self.numbered.as_ref();
        let hits = hits.filter(|n| (n.from..=n.until).contains(&number));
        if let Some(fate) = hits.and_then(|n| n.fault.fate(kind)) {
            self.hit += 1;
            return fate;
        }
        self.scripted(kind, rng).map_or(Fate::Go, Fate::Fail)
    }

    fn scripted(&mut self, kind: OpKind, rng: &mut Rng) -> Option<i32> {
        let mut fired = None;
        self.script.retain_mut(|fault| {
            if fault.kind != kind {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            if fired.is_some() {
                // Two for the same operation: the second waits for the next one.
                return true;
            }
            fired = Some(fault.errno);
            false
        });
        fired.or_else(|| self.faults.draw(kind, rng))
    }
}
