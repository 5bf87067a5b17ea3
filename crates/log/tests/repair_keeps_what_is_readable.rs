//! A repair keeps every record that is readable, says which ones are not, and puts the damaged
//! files aside. Then the log opens, and is sound.
//!
//! Every byte of small logs is changed in turn; then files are lost, cut, exchanged and wiped, and
//! many bytes changed at once. What is readable is told by the file format's tables alone: a record
//! is, if no byte of its frame was changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::fs::Fs;
use dalsegno_log::{Lsn, OpenError, Options, RepairReport, repair_on, verify_on};

mod common;
use common::mem_fs::MemFs;
use common::{Rng, restamp, seed};

const DIR: &str = "log";
const SEGMENT_BYTES: u64 = 2048;

type Records = BTreeMap<Lsn, Vec<u8>>;

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(restamp::file_name(number))
}

fn payload(lsn: Lsn) -> Vec<u8> {
    vec![lsn as u8; 20 + lsn as usize * 7 % 90]
}

/// What was done to a log before it was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Closed,
    Killed,
    Dropped,
    Rewritten,
    RewrittenLast,
}

const ALL_MADE: [Made; 5] = [
    Made::Closed,
    Made::Killed,
    Made::Dropped,
    Made::Rewritten,
    Made::RewrittenLast,
];

/// A log of several sealed segments and, mostly, one more.
fn small_log(made: Made) -> MemFs {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).unwrap();
    for segment in 0..4 {
        for batch in 0..3 {
            let first = log.last_lsn() + 1;
            let more = if segment < 3 { batch % 3 } else { 0 };
            let payloads: Vec<_> = (first..=first + more).map(payload).collect();
            let lsns = log.append_batch(&payloads).unwrap();
            log.wait_durable(*lsns.end()).unwrap();
        }
        if segment < 3 || made == Made::RewrittenLast {
            log.seal().unwrap();
        }
    }
    if made == Made::Dropped {
        log.drop_before(8).unwrap();
        log.wait_durable(log.append(payload(22)).unwrap()).unwrap();
    }
    if matches!(made, Made::Rewritten | Made::RewrittenLast) {
        for info in log.segments().iter().filter(|info| info.sealed) {
            let keep = |lsn: Lsn, _: &[u8]| [1, 2].contains(&(lsn % 4));
            log.rewrite_segment(info.number, keep).unwrap();
        }
    }
    let left = fs.copy();
    if matches!(made, Made::Closed | Made::Rewritten) {
        log.close().unwrap();
        return fs;
    }
    left
}

/// The segments there are.
fn numbers(fs: &MemFs) -> Vec<u64> {
    let paths = fs.paths();
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    names.filter_map(restamp::number_of).collect()
}

/// The records of a segment's bytes, with the range of bytes that each one's frame takes.
fn frames(bytes: &[u8]) -> Vec<(std::ops::Range<usize>, Lsn, Vec<u8>)> {
    let offsets = restamp::frame_offsets(bytes);
    let records = offsets.into_iter().filter(|at| bytes[*at] == 1);
    records
        .map(|at| {
            let length = restamp::u32_at(bytes, at + 4) as usize;
            let end = at + (40 + length).next_multiple_of(8);
            let payload = bytes[at + 40..at + 40 + length].to_vec();
            (at..end, restamp::u64_at(bytes, at + 8), payload)
        })
        .collect()
}

/// The records of `whole` whose frames are as they were in `damaged`.
fn untouched(whole: &MemFs, damaged: &MemFs) -> Records {
    let mut records = Records::new();
    for number in numbers(whole) {
        let before = whole.get(path(number)).unwrap();
        let after = damaged.get(path(number)).unwrap_or_default();
        for (frame, lsn, payload) in frames(&before) {
            if after.get(frame.clone()) == Some(&before[frame]) {
                records.insert(lsn, payload);
            }
        }
    }
    records
}

/// The records, the first LSN, and whether there was a torn tail.
fn read_all(fs: &MemFs) -> (Records, Lsn, bool) {
    let log = options(fs).open(DIR).unwrap();
    let mut reader = log.read_from(log.first_lsn()).unwrap();
    let mut records = Records::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.insert(record.lsn, record.payload.to_vec());
    }
    let recovery = log.recovery();
    (records, recovery.first_lsn, recovery.torn.is_some())
}

