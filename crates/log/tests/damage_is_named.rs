//! Bytes that have changed are found and named, by segment and offset, and never passed over.
//!
//! Every byte of a small log is changed in turn; then files are lost, cut, exchanged and so on.
//! Whatever is done, reading gives what was appended, or an error that says where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use dalsegno_log::fs::{Fs, FsLock};
use dalsegno_log::{Damage, Log, LogView, Lsn, OpenError, Options, ReadError, verify_on};

mod common;
use common::mem_fs::MemFs;
use common::{Folder, restamp, small_disk};

const DIR: &str = "log";
const SEGMENT_BYTES: u64 = 2048;
const SEGMENTS: u64 = 4;

type Records = Vec<(Lsn, Vec<u8>)>;

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(restamp::file_name(number))
}

fn payload(number: u64) -> Vec<u8> {
    vec![number as u8; 20 + number as usize * 7 % 90]
}

/// A log of several sealed segments and one more, of batches of one to three records.
fn small_log() -> (MemFs, Records) {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).unwrap();
    let mut number = 0;
    for segment in 1..=SEGMENTS {
        for batch in 0..4 {
            let payloads: Vec<_> = (0..=batch % 3).map(|i| payload(number + i)).collect();
            number += payloads.len() as u64;
            let lsns = log.append_batch(&payloads).unwrap();
            log.wait_durable(*lsns.end()).unwrap();
        }
        if segment < SEGMENTS {
            log.seal().unwrap();
        }
    }
    log.close().unwrap();
    let records = (0..number).map(|number| (number + 1, payload(number)));
    (fs, records.collect())
}

/// What came of an attempt to read everything: all records up to the first error.
struct Outcome {
    records: Records,
    damage: Option<Damage>,
}

fn read(mut reader: dalsegno_log::Reader) -> Outcome {
    let mut records = Records::new();
    let damage = loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push((record.lsn, record.payload.to_vec())),
            Ok(None) => break None,
            Err(ReadError::Damage(damage)) => break Some(damage),
            Err(other) => panic!("{other}"),
        }
    };
    Outcome { records, damage }
}

fn refused(error: OpenError) -> Outcome {
    match error {
        OpenError::Damage { damage, .. } => Outcome {
            records: Records::new(),
            damage: Some(damage),
        },
        other => panic!("{other}"),
    }
}

/// Reads all there is: as a view, and as a writer on a copy, which may repair it.
fn read_both_ways(fs: &MemFs) -> [Outcome; 2] {
    let viewed = match options(fs).open_read_only(DIR) {
        Ok(view) => read(view.read_from(view.first_lsn()).unwrap()),
        Err(e) => refused(e),
    };
    let copy = fs.copy();
    let opened = match options(&copy).open(DIR) {
        Ok(log) => read(log.read_from(log.first_lsn()).unwrap()),
        Err(e) => refused(e),
    };
    [viewed, opened]
}

/// Reading gives a part of what was appended up to a named damage, or all of it. `verify` finds
/// something exactly if a reader does, or if what changed is of no record.
#[track_caller]
fn check_nothing_is_passed_over(fs: &MemFs, appended: &Records, what: &str) -> Vec<Damage> {
    let report = verify_on(fs, DIR.as_ref()).unwrap();
    let mut damages = report.damages;
    for outcome in read_both_ways(fs) {
        assert!(appended.starts_with(&outcome.records), "{what}");
        if let Some(damage) = outcome.damage {
            assert!(!damages.is_empty(), "{what}: verify does not see: {damage}");
            damages.push(damage);
        } else {
            assert_eq!(outcome.records.len(), appended.len(), "{what}");
        }
    }
    damages
}

#[test]
fn every_byte_of_a_segment() {
    let (fs, appended) = small_log();
    for number in 1..=SEGMENTS {
        let bytes = fs.get(path(number)).unwrap();
        let frames = restamp::frame_offsets(&bytes);
        let written_until = *frames.last().unwrap() + 40;
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            let copy = fs.copy();
            copy.put(path(number), changed);
            let what = format!("byte {at} of segment {number}");
            let damages = check_nothing_is_passed_over(&copy, &appended, &what);
            let Some(damage) = damages.first() else {
                // Only in the end of a log that was not sealed: it may be a torn write.
                assert!(
                    number == SEGMENTS && at >= *frames.last().unwrap(),
                    "{what}"
                );
                continue;
            };
            assert!(at < written_until || number != SEGMENTS, "{what}: {damage}");
            let begin = frames.iter().rfind(|frame| **frame <= at);
            assert_eq!(damage.segment, number, "{what}: {damage}");
            let named = damage.offset as usize;
            match begin {
                Some(frame) => assert!((*frame..=at).contains(&named), "{what}: {damage}"),
                None => assert!(named < 512, "{what}: {damage}"),
            }
        }
    }
}

