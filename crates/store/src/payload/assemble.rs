//! From a root back to the payload. Nothing fetched is trusted: each piece is checked against the
//! hash it was asked for by, and against the length that its parent gave.

use super::MAX_DEPTH;
use super::piece::{self, BadPiece, Child, Content};
use crate::hash::Hash;

/// As much is set aside before anything was fetched, at most: the length may be a lie.
const FIRST_CAPACITY_BYTES: u64 = 1 << 20;

/// A payload could not be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError<E> {
    /// More than the caller wants.
    #[error(
        "the payload is too long: at most {limit} bytes expected, found {len}: raise the limit"
    )]
    TooLong {
        /// The length it should have.
        len: u64,
        /// What the caller allows.
        limit: u64,
    },
    /// A piece could not be had.
    #[error("could not fetch the piece {hash}: {error}")]
    Fetch {
        /// The piece.
        hash: Hash,
        /// What the store said.
        error: E,
    },
    /// A piece is damaged.
    #[error("the piece {hash} is damaged: {bad}: restore it from a copy")]
    Piece {
        /// The piece.
        hash: Hash,
        /// What is wrong with it.
        bad: BadPiece,
    },
    /// A piece is what its hash says, but not as long as whoever refers to it says.
    #[error(
        "the piece {hash} has the wrong length: {expected} bytes expected, found {found}: what \
         refers to it is damaged, restore that from a copy"
    )]
    Length {
        /// The piece.
        hash: Hash,
        /// The length that its parent, or the caller, gave.
        expected: u64,
        /// The length of all content under it, by its own account.
        found: u64,
    },
    /// More levels than a payload can have: a tree that no cutting made.
    #[error("the piece {hash} lies too deep: at most {MAX_DEPTH} levels expected, found {depth}")]
    TooDeep {
        /// The piece.
        hash: Hash,
        /// How far below the root it is.
        depth: usize,
    },
}

/// Puts a payload together again from its root and its length, as [`split`](super::split()) gave
/// them.
///
/// `fetch` gets the stored bytes of a piece. Every piece is checked. No more than `limit` bytes
/// are put together, and no more pieces are fetched than a tree over them can have.
pub fn assemble<P: AsRef<[u8]>, E>(
    root: &Hash,
    len: u64,
    limit: u64,
    mut fetch: impl FnMut(&Hash) -> Result<P, E>,
) -> Result<Vec<u8>, AssembleError<E>> {
    if len > limit {
        return Err(AssembleError::TooLong { len, limit });
    }
    let mut payload = Vec::with_capacity(len.min(FIRST_CAPACITY_BYTES) as usize);
    // What comes next is at the end.
    let mut ahead = vec![(Child { hash: *root, len }, 0)];
    while let Some((Child { hash, len }, depth)) = ahead.pop() {
        if depth > MAX_DEPTH {
            return Err(AssembleError::TooDeep { hash, depth });
        }
        let piece = fetch(&hash).map_err(|error| AssembleError::Fetch { hash, error })?;
        let content =
            piece::open(&hash, piece.as_ref()).map_err(|bad| AssembleError::Piece { hash, bad })?;
        let found = match &content {
            Content::Leaf(bytes) => bytes.len() as u64,
            Content::Node(children) => children.iter().map(|child| child.len).sum(),
        };
        if found != len {
            return Err(AssembleError::Length {
                hash,
                expected: len,
                found,
            });
        }
        match content {
            Content::Leaf(bytes) => payload.extend_from_slice(&bytes),
            Content::Node(children) => {
                ahead.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
            }
        }
    }
    Ok(payload)
}
