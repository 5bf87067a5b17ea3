//! Many appenders, each waiting for its own records: what sharing a sync is worth.

use std::sync::Barrier;
use std::time::Instant;

use dalsegno_log::Log;
use tokio::runtime::{Builder, Runtime};

use super::{Contest, RECORD, SyncCount};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, SLICE, alternate, per_second};
use crate::raw;
use crate::row::{Goal, Row};

/// Threads, tasks on one thread, tasks on two, and the threads' syncs.
pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let one_core = Builder::new_current_thread().build()?;
    let two_cores = Builder::new_multi_thread().worker_threads(2).build()?;
    let (threads, syncs) = contest(setting, |log| threads(log, 64))?;
    emit(row("64 threads", 12.0, threads));
    for (count, goal) in [(64, 20.0), (512, 60.0)] {
        for (runtime, kind) in [
            (&one_core, "current_thread"),
            (&two_cores, "multi_thread, 2"),
        ] {
            let (rounds, _) = contest(setting, |log| tasks(log, count, runtime))?;
            emit(row(&format!("{count} tasks ({kind})"), goal, rounds));
        }
    }
    emit(Row {
        name: "syncs per record, 64 threads".into(),
        unit: "syncs",
        anchor_name: raw::NAME,
        // Half of the threads fill a group while the disk has the other half's: 1 in 32.
        goal: Goal::RatioAtMost(0.035),
        rounds: vec![syncs],
    });
    Ok(())
}

fn row(name: &str, goal: f64, rounds: Vec<Round>) -> Row {
    Row {
        name: format!("{name}, append + wait"),
        unit: "records/s",
        anchor_name: raw::NAME,
        goal: Goal::RatioAtLeast(goal),
        rounds,
    }
}

/// Rounds of `slice` against the raw loop; and syncs per record.
fn contest(
    setting: &Setting,
    slice: impl Fn(&Log) -> Result<f64, Error>,
) -> Result<(Vec<Round>, Round), Error> {
    let mut contest = Contest::new(setting)?;
    let (log, raw) = (&contest.log, &mut contest.raw);
    let before = SyncCount::now(log);
    let rounds = alternate(
        setting.rounds,
        || slice(log),
        || per_second(|| raw.append()),
    )?;
    let syncs = Round {
        ours: SyncCount::per_record_since(log, &before),
        anchor: 1.0,
    };
    contest.end()?;
    Ok((rounds, syncs))
}

/// Records per second of `count` threads, from when all of them are ready.
fn threads(log: &Log, count: usize) -> Result<f64, Error> {
    let ready = Barrier::new(count + 1);
    std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| append_until_end_of_slice(log, &ready)))
            .collect();
        ready.wait();
        let start = Instant::now();
        let mut records = 0;
        for appender in appenders {
            let result = appender.join();
            records += result.map_err(|_| "an appender panicked")??;
        }
        Ok(records as f64 / start.elapsed().as_secs_f64())
    })
}

fn append_until_end_of_slice(log: &Log, ready: &Barrier) -> Result<u64, Error> {
    ready.wait();
    let deadline = Instant::now() + SLICE;
    let mut records = 0;
    while Instant::now() < deadline {
        let lsn = log.append(RECORD)?;
        log.wait_durable(lsn)?;
        records += 1;
    }
    Ok(records)
}

/// Records per second of `count` tasks.
fn tasks(log: &Log, count: usize, runtime: &Runtime) -> Result<f64, Error> {
    let start = Instant::now();
    let deadline = start + SLICE;
    let records: Result<u64, Error> = runtime.block_on(async {
        let appenders: Vec<_> = (0..count)
            .map(|_| {
                let log = log.clone();
                tokio::spawn(async move {
                    let mut records = 0;
                    while Instant::now() < deadline {
                        let lsn = log.append(RECORD)?;
                        log.durable(lsn).await?;
                        records += 1;
                    }
                    Ok::<u64, Error>(records)
                })
            })
            .collect();
        let mut records = 0;
        for appender in appenders {
            records += appender.await??;
        }
        Ok(records)
    });
    Ok(records? as f64 / start.elapsed().as_secs_f64())
}
