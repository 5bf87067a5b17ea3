//! What can go wrong, one type per operation.
//!
//! An append or a wait that ends in an error is *unknown*, not failed, unless the error's text
//! says that nothing was written: the records may be there when the log is opened again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Lsn;
use crate::segment;

/// Bytes that should not be as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment's number; its file is named after it.
    pub segment: u64,
    /// Where in the segment's file the bad bytes begin.
    pub offset: u64,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "segment {} ({}) at byte {}: expected {}, found {}",
            self.segment,
            segment::file_name(self.segment),
            self.offset,
            self.expected,
            self.found
        )
    }
}

/// An operation of the file system that failed.
#[derive(Clone, Debug)]
pub struct IoFailure {
    /// What was tried, as in "sync".
    pub operation: &'static str,
    /// On which file or folder.
    pub path: PathBuf,
    /// What the operating system said.
    pub error: Arc<io::Error>,
}

impl IoFailure {
    /// That an operation on a path failed.
    pub fn new(operation: &'static str, path: &Path, error: io::Error) -> IoFailure {
        IoFailure {
            operation,
            path: path.to_owned(),
            error: Arc::new(error),
        }
    }
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "could not {} {}: {}",
            self.operation,
            self.path.display(),
            self.error
        )
    }
}

impl std::error::Error for IoFailure {}

/// Opening, for writing or for reading, failed. A log that is refused is not changed. If the file
/// system fails half-way through a recovery, the next opening begins it anew.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process (or this one) has the log open for writing.
    #[error(
        "the log in {} is in use by {owner}: close it there first, or open it read-only",
        dir.display()
    )]
    Locked {
        /// The log's folder.
        dir: PathBuf,
        /// As in "process 4711".
        owner: String,
    },
    /// The log is damaged in a place where no crash can explain it.
    #[error(
        "the log in {} is damaged, nothing was changed: {damage}: restore it from a copy, or see \
         what is readable with verify, and keep that with repair",
        dir.display()
    )]
    Damage {
        /// The log's folder.
        dir: PathBuf,
        /// The first damage found.
        damage: Damage,
    },
    /// So little of the log is readable that a repair would have to guess. Nothing was changed.
    #[error(
        "the log in {} cannot be repaired, nothing was changed: {why}: restore it from a copy, or \
         move the folder away and begin a new log",
        dir.display()
    )]
    Unrepairable {
        /// The log's folder.
        dir: PathBuf,
        /// What is missing.
        why: String,
    },
    /// Written by a newer version.
    #[error(
        "{} has format version {found}, this program knows version {known}: use a newer one",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version written and read here.
        known: u32,
    },
    /// There is no log in the folder, and a read-only open makes none.
    #[error("there is no log in {}: check the path", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The options contradict each other.
    #[error("{0}: change the options")]
    Options(String),
    /// The file system failed, or the disk is full.
    #[error("{0}")]
    Io(#[from] IoFailure),
}

/// Appending failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The batch does not fit into a segment. Nothing was written.
    #[error("a batch of {bytes} bytes is over the limit of {limit_bytes}: nothing was written")]
    TooLarge {
        /// What the batch takes on disk.
        bytes: u64,
        /// What it may take.
        limit_bytes: u64,
    },
    /// A batch without records. Nothing was written.
    #[error("a batch needs at least one record: nothing was written")]
    EmptyBatch,
    /// The log was closed. Nothing was written.
    #[error("the log is closed: nothing was written; open it again")]
    Closed,
    /// There was no room for a new segment, and the buffer is full. Nothing was written; free some
    /// space and try again.
    #[error(
        "no new segment could be made ({0}): nothing was written; make room or mend that, and try again"
    )]
    NoSpace(IoFailure),
    /// A write or a sync failed earlier. Nothing was written.
    #[error("{0}: nothing was written")]
    Poisoned(#[from] Poisoned),
}

/// Waiting for durability, or sealing, failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// No record has this number yet.
    #[error("LSN {lsn} has not been appended; the last one is {last}")]
    NotAppended {
        /// What was asked for.
        lsn: Lsn,
        /// The last LSN there is.
        last: Lsn,
    },
    /// There was no room for a new segment. The records stay in the buffer; free some space and
    /// wait again.
    #[error(
        "no new segment could be made ({0}): the records wait in memory; make room or mend that, and try again"
    )]
    NoSpace(IoFailure),
    /// The log was closed while waiting.
    #[error("the log is closed: open it again to see what is there")]
    Closed,
    /// A write or a sync failed. Whether the records are on disk is unknown.
    #[error("{0}: whether it is on disk is unknown")]
    Poisoned(#[from] Poisoned),
}

/// Reading failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The record was dropped with its segment.
    #[error("LSN {lsn} has been dropped; the log begins at {first}")]
    Dropped {
        /// What was asked for.
        lsn: Lsn,
        /// The first LSN there is.
        first: Lsn,
    },
    /// No segment has this number: it was dropped, or there never was one.
    #[error("there is no segment {number}: see which there are with segments")]
    NoSegment {
        /// What was asked for.
        number: u64,
    },
    /// The bytes on disk are not what was written.
    #[error("the log is damaged: {0}: restore it from a copy, or see what is readable with verify")]
    Damage(Damage),
    /// The file system failed.
    #[error("{0}")]
    Io(#[from] IoFailure),
}

/// Rewriting a segment failed. Unless the log is poisoned, it goes on as before, and so may be
/// tried again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// No segment has this number: it was dropped, or there never was one. Nothing was changed.
    #[error("there is no segment {number}: nothing was changed; see which there are with segments")]
    NoSegment {
        /// What was asked for.
        number: u64,
    },
    /// The segment is being written to. Nothing was changed.
    #[error("segment {number} is still being written to: nothing was changed; seal it first")]
    NotSealed {
        /// What was asked for.
        number: u64,
    },
    /// The segment is not as it was written. Nothing was changed.
    #[error(
        "the log is damaged, nothing was changed: {0}: restore it from a copy, or repair the log"
    )]
    Damage(Damage),
    /// The file system failed, or the disk is full. The segment is as it was, or rewritten.
    #[error("{0}: every record to be kept is still there; try again")]
    Io(#[from] IoFailure),
    /// The log was closed. Nothing was changed.
    #[error("the log is closed: nothing was changed; open it again")]
    Closed,
    /// A sync failed, now or before. After a crash the segment is as it was, or rewritten.
    #[error("{0}")]
    Poisoned(#[from] Poisoned),
}

impl From<Damage> for RewriteError {
    fn from(damage: Damage) -> RewriteError {
        RewriteError::Damage(damage)
    }
}

/// Dropping segments failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    /// A file could not be removed. The log goes on without it; the next opening removes it.
    #[error("{0}")]
    Io(#[from] IoFailure),
    /// That segments are dropped could not be written down.
    #[error("{0}")]
    Sync(#[from] SyncError),
}

/// A write or a sync failed, and with it the log: nothing later is ever acknowledged. Opening the
/// log again reads what really is on disk.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log stopped because it {cause}: fix the disk and open the log again")]
pub struct Poisoned {
    /// What failed first.
    #[source]
    pub cause: IoFailure,
}
