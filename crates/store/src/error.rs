//! What can go wrong with a store, in words for the person who has to deal with it.

use std::path::PathBuf;

use dalsegno_log::{
    AppendError, DropError, IoFailure, OpenError, ReadError, RewriteError, SyncError,
};

use crate::event::Version;
use crate::kind::Kind;
use crate::mailbox::MailboxError;
use crate::name::{NameError, StreamId};
use crate::state::{Lease, Status};

/// Why a store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The stream is not where the caller thought. Nothing was written.
    #[error(
        "{stream} is at event {}, not at {expected}: read what has been added and try again",
        head.sequence
    )]
    Conflict {
        /// The stream.
        stream: StreamId,
        /// Where the caller thought it was.
        expected: u64,
        /// Where it is.
        head: Version,
    },
    /// The run is over. Nothing was written.
    #[error("{stream} is {status}: nothing can be added to it, start another run")]
    Ended {
        /// The run.
        stream: StreamId,
        /// How it ended.
        status: Status,
    },
    /// The event makes no sense where it was to stand. Nothing was written.
    #[error("{stream} does not take {kind}: {why}")]
    Refused {
        /// The stream.
        stream: StreamId,
        /// What was to be appended.
        kind: Kind,
        /// Why not.
        why: String,
    },
    /// Another worker holds the run by now. Nothing was written.
    #[error(
        "{stream} is held under token {current}, not {token}: another worker has taken it over, \
         stop working on it"
    )]
    Fenced {
        /// The run.
        stream: StreamId,
        /// The caller's token.
        token: u64,
        /// The highest token given out; the lease may have been given back since.
        current: u64,
    },
    /// The run has a holder.
    #[error(
        "{stream} is held by {} until {} µs: wait for it, or take another run",
        lease.owner, lease.until_us
    )]
    Held {
        /// The run.
        stream: StreamId,
        /// Its lease.
        lease: Lease,
    },
    /// There is no such stream.
    #[error("there is no {stream}: see the list of what there is")]
    NotFound {
        /// What was asked for.
        stream: StreamId,
    },
    /// Something is larger than it may be. Nothing was written.
    #[error("{what} takes {size}, the limit is {limit}: make it smaller or raise the limit")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it is, in bytes or by count.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// A name that cannot be one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The folder has something else in it.
    #[error("{} is not a store, nothing was changed: {why}", dir.display())]
    NotAStore {
        /// The folder.
        dir: PathBuf,
        /// What shows it.
        why: String,
    },
    /// Written by a newer version.
    #[error(
        "{} has format {found}, this version reads up to {known}: use a newer version",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format known here.
        known: u64,
    },
    /// Bytes are not as they were written.
    #[error("{what} is damaged: expected {expected}, found {found}: {advice}")]
    Damaged {
        /// Which part of the store.
        what: String,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// The store was opened for reading.
    #[error("the store was opened for reading only: open it for writing, or send a letter")]
    ReadOnly,
    /// The store was closed.
    #[error("the store was closed: open it again")]
    Closed,
    /// The log could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log took nothing.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// It is not known whether the last events are on disk.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A segment could not be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// Segments could not be dropped.
    #[error(transparent)]
    Drop(#[from] DropError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] IoFailure),
    /// A letter could not be sent or taken.
    #[error(transparent)]
    Mailbox(#[from] MailboxError),
    /// The database behind the store did not do what was asked.
    #[error("{0}")]
    Backend(String),
    /// A portable file could not be written or read.
    #[error(transparent)]
    Portable(#[from] crate::portable::PortableError),
}

impl StoreError {
    /// A part of the store that is damaged and can be mended by `repair`.
    pub(crate) fn damaged(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> StoreError {
        StoreError::Damaged {
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
            advice: "see all of it with verify, then restore a copy or repair",
        }
    }

    /// Whether the caller may try again after reading: somebody else was first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, StoreError::Conflict { .. })
    }
}
