//! Tests of the index, against the contents that it was made from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod damage;
mod forged;
#[allow(dead_code)] // Made for the log's tests, which use more of it.
#[path = "../../../log/tests/common/mem_fs.rs"]
mod mem_fs;

use std::path::Path;

use dalsegno_log::fs::{Fs, OpenMode};

use super::*;
use mem_fs::MemFs;

const PATH: &str = "0000000000000003.idx";

const IDENTITY: Identity = Identity {
    store: 0x5702e,
    segment: 3,
    first_lsn: 1_000,
    last_lsn: 2_000,
    segment_bytes: 64 << 20,
};

/// The same numbers from the same seed.
struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn hash(&mut self) -> Hash {
        Hash::of(&self.next().to_le_bytes())
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

fn run(number: u64) -> StreamId {
    StreamId::run(&format!("order-{number}")).unwrap()
}

fn part(random: &mut Random, stream: StreamId, events: u64) -> StreamPart {
    let mut place = 512;
    let places = (0..events).map(|_| {
        place += 1 + random.below(600);
        place
    });
    StreamPart {
        stream,
        places: places.collect(),
        first: random.below(1 << 40),
        before: random.hash(),
        after: random.hash(),
    }
}

fn ended(random: &mut Random, run: StreamId) -> EndedRun {
    let statuses = [Status::Completed, Status::Failed, Status::Cancelled];
    let agents = [None, Some(String::new()), Some("bücher-agent".to_owned())];
    EndedRun {
        run,
        status: statuses[random.below(3) as usize],
        agent: agents[random.below(3) as usize].clone(),
        created_us: random.next(),
        ended_us: random.next(),
        head: Version {
            sequence: random.next(),
            hash: random.hash(),
        },
    }
}

/// Streams of all kinds, of which some runs ended, and pieces. In the order of the index.
fn contents(seed: u64, streams: u64, pieces: u64) -> Contents {
    let mut random = Random(seed);
    let mut contents = Contents::default();
    for number in 0..streams {
        let stream = match number % 5 {
            0 if number == 0 => StreamId::store(),
            0 | 1 => StreamId::memory(&"m".repeat(1 + (number % 200) as usize)).unwrap(),
            _ => run(number),
        };
        if contents.streams.iter().any(|part| part.stream == stream) {
            continue;
        }
        if stream.kind() == crate::StreamKind::Run && random.below(2) == 0 {
            contents.ended.push(ended(&mut random, stream.clone()));
        }
        let events = 1 + random.below(9);
        contents.streams.push(part(&mut random, stream, events));
    }
    for _ in 0..pieces {
        let place = random.below(IDENTITY.segment_bytes);
        contents.pieces.push((random.hash(), place));
    }
    contents.streams.sort_by(|a, b| a.stream.cmp(&b.stream));
    contents.ended.sort_by(|a, b| a.run.cmp(&b.run));
    contents.pieces.sort();
    contents
}

fn open_as(fs: &MemFs, identity: &Identity) -> Result<Index, IndexError> {
    let file = fs.open(Path::new(PATH), OpenMode::Read).unwrap();
    Index::open(file, Path::new(PATH), identity)
}

fn open(fs: &MemFs) -> Result<Index, IndexError> {
    open_as(fs, &IDENTITY)
}

fn fs_with(bytes: Vec<u8>) -> MemFs {
    let fs = MemFs::new();
    fs.put(PATH, bytes);
    fs
}

/// The index of these contents, open.
fn index_of(contents: &Contents) -> (MemFs, Index) {
    let fs = fs_with(encode(&IDENTITY, contents).unwrap());
    let index = open(&fs).unwrap();
    (fs, index)
}

fn summary(part: &StreamPart) -> StreamSummary {
    StreamSummary {
        stream: part.stream.clone(),
        first: part.first,
        count: part.places.len() as u64,
        before: part.before,
        after: part.after,
    }
}

fn streams_of(index: &Index) -> Result<Vec<StreamSummary>, IndexError> {
    let mut streams = Vec::new();
    index.for_each_stream(|stream| streams.push(stream))?;
    Ok(streams)
}

fn ended_of(index: &Index) -> Result<Vec<EndedRun>, IndexError> {
    let mut runs = Vec::new();
    index.for_each_ended(|run| runs.push(run))?;
    Ok(runs)
}

/// Names and hashes that no contents have.
fn absent(count: u64) -> (Vec<StreamId>, Vec<Hash>) {
    let names = (0..count).map(|n| StreamId::run(&format!("absent-{n}")).unwrap());
    let hashes = (0..count).map(|n| Hash::of(format!("absent {n}").as_bytes()));
    (names.collect(), hashes.collect())
}

/// Asks everything. Returns how many answers were errors; all others were right.
fn errors_among_answers(index: &Index, contents: &Contents) -> usize {
    let mut errors = 0;
    let mut right = |is_right: Result<bool, IndexError>| match is_right {
        Ok(is_right) => assert!(is_right, "a wrong answer"),
        Err(_) => errors += 1,
    };
    for part in &contents.streams {
        right(
            index
                .stream(&part.stream)
                .map(|found| found.as_ref() == Some(part)),
        );
        let found = index.stream_summary(&part.stream);
        right(found.map(|found| found == Some(summary(part))));
    }
    for (hash, place) in &contents.pieces {
        right(index.piece(hash).map(|found| found == Some(*place)));
    }
    let (names, hashes) = absent(3);
    for name in &names {
        right(index.stream(name).map(|found| found.is_none()));
        right(index.stream_summary(name).map(|found| found.is_none()));
    }
    for hash in &hashes {
        right(index.piece(hash).map(|found| found.is_none()));
    }
    let summaries: Vec<_> = contents.streams.iter().map(summary).collect();
    right(streams_of(index).map(|streams| streams == summaries));
    right(ended_of(index).map(|runs| runs == contents.ended));
    errors
}

fn assert_all_right(index: &Index, contents: &Contents) {
    assert_eq!(errors_among_answers(index, contents), 0);
    index.check().unwrap();
}
