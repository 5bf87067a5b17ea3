//! The bound is held: what is not durable was appended within the bound, however slow the disk.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use dalsegno_log::fs::{Fs, FsFile, FsLock, LockError, OpenMode};
use dalsegno_log::{Log, Options};
use dalsegno_sim::disk::SimDisk;

/// A disk whose syncs can be made to hang.
#[derive(Clone, Debug)]
struct SlowDisk {
    disk: SimDisk,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl SlowDisk {
    fn new() -> SlowDisk {
        SlowDisk {
            disk: SimDisk::new(1),
            gate: Arc::default(),
        }
    }

    fn hang(&self, on: bool) {
        *self.gate.0.lock().unwrap() = on;
        self.gate.1.notify_all();
    }
}

#[derive(Debug)]
struct SlowFile(Box<dyn FsFile>, Arc<(Mutex<bool>, Condvar)>);

impl Fs for SlowDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn FsFile>> {
        let file = self.disk.open(path, mode)?;
        Ok(Box::new(SlowFile(file, Arc::clone(&self.gate))))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &Path, owner: &str) -> Result<Box<dyn FsLock>, LockError> {
        self.disk.lock(path, owner)
    }
    fn unique(&self) -> u64 {
        self.disk.unique()
    }
}

impl FsFile for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }
    fn sync(&self) -> io::Result<()> {
        let (hanging, changed) = &*self.1;
        drop(
            changed
                .wait_while(hanging.lock().unwrap(), |hanging| *hanging)
                .unwrap(),
        );
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
}

fn open(disk: &SlowDisk, bound: Duration) -> Log {
    // So large that only the bound can hold appends back, never a full buffer.
    Options::new()
        .segment_bytes(256 << 20)
        .buffer_bytes(256 << 20)
        .bounded(bound)
        .fs(Arc::new(disk.clone()))
        .open("log")
        .unwrap()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < patience, "never happened: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn records_become_durable_although_nobody_waits() {
    let disk = SlowDisk::new();
    let log = open(&disk, Duration::from_millis(20));
    for _ in 0..3 {
        let lsn = log.append(b"unattended").unwrap();
        wait_until("a background sync", || log.durable_lsn() >= lsn);
        wait_until("no lag", || log.lag().age.is_none());
    }
    assert_eq!(log.lag().records, 0);
}

#[test]
fn a_disk_that_hangs_holds_appends_back_within_the_bound() {
    let bound = Duration::from_millis(80);
    let disk = SlowDisk::new();
    let log = open(&disk, bound);
    log.wait_durable(log.append(b"before").unwrap()).unwrap();
    disk.hang(true);

    let first_accepted = {
        log.append(b"first that is not durable").unwrap();
        Instant::now()
    };
    let appender = {
        let log = log.clone();
        std::thread::spawn(move || {
            // When the last append was asked for that was accepted while the disk hung.
            let mut last_asked = Instant::now();
            while log.durable_lsn() == 1 {
                let asked = Instant::now();
                log.append(b"more").unwrap();
                if log.durable_lsn() == 1 {
                    last_asked = asked;
                }
            }
            last_asked
        })
    };
    // Long past the bound, records wait, and the log says so.
    wait_until("a lag over twice the bound", || {
        log.lag().age.is_some_and(|age| age > 2 * bound)
    });
    let stuck = log.last_lsn();
    assert!(log.lag().records > 0 && log.lag().bytes > 0);
    wait_until("a lag over three times the bound", || {
        log.lag().age.is_some_and(|age| age > 3 * bound)
    });
    assert_eq!(log.last_lsn(), stuck, "appends went on past the bound");

    disk.hang(false);
    let last_asked = appender.join().unwrap();
    let window = last_asked.saturating_duration_since(first_accepted);
    assert!(window < bound, "{window:?} of appends were not durable");
    wait_until("everything durable", || log.durable_lsn() == log.last_lsn());
}
