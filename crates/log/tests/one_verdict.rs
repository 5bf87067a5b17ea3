//! Opening, `verify` and `repair` judge the same bytes in the same way: what opening accepts, torn
//! tail or not, is sound and needs no repair; what it refuses is unsound, and can be repaired.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::{Log, Lsn, Options, repair_on, verify_on};

mod common;
use common::mem_fs::MemFs;
use common::{Rng, restamp, seed};

const DIR: &str = "log";
const HEADER_BYTES: usize = 512;

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(4096);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn path() -> PathBuf {
    Path::new(DIR).join(restamp::file_name(1))
}

/// A log of one segment, all of which opening reads. Its last group is a batch of three; it ends
/// there, as a power cut would leave it, or was closed or sealed.
fn one_segment(end: impl FnOnce(&Log)) -> MemFs {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).unwrap();
    log.wait_durable(log.append([1; 45]).unwrap()).unwrap();
    let batch = log.append_batch(&[[2; 33], [3; 33], [4; 33]]).unwrap();
    log.wait_durable(*batch.end()).unwrap();
    end(&log);
    fs.copy()
}

fn change(fs: &MemFs, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.get(path()).unwrap();
    change(&mut bytes);
    fs.put(path(), bytes);
}

/// What is in the log, and whether a torn tail was cut off.
fn read(fs: &MemFs) -> (Vec<Lsn>, bool) {
    let log = options(fs).open(DIR).unwrap();
    let mut reader = log.read_from(log.first_lsn()).unwrap();
    let mut lsns = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        assert!(record.payload.iter().all(|byte| *byte as Lsn == record.lsn));
        lsns.push(record.lsn);
    }
    (lsns, log.recovery().torn.is_some())
}

/// Whether the log is accepted as it is; all three have to say so, or none.
#[track_caller]
fn accepted(fs: &MemFs, what: &str) -> bool {
    let report = verify_on(fs, DIR.as_ref()).unwrap();
    let repaired = fs.copy();
    let actions = repair_on(&repaired, DIR.as_ref()).unwrap().actions;
    let opened = options(&fs.copy()).open(DIR);
    let torn = opened
        .as_ref()
        .ok()
        .map(|log| log.recovery().torn.is_some());
    assert_eq!(torn.is_some(), report.is_sound(), "{what}: {report:?}");
    assert_eq!(torn.is_some(), actions.is_empty(), "{what}: {actions:?}");
    if let Some(torn) = torn {
        assert_eq!(torn, report.torn.is_some(), "{what}");
    }
    read(&repaired);
    torn.is_some()
}

#[test]
fn whatever_bytes_were_changed() {
    let seed = seed();
    let logs = [
        one_segment(|_| ()),
        one_segment(|log| log.close().unwrap()),
        one_segment(|log| log.seal().unwrap()),
    ];
    let (mut yes, mut no) = (0, 0);
    for round in 0..3_000 {
        let mut rng = Rng(seed.wrapping_add(round));
        let fs = logs[rng.below(3) as usize].copy();
        let mut changed = Vec::new();
        change(&fs, |bytes| {
            let used = restamp::frame_offsets(bytes).last().unwrap() + 100;
            for _ in 0..=rng.below(4) {
                let most = used.min(bytes.len()) - HEADER_BYTES;
                let at = HEADER_BYTES + rng.below(most as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
                changed.push(at);
            }
        });
        let what = format!("seed {seed} round {round}: {changed:?}");
        match accepted(&fs, &what) {
            true => yes += 1,
            false => no += 1,
        }
    }
    assert!(yes > 300 && no > 300, "{yes} accepted, {no} not");
}

#[test]
fn a_frame_in_the_last_group_whose_padding_was_changed() {
    let fs = one_segment(|_| ());
    change(&fs, |bytes| {
        let frames = restamp::frame_offsets(bytes);
        let (first, second) = (frames[frames.len() - 3], frames[frames.len() - 2]);
        bytes[first + 40] ^= 1;
        bytes[second + 40 + 33] ^= 1;
    });
    assert!(accepted(&fs, "padding"));
    assert_eq!(read(&fs), (vec![1], true));
}

/// No crash makes the file of a segment in use shorter, so what is left of its last batch may have
/// been acknowledged. It is kept, though its end is missing; what may have followed is not known.
#[test]
fn what_is_left_of_a_last_batch_that_was_cut_off() {
    let fs = one_segment(|_| ());
    change(&fs, |bytes| {
        let last = *restamp::frame_offsets(bytes).last().unwrap();
        bytes.truncate(last + 50);
    });
    assert!(!accepted(&fs, "cut short"));
    let report = repair_on(&fs, DIR.as_ref()).unwrap();
    let action = &report.actions[0];
    assert!(action.damage.expected.contains("bytes left"), "{action:?}");
    assert_eq!((&action.lost, action.torn), (&vec![], false));
    assert_eq!(read(&fs), (vec![1, 2, 3], false));
}
