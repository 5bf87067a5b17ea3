//! What has gone through a portable file so far, and what may come next. Reader and writer ask the
//! same book, so that nothing is written that would not be read.
//!
//! | what comes | must |
//! |---|---|
//! | piece | be what its hash says; come once; come after all its children, and give their lengths |
//! | event | be in the one form there is; be of a stream that the file holds; be the next of its stream, from 1 on; come after the roots of its payloads, and give their lengths |
//! | the end | come after at least one event of each stream that the file says it holds, and after all events that say what is forgotten |
//!
//! A payload of a memory that is forgotten has no pieces: an event behind it in its stream says so.
//!
//! Invariant: a payload of an event that was let in can be put together from pieces let in before.

use std::collections::{BTreeMap, HashMap};

use super::Holds;
use crate::event::{Body, Event, Version};
use crate::forgotten::forgotten_by;
use crate::hash::Hash;
use crate::name::{StreamId, StreamKind};
use crate::payload::{self, Child, MAX_DEPTH};

/// Something that may not come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub expected: String,
    pub found: String,
}

impl Wrong {
    pub fn new(expected: impl Into<String>, found: impl Into<String>) -> Wrong {
        Wrong {
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// What is known of a piece.
struct Known {
    /// The length of all content under it.
    len: u64,
    /// How far below it the deepest leaf is.
    height: usize,
}

pub(super) struct Book {
    holds: Holds,
    pieces: HashMap<Hash, Known>,
    heads: BTreeMap<StreamId, Version>,
    /// Events of memories whose payloads have not come, and what is missing. They must be forgotten.
    missing: BTreeMap<(StreamId, u64), Wrong>,
    events: u64,
}

impl Book {
    pub fn new(holds: Holds) -> Book {
        Book {
            holds,
            pieces: HashMap::new(),
            heads: BTreeMap::new(),
            missing: BTreeMap::new(),
            events: 0,
        }
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn pieces(&self) -> u64 {
        self.pieces.len() as u64
    }

    pub fn heads(&self) -> &BTreeMap<StreamId, Version> {
        &self.heads
    }

    pub fn into_heads(self) -> BTreeMap<StreamId, Version> {
        self.heads
    }

    pub fn has_piece(&self, hash: &Hash) -> bool {
        self.pieces.contains_key(hash)
    }

    pub fn piece(&mut self, hash: &Hash, bytes: &[u8]) -> Result<(), Wrong> {
        if self.has_piece(hash) {
            let expected = format!("the piece {hash} once");
            return Err(Wrong::new(expected, "the same piece again"));
        }
        let (len, children) = payload::under(hash, bytes)
            .map_err(|bad| Wrong::new(format!("the piece {hash}"), bad.to_string()))?;
        let mut height = 0;
        for child in &children {
            let below = self.known(child, || format!("the piece {hash}"))?;
            height = height.max(below.height + 1);
        }
        if height > MAX_DEPTH {
            let expected = format!("at most {MAX_DEPTH} levels below the piece {hash}");
            return Err(Wrong::new(expected, format!("{height}")));
        }
        self.pieces.insert(*hash, Known { len, height });
        Ok(())
    }

    /// The piece that something refers to, which must have come, and be as long as is said there.
    fn known(&self, child: &Child, by: impl Fn() -> String) -> Result<&Known, Wrong> {
        let Child { hash, len } = child;
        match self.pieces.get(hash) {
            Some(known) if known.len == *len => Ok(known),
            Some(known) => {
                let found = format!("{len} bytes, as {} says", by());
                let expected = format!("the length of the piece {hash}, {} bytes", known.len);
                Err(Wrong::new(expected, found))
            }
            None => {
                let expected = format!("the piece {hash} before {}, which needs it", by());
                Err(Wrong::new(expected, "no such piece"))
            }
        }
    }

    pub fn event(&mut self, bytes: &[u8]) -> Result<(Event, Version), Wrong> {
        let event =
            Event::decode(bytes).map_err(|e| Wrong::new("the bytes of an event", e.to_string()))?;
        let place = || format!("event {} of {}", event.sequence, event.stream);
        if let Holds::Streams(streams) = &self.holds
            && !streams.contains(&event.stream)
        {
            let expected = "an event of a stream that the file says it holds";
            return Err(Wrong::new(expected, place()));
        }
        let head = self.heads.get(&event.stream).unwrap_or(&Version::START);
        let version = head.after(bytes);
        if event.sequence != version.sequence {
            let expected = format!("event {} of {}", version.sequence, event.stream);
            return Err(Wrong::new(expected, place()));
        }
        for payload in event.payloads() {
            if let Body::Stored { root, bytes } = payload.body {
                let root = Child {
                    hash: root,
                    len: bytes,
                };
                let may_be_forgotten = event.stream.kind() == StreamKind::Memory
                    && !self.pieces.contains_key(&root.hash);
                match self.known(&root, place) {
                    Err(wrong) if may_be_forgotten => {
                        let key = (event.stream.clone(), event.sequence);
                        self.missing.insert(key, wrong);
                    }
                    known => drop(known?),
                }
            }
        }
        for sequence in forgotten_by(&event) {
            self.missing.remove(&(event.stream.clone(), sequence));
        }
        self.heads.insert(event.stream.clone(), version);
        self.events += 1;
        Ok((event, version))
    }

    /// Whether the end may come.
    pub fn check_complete(&self) -> Result<(), Wrong> {
        if let Some(missing) = self.missing.values().next() {
            return Err(missing.clone());
        }
        let Holds::Streams(streams) = &self.holds else {
            return Ok(());
        };
        match streams.iter().find(|s| !self.heads.contains_key(*s)) {
            Some(missing) => {
                let expected = format!("events of {missing}, which the file says it holds");
                Err(Wrong::new(expected, "none"))
            }
            None => Ok(()),
        }
    }
}
