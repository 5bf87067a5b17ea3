//! An append that waits for nothing, in the mode that bounds what a crash can take.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dalsegno_log::Options;

use super::RECORD;
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::alternate;
use crate::row::{Goal, Row};

/// Below the log's buffer of 8 MiB, so that the append is measured and not the disk.
const BURST: u32 = 20_000;

/// Nanoseconds per append.
pub fn row(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let dir = setting.dir.join("buffered");
    let log = Options::new()
        .bounded(Duration::from_millis(100))
        .open(&dir)?;
    let mut copy = Vec::new();
    let rounds = alternate(
        setting.rounds,
        || {
            let nanos = nanos_each(|| {
                log.append(black_box(RECORD))?;
                Ok(())
            })?;
            // The next burst finds an empty buffer.
            log.wait_durable(log.last_lsn())?;
            Ok(nanos)
        },
        || {
            copy.clear();
            nanos_each(|| {
                let record = black_box(&RECORD);
                copy.extend_from_slice(&crc32c::crc32c(record).to_le_bytes());
                copy.extend_from_slice(record);
                Ok(())
            })
        },
    )?;
    log.close()?;
    std::fs::remove_dir_all(dir)?;
    emit(Row {
        name: "buffered append (bounded)".into(),
        unit: "ns",
        anchor_name: "crc32c + copy into a Vec",
        goal: Goal::OursBelow(1000.0),
        rounds,
    });
    Ok(())
}

fn nanos_each(mut append: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    for _ in 0..BURST {
        append()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(BURST))
}
