//! Forgetting: pieces of payloads that a memory has forgotten leave the log.
//!
//! 1. From here on no new event refers to a piece that is in the log already (`Core::erasing_from`).
//! 2. The segment that is being written is sealed.
//! 3. All sealed segments are read once: what events refer to, and which piece lists which.
//! 4. The pieces of the forgotten payloads that no other event needs go: segments that have them are
//!    rewritten without them. Leftovers go too: pieces that no event refers to, as a crash between the
//!    pieces and their event leaves them. They may say what is forgotten now, under another hash.
//!
//! Invariants: nothing that an event needs goes, unless the event is forgotten. A piece that is stored
//! promises that everything below it is: so of leftovers, which somebody may store again after a
//! crash, what lists others goes before them. A crash leaves segments as they were or rewritten, and
//! asking again goes on from there: also if nothing forgotten is left, everything is read once in the
//! life of a process, for leftovers. They stay while an import has stored pieces of which the
//! events are still to come, or if there is an event that cannot be read and may need them; but for
//! those that list a piece that goes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::record::Record;
use super::{Inner, lock};
use crate::error::StoreError;
use crate::event::Event;
use crate::forgotten::{forgotten_by, roots_of};
use crate::hash::Hash;
use crate::name::{StreamId, StreamKind};
use crate::payload;

/// Who refers to which pieces.
#[derive(Default)]
struct References {
    /// What events refer to, without those of memories.
    roots: HashSet<Hash>,
    /// The same of memories, by stream and sequence.
    of_memories: Vec<(StreamId, u64, Hash)>,
    forgotten: HashMap<StreamId, HashSet<u64>>,
    /// All pieces.
    pieces: HashSet<Hash>,
    /// What each node lists.
    nodes: HashMap<Hash, Vec<Hash>>,
    /// There is a record that cannot be read: nobody knows what it refers to.
    unreadable: bool,
}

/// What becomes of pieces that no event refers to.
#[derive(Clone, Copy, PartialEq)]
enum Leftovers {
    Go,
    Stay,
}

impl Inner {
    /// As [`crate::Store::erase_forgotten`].
    pub fn erase_forgotten_alone(
        &self,
        stream: &StreamId,
        said_at: u64,
    ) -> Result<u64, StoreError> {
        let _no_retention = lock(&self.retiring);
        self.erase_if_there(stream, said_at, Leftovers::Go)
    }

    /// The same for who imports: no retention can begin meanwhile, and there may be pieces of which
    /// the events are still to come.
    pub fn erase_while_importing(
        &self,
        stream: &StreamId,
        said_at: u64,
    ) -> Result<u64, StoreError> {
        self.erase_if_there(stream, said_at, Leftovers::Stay)
    }

    fn erase_if_there(
        &self,
        stream: &StreamId,
        said_at: u64,
        leftovers: Leftovers,
    ) -> Result<u64, StoreError> {
        self.disk.log()?;
        let Some(candidates) = self.forgotten_pieces(stream, said_at)? else {
            return Ok(0);
        };
        // Also if nothing else is left: what they were made of is in them.
        self.drop_helpers(stream)?;
        // Who began may have been stopped when what is forgotten was gone, and leftovers were not.
        let is_done = leftovers == Leftovers::Stay || lock(&self.core).without_leftovers;
        if candidates.is_empty() && is_done {
            return Ok(0);
        }
        if leftovers == Leftovers::Go {
            // Until this one is done: what lists others goes first, and they are leftovers from then on.
            lock(&self.core).without_leftovers = false;
        }
        let (gone, without_leftovers) = self.erase(candidates, leftovers)?;
        lock(&self.core).without_leftovers |= without_leftovers;
        Ok(gone)
    }

    /// The pieces of the payloads that an event says are forgotten, as far as they are there; `None`
    /// if it says nothing of the kind.
    fn forgotten_pieces(
        &self,
        stream: &StreamId,
        said_at: u64,
    ) -> Result<Option<HashSet<Hash>>, StoreError> {
        let mut found = HashSet::new();
        let mut says_so = false;
        for said in self.read(stream, said_at, 1, false)? {
            for sequence in forgotten_by(&said.event) {
                says_so = true;
                let events = self.read(stream, sequence, 1, false)?;
                for root in events.iter().flat_map(|recorded| roots_of(&recorded.event)) {
                    self.find_below(root, &mut found)?;
                }
            }
        }
        Ok(says_so.then_some(found))
    }

    fn find_below(&self, root: Hash, found: &mut HashSet<Hash>) -> Result<(), StoreError> {
        let mut ahead = vec![root];
        while let Some(hash) = ahead.pop() {
            let Some(bytes) = self.find_piece(&hash)? else {
                continue;
            };
            if found.insert(hash) {
                let children = payload::children(&bytes).unwrap_or_default();
                ahead.extend(children.into_iter().map(|child| child.hash));
            }
        }
        Ok(())
    }

