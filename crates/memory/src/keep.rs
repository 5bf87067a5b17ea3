//! Keeping the indexes beside the store, so that opening a memory costs the tail of its stream.
//!
//! | helper of the memory's stream | what it has |
//! |---|---|
//! | `docs` | the table of documents |
//! | `words-<analyser>` | the words, for one analyser, by 16 digits of a hash |
//! | `vectors` | the vectors |
//!
//! What is in them is in `index/blob.rs`. When they are written:
//!
//! | moment | if |
//! |---|---|
//! | a memory was opened, an index completed | so much of the stream had to be read that it is worth it |
//! | something was added | the memory has grown by much |
//! | something was forgotten | always: they went with it |
//! | [`crate::Memory::keep_if_due`] | as after opening |
//! | the last handle is dropped, and the store takes helpers at once | there are some more events |
//!
//! Invariants: a helper is believed only if it is whole, of this memory, and of a version that the
//! stream has had. What is forgotten is in no helper: they go before the content does, and who makes
//! them says to the store that it begins before it comes to the end of the stream. So either it saw
//! what was forgotten, or the store does not keep what it made.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use dalsegno_store::{Hash, NewHelper, StoreError, Version};

use crate::analyser::Analyser;
use crate::index::{Table, VectorIndex, WordIndex};
use crate::state::{Inner, State};

const DOCS: &str = "docs";
const VECTORS: &str = "vectors";

/// With fewer events since, it is not worth it.
const KEEP_EVENTS: u64 = 500;
/// Nor if these are a smaller part of what is kept: a database takes about a third of the time in which
/// all was read to write all of it, which a few openings pay back.
const KEEP_PART: u64 = 10;
/// While a memory is used, its indexes are kept when it has grown by so much, or by a third.
const KEEP_GROWN_EVENTS: u64 = 20_000;

