//! A full disk loses nothing: the log says that there is no room, keeps what it was given, and
//! goes on when there is room again, without being opened anew.
//!
//! Each scenario runs in a child process on a real file system of one or two megabytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_log::{AppendError, Log, LogView, Lsn, Options, SyncError, verify};

mod common;
use common::{Folder, Rng, all_records, small_disk};

const SEGMENT_BYTES: u64 = 64 * 1024;

fn options() -> Options {
    Options::new().segment_bytes(SEGMENT_BYTES)
}

fn payload(number: u64) -> Vec<u8> {
    let mut rng = Rng(number);
    let mut payload = number.to_le_bytes().to_vec();
    let bytes = rng.below(6000) as usize;
    payload.extend(rng.bytes(bytes));
    payload
}

struct Disk {
    dir: PathBuf,
    ballast: PathBuf,
}

impl Disk {
    /// The disk that this process was given, with something on it that can be removed.
    fn with_ballast(bytes: usize) -> Option<Disk> {
        let root = PathBuf::from(std::env::var_os("SMALL_DISK")?);
        let ballast = root.join("ballast");
        std::fs::write(&ballast, vec![1; bytes]).unwrap();
        let dir = root.join("log");
        Some(Disk { dir, ballast })
    }

    fn free(&self) {
        std::fs::remove_file(&self.ballast).unwrap();
    }

    /// Nothing is left, not a byte.
    fn fill_up(&self) {
        use std::io::Write;
        let path = self.dir.with_file_name("filler");
        let mut file = std::fs::File::create(path).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
        drop(file.sync_all());
    }
}

/// Appends the records from `number` on until there is no room. The last one was not acknowledged.
fn append_until_full(log: &Log, mut number: u64) -> u64 {
    loop {
        let lsn = match log.append(payload(number)) {
            Ok(lsn) => lsn,
            Err(AppendError::NoSpace(_)) => return number - 1,
            Err(e) => panic!("{e}"),
        };
        assert_eq!(lsn, number);
        match log.wait_durable(lsn) {
            Ok(()) => number += 1,
            Err(SyncError::NoSpace(_)) => return number,
            Err(e) => panic!("{e}"),
        }
    }
}

#[track_caller]
fn check_records(records: &[(Lsn, Vec<u8>)], first: Lsn, last: Lsn) {
    assert_eq!(records.len() as u64, last + 1 - first);
    for (lsn, found) in records {
        assert!(*found == payload(*lsn), "LSN {lsn}");
    }
}

#[track_caller]
fn check_on_disk(dir: &Path, first: Lsn, last: Lsn) {
    let report = verify(dir).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    let view = LogView::open(dir).unwrap();
    assert_eq!(view.first_lsn(), first);
    check_records(&all_records(&view), first, last);
}

#[test]
#[ignore = "runs on a small disk"]
fn goes_on_when_there_is_room_again() {
    let Some(disk) = Disk::with_ballast(400 * 1024) else {
        return;
    };
    let log = options().open(&disk.dir).unwrap();
    let last = append_until_full(&log, 1);
    assert_eq!(log.durable_lsn(), last - 1);
    check_on_disk(&disk.dir, 1, last - 1);
    // More can be appended, until the buffer is full too.
    let waiting = append_until_buffer_is_full(&log, last + 1);
    // One group that found no room, and the next one.
    assert!(log.lag().bytes <= 2 * SEGMENT_BYTES, "{:?}", log.lag());
    for _ in 0..3 {
        let waited = log.wait_durable(waiting);
        assert!(matches!(waited, Err(SyncError::NoSpace(_))), "{waited:?}");
    }
    assert_eq!(log.durable_lsn(), last - 1);
    disk.free();
    log.wait_durable(waiting).unwrap();
    check_on_disk(&disk.dir, 1, waiting);
    let last = append_until_full(&log, waiting + 1);
    assert!(last > waiting + 10, "room for more than {last} records");
    check_on_disk(&disk.dir, 1, last - 1);
}

/// Without waiting for any of them. Returns the last one that was taken.
fn append_until_buffer_is_full(log: &Log, mut number: u64) -> u64 {
    loop {
        match log.append(payload(number)) {
            Ok(lsn) => assert_eq!(lsn, number),
            Err(AppendError::NoSpace(_)) => return number - 1,
            Err(e) => panic!("{e}"),
        }
        number += 1;
    }
}

