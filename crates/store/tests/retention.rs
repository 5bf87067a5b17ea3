//! Finished runs leave the store, and their space with them; nothing else does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_store::{
    Kind, LocalStore, NewEvent, Options, Retention, RunQuery, Store, StoreError, StreamId,
    portable::verify_portable,
};
use local::*;

/// A store with a clock of its own.
fn open(folder: &Folder, clock: &Arc<AtomicU64>) -> LocalStore {
    let clock = Arc::clone(clock);
    options(&clock).open(folder.path()).unwrap()
}

fn options(clock: &Arc<AtomicU64>) -> Options {
    let clock = Arc::clone(clock);
    small().clock(move || clock.load(Ordering::Relaxed))
}

fn everything_before(ended_before_us: u64) -> Retention {
    Retention {
        ended_before_us,
        archive: false,
    }
}

#[test]
fn old_finished_runs_go_and_everything_else_stays() {
    let folder = Folder::new("retention");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    let shared = payload(99, 6000);
    let memory = StreamId::memory("facts").unwrap();
    for n in 0..30u64 {
        clock.store(1000 + n, Ordering::Relaxed);
        let id = run(&format!("run-{n}"));
        steps(&store, &id, 3, 4000);
        let step = NewEvent::new(Kind::StepIntended).with_input(shared.clone());
        append_with(&store, &id, step).unwrap();
        let fact = NewEvent::new(Kind::FactConfirmed).with_input(payload(1000 + n, 3000));
        append_with(&store, &memory, fact).unwrap();
        if n % 3 != 0 {
            append(&store, &id, Kind::RunCompleted).unwrap();
        }
    }
    let before = now(store.runs(&RunQuery::default())).unwrap();
    let bytes_before = folder_bytes(&folder.path().join("log"));
    let reader = options(&clock).open_read_only(folder.path()).unwrap();
    let would = reader.would_retire(&everything_before(1020)).unwrap();
    let nothing = reader.would_retire(&everything_before(0)).unwrap();
    assert_eq!((nothing.runs.len(), nothing.bytes), (0, 0));
    drop(reader);
    let retired = store.retire(&everything_before(1020)).unwrap();
    assert_eq!(
        (&would.runs, would.records),
        (&retired.runs, retired.records_removed)
    );
    let freed = retired.bytes_before - retired.bytes_after;
    assert!(would.bytes > 0 && would.bytes <= freed, "{would:?}");
    assert_eq!(retired.runs.len(), 13);
    assert!(retired.bytes_after < retired.bytes_before, "{retired:?}");
    let bytes_after = folder_bytes(&folder.path().join("log"));
    assert!(
        bytes_after < bytes_before,
        "{bytes_before} to {bytes_after}"
    );

    let check = |store: &LocalStore| {
        let expected: Vec<_> = before
            .iter()
            .filter(|info| !retired.runs.contains(&info.run))
            .cloned()
            .collect();
        assert_eq!(now(store.runs(&RunQuery::default())).unwrap(), expected);
        for info in &expected {
            let events = now(store.read(&info.run, 1, 100)).unwrap();
            assert_eq!(events.last().unwrap().hash, info.head.hash);
            for recorded in &events {
                for payload in recorded.event.payloads() {
                    assert!(!now(store.payload(payload)).unwrap().is_empty());
                }
            }
        }
        for gone in &retired.runs {
            assert_eq!(now(store.head(gone)).unwrap(), None);
            assert!(now(store.read(gone, 1, 10)).unwrap().is_empty());
        }
        assert_eq!(now(store.read(&memory, 1, 100)).unwrap().len(), 30);
    };
    check(&store);
    let digest = store.state_digest();
    // The name is free again.
    assert_eq!(
        append(&store, &run("run-1"), Kind::RunCreated)
            .unwrap()
            .sequence,
        1
    );
    append(&store, &run("run-1"), Kind::RunCancelled).unwrap();
    store.retire(&everything_before(u64::MAX)).unwrap();
    assert_ne!(store.state_digest(), digest);
    store.close().unwrap();
    let from_snapshot = open(&folder, &clock);
    let digest = from_snapshot.state_digest();
    from_snapshot.close().unwrap();
    // Whatever it is read from.
    std::fs::remove_dir_all(folder.path().join("snapshots")).unwrap();
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    let from_log = open(&folder, &clock);
    assert_eq!(from_log.state_digest(), digest);
    assert_eq!(now(from_log.runs(&RunQuery::default())).unwrap().len(), 10);
}

