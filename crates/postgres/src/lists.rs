//! Lists of streams, runs and timers.
//!
//! *Newest first* is by the time at which status, agent or attention last changed, so that the list
//! need not be written with every event; within a page it is by the last event.
//!
//! Invariant: a page is read from indexes in their order, and costs what it shows, however many runs
//! there are. Subqueries with `OFFSET 0` are looked up row by row, also by a plan that was made when
//! the tables were small.

use std::collections::BTreeSet;

use dalsegno_store::engine::run_info;
use dalsegno_store::{
    RunInfo, RunQuery, Status, StoreError, StreamId, StreamKind, Timer, Version, engine,
};
use tokio_postgres::types::ToSql;

use crate::inner::{Inner, trying};
use crate::locked::{live_lease, read_state};
use crate::save::{db_us, kind_number, us_of};

const STREAMS: &str = "SELECT name, state FROM stream
     WHERE kind = $1 AND name > $2 ORDER BY name LIMIT $3";
const DUE: &str = "SELECT s.name, t.id, t.due_us
     FROM (
         SELECT stream, id, due_us FROM timer
         WHERE due_us <= $1 ORDER BY due_us, stream, id LIMIT $2
     ) t
     CROSS JOIN LATERAL (SELECT name FROM stream WHERE no = t.stream OFFSET 0) s
     ORDER BY t.due_us, t.stream, t.id";
const NEXT: &str = "SELECT min(due_us) FROM timer";
/// Around the statement that finds the runs of a page.
const SHOW: [&str; 2] = [
    "SELECT r.name, s.state, c.token, c.ready_us,
         COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
     FROM (",
    ") r
     CROSS JOIN LATERAL (SELECT state FROM stream WHERE no = r.stream OFFSET 0) s
     LEFT JOIN LATERAL (SELECT token, ready_us FROM claimable WHERE stream = r.stream OFFSET 0) c
         ON true
     ORDER BY ",
];
const ALL_STATUSES: [Status; 6] = [
    Status::Pending,
    Status::Running,
    Status::Checkpointed,
    Status::Completed,
    Status::Failed,
    Status::Cancelled,
];

/// The statement for a list of runs: `$1` is the time, `$2` the name that they come after, `$3` the
/// limit, `$4` the agent.
///
/// Each part of it reads one index in its order, and stops at the limit.
fn runs_sql(query: &RunQuery) -> String {
    let order = match query.newest {
        true => "changed_us DESC, name",
        false => "name",
    };
    let part = |condition: &str| {
        format!(
            "(SELECT stream, name, changed_us FROM run WHERE {condition} AND name > $2
              ORDER BY {order} LIMIT $3)"
        )
    };
    let statuses = match &query.status[..] {
        [] => &ALL_STATUSES[..],
        some => some,
    };
    let numbers = statuses.iter().map(|status| engine::status_number(*status));
    let numbers: BTreeSet<u64> = numbers.collect();
    let found = if query.attention {
        // Few, however many runs there are.
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let of_agent = query.agent.as_ref().map_or("", |_| "AND agent = $4");
        let status = numbers.join(", ");
        part(&format!("attention AND status IN ({status}) {of_agent}"))
    } else {
        let of = |number: &u64| match query.agent {
            Some(_) => part(&format!("agent = $4 AND status + 0 = {number}")),
            None => part(&format!("status = {number}")),
        };
        let parts: Vec<String> = numbers.iter().map(of).collect();
        let all = parts.join(" UNION ALL ");
        format!("SELECT stream, name, changed_us FROM ({all}) a ORDER BY {order} LIMIT $3")
    };
    format!("{}{found}{}{order}", SHOW[0], SHOW[1])
}

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
        let limit = at_most(query.limit);
        let sql = runs_sql(query);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&clock, &after, &limit];
        if let Some(agent) = &query.agent {
            params.push(agent);
        }
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
