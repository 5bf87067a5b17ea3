//! Who opens a log reads it while it is settled: gets all of it or an error, and never a log that
//! goes on behind its back.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use common::mem_fs::MemFs;
use common::moments::Moments;
use dalsegno_log::fs::Fs;
use dalsegno_log::{FoundRecords, OpenError, Options};

const DIR: &str = "log";
const SEGMENT_BYTES: usize = 64 * 1024;

fn options(fs: impl Fs + 'static) -> Options {
    let options = Options::new().fs(std::sync::Arc::new(fs));
    options.segment_bytes(SEGMENT_BYTES as u64)
}

/// A log as after a kill, with one segment in use and one prepared.
fn killed_log() -> MemFs {
    let fs = MemFs::new();
    let log = options(fs.clone()).open(DIR).unwrap();
    for number in 0..600_u64 {
        let lsn = log.append([number as u8; 60]).unwrap();
        log.wait_durable(lsn).unwrap();
    }
    let killed = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let copy = fs.copy();
        copy.get(segment(2)).is_some().then_some(copy)
    });
    killed.unwrap()
}

fn segment(number: u64) -> String {
    format!("{DIR}/{number:016}.seg")
}

fn read_all(found: &FoundRecords) -> u64 {
    let mut reader = found.read_from(found.first_lsn()).unwrap();
    let mut records = 0;
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(record.payload, [records as u8; 60]);
        records += 1;
    }
    assert_eq!(found.last_lsn(), records);
    records
}

#[test]
fn it_reads_all_there_is() {
    let (log, read) = options(killed_log()).open_reading(DIR, read_all).unwrap();
    assert_eq!((read, log.last_lsn()), (600, 600));
    log.wait_durable(log.append([0; 60]).unwrap()).unwrap();
}

#[test]
fn it_reads_while_the_disk_is_waited_for() {
    let killed = killed_log();
    let mut waited = 0;
    for nth in 1.. {
        let fs = Moments::of(&killed.copy());
        let (tell, told) = mpsc::channel();
        let (is_read, has_waited) = mpsc::channel();
        fs.before_call(nth, move || {
            let settles = std::thread::current().name() == Some("dalsegno-flush");
            if settles {
                // Nothing goes on in that thread until all is read.
                told.recv_timeout(Duration::from_secs(10)).unwrap();
                is_read.send(()).unwrap();
            }
        });
        let opened = options(fs.clone()).open_reading(DIR, |found| {
            let read = read_all(found);
            // Nobody waits for this if it is not in settling that this call comes.
            tell.send(()).unwrap_or_default();
            read
        });
        assert_eq!(opened.unwrap().1, 600);
        if fs.call_off() {
            break;
        }
        waited += has_waited.try_iter().count();
    }
    assert!(waited > 5, "{waited}");
}

#[test]
fn what_breaks_while_it_is_read_is_said_and_lets_go_of_the_log() {
    let killed = killed_log();
    let mut broke = 0;
    for nth in 1.. {
        let copy = killed.copy();
        let fs = Moments::of(&copy);
        let there = fs.clone();
        let opened = catch_unwind(AssertUnwindSafe(|| {
            fs.before_call(nth, || panic!("broken"));
            options(there).open_reading(DIR, |found| found.last_lsn())
        }));
        let came = !fs.call_off();
        assert_eq!(opened.is_err(), came);
        drop(opened);
        let (_, read) = options(copy).open_reading(DIR, read_all).unwrap();
        assert_eq!(read, 600);
        if !came {
            break;
        }
        broke += 1;
    }
    assert!(broke > 20, "{broke}");
}

#[test]
fn who_cannot_read_it_leaves_no_log_behind() {
    let fs = killed_log();
    let opened = catch_unwind(AssertUnwindSafe(|| {
        options(fs.clone()).open_reading(DIR, |_| -> u64 { panic!("cannot read this") })
    }));
    assert!(opened.is_err());
    // It is not locked any more.
    options(fs).open(DIR).unwrap();
}

#[test]
fn a_prepared_segment_with_anything_in_it_is_damage_as_long_as_the_one_before_it_is_not_sealed() {
    for at in [512, 8_000, SEGMENT_BYTES - 1] {
        let fs = killed_log();
        let mut bytes = fs.get(segment(2)).unwrap();
        assert!(bytes[512..].iter().all(|byte| *byte == 0));
        bytes[at] = 1;
        fs.put(segment(2), bytes);
        let before = fs.get(segment(1));
        let opened = options(fs.clone()).open_reading(DIR, |found| found.last_lsn());
        let Err(OpenError::Damage { damage, .. }) = opened else {
            panic!("byte {at}: {opened:?}");
        };
        assert_eq!(damage.segment, 1, "byte {at}: {damage:?}");
        assert_eq!(fs.get(segment(1)), before);
    }
}

#[test]
fn after_a_sealed_one_it_is_a_first_write_that_was_torn() {
    for at in [512, 8_000, SEGMENT_BYTES - 1] {
        let fs = MemFs::new();
        let log = options(fs.clone()).open(DIR).unwrap();
        for number in 0..600_u64 {
            log.append([number as u8; 60]).unwrap();
        }
        log.seal().unwrap();
        let fs = fs.copy();
        let mut bytes = fs.get(segment(2)).unwrap();
        bytes[at] = 1;
        fs.put(segment(2), bytes);
        let (log, read) = options(fs).open_reading(DIR, read_all).unwrap();
        assert_eq!(read, 600);
        let torn = log.recovery().torn.as_ref().unwrap();
        assert_eq!((torn.segment, torn.offset), (2, 512), "byte {at}");
    }
}