    /// How many pieces are gone, and whether all are gone to which nothing refers.
    fn erase(
        &self,
        mut candidates: HashSet<Hash>,
        leftovers: Leftovers,
    ) -> Result<(u64, bool), StoreError> {
        let log = self.disk.log()?;
        // What is appended from here on refers to pieces from here on. It stays so: an append whose
        // pieces were looked up before must see that something has changed.
        let (from, applied) = {
            let mut core = lock(&self.core);
            let from = log.last_lsn() + 1;
            core.erasing_from = from;
            (from, core.applied)
        };
        log.wait_durable(applied)?;
        log.seal()?;
        self.maintain()?;
        let sealed = Arc::clone(&lock(&self.core).sealed);
        let mut references = References::default();
        for segment in sealed.iter() {
            let mut reader = self.disk.open_segment(segment.number)?;
            while let Some((_, record)) = reader.next_record()? {
                references.take(record.lsn, record.payload);
            }
        }
        let leftovers_go = leftovers == Leftovers::Go && !references.unreadable;
        if leftovers_go {
            candidates.extend(references.pieces.drain());
        }
        let gone = references.without(candidates);
        // What lists others is behind them. It goes first, unless it is by it that they are found again.
        let mut in_order: Vec<usize> = (0..sealed.len()).collect();
        if leftovers_go {
            in_order.reverse();
        }
        for at in in_order {
            let segment = &sealed[at];
            let has_some = self
                .indexes
                .ask(&self.disk, &sealed[..at], segment, |handle| {
                    for hash in &gone {
                        if handle.index.piece(hash)?.is_some() {
                            return Ok(true);
                        }
                    }
                    Ok(false)
                })?;
            if !has_some {
                continue;
            }
            let keep = |lsn: u64, payload: &[u8]| match Record::read(lsn, payload) {
                Ok(Record::Piece(hash, _)) => lsn >= from || !gone.contains(&hash),
                _ => true,
            };
            self.indexes.while_changing(segment.number, || {
                Ok(log.rewrite_segment(segment.number, keep)?)
            })?;
            self.indexes
                .ask(&self.disk, &sealed[..at], segment, |_| Ok(()))?;
        }
        Ok((gone.len() as u64, leftovers_go))
    }
}

impl References {
    fn take(&mut self, lsn: u64, payload: &[u8]) {
        match Record::read(lsn, payload) {
            Ok(Record::Piece(hash, bytes)) => {
                self.pieces.insert(hash);
                let children = payload::children(bytes).unwrap_or_default();
                if !children.is_empty() {
                    let children = children.into_iter().map(|child| child.hash);
                    self.nodes.insert(hash, children.collect());
                }
            }
            Ok(Record::Event(bytes)) => {
                let Ok(event) = Event::decode(bytes) else {
                    self.unreadable = true;
                    return;
                };
                if event.stream.kind() != StreamKind::Memory {
                    self.roots.extend(roots_of(&event));
                    return;
                }
                let (stream, sequence) = (&event.stream, event.sequence);
                let roots = roots_of(&event).map(|root| (stream.clone(), sequence, root));
                self.of_memories.extend(roots);
                if forgotten_by(&event).next().is_some() {
                    let forgotten = self.forgotten.entry(stream.clone()).or_default();
                    forgotten.extend(forgotten_by(&event));
                }
            }
            Err(_) => self.unreadable = true,
        }
    }

    /// The candidates that no event needs, and what lists one of them.
    fn without(mut self, candidates: HashSet<Hash>) -> HashSet<Hash> {
        for (stream, sequence, root) in std::mem::take(&mut self.of_memories) {
            let forgotten = self.forgotten.get(&stream);
            if !forgotten.is_some_and(|forgotten| forgotten.contains(&sequence)) {
                self.roots.insert(root);
            }
        }
        let mut live = HashSet::new();
        let mut ahead: Vec<Hash> = self.roots.iter().copied().collect();
        while let Some(hash) = ahead.pop() {
            if live.insert(hash) {
                ahead.extend(self.nodes.get(&hash).into_iter().flatten());
            }
        }
        let mut gone: HashSet<Hash> = candidates;
        gone.retain(|hash| !live.contains(hash));
        loop {
            let before = gone.len();
            let lists_gone =
                |children: &Vec<Hash>| children.iter().any(|child| gone.contains(child));
            let more: Vec<Hash> = self
                .nodes
                .iter()
                .filter(|(hash, children)| !gone.contains(*hash) && lists_gone(children))
                .map(|(hash, _)| *hash)
                .collect();
            gone.extend(more);
            if gone.len() == before {
                return gone;
            }
        }
    }
}
