//! Small questions about a memory: which version is meant, what is under a key, how many documents
//! there are, and whose vectors they have.
//!
//! Invariant: answers about a version are the same however long the memory has grown since.

use std::collections::HashMap;

use dalsegno_store::{StoreError, Version};

use crate::document::DocId;
use crate::error::MemoryError;
use crate::memory::Memory;
use crate::query::AsOf;
use crate::record;

/// So many events are read at a time.
const PAGE_EVENTS: usize = 1000;

impl Memory {
    /// The version that is meant, with its hash.
    ///
    /// # Errors
    /// There is no such version, or the store failed.
    pub async fn version_as_of(&self, as_of: AsOf) -> Result<Version, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        self.version_of(&self.inner.read().table, as_of)
    }

    /// The version at a time, in microseconds since 1970: all that was recorded up to then, that
    /// moment included. The first document that is later ends it, also if a clock was put back after
    /// that: so there is one version for each time, however the memory grows.
    ///
    /// # Errors
    /// The store failed.
    pub async fn version_at_us(&self, us: u64) -> Result<Version, MemoryError> {
        let head = self.inner.follow(&HashMap::new()).await?;
        let (mut at, until) = {
            let state = self.inner.read();
            let docs = &state.table.docs;
            // In memory, and nearly all events add a document: so no stream is read for it.
            let later = docs.iter().position(|doc| doc.time_us > us);
            let before = later.unwrap_or(docs.len()).checked_sub(1);
            let before = before.map_or(0, |at| docs[at].sequence);
            let until = later.map_or(head.sequence, |at| docs[at].sequence - 1);
            (before, until)
        };
        while at < until {
            let limit = PAGE_EVENTS.min(usize::try_from(until - at).unwrap_or(usize::MAX));
            let stream = &self.inner.stream;
            let page = self.inner.store.events(stream, at + 1, limit).await?;
            let early = page.iter().take_while(|event| event.time_us <= us).count();
            at += early as u64;
            if early < page.len() || page.is_empty() {
                break;
            }
        }
        self.version_as_of(AsOf::Sequence(at)).await
    }

    /// The document that was added under a key, whatever became of it since.
    ///
    /// # Errors
    /// The store failed.
    pub async fn under_key(&self, key: &str) -> Result<Option<DocId>, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        let state = self.inner.read();
        Ok(state.table.keys.get(key).copied().map(DocId))
    }

    /// How many documents a version has, without those that are forgotten since.
    ///
    /// # Errors
    /// There is no such version, or the store failed.
    pub async fn count(&self, as_of: AsOf) -> Result<u64, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        let state = self.inner.read();
        let at = state.table.at(self.version_of(&state.table, as_of)?);
        Ok(at.documents)
    }

    /// How many dimensions the vectors of this memory have; `None` as long as it has none.
    ///
    /// # Errors
    /// The store failed.
    pub async fn dimension(&self) -> Result<Option<usize>, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        Ok(self.inner.read().table.dimension())
    }

    /// What made the vectors of this memory: the [model](crate::NewDocument::model) of its first one.
    /// `None` as long as there are none, or if their writer did not say.
    ///
    /// # Errors
    /// The store failed.
    pub async fn model(&self) -> Result<Option<String>, MemoryError> {
        self.inner.follow(&HashMap::new()).await?;
        Ok(self.known_model().await?)
    }

    /// The same, of what is known by now. The first vector never changes, so it is read once.
    async fn known_model(&self) -> Result<Option<String>, StoreError> {
        if let Some(model) = self.inner.model.get() {
            return Ok(model.clone());
        }
        let first = self.inner.read().table.first_vector_at();
        let Some(first) = first else {
            return Ok(None);
        };
        let events = self.inner.store.events(&self.inner.stream, first, 1);
        let events = events.await?;
        let model = events.first().and_then(record::model).map(str::to_owned);
        Ok(self.inner.model.get_or_init(|| model).clone())
    }

    /// Fails if vectors are of another model than those of the memory.
    pub(crate) async fn check_model(&self, found: Option<&str>) -> Result<(), MemoryError> {
        let (Some(found), Some(expected)) = (found, self.known_model().await?) else {
            return Ok(());
        };
        match found == expected {
            true => Ok(()),
            false => Err(MemoryError::Model {
                memory: self.inner.stream.clone(),
                expected,
                found: found.to_owned(),
            }),
        }
    }
}
