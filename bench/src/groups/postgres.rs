//! The store in PostgreSQL: appends alone and together, and claiming among many that wait.
//!
//! The anchor is one `INSERT` and commit of the same bytes, prepared, over one connection of the same
//! kind to the same server in the same seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::{Append, Claim, Fields, Kind, NewEvent, NewPayload, Store, StreamId, field};
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Emit, Group, Setting};
use crate::Error;
use crate::measure::{SLICE, alternate, median_micros, per_second};
use crate::row::{Goal, Row};

/// The group.
pub const GROUP: Group = Group {
    name: "postgres",
    about: "the store in PostgreSQL: appends alone and together, claims among many",
    run,
};

const ANCHOR: &str = "one INSERT and commit";
/// What a step records, about.
const PAYLOAD_BYTES: usize = 300;
const TOGETHER: usize = 64;
const LEASE_US: u64 = 3_600_000_000;

/// The simplest program that does the same.
struct Raw {
    client: Client,
    insert: Statement,
    next: std::cell::Cell<i64>,
}

impl Raw {
    fn new(runtime: &Runtime, server: &Server) -> Result<Raw, Error> {
        let url = server.url();
        let address = url.split('?').next().unwrap_or_default().to_owned();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&address, NoTls).await?;
            tokio::spawn(connection);
            let table = "CREATE TABLE IF NOT EXISTS raw
                (run bigint, seq bigint, bytes bytea, PRIMARY KEY (run, seq))";
            client.batch_execute(table).await?;
            let insert = client.prepare("INSERT INTO raw VALUES (1, $1, $2)").await?;
            Ok(Raw {
                client,
                insert,
                next: std::cell::Cell::new(0),
            })
        })
    }

    /// As many bytes as so many events have.
    fn once(&self, runtime: &Runtime, events: usize) -> Result<(), Error> {
        let next = self.next.get() + 1;
        self.next.set(next);
        // With the event around the payload.
        let bytes = vec![7_u8; events * (PAYLOAD_BYTES + 80)];
        runtime.block_on(async {
            let params: [&(dyn ToSql + Sync); 2] = [&next, &bytes];
            self.client.execute(&self.insert, &params).await?;
            Ok(())
        })
    }
}

fn run(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let server = Server::start();
    let raw = Raw::new(&runtime, &server)?;
    alone(setting, emit, &runtime, &server, &raw)?;
    together(setting, emit, &runtime, &server, &raw)?;
    for waits in [Waits::ForAWorker, Waits::ForSomethingElse] {
        for count in [0, 1_000, 10_000, 100_000] {
            claims(setting, emit, &runtime, &server, &raw, (count, waits))?;
        }
    }
    Ok(())
}

fn step() -> NewEvent {
    let output = NewPayload::new("application/json", vec![b'x'; PAYLOAD_BYTES]);
    NewEvent::new(Kind::StepSucceeded).with_output(output)
}

fn held(runtime: &Runtime, store: &PostgresStore, name: &str) -> Result<(StreamId, u64), Error> {
    let run = StreamId::run(name)?;
    let created = NewEvent::new(Kind::RunCreated);
    runtime.block_on(store.append(vec![Append::to(run.clone(), vec![created])]))?;
    let lease = runtime.block_on(store.take_lease(&run, "bench", LEASE_US))?;
    Ok((run, lease.token))
}

fn alone(
    setting: &Setting,
    emit: &mut Emit<'_>,
    runtime: &Runtime,
    server: &Server,
    raw: &Raw,
) -> Result<(), Error> {
    let store = PostgresStore::open(&server.url())?;
    let (run, token) = held(runtime, &store, "alone")?;
    let append = |events| Append::to(run.clone(), events).under(token);
    for (name, appends) in [
        ("append + durable, one run", 1),
        ("an idempotent step: outcome, next intent + durable", 2),
    ] {
        let rounds = alternate(
            setting.rounds,
            || {
                median_micros(|| {
                    runtime.block_on(async {
                        let mut position = 0;
                        for _ in 0..appends {
                            let appended = store.append(vec![append(vec![step()])]).await?;
                            position = appended.position;
                        }
                        Ok(store.durable(position).await?)
                    })
                })
            },
            || median_micros(|| raw.once(runtime, appends)),
        )?;
        emit(Row {
            name: name.into(),
            unit: "µs",
            anchor_name: ANCHOR,
            goal: Goal::RatioAtMost(1.3),
            rounds,
        });
    }
    Ok(store.close()?)
}

