//! A memory: what is added to it, corrected, retracted and forgotten.
//!
//! How those who write at the same time get along:
//!
//! | what | rule |
//! |---|---|
//! | add | always goes through, whoever else adds: documents do not depend on each other |
//! | add under a key | once; the second is told the document of the first |
//! | add expecting a version | only if nothing else happened |
//! | correct, retract, forget | of the same document, the first; the second is told who and when |
//!
//! Invariant: when a call returns, what it did survives a crash and is seen by everybody who asks
//! from then on.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, RwLock};

use dalsegno_store::{Append, EventRef, NewEvent, Store, StoreError, StreamId, Version};

use crate::content;
use crate::document::{DocId, NewDocument};
use crate::dot::Way;
use crate::draft::Draft;
use crate::error::MemoryError;
use crate::record;
use crate::search::Scratch;
use crate::state::{Inner, State};

/// How a memory is opened.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    threads: usize,
    simd: bool,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        let cores = std::thread::available_parallelism();
        MemoryOptions {
            threads: cores.map_or(1, |cores| cores.get().min(2)),
            simd: true,
        }
    }
}

impl MemoryOptions {
    /// The usual ones.
    pub fn new() -> MemoryOptions {
        MemoryOptions::default()
    }

    /// How many threads compare vectors, at most. Changes no result.
    pub fn threads(mut self, threads: usize) -> MemoryOptions {
        self.threads = threads.max(1);
        self
    }

    /// Whether the processor's instructions for many numbers at once are used. Changes no result.
    pub fn simd(mut self, simd: bool) -> MemoryOptions {
        self.simd = simd;
        self
    }

    /// Opens a memory; one that nothing was added to is empty.
    ///
    /// # Errors
    /// The name cannot be one, or the stream could not be read.
    pub async fn open(&self, store: Arc<dyn Store>, name: &str) -> Result<Memory, MemoryError> {
        let stream = StreamId::memory(name).map_err(StoreError::from)?;
        let inner = Inner {
            store,
            stream,
            state: RwLock::new(State::new()),
            scratch: Scratch::default(),
            way: match self.simd {
                true => Way::best(),
                false => Way::Plain,
            },
            threads: self.threads,
            model: OnceLock::new(),
            keeping: AtomicBool::new(false),
        };
        inner.open().await?;
        Ok(Memory {
            inner: Arc::new(inner),
            by: None,
            cause: None,
        })
    }
}

/// A memory in a store. Cloning gives another handle to the same one.
///
/// Its indexes are kept beside the store, so that the next opening is fast: after an opening that had
/// much to read, as the memory grows, and for a local store when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) inner: Arc<Inner>,
    pub(crate) by: Option<Arc<str>>,
    pub(crate) cause: Option<EventRef>,
}

/// What forgetting came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forgotten {
    /// The documents whose content is gone.
    pub ids: Vec<DocId>,
    /// The version that says so.
    pub version: Version,
}

impl Memory {
    /// Opens a memory; one that nothing was added to is empty.
    ///
    /// # Errors
    /// The name cannot be one, or the stream could not be read.
    pub async fn open(store: Arc<dyn Store>, name: &str) -> Result<Memory, MemoryError> {
        MemoryOptions::new().open(store, name).await
    }

    /// A handle that writes in somebody's name: an agent's, a run's, a person's. It stays in the
    /// history when content is forgotten.
    pub fn by(&self, author: &str) -> Memory {
        Memory {
            by: Some(author.into()),
            ..self.clone()
        }
    }

    /// A handle whose writes name the event that led to them, as of a run. A document that names
    /// another one keeps that.
    pub fn caused_by(&self, event: EventRef) -> Memory {
        Memory {
            cause: Some(event),
            ..self.clone()
        }
    }

    /// The stream that it is.
    pub fn stream(&self) -> &StreamId {
        &self.inner.stream
    }

    /// The newest version: a sequence, and a hash over everything up to it.
    ///
    /// # Errors
    /// The store could not be read.
    pub async fn version(&self) -> Result<Version, MemoryError> {
        Ok(self.inner.follow(&HashMap::new()).await?)
    }

    /// Keeps the indexes beside the store, so that the next opening costs only what comes after.
    /// Happens by itself: see [`Memory`].
    ///
    /// # Errors
    /// They could not be written. Nothing is lost: indexes follow from the stream.
    pub async fn keep(&self) -> Result<(), MemoryError> {
        Ok(self.inner.keep().await?)
    }

    /// The same, if so much is new that it is worth it. For who is done with a memory of a database:
    /// dropping a handle cannot wait for one, so that the next who opens it would have to.
    ///
    /// # Errors
    /// As [`Memory::keep`].
    pub async fn keep_if_due(&self) -> Result<(), MemoryError> {
        Ok(self.inner.keep_if_due().await?)
    }