#[test]
#[ignore = "runs on a small disk"]
fn opens_and_closes_on_a_full_disk() {
    let Some(disk) = Disk::with_ballast(400 * 1024) else {
        return;
    };
    let log = options().open(&disk.dir).unwrap();
    let last = append_until_full(&log, 1);
    // There is no room for the last one, and closing says so.
    assert!(matches!(log.close(), Err(SyncError::NoSpace(_))));
    // It is still open, to be closed when there is room; who cannot wait drops it.
    drop(log);
    disk.fill_up();
    check_on_disk(&disk.dir, 1, last - 1);
    let log = options().open(&disk.dir).unwrap();
    assert_eq!(log.last_lsn(), last - 1);
    log.close().unwrap();
    let log = options().open(&disk.dir).unwrap();
    assert_eq!(append_until_full(&log, last), last);
    disk.free();
    log.wait_durable(last).unwrap();
    log.close().unwrap();
    check_on_disk(&disk.dir, 1, last);
}

#[test]
#[ignore = "runs on a small disk"]
fn drops_to_make_room() {
    let Some(disk) = Disk::with_ballast(1) else {
        return;
    };
    let log = options().open(&disk.dir).unwrap();
    let mut last = append_until_full(&log, 1);
    disk.fill_up();
    for _ in 0..20 {
        let half = log.first_lsn().midpoint(last);
        assert!(log.drop_before(half).unwrap() > 0);
        let first = log.first_lsn();
        log.wait_durable(last).unwrap();
        check_on_disk(&disk.dir, first, last);
        last = append_until_full(&log, last + 1);
        check_on_disk(&disk.dir, first, last - 1);
    }
}

#[test]
#[ignore = "runs on a small disk"]
fn many_threads_meet_a_full_disk() {
    let Some(disk) = Disk::with_ballast(400 * 1024) else {
        return;
    };
    let log = options().open(&disk.dir).unwrap();
    let acknowledged = Mutex::new(Vec::new());
    let times_full = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (log, acknowledged, times_full) = (&log, &acknowledged, &times_full);
            let disk = &disk;
            scope.spawn(move || {
                for count in 0..60 {
                    let payload = payload(thread << 32 | count);
                    let lsn = loop {
                        match log.append(&payload) {
                            Ok(lsn) => break lsn,
                            Err(AppendError::NoSpace(_)) => {}
                            Err(e) => panic!("{e}"),
                        }
                    };
                    while let Err(e) = log.wait_durable(lsn) {
                        assert!(matches!(e, SyncError::NoSpace(_)), "{e}");
                        if times_full.fetch_add(1, Ordering::Relaxed) == 20 {
                            disk.free();
                        }
                    }
                    acknowledged.lock().unwrap().push((lsn, payload));
                }
            });
        }
    });
    log.close().unwrap();
    let mut acknowledged = acknowledged.into_inner().unwrap();
    acknowledged.sort();
    assert!(times_full.into_inner() > 20, "it never was full");
    assert!(all_records(&LogView::open(&disk.dir).unwrap()) == acknowledged);
    let report = verify(&disk.dir).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
}

#[track_caller]
fn check_on_a_small_disk(size: &str, scenario: &str) {
    let folder = Folder::new("full-disk");
    let mount_point = folder.join("disk");
    std::fs::create_dir(&mount_point).unwrap();
    let output = small_disk::run_on(&mount_point, size, scenario);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

#[test]
fn a_full_disk_can_be_waited_out() {
    check_on_a_small_disk("1m", "goes_on_when_there_is_room_again");
}

#[test]
fn a_full_disk_does_not_keep_a_log_closed() {
    check_on_a_small_disk("1m", "opens_and_closes_on_a_full_disk");
}

#[test]
fn dropping_makes_room_on_a_full_disk() {
    check_on_a_small_disk("1m", "drops_to_make_room");
}

#[test]
fn a_full_disk_is_met_by_many_threads() {
    check_on_a_small_disk("1m", "many_threads_meet_a_full_disk");
}