/// Repairs a damaged copy of `whole` and looks at it from all sides.
#[track_caller]
fn check(whole: &MemFs, damaged: &MemFs, what: &str) -> RepairReport {
    let appended = untouched(whole, whole);
    let readable = untouched(whole, damaged);
    let before = damaged.copy();
    let report = repair_on(damaged, DIR.as_ref()).unwrap_or_else(|e| panic!("{what}: {e}"));

    // What was put aside is what was there.
    for action in &report.actions {
        let was = before.get(path(action.segment));
        let aside = action.set_aside.as_ref().and_then(|path| damaged.get(path));
        assert_eq!(aside, was, "{what}: {action:?}");
    }
    // It is sound, and says what is lost.
    let verified = verify_on(damaged, DIR.as_ref()).unwrap();
    assert!(verified.is_sound(), "{what}: {:?}", verified.damages);
    let said: Vec<_> = report.actions.iter().flat_map(|a| a.lost.clone()).collect();
    let lost_before = verify_on(whole, DIR.as_ref()).unwrap().lost_records;
    let lost_now = report.lost_records();
    assert_eq!(verified.lost_records, lost_before + lost_now, "{what}");
    let lost = |lsn: &Lsn| said.iter().any(|lsns| lsns.contains(lsn));
    // It is done: a second time there is nothing to do.
    let again = repair_on(damaged, DIR.as_ref()).unwrap();
    assert_eq!(again.actions, [], "{what}");

    // Everything that was readable is there, nothing else, and it can go on.
    let copy = damaged.copy();
    let (records, first, torn) = read_all(&copy);
    for (lsn, payload) in &records {
        assert_eq!(appended.get(lsn), Some(payload), "{what}: LSN {lsn}");
        assert!(
            !lost(lsn),
            "{what}: LSN {lsn} is there, and said to be lost"
        );
    }
    let last = records.keys().last().copied().unwrap_or(0);
    for lsn in readable.keys() {
        // A torn tail goes with all that is behind its first bad byte, as ever.
        let cut = torn && *lsn > last;
        assert!(cut || records.contains_key(lsn), "{what}: LSN {lsn}");
    }
    for lsn in appended.keys() {
        // If the oldest one is missing, nothing tells where it began: the log begins behind it.
        let there = records.contains_key(lsn) || lost(lsn) || *lsn > last || *lsn < first;
        assert!(there, "{what}: nobody says what became of LSN {lsn}");
    }
    goes_on(&copy, what);
    report
}

fn goes_on(fs: &MemFs, what: &str) {
    let log = options(fs).open(DIR).unwrap();
    let lsn = log.append(b"news").unwrap();
    log.wait_durable(lsn).unwrap();
    log.seal().unwrap();
    log.close().unwrap();
    let report = verify_on(fs, DIR.as_ref()).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.damages);
    assert_eq!(report.last_lsn, Some(lsn), "{what}");
}

#[test]
fn a_sound_log_is_not_touched() {
    for made in ALL_MADE {
        let fs = small_log(made);
        let files = |fs: &MemFs| -> Vec<_> {
            let paths = fs.paths().into_iter();
            paths.map(|path| (fs.get(&path), path)).collect()
        };
        let before = files(&fs);
        let report = check(&fs, &fs, &format!("{made:?}"));
        assert_eq!(report.actions, []);
        assert_eq!(files(&fs), before);
    }
}

