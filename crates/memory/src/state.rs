//! What a handle to a memory has in its hands, and how it follows the stream.
//!
//! ```text
//! head of the store ─► events behind ours ─► contents of what they add ─► fold, under a short lock
//! ```
//!
//! Invariants: the state is always that of one version of the stream, whose hash was computed from
//! the events themselves. No lock is held while the store is asked. Two who follow at the same time
//! do the same, and the second changes nothing.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dalsegno_store::engine::{damaged, forgotten_by};
use dalsegno_store::payload;
use dalsegno_store::{Body, Event, Hash, Payload, Store, StoreError, StreamId, Version};

use crate::analyser::Analyser;
use crate::content::{self, CONTENT_TYPE};
use crate::document::Content;
use crate::dot::Way;
use crate::index::{Folded, Table, VectorIndex, WordIndex};
use crate::record;
use crate::search::Scratch;

/// So many events are read at a time.
pub(crate) const PAGE_EVENTS: usize = 2000;
/// So many contents are asked for at a time.
const CONTENTS_AT_ONCE: usize = 256;
/// So often it is tried again when others forget what is being read.
pub(crate) const TRIES: usize = 100;

/// What is folded.
#[derive(Debug)]
pub(crate) struct State {
    pub table: Table,
    pub words: HashMap<Analyser, WordIndex>,
    pub vectors: Option<VectorIndex>,
    /// The version that was last kept beside the store.
    pub kept: u64,
}

impl State {
    pub fn new() -> State {
        State {
            table: Table::new(),
            words: HashMap::new(),
            vectors: None,
            kept: 0,
        }
    }

    /// Takes in the next events; those it has are passed over.
    fn take(&mut self, events: Vec<(Event, Hash, Option<Content>)>) {
        let before = self.table.head().sequence;
        let mut forgot = false;
        for (event, hash, content) in events {
            if event.sequence != self.table.head().sequence + 1 {
                continue;
            }
            let had_dimension = self.table.dimension().is_some();
            match self.table.fold(&event, hash, content.as_ref()) {
                Folded::Added(number) => {
                    if let (false, Some(dimension)) = (had_dimension, self.table.dimension()) {
                        self.vectors = Some(VectorIndex::new(dimension, number));
                    }
                    let complete = self.words.values_mut();
                    for words in complete.filter(|words| words.documents() == number) {
                        words.add(content.as_ref());
                    }
                    let vectors = self.vectors.as_mut();
                    if let Some(vectors) = vectors.filter(|v| v.documents() == number) {
                        vectors.add(content.as_ref());
                    }
                }
                Folded::Forgot => forgot = true,
                Folded::Other => {}
            }
        }
        let documents = self.table.docs.len() as u32;
        if forgot {
            let forgotten = self.table.forgotten_after(before);
            for words in self.words.values_mut() {
                words.remove(&forgotten, &self.table);
            }
            if let Some(vectors) = &mut self.vectors {
                vectors.remove(&forgotten);
            }
        }
        for words in self.words.values_mut() {
            if words.documents() == documents {
                words.follow(&self.table);
            }
        }
    }
}

/// What all handles to a memory share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub stream: StreamId,
    pub state: RwLock<State>,
    pub scratch: Scratch,
    pub way: Way,
    pub threads: usize,
    /// What made the first vector, once that is known.
    pub model: OnceLock<Option<String>>,
    /// Somebody keeps the indexes.
    pub keeping: AtomicBool,
}

impl Inner {
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes to the version that was the newest when it was asked for, or further: not to the one that
    /// is the newest then, which may never come while others write. `own` are contents by sequence that
    /// need not be read.
    pub async fn follow(&self, own: &HashMap<u64, Content>) -> Result<Version, StoreError> {
        let mut tried = 0;
        loop {
            let head = self.store.head(&self.stream).await?;
            let head = head.unwrap_or(Version::START);
            let from = match self.knows(head) {
                Some(known) => return known,
                None => self.read().table.head(),
            };
            match self.take_tail(from, head, own).await {
                Ok(()) => {
                    if let Some(known) = self.knows(head) {
                        return known;
                    }
                }
                Err(e) => {
                    // What is missing may have been forgotten while it was read.
                    tried += 1;
                    let now = self.store.head(&self.stream).await?;
                    if now == Some(head) || tried > TRIES {
                        return Err(e);
                    }
                }
            }
        }
    }

