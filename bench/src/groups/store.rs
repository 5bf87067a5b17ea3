//! The local store: starting, reading back, what conversations take, appending.
//!
//! | file | rows |
//! |---|---|
//! | `start.rs` | opening stores of many sizes: time, memory, bytes on disk |
//! | `journal.rs` | one long run, read back |
//! | `conversation.rs` | what a growing conversation takes on disk |
//! | `appends.rs` | durable and buffered appends, and the first one to a run |
//!
//! | file | help |
//! |---|---|
//! | `runs.rs` | runs as agents make them |
//! | `fill.rs` | stores full of them |
//! | `child.rs` | this program again, in a process of its own: for memory and for crashes |

use std::path::Path;

use tokio::runtime::{Builder, Runtime};

use super::{Emit, Group, Setting};
use crate::Error;

mod appends;
pub mod child;
mod conversation;
mod fill;
mod journal;
mod runs;
mod start;

/// The group.
pub const GROUP: Group = Group {
    name: "store",
    about: "opening, journals, conversations, appends; events of about 200 bytes",
    run,
};

fn run(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    conversation::rows(setting, emit)?;
    journal::rows(setting, emit)?;
    appends::rows(setting, emit)?;
    start::rows(setting, emit)
}

fn runtime() -> Result<Runtime, Error> {
    Ok(Builder::new_current_thread().build()?)
}

/// A frame of the log around an event of these bytes: a tag, a header, and up to a multiple of 8.
fn frame_bytes(event_bytes: usize) -> usize {
    (1 + event_bytes + 40).next_multiple_of(8)
}

/// The length of all files in a folder and below.
fn folder_bytes(dir: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += match meta.is_dir() {
            true => folder_bytes(&entry.path())?,
            false => meta.len(),
        };
    }
    Ok(bytes)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
