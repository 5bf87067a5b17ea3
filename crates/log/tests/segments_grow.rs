//! The first segments of a log may be smaller: each is twice as large as the one before it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use dalsegno_log::{Log, LogView, Options};

mod common;
use common::Folder;

const FIRST: u64 = 2 << 10;
const LARGEST: u64 = 16 << 10;

fn options() -> Options {
    let sizes = Options::new().segment_bytes(LARGEST);
    sizes.first_segment_bytes(FIRST).without_threads()
}

/// How large the file of a segment is.
fn bytes(dir: &Path, number: u64) -> u64 {
    let file = dir.join(format!("{number:016}.seg"));
    file.metadata().unwrap().len()
}

fn append(log: &Log, bytes: usize) {
    let lsn = log.append(vec![7; bytes]).unwrap();
    log.wait_durable(lsn).unwrap();
}

/// How many records there are to be read.
fn records(dir: &Path) -> usize {
    let view = LogView::open(dir).unwrap();
    let mut reader = view.read_from(1).unwrap();
    std::iter::from_fn(|| reader.next_record().unwrap().map(drop)).count()
}

#[test]
fn each_is_twice_as_large_until_all_are_alike() {
    let folder = Folder::new("grow");
    let log = options().open(folder.path()).unwrap();
    let mut sizes = Vec::new();
    for number in 1..=6 {
        append(&log, 100);
        sizes.push(bytes(folder.path(), number));
        log.seal().unwrap();
    }
    assert_eq!(sizes, [FIRST, 4 << 10, 8 << 10, LARGEST, LARGEST, LARGEST]);
    drop(log);
    assert_eq!(records(folder.path()), 6);
}

#[test]
fn what_is_larger_than_the_next_one_gets_a_full_one() {
    let folder = Folder::new("grow");
    let log = options().open(folder.path()).unwrap();
    append(&log, 100);
    append(&log, 12 << 10);
    assert_eq!(bytes(folder.path(), 2), LARGEST);
    append(&log, 12 << 10);
    drop(log);
    assert_eq!(records(folder.path()), 3);
}

#[test]
fn one_that_was_prepared_and_is_too_small_is_made_anew() {
    let folder = Folder::new("grow");
    let log = options().open(folder.path()).unwrap();
    append(&log, 100);
    // The next one is prepared, of 4 KiB, when half of the first is used.
    append(&log, 600);
    assert_eq!(bytes(folder.path(), 2), 4 << 10);
    append(&log, 12 << 10);
    assert_eq!(bytes(folder.path(), 2), LARGEST);
    drop(log);
    let log = options().open(folder.path()).unwrap();
    append(&log, 100);
    drop(log);
    assert_eq!(records(folder.path()), 4);
}

#[test]
fn who_opens_it_with_other_sizes_goes_on() {
    let folder = Folder::new("grow");
    for turn in 0..6 {
        let options = match turn % 2 {
            0 => options(),
            _ => Options::new().segment_bytes(LARGEST).without_threads(),
        };
        let log = options.open(folder.path()).unwrap();
        append(&log, 1100);
        append(&log, 1100);
    }
    assert_eq!(records(folder.path()), 12);
}