#[test]
fn a_payload_that_others_refer_to_stays() {
    let folder = Folder::new("retention-shared");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    let (old, live) = (run("old"), run("live"));
    let shared = payload(7, 50_000);
    for id in [&old, &live] {
        append(&store, id, Kind::RunCreated).unwrap();
        let step = NewEvent::new(Kind::StepIntended).with_input(shared.clone());
        append_with(&store, id, step).unwrap();
    }
    append(&store, &old, Kind::RunFailed).unwrap();
    store.retire(&everything_before(2000)).unwrap();
    let events = now(store.read(&live, 2, 1)).unwrap();
    let input = events[0].event.input.as_ref().unwrap();
    assert_eq!(now(store.payload(input)).unwrap(), shared.bytes);
    // Sent again after its pieces lost the right to be referred to: stored again, and readable.
    let step = NewEvent::new(Kind::StepIntended).with_input(shared.clone());
    append_with(&store, &live, step).unwrap();
    append(&store, &live, Kind::RunCompleted).unwrap();
    let again = run("again");
    append(&store, &again, Kind::RunCreated).unwrap();
    let step = NewEvent::new(Kind::StepIntended).with_input(shared.clone());
    append_with(&store, &again, step).unwrap();
    store.retire(&everything_before(2000)).unwrap();
    let events = now(store.read(&again, 2, 1)).unwrap();
    let input = events[0].event.input.as_ref().unwrap();
    assert_eq!(now(store.payload(input)).unwrap(), shared.bytes);
}

#[test]
fn archived_runs_can_be_read_from_their_file_and_come_back() {
    let folder = Folder::new("retention-archive");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    let id = run("kept");
    steps(&store, &id, 5, 9000);
    append(&store, &id, Kind::RunCompleted).unwrap();
    let head = now(store.head(&id)).unwrap().unwrap();
    let retention = Retention {
        ended_before_us: 2000,
        archive: true,
    };
    let retired = store.retire(&retention).unwrap();
    assert_eq!(retired.runs, std::slice::from_ref(&id));
    let file = std::fs::File::open(&retired.archives[0]).unwrap();
    let report = verify_portable(file).unwrap();
    assert_eq!(report.streams[&id], head);
    assert_eq!(now(store.head(&id)).unwrap(), None);
    let imported = store.import(&retired.archives[0], None).unwrap();
    assert_eq!(imported.imported[&id], head);
    assert_eq!(now(store.head(&id)).unwrap(), Some(head));
    let events = now(store.read(&id, 1, 100)).unwrap();
    let input = events[2].event.input.as_ref().unwrap();
    assert_eq!(now(store.payload(input)).unwrap(), payload(0, 9000).bytes);
}

#[test]
fn nothing_to_do_is_nothing_done() {
    let folder = Folder::new("retention-nothing");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    let id = run("going on");
    steps(&store, &id, 2, 100);
    let position = now(store.position()).unwrap();
    let retired = store.retire(&everything_before(u64::MAX)).unwrap();
    assert!(retired.runs.is_empty() && retired.records_removed == 0);
    assert_eq!(now(store.position()).unwrap(), position);
    let view = small().open_read_only(folder.path()).unwrap();
    let refused = view.retire(&everything_before(0)).unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly), "{refused}");
}

