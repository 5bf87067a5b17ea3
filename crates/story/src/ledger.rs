//! The ledger: what was asked of the world, in the order in which it arrived.
//!
//! Invariant: it only grows, in memory and in its file, and every whole request is in it before
//! anything is answered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What was asked for, as in `weather` or `notify`.
    pub what: String,
    /// The run that asked.
    pub run: String,
    /// The step of it, as in `outline`.
    #[serde(default)]
    pub step: String,
    /// Its idempotency key.
    pub key: String,
    /// The process that asked.
    pub worker: String,
    /// Whether something was done about it: not if it had been done under its key before.
    pub applied: bool,
    /// It came from a worker that was overtaken: nothing was done about it.
    #[serde(default)]
    pub refused: bool,
    /// When it arrived, in microseconds since 1970.
    pub time_us: u64,
}

/// All requests.
#[derive(Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
    file: File,
}

impl Ledger {
    /// An empty one, with its file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> std::io::Result<Ledger> {
        Ok(Ledger {
            entries: Vec::new(),
            file: File::create(path)?,
        })
    }

    /// Writes a request down.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, entry: Entry) -> std::io::Result<()> {
        let mut line = serde_json::to_string(&entry)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.entries.push(entry);
        Ok(())
    }

    /// All of them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether something was done under a key.
    pub fn has_applied(&self, what: &str, key: &str) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.applied && entry.what == what && entry.key == key)
    }

    /// As lines of JSON, as in the file.
    pub fn to_lines(&self) -> String {
        let lines = self.entries.iter().map(serde_json::to_string);
        lines
            .flatten()
            .fold(String::new(), |all, line| all + &line + "\n")
    }
}

/// Reads lines of JSON.
///
/// # Errors
/// A line is none of a ledger.
pub fn parse(lines: &str) -> Result<Vec<Entry>, serde_json::Error> {
    lines.lines().map(serde_json::from_str).collect()
}

/// How often something arrived from who had the run, and was applied, by its key.
pub fn counts<'a>(entries: &'a [Entry], what: &str, run: &str) -> BTreeMap<&'a str, (u64, u64)> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let of_run = |e: &&Entry| e.what == what && e.run == run && !e.refused;
    for entry in entries.iter().filter(of_run) {
        let (arrived, applied) = counts.entry(&entry.key).or_default();
        *arrived += 1;
        *applied += u64::from(entry.applied);
    }
    counts
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}