/// Changes every byte of a log in turn.
#[track_caller]
fn check_every_byte(made: Made) {
    let whole = small_log(made);
    for number in numbers(&whole) {
        let bytes = whole.get(path(number)).unwrap();
        // Unused space is all alike: some of it will do.
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 64;
        let places = (0..bytes.len()).filter(|at| *at < used || at % 29 == 0);
        for at in places {
            let damaged = whole.copy();
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            damaged.put(path(number), changed);
            let what = format!("{made:?}: byte {at} of segment {number}");
            let unsound = !verify_on(&damaged, DIR.as_ref()).unwrap().is_sound();
            let report = check(&whole, &damaged, &what);
            assert_eq!(!report.actions.is_empty(), unsound, "{what}");
            for action in report.actions {
                if action.set_aside.is_none() {
                    // The mark that says which segments were dropped is what was damaged: then
                    // those count as lost.
                    assert!(made == Made::Dropped && action.segment == 1, "{what}");
                    continue;
                }
                // If a prepared segment looks begun, the one before it has to be sealed.
                let spare = bytes[512..].iter().all(|byte| *byte == 0);
                let named = action.segment + u64::from(spare && action.lost.is_empty());
                assert!(named == number || action.segment == number, "{what}");
                // One byte is one frame, at most; a gap stands for two records here.
                let lost: u64 = action.lost.iter().map(|l| l.end() - l.start() + 1).sum();
                assert!(lost <= 2 && action.lost.len() <= 1, "{what}: {action:?}");
            }
        }
    }
}

#[test]
fn every_byte_of_a_log_that_was_closed() {
    check_every_byte(Made::Closed);
}

#[test]
fn every_byte_of_a_log_that_was_killed() {
    check_every_byte(Made::Killed);
}

#[test]
fn every_byte_of_a_log_that_was_dropped_in_part() {
    check_every_byte(Made::Dropped);
}

#[test]
fn every_byte_of_a_log_that_was_rewritten() {
    check_every_byte(Made::Rewritten);
}

#[test]
fn every_byte_of_a_log_that_was_rewritten_to_its_end() {
    check_every_byte(Made::RewrittenLast);
}

fn change(fs: &MemFs, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.get(path(number)).unwrap();
    change(&mut bytes);
    fs.put(path(number), bytes);
}

/// Damages all kinds of logs in the same way.
#[track_caller]
fn check_all(what: &str, damage: impl Fn(&MemFs, &[u64])) {
    for made in ALL_MADE {
        let whole = small_log(made);
        let damaged = whole.copy();
        damage(&damaged, &numbers(&whole));
        check(&whole, &damaged, &format!("{made:?}: {what}"));
    }
}

#[test]
fn files_lost_cut_exchanged_or_wiped() {
    for i in 0..3 {
        check_all("lost", |fs, n| fs.remove(&path(n[i])).unwrap());
        check_all("cut to nothing", |fs, n| change(fs, n[i], Vec::clear));
        check_all("cut to half", |fs, n| {
            change(fs, n[i], |bytes| bytes.truncate(bytes.len() / 2));
        });
        check_all("the header wiped", |fs, n| {
            change(fs, n[i], |bytes| bytes[..512].fill(0));
        });
        check_all("the start wiped", |fs, n| {
            change(fs, n[i], |bytes| bytes[512..576].fill(0));
        });
        check_all("all but the header wiped", |fs, n| {
            change(fs, n[i], |bytes| bytes[512..].fill(0));
        });
        check_all("the seal wiped", |fs, n| {
            change(fs, n[i], |bytes| {
                let seal = *restamp::frame_offsets(bytes).last().unwrap();
                bytes[seal..].fill(0);
            });
        });
        check_all("something behind the end", |fs, n| {
            change(fs, n[i], |bytes| bytes.extend_from_slice(&[7; 100]));
        });
        check_all("bytes of nobody", |fs, n| {
            let bytes = Rng(i as u64).bytes(1500);
            fs.put(path(n[i]), bytes);
        });
    }
    check_all("exchanged", |fs, n| {
        let (a, b) = (fs.get(path(n[0])).unwrap(), fs.get(path(n[1])).unwrap());
        fs.put(path(n[0]), b);
        fs.put(path(n[1]), a);
    });
    check_all("the two oldest lost", |fs, n| {
        fs.remove(&path(n[0])).unwrap();
        fs.remove(&path(n[1])).unwrap();
    });
    check_all("two in the middle lost", |fs, n| {
        fs.remove(&path(n[1])).unwrap();
        fs.remove(&path(n[2])).unwrap();
    });
    check_all("every header damaged", |fs, n| {
        for number in n {
            change(fs, *number, |bytes| bytes[30] ^= 1);
        }
    });
    check_all("every seal and every start wiped", |fs, n| {
        for number in &n[..3] {
            change(fs, *number, |bytes| {
                let seal = *restamp::frame_offsets(bytes).last().unwrap();
                bytes[seal..].fill(0);
                bytes[512..576].fill(0);
            });
        }
    });
}

