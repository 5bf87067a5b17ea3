//! Retention: a sealed segment is replaced by one without the records that are no longer wanted.
//! All others stay, under their LSNs, for everybody who reads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::{
    Log, Lsn, Options, ReadError, Reader, RewriteError, SegmentInfo, SegmentReader, verify_on,
};

mod common;
use common::mem_fs::MemFs;
use common::{Rng, restamp, seed};

const DIR: &str = "log";

type Records = Vec<(Lsn, Vec<u8>)>;

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(4096);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn open(fs: &MemFs) -> Log {
    options(fs).open(DIR).unwrap()
}

fn path(number: u64) -> PathBuf {
    Path::new(DIR).join(restamp::file_name(number))
}

fn payload(lsn: Lsn) -> Vec<u8> {
    vec![lsn as u8; lsn as usize * 37 % 300]
}

/// Appends `batches` of one to three records each, and seals.
fn fill(log: &Log, batches: u64) {
    for batch in 0..batches {
        let first = log.last_lsn() + 1;
        let records: Vec<_> = (first..=first + batch % 3).map(payload).collect();
        let lsns = log.append_batch(&records).unwrap();
        log.wait_durable(*lsns.end()).unwrap();
    }
    log.seal().unwrap();
}

/// Three sealed segments, and a log that is open behind them.
fn three_segments(fs: &MemFs) -> Log {
    let log = open(fs);
    for _ in 0..3 {
        fill(&log, 5);
    }
    log
}

fn collect(mut reader: Reader) -> Records {
    let mut records = Records::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push((record.lsn, record.payload.to_vec()));
    }
    records
}

fn all(log: &Log) -> Records {
    collect(log.read_from(log.first_lsn()).unwrap())
}

fn wanted(last: Lsn, keep: impl Fn(Lsn) -> bool) -> Records {
    let lsns = (1..=last).filter(|lsn| keep(*lsn));
    lsns.map(|lsn| (lsn, payload(lsn))).collect()
}

fn rewrite_all(log: &Log, keep: impl Fn(Lsn) -> bool) {
    for info in log.segments().iter().filter(|info| info.sealed) {
        log.rewrite_segment(info.number, |lsn, _| keep(lsn))
            .unwrap();
    }
}

/// Rewrites all sealed segments and looks at the result in every way there is.
#[track_caller]
fn check(what: &str, keep: impl Fn(Lsn) -> bool + Copy) {
    let fs = MemFs::new();
    let log = three_segments(&fs);
    let last = log.last_lsn();
    rewrite_all(&log, keep);
    let expected = wanted(last, keep);
    assert_eq!(all(&log), expected, "{what}: the log that rewrote");
    check_every_way(&fs, last, &expected, what);
    // And the log goes on.
    let lsn = log.append(b"news").unwrap();
    assert_eq!(lsn, last + 1, "{what}");
    log.wait_durable(lsn).unwrap();
    log.close().unwrap();
    let log = open(&fs);
    assert_eq!(log.recovery().last_lsn, last + 1, "{what}");
    assert!(
        log.recovery().torn.is_none() && log.recovery().clean,
        "{what}"
    );
    let news = vec![(last + 1, b"news".to_vec())];
    assert_eq!(all(&log), [expected, news].concat(), "{what}: reopened");
}

fn check_every_way(fs: &MemFs, last: Lsn, expected: &Records, what: &str) {
    let report = verify_on(fs, DIR.as_ref()).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.damages);
    assert_eq!(report.records, expected.len() as u64, "{what}");
    assert_eq!(report.removed_records, last - report.records, "{what}");
    assert_eq!((report.lost_records, report.lost.len()), (0, 0), "{what}");
    // Beside the writer, and as the writer that a kill interrupted.
    let view = options(fs).open_read_only(DIR).unwrap();
    assert_eq!(view.last_lsn(), last, "{what}");
    let viewed = collect(view.read_from(view.first_lsn()).unwrap());
    assert_eq!(&viewed, expected, "{what}: a view");
    let copy = fs.copy();
    let log = open(&copy);
    assert_eq!(log.recovery().last_lsn, last, "{what}");
    assert_eq!(&all(&log), expected, "{what}: reopened after a kill");
    for from in 1..=last + 1 {
        let rest = expected.iter().filter(|(lsn, _)| *lsn >= from);
        let rest: Records = rest.cloned().collect();
        let read = collect(log.read_from(from).unwrap());
        assert_eq!(read, rest, "{what}: read from {from}");
    }
}

