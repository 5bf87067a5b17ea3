//! Forgetting: pieces of payloads that a memory has forgotten are deleted.
//!
//! Payloads that can be forgotten have random bytes in all their pieces (`NewPayload::apart`), so that
//! no other payload shares one. The same payload can stand in another memory, which was imported
//! under another name; so all events are asked, by the server, for the root.
//!
//! Invariant: a payload that another event refers to stays, unless that one is forgotten too.

use std::collections::{HashMap, HashSet};

use dalsegno_store::engine::{forgotten_by, roots_of};
use dalsegno_store::{Event, Hash, StoreError, StreamId};

use crate::inner::{Inner, trying};

const REFERRING: &str = "SELECT e.bytes FROM event e WHERE position($1::bytea IN e.bytes) > 0";
const REMOVE: &str = "DELETE FROM piece WHERE hash = ANY($1)";
const EVENTS_AT_ONCE: usize = 2000;
const PIECES_AT_ONCE: usize = 1000;

impl Inner {
    /// As [`dalsegno_store::Store::erase_forgotten`].
    pub async fn erase_forgotten(
        &self,
        stream: &StreamId,
        said_at: u64,
    ) -> Result<u64, StoreError> {
        let mut forgotten: HashMap<StreamId, HashSet<u64>> = HashMap::new();
        let mut gone: Vec<Hash> = Vec::new();
        for said in self.events(stream, said_at, 1).await? {
            for sequence in forgotten_by(&said) {
                for event in self.events(stream, sequence, 1).await? {
                    for root in roots_of(&event) {
                        let there = self.pieces_under(&root, u64::MAX).await?;
                        if !there.is_empty() && !self.is_needed(&root, &mut forgotten).await? {
                            gone.extend(there.into_keys());
                        }
                    }
                }
            }
        }
        let mut removed = 0;
        for some in gone.chunks(PIECES_AT_ONCE) {
            let hashes: Vec<&[u8]> = some.iter().map(|hash| &hash.as_bytes()[..]).collect();
            removed += trying!(self, {
                let mut lent = self.pool.lend().await?;
                let count = lent.conn.execute(REMOVE, &[&hashes]).await?;
                self.pool.give_back(lent);
                Ok(count)
            })?;
            self.know_no_more(some);
        }
        Ok(removed)
    }

    /// Whether an event that is not forgotten has a payload with this root.
    async fn is_needed(
        &self,
        root: &Hash,
        forgotten: &mut HashMap<StreamId, HashSet<u64>>,
    ) -> Result<bool, StoreError> {
        let bytes = &root.as_bytes()[..];
        for row in self.rows(REFERRING, &[&bytes]).await? {
            let Ok(event) = Event::decode(row.get(0)) else {
                continue;
            };
            if !roots_of(&event).any(|found| found == *root) {
                continue;
            }
            if !forgotten.contains_key(&event.stream) {
                let all = self.forgotten_in(&event.stream).await?;
                forgotten.insert(event.stream.clone(), all);
            }
            let of = forgotten.get(&event.stream);
            if !of.is_some_and(|all| all.contains(&event.sequence)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn forgotten_in(&self, stream: &StreamId) -> Result<HashSet<u64>, StoreError> {
        let mut all = HashSet::new();
        let mut next = 1;
        loop {
            let page = self.events(stream, next, EVENTS_AT_ONCE).await?;
            if page.is_empty() {
                return Ok(all);
            }
            next += page.len() as u64;
            page.iter()
                .for_each(|event| all.extend(forgotten_by(event)));
        }
    }
}
