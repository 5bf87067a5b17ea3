//! Taking streams of another store over, and giving pieces of payloads to one.
//!
//! Invariant: what is taken over is committed with the store's own event that says where it is from.

use std::collections::HashMap;

use dalsegno_store::engine::{self, damaged};
use dalsegno_store::payload::Piece;
use dalsegno_store::{Append, Foreign, Hash, Position, StoreError, StreamId};

use crate::inner::{Inner, trying};
use crate::read::PIECES;
use crate::save::{NEVER_US, Writing};

/// Runs that were held back may go on now, but for those that wait for a person.
const LET_GO: &str = "UPDATE claimable c
     SET ready_us = COALESCE($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
     FROM unnest($1::text[]) AS n (name)
         CROSS JOIN LATERAL (SELECT no FROM stream WHERE kind = 1 AND name = n.name OFFSET 0) s
         CROSS JOIN LATERAL (SELECT attention FROM run WHERE stream = s.no OFFSET 0) r
     WHERE c.stream = s.no AND NOT r.attention AND c.token IS NULL AND c.ready_us + 0 = $3";

impl Inner {
    /// Pieces as they are stored.
    pub async fn pieces(&self, hashes: &[Hash]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.flushed().await?;
        let asked: Vec<&[u8]> = hashes.iter().map(|hash| &hash.as_bytes()[..]).collect();
        let rows = self.rows(PIECES, &[&asked]).await?;
        let found: HashMap<&[u8], &[u8]> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let each = hashes.iter().map(|hash| {
            let bytes = found.get(&hash.as_bytes()[..]);
            let bytes = bytes.map(|bytes| bytes.to_vec());
            bytes.ok_or_else(|| damaged(format!("the payload piece {hash}"), "a row", "none"))
        });
        each.collect()
    }

    /// As [`dalsegno_store::Store::take_over`].
    pub async fn take_over(
        &self,
        pieces: &[Piece],
        streams: &[Foreign],
    ) -> Result<Position, StoreError> {
        if streams.is_empty() {
            let now_us = self.options.now_us();
            trying!(self, {
                let mut lent = self.pool.lend().await?;
                let writing = Writing::new(&[], pieces, now_us);
                lent.conn.query(writing.sql(), &writing.params()).await?;
                self.pool.give_back(lent);
                Ok(())
            })?;
            self.know(pieces.iter().map(|piece| piece.hash));
            return Ok(self.memory().position);
        }
        let own = StreamId::store();
        let names = streams.iter().map(|foreign| foreign.stream.clone());
        let names: Vec<StreamId> = names.chain([own.clone()]).collect();
        let notes: Vec<_> = streams.iter().map(engine::imported).collect();
        let _ours = self.take_ours(&names).await?;
        trying!(self, {
            let mut tx = self.begin(&names).await?;
            let mut taken = streams.iter().try_for_each(|foreign| tx.take_over(foreign));
            if taken.is_ok() {
                let payloads = vec![[None, None]; notes.len()];
                taken = tx.append(Append::to(own.clone(), notes.clone()), payloads);
            }
            if let Err(e) = taken {
                tx.leave().await?;
                return Err(e.into());
            }
            tx.store(pieces.iter().cloned());
            Ok(self.commit(tx).await?.0)
        })
    }

    /// As [`dalsegno_store::Store::let_go_on`].
    pub async fn let_go_on(&self, runs: &[StreamId]) -> Result<(), StoreError> {
        let names: Vec<&str> = runs.iter().map(StreamId::name).collect();
        let clock = self.options.lease_now_us();
        self.rows(LET_GO, &[&names, &clock, &NEVER_US]).await?;
        self.tell_others();
        Ok(())
    }
}