#[test]
fn whatever_is_removed_the_rest_is_there() {
    check("everything", |_| true);
    check("nothing", |_| false);
    check("every other", |lsn| lsn % 2 == 0);
    check("every fourth", |lsn| lsn % 4 == 0);
    check("the first ones", |lsn| lsn < 7);
    check("the last ones", |lsn| lsn > 20);
    check("the ends", |lsn| lsn == 1 || lsn == 27);
    check("the middle segment removed", |lsn| {
        !(10..=18).contains(&lsn)
    });
}

#[test]
fn any_choice_and_any_number_of_times() {
    let seed = seed();
    for round in 0..200 {
        let mut rng = Rng(seed.wrapping_add(round));
        let fs = MemFs::new();
        let log = three_segments(&fs);
        let last = log.last_lsn();
        let mut there = vec![true; last as usize + 1];
        for _ in 0..rng.below(5) {
            let number = rng.below(3) + 1;
            let per_cent = rng.below(101);
            let mut asked = Vec::new();
            let done = log.rewrite_segment(number, |lsn, bytes| {
                assert!(there[lsn as usize] && bytes == payload(lsn));
                asked.push((lsn, rng.below(100) >= per_cent));
                asked.last().unwrap().1
            });
            let done = done.unwrap();
            for (lsn, kept) in &asked {
                there[*lsn as usize] = *kept;
            }
            let kept = asked.iter().filter(|(_, kept)| *kept).count() as u64;
            assert_eq!(done.records_kept, kept);
            assert_eq!(done.records_removed, asked.len() as u64 - kept);
            let bytes = fs.get(path(number)).unwrap().len() as u64;
            assert_eq!(done.bytes_after, bytes);
        }
        let expected = wanted(last, |lsn| there[lsn as usize]);
        check_every_way(&fs, last, &expected, &format!("seed {seed} round {round}"));
    }
}

#[test]
fn removing_records_frees_space_and_neighbours_share_a_gap() {
    let fs = MemFs::new();
    let log = three_segments(&fs);
    let done = log.rewrite_segment(2, |_, _| false).unwrap();
    assert_eq!((done.records_kept, done.records_removed), (0, 9));
    assert!(done.bytes_after < 800, "{done:?}");
    assert!(done.bytes_after < done.bytes_before, "{done:?}");
    let bytes = fs.get(path(2)).unwrap();
    // A start, a gap, a seal.
    assert_eq!(restamp::frame_offsets(&bytes).len(), 3);
    // Nothing left to remove: the file stays as it is.
    let again = log.rewrite_segment(2, |_, _| false).unwrap();
    assert_eq!(
        (again.records_removed, again.bytes_after),
        (0, done.bytes_after)
    );
    assert_eq!(fs.get(path(2)).unwrap(), bytes);
    // Nor is it touched if all are to be kept.
    let bytes = fs.get(path(1)).unwrap();
    let kept = log.rewrite_segment(1, |_, _| true).unwrap();
    assert_eq!(
        (kept.records_kept, kept.bytes_after),
        (9, kept.bytes_before)
    );
    assert_eq!(fs.get(path(1)).unwrap(), bytes);
}

