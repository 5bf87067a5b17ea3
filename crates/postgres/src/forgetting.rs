//! Forgetting: pieces of payloads that a memory has forgotten are deleted, after its helpers.
//!
//! Payloads that can be forgotten have random bytes in all their pieces (`NewPayload::apart`), so that
//! no other payload shares one. The same payload can stand in another memory, which was imported
//! under another name; so all memories are asked for the root, page by page.
//!
//! Invariants: a payload that an event of another memory refers to stays, unless that one is forgotten
//! too. All pieces of a payload go together: by its root what is left of it would not be found again.

use std::collections::{HashMap, HashSet};

use dalsegno_store::engine::{forgotten_by, roots_of};
use dalsegno_store::{Hash, StoreError, StreamId, StreamKind};

use crate::error::or_read_only;
use crate::inner::{Inner, trying};

const REMOVE: &str = "DELETE FROM piece WHERE hash = ANY($1)";
const STREAMS_AT_ONCE: usize = 500;
const EVENTS_AT_ONCE: usize = 2000;
const PIECES_AT_ONCE: usize = 1000;

impl Inner {
    /// As [`dalsegno_store::Store::erase_forgotten`].
    pub async fn erase_forgotten(
        &self,
        stream: &StreamId,
        said_at: u64,
    ) -> Result<u64, StoreError> {
        let mut there: HashMap<Hash, Vec<Hash>> = HashMap::new();
        for said in self.events(stream, said_at, 1).await? {
            if forgotten_by(&said).next().is_some() {
                // Also if nothing else is left: what they were made of is in them.
                self.drop_helpers(stream).await?;
            }
            for sequence in forgotten_by(&said) {
                let events = self.events(stream, sequence, 1).await?;
                for root in events.iter().flat_map(roots_of) {
                    let pieces = self.pieces_under(&root, u64::MAX).await?;
                    if !pieces.is_empty() {
                        there.insert(root, pieces.into_keys().collect());
                    }
                }
            }
        }
        if there.is_empty() {
            return Ok(0);
        }
        self.leave_what_is_needed(&mut there).await?;
        let mut removed = 0;
        let mut some: Vec<Hash> = Vec::new();
        for pieces in there.into_values() {
            some.extend(pieces);
            if some.len() >= PIECES_AT_ONCE {
                removed += self.erase_pieces(&std::mem::take(&mut some)).await?;
            }
        }
        Ok(removed + self.erase_pieces(&some).await?)
    }

    /// Removes pieces, all or none.
    async fn erase_pieces(&self, pieces: &[Hash]) -> Result<u64, StoreError> {
        let hashes: Vec<&[u8]> = pieces.iter().map(|hash| &hash.as_bytes()[..]).collect();
        let removed = trying!(self, {
            let mut lent = self.pool.lend().await?;
            let remove = lent.conn.statement(REMOVE).await?;
            let removed = lent.conn.client.execute(&remove, &[&hashes]).await;
            let count = removed.map_err(or_read_only)?;
            self.pool.give_back(lent);
            Ok(count)
        })?;
        self.know_no_more(pieces);
        Ok(removed)
    }

    /// Takes out the roots of payloads that an event which is not forgotten has.
    async fn leave_what_is_needed(
        &self,
        roots: &mut HashMap<Hash, Vec<Hash>>,
    ) -> Result<(), StoreError> {
        let mut after: Option<StreamId> = None;
        loop {
            let page = self
                .streams(StreamKind::Memory, after.as_ref(), STREAMS_AT_ONCE)
                .await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (stream, _) in page {
                self.leave_what_it_needs(&stream, roots).await?;
            }
        }
    }

    async fn leave_what_it_needs(
        &self,
        stream: &StreamId,
        roots: &mut HashMap<Hash, Vec<Hash>>,
    ) -> Result<(), StoreError> {
        let mut forgotten: HashSet<u64> = HashSet::new();
        let mut found: Vec<(u64, Hash)> = Vec::new();
        let mut next = 1;
        loop {
            let page = self.events(stream, next, EVENTS_AT_ONCE).await?;
            if page.is_empty() {
                break;
            }
            next += page.len() as u64;
            for event in &page {
                forgotten.extend(forgotten_by(event));
                let ours = roots_of(event).filter(|root| roots.contains_key(root));
                found.extend(ours.map(|root| (event.sequence, root)));
            }
        }
        for (sequence, root) in found {
            if !forgotten.contains(&sequence) {
                roots.remove(&root);
            }
        }
        Ok(())
    }
}
