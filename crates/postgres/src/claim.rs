//! Claiming runs that may go on now: new ones, those whose wait is over, and those whose worker is
//! gone.
//!
//! All of them are rows of one index, by queue, priority and the time from which they may go on: of a
//! run that is held, that is the end of its lease. So a claim reads as many rows as it takes, however
//! many wait.
//!
//! Invariant: rows are locked without waiting (`SKIP LOCKED`), first those of `claimable`, then those
//! of `stream`: claims of many workers are not in each other's way, and nobody waits in a circle.

use std::sync::Arc;

use dalsegno_store::{Claim, Lease, StoreError, StreamId, engine};
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::{Inner, trying};
use crate::leases::lease_in;
use crate::tx::Tx;

const CANDIDATES: &str = include_str!("sql/candidates.sql");
const QUEUES: &str = include_str!("sql/queues.sql");
const LOCK_FREE: &str = include_str!("sql/lock_free.sql");
const HOLDERS: &str = include_str!("sql/holders_of.sql");

impl Inner {
    /// Takes runs that may go on now.
    pub async fn claim(
        self: &Arc<Self>,
        claim: &Claim,
    ) -> Result<Vec<(StreamId, Lease)>, StoreError> {
        engine::check_name(&claim.owner)?;
        if claim.limit == 0 {
            return Ok(Vec::new());
        }
        let queues = match claim.queues.is_empty() {
            true => self.queues().await?,
            false => claim.queues.clone(),
        };
        let mut taken = Vec::new();
        for queue in &queues {
            let room = claim.limit - taken.len();
            if room == 0 {
                break;
            }
            let some = trying!(self, { self.claim_from(claim, queue, room).await })?;
            taken.extend(some);
        }
        Ok(taken)
    }

    /// The queues there are, by skipping through the index.
    async fn queues(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows(QUEUES, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn claim_from(
        self: &Arc<Self>,
        claim: &Claim,
        queue: &str,
        limit: usize,
    ) -> Result<Vec<(StreamId, Lease)>, Trouble> {
        let mut lent = self.pool.lend().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let clock = self.options.lease_now_us();
        let candidates = lent.conn.statement(CANDIDATES).await?;
        let params: [&(dyn ToSql + Sync); 4] = [&queue, &claim.agents, &clock, &limit];
        // Both are sent before the first is answered, here and below.
        let (begun, rows) = tokio::join!(
            biased;
            lent.conn.client.batch_execute("BEGIN"),
            lent.conn.client.query(&candidates, &params),
        );
        begun?;
        let rows = rows?;
        let streams: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if streams.is_empty() {
            lent.conn.say("ROLLBACK").await?;
            self.pool.give_back(lent);
            return Ok(Vec::new());
        }
        let ready = Arc::clone(self);
        tokio::spawn(async move { ready.be_ready_to_send().await });
        let lock = lent.conn.statement(LOCK_FREE).await?;
        let holders = lent.conn.statement(HOLDERS).await?;
        let lock_params: [&(dyn ToSql + Sync); 1] = [&streams];
        let holders_params: [&(dyn ToSql + Sync); 2] = [&streams, &clock];
        let (rows, holders) = tokio::join!(
            biased;
            lent.conn.client.query(&lock, &lock_params),
            lent.conn.client.query(&holders, &holders_params),
        );
        let (rows, holders) = (rows?, holders?);
        let names = rows.iter().map(|row| StreamId::run(row.get(1)));
        let runs: Result<Vec<StreamId>, _> = names.collect();
        let mut runs = runs.map_err(StoreError::from)?;
        // What this handle holds itself, and has let run out, is for others or for another time.
        let ours = self.take_free(&runs);
        runs.retain(|run| ours.streams.contains(run));
        // Oldest first again.
        let place = |run: &StreamId| {
            let row = rows.iter().find(|row| row.get::<_, &str>(1) == run.name());
            row.and_then(|row| streams.iter().position(|no| *no == row.get::<_, i64>(2)))
        };
        runs.sort_by_key(place);
        let mut tx = Tx::of_rows(self, lent, &runs, &rows, &holders)?;
        let mut taken = Vec::new();
        for run in runs {
            if tx.rests(&run) {
                continue;
            }
            match lease_in(&mut tx, &self.handle, &run, &claim.owner, claim.for_us) {
                Ok(lease) => taken.push((run, lease)),
                Err(StoreError::Held { .. } | StoreError::Ended { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        match tx.is_empty() {
            true => tx.leave().await?,
            false => self.commit_leases(tx, &taken).await?,
        }
        Ok(taken)
    }
}
