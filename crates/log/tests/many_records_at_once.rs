//! Records at several offsets of a segment: the same as one by one, in fewer reads of the file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use dalsegno_log::{Log, Options, ReadError, SegmentReader};

mod common;
use common::mem_fs::MemFs;
use common::restamp;

type Records = Vec<(u64, Vec<u8>)>;

/// A sealed segment of short records, with some among them that are longer than what is read
/// ahead or than what is read together; and the offsets of all.
fn segment(fs: &MemFs) -> (Log, Vec<u64>) {
    let options = Options::new().segment_bytes(2 << 20).without_threads();
    let log = options.fs(Arc::new(fs.clone())).open("log").unwrap();
    for number in 0..3000_usize {
        let bytes = match number {
            700 => 4056,
            701 => 5000,
            1500 => 400_000,
            _ => number * 37 % 300,
        };
        log.append(vec![number as u8; bytes]).unwrap();
    }
    log.seal().unwrap();
    let mut reader = log.open_segment(1).unwrap();
    let mut places = Vec::new();
    while let Some((offset, _)) = reader.next_record().unwrap() {
        places.push(offset);
    }
    (log, places)
}

fn together(segment: &SegmentReader, offsets: &[u64]) -> Result<Records, ReadError> {
    let mut records = Records::new();
    segment.records_at(offsets, |record| {
        records.push((record.lsn, record.payload.to_owned()));
        Ok::<(), ReadError>(())
    })?;
    Ok(records)
}

fn one_by_one(segment: &SegmentReader, offsets: &[u64]) -> Result<Records, ReadError> {
    let mut buffer = Vec::new();
    let read = offsets.iter().map(|offset| {
        let record = segment.record_at(*offset, &mut buffer)?;
        Ok((record.lsn, record.payload.to_owned()))
    });
    read.collect()
}

#[test]
fn they_are_the_same_as_one_by_one() {
    let fs = MemFs::new();
    let (log, places) = segment(&fs);
    let segment = log.open_segment(1).unwrap();
    let reversed: Vec<u64> = places.iter().rev().copied().collect();
    let sparse: Vec<u64> = places.iter().step_by(97).copied().collect();
    let twice: Vec<u64> = places.iter().flat_map(|place| [*place, *place]).collect();
    for offsets in [&places, &reversed, &sparse, &twice, &vec![]] {
        let records = one_by_one(&segment, offsets).unwrap();
        assert!(together(&segment, offsets).unwrap() == records);
    }
    let before = fs.calls();
    together(&segment, &places).unwrap();
    assert!(fs.calls() - before < 40, "{} calls", fs.calls() - before);
}

#[test]
fn what_is_wrong_is_named_as_one_by_one() {
    let fs = MemFs::new();
    let (log, places) = segment(&fs);
    let path = Path::new("log").join(restamp::file_name(1));
    let whole = fs.get(path.clone()).unwrap();
    for (number, at) in [
        (0, 1),
        (1, 41),
        (700, 30),
        (701, 4900),
        (1500, 399_000),
        (2999, 0),
    ] {
        let mut changed = whole.clone();
        changed[places[number] as usize + at] ^= 1;
        fs.put(path.clone(), changed);
        let segment = log.open_segment(1).unwrap();
        let alone = one_by_one(&segment, &places).unwrap_err();
        let together = together(&segment, &places).unwrap_err();
        assert_eq!(together.to_string(), alone.to_string());
    }
    fs.put(path, whole);
    let segment = log.open_segment(1).unwrap();
    for wrong in [places[3] + 8, 0, 1 << 40] {
        let offsets = [places[2], wrong];
        assert!(together(&segment, &offsets).is_err(), "{wrong}");
    }
}

#[test]
fn who_reads_may_stop() {
    let fs = MemFs::new();
    let (log, places) = segment(&fs);
    let segment = log.open_segment(1).unwrap();
    let mut read = 0;
    let stopped = segment.records_at(&places, |record| {
        read += 1;
        match record.lsn {
            10 => Err(ReadError::Damage(dalsegno_log::Damage {
                segment: 1,
                offset: 0,
                expected: "enough".into(),
                found: "enough".into(),
            })),
            _ => Ok(()),
        }
    });
    assert!(stopped.is_err());
    assert_eq!(read, 10);
}
