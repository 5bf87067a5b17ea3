//! Payloads stored by content: equal parts once, however often and in whatever they are sent.
//!
//! A chat sends its whole history with every model call. Stored as sent, a conversation would cost
//! the square of its length. So a payload is cut into *leaves* where its own content says so, and a
//! tree is built over their hashes by the same rule, level by level, up to one *root*. An equal
//! beginning gives equal leaves and equal nodes above them, and so does an equal part anywhere, but
//! for the pieces at its edges. What one more turn costs is its own bytes and the right edge of the
//! tree: about one leaf and one node per level.
//!
//! ```text
//! root               node
//!               ┌─────┴──────┐
//!             node          node         cut by the hashes of the children
//!           ┌──┼──┐       ┌──┴──┐
//!         leaf … leaf   leaf … leaf      cut by the bytes of the payload
//! ```
//!
//! | word | meaning |
//! |---|---|
//! | payload | bytes that the user gave |
//! | piece | a leaf or a node, named by its hash; the unit of storage |
//! | leaf | a stretch of a payload, at most 4 KiB |
//! | node | a list of 2 to 32 pieces, each with the length of all content under it |
//! | root | the piece that stands for a whole payload: a leaf if that is enough, else a node |
//!
//! A piece as stored, format 1:
//!
//! | tag | then | what it is |
//! |---:|---|---|
//! | 1 | content | leaf as it is |
//! | 2 | length of the content (2 bytes, little-endian), a zstd frame | leaf, compressed |
//! | 3 | for each child 32 bytes of hash, then its length in LEB128 | node |
//!
//! The hash is over the content, not over what compression made of it: the same payload has the
//! same root on every machine and with every version of zstd. It is BLAKE3 with a key, one for
//! leaves and one for nodes, so that no bytes are both. The cutting rule decides every hash, so its
//! constants belong to the format too (see `payload/cut.rs`): to change one is a new format, with
//! tags and keys of its own.
//!
//! Invariant: pieces come children first. Whoever stores them in that order can answer "known" for
//! any piece that is stored, because everything below it is stored too.
//!
//! Absent on purpose: checksums of a stored piece, which the log's frames have; and any check that
//! a tree was cut by the rule, since every tree over the right bytes reads as those bytes.

mod assemble;
mod cut;
mod piece;
mod split;
#[cfg(test)]
mod tests;
mod zip;

pub use assemble::{AssembleError, assemble};
pub use piece::{BadPiece, Child, Piece, check, children, under};
pub use split::{Split, Splitter, split};

/// The number of the cutting rule, the keys and the encoding together.
pub const FORMAT: u8 = 1;

/// How far below its root a leaf can be. Nodes have four children or more, except at the right
/// edge, so [`split()`] would need hundreds of gigabytes, cut as badly as possible, to get there.
pub const MAX_DEPTH: usize = 16;
