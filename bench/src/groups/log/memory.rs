//! Memory while a log of 100 MB is written and read, and while it grows to 800 MB.

use std::fs;
use std::path::Path;

use dalsegno_log::Log;

use super::{FRAME_BYTES, RECORD};
use crate::Error;
use crate::groups::Setting;
use crate::measure::Round;
use crate::row::{Goal, Row};

const SMALL_BYTES: u64 = 100_000_000;
const LARGE_BYTES: u64 = 800_000_000;
/// Between two looks at the memory.
const STEP_RECORDS: u64 = 4096;
const PAGE_BYTES: f64 = 4096.0;

/// Peak resident memory, once for each size.
pub fn row(setting: &Setting) -> Result<Row, Error> {
    let dir = setting.dir.join("memory");
    let log = Log::open(&dir)?;
    let small = peak_while(&log, SMALL_BYTES)?;
    let large = peak_while(&log, LARGE_BYTES)?;
    log.close()?;
    fs::remove_dir_all(dir)?;
    Ok(Row {
        name: "memory with a log of 800 MB".into(),
        unit: "MB",
        anchor_name: "the same with a log of 100 MB",
        goal: Goal::GrowthBelow(8.0),
        rounds: vec![Round {
            ours: large,
            anchor: small,
        }],
    })
}

/// Grows the log to `bytes`, then reads all of it.
fn peak_while(log: &Log, bytes: u64) -> Result<f64, Error> {
    let mut peak = resident_megabytes()?;
    while log.last_lsn() * (FRAME_BYTES as u64) < bytes {
        for _ in 0..STEP_RECORDS {
            log.append(RECORD)?;
        }
        peak = peak.max(resident_megabytes()?);
    }
    log.wait_durable(log.last_lsn())?;
    let mut reader = log.read_from(1)?;
    while let Some(record) = reader.next_record()? {
        if record.lsn % STEP_RECORDS == 0 {
            peak = peak.max(resident_megabytes()?);
        }
    }
    Ok(peak)
}

fn resident_megabytes() -> Result<f64, Error> {
    let statm = fs::read_to_string(Path::new("/proc/self/statm"))?;
    let pages: f64 = statm
        .split_whitespace()
        .nth(1)
        .ok_or("/proc/self/statm has no second field")?
        .parse()?;
    Ok(pages * PAGE_BYTES / 1e6)
}
