//! A long run, read from sealed segments: the chain is computed beside the reading, and is the same.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

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
