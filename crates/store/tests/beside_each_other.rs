//! Things that happen at the same time, and in an order that nobody planned.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dalsegno_store::portable::{About, Holds, PortableWriter};
use dalsegno_store::{
    Event, Export, Kind, Limits, Options, Retention, RunQuery, Store, StoreError, StreamKind,
};
use local::*;

const EVERYTHING: Retention = Retention {
    ended_before_us: u64::MAX,
    archive: false,
};

#[test]
fn a_list_has_every_run_also_those_that_end_meanwhile() {
    let folder = Folder::new("lists");
    let store = small().open(folder.path()).unwrap();
    let runs: Vec<_> = (0..300).map(|n| run(&format!("run-{n}"))).collect();
    for id in &runs {
        append(&store, id, Kind::RunCreated).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in &runs {
                append(&store, id, Kind::RunCompleted).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let streams = now(store.streams(StreamKind::Run, None, 0)).unwrap();
            assert_eq!(streams.len(), runs.len());
            assert_eq!(
                now(store.runs(&RunQuery::default())).unwrap().len(),
                runs.len()
            );
        }
    });
}

#[test]
fn dropped_segments_stay_dropped_beside_a_busy_keeper() {
    for round in 0..12 {
        let folder = Folder::new("dropped");
        let store = small().open(folder.path()).unwrap();
        for n in 0..4 {
            let id = run(&format!("r{n}"));
            append(&store, &id, Kind::RunCreated).unwrap();
            append(&store, &id, Kind::RunCompleted).unwrap();
            store.seal().unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let id = run("busy");
                append(&store, &id, Kind::RunCreated).unwrap();
                while !done.load(Ordering::Relaxed) {
                    append(&store, &id, Kind::StepIntended).unwrap();
                    store.seal().unwrap();
                }
            });
            let retired = store.retire(&EVERYTHING);
            done.store(true, Ordering::Relaxed);
            assert_eq!(retired.unwrap().runs.len(), 4);
        });
        append(&store, &run("fresh"), Kind::RunCreated)
            .unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
}

#[test]
fn a_run_that_is_being_removed_is_not_imported() {
    let folder = Folder::new("removed");
    let store = small().open(folder.path()).unwrap();
    let id = run("r");
    append(&store, &id, Kind::RunCreated).unwrap();
    let file = folder.path().join("r.dalsegno");
    let only = Export::Streams(BTreeSet::from([id.clone()]));
    store.export(&only, &file).unwrap();
    append(&store, &id, Kind::RunCompleted).unwrap();
    // Something is in the way of the index, so that it stops half-way.
    let obstacle = folder.path().join("index/0000000000000001.index");
    std::fs::create_dir_all(obstacle.join("x")).unwrap();
    store.retire(&EVERYTHING).unwrap_err();
    std::fs::remove_dir_all(obstacle).unwrap();
    let refused = store.import(&file, None).unwrap_err();
    assert!(refused.to_string().contains("being removed"), "{refused}");
    store.retire(&EVERYTHING).unwrap();
    store.import(&file, None).unwrap();
    assert_eq!(now(store.read(&id, 1, 10)).unwrap().len(), 1);
}

#[test]
fn a_file_cannot_set_the_clock_to_its_end() {
    let folder = Folder::new("clock");
    let store = small().open(folder.path()).unwrap();
    let id = run("forged");
    let event = Event::new(id.clone(), 1, (1 << 62) - 1, 5, Kind::RunCreated);
    let about = About {
        holds: Holds::Streams(BTreeSet::from([id])),
        created_us: 1,
    };
    let mut writer = PortableWriter::new(Vec::new(), about).unwrap();
    writer.event(&event.encode()).unwrap();
    let file = folder.path().join("forged.dalsegno");
    std::fs::write(&file, writer.finish().unwrap().0).unwrap();
    let refused = store.import(&file, None).unwrap_err();
    assert!(refused.to_string().contains("a clock of"), "{refused}");
    append(&store, &run("good"), Kind::RunCreated).unwrap();
    append(&store, &run("good"), Kind::RunStarted).unwrap();
}

#[test]
fn the_users_limits_do_not_bind_the_store_itself() {
    let limits = Limits {
        event_bytes: 512,
        batch_events: 1,
        ..Limits::default()
    };
    for options in [Options::new().limits(limits), small()] {
        let folder = Folder::new("own-limits");
        let store = options.open(folder.path()).unwrap();
        for n in 0..250 {
            let id = run(&format!("the-order-{n:08}-of-a-customer-with-a-long-name"));
            append(&store, &id, Kind::RunCreated).unwrap();
            append(&store, &id, Kind::RunCompleted).unwrap();
        }
        assert_eq!(store.retire(&EVERYTHING).unwrap().runs.len(), 250);
    }
}

#[test]
fn a_closed_store_answers_with_an_error_and_leaves_nobody_waiting() {
    let folder = Folder::new("closed");
    let store = small().open(folder.path()).unwrap();
    append(&store, &run("a"), Kind::RunCreated).unwrap();
    let view = small().open_read_only(folder.path()).unwrap();
    view.close().unwrap();
    assert!(matches!(now(view.changed(1000)), Err(StoreError::Closed)));
    assert!(matches!(now(view.durable(1000)), Err(StoreError::Closed)));
    store.close().unwrap();
    store.close().unwrap();
    let read = now(store.read(&run("a"), 1, 9));
    assert!(matches!(read, Err(StoreError::Closed)), "{read:?}");
}
