//! Reading a warm log again: by a reader, by `verify`, and by opening it.
//!
//! All three check every byte. So does the anchor, which reads the same files into a buffer of the
//! same size as the log's and takes one checksum of it.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use dalsegno_log::{Log, Options};

use super::{FRAME_BYTES, RECORD};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, alternate};
use crate::row::{Goal, Row};

const LOG_BYTES: u64 = 64 * 1024 * 1024;
const CHUNK_BYTES: usize = 256 * 1024;

/// Megabytes per second of each way.
pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let dir = setting.dir.join("scan");
    let log = fill(&Options::new(), &dir, LOG_BYTES)?;
    emit(row("read_from, 64 MiB", reader(setting, &log, &dir)?));
    log.close()?;
    emit(row("verify, 64 MiB", verify(setting, &dir)?));
    fs::remove_dir_all(&dir)?;
    for mebibytes in [16, 64] {
        let name = format!("reopen, one full segment of {mebibytes} MiB");
        emit(row(&name, reopen(setting, mebibytes << 20)?));
    }
    Ok(())
}

fn row(name: &str, rounds: Vec<Round>) -> Row {
    Row {
        name: name.into(),
        unit: "MB/s",
        anchor_name: "read + crc32c of the same files",
        goal: Goal::OursOrRatioAtLeast(1000.0, 0.9),
        rounds,
    }
}

/// A log whose frames take about `bytes`.
fn fill(options: &Options, dir: &Path, bytes: u64) -> Result<Log, Error> {
    let log = options.open(dir)?;
    for _ in 0..bytes / FRAME_BYTES as u64 {
        log.append(RECORD)?;
    }
    log.wait_durable(log.last_lsn())?;
    Ok(log)
}

fn reader(setting: &Setting, log: &Log, dir: &Path) -> Result<Vec<Round>, Error> {
    alternate(
        setting.rounds,
        || {
            megabytes_per_second(|| {
                let mut reader = log.read_from(1)?;
                let mut bytes = 0;
                while let Some(record) = reader.next_record()? {
                    black_box(record.payload);
                    bytes += FRAME_BYTES as u64;
                }
                Ok(bytes)
            })
        },
        || megabytes_per_second(|| read_and_sum(dir)),
    )
}

fn verify(setting: &Setting, dir: &Path) -> Result<Vec<Round>, Error> {
    alternate(
        setting.rounds,
        || {
            megabytes_per_second(|| {
                let report = dalsegno_log::verify(dir)?;
                if !report.is_sound() {
                    return Err("the log is damaged".into());
                }
                Ok(report.segments.iter().map(|s| s.file_bytes).sum())
            })
        },
        || megabytes_per_second(|| read_and_sum(dir)),
    )
}

/// Opens a log whose one segment is nearly full, which reads all of it, as after a crash. What a
/// crash would add is not a matter of the scan: the last group is written again.
fn reopen(setting: &Setting, segment_bytes: u64) -> Result<Vec<Round>, Error> {
    let dir = setting.dir.join("reopen");
    let options = Options::new().segment_bytes(segment_bytes);
    let log = fill(&options, &dir, segment_bytes / 100 * 98)?;
    let last = log.last_lsn();
    log.close()?;
    let rounds = alternate(
        setting.rounds,
        || {
            let start = Instant::now();
            let log = options.open(&dir)?;
            let seconds = start.elapsed().as_secs_f64();
            if log.last_lsn() != last {
                return Err("reopening did not find all records".into());
            }
            log.close()?;
            Ok(segment_bytes as f64 / 1e6 / seconds)
        },
        || megabytes_per_second(|| read_and_sum(&dir)),
    )?;
    fs::remove_dir_all(dir)?;
    Ok(rounds)
}

/// The anchor: how many bytes it read.
fn read_and_sum(dir: &Path) -> Result<u64, Error> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let mut file = File::open(entry?.path())?;
        loop {
            let got = file.read(&mut chunk)?;
            if got == 0 {
                break;
            }
            black_box(crc32c::crc32c(&chunk[..got]));
            bytes += got as u64;
        }
    }
    Ok(bytes)
}

fn megabytes_per_second(work: impl FnOnce() -> Result<u64, Error>) -> Result<f64, Error> {
    let start = Instant::now();
    let bytes = work()?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}
