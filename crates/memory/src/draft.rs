//! Drafts: a write to a memory that somebody else appends, together with events of other streams.
//!
//! A run writes to a memory and records that it did so in one append, so that a crash leaves both or
//! neither:
//!
//! ```text
//! draft ─► append of the draft and of other events, expecting the version that it was drafted on
//!            the memory has moved: draft again
//!            appended and durable: Memory::written(draft)
//! ```
//!
//! Invariant: a draft is right only at the version that was seen when it was made, and its append
//! says so. Nothing is changed before that append.

use std::collections::HashMap;

use dalsegno_store::{Append, NewEvent, Version};

use crate::content;
use crate::document::{Content, DocId, LABEL_LIMIT_BYTES, NewDocument, within};
use crate::error::MemoryError;
use crate::memory::Memory;
use crate::record;

/// So many documents are forgotten by one event, at most: their names fit into it.
const FORGET_LIMIT: usize = 4000;

/// A write that is not appended yet.
#[derive(Debug)]
pub struct Draft {
    append: Option<Append>,
    seen: Version,
    /// What it comes to: the event of a new document, or of one that was there under its key.
    sequence: u64,
    content: Option<Content>,
    forgets: bool,
}

impl Draft {
    /// What is to be appended; `None` if there is nothing to do, as for a key that is there.
    pub fn append(&self) -> Option<Append> {
        self.append.clone()
    }

    /// The version of the memory that it was made for.
    pub fn seen(&self) -> Version {
        self.seen
    }

    /// The event that it is, once it is appended: the id of a new document. If there is nothing to
    /// append, the event that was there.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Memory {
    /// Drafts what [`Memory::add`] does.
    ///
    /// # Errors
    /// As [`Memory::add`].
    pub async fn draft_add(&self, document: &NewDocument) -> Result<Draft, MemoryError> {
        document.check()?;
        let seen = self.version().await?;
        self.check_model(document.model.as_deref()).await?;
        let (plan, _) = self.plan(std::slice::from_ref(document))?;
        if plan.new.is_empty() {
            let there = plan.ids(seen.sequence);
            return Ok(Draft {
                append: None,
                seen,
                sequence: there.first().map_or(0, |id| id.0),
                content: None,
                forgets: false,
            });
        }
        let encoded = content::encode(&document.content)?;
        let event = record::add(document, encoded, self.by.as_deref(), None);
        let content = Some(document.content.clone());
        Ok(self.draft(event, seen, content))
    }

    /// Drafts what [`Memory::correct`] does.
    ///
    /// # Errors
    /// As [`Memory::correct`].
    pub async fn draft_correct(&self, id: DocId, new: &NewDocument) -> Result<Draft, MemoryError> {
        new.check()?;
        let seen = self.version().await?;
        self.must_be_there(id, false).await?;
        self.check_model(new.model.as_deref()).await?;
        self.plan(std::slice::from_ref(new))?;
        let encoded = content::encode(&new.content)?;
        let event = record::add(new, encoded, self.by.as_deref(), Some(id.0));
        Ok(self.draft(event, seen, Some(new.content.clone())))
    }

    /// Drafts what [`Memory::retract`] does.
    ///
    /// # Errors
    /// As [`Memory::retract`].
    pub async fn draft_retract(&self, id: DocId, reason: &str) -> Result<Draft, MemoryError> {
        within("a reason", reason.len(), LABEL_LIMIT_BYTES)?;
        let seen = self.version().await?;
        self.must_be_there(id, false).await?;
        let event = record::retract(id.0, self.by.as_deref(), reason);
        Ok(self.draft(event, seen, None))
    }

    /// Drafts what [`Memory::forget`] does. The contents go with [`Memory::written`].
    ///
    /// # Errors
    /// As [`Memory::forget`].
    pub async fn draft_forget(&self, ids: &[DocId], reason: &str) -> Result<Draft, MemoryError> {
        within("a reason", reason.len(), LABEL_LIMIT_BYTES)?;
        within("a list of documents to forget", ids.len(), FORGET_LIMIT)?;
        let mut subjects: Vec<u64> = ids.iter().map(|id| id.0).collect();
        subjects.sort_unstable();
        subjects.dedup();
        let seen = self.version().await?;
        for subject in &subjects {
            self.must_be_there(DocId(*subject), true).await?;
        }
        let event = record::forget(&subjects, self.by.as_deref(), reason);
        let mut draft = self.draft(event, seen, None);
        draft.forgets = true;
        if subjects.is_empty() {
            (draft.append, draft.sequence) = (None, seen.sequence);
        }
        Ok(draft)
    }

    fn draft(&self, event: NewEvent, seen: Version, content: Option<Content>) -> Draft {
        let event = self.because(event);
        let append = Append::to(self.stream().clone(), vec![event]).expecting(seen.sequence);
        Draft {
            append: Some(append),
            seen,
            sequence: seen.sequence + 1,
            content,
            forgets: false,
        }
    }

    /// With what led to it, unless it says that itself.
    pub(crate) fn because(&self, mut event: NewEvent) -> NewEvent {
        event.cause = event.cause.or_else(|| self.cause.clone());
        event
    }

    /// To be called when a draft was appended and is durable: takes it in, and removes what it
    /// forgets.
    ///
    /// # Errors
    /// The store failed. What was to be removed then is when the memory is next opened.
    pub async fn written(&self, draft: Draft) -> Result<(), MemoryError> {
        if draft.append.is_none() {
            return Ok(());
        }
        if draft.forgets {
            return self.erase(draft.sequence).await;
        }
        let own = draft.content.map(|content| (draft.sequence, content));
        self.inner.follow(&own.into_iter().collect()).await?;
        // It is written. Indexes that cannot be kept are made again.
        self.inner.keep_if_grown().await.ok();
        Ok(())
    }

    /// Removes what an event says is forgotten.
    async fn erase(&self, said_at: u64) -> Result<(), MemoryError> {
        // Read while it is all there, so that it need not be made again from the stream.
        let analyser = crate::Analyser::default();
        self.inner.complete_words(analyser).await.ok();
        self.inner.complete_vectors().await.ok();
        let store = &self.inner.store;
        // The helpers go with it.
        self.inner.write().kept = 0;
        store.erase_forgotten(&self.inner.stream, said_at).await?;
        self.inner.follow(&HashMap::new()).await?;
        {
            let mut state = self.inner.write();
            let earlier = state.table.erased_until;
            let open = state
                .table
                .forgets
                .iter()
                .any(|at| earlier < *at && *at < said_at);
            if !open {
                state.table.erased_until = said_at;
            }
        }
        // It is done. Indexes that cannot be kept are made again.
        self.inner.keep().await.ok();
        Ok(())
    }
}