    /// The version that it is at, if that is this one or a later one of the same history.
    fn knows(&self, head: Version) -> Option<Result<Version, StoreError>> {
        let state = self.read();
        let at = state.table.head();
        // Others may have come further meanwhile.
        let is_known = || state.table.version(head.sequence) == Some(head);
        (at.sequence >= head.sequence).then(|| match is_known() {
            true => Ok(at),
            false => Err(self.other_history(head)),
        })
    }

    fn other_history(&self, head: Version) -> StoreError {
        let expected = format!("event {} with hash {}", head.sequence, head.hash);
        damaged(self.stream.to_string(), expected, "another history")
    }

    async fn take_tail(
        &self,
        from: Version,
        head: Version,
        own: &HashMap<u64, Content>,
    ) -> Result<(), StoreError> {
        let mut at = from;
        let mut page = self.page(at, head).await?;
        let mut forgotten: HashSet<u64> = page.iter().flat_map(forgotten_by).collect();
        let mut ahead = at.sequence + page.len() as u64;
        while ahead < head.sequence {
            let version = Version {
                sequence: ahead,
                hash: Hash::ZERO,
            };
            let later = self.page(version, head).await?;
            forgotten.extend(later.iter().flat_map(forgotten_by));
            ahead += later.len() as u64;
        }
        loop {
            let mut contents = self.contents_of(&page, &forgotten, own).await?;
            let mut events = Vec::with_capacity(page.len());
            for event in page {
                at = at.after(&event.encode());
                let content = contents.remove(&event.sequence);
                events.push((event, at.hash, content));
            }
            if at.sequence == head.sequence && at.hash != head.hash {
                return Err(self.other_history(head));
            }
            self.write().take(events);
            if at.sequence >= head.sequence {
                return Ok(());
            }
            page = self.page(at, head).await?;
        }
    }

    async fn page(&self, after: Version, head: Version) -> Result<Vec<Event>, StoreError> {
        let left = usize::try_from(head.sequence - after.sequence).unwrap_or(usize::MAX);
        let limit = left.min(PAGE_EVENTS);
        let (store, next) = (&self.store, after.sequence + 1);
        let page = store.events(&self.stream, next, limit).await?;
        match page.first() {
            Some(_) => Ok(page),
            None => {
                let expected = format!("event {next}");
                Err(damaged(self.stream.to_string(), expected, "none"))
            }
        }
    }

    /// What the events add, by sequence, but for what is forgotten or no content.
    async fn contents_of(
        &self,
        events: &[Event],
        forgotten: &HashSet<u64>,
        own: &HashMap<u64, Content>,
    ) -> Result<HashMap<u64, Content>, StoreError> {
        let mut found = HashMap::new();
        let mut wanted = Vec::new();
        for event in events {
            if record::added(event).is_none() || forgotten.contains(&event.sequence) {
                continue;
            }
            if let Some(content) = own.get(&event.sequence) {
                found.insert(event.sequence, content.clone());
                continue;
            }
            let body = event.input.as_ref().map(|payload| &payload.body);
            if let Some(Body::Stored { root, bytes }) = body {
                wanted.push((event.sequence, *root, *bytes));
            }
        }
        let roots: Vec<(Hash, u64)> = wanted.iter().map(|(_, r, b)| (*r, *b)).collect();
        let contents = self.contents(&roots).await?;
        for ((sequence, ..), content) in wanted.iter().zip(contents) {
            found.extend(content.map(|content| (*sequence, content)));
        }
        Ok(found)
    }

    /// Contents by their roots and lengths; `None` for what is not the content of a document.
    pub async fn contents(
        &self,
        roots: &[(Hash, u64)],
    ) -> Result<Vec<Option<Content>>, StoreError> {
        let mut contents = Vec::with_capacity(roots.len());
        for some in roots.chunks(CONTENTS_AT_ONCE) {
            let hashes: Vec<Hash> = some.iter().map(|(root, _)| *root).collect();
            let pieces = self.store.pieces(&hashes).await?;
            for ((root, bytes), piece) in some.iter().zip(pieces) {
                // A short one is a single piece.
                let only = |hash: &Hash| (hash == root).then_some(&piece).ok_or(());
                let content = match payload::assemble(root, *bytes, u64::MAX, only) {
                    Ok(content) => content,
                    Err(_) => self.long_content(*root, *bytes).await?,
                };
                contents.push(content::decode(&content));
            }
        }
        Ok(contents)
    }

    async fn long_content(&self, root: Hash, bytes: u64) -> Result<Vec<u8>, StoreError> {
        let payload = Payload {
            content_type: CONTENT_TYPE.into(),
            body: Body::Stored { root, bytes },
        };
        self.store.payload(&payload).await
    }
}
