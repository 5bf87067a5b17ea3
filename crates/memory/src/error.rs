//! What can go wrong with a memory, in words for the person who has to deal with it.

use dalsegno_store::{Hash, StoreError, StreamId, Version};

use crate::document::{DocId, Ended};

/// Why a memory could not do what was asked. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The store below failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such document, or was none at that version.
    #[error("{memory} has no document {id}: search it, or list what it has")]
    NotFound {
        /// The memory.
        memory: StreamId,
        /// What was asked for.
        id: DocId,
    },
    /// Somebody else was first, or it was done before.
    #[error(
        "document {id} was {} by {} at {} µs: read the memory again and decide anew",
        ended.how, ended.by.as_deref().unwrap_or("somebody without a name"), ended.at_us
    )]
    Ended {
        /// The document.
        id: DocId,
        /// What became of it, who did it and when.
        ended: Box<Ended>,
    },
    /// The memory is not where the caller thought.
    #[error("{memory} is at {}, not at {expected}: read what was added and try again", head.sequence)]
    Moved {
        /// The memory.
        memory: StreamId,
        /// Where the caller thought it was.
        expected: u64,
        /// Where it is.
        head: Version,
    },
    /// The memory has not come to that version.
    #[error("{memory} is at {head}, there is no version {asked} yet: ask for an earlier one")]
    NoVersion {
        /// The memory.
        memory: StreamId,
        /// What was asked for.
        asked: u64,
        /// The newest version.
        head: u64,
    },
    /// The version is of another history.
    #[error("version {sequence} of {memory} has hash {found}, not {asked}: it is another history")]
    OtherHistory {
        /// The memory.
        memory: StreamId,
        /// Which version.
        sequence: u64,
        /// The hash that was asked for.
        asked: Hash,
        /// The hash it has.
        found: Hash,
    },
    /// A document that says nothing.
    #[error("a document needs text: this one has none")]
    Empty,
    /// Bytes that are not UTF-8.
    #[error("the document is not text: byte {at} is not UTF-8; convert it first")]
    NotText {
        /// The first byte that is not.
        at: usize,
    },
    /// Something is larger than it may be.
    #[error("{what} has {size}, the limit is {limit}: give less at a time")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it is, in bytes or by count.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
    /// More than certain.
    #[error("a confidence of {found} per mille: give one from 0 to 1000")]
    Confidence {
        /// What was given.
        found: u16,
    },
    /// It ends before it begins.
    #[error("a document that holds until before it begins to: swap the times")]
    NeverValid,
    /// A vector of another embedder.
    #[error(
        "a vector of {found} dimensions, but those of {memory} have {expected}: use the embedder \
         that the memory was begun with"
    )]
    Dimension {
        /// The memory.
        memory: StreamId,
        /// What its vectors have.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A vector of another model.
    #[error(
        "a vector of the model {found}, but those of {memory} are of {expected}: use that model"
    )]
    Model {
        /// The memory.
        memory: StreamId,
        /// What made its vectors.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A vector that is none.
    #[error("component {at} of the vector is {found}: every component must be a finite number")]
    NotFinite {
        /// Which component, from 0.
        at: usize,
        /// What it is.
        found: f32,
    },
    /// Settings that cannot be.
    #[error("the ranking configuration cannot be used: {why}")]
    Config {
        /// Why not.
        why: String,
    },
    /// The operating system gave no random bytes, without which nothing can be forgotten later.
    #[error("no random bytes from the operating system: {0}")]
    Random(String),
}
