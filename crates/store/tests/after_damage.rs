//! What a repair has given up stays given up: it does not take more with it, and nothing new leans
//! on it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;

use std::path::Path;

use dalsegno_store::{Kind, NewEvent, Retention, RunQuery, Store};
use local::*;

const EVERYTHING: Retention = Retention {
    ended_before_us: u64::MAX,
    archive: false,
};

/// Flips a bit in the first segment, so far behind the first place where these bytes are.
fn damage(dir: &Path, near: &[u8], behind: usize) {
    let path = dir.join("log/0000000000000001.seg");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(near.len()).position(|w| w == near).unwrap();
    bytes[at + behind] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_run_that_lost_its_beginning_has_not_ended_and_stays() {
    let folder = Folder::new("lost-beginning");
    let store = small().open(folder.path()).unwrap();
    let id = run("precious");
    append(&store, &id, Kind::RunCreated).unwrap();
    store.seal().unwrap();
    append(&store, &id, Kind::RunCompleted).unwrap();
    store.seal().unwrap();
    store.close().unwrap();
    damage(folder.path(), b"precious", 0);
    let done = small().repair(folder.path()).unwrap();
    assert_eq!(done.log.lost_records(), 1);
    for archive in [false, true] {
        let store = small().open(folder.path()).unwrap();
        let runs = now(store.runs(&RunQuery::default())).unwrap();
        assert!(runs[0].attention.is_some(), "{runs:?}");
        let retention = Retention {
            archive,
            ..EVERYTHING
        };
        assert!(store.retire(&retention).unwrap().runs.is_empty());
        assert_eq!(now(store.runs(&RunQuery::default())).unwrap(), runs);
    }
}

#[test]
fn a_payload_is_stored_again_if_some_of_it_was_lost() {
    let folder = Folder::new("lost-piece");
    let store = small().open(folder.path()).unwrap();
    let (id, content) = (run("a"), payload(7, 3000));
    let step = NewEvent::new(Kind::StepIntended).with_input(content.clone());
    append(&store, &id, Kind::RunCreated).unwrap();
    append_with(&store, &id, step.clone()).unwrap();
    append(&store, &run("old"), Kind::RunCreated).unwrap();
    append(&store, &run("old"), Kind::RunCompleted).unwrap();
    store.seal().unwrap();
    store.close().unwrap();
    // A leaf, behind the first event.
    damage(folder.path(), b"run/a", 400);
    let done = small().repair(folder.path()).unwrap();
    assert_eq!(done.log.lost_records(), 1);
    assert!(done.report.is_sound() && !done.report.losses.is_empty());
    let store = small().open(folder.path()).unwrap();
    let new = run("new");
    append(&store, &new, Kind::RunCreated).unwrap();
    append_with(&store, &new, step).unwrap();
    let read = |sequence| {
        let events = now(store.read(&new, sequence, 1)).unwrap();
        now(store.payload(events[0].event.input.as_ref().unwrap()))
    };
    assert_eq!(read(2).unwrap(), content.bytes);
    // And retention goes on over what is missing.
    assert_eq!(store.retire(&EVERYTHING).unwrap().runs, [run("old")]);
    assert_eq!(read(2).unwrap(), content.bytes);
}
