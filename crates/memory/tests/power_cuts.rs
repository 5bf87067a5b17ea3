//! The power goes at every operation of forgetting: afterwards a document is there, or it is
//! forgotten and in no file; the store is sound, and everything else is as it was.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use dalsegno_memory::{AsOf, DocId, Memory, MemoryError, NewDocument, Query, RankingConfig};
use dalsegno_simdisk::rng::Rng;
use dalsegno_simdisk::{Chooser, KeepAll, LoseAll, Random as RandomChooser, SimDisk};
use dalsegno_store::{
    Append, Body, Kind, NewEvent, NewPayload, Options, Payload, Store, StreamId, payload,
};

const SECRET: &str = "zanzibarquux";

fn options(disk: &SimDisk) -> Options {
    Options::new()
        .fs(Arc::new(disk.clone()))
        .without_threads()
        .segment_bytes(32 << 10)
}

/// Files that have the secret in them, also in the indexes.
fn files_with_the_secret(disk: &SimDisk) -> Vec<String> {
    let mut found = Vec::new();
    for dir in ["log", "helpers", "index", "snapshots"] {
        let dir = Path::new("store").join(dir);
        for name in disk.files(&dir) {
            let Ok(bytes) = disk.read_file(dir.join(&name)) else {
                continue;
            };
            if bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()) {
                found.push(name);
            }
        }
    }
    found
}

/// What there is, in a memory in which one document may be forgotten.
async fn found(memory: &Memory) -> Vec<(DocId, i64)> {
    let query = Query::words("bread oven guest").limit(100);
    let ranking = RankingConfig::default();
    let hits = memory.search(&query, &ranking).await.unwrap();
    hits.hits.iter().map(|hit| (hit.id, hit.score)).collect()
}

fn forget(disk: &SimDisk, id: DocId) -> Result<(), MemoryError> {
    let store = options(disk).open("store")?;
    let memory = block_on(Memory::open(shared(&store), "life"))?;
    match block_on(memory.forget(&[id], "asked for")) {
        Err(MemoryError::Ended { .. }) | Ok(_) => {}
        Err(e) => return Err(e),
    }
    drop(memory);
    Ok(store.close()?)
}

#[test]
fn forgetting_is_done_or_taken_up_again() {
    let base = SimDisk::new(1);
    let store = options(&base).open("store").unwrap();
    let (id, before) = block_on(async {
        let memory = Memory::open(shared(&store), "life").await.unwrap();
        let mut random = Random::new(1);
        for _ in 0..20 {
            memory.add(document(&mut random)).await.unwrap();
        }
        let id = memory.add(NewDocument::fact(SECRET)).await.unwrap();
        for _ in 0..5 {
            memory.add(document(&mut random)).await.unwrap();
        }
        memory.keep().await.unwrap();
        (id, found(&memory).await)
    });
    store.close().unwrap();
    assert!(files_with_the_secret(&base).len() >= 2);
    let whole = base.snapshot();
    forget(&whole, id).unwrap();
    let after = {
        let store = options(&whole).open("store").unwrap();
        block_on(async { found(&Memory::open(shared(&store), "life").await.unwrap()).await })
    };
    assert_ne!(before, after, "one document less changes scores");

    let mut cut = 0;
    // Every other one: there are hundreds, and each needs two restarts.
    for op in (0..).step_by(2) {
        let disk = base.snapshot();
        disk.crash_at(disk.ops() + op);
        let done = forget(&disk, id).is_ok();
        let choosers: [&mut dyn Chooser; 2] = match op % 4 {
            0 => [&mut LoseAll, &mut RandomChooser::new(Rng::new(op))],
            _ => [&mut KeepAll, &mut RandomChooser::new(Rng::new(op))],
        };
        for chooser in choosers {
            let machine = disk.snapshot();
            machine.reboot(chooser);
            let store = options(&machine).open("store").unwrap();
            let memory = block_on(Memory::open(shared(&store), "life")).unwrap();
            let is_there = block_on(memory.get(id)).is_ok();
            assert!(!done || !is_there);
            let expected = if is_there { &before } else { &after };
            assert_eq!(&block_on(found(&memory)), expected, "at {op}");
            if !is_there {
                assert_eq!(
                    files_with_the_secret(&machine),
                    Vec::<String>::new(),
                    "at {op}"
                );
            }
            drop(memory);
            store.close().unwrap();
            let report = options(&machine).verify("store").unwrap();
            assert!(report.is_sound(), "at {op}: {report}");
            forget(&machine, id).unwrap();
            assert_eq!(files_with_the_secret(&machine), Vec::<String>::new());
            let report = options(&machine).verify("store").unwrap();
            assert!(report.is_sound(), "at {op}: {report}");
        }
        cut = op;
        if !disk.crashed() {
            assert!(done);
            break;
        }
    }
    assert!(cut > 30, "{cut} operations");
}