#[test]
fn only_sealed_segments_of_an_open_log() {
    let fs = MemFs::new();
    let log = three_segments(&fs);
    let refused = |number| log.rewrite_segment(number, |_, _| false).unwrap_err();
    assert!(matches!(refused(4), RewriteError::NoSegment { number: 4 }));
    log.wait_durable(log.append(b"news").unwrap()).unwrap();
    assert!(matches!(refused(4), RewriteError::NotSealed { number: 4 }));
    log.drop_before(10).unwrap();
    assert!(matches!(refused(1), RewriteError::NoSegment { number: 1 }));
    let clone = log.clone();
    log.close().unwrap();
    let closed = clone.rewrite_segment(2, |_, _| false).unwrap_err();
    assert!(matches!(closed, RewriteError::Closed), "{closed}");
}

#[test]
fn a_damaged_segment_is_left_alone() {
    for at in [20, 600, 1000] {
        let fs = MemFs::new();
        let log = three_segments(&fs);
        let mut bytes = fs.get(path(2)).unwrap();
        bytes[at] ^= 4;
        fs.put(path(2), bytes.clone());
        let error = log.rewrite_segment(2, |_, _| false).unwrap_err();
        match error {
            RewriteError::Damage(damage) => assert_eq!(damage.segment, 2),
            other => panic!("{other}"),
        }
        assert_eq!(fs.get(path(2)).unwrap(), bytes);
    }
}

#[test]
fn who_reads_the_old_file_finishes_it() {
    let fs = MemFs::new();
    let log = three_segments(&fs);
    let last = log.last_lsn();
    let view = options(&fs).open_read_only(DIR).unwrap();
    let mut readers = [log.read_from(1).unwrap(), view.read_from(1).unwrap()];
    for reader in &mut readers {
        reader.next_record().unwrap();
    }
    rewrite_all(&log, |_| false);
    for reader in readers {
        // The rest of the first segment from the old file, the others from the new ones.
        let read: Vec<Lsn> = collect(reader).iter().map(|(lsn, _)| *lsn).collect();
        assert_eq!(read, (2..=9).collect::<Vec<_>>());
    }
    assert_eq!(view.refresh().unwrap(), last);
    assert!(collect(view.read_from(1).unwrap()).is_empty());
}

#[test]
fn a_follower_waits_behind_a_gap_at_the_end() {
    let fs = MemFs::new();
    let log = Options::new().fs(Arc::new(fs)).open(DIR).unwrap();
    fill(&log, 5);
    rewrite_all(&log, |lsn| lsn < 4);
    let mut follower = log.follow(3).unwrap();
    assert_eq!(follower.next_blocking().unwrap().unwrap().lsn, 3);
    let writer = std::thread::spawn({
        let log = log.clone();
        move || log.wait_durable(log.append(b"news").unwrap()).unwrap()
    });
    let record = follower.next_blocking().unwrap().unwrap();
    assert_eq!((record.lsn, record.payload), (10, b"news".as_slice()));
    writer.join().unwrap();
    log.close().unwrap();
    assert!(follower.next_blocking().unwrap().is_none());
}

#[test]
fn a_segment_in_the_wrong_place_is_seen_after_a_rewrite() {
    // Two logs of the same id that differ in one record: its segment does not fit into the other.
    let (one, other) = (MemFs::new(), MemFs::new());
    for (fs, record) in [(&one, b"one"), (&other, b"two")] {
        let log = open(fs);
        log.append(record).unwrap();
        fill(&log, 3);
        fill(&log, 3);
        log.rewrite_segment(1, |lsn, _| lsn == 1).unwrap();
        log.close().unwrap();
        assert!(verify_on(fs, DIR.as_ref()).unwrap().is_sound());
    }
    one.put(path(1), other.get(path(1)).unwrap());
    let report = verify_on(&one, DIR.as_ref()).unwrap();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert_eq!(report.damages[0].segment, 2);
}

