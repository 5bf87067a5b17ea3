//! Each promise and each lie of the simulated disk, shown once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use dalsegno_log::fs::{Fs, FsFile, LockError, OpenMode};

use super::*;

mod content;
mod faults;
mod names;
mod power;

/// A disk with the folder `d`.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir(Path::new("d")).unwrap();
    disk
}

/// A durable file `d/a` of these bytes, open for writing.
fn file(disk: &SimDisk, bytes: &[u8]) -> Box<dyn FsFile> {
    disk.write_raw("d/a", bytes).unwrap();
    open(disk, "a")
}

fn open(disk: &SimDisk, name: &str) -> Box<dyn FsFile> {
    disk.open(&Path::new("d").join(name), OpenMode::Write)
        .unwrap()
}

fn create(disk: &SimDisk, name: &str) -> Box<dyn FsFile> {
    disk.open(&Path::new("d").join(name), OpenMode::CreateNew)
        .unwrap()
}

fn rename(disk: &SimDisk, from: &str, to: &str) -> io::Result<()> {
    disk.rename(&Path::new("d").join(from), &Path::new("d").join(to))
}

fn remove(disk: &SimDisk, name: &str) -> io::Result<()> {
    disk.remove(&Path::new("d").join(name))
}

fn sync_dir(disk: &SimDisk) -> io::Result<()> {
    disk.sync_dir(Path::new("d"))
}

/// Sectors filled with one letter each.
fn sectors(letters: &str) -> Vec<u8> {
    letters
        .bytes()
        .flat_map(|letter| [letter; SECTOR])
        .collect()
}

/// The reverse: one letter per sector, `_` for zeros, `?` for a mixture.
fn letters(bytes: &[u8]) -> String {
    let letter = |sector: &[u8]| match sector.first() {
        Some(first) if sector.iter().any(|b| b != first) => '?',
        Some(0) | None => '_',
        Some(first) => char::from(*first),
    };
    bytes.chunks(SECTOR).map(letter).collect()
}

/// The content of `d/a` in letters.
fn seen(disk: &SimDisk) -> String {
    letters(&disk.read_file("d/a").unwrap())
}

fn survivor(disk: &SimDisk, chooser: &mut dyn Chooser) -> SimDisk {
    let after = disk.snapshot();
    after.reboot(chooser);
    after
}

/// Every state that a crash now can leave, as `view` shows it, with the number of combinations
/// that lead there.
fn every_crash(disk: &SimDisk, view: impl Fn(&SimDisk) -> String) -> BTreeMap<String, u64> {
    let mut states = BTreeMap::new();
    let mut every = Enumerate::new(10_000);
    loop {
        *states.entry(view(&survivor(disk, &mut every))).or_default() += 1;
        if !every.next_combination() {
            break;
        }
    }
    assert!(every.exhausted());
    assert_eq!(states.values().sum::<u64>(), every.seen());
    assert!(every.seen() <= disk.outcomes());
    states
}

fn keys(states: &BTreeMap<String, u64>) -> Vec<&str> {
    states.keys().map(String::as_str).collect()
}

#[track_caller]
fn assert_errno<T: fmt::Debug>(result: io::Result<T>, errno: i32) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
}

#[track_caller]
fn assert_crash<T: fmt::Debug>(result: io::Result<T>) {
    assert!(SimDisk::is_crash(&result.unwrap_err()));
}