impl Inner {
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
        let found = self.store.helper(&self.stream, DOCS).await;
        let found = found.unwrap_or_default();
        let mut is_bad = found.is_some();
        let table = found.and_then(|bytes| Table::decode(&bytes, &self.of(DOCS, &[])));
        let mut kept = 0;
        if let Some(table) = table {
            kept = table.head().sequence;
            self.write().kept = kept;
            self.write().table = table;
            is_bad = self.follow(&HashMap::new()).await.is_err();
            if is_bad {
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
        if is_bad {
            self.drop_bad().await;
        }
        self.finish_forgetting(kept).await?;
        // It is open. Indexes that cannot be kept are made again.
        self.keep_if_due().await.ok();
        Ok(())
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

    /// Removes all helpers of this memory. Who may only read leaves that to others.
    async fn drop_kept(&self) -> Result<(), StoreError> {
        self.write().kept = 0;
        match self.store.drop_helpers(&self.stream).await {
            Err(StoreError::ReadOnly) => Ok(()),
            done => done,
        }
    }

    /// Removes helpers that are not what they say: as long as they are there, no others of the same
    /// version are kept. If that cannot be done, they are in nobody's way but their own.
    pub async fn drop_bad(&self) {
        self.drop_kept().await.ok();
    }

    /// The words that were kept, and the version that they are of; `Err` if they are damaged.
    pub async fn kept_words(
        &self,
        analyser: Analyser,
    ) -> Result<Option<(WordIndex, Version)>, Bad> {
        let name = name_of_words(analyser);
        let Ok(Some(bytes)) = self.store.helper(&self.stream, &name).await else {
            return Ok(None);
        };
        let of = self.of("words", &analyser.pins());
        let decoded = WordIndex::decode(&bytes, &of, analyser);
        decoded.map(Some).ok_or(Bad)
    }

    /// The same of vectors.
    pub async fn kept_vectors(&self) -> Result<Option<(VectorIndex, Version)>, Bad> {
        let Ok(Some(bytes)) = self.store.helper(&self.stream, VECTORS).await else {
            return Ok(None);
        };
        let decoded = VectorIndex::decode(&bytes, &self.of(VECTORS, &[]));
        decoded.map(Some).ok_or(Bad)
    }

    /// Keeps the indexes if the memory has grown by much.
    pub async fn keep_if_grown(&self) -> Result<(), StoreError> {
        let (head, kept) = {
            let state = self.read();
            (state.table.head().sequence, state.kept)
        };
        match head - kept.min(head) >= KEEP_GROWN_EVENTS.max(kept / 3) {
            true => self.keep_once().await,
            false => Ok(()),
        }
    }

    /// Keeps the indexes if who opens the memory next would have much to read.
    pub async fn keep_if_due(&self) -> Result<(), StoreError> {
        let (head, kept) = {
            let state = self.read();
            (state.table.head().sequence, state.kept)
        };
        match is_due(head - kept.min(head), kept) {
            true => self.keep_once().await,
            false => Ok(()),
        }
    }

    /// An index was completed for which so many documents had to be read: nobody should have to again.
    pub async fn keep_completed(&self, read: u64) {
        let documents = self.read().table.docs.len() as u64;
        if is_due(read, documents) {
            self.keep_once().await.ok();
        }
    }

    /// Keeps the indexes, unless somebody of this process does: each would have a copy of all of them. If
    /// that fails, it is not tried again for each document.
    async fn keep_once(&self) -> Result<(), StoreError> {
        if self.keeping.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let _keeping = Keeping(&self.keeping);
        let kept = self.keep().await;
        if kept.is_err() {
            let mut state = self.write();
            state.kept = state.kept.max(state.table.head().sequence);
        }
        kept
    }

    /// Keeps all indexes that are complete, as they are now.
    pub async fn keep(&self) -> Result<(), StoreError> {
        let Some(begun) = self.store.begin_helpers(&self.stream).await? else {
            // Not to be asked again for each document.
            let mut state = self.write();
            state.kept = state.table.head().sequence;
            return Ok(());
        };
        // What is forgotten from here on keeps these from being kept; what was before is seen now.
        self.follow(&HashMap::new()).await?;
        let (helpers, version) = self.helpers();
        for helper in helpers {
            self.store.keep_helper(&self.stream, begun, helper).await?;
        }
        let mut state = self.write();
        state.kept = state.kept.max(version.sequence);
        Ok(())
    }

    fn helpers(&self) -> (Vec<NewHelper>, Version) {
        let state = self.read();
        let (table, version) = (&state.table, state.table.head());
        let documents = table.docs.len() as u32;
        let of = version.sequence;
        let mut helpers = Vec::new();
        for (analyser, words) in &state.words {
            if words.documents() == documents {
                let name = name_of_words(*analyser);
                let bytes = words.encode(&self.of("words", &analyser.pins()), version);
                helpers.push(NewHelper { name, of, bytes });
            }
        }
        let vectors = state.vectors.as_ref();
        if let Some(vectors) = vectors.filter(|vectors| vectors.documents() == documents) {
            let bytes = vectors.encode(&self.of(VECTORS, &[]), version);
            let name = VECTORS.to_owned();
            helpers.push(NewHelper { name, of, bytes });
        }
        let bytes = table.encode(&self.of(DOCS, &[]));
        let name = DOCS.to_owned();
        helpers.push(NewHelper { name, of, bytes });
        (helpers, version)
    }
}

/// Somebody keeps the indexes, until this is dropped.
struct Keeping<'a>(&'a AtomicBool);

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A helper is there, and is not what it should be.
pub(crate) struct Bad;

fn is_due(events: u64, kept: u64) -> bool {
    events >= KEEP_EVENTS.max(kept / KEEP_PART)
}

fn name_of_words(analyser: Analyser) -> String {
    let hash = Hash::of(&analyser.pins()).to_string();
    let digits: String = hash.chars().take(16).collect();
    format!("words-{digits}")
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

/// A store in a folder takes helpers at once. One that is shared does not, and who would wait for it is
/// gone: there they are kept after opening and growing, so that the next one has little to read.
impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.read();
        let head = state.table.head().sequence;
        let is_due = head - state.kept.min(head) >= KEEP_EVENTS;
        drop(state);
        if is_due && !self.store.is_shared() {
            let mut context = Context::from_waker(Waker::noop());
            let _: Poll<_> = pin!(self.keep()).poll(&mut context);
        }
    }
}
