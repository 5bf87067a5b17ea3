//! Completing an index: with what was kept of it, and the contents of the documents that it does not
//! know yet.
//!
//! Invariant: an index that nobody has searched yet is made when it is first asked for, and is the same
//! as one that was there from the beginning.

use std::collections::HashMap;

use dalsegno_store::{Hash, StoreError, Version};

use crate::analyser::Analyser;
use crate::document::Content;
use crate::index::{VectorIndex, WordIndex};
use crate::keep::forgotten_since;
use crate::state::{Inner, PAGE_EVENTS, State, TRIES};

impl Inner {
    /// Makes the index of an analyser know all documents that there are.
    pub async fn complete_words(&self, analyser: Analyser) -> Result<(), StoreError> {
        if !self.read().words.contains_key(&analyser) {
            let kept = self.kept_words(analyser).await;
            let mut is_bad = kept.is_err();
            let kept = kept.unwrap_or(None);
            self.come_to(kept.as_ref().map(|(_, version)| *version))
                .await?;
            {
                let mut state = self.write();
                let State { table, words, .. } = &mut *state;
                let found = kept.and_then(|(mut kept, version)| {
                    let forgotten = forgotten_since(table, version, kept.documents());
                    is_bad = forgotten.is_none();
                    match forgotten? {
                        none if none.is_empty() => kept.restart(table),
                        forgotten => kept.remove(&forgotten, table),
                    }
                    Some(kept)
                });
                let found = found.unwrap_or_else(|| WordIndex::new(analyser));
                words.entry(analyser).or_insert(found);
            }
            if is_bad {
                self.drop_bad().await;
            }
        }
        let read = self.complete(
            |state| state.words.get(&analyser).map(WordIndex::documents),
            |state, content| {
                if let Some(words) = state.words.get_mut(&analyser) {
                    words.add(content);
                }
            },
            |State { table, words, .. }| {
                if let Some(words) = words.get_mut(&analyser) {
                    words.restart(table);
                }
            },
        );
        let read = read.await?;
        self.keep_completed(read).await;
        Ok(())
    }

    /// Makes the index of vectors know all documents that there are; none if there are no vectors.
    pub async fn complete_vectors(&self) -> Result<(), StoreError> {
        let Some(dimension) = self.read().table.dimension() else {
            return Ok(());
        };
        if self.read().vectors.is_none() {
            let kept = self.kept_vectors().await;
            let mut is_bad = kept.is_err();
            let kept = kept.unwrap_or(None);
            self.come_to(kept.as_ref().map(|(_, version)| *version))
                .await?;
            {
                let mut state = self.write();
                let found = kept.and_then(|(mut kept, version)| {
                    let forgotten = forgotten_since(&state.table, version, kept.documents());
                    is_bad = forgotten.is_none() || kept.dimension != dimension;
                    kept.remove(&forgotten?);
                    (!is_bad).then_some(kept)
                });
                let found = found.unwrap_or_else(|| VectorIndex::new(dimension, 0));
                state.vectors.get_or_insert(found);
            }
            if is_bad {
                self.drop_bad().await;
            }
        }
        let read = self.complete(
            |state| state.vectors.as_ref().map(VectorIndex::documents),
            |state, content| {
                if let Some(vectors) = &mut state.vectors {
                    vectors.add(content);
                }
            },
            |_| {},
        );
        let read = read.await?;
        self.keep_completed(read).await;
        Ok(())
    }

    /// Comes to a version at least: others may have kept what is newer than what is here.
    async fn come_to(&self, version: Option<Version>) -> Result<(), StoreError> {
        let here = self.read().table.head().sequence;
        match version.is_some_and(|version| version.sequence > here) {
            true => self.follow(&HashMap::new()).await.map(drop),
            false => Ok(()),
        }
    }

    /// Reads the documents that an index does not know yet, and adds them; how many. `finish` makes one
    /// that knows all of them fit to be searched, before anybody else can see that it does.
    async fn complete(
        &self,
        known: impl Fn(&State) -> Option<u32>,
        mut add: impl FnMut(&mut State, Option<&Content>),
        finish: impl Fn(&mut State),
    ) -> Result<u64, StoreError> {
        let mut tried = 0;
        let mut read = 0;
        loop {
            let (from, docs) = {
                let state = self.read();
                let from = known(&state).unwrap_or(0);
                let docs = state.table.docs[from as usize..].iter();
                let docs = docs.take(PAGE_EVENTS);
                let docs = docs.map(|doc| (doc.root, doc.payload_bytes, doc.is_readable));
                (from, docs.collect::<Vec<_>>())
            };
            if docs.is_empty() {
                return Ok(read);
            }
            let readable = docs.iter().filter(|(.., is_readable)| *is_readable);
            let roots: Vec<(Hash, u64)> = readable.map(|(r, b, _)| (*r, *b)).collect();
            let mut contents = match self.contents(&roots).await {
                Ok(contents) => contents.into_iter(),
                Err(e) => {
                    let before = self.read().table.head();
                    tried += 1;
                    if tried > TRIES || self.follow(&HashMap::new()).await? == before {
                        return Err(e);
                    }
                    continue;
                }
            };
            let mut state = self.write();
            if known(&state) != Some(from) {
                continue;
            }
            read += docs.len() as u64;
            for (number, (.., was_readable)) in (from..).zip(&docs) {
                let content = match was_readable {
                    true => contents.next().flatten(),
                    false => None,
                };
                // It may be forgotten by now.
                let is_readable = state.table.docs[number as usize].is_readable;
                add(&mut state, content.filter(|_| is_readable).as_ref());
            }
            if known(&state) == Some(state.table.docs.len() as u32) {
                finish(&mut state);
            }
        }
    }
}
