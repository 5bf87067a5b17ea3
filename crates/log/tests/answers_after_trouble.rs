//! Trouble that is over, or that is elsewhere, changes no answer: after a full disk, a failed
//! open, a drop or damage, a log says what is true and goes on from there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::{
    DropError, Log, Lsn, OpenError, Options, ReadError, Report, SyncError, verify_on,
};

mod common;
use common::mem_fs::MemFs;
use common::{all_records, restamp};

const DIR: &str = "log";
const SEGMENT_BYTES: u64 = 4096;
const IN_A_SEGMENT: u64 = 3;

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(restamp::file_name(number))
}

fn payload(lsn: Lsn) -> Vec<u8> {
    vec![lsn as u8; 100]
}

fn append(log: &Log) -> Lsn {
    let lsn = log.append(payload(log.last_lsn() + 1)).unwrap();
    log.wait_durable(lsn).unwrap();
    lsn
}

/// A log of so many segments, of which all but the last are sealed.
fn segments(fs: &MemFs, count: u64) -> Log {
    let log = options(fs).open(DIR).unwrap();
    for lsn in 1..=count * IN_A_SEGMENT {
        append(&log);
        if lsn % IN_A_SEGMENT == 0 && lsn < count * IN_A_SEGMENT {
            log.seal().unwrap();
        }
    }
    log
}

fn change(fs: &MemFs, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs.get(path(number)).unwrap();
    change(&mut bytes);
    fs.put(path(number), bytes);
}

fn report(fs: &MemFs) -> Report {
    verify_on(fs, DIR.as_ref()).unwrap()
}

#[track_caller]
fn check_records(fs: &MemFs, first: Lsn, last: Lsn) {
    let found = all_records(&options(fs).open_read_only(DIR).unwrap());
    let expected = (first..=last).map(|lsn| (lsn, payload(lsn)));
    assert!(found.into_iter().eq(expected));
}

// --- A full disk -----------------------------------------------------------------------------