/// What adding a document has left in the log if the power went before its event.
fn leave(store: &dyn Store, content: &[u8]) {
    let left = payload::split(content, |_| false).pieces;
    let position = block_on(store.take_over(left, Vec::new())).unwrap();
    block_on(store.durable(position)).unwrap();
}

/// An event with a large payload that no compression makes small.
fn large(store: &dyn Store, run: &StreamId, content: &[u8]) -> Payload {
    let payload = NewPayload::new("x/y", content.to_vec());
    let event = NewEvent::new(Kind::RunCreated).with_input(payload);
    let appended = block_on(store.append(vec![Append::to(run.clone(), vec![event])])).unwrap();
    block_on(store.durable(appended.position)).unwrap();
    let read = block_on(store.events(run, 1, 1)).unwrap();
    read[0].input.clone().unwrap()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.below(256) as u8).collect()
}

/// Forgetting removes what crashes have left, too, in several segments. The power goes in between: what
/// is left then has everything that it promises, and the next opening removes the rest.
#[test]
fn what_crashes_left_goes_with_it_or_later() {
    let base = SimDisk::new(1);
    let store = options(&base).open("store").unwrap();
    let run = |name: &str| StreamId::run(name).unwrap();
    // Of a run that asks again for the same.
    let again = noise(1, 60_000);
    let memory = block_on(Memory::open(shared(&store), "life")).unwrap();
    leave(&store, &again);
    leave(&store, SECRET.repeat(20).as_bytes());
    large(&store, &run("one"), &noise(2, 40_000));
    let id = block_on(memory.add(NewDocument::fact(SECRET))).unwrap();
    large(&store, &run("two"), &noise(3, 40_000));
    leave(&store, SECRET.repeat(30).as_bytes());
    drop(memory);
    store.close().unwrap();
    assert!(files_with_the_secret(&base).len() >= 3);
    let mut done = false;
    for op in 0.. {
        let disk = base.snapshot();
        disk.crash_at(disk.ops() + op);
        done |= forget(&disk, id).is_ok();
        disk.reboot(&mut KeepAll);
        let machine = disk.snapshot();
        let store = options(&machine).open("store").unwrap();
        let memory = block_on(Memory::open(shared(&store), "life")).unwrap();
        let is_there = block_on(memory.get(id)).is_ok();
        assert!(!done || !is_there);
        if !is_there {
            let left = files_with_the_secret(&machine);
            assert_eq!(left, Vec::<String>::new(), "at {op}");
        }
        drop(memory);
        store.close().unwrap();

        // The run comes first, before anybody looks after the memory.
        let store = options(&disk).open("store").unwrap();
        let stored = large(&store, &run("three"), &again);
        assert!(matches!(stored.body, Body::Stored { .. }));
        let read = block_on(store.payload(&stored));
        assert!(read.is_ok_and(|read| read == again), "at {op}");
        store.close().unwrap();
        if done {
            break;
        }
    }
}

/// What was acknowledged is there, wherever the power goes while more is added.
#[test]
fn what_was_added_is_there() {
    for op in 0..120 {
        let disk = SimDisk::new(op);
        disk.crash_at(op * 3);
        let added = block_on(async {
            let mut added = Vec::new();
            let Ok(store) = options(&disk).open("store") else {
                return added;
            };
            let Ok(memory) = Memory::open(shared(&store), "life").await else {
                return added;
            };
            let mut random = Random::new(op);
            while let Ok(id) = memory.add(document(&mut random)).await {
                added.push(id);
                if added.len() % 7 == 0 && memory.keep().await.is_err() {
                    break;
                }
                if added.len() > 60 {
                    break;
                }
            }
            added
        });
        disk.reboot(&mut RandomChooser::new(Rng::new(op)));
        let store = options(&disk).open("store").unwrap();
        let memory = block_on(Memory::open(shared(&store), "life")).unwrap();
        let list = block_on(memory.list(&Default::default(), AsOf::Now, None, 1000)).unwrap();
        assert!(list.len() >= added.len());
        assert!(
            list.iter()
                .map(|document| document.id)
                .take(added.len())
                .eq(added)
        );
    }
}