#[test]
fn many_bytes_at_once() {
    let seed = seed();
    for round in 0..1_000 {
        let mut rng = Rng(seed.wrapping_add(round));
        let whole = small_log(ALL_MADE[rng.below(5) as usize]);
        let damaged = whole.copy();
        let there = numbers(&whole);
        for _ in 0..=rng.below(12) {
            let number = there[rng.below(there.len() as u64) as usize];
            if rng.below(30) == 0 {
                drop(damaged.remove(&path(number)));
            }
            if damaged.get(path(number)).is_some() {
                change(&damaged, number, |bytes| {
                    let at = rng.below(bytes.len() as u64) as usize;
                    let end = (at + 1 + rng.below(40) as usize).min(bytes.len());
                    bytes[at..end].fill(rng.next() as u8);
                });
            }
        }
        if numbers(&damaged).is_empty() {
            continue;
        }
        let what = format!("seed {seed} round {round}");
        match repair_on(&damaged.copy(), DIR.as_ref()) {
            Ok(_) => drop(check(&whole, &damaged, &what)),
            Err(OpenError::Unrepairable { .. }) => {}
            Err(e) => panic!("{what}: {e}"),
        }
    }
}

#[test]
fn what_cannot_be_repaired_is_not_touched() {
    let fs = MemFs::new();
    fs.put(path(1), vec![7; 3000]);
    fs.put(path(2), Vec::new());
    let error = repair_on(&fs, DIR.as_ref()).unwrap_err();
    assert!(matches!(error, OpenError::Unrepairable { .. }), "{error}");
    assert!(
        error.to_string().contains("restore it from a copy"),
        "{error}"
    );
    assert_eq!(fs.get(path(1)), Some(vec![7; 3000]));
    // Of all segments, only the prepared one is left: it knows of no record.
    let fs = small_log(Made::Closed);
    let prepared = *numbers(&fs).last().unwrap();
    assert!(prepared > 1);
    for number in 1..prepared {
        fs.remove(&path(number)).unwrap();
    }
    change(&fs, prepared, |bytes| bytes[512..].fill(0));
    let error = repair_on(&fs, DIR.as_ref()).unwrap_err();
    assert!(matches!(error, OpenError::Unrepairable { .. }), "{error}");
    assert_eq!(numbers(&fs), [prepared]);
    let none = repair_on(&MemFs::new(), DIR.as_ref()).unwrap_err();
    assert!(matches!(none, OpenError::Missing { .. }), "{none}");
}

#[test]
fn a_log_in_use_or_of_a_newer_version_is_not_repaired() {
    let fs = small_log(Made::Closed);
    let log = options(&fs).open(DIR).unwrap();
    let error = repair_on(&fs, DIR.as_ref()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    drop(log);
    change(&fs, 2, |bytes| {
        bytes[8] = 9;
        restamp::header(bytes);
    });
    let error = repair_on(&fs, DIR.as_ref()).unwrap_err();
    assert!(
        matches!(error, OpenError::Version { found: 9, .. }),
        "{error}"
    );
}

#[test]
fn damage_comes_again_and_is_set_aside_again() {
    let fs = small_log(Made::Closed);
    let mut names = Vec::new();
    for _ in 0..3 {
        let whole = fs.copy();
        change(&fs, 2, |bytes| {
            let (frame, ..) = frames(bytes)[0].clone();
            bytes[frame.start] ^= 1;
        });
        let report = check(&whole, &fs, "again");
        names.push(report.actions[0].set_aside.clone().unwrap());
    }
    names.dedup();
    assert_eq!(names.len(), 3);
    // Nothing of it disturbs the log, which can also give the segment up.
    let log = options(&fs).open(DIR).unwrap();
    log.drop_before(log.last_lsn()).unwrap();
    assert!(names.iter().all(|name| fs.get(name).is_some()));
}
