//! Numbers that no log gets to, with right checksums, as if somebody had meant them: a log with
//! such a number is refused, or can be used like any other. If it is refused, a repair makes it
//! usable, or says that it cannot. Nothing overflows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::{OpenError, Options, repair_on, verify_on};

mod common;
use common::mem_fs::MemFs;
use common::restamp;

const DIR: &str = "log";

/// Where a frame's header has its numbers.
const LSN_AT: usize = 8;
const GROUP_AT: usize = 16;
const EPOCH_AT: usize = 24;

/// Where sums and differences go wrong, and around the limits that guard them. Below 2^61 with room
/// for what is appended here: from there on, no log is opened for writing.
const NUMBERS: [u64; 13] = [
    0,
    1,
    u32::MAX as u64,
    (1 << 61) - 1000,
    1 << 61,
    (1 << 62) - 2,
    (1 << 62) - 1,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 2,
    u64::MAX - 1,
    u64::MAX,
];

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(4096);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(restamp::file_name(number))
}

/// A log of three segments, or what is left of it when two have been dropped. Its last segment
/// can be changed.
fn real_log(dropped: bool) -> (MemFs, u64) {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).unwrap();
    for lsn in 1..=9 {
        let appended = log.append(vec![lsn as u8; 100]).unwrap();
        log.wait_durable(appended).unwrap();
        if lsn % 3 == 0 && lsn < 9 {
            log.seal().unwrap();
        }
    }
    if dropped {
        assert_eq!(log.drop_before(7).unwrap(), 2);
    }
    log.close().unwrap();
    (fs, 3)
}

/// A log of one segment.
fn short_log() -> (MemFs, u64) {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).unwrap();
    for lsn in 1..=3 {
        let appended = log.append(vec![lsn as u8; 100]).unwrap();
        log.wait_durable(appended).unwrap();
    }
    log.close().unwrap();
    (fs, 1)
}

/// How a number gets into the frames of a segment.
#[derive(Clone, Copy, Debug)]
enum Forgery {
    /// Into the first frame, behind which there is nothing.
    OfTheFirst,
    /// Into the last frame.
    OfTheLast,
    /// Into the first frame; the others count on from there.
    Counting,
    /// Into every frame.
    OfAll,
}

impl Forgery {
    fn apply(self, bytes: &mut [u8], at: usize, number: u64) {
        let frames = restamp::frame_offsets(bytes);
        let first = restamp::u64_at(bytes, frames[0] + at);
        let mut put = |frame: usize, number: u64| {
            bytes[frame + at..frame + at + 8].copy_from_slice(&number.to_le_bytes());
        };
        match self {
            Forgery::OfTheFirst => {
                put(frames[0], number);
                bytes[frames[1]..].fill(0);
            }
            Forgery::OfTheLast => put(frames[frames.len() - 1], number),
            Forgery::OfAll => frames.iter().for_each(|frame| put(*frame, number)),
            Forgery::Counting => {
                for frame in frames {
                    let place = frame + at;
                    let moved = restamp::u64_at(bytes, place) - first;
                    let number = number.wrapping_add(moved).to_le_bytes();
                    bytes[place..place + 8].copy_from_slice(&number);
                }
            }
        }
    }
}

/// Everything that can be done to a log. What is acknowledged is there when it is opened again.
fn use_log(fs: &MemFs) {
    let report = verify_on(fs, DIR.as_ref()).unwrap();
    if let Ok(view) = options(fs).open_read_only(DIR) {
        let mut next = view.first_lsn();
        assert!(next > 0 && view.last_lsn() >= next - 1);
        if let Ok(mut reader) = view.read_from(next) {
            while let Ok(Some(record)) = reader.next_record() {
                assert_eq!(record.lsn, next);
                next += 1;
            }
        }
        drop(view.refresh());
    }
    let log = match options(fs).open(DIR) {
        Ok(log) => log,
        Err(e) => {
            assert!(!report.is_sound(), "sound, but opening says {e}");
            match repair_on(fs, DIR.as_ref()) {
                Ok(_) => options(fs).open(DIR).expect("what was repaired opens"),
                Err(OpenError::Unrepairable { .. }) => return,
                Err(e) => panic!("repair: {e}"),
            }
        }
    };
    assert!(log.first_lsn() > 0);
    for _ in 0..3 {
        let lsn = log.append(b"new").unwrap();
        log.wait_durable(lsn).unwrap();
        log.seal().unwrap();
    }
    let last = log.last_lsn();
    log.close().unwrap();
    let log = options(fs).open(DIR).expect("what was acknowledged opens");
    assert_eq!(log.last_lsn(), last);
    let mut reader = log.read_from(last).unwrap();
    assert_eq!(reader.next_record().unwrap().unwrap().payload, b"new");
}

#[track_caller]
fn check(at: usize) {
    for (fs, segment) in [real_log(false), real_log(true), short_log()] {
        for forgery in [
            Forgery::OfTheFirst,
            Forgery::OfTheLast,
            Forgery::Counting,
            Forgery::OfAll,
        ] {
            for number in NUMBERS {
                println!("{forgery:?} {number:#x} in segment {segment}");
                let mut bytes = fs.get(path(segment)).unwrap();
                forgery.apply(&mut bytes, at, number);
                restamp::segment(&mut bytes, segment);
                let copy = fs.copy();
                copy.put(path(segment), bytes);
                use_log(&copy);
            }
        }
    }
}

#[test]
fn lsns() {
    check(LSN_AT);
}

#[test]
fn sync_groups() {
    check(GROUP_AT);
}

#[test]
fn epochs() {
    check(EPOCH_AT);
}
