//! Keeping the indexes beside the store, so that opening a memory costs the tail of its stream.
//!
//! | helper | what it has |
//! |---|---|
//! | `memory-<memory>-docs` | the table of documents |
//! | `memory-<memory>-words-<analyser>` | the words, for one analyser |
//! | `memory-<memory>-vectors` | the vectors |
//!
//! The names are the first 16 digits of hashes. What is in them is in `index/blob.rs`.
//!
//! Invariants: a helper is believed only if it is whole, of this memory, and of a version that the
//! stream has had. What is forgotten is in no helper: they go before the content does, and one that
//! somebody wrote at the same moment is replaced when the memory is next opened.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dalsegno_store::{Hash, StoreError, Version};

use crate::analyser::Analyser;
use crate::index::{Table, VectorIndex, WordIndex};
use crate::state::{Inner, State};

/// With fewer events since, it is not worth it.
const KEEP_EVENTS: u64 = 500;
/// While a memory is used, its indexes are kept when it has grown by so much, or by a third.
const KEEP_GROWN_EVENTS: u64 = 20_000;

impl Inner {
    /// What the names of all helpers of this memory begin with.
    fn prefix(&self) -> String {
        format!(
            "memory-{}",
            digits(&Hash::of(self.stream.to_string().as_bytes()))
        )
    }

    fn name_of_words(&self, analyser: Analyser) -> String {
        let of = digits(&Hash::of(&analyser.pins()));
        format!("{}-words-{of}", self.prefix())
    }

    /// What a helper says it is of.
    fn of(&self, part: &str, pins: &[u8]) -> Hash {
        let stream = self.stream.to_string();
        let lengths = [part.len() as u64, stream.len() as u64];
        let mut bytes: Vec<u8> = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend_from_slice(part.as_bytes());
        bytes.extend_from_slice(stream.as_bytes());
        bytes.extend_from_slice(pins);
        Hash::of(&bytes)
    }

    /// Begins with what was kept, if it is of this stream; and comes to the newest version.
    pub async fn open(&self) -> Result<(), StoreError> {
        let name = format!("{}-docs", self.prefix());
        let kept = self.store.helper(&name).await.unwrap_or_default();
        let table = kept.and_then(|bytes| Table::decode(&bytes, &self.of("docs", &[])));
        let mut kept = 0;
        if let Some(table) = table {
            kept = table.head().sequence;
            self.write().kept = kept;
            self.write().table = table;
            if self.follow(&HashMap::new()).await.is_err() {
                // Of another history, or damaged in a way that its checksum does not show.
                *self.write() = State::new();
                kept = 0;
            }
        }
        if self.read().table.head() == Version::START {
            // From the beginning: each document is read once for everything.
            let analyser = Analyser::default();
            let words = WordIndex::new(analyser);
            self.write().words.insert(analyser, words);
        }
        self.follow(&HashMap::new()).await?;
        self.finish_forgetting(kept).await
    }

    /// Removes what a crash, or another process, left of what is forgotten.
    pub(crate) async fn finish_forgetting(&self, kept: u64) -> Result<(), StoreError> {
        let (forgets, erased_until) = {
            let state = self.read();
            (state.table.forgets.clone(), state.table.erased_until)
        };
        if forgets.last().is_some_and(|last| *last > kept) {
            self.drop_kept().await?;
        }
        let open: Vec<u64> = forgets
            .into_iter()
            .filter(|at| *at > erased_until)
            .collect();
        for said_at in &open {
            match self.store.erase_forgotten(&self.stream, *said_at).await {
                Ok(_) => self.write().table.erased_until = *said_at,
                // Its owner will do it.
                Err(StoreError::ReadOnly) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        if !open.is_empty() {
            // So that the next opening need not look again. If it cannot be kept, it does.
            self.keep().await.ok();
        }
        Ok(())
    }

    /// Removes all helpers of this memory.
    pub async fn drop_kept(&self) -> Result<(), StoreError> {
        self.write().kept = 0;
        match self.store.drop_helpers(&self.prefix()).await {
            Err(StoreError::ReadOnly) => Ok(()),
            done => done,
        }
    }

    /// The words that were kept, and the version that they are of.
    pub async fn kept_words(&self, analyser: Analyser) -> Option<(WordIndex, Version)> {
        let bytes = self.store.helper(&self.name_of_words(analyser)).await;
        let of = self.of("words", &analyser.pins());
        WordIndex::decode(&bytes.ok()??, &of, analyser)
    }

    /// The same of vectors.
    pub async fn kept_vectors(&self) -> Option<(VectorIndex, Version)> {
        let bytes = self
            .store
            .helper(&format!("{}-vectors", self.prefix()))
            .await;
        VectorIndex::decode(&bytes.ok()??, &self.of("vectors", &[]))
    }

    /// Keeps the indexes if the memory has grown by much.
    pub async fn keep_if_grown(&self) -> Result<(), StoreError> {
        let (head, kept) = {
            let state = self.read();
            (state.table.head().sequence, state.kept)
        };
        match head - kept.min(head) >= KEEP_GROWN_EVENTS.max(kept / 3) {
            true => self.keep().await,
            false => Ok(()),
        }
    }

    /// Keeps all indexes that are complete, as they are now.
    pub async fn keep(&self) -> Result<(), StoreError> {
        loop {
            let (helpers, version) = self.helpers();
            for (name, bytes) in &helpers {
                self.store.keep_helper(name, bytes).await?;
            }
            self.write().kept = version.sequence;
            // Somebody may have forgotten something in between, which is in them then.
            self.follow(&HashMap::new()).await?;
            let last = self.read().table.forgets.last().copied();
            if last.is_none_or(|last| last <= version.sequence) {
                return Ok(());
            }
            self.drop_kept().await?;
        }
    }

    fn helpers(&self) -> (Vec<(String, Vec<u8>)>, Version) {
        let state = self.read();
        let (table, version) = (&state.table, state.table.head());
        let documents = table.docs.len() as u32;
        let mut helpers = Vec::new();
        for (analyser, words) in &state.words {
            if words.documents() == documents {
                let bytes = words.encode(&self.of("words", &analyser.pins()), version);
                helpers.push((self.name_of_words(*analyser), bytes));
            }
        }
        let vectors = state.vectors.as_ref();
        if let Some(vectors) = vectors.filter(|vectors| vectors.documents() == documents) {
            let bytes = vectors.encode(&self.of("vectors", &[]), version);
            helpers.push((format!("{}-vectors", self.prefix()), bytes));
        }
        let docs = table.encode(&self.of("docs", &[]));
        helpers.push((format!("{}-docs", self.prefix()), docs));
        (helpers, version)
    }
}

/// What was forgotten since a version, if that is one of this stream and has so many documents. It is
/// to be removed from what was kept before anybody else can forget something.
pub(crate) fn forgotten_since(
    table: &Table,
    version: Version,
    documents: u32,
) -> Option<HashSet<u32>> {
    let fits =
        table.version(version.sequence) == Some(version) && table.at(version).born == documents;
    fits.then(|| table.forgotten_after(version.sequence))
}

/// A store in a folder takes helpers at once. Whoever wants to know whether it worked calls
/// [`crate::Memory::keep`].
impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.read();
        let head = state.table.head().sequence;
        let is_due = head - state.kept.min(head) >= KEEP_EVENTS;
        drop(state);
        if is_due {
            let mut context = Context::from_waker(Waker::noop());
            let _: Poll<_> = pin!(self.keep()).poll(&mut context);
        }
    }
}

fn digits(hash: &Hash) -> String {
    hash.to_string().chars().take(16).collect()
}