    /// Adds a document. It is durable when this returns.
    ///
    /// # Errors
    /// Something about it is over its limit, or the store failed.
    pub async fn add(&self, document: NewDocument) -> Result<DocId, MemoryError> {
        let ids = self.add_many(vec![document]).await?;
        ids.first().copied().ok_or(MemoryError::Empty)
    }

    /// Adds documents in one go: all of them, or none. The answers are in the order given.
    ///
    /// # Errors
    /// As [`Memory::add`]; or there are more than the store takes at a time, which the error names.
    pub async fn add_many(&self, documents: Vec<NewDocument>) -> Result<Vec<DocId>, MemoryError> {
        self.add_at(documents, None).await
    }

    /// The same, only if nothing was added since a version.
    ///
    /// # Errors
    /// As [`Memory::add_many`]; [`MemoryError::Moved`] if something was.
    pub async fn add_if(
        &self,
        version: Version,
        documents: Vec<NewDocument>,
    ) -> Result<Vec<DocId>, MemoryError> {
        self.add_at(documents, Some(version)).await
    }

    async fn add_at(
        &self,
        documents: Vec<NewDocument>,
        expected: Option<Version>,
    ) -> Result<Vec<DocId>, MemoryError> {
        let mut encoded = Vec::with_capacity(documents.len());
        for document in &documents {
            document.check()?;
            encoded.push(content::encode(&document.content)?);
        }
        if documents.is_empty() {
            return Ok(Vec::new());
        }
        loop {
            let head = self.inner.follow(&HashMap::new()).await?;
            if let Some(expected) = expected.filter(|expected| *expected != head) {
                return Err(self.moved(expected, head));
            }
            for document in &documents {
                self.check_model(document.model.as_deref()).await?;
            }
            let (plan, needs_head) = self.plan(&documents)?;
            let wanted: Vec<usize> = plan.new.clone();
            if wanted.is_empty() {
                return Ok(plan.ids(head.sequence));
            }
            let events = wanted.iter().map(|at| {
                let event = record::add(
                    &documents[*at],
                    encoded[*at].clone(),
                    self.by.as_deref(),
                    None,
                );
                self.because(event)
            });
            let expect = (needs_head || expected.is_some()).then_some(head);
            let Some(first) = self.append(events.collect(), expect).await? else {
                continue;
            };
            let contents = (first..).zip(&wanted);
            let contents =
                contents.map(|(sequence, at)| (sequence, documents[*at].content.clone()));
            self.inner.follow(&contents.collect()).await?;
            // They are added. Indexes that cannot be kept are made again.
            self.inner.keep_if_grown().await.ok();
            return Ok(plan.ids(first - 1));
        }
    }

    /// Decides which documents are new, and whether that is so only at this version.
    pub(crate) fn plan(&self, documents: &[NewDocument]) -> Result<(Plan, bool), MemoryError> {
        let state = self.inner.read();
        let table = &state.table;
        let mut plan = Plan::default();
        let mut dimension = table.dimension();
        let mut here: HashMap<&str, usize> = HashMap::new();
        let mut needs_head = false;
        for (at, document) in documents.iter().enumerate() {
            if let Some(vector) = &document.content.vector {
                let (expected, found) =
                    (dimension.unwrap_or(vector.dimension()), vector.dimension());
                if expected != found {
                    let memory = self.inner.stream.clone();
                    return Err(MemoryError::Dimension {
                        memory,
                        expected,
                        found,
                    });
                }
                // Two who begin at the same time must not begin differently.
                needs_head |= table.dimension().is_none();
                dimension = Some(found);
            }
            let place = match document.key.as_deref() {
                None => Place::New(plan.new.len()),
                Some(key) => {
                    needs_head = true;
                    match (table.keys.get(key), here.get(key)) {
                        (Some(sequence), _) => Place::There(*sequence),
                        (None, Some(new)) => Place::New(*new),
                        (None, None) => {
                            here.insert(key, plan.new.len());
                            Place::New(plan.new.len())
                        }
                    }
                }
            };
            if place == Place::New(plan.new.len()) {
                plan.new.push(at);
            }
            plan.places.push(place);
        }
        Ok((plan, needs_head))
    }

    /// Puts another document in the place of one. The old one stays in the history.
    ///
    /// # Errors
    /// [`MemoryError::Ended`] if somebody was faster; else as [`Memory::add`].
    pub async fn correct(&self, id: DocId, new: NewDocument) -> Result<DocId, MemoryError> {
        loop {
            let draft = self.draft_correct(id, &new).await?;
            if let Some(sequence) = self.write(draft).await? {
                return Ok(DocId(sequence));
            }
        }
    }

