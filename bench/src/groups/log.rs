//! The log: how close it is to what the disk and the memory can do.
//!
//! | file | rows |
//! |---|---|
//! | `alone.rs` | one appender that waits for each record |
//! | `together.rs` | many appenders, each waiting for its own records |
//! | `buffered.rs` | an append that waits for nothing |
//! | `scan.rs` | reading it all again |
//! | `memory.rs` | what it takes, whatever the log's size |

use std::path::PathBuf;

use dalsegno_log::Log;

use super::{Emit, Group, Setting};
use crate::Error;
use crate::raw::RawLoop;

mod alone;
mod buffered;
mod memory;
mod scan;
mod together;

/// The group.
pub const GROUP: Group = Group {
    name: "log",
    about: "durable appends, recovery, memory; records of 300 bytes",
    run,
};

const RECORD: [u8; 300] = [0xa5; 300];
/// A record with its header, padded to a multiple of 8.
const FRAME_BYTES: usize = 344;

fn run(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    // First, in a process that has not yet freed memory in which growth could hide.
    let memory = memory::row(setting)?;
    alone::rows(setting, emit)?;
    together::rows(setting, emit)?;
    buffered::row(setting, emit)?;
    scan::rows(setting, emit)?;
    emit(memory);
    Ok(())
}

/// A log with the default options and a raw loop, in folders of their own.
struct Contest {
    log: Log,
    raw: RawLoop,
    dir: PathBuf,
}

impl Contest {
    fn new(setting: &Setting) -> Result<Contest, Error> {
        let dir = setting.dir.join("contest");
        Ok(Contest {
            log: Log::open(dir.join("log"))?,
            raw: RawLoop::new(&dir, FRAME_BYTES)?,
            dir,
        })
    }

    /// Closes the log and makes room for the next row.
    fn end(self) -> Result<(), Error> {
        self.log.close()?;
        drop(self.raw);
        std::fs::remove_dir_all(self.dir)?;
        Ok(())
    }
}

/// What the log's own count of syncs says about a stretch of work.
struct SyncCount {
    syncs: u64,
    records: u64,
}

impl SyncCount {
    fn now(log: &Log) -> SyncCount {
        SyncCount {
            syncs: log.sync_times().syncs,
            records: log.last_lsn(),
        }
    }

    /// Syncs per record since then.
    fn per_record_since(log: &Log, then: &SyncCount) -> f64 {
        let now = SyncCount::now(log);
        (now.syncs - then.syncs) as f64 / (now.records - then.records) as f64
    }
}
