//! Lists of streams, runs and timers.
//!
//! Each condition of a query has an index: names, status, agent, attention, time. *Newest first* is
//! by the time at which status, agent or attention last changed, so that the list need not be
//! written with every event; within a page it is by the last event.

use dalsegno_store::engine::run_info;
use dalsegno_store::{RunInfo, RunQuery, StoreError, StreamId, StreamKind, Timer, Version, engine};
use tokio_postgres::types::ToSql;

use crate::inner::{Inner, trying};
use crate::save::{db_us, kind_number, us_of};
use crate::tx::{live_lease, read_state};

const STREAMS: &str = "SELECT name, state FROM stream
     WHERE kind = $1 AND name > $2 ORDER BY name LIMIT $3";
const DUE: &str = "SELECT s.name, t.id, t.due_us
     FROM timer t JOIN stream s ON s.no = t.stream
     WHERE t.due_us <= $1 ORDER BY t.due_us, t.stream, t.id LIMIT $2";
const NEXT: &str = "SELECT min(due_us) FROM timer";
const RUNS: &str = "SELECT r.name, s.state, c.token, c.ready_us,
         COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
     FROM run r JOIN stream s ON s.no = r.stream LEFT JOIN claimable c ON c.stream = r.stream
     WHERE r.name > $2";

fn at_most(limit: usize) -> i64 {
    match limit {
        0 => i64::MAX,
        limit => i64::try_from(limit).unwrap_or(i64::MAX),
    }
}

impl Inner {
    /// Streams of one kind with their heads.
    pub async fn streams(
        &self,
        kind: StreamKind,
        after: Option<&StreamId>,
        limit: usize,
    ) -> Result<Vec<(StreamId, Version)>, StoreError> {
        self.flushed().await?;
        let after = match after {
            Some(after) if after.kind() < kind => "",
            Some(after) if after.kind() > kind => return Ok(Vec::new()),
            Some(after) => after.name(),
            None => "",
        };
        let (number, limit) = (kind_number(kind), at_most(limit));
        let rows = self.rows(STREAMS, &[&number, &after, &limit]).await?;
        let read = rows.iter().map(|row| {
            let stream: StreamId = format!("{kind}/{}", row.get::<_, &str>(0)).parse()?;
            let head = read_state(&stream, row.get(1))?.head;
            Ok((stream, head))
        });
        read.collect()
    }

    /// Runs, in the order of their names or the newest first.
    pub async fn runs(&self, query: &RunQuery) -> Result<Vec<RunInfo>, StoreError> {
        self.flushed().await?;
        let clock = self.options.lease_now_us();
        let after = query.after.as_ref().map_or("", StreamId::name);
        let number = |status| engine::status_number(status) as i16;
        let status: Vec<i16> = query.status.iter().copied().map(number).collect();
        let agent = query.agent.as_deref().unwrap_or_default();
        let limit = at_most(query.limit);
        let mut sql = RUNS.to_owned();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&clock, &after];
        if let [one] = &status[..] {
            params.push(one);
            sql += &format!(" AND r.status = ${}", params.len());
        } else if !status.is_empty() {
            params.push(&status);
            sql += &format!(" AND r.status = ANY(${})", params.len());
        }
        if query.attention {
            sql += " AND r.attention";
        }
        if query.agent.is_some() {
            params.push(&agent);
            sql += &format!(" AND r.agent = ${}", params.len());
        }
        params.push(&limit);
        let order = match query.newest {
            true => "r.changed_us DESC, r.name",
            false => "r.name",
        };
        sql += &format!(" ORDER BY {order} LIMIT ${}", params.len());
        let rows = trying!(self, {
            let lent = self.pool.lend().await?;
            let rows = lent.conn.client.query(&sql, &params).await?;
            self.pool.give_back(lent);
            Ok(rows)
        })?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in &rows {
            let run = StreamId::run(row.get(0))?;
            let state = read_state(&run, row.get(1))?;
            let mut info = run_info(&run, &state);
            let token = row.get::<_, Option<i64>>(2).map(|token| token as u64);
            let ready_us = row.get::<_, Option<i64>>(3).unwrap_or(0);
            info.lease = live_lease(&state, token, ready_us, row.get(4));
            runs.push(info);
        }
        if query.newest {
            runs.sort_by(|a, b| {
                let newer = b.updated_us.cmp(&a.updated_us);
                newer.then_with(|| a.run.cmp(&b.run))
            });
        }
        Ok(runs)
    }

    /// Timers due at a time.
    pub async fn timers_due(&self, now_us: u64, limit: usize) -> Result<Vec<Timer>, StoreError> {
        self.flushed().await?;
        let (now_us, limit) = (db_us(now_us), i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = self.rows(DUE, &[&now_us, &limit]).await?;
        let read = rows.iter().map(|row| {
            Ok(Timer {
                run: StreamId::run(row.get(0))?,
                id: String::from_utf8_lossy(row.get(1)).into_owned(),
                due_us: us_of(row.get(2)),
            })
        });
        read.collect()
    }

    /// When the next timer is due.
    pub async fn next_timer_us(&self) -> Result<Option<u64>, StoreError> {
        self.flushed().await?;
        let rows = self.rows(NEXT, &[]).await?;
        let next = rows.first().and_then(|row| row.get::<_, Option<i64>>(0));
        Ok(next.map(us_of))
    }
}