#[test]
fn every_byte_of_a_prepared_segment() {
    let (fs, appended) = small_log();
    let log = options(&fs).open(DIR).unwrap();
    log.seal().unwrap();
    // As after a kill: closing would begin the next segment.
    let fs = fs.copy();
    let bytes = fs.get(path(SEGMENTS + 1)).unwrap();
    assert!(bytes[512..].iter().all(|byte| *byte == 0));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let copy = fs.copy();
        copy.put(path(SEGMENTS + 1), changed);
        let what = format!("byte {at} of a prepared segment");
        let damages = check_nothing_is_passed_over(&copy, &appended, &what);
        // Behind the header it is no different from a first write that a crash interrupted.
        assert_eq!(damages.is_empty(), at >= 512, "{what}: {damages:?}");
    }
}

#[test]
fn every_byte_of_a_log_that_was_not_closed() {
    let (fs, _) = small_log();
    let mut appended = Records::new();
    let copy = MemFs::new();
    let log = options(&copy).open(DIR).unwrap();
    for number in 0..5 {
        let lsn = log.append(payload(number)).unwrap();
        log.wait_durable(lsn).unwrap();
        appended.push((lsn, payload(number)));
    }
    drop(fs);
    let killed = copy.copy();
    let bytes = killed.get(path(1)).unwrap();
    let frames = restamp::frame_offsets(&bytes);
    for at in 512..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let copy = killed.copy();
        copy.put(path(1), changed);
        let in_last_group = at >= *frames.last().unwrap();
        for outcome in read_both_ways(&copy) {
            // The last group has none behind it, so it may have been torn by the kill.
            let least = appended.len() - usize::from(in_last_group);
            assert!(appended.starts_with(&outcome.records), "byte {at}");
            let whole = outcome.records.len() >= least;
            assert!(whole || outcome.damage.is_some(), "byte {at}");
            assert!(!in_last_group || outcome.damage.is_none(), "byte {at}");
        }
    }
}

/// Damages a copy of the small log; something is said about segment `named`.
#[track_caller]
fn check_damage(what: &str, named: u64, damage: impl Fn(&MemFs)) {
    let (fs, appended) = small_log();
    damage(&fs);
    let report = verify_on(&fs, DIR.as_ref()).unwrap();
    let said: Vec<u64> = report.damages.iter().map(|damage| damage.segment).collect();
    assert!(said.contains(&named), "{what}: {:?}", report.damages);
    for outcome in read_both_ways(&fs) {
        let damage = outcome.damage.expect(what);
        assert_eq!(damage.segment, named, "{what}: {damage}");
        assert!(appended.starts_with(&outcome.records), "{what}");
    }
}

fn change(fs: &MemFs, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.get(path(number)).unwrap();
    change(&mut bytes);
    fs.put(path(number), bytes);
}

fn exchange(fs: &MemFs, one: u64, other: u64) {
    let (a, b) = (fs.get(path(one)).unwrap(), fs.get(path(other)).unwrap());
    fs.put(path(one), b);
    fs.put(path(other), a);
}

#[test]
fn files_lost_cut_exchanged_or_wiped() {
    check_damage("lost in the middle", 2, |fs| fs.remove(&path(2)).unwrap());
    check_damage("lost at the start", 1, |fs| fs.remove(&path(1)).unwrap());
    check_damage("the two oldest lost", 1, |fs| {
        fs.remove(&path(1)).unwrap();
        fs.remove(&path(2)).unwrap();
    });
    check_damage("cut to half", 2, |fs| {
        change(fs, 2, |bytes| bytes.truncate(bytes.len() / 2));
    });
    check_damage("cut to nothing", 2, |fs| change(fs, 2, Vec::clear));
    check_damage("cut to its header", 2, |fs| {
        change(fs, 2, |bytes| bytes.truncate(512));
    });
    check_damage("exchanged", 2, |fs| exchange(fs, 2, 3));
    check_damage("a copy of another", 3, |fs| {
        fs.put(path(3), fs.get(path(2)).unwrap());
    });
    check_damage("a sector of zeros in the middle", 2, |fs| {
        change(fs, 2, |bytes| bytes[512..1024].fill(0));
    });
    check_damage("the header wiped", 1, |fs| {
        change(fs, 1, |bytes| bytes[..512].fill(0));
    });
    check_damage("of another log", 2, |fs| {
        change(fs, 2, |bytes| {
            bytes[16] ^= 1;
            restamp::segment(bytes, 2);
        });
    });
    check_damage("the seal wiped", 3, |fs| {
        change(fs, 3, |bytes| {
            let seal = *restamp::frame_offsets(bytes).last().unwrap();
            bytes[seal..].fill(0);
        });
    });
    check_damage("a frame written twice", 2, |fs| {
        change(fs, 2, |bytes| {
            let frames = restamp::frame_offsets(bytes);
            let frame = bytes[frames[1]..frames[2]].to_vec();
            bytes.splice(frames[2]..frames[2], frame);
            restamp::segment(bytes, 2);
        });
    });
}

