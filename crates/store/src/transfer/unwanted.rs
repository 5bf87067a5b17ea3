//! Pieces of a portable file that are not to be stored: those of documents that a memory has forgotten
//! here, or forgets further on in the file.
//!
//! A file of a whole store that was made before has them, and they are in it for streams that are not
//! imported, because they are here already.
//!
//! Invariant: what an event of the file needs that is not forgotten is not among them.

use std::collections::{HashMap, HashSet};

use crate::event::Event;
use crate::forgotten::{forgotten_by, roots_of};
use crate::hash::Hash;
use crate::name::{StreamId, StreamKind};
use crate::payload;

/// What a file has, by the names its streams have there.
#[derive(Default)]
pub(super) struct Pieces {
    /// What events refer to, without those of memories.
    roots: HashSet<Hash>,
    /// The same of memories, with the event.
    of_memories: HashMap<StreamId, Vec<(u64, Hash)>>,
    forgotten: HashMap<StreamId, HashSet<u64>>,
    /// What each node lists.
    nodes: HashMap<Hash, Vec<Hash>>,
}

impl Pieces {
    pub fn piece(&mut self, hash: Hash, bytes: &[u8]) {
        let children = payload::children(bytes).unwrap_or_default();
        if !children.is_empty() {
            let children = children.into_iter().map(|child| child.hash);
            self.nodes.insert(hash, children.collect());
        }
    }

    pub fn event(&mut self, event: &Event) {
        if event.stream.kind() != StreamKind::Memory {
            self.roots.extend(roots_of(event));
            return;
        }
        let roots = roots_of(event).map(|root| (event.sequence, root));
        let of_memory = self.of_memories.entry(event.stream.clone()).or_default();
        of_memory.extend(roots);
        self.forgotten(&event.stream, forgotten_by(event));
    }

    /// Events of a stream whose payloads are forgotten.
    pub fn forgotten(&mut self, stream: &StreamId, events: impl IntoIterator<Item = u64>) {
        let mut events = events.into_iter().peekable();
        if events.peek().is_some() {
            let forgotten = self.forgotten.entry(stream.clone()).or_default();
            forgotten.extend(events);
        }
    }

    /// What is not to be stored.
    pub fn unwanted(mut self) -> HashSet<Hash> {
        let mut gone = Vec::new();
        for (stream, roots) in std::mem::take(&mut self.of_memories) {
            let forgotten = self.forgotten.get(&stream);
            for (sequence, root) in roots {
                match forgotten.is_some_and(|forgotten| forgotten.contains(&sequence)) {
                    true => gone.push(root),
                    false => drop(self.roots.insert(root)),
                }
            }
        }
        if gone.is_empty() {
            return HashSet::new();
        }
        let needed = self.below(self.roots.iter().copied().collect());
        let mut unwanted = self.below(gone);
        unwanted.retain(|hash| !needed.contains(hash));
        unwanted
    }

    /// These pieces, and all below them.
    fn below(&self, mut ahead: Vec<Hash>) -> HashSet<Hash> {
        let mut found = HashSet::new();
        while let Some(hash) = ahead.pop() {
            if found.insert(hash) {
                ahead.extend(self.nodes.get(&hash).into_iter().flatten());
            }
        }
        found
    }
}
