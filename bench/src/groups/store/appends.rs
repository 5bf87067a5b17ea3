//! Appending one small event: durable, alone and in a crowd; buffered; and as the first of a run.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use dalsegno_store::{Append, Hash, LocalStore, NewEvent, Options, Store, StreamId};
use tokio::runtime::Runtime;

use super::child::have_filled;
use super::fill::{Ending, Plan};
use super::{frame_bytes, runs, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{SLICE, alternate, median_micros, per_second};
use crate::raw::{self, RawLoop};
use crate::row::{Goal, Row};

const TASKS: u64 = 64;
/// Below the log's buffer of 8 MiB, so that the append is measured and not the disk.
const BURST: u64 = 10_000;
const NEW_RUNS: u64 = 500;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let runtime = runtime()?;
    alone(setting, emit, &runtime)?;
    together(setting, emit, &runtime)?;
    buffered(setting, emit, &runtime)?;
    first(setting, emit, &runtime)
}

async fn append(store: &LocalStore, run: &StreamId, event: NewEvent) -> Result<u64, Error> {
    let appended = store
        .append(vec![Append::to(run.clone(), vec![event])])
        .await?;
    Ok(appended.position)
}

async fn append_durably(store: &LocalStore, run: &StreamId, event: NewEvent) -> Result<(), Error> {
    let position = append(store, run, event).await?;
    Ok(store.durable(position).await?)
}

/// A store with so many runs, and the bytes of one step's event.
fn with_runs(
    runtime: &Runtime,
    options: &Options,
    dir: &Path,
    count: u64,
) -> Result<(LocalStore, Vec<StreamId>, Vec<u8>), Error> {
    let store = options.open(dir)?;
    let runs: Result<Vec<StreamId>, Error> = (0..count).map(runs::id).collect();
    let runs = runs?;
    for run in &runs {
        let begin = Append::to(run.clone(), runs::unfinished(3));
        runtime.block_on(store.append(vec![begin]))?;
    }
    let step = runtime.block_on(store.read(&runs[0], 3, 1))?;
    let bytes = step.first().ok_or("a run has no third event")?;
    let bytes = bytes.event.encode();
    Ok((store, runs, bytes))
}

fn alone(setting: &Setting, emit: &mut Emit<'_>, runtime: &Runtime) -> Result<(), Error> {
    let dir = setting.dir.join("alone");
    let (store, runs, event) = with_runs(runtime, &Options::new(), &dir, 1)?;
    let mut raw = RawLoop::new(&setting.dir, frame_bytes(event.len()))?;
    let rounds = alternate(
        setting.rounds,
        || median_micros(|| runtime.block_on(append_durably(&store, &runs[0], runs::step(1)))),
        || median_micros(|| raw.append()),
    )?;
    store.close()?;
    std::fs::remove_dir_all(dir)?;
    emit(Row {
        name: "1 task, append an event + await".into(),
        unit: "µs",
        anchor_name: raw::NAME,
        // As for the log.
        goal: Goal::RatioAtMost(1.4),
        rounds,
    });
    Ok(())
}

fn together(setting: &Setting, emit: &mut Emit<'_>, runtime: &Runtime) -> Result<(), Error> {
    let dir = setting.dir.join("together");
    let (store, runs, event) = with_runs(runtime, &Options::new(), &dir, TASKS)?;
    let mut raw = RawLoop::new(&setting.dir, frame_bytes(event.len()))?;
    let rounds = alternate(
        setting.rounds,
        || runtime.block_on(tasks(&store, &runs)),
        || per_second(|| raw.append()),
    )?;
    store.close()?;
    std::fs::remove_dir_all(dir)?;
    emit(Row {
        name: "64 tasks, append an event + await".into(),
        unit: "events/s",
        anchor_name: raw::NAME,
        // As for the log.
        goal: Goal::RatioAtLeast(20.0),
        rounds,
    });
    Ok(())
}

