//! Snapshots: states written down, so that opening costs the tail of the log and not its history.
//!
//! | offset | bytes | meaning |
//! |---:|---:|---|
//! | 0 | 16 | `dalsegno state`, then zeros |
//! | 16 | 8 | format, little-endian like all numbers |
//! | 24 | 8 | the store's id |
//! | 32 | 8 | the LSN of the last record that is part of the state |
//! | 40 | 8 | when it was taken, in microseconds since 1970 |
//! | 48 | 8 | the length of what follows |
//! | 56 | … | the state, in CBOR |
//! | end | 32 | BLAKE3 of everything before |
//!
//! Rolling points: the newest is *current*, the one before it *previous*; those that a person
//! pinned are *recovery* points. All others are removed when a new one is in place.
//!
//! Invariant: a snapshot is placed only when the log is durable up to its LSN, so that it never
//! holds anything that a crash could take.

use std::path::Path;

use super::folder::Folder;
use crate::error::StoreError;
use crate::hash::Hash;
use crate::rules::Rule;
use crate::state::State;

const MAGIC: &[u8; 16] = b"dalsegno state\0\0";
const FORMAT: u64 = 1;
const HEADER_BYTES: usize = 56;
const HASH_BYTES: usize = 32;
/// More unfinished runs than any machine works on.
const LIMIT_BYTES: u64 = 4 << 30;

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotRole {
    /// The newest one: opening begins with it.
    Current,
    /// The one before: it takes over if the newest is damaged.
    Previous,
    /// Pinned by a person, and kept until unpinned.
    Recovery,
}

impl std::fmt::Display for SnapshotRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SnapshotRole::Current => "current",
            SnapshotRole::Previous => "previous",
            SnapshotRole::Recovery => "recovery",
        })
    }
}

/// A snapshot that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its file's name.
    pub file: String,
    /// The last position that is part of it.
    pub position: u64,
    /// A person wants to keep it.
    pub pinned: bool,
    /// What it is for.
    pub role: SnapshotRole,
}

/// A snapshot, read and checked.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub lsn: u64,
    pub state: State,
}

pub(crate) fn file_name(lsn: u64, pinned: bool) -> String {
    let end = if pinned { "pinned" } else { "snapshot" };
    format!("{lsn:020}.{end}")
}

fn parse_name(name: &str) -> Option<(u64, bool)> {
    let (digits, end) = name.split_once('.')?;
    let lsn = digits.parse().ok().filter(|_| digits.len() == 20)?;
    let pinned = match end {
        "pinned" => true,
        "snapshot" => false,
        _ => return None,
    };
    Some((lsn, pinned))
}

/// The snapshots there are, newest first; of two with the same LSN the pinned one comes second.
pub(crate) fn list(folder: &Folder) -> Result<Vec<SnapshotInfo>, StoreError> {
    let names = folder.list(&folder.snapshots())?;
    let mut found: Vec<(u64, bool, String)> = names
        .into_iter()
        .filter_map(|name| parse_name(&name).map(|(lsn, pinned)| (lsn, pinned, name)))
        .collect();
    found.sort_unstable_by(|a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    let mut rolling = [SnapshotRole::Current, SnapshotRole::Previous].into_iter();
    let infos = found.into_iter().map(|(position, pinned, file)| {
        let role = match pinned {
            true => SnapshotRole::Recovery,
            false => rolling.next().unwrap_or(SnapshotRole::Previous),
        };
        SnapshotInfo {
            file,
            position,
            pinned,
            role,
        }
    });
    Ok(infos.collect())
}

/// Writes a state down. The log must be durable up to `lsn`.
pub(crate) fn write(
    folder: &Folder,
    lsn: u64,
    taken_us: u64,
    state: &[u8],
    pinned: bool,
) -> Result<(), StoreError> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + state.len() + HASH_BYTES);
    bytes.extend_from_slice(MAGIC);
    for number in [FORMAT, folder.id, lsn, taken_us, state.len() as u64] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(state);
    let hash = Hash::of(&bytes);
    bytes.extend_from_slice(hash.as_bytes());
    folder.place(&folder.snapshots(), &file_name(lsn, pinned), &bytes)
}

/// Removes all but the two newest and the pinned ones, and what a crash left half made.
pub(crate) fn prune(folder: &Folder) -> Result<(), StoreError> {
    let dir = folder.snapshots();
    let rolling = list(folder)?.into_iter().filter(|info| !info.pinned);
    let mut remove: Vec<String> = rolling.skip(2).map(|info| info.file).collect();
    let half_made = |name: &String| {
        let whole = name.strip_suffix(".tmp");
        whole.is_some_and(|name| parse_name(name).is_some())
    };
    remove.extend(folder.list(&dir)?.into_iter().filter(half_made));
    folder.remove(&dir, &remove)
}

/// Reads a snapshot; the error says what is wrong with it.
pub(crate) fn load(folder: &Folder, info: &SnapshotInfo) -> Result<Snapshot, StoreError> {
    let path = folder.snapshots().join(&info.file);
    let bytes = folder.read(&path, LIMIT_BYTES)?;
    decode(folder, &path, info, &bytes)
}

fn decode(
    folder: &Folder,
    path: &Path,
    info: &SnapshotInfo,
    bytes: &[u8],
) -> Result<Snapshot, StoreError> {
    let damaged = |expected: &str, found: String| {
        StoreError::damaged(path.display().to_string(), expected, found)
    };
    if bytes.len() < HEADER_BYTES + HASH_BYTES || !bytes.starts_with(MAGIC) {
        return Err(damaged(
            "a snapshot",
            format!("{} other bytes", bytes.len()),
        ));
    }
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(number)
    };
    let (content, hash) = bytes.split_at(bytes.len() - HASH_BYTES);
    let found = Hash::of(content);
    if found.as_bytes() != hash && !folder.mutant.breaks(Rule::CheckSnapshot) {
        return Err(damaged("the hash at its end", format!("{found}")));
    }
    if number(16) > FORMAT {
        return Err(StoreError::Version {
            path: path.to_owned(),
            found: number(16),
            known: FORMAT,
        });
    }
    let state = &content[HEADER_BYTES..];
    let header = [number(16), number(24), number(32), number(48)];
    let expected = [FORMAT, folder.id, info.position, state.len() as u64];
    if header != expected {
        return Err(damaged(&format!("{expected:?}"), format!("{header:?}")));
    }
    let state = State::decode(state).map_err(|e| damaged("a state", e.to_string()))?;
    Ok(Snapshot {
        lsn: info.position,
        state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_strictly() {
        for pinned in [true, false] {
            let name = file_name(42, pinned);
            assert_eq!(parse_name(&name), Some((42, pinned)));
            assert_eq!(parse_name(&format!("{name}.tmp")), None);
        }
        for name in ["", "42.snapshot", "00000000000000000042.other"] {
            assert_eq!(parse_name(name), None);
        }
    }
}
