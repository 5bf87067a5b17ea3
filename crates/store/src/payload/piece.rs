//! A piece as bytes, and back. Whatever the bytes are, reading them ends in content or in an error
//! that says what is wrong with them.

use std::borrow::Cow;

use super::cut::{LEAF_MAX_BYTES, NODE_MAX_CHILDREN};
use super::zip;
use crate::hash::Hash;

const LEAF: u8 = 1;
const LEAF_ZSTD: u8 = 2;
const NODE: u8 = 3;

const LEAF_KEY: &[u8; 32] = b"dalsegno payload leaf, format 01";
const NODE_KEY: &[u8; 32] = b"dalsegno payload node, format 01";

// The length of a compressed leaf has two bytes.
const _: () = assert!(LEAF_MAX_BYTES <= u16::MAX as usize);

/// A leaf or a node, ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its name.
    pub hash: Hash,
    /// Its bytes as stored: a tag, then the content, compressed where that pays.
    pub bytes: Vec<u8>,
}

/// A piece as its parent names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// The piece.
    pub hash: Hash,
    /// The length of all content under it.
    pub len: u64,
}

/// Bytes that are not the piece they should be, or not a piece at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPiece {
    /// Not even a tag.
    #[error("the piece is empty")]
    Empty,
    /// Not a kind of piece that this version knows.
    #[error("unknown kind of piece: expected a tag from 1 to 3, found {found}")]
    Tag {
        /// The first byte.
        found: u8,
    },
    /// A leaf longer than leaves get, or that says so.
    #[error("the leaf is too long: at most {max} bytes expected, found {found}")]
    LeafTooLong {
        /// The longest that a leaf can be.
        max: usize,
        /// Its length, as is or as declared.
        found: usize,
    },
    /// A compressed leaf whose frame cannot be read, or holds more than was declared.
    #[error("the compressed leaf cannot be read: {declared} bytes expected, found: {found}")]
    Compression {
        /// The length that the piece gives.
        declared: usize,
        /// What zstd said.
        found: String,
    },
    /// A compressed leaf that holds less than was declared.
    #[error("the compressed leaf has the wrong length: {declared} bytes expected, found {found}")]
    LeafLength {
        /// The length that the piece gives.
        declared: usize,
        /// The length of its content.
        found: usize,
    },
    /// A list of children that is not as a node's is.
    #[error("malformed node at byte {offset}: expected {expected}, found {found}")]
    Node {
        /// Where in the piece.
        offset: usize,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A piece, but another one, or a damaged one.
    #[error("the piece has the wrong hash: expected {expected}, found {found}")]
    Hash {
        /// What it was looked up by.
        expected: Hash,
        /// What its content has.
        found: Hash,
    },
}

/// What a piece holds.
pub(super) enum Content<'a> {
    Leaf(Cow<'a, [u8]>),
    Node(Vec<Child>),
}

/// Checks that these bytes are the piece with this hash.
pub fn check(hash: &Hash, piece: &[u8]) -> Result<(), BadPiece> {
    open(hash, piece).map(drop)
}

/// The pieces that a piece refers to; none for a leaf. The hash is not checked.
pub fn children(piece: &[u8]) -> Result<Vec<Child>, BadPiece> {
    match piece {
        [NODE, list @ ..] => read_node(list),
        _ => read(piece).map(|_| Vec::new()),
    }
}

/// What is under the piece with this hash: the length of all content, and the pieces that it refers
/// to; none for a leaf.
pub fn under(hash: &Hash, piece: &[u8]) -> Result<(u64, Vec<Child>), BadPiece> {
    Ok(match open(hash, piece)? {
        Content::Leaf(bytes) => (bytes.len() as u64, Vec::new()),
        Content::Node(children) => (children.iter().map(|child| child.len).sum(), children),
    })
}

/// The content of the piece with this hash.
pub(super) fn open<'a>(expected: &Hash, piece: &'a [u8]) -> Result<Content<'a>, BadPiece> {
    let content = read(piece)?;
    let found = match &content {
        Content::Leaf(bytes) => leaf_hash(bytes),
        Content::Node(_) => node_hash(&piece[1..]),
    };
    if found != *expected {
        return Err(BadPiece::Hash {
            expected: *expected,
            found,
        });
    }
    Ok(content)
}

pub(super) fn leaf_hash(content: &[u8]) -> Hash {
    Hash::keyed(LEAF_KEY, content)
}