fn together(
    setting: &Setting,
    emit: &mut Emit<'_>,
    runtime: &Runtime,
    server: &Server,
    raw: &Raw,
) -> Result<(), Error> {
    let store = Arc::new(PostgresStore::open(&server.url())?);
    let mut runs = Vec::new();
    for n in 0..TOGETHER {
        runs.push(held(runtime, &store, &format!("r{n}"))?);
    }
    let ours = || {
        let start = Instant::now();
        let tasks: Vec<_> = runs
            .iter()
            .map(|(run, token)| {
                let (store, run, token) = (Arc::clone(&store), run.clone(), *token);
                runtime.spawn(async move {
                    let mut count = 0_u64;
                    while start.elapsed() < 4 * SLICE {
                        let append = Append::to(run.clone(), vec![step()]).under(token);
                        let appended = store.append(vec![append]).await?;
                        store.durable(appended.position).await?;
                        count += 1;
                    }
                    Ok::<u64, dalsegno_store::StoreError>(count)
                })
            })
            .collect();
        let mut count = 0;
        for task in tasks {
            count += runtime.block_on(task)??;
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    };
    let rounds = alternate(setting.rounds, ours, || per_second(|| raw.once(runtime, 1)))?;
    emit(Row {
        name: format!("durable appends of {TOGETHER} runs at a time"),
        unit: "per s",
        anchor_name: ANCHOR,
        goal: Goal::RatioAtLeast(5.0),
        rounds,
    });
    Ok(store.close()?)
}

/// What the other runs of a store wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    ForAWorker,
    ForSomethingElse,
}

/// So many runs wait, besides those that are claimed one by one.
fn claims(
    setting: &Setting,
    emit: &mut Emit<'_>,
    runtime: &Runtime,
    server: &Server,
    raw: &Raw,
    (waiting, waits): (usize, Waits),
) -> Result<(), Error> {
    let url = server.url();
    let store = PostgresStore::open(&url)?;
    let template = StreamId::run("template")?;
    let fields = Fields::new().with(field::AGENT, "cook");
    let created = NewEvent::new(Kind::RunCreated).with_fields(fields);
    runtime.block_on(store.append(vec![Append::to(template, vec![created])]))?;
    let claim = Claim {
        owner: "bench".into(),
        for_us: LEASE_US,
        limit: 1,
        agents: vec!["cook".into()],
        queues: vec![String::new()],
    };
    let (ready_us, words) = match waits {
        Waits::ForAWorker => ("c.ready_us", "that wait for a worker"),
        Waits::ForSomethingElse => ("9223372036854775807", "that wait for something else"),
    };
    // Copies of one run, so that making them takes no time.
    server.sql(
        &url,
        &format!(
            "INSERT INTO stream (kind, name, sequence, clock, token, state)
                 SELECT kind, 'w' || g, sequence, clock, token, state
                 FROM stream, generate_series(1, {waiting}) g;
             INSERT INTO run SELECT s.no, s.name, r.status, r.agent, r.attention, r.changed_us
                 FROM stream s, run r WHERE s.name <> 'template';
             INSERT INTO claimable SELECT s.no, '', 0, c.agent, {ready_us}, NULL, NULL
                 FROM stream s, claimable c WHERE s.name <> 'template'; ANALYZE"
        ),
    );
    let mut next = 0_u64;
    let ours = || {
        let mut micros = Vec::new();
        let until = Instant::now() + SLICE.max(Duration::from_millis(60));
        while Instant::now() < until {
            if waiting == 0 || waits == Waits::ForSomethingElse {
                // One that can be claimed has to be there; making it is not measured.
                next += 1;
                let run = StreamId::run(&format!("n{next}"))?;
                let fields = Fields::new().with(field::AGENT, "cook");
                let created = NewEvent::new(Kind::RunCreated).with_fields(fields);
                runtime.block_on(store.append(vec![Append::to(run, vec![created])]))?;
            }
            let before = Instant::now();
            let claimed = runtime.block_on(store.claim(&claim))?;
            micros.push(before.elapsed().as_secs_f64() * 1e6);
            if claimed.is_empty() {
                return Err("nothing was left to be claimed".into());
            }
        }
        Ok(crate::measure::median(&micros))
    };
    let rounds = alternate(setting.rounds.min(10), ours, || {
        median_micros(|| raw.once(runtime, 1))
    })?;
    emit(Row {
        name: format!("claim one, {waiting} {words}"),
        unit: "µs",
        anchor_name: ANCHOR,
        goal: Goal::Shown,
        rounds,
    });
    Ok(store.close()?)
}
