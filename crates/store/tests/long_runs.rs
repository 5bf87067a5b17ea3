//! A long run, read from sealed segments: the chain is computed beside the reading, and is the same.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::PathBuf;

use common::local::{Folder, block_on};
use dalsegno_store::{Append, Kind, NewEvent, NewPayload, Options, Store, StreamId, Version};

/// Enough for the second thread, over several segments.
const EVENTS: u64 = 6_000;

#[test]
fn its_hashes_are_those_of_its_bytes_and_those_it_had_when_it_was_written() {
    let dir = Folder::new("long-run");
    let options = Options::new().segment_bytes(512 << 10);
    let store = options.open(dir.store()).unwrap();
    let run = StreamId::run("long").unwrap();
    let mut head = Version::START;
    for batch in 0..EVENTS / 500 {
        let events = (0..500).map(|at| match batch + at {
            0 => NewEvent::new(Kind::RunCreated),
            _ => {
                let payload =
                    NewPayload::json(format!("{batch} {}", "x".repeat(at as usize % 300)));
                NewEvent::new(Kind::StepSucceeded).with_output(payload)
            }
        });
        let append = Append::to(run.clone(), events.collect());
        let appended = block_on(store.append(vec![append])).unwrap();
        head = appended.heads[0];
    }
    store.seal().unwrap();
    store.close().unwrap();

    let store = options.open(dir.store()).unwrap();
    let read = block_on(store.read(&run, 1, usize::MAX)).unwrap();
    assert_eq!(read.len() as u64, EVENTS);
    let mut version = Version::START;
    for recorded in &read {
        version = version.after(&recorded.event.encode());
        assert_eq!(recorded.hash, version.hash, "{}", recorded.event.sequence);
    }
    assert_eq!(version, head);
    let events = block_on(store.events(&run, 1, usize::MAX)).unwrap();
    assert!(
        events
            .iter()
            .eq(read.iter().map(|recorded| &recorded.event))
    );
}

/// Runs one after the other, each over several sealed segments, and where their indexes are.
fn several_runs(dir: &Folder, options: &Options, names: &[&str]) -> PathBuf {
    let store = options.open(dir.store()).unwrap();
    for name in names {
        let run = StreamId::run(name).unwrap();
        for batch in 0..4 {
            let events = (0..100).map(|at| match batch + at {
                0 => NewEvent::new(Kind::RunCreated),
                _ => NewEvent::new(Kind::StepSucceeded),
            });
            let append = Append::to(run.clone(), events.collect());
            block_on(store.append(vec![append])).unwrap();
            store.seal().unwrap();
        }
    }
    for name in names {
        // Makes the indexes.
        let run = StreamId::run(name).unwrap();
        assert_eq!(block_on(store.events(&run, 1, 1000)).unwrap().len(), 400);
    }
    store.close().unwrap();
    dir.store().join("index")
}

#[test]
fn how_it_began_is_read_without_the_segments_between() {
    let dir = Folder::new("long-run-began");
    let options = Options::new().without_threads();
    let indexes = several_runs(&dir, &options, &["long"]);
    let between = indexes.join("0000000000000003.index");
    std::fs::remove_file(&between).unwrap();
    let run = StreamId::run("long").unwrap();
    let store = options.open(dir.store()).unwrap();

    let first = block_on(store.events(&run, 1, 2)).unwrap();
    assert_eq!(first.iter().map(|e| e.sequence).collect::<Vec<_>>(), [1, 2]);
    assert!(!between.exists(), "an index that was not needed was made");

    // What is in there is found with an index that is made again.
    let all = block_on(store.events(&run, 1, 1000)).unwrap();
    assert_eq!(all.len(), 400);
    assert!(between.exists());
}

#[test]
fn it_begins_although_a_segment_before_it_cannot_be_read() {
    let dir = Folder::new("long-run-damage");
    let options = Options::new().without_threads();
    let indexes = several_runs(&dir, &options, &["old", "new"]);
    std::fs::remove_file(indexes.join("0000000000000001.index")).unwrap();
    let segment = dir.store().join("log/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let store = options.open(dir.store()).unwrap();

    let read = |name: &str| block_on(store.events(&StreamId::run(name).unwrap(), 1, 2));
    assert_eq!(read("new").unwrap().len(), 2);
    assert!(read("old").is_err());
}