#[test]
fn a_segment_of_another_log_is_told_apart() {
    let folder = Folder::new("damage-other-log");
    let (one, other) = (folder.join("one"), folder.join("other"));
    for dir in [&one, &other] {
        let log = Options::new()
            .segment_bytes(SEGMENT_BYTES)
            .open(dir)
            .unwrap();
        for number in 0..3 {
            let lsn = log.append(payload(number)).unwrap();
            log.wait_durable(lsn).unwrap();
            log.seal().unwrap();
        }
    }
    let name = restamp::file_name(2);
    std::fs::copy(other.join(&name), one.join(&name)).unwrap();
    match Log::open(&one) {
        Err(OpenError::Damage { damage, .. }) => {
            assert_eq!((damage.segment, damage.offset), (2, 16), "{damage}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_newer_version_is_no_damage() {
    for number in 1..=SEGMENTS {
        let (fs, _) = small_log();
        change(&fs, number, |bytes| {
            bytes[8] = 9;
            restamp::header(bytes);
        });
        let check = |error: OpenError| match error {
            OpenError::Version {
                path: named, found, ..
            } => assert_eq!((named, found), (path(number), 9)),
            other => panic!("{other}"),
        };
        check(verify_on(&fs, DIR.as_ref()).unwrap_err());
        check(options(&fs).open_read_only(DIR).unwrap_err());
        check(options(&fs).open(DIR).unwrap_err());
    }
}

#[test]
fn a_folder_without_a_log_is_missing() {
    let folder = Folder::new("damage-no-log");
    std::fs::write(folder.join("notes.txt"), "not a log").unwrap();
    for dir in [folder.path().to_owned(), folder.join("nowhere")] {
        let missing = |error: OpenError| match error {
            OpenError::Missing { dir: named } => assert_eq!(named, dir),
            other => panic!("{other}"),
        };
        missing(LogView::open(&dir).unwrap_err());
        missing(dalsegno_log::verify(&dir).unwrap_err());
    }
    assert!(!folder.join("nowhere").exists());
    // A file is no folder.
    let file = folder.join("notes.txt");
    for error in [
        Log::open(&file).unwrap_err(),
        LogView::open(&file).unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Io(_)), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"not a log");
}

#[test]
fn damage_changes_nothing_on_disk() {
    let (fs, _) = small_log();
    change(&fs, SEGMENTS, |bytes| bytes[600] ^= 1);
    let before: Vec<_> = fs.paths().iter().map(|path| fs.get(path)).collect();
    for _ in 0..3 {
        assert!(options(&fs).open(DIR).is_err());
        // A refused open does not keep the lock.
        let lock: Box<dyn FsLock> = fs.lock(&Path::new(DIR).join("lock"), "").unwrap();
        drop(lock);
    }
    let after: Vec<_> = fs.paths().iter().map(|path| fs.get(path)).collect();
    assert_eq!(before, after);
}

#[test]
#[ignore = "runs on a small disk"]
fn reads_from_a_read_only_disk() {
    let Some(root) = std::env::var_os("SMALL_DISK").map(PathBuf::from) else {
        return;
    };
    let dir = root.join("log");
    let log = Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .open(&dir)
        .unwrap();
    for number in 0..50 {
        log.append(payload(number)).unwrap();
    }
    log.close().unwrap();
    let remounted = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&root)
        .status();
    assert!(remounted.unwrap().success());
    let view = LogView::open(&dir).unwrap();
    assert_eq!(common::all_records(&view).len(), 50);
    assert!(dalsegno_log::verify(&dir).unwrap().is_sound());
    for dir in [dir, root.join("new")] {
        let error = Log::open(&dir).unwrap_err();
        assert!(matches!(&error, OpenError::Io(_)), "{error}");
        assert!(
            error.to_string().contains("Read-only file system"),
            "{error}"
        );
    }
}

#[test]
fn a_read_only_disk_can_be_read() {
    let folder = Folder::new("damage-read-only");
    let mount_point = folder.join("disk");
    std::fs::create_dir(&mount_point).unwrap();
    let output = small_disk::run_on(&mount_point, "4m", "reads_from_a_read_only_disk");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}
