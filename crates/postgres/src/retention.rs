//! Retention: finished runs that are old leave the store, and their space with them.
//!
//! 1. In one transaction for some runs at a time, `RunsRetired` names them and their rows go.
//! 2. Payload pieces that nothing refers to any more are found by reading all events, and go.
//!
//! Invariants: nothing that belongs to a stream that has not ended goes, nor what a letter refers to
//! that waits to become an event. A piece goes only if it was
//! not stored again for two hours: whoever refers to a piece has stored it within one (see
//! `Inner::is_known`), so that no event that is being written loses what it refers to. An
//! interrupted retention leaves pieces, which the next one finds.

use std::collections::HashSet;

use dalsegno_store::payload;
use dalsegno_store::{
    Append, Body, Event, Fields, Hash, Kind, NewEvent, Retention, Retired, StoreError, StreamId,
    Value, field,
};
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::{Inner, trying};
use crate::save::db_us;
use crate::tx::EVENT_FORM;

const OLD: &str = "SELECT stream, name FROM (
         (SELECT stream, name, changed_us FROM run
          WHERE status = 3 AND changed_us < $1 ORDER BY changed_us LIMIT $2)
         UNION ALL
         (SELECT stream, name, changed_us FROM run
          WHERE status = 4 AND changed_us < $1 ORDER BY changed_us LIMIT $2)
         UNION ALL
         (SELECT stream, name, changed_us FROM run
          WHERE status = 5 AND changed_us < $1 ORDER BY changed_us LIMIT $2)
     ) old ORDER BY changed_us LIMIT $2";
/// In the order of the foreign names: what is left of a run is nothing.
const REMOVE: [&str; 5] = [
    "DELETE FROM event WHERE stream = ANY($1)",
    "DELETE FROM timer WHERE stream = ANY($1)",
    "DELETE FROM claimable WHERE stream = ANY($1)",
    "DELETE FROM run WHERE stream = ANY($1)",
    "DELETE FROM stream WHERE no = ANY($1)",
];
const EVENTS: &str = "SELECT stream, sequence, bytes FROM event
     WHERE (stream, sequence) > ($1, $2) ORDER BY stream, sequence LIMIT $3";
/// Those that are events have payloads elsewhere. Also those that were set aside: somebody may look at
/// them.
const LETTERS: &str = "SELECT sender, number, CASE WHEN form = $1 THEN bytes END FROM letter
     WHERE (sender, number) > ($2, $3) ORDER BY sender, number LIMIT $4";
const PIECES: &str = "SELECT hash FROM piece
     WHERE hash > $1 AND touched_us < $2 ORDER BY hash LIMIT $3";
const CHILDREN: &str = "SELECT hash, bytes FROM piece WHERE hash = ANY($1)";
const REMOVE_PIECES: &str = "DELETE FROM piece WHERE hash = ANY($1) AND touched_us < $2";

/// So many runs go in one transaction.
const RUNS_AT_ONCE: i64 = 200;
const ROWS_AT_ONCE: i64 = 2000;
/// A piece that was stored since may get a reference.
const UNTOUCHED_US: u64 = 2 * 3600 * 1_000_000;

impl Inner {
    /// Lets finished runs go.
    pub async fn retire(&self, retention: &Retention) -> Result<Retired, StoreError> {
        if retention.archive {
            return Err(StoreError::Backend(
                "a store in PostgreSQL has no folder for archives: export the runs first, then \
                 retire them without an archive"
                    .into(),
            ));
        }
        let mut done = Retired::default();
        let before_us = db_us(retention.ended_before_us);
        loop {
            let rows = self.rows(OLD, &[&before_us, &RUNS_AT_ONCE]).await?;
            if rows.is_empty() {
                break;
            }
            let numbers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let runs: Result<Vec<StreamId>, _> =
                rows.iter().map(|row| StreamId::run(row.get(1))).collect();
            let runs = runs?;
            done.records_removed += self.remove(&numbers, &runs).await?;
            done.runs.extend(runs);
        }
        if !done.runs.is_empty() {
            done.records_removed += self.remove_pieces().await?;
        }
        Ok(done)
    }