    /// Says that a document is not so any more, and why. It stays in the history.
    ///
    /// # Errors
    /// [`MemoryError::Ended`] if somebody was faster; or the store failed.
    pub async fn retract(&self, id: DocId, reason: &str) -> Result<Version, MemoryError> {
        loop {
            let draft = self.draft_retract(id, reason).await?;
            if self.write(draft).await?.is_some() {
                return self.version().await;
            }
        }
    }

    /// Forgets documents: what they say, their titles, sources, tags and vectors are gone from the
    /// store and from all versions of the memory. That there was a document, when, by whom, and that
    /// it was forgotten, with the reason, stays in the history, and its hashes are as before.
    ///
    /// When this returns, the content is gone from the files of a local store and from the indexes
    /// beside it, and cannot be read in a PostgreSQL database, which frees the space when it next
    /// vacuums. Copies, exports and what runs have recorded elsewhere are not touched. A document that
    /// was corrected is another one: see [`Memory::history`] for all that belong together.
    ///
    /// # Errors
    /// A document is not there or forgotten already, and then none is forgotten. Or the store
    /// failed; if the event was written, what is left is removed when the memory is next opened.
    pub async fn forget(&self, ids: &[DocId], reason: &str) -> Result<Forgotten, MemoryError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        loop {
            let draft = self.draft_forget(&ids, reason).await?;
            if ids.is_empty() || self.write(draft).await?.is_some() {
                let version = self.version().await?;
                return Ok(Forgotten { ids, version });
            }
        }
    }

    /// Removes what is said to be forgotten and is still there, because who said so was stopped before
    /// it was done. Opening a memory does that; this is for one that is open.
    ///
    /// # Errors
    /// The store failed.
    pub async fn finish_forgetting(&self) -> Result<(), MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        let kept = self.inner.read().kept;
        Ok(self.inner.finish_forgetting(kept).await?)
    }

    /// Appends a draft, and waits until it is durable; `None` if the memory has moved.
    async fn write(&self, draft: Draft) -> Result<Option<u64>, MemoryError> {
        let seen = draft.seen();
        let events = draft.append().map_or_else(Vec::new, |append| append.events);
        let Some(sequence) = self.append(events, Some(seen)).await? else {
            return Ok(None);
        };
        self.written(draft).await?;
        Ok(Some(sequence))
    }

    /// Fails if a document is not there or has ended; or, if that does not matter, is forgotten.
    pub(crate) async fn must_be_there(
        &self,
        id: DocId,
        may_have_ended: bool,
    ) -> Result<(), MemoryError> {
        let ended = {
            let state = self.inner.read();
            let table = &state.table;
            let Some(number) = table.find(id.0) else {
                let memory = self.inner.stream.clone();
                return Err(MemoryError::NotFound { memory, id });
            };
            crate::history::ending_of(table, number)
        };
        match ended {
            Some((how, sequence)) if !may_have_ended || how == crate::HowEnded::Forgotten => {
                let ended = Box::new(self.ended(how, sequence).await?);
                Err(MemoryError::Ended { id, ended })
            }
            _ => Ok(()),
        }
    }

    /// Appends, and waits until it is durable; the sequence of the first event. `None` if the memory
    /// is not where it was expected.
    async fn append(
        &self,
        events: Vec<NewEvent>,
        expected: Option<Version>,
    ) -> Result<Option<u64>, MemoryError> {
        let count = events.len() as u64;
        let mut append = Append::to(self.inner.stream.clone(), events);
        append.expected = expected.map(|version| version.sequence);
        let appended = match self.inner.store.append(vec![append]).await {
            Ok(appended) => appended,
            Err(StoreError::Conflict { .. }) if expected.is_some() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        self.inner.store.durable(appended.position).await?;
        let head = appended.heads.first().map_or(0, |head| head.sequence);
        Ok(Some(head + 1 - count))
    }

    fn moved(&self, expected: Version, head: Version) -> MemoryError {
        MemoryError::Moved {
            memory: self.inner.stream.clone(),
            expected: expected.sequence,
            head,
        }
    }
}

/// Where documents that are to be added are, or will be.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    places: Vec<Place>,
    /// Those that are new, in order.
    pub(crate) new: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    There(u64),
    New(usize),
}

impl Plan {
    /// Given the sequence before the first new one.
    pub(crate) fn ids(&self, before: u64) -> Vec<DocId> {
        let places = self.places.iter().map(|place| match place {
            Place::There(sequence) => DocId(*sequence),
            Place::New(at) => DocId(before + 1 + *at as u64),
        });
        places.collect()
    }
}
