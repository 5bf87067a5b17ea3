//! A repair that is interrupted, by a power cut or a failing disk, at any of its operations: each
//! byte that there was is in the segment's file or in the copy aside, and running it again comes to
//! the same log as if it had not been interrupted.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use dalsegno_log::fs::Fs;
use dalsegno_log::{Lsn, OpenError, Options, repair_on, verify_on};
use dalsegno_sim::disk::{Enumerate, KeepAll, LoseAll, OpKind, Random, SimDisk, errno};
use dalsegno_sim::rng::Rng;

const DIR: &str = "log";
/// Outcomes of a power cut that are tried, out of all there are.
const OUTCOMES: u64 = 64;
const DAMAGED: [u64; 3] = [1, 4, 5];
const MISSING: u64 = 2;

fn options(disk: &SimDisk) -> Options {
    let options = Options::new().segment_bytes(2048);
    options.without_threads().fs(Arc::new(disk.clone()))
}

fn path(number: u64) -> String {
    format!("{DIR}/{number:016}.seg")
}

/// A log of four segments and a prepared one. A record is damaged in the first and in the last, one
/// segment is missing, one is sound, and the prepared one is cut short.
fn damaged_log() -> SimDisk {
    let disk = SimDisk::new(1);
    let log = options(&disk).open(DIR).unwrap();
    for segment in 1..=4 {
        for _ in 0..4 {
            let lsn = log.append(vec![segment; 200]).unwrap();
            log.wait_durable(lsn).unwrap();
        }
        if segment < 4 {
            log.seal().unwrap();
        }
    }
    log.close().unwrap();
    disk.reboot(&mut KeepAll);
    disk.flip_bit(path(1), 600 + 290, 3).unwrap();
    disk.flip_bit(path(4), 600 + 290, 3).unwrap();
    disk.remove(Path::new(&path(MISSING))).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    let short = disk.read_file(path(5)).unwrap()[..700].to_vec();
    disk.write_raw(path(5), &short).unwrap();
    disk
}

fn read_all(disk: &SimDisk) -> Vec<(Lsn, Vec<u8>)> {
    let log = options(disk).open(DIR).unwrap();
    let mut reader = log.read_from(log.first_lsn()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push((record.lsn, record.payload.to_vec()));
    }
    records
}

/// What is damaged is in its place or aside.
#[track_caller]
fn check_bytes(before: &SimDisk, disk: &SimDisk, what: &str) {
    for number in DAMAGED {
        let was = before.read_file(path(number)).unwrap();
        let aside = format!("damaged-{number:016}-");
        let names = disk.files(DIR);
        let copies = names.iter().filter(|name| name.starts_with(&aside));
        let mut copies = copies.filter_map(|name| disk.read_file(format!("{DIR}/{name}")).ok());
        let in_place = disk.read_file(path(number)).is_ok_and(|bytes| bytes == was);
        assert!(
            in_place || copies.any(|bytes| bytes == was),
            "{what}: the bytes of segment {number} are gone"
        );
    }
}

/// Runs the repair again, to its end, and compares.
#[track_caller]
fn check_again(disk: &SimDisk, repaired: &[(Lsn, Vec<u8>)], what: &str) {
    repair_on(disk, DIR.as_ref()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let report = verify_on(disk, DIR.as_ref()).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.damages);
    assert_eq!(report.lost_records, 6, "{what}");
    assert_eq!(read_all(disk), repaired, "{what}");
}

fn repaired(before: &SimDisk) -> Vec<(Lsn, Vec<u8>)> {
    let disk = before.snapshot();
    repair_on(&disk, DIR.as_ref()).unwrap();
    let records = read_all(&disk);
    // One of four is lost in two segments, and all of the missing one.
    assert_eq!(records.len(), 10);
    records
}

#[test]
fn by_a_power_cut_at_any_operation() {
    let before = damaged_log();
    let repaired = repaired(&before);
    let mut done = false;
    for op in 0.. {
        let disk = before.snapshot();
        disk.crash_at(disk.ops() + op);
        done = repair_on(&disk, DIR.as_ref()).is_ok();
        let mut choices = Enumerate::new(OUTCOMES);
        loop {
            let machine = disk.snapshot();
            machine.reboot(&mut choices);
            let what = format!("power cut at operation {op}");
            check_bytes(&before, &machine, &what);
            if done {
                // What it said it had done survives.
                assert_eq!(repair_on(&machine, DIR.as_ref()).unwrap().actions, []);
            }
            check_again(&machine, &repaired, &what);
            if !choices.next_combination() {
                break;
            }
        }
        if done {
            break;
        }
    }
    assert!(done);
}

#[test]
fn by_a_failure_of_any_operation() {
    let before = damaged_log();
    let repaired = repaired(&before);
    for kind in [
        OpKind::List,
        OpKind::Open,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::SyncDir,
        OpKind::Lock,
        OpKind::Read,
        OpKind::Write,
        OpKind::Sync,
        OpKind::Len,
    ] {
        for nth in 0.. {
            let disk = before.snapshot();
            disk.fail_nth(kind, nth, errno::EIO);
            match repair_on(&disk, DIR.as_ref()) {
                Ok(_) => {
                    assert!(nth > 0, "{kind:?} is never used");
                    break;
                }
                Err(OpenError::Io(_)) => {}
                Err(e) => panic!("{kind:?} {nth}: {e}"),
            }
            disk.heal();
            let what = format!("{kind:?} {nth} failed");
            check_bytes(&before, &disk, &what);
            let again = disk.snapshot();
            check_again(&again, &repaired, &what);
            // A sync that failed, and one that lied: the damage may come back, and nothing else.
            again.reboot(&mut LoseAll);
            check_bytes(&before, &again, &what);
            check_again(
                &again,
                &repaired,
                &format!("{what}, and the power after it"),
            );
            for seed in 0..8 {
                let machine = disk.snapshot();
                machine.reboot(&mut Random::new(Rng::new(seed)));
                check_bytes(&before, &machine, &what);
                check_again(
                    &machine,
                    &repaired,
                    &format!("{what}, then power cut {seed}"),
                );
            }
        }
    }
}
