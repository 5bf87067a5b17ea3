//! A store of format 1, as it was written when that format was made. Every later version opens it
//! and finds the same in it.
//!
//! To make one of a new format: `DALSEGNO_GOLDEN=crates/store/tests/golden/store-N cargo test -p
//! dalsegno-store --test golden_store -- --ignored`, with an empty or missing folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Fields, Kind, NewEvent, Options, RunQuery, Status, Store, StreamId, Version, field,
};
use local::*;

/// What the store of format 1 had when it was closed.
const DIGEST: &str = "e63eb452f3fcab68a63123bed44f8d51abb39963ae40f0bf5943864516ba777a";
const HEADS: [(&str, u64, &str); 3] = [
    (
        "run/order-1",
        11,
        "0b5c175e4dc1b3ad92b75e7ea32bc463e859d0d260de2818040824dd751806d4",
    ),
    (
        "run/order-2",
        15,
        "ce48485d56701f1ce67b471c15a5b2af969fc0f472899617f59d21e468c924a9",
    ),
    (
        "memory/facts",
        1,
        "4d430b59e45b5e0cf49e96670c4fb3e682bd8740e91ffe0f0cd2f47e202212ac",
    ),
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store-1")
}

/// A clock that counts.
fn options() -> Options {
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    small().clock(move || clock.fetch_add(1000, Ordering::Relaxed))
}

fn write(dir: &Path) {
    let store = options().open(dir).unwrap();
    let (done, waiting) = (run("order-1"), run("order-2"));
    let agent = Fields::new().with(field::AGENT, "shop");
    let created = NewEvent::new(Kind::RunCreated).with_fields(agent);
    for id in [&done, &waiting] {
        append_with(&store, id, created.clone()).unwrap();
        append(&store, id, Kind::RunStarted).unwrap();
        for n in 0..4 {
            let intent = NewEvent::new(Kind::StepIntended).with_input(payload(n, 3000));
            append_with(&store, id, intent).unwrap();
            let mut outcome = NewEvent::new(Kind::StepSucceeded).with_output(payload(n, 10));
            outcome.sources = vec!["a page".into()];
            append_with(&store, id, outcome).unwrap();
        }
    }
    append(&store, &done, Kind::RunCompleted).unwrap();
    store.seal().unwrap();
    let timer = Fields::new()
        .with(field::TIMER, "remind")
        .with(field::DUE, 9);
    let timer = NewEvent::new(Kind::TimerSet).with_fields(timer);
    append_with(&store, &waiting, timer).unwrap();
    append(&store, &waiting, Kind::User("tasted".into())).unwrap();
    append(&store, &waiting, Kind::Unknown(4711)).unwrap();
    let memory = StreamId::memory("facts").unwrap();
    append(&store, &memory, Kind::FactConfirmed).unwrap();
    now(store.take_lease(&waiting, "worker", 1000)).unwrap();
    now(store.send(&NewLetter::new(waiting.clone(), Kind::SignalReceived, 5))).unwrap();
    now(store.take_letters()).unwrap();
    now(store.send(&NewLetter::new(waiting, Kind::CancelRequested, 6))).unwrap();
    store.snapshot(true).unwrap();
    store.close().unwrap();
}

#[test]
#[ignore = "writes a new golden store"]
fn make_the_golden_store() {
    let dir = std::env::var("DALSEGNO_GOLDEN").unwrap();
    write(Path::new(&dir));
    let store = options().open_read_only(Path::new(&dir)).unwrap();
    println!("{}", store.state_digest());
    for kind in ["run/order-1", "run/order-2", "memory/facts"] {
        let head = now(store.head(&kind.parse().unwrap())).unwrap().unwrap();
        println!("{kind} {} {}", head.sequence, head.hash);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn a_store_of_format_1_opens_and_has_what_it_had() {
    let folder = Folder::new("golden");
    copy_folder(&golden(), folder.path());
    let report = options().verify(folder.path()).unwrap();
    assert!(report.is_sound(), "{report}");
    let view = options().open_read_only(folder.path()).unwrap();
    assert_eq!(view.state_digest().to_string(), DIGEST);
    // From the snapshot, and from the log alone.
    for without_snapshots in [false, true] {
        if without_snapshots {
            std::fs::remove_dir_all(folder.path().join("snapshots")).unwrap();
            std::fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        let view = options().open_read_only(folder.path()).unwrap();
        assert_eq!(view.state_digest().to_string(), DIGEST);
        for (stream, sequence, hash) in HEADS {
            let head = now(view.head(&stream.parse().unwrap())).unwrap().unwrap();
            let hash = hash.parse().unwrap();
            assert_eq!(head, Version { sequence, hash }, "{stream}");
        }
        let events = now(view.read(&run("order-1"), 1, 100)).unwrap();
        let input = events[4].event.input.as_ref().unwrap();
        assert_eq!(now(view.payload(input)).unwrap(), payload(1, 3000).bytes);
    }
    let store = options().open(folder.path()).unwrap();
    assert_eq!(store.state_digest().to_string(), DIGEST);
    let runs = now(store.runs(&RunQuery::default())).unwrap();
    let told: Vec<_> = runs
        .iter()
        .map(|run| (run.run.name(), run.status))
        .collect();
    let expected = [("order-1", Status::Completed), ("order-2", Status::Running)];
    assert_eq!(told, expected);
    // The letter that was waiting, and no other.
    assert_eq!(now(store.take_letters()).unwrap().taken.len(), 1);
    append(&store, &run("order-2"), Kind::RunCompleted).unwrap();
}
