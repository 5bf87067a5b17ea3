//! One appender that waits for each record: the latency of a durable append.

use super::{Contest, RECORD, SyncCount};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, alternate, median_micros};
use crate::raw;
use crate::row::{Goal, Row};

/// A thread, a task, and the thread's syncs.
pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let (latency, syncs) = thread(setting)?;
    emit(latency);
    emit(task(setting)?);
    emit(syncs);
    Ok(())
}

fn thread(setting: &Setting) -> Result<(Row, Row), Error> {
    let mut contest = Contest::new(setting)?;
    let (log, raw) = (&contest.log, &mut contest.raw);
    let before = SyncCount::now(log);
    let rounds = alternate(
        setting.rounds,
        || {
            median_micros(|| {
                let lsn = log.append(RECORD)?;
                Ok(log.wait_durable(lsn)?)
            })
        },
        || median_micros(|| raw.append()),
    )?;
    let syncs = Round {
        ours: SyncCount::per_record_since(log, &before),
        anchor: 1.0,
    };
    contest.end()?;
    let latency = Row {
        name: "1 thread, append + wait".into(),
        unit: "µs",
        anchor_name: raw::NAME,
        goal: Goal::RatioAtMost(1.15),
        rounds,
    };
    let syncs = Row {
        name: "syncs per record, 1 thread".into(),
        unit: "syncs",
        anchor_name: raw::NAME,
        // A new segment costs a sync for the seal of the one before.
        goal: Goal::RatioAtMost(1.001),
        rounds: vec![syncs],
    };
    Ok((latency, syncs))
}

fn task(setting: &Setting) -> Result<Row, Error> {
    let mut contest = Contest::new(setting)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (log, raw) = (&contest.log, &mut contest.raw);
    let rounds = alternate(
        setting.rounds,
        || {
            median_micros(|| {
                let lsn = log.append(RECORD)?;
                Ok(runtime.block_on(log.durable(lsn))?)
            })
        },
        || median_micros(|| raw.append()),
    )?;
    contest.end()?;
    Ok(Row {
        name: "1 task (current_thread), append + await".into(),
        unit: "µs",
        anchor_name: raw::NAME,
        goal: Goal::RatioAtMost(1.4),
        rounds,
    })
}