/// Events per second of a task for each run.
async fn tasks(store: &LocalStore, runs: &[StreamId]) -> Result<f64, Error> {
    let start = Instant::now();
    let deadline = start + SLICE;
    let appenders: Vec<_> = runs
        .iter()
        .map(|run| {
            let (store, run) = (store.clone(), run.clone());
            tokio::spawn(async move {
                let mut events = 0_u64;
                while Instant::now() < deadline {
                    append_durably(&store, &run, runs::step(events)).await?;
                    events += 1;
                }
                Ok::<u64, Error>(events)
            })
        })
        .collect();
    let mut events = 0;
    for appender in appenders {
        events += appender.await??;
    }
    Ok(events as f64 / start.elapsed().as_secs_f64())
}

fn buffered(setting: &Setting, emit: &mut Emit<'_>, runtime: &Runtime) -> Result<(), Error> {
    let dir = setting.dir.join("buffered");
    let options = Options::new().bounded(Duration::from_millis(100));
    let (store, runs, event) = with_runs(runtime, &options, &dir, 1)?;
    let rounds = alternate(
        setting.rounds,
        || {
            runtime.block_on(async {
                let start = Instant::now();
                let mut position = 0;
                for number in 0..BURST {
                    position = append(&store, &runs[0], runs::step(number)).await?;
                }
                let micros = start.elapsed().as_secs_f64() * 1e6 / BURST as f64;
                // The next burst finds an empty buffer.
                store.durable(position).await?;
                Ok(micros)
            })
        },
        || {
            let start = Instant::now();
            let (mut hash, mut copy) = (Hash::ZERO, Vec::new());
            for _ in 0..BURST {
                let event = black_box(&event);
                hash = hash.chain(event);
                copy.extend_from_slice(&crc32c::crc32c(event).to_le_bytes());
                copy.extend_from_slice(event);
            }
            black_box((hash, copy));
            Ok(start.elapsed().as_secs_f64() * 1e6 / BURST as f64)
        },
    )?;
    store.close()?;
    std::fs::remove_dir_all(dir)?;
    emit(Row {
        name: "buffered append of an event (bounded)".into(),
        unit: "µs",
        anchor_name: "chain hash + crc32c + copy into a Vec",
        goal: Goal::Shown,
        rounds,
    });
    Ok(())
}

/// The first event of a run: that no run of its name has ended is looked up in all segments.
fn first(setting: &Setting, emit: &mut Emit<'_>, runtime: &Runtime) -> Result<(), Error> {
    let dir = setting.dir.join("first");
    let plan = Plan {
        events: 1_000_000,
        unfinished: 0,
        unfinished_events: 0,
        ending: Ending::Sealed,
    };
    have_filled(&dir, plan)?;
    let store = Options::new()
        .bounded(Duration::from_millis(100))
        .open(&dir)?;
    let (mut ours, mut anchor) = (plan.finished(), 10 * plan.finished());
    let burst = |from: u64, event: fn() -> NewEvent| {
        runtime.block_on(async {
            let start = Instant::now();
            for number in from..from + NEW_RUNS {
                append(&store, &runs::id(number)?, event()).await?;
            }
            Ok::<f64, Error>(start.elapsed().as_secs_f64() * 1e6 / NEW_RUNS as f64)
        })
    };
    let rounds = alternate(
        setting.rounds,
        || {
            ours += NEW_RUNS;
            burst(ours, runs::created)
        },
        || {
            anchor += NEW_RUNS;
            burst(anchor, runs::created)?;
            burst(anchor, || runs::step(0))
        },
    )?;
    store.close()?;
    std::fs::remove_dir_all(dir)?;
    emit(Row {
        name: "first event of a run, 10^4 runs finished (buffered)".into(),
        unit: "µs",
        anchor_name: "the second event of a run",
        goal: Goal::Shown,
        rounds,
    });
    Ok(())
}
