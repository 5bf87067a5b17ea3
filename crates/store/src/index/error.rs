//! What can go wrong with an index file.
//!
//! Invariant: an error is never an answer. Whoever gets one has learned nothing about what is in
//! the segment, and makes the index anew from it.

use std::path::PathBuf;

use dalsegno_log::IoFailure;

use super::Identity;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum IndexError {
    /// Bytes are not as they were written.
    #[error(
        "the index {} is damaged at byte {offset}: expected {expected}, found {found}: delete it, \
         it is made anew from its segment",
        path.display()
    )]
    Damage {
        path: PathBuf,
        offset: u64,
        expected: String,
        found: String,
    },
    /// A whole index, but of another segment, or of what this one was before it was rewritten.
    #[error(
        "the index {} is of {found}, not of {expected}: delete it, it is made anew from its segment",
        path.display()
    )]
    OtherSegment {
        path: PathBuf,
        expected: Identity,
        found: Identity,
    },
    /// Whole, and of a version that this program cannot read.
    #[error(
        "the index {} has format version {found}, this program knows version {known}: use a newer \
         one, or delete the index",
        path.display()
    )]
    Version {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    /// What was to be indexed contradicts itself. Nothing was made.
    #[error("segment {segment} cannot be indexed, {why}: verify the log")]
    Contents { segment: u64, why: String },
    /// The file system failed.
    #[error("{0}")]
    Io(#[from] IoFailure),
}
