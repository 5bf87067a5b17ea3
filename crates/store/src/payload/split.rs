//! From a payload to its root and the pieces that are not stored yet.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use super::cut;
use super::piece::{self, Child, Piece};
use crate::hash::Hash;

/// A payload in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The piece that stands for the whole payload.
    pub root: Hash,
    /// The payload's length. It is needed, with the root, to get the payload back.
    pub len: u64,
    /// What is not known yet, each piece once, children before their parents.
    pub pieces: Vec<Piece>,
}

/// Cuts a payload into pieces and gives those that are new.
///
/// `is_known` is asked from the root down, and not about what lies below a known piece: it must say
/// yes only if everything below is stored too. Storing the pieces in the order given sees to that.
pub fn split(bytes: &[u8], is_known: impl FnMut(&Hash) -> bool) -> Split {
    let mut leaves = Vec::new();
    cut_leaves(bytes, 0, &mut leaves);
    Tree::over(&leaves).into_split(bytes, is_known)
}

/// Splits payloads of which each mostly begins like the one before, as in a conversation: what
/// is the same at the beginning is compared, not cut and hashed again.
///
/// The result is that of [`split`] in every case. The price is a copy of the last payload.
#[derive(Default)]
pub struct Splitter {
    previous: Vec<u8>,
    leaves: Vec<Child>,
}

impl Splitter {
    /// Nothing remembered yet.
    pub fn new() -> Splitter {
        Splitter::default()
    }

    /// As [`split`].
    pub fn split(&mut self, bytes: &[u8], is_known: impl FnMut(&Hash) -> bool) -> Split {
        // The last leaf ended because the payload did. All others end where they would in any
        // payload that has the same bytes up to there.
        self.leaves.pop();
        let mut same = 0;
        let keep = self.leaves.iter().take_while(|leaf| {
            let range = same..same + leaf.len as usize;
            let equal = bytes.get(range.clone()) == self.previous.get(range.clone());
            if equal {
                same = range.end;
            }
            equal
        });
        let keep = keep.count();
        self.leaves.truncate(keep);
        self.previous.truncate(same);
        self.previous.extend_from_slice(&bytes[same..]);
        cut_leaves(bytes, same, &mut self.leaves);
        Tree::over(&self.leaves).into_split(bytes, is_known)
    }
}

/// Without the payload, which is long and the user's.
impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter")
            .field("leaves", &self.leaves.len())
            .finish_non_exhaustive()
    }
}

/// Appends the leaves of the payload from this byte on, where a leaf begins. The empty payload is
/// one empty leaf.
fn cut_leaves(bytes: &[u8], from: usize, leaves: &mut Vec<Child>) {
    let mut rest = &bytes[from..];
    while !rest.is_empty() || leaves.is_empty() {
        let (leaf, tail) = rest.split_at(cut::leaf_len(rest));
        leaves.push(Child {
            hash: piece::leaf_hash(leaf),
            len: leaf.len() as u64,
        });
        rest = tail;
    }
}

/// All levels one after the other: first the leaves in order, last the root. Children stand before
/// their parents, and those of one parent side by side.
struct Tree {
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    child: Child,
    below: Below,
}

#[derive(Clone)]
enum Below {
    /// A leaf: these bytes of the payload.
    Bytes(Range<usize>),
    /// A node: these entries of the tree.
    Entries(Range<usize>),
}

impl Tree {
    fn over(leaves: &[Child]) -> Tree {
        let mut at = 0;
        let entries = leaves.iter().map(|&child| {
            let from = at;
            at += child.len as usize;
            Entry {
                child,
                below: Below::Bytes(from..at),
            }
        });
        let mut tree = Tree {
            entries: entries.collect(),
        };
        let mut level = 0..tree.entries.len();
        while level.len() > 1 {
            let next = level.end;
            tree.add_level_above(level);
            level = next..tree.entries.len();
        }
        tree
    }

    fn add_level_above(&mut self, level: Range<usize>) {
        let mut list = Vec::new();
        let mut from = level.start;
        for last in level.clone() {
            let to = last + 1;
            if !cut::node_ends(to - from, &self.entries[last].child.hash) && to < level.end {
                continue;
            }
            if to - from == 1 {
                // Left over at the end of the level. A node for one would only repeat it.
                self.entries.push(self.entries[last].clone());
            } else {
                let children = &self.entries[from..to];
                list.clear();
                piece::node_list(&mut list, children.iter().map(|entry| entry.child));
                let child = Child {
                    hash: piece::node_hash(&list),
                    len: children.iter().map(|entry| entry.child.len).sum(),
                };
                let below = Below::Entries(from..to);
                self.entries.push(Entry { child, below });
            }
            from = to;
        }
    }

    fn into_split(self, bytes: &[u8], mut is_known: impl FnMut(&Hash) -> bool) -> Split {
        let entries = &self.entries;
        let root = entries.len() - 1;
        // From the root down: what is asked about, and of that, what is new.
        let mut wanted = vec![false; entries.len()];
        wanted[root] = true;
        for at in (0..entries.len()).rev() {
            wanted[at] = wanted[at] && !is_known(&entries[at].child.hash);
            if let (true, Below::Entries(range)) = (wanted[at], &entries[at].below) {
                wanted[range.clone()].fill(true);
            }
        }
        let mut given = HashSet::new();
        let mut pieces = Vec::new();
        for (entry, wanted) in entries.iter().zip(wanted) {
            if wanted && given.insert(entry.child.hash) {
                pieces.push(Piece {
                    hash: entry.child.hash,
                    bytes: match &entry.below {
                        Below::Bytes(range) => piece::write_leaf(&bytes[range.clone()]),
                        Below::Entries(range) => {
                            piece::write_node(entries[range.clone()].iter().map(|e| e.child))
                        }
                    },
                });
            }
        }
        Split {
            root: entries[root].child.hash,
            len: entries[root].child.len,
            pieces,
        }
    }
}