    /// Removes runs; how many events they had.
    async fn remove(&self, numbers: &[i64], runs: &[StreamId]) -> Result<u64, StoreError> {
        let own = StreamId::store();
        let streams: Vec<StreamId> = runs.iter().cloned().chain([own.clone()]).collect();
        let _ours = self.take_ours(&streams).await?;
        trying!(self, {
            let mut tx = self.begin(&streams).await?;
            // Another retention may have been faster.
            let still = runs.iter().zip(numbers).filter(|(run, _)| {
                let locked = tx.streams.get(*run);
                locked.is_some_and(|locked| locked.exists() && locked.draft.has_ended())
            });
            let (names, left): (Vec<Value>, Vec<i64>) = still
                .map(|(run, no)| (Value::Text(run.to_string()), *no))
                .unzip();
            if left.is_empty() {
                tx.leave().await?;
                return Ok(0);
            }
            let fields = Fields::new().with(field::RUNS, Value::List(names));
            let event = NewEvent::new(Kind::RunsRetired).with_fields(fields);
            let note = Append::to(own.clone(), vec![event]);
            tx.append(note, Vec::new()).map_err(Trouble::from)?;
            let mut events = 0;
            for (at, sql) in REMOVE.into_iter().enumerate() {
                let count = tx.execute(sql, &[&left]).await?;
                if at == 0 {
                    events = count;
                }
            }
            self.commit(tx).await?;
            Ok(events)
        })
    }

    /// Removes pieces that nothing refers to; how many.
    async fn remove_pieces(&self) -> Result<u64, StoreError> {
        let before_us = db_us(self.options.now_us().saturating_sub(UNTOUCHED_US));
        let live = self.live_pieces().await?;
        let mut after: Vec<u8> = Vec::new();
        let mut removed = 0;
        loop {
            let params: [&(dyn ToSql + Sync); 3] = [&after, &before_us, &ROWS_AT_ONCE];
            let rows = self.rows(PIECES, &params).await?;
            let hashes: Vec<Vec<u8>> = rows.iter().map(|row| row.get(0)).collect();
            let Some(last) = hashes.last() else {
                return Ok(removed);
            };
            after.clone_from(last);
            let is_live = |hash: &Vec<u8>| {
                let hash: Result<[u8; 32], _> = hash[..].try_into();
                hash.is_ok_and(|hash| live.contains(&Hash::from_bytes(hash)))
            };
            let dead: Vec<Vec<u8>> = hashes.into_iter().filter(|hash| !is_live(hash)).collect();
            removed += trying!(self, {
                let mut lent = self.pool.lend().await?;
                let count = lent
                    .conn
                    .execute(REMOVE_PIECES, &[&dead, &before_us])
                    .await?;
                self.pool.give_back(lent);
                Ok(count)
            })?;
        }
    }

    /// The pieces that events refer to, directly or not, and events that are still letters. Letters
    /// come first: one that becomes an event meanwhile is seen in one of the two places.
    async fn live_pieces(&self) -> Result<HashSet<Hash>, StoreError> {
        self.flushed().await?;
        let mut live = HashSet::new();
        let (mut sender, mut number) = (String::new(), 0_i64);
        loop {
            let params: [&(dyn ToSql + Sync); 4] = [&EVENT_FORM, &sender, &number, &ROWS_AT_ONCE];
            let rows = self.rows(LETTERS, &params).await?;
            let Some(last) = rows.last() else {
                break;
            };
            (sender, number) = (last.get(0), last.get(1));
            let events = rows.iter().filter_map(|row| row.get::<_, Option<&[u8]>>(2));
            let roots = events.flat_map(roots);
            self.mark(roots.collect(), &mut live).await?;
        }
        let (mut stream, mut sequence) = (0_i64, 0_i64);
        loop {
            let params: [&(dyn ToSql + Sync); 3] = [&stream, &sequence, &ROWS_AT_ONCE];
            let rows = self.rows(EVENTS, &params).await?;
            let Some(last) = rows.last() else {
                return Ok(live);
            };
            (stream, sequence) = (last.get(0), last.get(1));
            let roots = rows.iter().flat_map(|row| roots(row.get(2)));
            self.mark(roots.collect(), &mut live).await?;
        }
    }

    async fn mark(&self, roots: Vec<Hash>, live: &mut HashSet<Hash>) -> Result<(), StoreError> {
        let mut level: Vec<Hash> = roots
            .into_iter()
            .filter(|hash| live.insert(*hash))
            .collect();
        while !level.is_empty() {
            let hashes: Vec<&[u8]> = level.iter().map(|h| &h.as_bytes()[..]).collect();
            let rows = self.rows(CHILDREN, &[&hashes]).await?;
            let children = rows.iter().flat_map(|row| {
                let children = payload::children(row.get(1)).unwrap_or_default();
                children.into_iter().map(|child| child.hash)
            });
            level = children.filter(|hash| live.insert(*hash)).collect();
        }
        Ok(())
    }
}

/// What the payloads of an event refer to. What cannot be read refers to nothing that could be kept.
fn roots(event: &[u8]) -> Vec<Hash> {
    let Ok(event) = Event::decode(event) else {
        return Vec::new();
    };
    let stored = event.payloads().filter_map(|payload| match payload.body {
        Body::Stored { root, .. } => Some(root),
        Body::Inline(_) => None,
    });
    stored.collect()
}