#[test]
fn a_view_from_before_sees_what_is_left() {
    let folder = Folder::new("retention-view");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    for n in 0..40 {
        let id = run(&format!("run-{n:02}"));
        steps(&store, &id, 2, 4000);
        if n < 30 {
            append(&store, &id, Kind::RunCompleted).unwrap();
        }
    }
    let view = small().open_read_only(folder.path()).unwrap();
    let all = now(view.runs(&RunQuery::default())).unwrap();
    assert_eq!(all.len(), 40);
    let retired = store.retire(&everything_before(2000)).unwrap();
    assert_eq!(retired.runs.len(), 30);
    // Nothing but the runs that are left, and those whole.
    let left = now(view.runs(&RunQuery::default())).unwrap();
    assert_eq!(left, now(store.runs(&RunQuery::default())).unwrap());
    for info in &left {
        let events = now(view.read(&info.run, 1, 100)).unwrap();
        assert_eq!(events.last().unwrap().hash, info.head.hash);
        let input = events[2].event.input.as_ref().unwrap();
        assert_eq!(now(view.payload(input)).unwrap().len(), 4000);
    }
    assert_eq!(now(view.head(&run("run-00"))).unwrap(), None);
    assert_eq!(view.state_digest(), store.state_digest());
}

#[test]
fn a_view_tells_a_run_from_the_one_that_had_its_name() {
    let folder = Folder::new("retention-name");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    let id = run("again");
    steps(&store, &id, 1, 100);
    append(&store, &id, Kind::RunCompleted).unwrap();
    // It has read the first one, from the segment that is being written.
    let view = small().open_read_only(folder.path()).unwrap();
    assert_eq!(now(view.read(&id, 1, 10)).unwrap().len(), 5);
    store.retire(&everything_before(2000)).unwrap();
    append(&store, &id, Kind::RunCreated).unwrap();
    let read = now(view.read(&id, 1, 10)).unwrap();
    assert_eq!(read, now(store.read(&id, 1, 10)).unwrap());
    assert_eq!(read.len(), 1);
}

#[test]
fn appends_and_reads_go_on_beside_it() {
    let folder = Folder::new("retention-beside");
    let store = Options::new()
        .segment_bytes(64 << 10)
        .open(folder.path())
        .unwrap();
    let going_on = run("going on");
    steps(&store, &going_on, 1, 3000);
    std::thread::scope(|scope| {
        let done = Arc::new(AtomicU64::new(0));
        for worker in 0..2 {
            let (store, done) = (store.clone(), Arc::clone(&done));
            scope.spawn(move || {
                for n in 0..60 {
                    let id = run(&format!("{worker}-{n}"));
                    steps(&store, &id, 2, 3000);
                    append(&store, &id, Kind::RunCompleted).unwrap();
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let reader = (store.clone(), Arc::clone(&done));
        let going_on = going_on.clone();
        scope.spawn(move || {
            while reader.1.load(Ordering::Relaxed) < 2 {
                let events = now(reader.0.read(&going_on, 1, 100)).unwrap();
                assert_eq!(events.len(), 4);
                let input = events[2].event.input.as_ref().unwrap();
                assert_eq!(now(reader.0.payload(input)).unwrap().len(), 3000);
                now(reader.0.runs(&RunQuery::default())).unwrap();
                assert_eq!(now(reader.0.head(&run("nobody"))).unwrap(), None);
            }
        });
        while done.load(Ordering::Relaxed) < 2 {
            store.retire(&everything_before(u64::MAX)).unwrap();
        }
    });
    store.retire(&everything_before(u64::MAX)).unwrap();
    let runs = now(store.runs(&RunQuery::default())).unwrap();
    assert_eq!(runs.len(), 1);
    store.close().unwrap();
    let report = Options::new().verify(folder.path()).unwrap();
    assert!(report.is_sound(), "{report}");
}

#[test]
fn an_archive_can_be_anywhere() {
    let folder = Folder::new("retention-into");
    let clock = Arc::new(AtomicU64::new(1000));
    let store = open(&folder, &clock);
    let old = run("old");
    steps(&store, &old, 3, 4000);
    append(&store, &old, Kind::RunCompleted).unwrap();
    let elsewhere = folder.path().join("elsewhere/kept");
    let retired = store
        .retire_into(&everything_before(u64::MAX), &elsewhere)
        .unwrap();
    assert_eq!(retired.runs, std::slice::from_ref(&old));
    assert_eq!(retired.archives.len(), 1);
    assert!(retired.archives[0].starts_with(&elsewhere));
    let imported = store.import(&retired.archives[0], None).unwrap();
    assert!(imported.imported.contains_key(&old));
}
