//! Who writes to a log now, asked without taking part in it.
//!
//! Invariant: asking never takes the lock where the kernel tells who has it, so that no process that
//! opens the log at that moment is told that it is in use.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::open::LOCK_FILE;

/// The process that has the log in a folder open for writing, as in `process 4711`; `None` if none
/// has. One that was killed has not: the lock is the kernel's.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-ow-{}", std::process::id()));
/// let log = dalsegno_log::Log::open(&dir)?;
/// assert_eq!(dalsegno_log::owner_of(&dir), Some(format!("process {}", std::process::id())));
/// drop(log);
/// assert_eq!(dalsegno_log::owner_of(&dir), None);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn owner_of(dir: impl AsRef<Path>) -> Option<String> {
    let mut file = File::open(dir.as_ref().join(LOCK_FILE)).ok()?;
    let mut name = String::new();
    // Only the first bytes: the file is from outside and may be anything.
    drop(Read::by_ref(&mut file).take(200).read_to_string(&mut name));
    let name = match name.trim() {
        "" => "another process",
        name => name,
    };
    is_locked(&file).then(|| name.to_owned())
}

#[cfg(target_os = "linux")]
fn is_locked(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        return is_locked_by_trying(file);
    };
    // The device is left out: some file systems have another one there than in their metadata.
    let inode = file.metadata().map(|data| data.ino());
    inode.is_ok_and(|inode| lists_writer(&locks, inode))
}

/// As in `1: FLOCK  ADVISORY  WRITE 4711 fe:00:11240079 0 EOF`.
#[cfg(target_os = "linux")]
fn lists_writer(locks: &str, inode: u64) -> bool {
    let of_file = format!(":{inode}");
    locks.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("FLOCK")
            && words.nth(1) == Some("WRITE")
            && words.nth(1).is_some_and(|file| file.ends_with(&of_file))
    })
}

#[cfg(not(target_os = "linux"))]
fn is_locked(file: &File) -> bool {
    is_locked_by_trying(file)
}

/// Takes the lock for a moment, if nobody has it.
fn is_locked_by_trying(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            // It ends with the file at the latest.
            drop(file.unlock());
            false
        }
        Err(e) => matches!(e, std::fs::TryLockError::WouldBlock),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_a_writer_of_this_file_counts() {
        let line = |kind: &str, inode: u64| {
            format!("7: FLOCK  ADVISORY  {kind} 4711 fe:00:{inode} 0 EOF\n")
        };
        assert!(lists_writer(&(line("READ", 5) + &line("WRITE", 11)), 11));
        assert!(!lists_writer(&line("WRITE", 11), 1));
        assert!(!lists_writer(&line("READ", 11), 11));
        assert!(!lists_writer(
            "7: -> FLOCK  ADVISORY  WRITE 4711 fe:00:11 0 EOF\n",
            11
        ));
        assert!(!lists_writer("", 11));
    }
}