/// Appends until there is no room. The record that was last appended waits.
fn fill(fs: &MemFs, log: &Log) -> Lsn {
    fs.set_full(true);
    loop {
        let lsn = log.append(payload(log.last_lsn() + 1)).unwrap();
        match log.wait_durable(lsn) {
            Ok(()) => {}
            Err(SyncError::NoSpace(_)) => return lsn,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn a_drop_makes_room_although_records_wait() {
    let fs = MemFs::new();
    let log = segments(&fs, 3);
    let waiting = fill(&fs, &log);
    assert_eq!(log.drop_before(2 * IN_A_SEGMENT + 1).unwrap(), 2);
    assert_eq!(log.durable_lsn(), waiting - 1);
    fs.set_full(false);
    log.wait_durable(waiting).unwrap();
    log.close().unwrap();
    check_records(&fs, 2 * IN_A_SEGMENT + 1, waiting);
}

/// Where the last frame of a segment begins.
fn written(fs: &MemFs, number: u64) -> usize {
    let frames = restamp::frame_offsets(&fs.get(path(number)).unwrap());
    *frames.last().unwrap()
}

#[test]
fn a_drop_that_failed_drops_nothing() {
    let fs = MemFs::new();
    let log = segments(&fs, 20);
    fs.set_full(true);
    while written(&fs, 20) + 600 < SEGMENT_BYTES as usize {
        append(&log);
    }
    // Each takes a little of the room that is left, until there is none.
    let mut first = 1;
    let refused = loop {
        match log.drop_before(first + IN_A_SEGMENT) {
            Ok(dropped) => assert_eq!(dropped, 1),
            Err(e) => break e,
        }
        first += IN_A_SEGMENT;
    };
    let no_space = matches!(refused, DropError::Sync(SyncError::NoSpace(_)));
    assert!(no_space, "{refused}");
    assert_eq!(log.first_lsn(), first);
    // The next segment says where the log begins.
    fs.set_full(false);
    let last = append(&log);
    assert!(fs.get(path(21)).is_some());
    log.close().unwrap();
    check_records(&fs, first, last);
    let log = options(&fs).open(DIR).unwrap();
    assert_eq!(log.first_lsn(), first);
    assert!(fs.get(path(first / IN_A_SEGMENT + 1)).is_some());
}

// --- Readers and views -----------------------------------------------------------------------

#[test]
fn a_view_that_fell_behind_a_drop_catches_up() {
    let fs = MemFs::new();
    let log = segments(&fs, 2);
    let view = options(&fs).open_read_only(DIR).unwrap();
    for _ in 0..4 {
        append(&log);
        log.seal().unwrap();
    }
    let last = append(&log);
    assert!(log.drop_before(last).unwrap() > 3);
    assert_eq!(view.refresh().unwrap(), last);
    assert_eq!(view.first_lsn(), last);
    assert_eq!(all_records(&view), [(last, payload(last))]);
}

#[test]
fn a_view_survives_a_change_of_the_segment_size() {
    let fs = MemFs::new();
    let log = segments(&fs, 1);
    log.seal().unwrap();
    // The view waits at the next segment, which is prepared, and made anew with another size.
    let view = options(&fs).open_read_only(DIR).unwrap();
    view.refresh().unwrap();
    drop(log);
    let larger = options(&fs).segment_bytes(2 * SEGMENT_BYTES);
    let log = larger.open(DIR).unwrap();
    for _ in 0..3 {
        append(&log);
        assert_eq!(view.refresh().unwrap(), log.last_lsn());
        log.seal().unwrap();
    }
    assert_eq!(all_records(&view).len() as u64, IN_A_SEGMENT + 3);
}

#[test]
fn a_reader_stays_where_it_is_after_an_error() {
    let fs = MemFs::new();
    let log = segments(&fs, 3);
    let mut reader = log.read_from(1).unwrap();
    for lsn in 1..=3 * IN_A_SEGMENT {
        fs.refuse_opens(1);
        let mut tried = 0;
        let found = loop {
            match reader.next_record() {
                Ok(record) => break record.unwrap().lsn,
                Err(ReadError::Io(_)) => tried += 1,
                Err(e) => panic!("{e}"),
            }
        };
        let opens_a_file = lsn % IN_A_SEGMENT == 1;
        assert_eq!((found, tried), (lsn, u32::from(opens_a_file)));
    }
}

#[test]
fn dropped_is_said_as_often_as_asked() {
    let fs = MemFs::new();
    let log = segments(&fs, 4);
    let mut reader = log.read_from(1).unwrap();
    for _ in 0..IN_A_SEGMENT {
        reader.next_record().unwrap().unwrap();
    }
    log.drop_before(10).unwrap();
    for _ in 0..3 {
        match reader.next_record() {
            Err(ReadError::Dropped { lsn, first }) => assert_eq!((lsn, first), (4, 10)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_segments_need_few_open_files() {
    let fs = MemFs::new();
    let log = segments(&fs, 80);
    log.close().unwrap();
    let at_a_time = fs.most_open_files(|| {
        assert!(report(&fs).is_sound());
        check_records(&fs, 1, 80 * IN_A_SEGMENT);
        let log = options(&fs).open(DIR).unwrap();
        let mut reader = log.read_from(1).unwrap();
        while reader.next_record().unwrap().is_some() {}
    });
    assert!(at_a_time < 8, "{at_a_time} files open at a time");
}

// --- Opening ---------------------------------------------------------------------------------

#[test]
fn a_log_closed_behind_a_seal_is_clean() {
    let fs = MemFs::new();
    let log = segments(&fs, 2);
    log.seal().unwrap();
    log.close().unwrap();
    assert!(options(&fs).open(DIR).unwrap().recovery().clean);
}

#[test]
fn a_last_segment_cut_short_is_damage() {
    let fs = MemFs::new();
    let log = segments(&fs, 2);
    let killed = fs.copy();
    log.close().unwrap();
    for fs in [fs, killed] {
        let frames = restamp::frame_offsets(&fs.get(path(2)).unwrap());
        let inside = frames.iter().map(|frame| frame + 8);
        for keep in inside.chain(frames.iter().copied()) {
            let copy = fs.copy();
            change(&copy, 2, |bytes| bytes.truncate(keep));
            let damages = report(&copy).damages;
            let segments: Vec<_> = damages.iter().map(|damage| damage.segment).collect();
            assert_eq!(segments, [2], "cut to {keep}");
            for error in [
                options(&copy).open_read_only(DIR).err(),
                options(&copy).open(DIR).err(),
            ] {
                match error {
                    Some(OpenError::Damage { damage, .. }) => assert_eq!(damage.segment, 2),
                    other => panic!("cut to {keep}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_damaged_header_is_named_at_or_before_the_byte() {
    let fs = MemFs::new();
    segments(&fs, 2).close().unwrap();
    for at in 0..512 {
        let copy = fs.copy();
        change(&copy, 1, |bytes| bytes[at] ^= 4);
        match options(&copy).open(DIR) {
            Err(OpenError::Damage { damage, .. }) => {
                assert!(damage.offset <= at as u64, "byte {at}: {damage}");
            }
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn no_record_is_acknowledged_behind_the_last_segment_number() {
    let widest = 9_999_999_999_999_999;
    for number in [widest / 10 - 1, widest / 10, widest - 1, widest] {
        let fs = MemFs::new();
        segments(&fs, 1).close().unwrap();
        let mut bytes = fs.get(path(1)).unwrap();
        renumber(&mut bytes, number);
        let fs = MemFs::new();
        fs.put(path(number), bytes);
        let mut acknowledged = 0;
        if let Ok(log) = options(&fs).open(DIR) {
            for _ in 0..4 {
                let Ok(lsn) = log.append(b"beyond") else {
                    break;
                };
                if log.wait_durable(lsn).is_err() {
                    break;
                }
                acknowledged = lsn;
                if log.seal().is_err() {
                    break;
                }
            }
        }
        // As after a kill.
        let fs = fs.copy();
        let viewed = options(&fs).open_read_only(DIR).map(|view| view.last_lsn());
        let verified = verify_on(&fs, DIR.as_ref()).map(|report| report.last_lsn);
        let opened = options(&fs).open(DIR).map(|log| log.last_lsn());
        for last in [viewed, verified.map(Option::unwrap_or_default), opened] {
            assert!(last.unwrap() >= acknowledged, "{acknowledged} in {number}");
        }
    }
}

/// Makes segment 1 another one, the oldest of its log.
fn renumber(bytes: &mut [u8], number: u64) {
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    for at in restamp::frame_offsets(bytes) {
        // Start, Opened and Dropped say at their end which segment is the oldest.
        let end = at + 40 + restamp::u32_at(bytes, at + 4) as usize;
        if restamp::u64_at(bytes, end - 8) == 1 {
            bytes[end - 8..end].copy_from_slice(&number.to_le_bytes());
        }
    }
    restamp::segment(bytes, number);
}

// --- Verify ----------------------------------------------------------------------------------

#[test]
fn verify_counts_whole_batches_only() {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).unwrap();
    append(&log);
    let lsns = log.append_batch(&[payload(2), payload(3), payload(4)]);
    log.wait_durable(*lsns.unwrap().end()).unwrap();
    let killed = fs.copy();
    change(&killed, 1, |bytes| {
        let last = *restamp::frame_offsets(bytes).last().unwrap();
        bytes[last + 40] ^= 1;
    });
    let report = report(&killed);
    assert!(report.is_sound() && report.torn.is_some(), "{report:?}");
    assert_eq!((report.records, report.last_lsn), (1, Some(1)));
    check_records(&killed, 1, 1);
}

#[test]
fn verify_blames_the_damaged_segment_only() {
    type Change = fn(&mut Vec<u8>);
    let damages: [(&str, Change); 3] = [
        ("a byte of the header", |bytes| bytes[20] ^= 4),
        ("all frames wiped", |bytes| bytes[512..].fill(0)),
        ("a byte of a record", |bytes| bytes[700] ^= 4),
    ];
    for (what, damage) in damages {
        for number in 1..=3 {
            let fs = MemFs::new();
            segments(&fs, 4).close().unwrap();
            change(&fs, number, damage);
            let damages = report(&fs).damages;
            assert!(!damages.is_empty(), "{what}");
            for damage in damages {
                assert_eq!(damage.segment, number, "{what}: {damage}");
            }
        }
    }
}

#[test]
fn verify_goes_through_a_badly_damaged_segment_once() {
    const RECORDS: usize = 8_000;
    const DAMAGES: usize = 40;
    let fs = MemFs::new();
    let log = options(&fs).segment_bytes(16 << 20).open(DIR).unwrap();
    let lsns = log.append_batch(&vec![[7; 1000]; RECORDS]).unwrap();
    log.wait_durable(*lsns.end()).unwrap();
    log.seal().unwrap();
    append(&log);
    log.close().unwrap();
    change(&fs, 1, |bytes| {
        let frames = restamp::frame_offsets(bytes);
        for frame in frames
            .iter()
            .skip(1)
            .step_by(RECORDS / DAMAGES)
            .take(DAMAGES)
        {
            bytes[frame + 9] ^= 1;
        }
    });
    let before = fs.bytes_read();
    assert_eq!(report(&fs).damages.len(), DAMAGES);
    let read = fs.bytes_read() - before;
    // Around each damage a few chunks are read again.
    let size = fs.get(path(1)).unwrap().len() as u64;
    let limit = 4 * size + (DAMAGES as u64) * (1 << 20);
    assert!(read < limit, "{read} bytes read of {size}");
}