#[test]
fn every_byte_of_a_rewritten_segment_is_covered() {
    // Last of all, in the middle, and alone.
    for segments in 1..=3 {
        let fs = MemFs::new();
        let log = open(&fs);
        for _ in 0..segments {
            fill(&log, 4);
        }
        rewrite_all(&log, |lsn| lsn % 3 == 0);
        let last = log.last_lsn();
        let expected = wanted(last, |lsn| lsn % 3 == 0);
        let killed = fs.copy();
        for number in 1..=segments {
            let bytes = killed.get(path(number)).unwrap();
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at % 8);
                killed.put(path(number), changed);
                let report = verify_on(&killed, DIR.as_ref()).unwrap();
                let what = format!("byte {at} of segment {number} of {segments}");
                assert!(!report.is_sound(), "{what}");
                // Who cannot read the header does not know that it was rewritten.
                assert!(report.torn.is_none() || at < 512, "{what}");
                // Opened for writing it is refused, or what can be read is as it was.
                let copy = killed.copy();
                if let Ok(log) = options(&copy).open(DIR) {
                    assert_eq!(log.recovery().last_lsn, last, "{what}");
                    assert!(log.recovery().torn.is_none(), "{what}");
                }
                if let Ok(view) = options(&killed).open_read_only(DIR) {
                    assert_eq!(view.last_lsn(), last, "{what}");
                    let read = read_until_damage(view.read_from(1).unwrap());
                    assert!(expected.starts_with(&read), "{what}");
                }
            }
            killed.put(path(number), bytes);
        }
    }
}

fn read_until_damage(mut reader: Reader) -> Records {
    let mut records = Records::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push((record.lsn, record.payload.to_vec())),
            Ok(None) | Err(ReadError::Damage(_)) => return records,
            Err(other) => panic!("{other}"),
        }
    }
}

// --- Segments one by one -----------------------------------------------------------------------

fn infos(segments: &[SegmentInfo]) -> Vec<(u64, Lsn, Lsn, bool)> {
    let told = segments.iter();
    told.map(|s| (s.number, s.first_lsn, s.last_lsn, s.sealed))
        .collect()
}

#[test]
fn segments_are_listed_with_their_ends() {
    let fs = MemFs::new();
    let log = three_segments(&fs);
    let sealed = [(1, 1, 9, true), (2, 10, 18, true), (3, 19, 27, true)];
    assert_eq!(infos(&log.segments()), sealed);
    let view = options(&fs).open_read_only(DIR).unwrap();
    assert_eq!(infos(&view.segments()), sealed);
    log.append(b"not durable").unwrap();
    assert_eq!(infos(&log.segments()), sealed);
    log.wait_durable(28).unwrap();
    log.append(b"not durable").unwrap();
    let now = [sealed.as_slice(), &[(4, 28, 28, false)]].concat();
    assert_eq!(infos(&log.segments()), now);
    assert_eq!(infos(&view.segments()), sealed);
    view.refresh().unwrap();
    assert_eq!(infos(&view.segments()), now);
    log.drop_before(12).unwrap();
    view.refresh().unwrap();
    for listed in [log.segments(), view.segments()] {
        assert_eq!(listed.first().unwrap().number, 2);
    }
}

/// All records of a segment with their offsets.
fn places(segment: &mut SegmentReader) -> Vec<(u64, Lsn, Vec<u8>)> {
    let mut places = Vec::new();
    while let Some((offset, record)) = segment.next_record().unwrap() {
        places.push((offset, record.lsn, record.payload.to_vec()));
    }
    places
}

#[test]
fn every_record_can_be_read_at_its_offset() {
    let fs = MemFs::new();
    let log = open(&fs);
    // Longer than the first read, too.
    let sizes = [0, 1, 7, 8, 9, 3000, 100];
    for size in sizes {
        log.append(vec![size as u8; size]).unwrap();
    }
    log.seal().unwrap();
    let large = Options::new().fs(Arc::new(MemFs::new())).open(DIR).unwrap();
    for size in [4055, 4056, 4057, 100_000] {
        large.append(vec![size as u8; size]).unwrap();
    }
    large.wait_durable(4).unwrap();
    for log in [&log, &large] {
        for info in log.segments() {
            let mut segment = log.open_segment(info.number).unwrap();
            let places = places(&mut segment);
            let lsns: Vec<Lsn> = places.iter().map(|(_, lsn, _)| *lsn).collect();
            assert_eq!(lsns, (info.first_lsn..=info.last_lsn).collect::<Vec<_>>());
            let mut buffer = Vec::new();
            for (offset, lsn, payload) in places.iter().rev() {
                let record = segment.record_at(*offset, &mut buffer).unwrap();
                assert_eq!((record.lsn, record.payload), (*lsn, payload.as_slice()));
                for wrong in [offset - 8, offset + 8, 512, 0, 1 << 40] {
                    assert!(segment.record_at(wrong, &mut buffer).is_err());
                }
            }
        }
    }
    assert!(matches!(
        log.open_segment(9),
        Err(ReadError::NoSegment { number: 9 })
    ));
}

