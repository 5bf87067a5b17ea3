//! Stores full of runs, most of them finished.
//!
//! Unless everything is sealed, the newest segment is nearly full: the most that opening can have
//! to read. So stores of any size can be compared.

use std::path::Path;
use std::str::FromStr;

use dalsegno_store::{Append, LocalStore, Store};

use super::{frame_bytes, runs, runtime};
use crate::Error;

const FINISHED_EVENTS: u64 = 100;
/// Of the 16 MiB of a segment.
const NEWEST_SEGMENT_BYTES: u64 = 15 << 20;
/// Just before the store writes a snapshot by itself.
const BEHIND_SNAPSHOT_BYTES: u64 = 3900 << 10;

/// What a store is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub events: u64,
    pub unfinished: u64,
    /// Of each unfinished run.
    pub unfinished_events: u64,
    pub ending: Ending,
}

/// In which shape its writer leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closed; the newest segment is nearly full.
    Closed,
    /// Closed; everything is in sealed segments.
    Sealed,
    /// Killed, as far behind the last snapshot as it gets.
    Killed,
}

impl Plan {
    pub fn finished(&self) -> u64 {
        (self.events - self.unfinished * self.unfinished_events) / FINISHED_EVENTS
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Ending::Closed => "closed",
            Ending::Sealed => "sealed",
            Ending::Killed => "killed",
        })
    }
}

impl FromStr for Ending {
    type Err = Error;

    fn from_str(word: &str) -> Result<Ending, Error> {
        let all = [Ending::Closed, Ending::Sealed, Ending::Killed];
        let found = all.into_iter().find(|ending| ending.to_string() == word);
        found.ok_or_else(|| format!("no ending is called {word}").into())
    }
}

/// Fills an empty folder. If the plan says so, this ends the process.
pub fn fill(dir: &Path, plan: Plan) -> Result<(), Error> {
    let store = LocalStore::open(dir)?;
    let runtime = runtime()?;
    let runs = plan.finished() + plan.unfinished;
    let mut left = plan.events;
    let mut bytes_per_event = u64::MAX;
    let (mut sealed, mut snapshot) = (false, false);
    let mut position = 0;
    for number in 0..runs {
        let behind = left.saturating_mul(bytes_per_event);
        if !sealed && behind <= NEWEST_SEGMENT_BYTES && plan.ending != Ending::Sealed {
            store.seal()?;
            sealed = true;
        }
        if !snapshot && behind <= BEHIND_SNAPSHOT_BYTES && plan.ending == Ending::Killed {
            store.snapshot(false)?;
            snapshot = true;
        }
        // Spread evenly among the others.
        let of_them = |number| number * plan.unfinished / runs;
        let events = match of_them(number) == of_them(number + 1) {
            true => runs::finished(FINISHED_EVENTS),
            false => runs::unfinished(plan.unfinished_events),
        };
        let run = runs::id(number)?;
        left = left.saturating_sub(events.len() as u64);
        let append = Append::to(run.clone(), events).expecting(0);
        position = runtime.block_on(store.append(vec![append]))?.position;
        if number == 0 {
            let events = runtime.block_on(store.read(&run, 1, usize::MAX))?;
            let frames = events.iter().map(|e| frame_bytes(e.event.encode().len()));
            bytes_per_event = frames.sum::<usize>() as u64 / events.len() as u64;
        }
    }
    runtime.block_on(store.durable(position))?;
    match plan.ending {
        Ending::Closed => {}
        Ending::Sealed => store.seal()?,
        // Without letting go of anything.
        Ending::Killed => std::process::exit(0),
    }
    Ok(store.close()?)
}
