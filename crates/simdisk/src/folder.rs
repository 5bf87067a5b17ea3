//! The names in one folder.
//!
//! A change of names is an operation: visible at once, pending until the folder is synced. After
//! a crash any subset of the pending operations has happened, in their order.
//!
//! Invariant: the platter changes only by applying operations, never by copying the cache. So a
//! name that a failed sync lost stays visible and is not saved by the next sync.

use std::collections::BTreeMap;

use super::choose::Chooser;

pub(super) type InodeId = u64;
type Names = BTreeMap<String, InodeId>;

/// One atomic change. A rename remembers the file that it moved, so it does not need the operation
/// that gave the file its old name.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create {
        name: String,
        inode: InodeId,
    },
    Rename {
        from: String,
        to: String,
        inode: InodeId,
    },
    Remove {
        name: String,
    },
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
        }
    }

    fn inode(&self) -> Option<InodeId> {
        match self {
            Self::Create { inode, .. } | Self::Rename { inode, .. } => Some(*inode),
            Self::Remove { .. } => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    platter: Names,
    cache: Names,
    pending: Vec<Change>,
}

impl Folder {
    pub(super) fn get(&self, name: &str) -> Option<InodeId> {
        self.cache.get(name).copied()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.cache.keys().cloned().collect()
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.cache);
        self.pending.push(change);
    }

    /// A name that is durable at once.
    pub(super) fn put_durable(&mut self, name: &str, inode: InodeId) {
        self.cache.insert(name.to_owned(), inode);
        self.platter.insert(name.to_owned(), inode);
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.platter);
        }
    }

    /// A sync that reported an error: each pending change is on the platter or lost, and none is
    /// pending any more. What is visible stays so.
    pub(super) fn fail_sync(&mut self, chooser: &mut dyn Chooser) {
        for change in std::mem::take(&mut self.pending) {
            if chooser.choose(2) == 1 {
                change.apply(&mut self.platter);
            }
        }
    }

    pub(super) fn crash(&mut self, chooser: &mut dyn Chooser) {
        if !self.pending.is_empty() {
            chooser.subject();
        }
        self.fail_sync(chooser);
        self.cache.clone_from(&self.platter);
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The files that the running system can reach by a name.
    pub(super) fn visible(&self) -> impl Iterator<Item = InodeId> {
        self.cache.values().copied()
    }

    /// The files that a crash may leave behind a name.
    pub(super) fn survivors(&self) -> impl Iterator<Item = InodeId> {
        self.platter
            .values()
            .copied()
            .chain(self.pending.iter().filter_map(Change::inode))
    }
}
