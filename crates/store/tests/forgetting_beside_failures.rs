//! An operation of forgetting fails, and its process goes on: when it says that it is done, it is.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use dalsegno_sim::disk::{Fault, SimDisk};
use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::{
    Append, Fields, Kind, LocalStore, NewEvent, NewPayload, Options, Store, StreamId, Value,
};

mod common;
use common::local::{block_on, memory};

const SECRET: &[u8] = b"zanzibarquux";

fn open(disk: &SimDisk) -> LocalStore {
    let options = Options::new().fs(Arc::new(disk.clone()));
    let options = options.without_threads().segment_bytes(32 << 10);
    options.open("store").unwrap()
}

/// Bytes that no compression makes small, with the secret in each of its pieces.
fn content(seed: u64) -> Vec<u8> {
    let mut random = common::Random(seed);
    let mut noise = || random.next() as u8;
    let lines = (0..120).flat_map(|_| {
        let line: Vec<u8> = (0..500).map(|_| noise()).collect();
        [line, SECRET.to_vec()].concat()
    });
    lines.collect()
}

fn notes() -> StreamId {
    memory("notes")
}

fn append(store: &LocalStore, event: NewEvent) -> u64 {
    let appended = block_on(store.append(vec![Append::to(notes(), vec![event])])).unwrap();
    block_on(store.durable(appended.position)).unwrap();
    appended.heads[0].sequence
}

fn say_forgotten(store: &LocalStore, sequence: u64) -> u64 {
    let named = Value::List(vec![Value::Number(sequence)]);
    let fields = Fields::new().with(FORGOTTEN, named);
    append(
        store,
        NewEvent::new(Kind::MemoryForgotten).with_fields(fields),
    )
}

fn files_with_the_secret(disk: &SimDisk) -> Vec<String> {
    let dir = Path::new("store").join("log");
    let mut files = disk.files(&dir);
    files.retain(|name| {
        let bytes = disk.read_file(dir.join(name)).unwrap();
        bytes.windows(SECRET.len()).any(|window| window == SECRET)
    });
    files
}

#[test]
fn what_is_said_to_be_gone_is_gone() {
    let base = SimDisk::new(1);
    let store = open(&base);
    for seed in [1, 2] {
        let payload = NewPayload::new("x/y", content(seed)).apart();
        append(
            &store,
            NewEvent::new(Kind::FactConfirmed).with_input(payload),
        );
    }
    store.close().unwrap();
    assert!(files_with_the_secret(&base).len() > 3);
    let mut went_on = 0;
    for op in 0.. {
        let disk = base.snapshot();
        let store = open(&disk);
        // One that nothing happens to: from then on the process knows of no leftovers.
        let first = say_forgotten(&store, 1);
        block_on(store.erase_forgotten(&notes(), first)).unwrap();
        let second = say_forgotten(&store, 2);
        let begun = disk.ops();
        disk.fail_at(begun + op, Fault::Full);
        let erased = block_on(store.erase_forgotten(&notes(), second));
        let is_over = disk.ops() - begun < op;
        disk.heal();
        if block_on(store.erase_forgotten(&notes(), second)).is_ok() {
            went_on += u64::from(erased.is_err());
            assert_eq!(
                files_with_the_secret(&disk),
                Vec::<String>::new(),
                "at {op}"
            );
        }
        drop(store);
        disk.restart_process();
        let store = open(&disk);
        block_on(store.erase_forgotten(&notes(), second)).unwrap();
        assert_eq!(
            files_with_the_secret(&disk),
            Vec::<String>::new(),
            "at {op}"
        );
        if is_over {
            break;
        }
    }
    assert!(went_on > 3, "{went_on} failures that the process outlived");
}
