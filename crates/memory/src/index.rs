//! What a memory knows of its documents without reading them: a fold over its events.
//!
//! | part | what it has | grows with |
//! |---|---|---|
//! | [`Table`] | each document: when it was born and ended, what filters ask for | documents |
//! | [`WordIndex`] | which words are in which documents, for one analyser | words |
//! | [`VectorIndex`] | the vectors, side by side | vectors |
//!
//! Documents are numbered in the order of their events. So what there was at version V is a prefix of
//! all there is, and the numbers that BM25 needs are differences of two prefix sums: of what was born
//! up to V, and of what ended up to V. A search at V reads the same lists as a search now.
//!
//! Invariant: each part is a pure function of the events and the contents that are left. A document
//! that is forgotten has a number and nothing else, in every part and at every version; whether
//! it was removed from an index or never came into it makes no difference.

mod blob;
mod table;
mod vectors;
mod words;

pub(crate) use table::{At, Folded, Table};
pub(crate) use vectors::VectorIndex;
pub(crate) use words::WordIndex;