#[test]
fn one_read_of_the_file_is_enough_for_a_short_record() {
    let fs = MemFs::new();
    let log = open(&fs);
    log.append(vec![1; 3000]).unwrap();
    log.seal().unwrap();
    let mut segment = log.open_segment(1).unwrap();
    let places = places(&mut segment);
    let before = fs.calls();
    segment.record_at(places[0].0, &mut Vec::new()).unwrap();
    // A second call where the file ends inside of what is asked for.
    assert!(fs.calls() - before <= 2);
}

#[test]
fn damage_at_an_offset_is_named() {
    let fs = MemFs::new();
    let log = three_segments(&fs);
    let places = places(&mut log.open_segment(2).unwrap());
    let bytes = fs.get(path(2)).unwrap();
    let mut buffer = Vec::new();
    for (offset, _, payload) in &places {
        let frame_bytes = (40 + payload.len()).next_multiple_of(8);
        for at in 0..frame_bytes {
            let mut changed = bytes.clone();
            changed[*offset as usize + at] ^= 1 << (at % 8);
            fs.put(path(2), changed);
            let segment = log.open_segment(2).unwrap();
            match segment.record_at(*offset, &mut buffer) {
                Err(ReadError::Damage(damage)) => {
                    assert_eq!((damage.segment, damage.offset), (2, *offset));
                }
                other => panic!("byte {at} of the frame at {offset}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_segment_reader_sees_what_becomes_durable_and_gaps() {
    let fs = MemFs::new();
    let log = open(&fs);
    log.wait_durable(log.append(b"one").unwrap()).unwrap();
    let mut segment = log.open_segment(1).unwrap();
    assert_eq!(places(&mut segment).len(), 1);
    let lsn = log.append(b"two").unwrap();
    assert!(segment.next_record().unwrap().is_none());
    log.wait_durable(lsn).unwrap();
    assert_eq!(segment.next_record().unwrap().unwrap().1.payload, b"two");
    log.append(b"three").unwrap();
    log.seal().unwrap();
    log.rewrite_segment(1, |lsn, _| lsn == 3).unwrap();
    // The open one reads on in the old file.
    assert_eq!(places(&mut segment).len(), 1);
    let mut anew = log.open_segment(1).unwrap();
    let (offset, lsn, _) = places(&mut anew)[0];
    assert_eq!(lsn, 3);
    assert!(anew.file_bytes().unwrap() < segment.file_bytes().unwrap());
    assert_eq!(anew.record_at(offset, &mut Vec::new()).unwrap().lsn, 3);
}

#[test]
fn a_failed_rename_leaves_the_log_in_use() {
    // The folder refuses to let go of the file that is in the way.
    let fs = MemFs::new();
    let log = three_segments(&fs);
    fs.put(Path::new(DIR).join(restamp::file_name(2) + ".tmp"), vec![1]);
    fs.refuse_removals(1);
    match log.rewrite_segment(2, |_, _| false).unwrap_err() {
        RewriteError::Io(failure) => {
            assert_eq!(failure.error.kind(), io::ErrorKind::PermissionDenied);
        }
        other => panic!("{other}"),
    }
    assert_eq!(all(&log).len(), 27);
    log.rewrite_segment(2, |_, _| false).unwrap();
    assert_eq!(all(&log).len(), 18);
}