/// The hash of a node with this [`list`](node_list) of children.
pub(super) fn node_hash(list: &[u8]) -> Hash {
    Hash::keyed(NODE_KEY, list)
}

pub(super) fn write_leaf(content: &[u8]) -> Vec<u8> {
    if let Ok(len) = u16::try_from(content.len())
        && let Some(frame) = zip::compress(content)
    {
        return [&[LEAF_ZSTD], &len.to_le_bytes()[..], &frame].concat();
    }
    [&[LEAF], content].concat()
}

pub(super) fn write_node(children: impl Iterator<Item = Child>) -> Vec<u8> {
    let mut piece = vec![NODE];
    node_list(&mut piece, children);
    piece
}

/// Appends the children, as a node holds them.
pub(super) fn node_list(to: &mut Vec<u8>, children: impl Iterator<Item = Child>) {
    for child in children {
        to.extend_from_slice(child.hash.as_bytes());
        let mut rest = child.len;
        while rest >= 0x80 {
            to.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        to.push(rest as u8);
    }
}

fn read(piece: &[u8]) -> Result<Content<'_>, BadPiece> {
    match piece {
        [] => Err(BadPiece::Empty),
        [LEAF, content @ ..] => {
            check_leaf_len(content.len())?;
            Ok(Content::Leaf(Cow::Borrowed(content)))
        }
        [LEAF_ZSTD, low, high, frame @ ..] => {
            let declared = usize::from(u16::from_le_bytes([*low, *high]));
            read_frame(frame, declared).map(|content| Content::Leaf(Cow::Owned(content)))
        }
        [LEAF_ZSTD, ..] => Err(BadPiece::Compression {
            declared: 0,
            found: "the end of the piece before the length".to_owned(),
        }),
        [NODE, list @ ..] => read_node(list).map(Content::Node),
        [found, ..] => Err(BadPiece::Tag { found: *found }),
    }
}

fn read_frame(frame: &[u8], declared: usize) -> Result<Vec<u8>, BadPiece> {
    check_leaf_len(declared)?;
    let content = zip::decompress(frame, declared)
        .map_err(|found| BadPiece::Compression { declared, found })?;
    if content.len() != declared {
        return Err(BadPiece::LeafLength {
            declared,
            found: content.len(),
        });
    }
    Ok(content)
}

fn check_leaf_len(found: usize) -> Result<(), BadPiece> {
    let max = LEAF_MAX_BYTES;
    if found > max {
        return Err(BadPiece::LeafTooLong { max, found });
    }
    Ok(())
}

/// Reads the children. Two or more, none of them empty: so each is shorter than the node, and no
/// tree, however made, goes on for ever.
fn read_node(list: &[u8]) -> Result<Vec<Child>, BadPiece> {
    let mut rest = list;
    let mut children = Vec::new();
    let mut total = 0_u64;
    while !rest.is_empty() {
        let bad = |expected, found: String| BadPiece::Node {
            offset: 1 + list.len() - rest.len(),
            expected,
            found,
        };
        if children.len() == NODE_MAX_CHILDREN {
            return Err(bad("the end after 32 children", "more".to_owned()));
        }
        let Some((hash, tail)) = rest.split_first_chunk() else {
            return Err(bad("a hash of 32 bytes", format!("{} bytes", rest.len())));
        };
        let Some((len, tail)) = read_len(tail) else {
            return Err(bad("a hash and a length in LEB128", "no such".to_owned()));
        };
        if len == 0 {
            return Err(bad("a child that is not empty", "length 0".to_owned()));
        }
        total = match total.checked_add(len) {
            Some(total) => total,
            None => return Err(bad("a total below 2^64", format!("{len} more"))),
        };
        children.push(Child {
            hash: Hash::from_bytes(*hash),
            len,
        });
        rest = tail;
    }
    if children.len() < 2 {
        return Err(BadPiece::Node {
            offset: 1 + list.len(),
            expected: "two children or more",
            found: children.len().to_string(),
        });
    }
    Ok(children)
}

/// The LEB128 number at the beginning, in its shortest form, and what follows it.
fn read_len(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7f);
        if at == 9 && part > 1 {
            return None;
        }
        number |= part << (7 * at);
        if byte & 0x80 == 0 {
            let shortest = at == 0 || part != 0;
            return shortest.then(|| (number, &bytes[at + 1..]));
        }
    }
    None
}
