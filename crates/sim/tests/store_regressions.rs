//! What the simulated lives of a store have found, each as the shortest story that shows it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dalsegno_sim::disk::{Fault, LoseAll, OpKind, SimDisk, errno};
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Answer, Append, Fields, Hash, Kind, LocalStore, NewEvent, NewPayload, Options, Retention,
    Store, StoreError, StreamId, field,
};

const DIR: &str = "store";
const ALL: Retention = Retention {
    ended_before_us: u64::MAX,
    archive: false,
};

fn options(disk: &SimDisk) -> Options {
    Options::new()
        .segment_bytes(32 << 10)
        .without_threads()
        .clock(|| 1)
        .fs(Arc::new(disk.clone()))
}

fn now<T>(mut answer: Answer<'_, T>) -> Result<T, StoreError> {
    let mut context = Context::from_waker(Waker::noop());
    match answer.as_mut().poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("nobody else is there to wait for"),
    }
}

fn append(store: &LocalStore, stream: &StreamId, event: NewEvent) -> Result<(), StoreError> {
    let appended = now(store.append(vec![Append::to(stream.clone(), vec![event])]))?;
    now(store.durable(appended.position))
}

fn append_all(store: &LocalStore, stream: &StreamId, kinds: &[Kind]) {
    for kind in kinds {
        append(store, stream, NewEvent::new(kind.clone())).unwrap();
    }
}

/// The power goes, and takes what was not synced.
fn lose_power(disk: &SimDisk, store: LocalStore) {
    disk.power_off_now();
    drop(store);
    disk.reboot(&mut LoseAll);
}

#[test]
fn the_marker_survives_a_failed_sync_of_its_name() {
    let disk = SimDisk::new(1);
    disk.fail_next(OpKind::SyncDir, errno::EIO);
    assert!(options(&disk).open(DIR).is_err());
    let store = options(&disk).open(DIR).unwrap();
    let run = StreamId::run("a").unwrap();
    append_all(&store, &run, &[Kind::RunCreated]);
    let marker = disk.read_file("store/store").unwrap();
    lose_power(&disk, store);
    assert_eq!(disk.read_file("store/store").unwrap(), marker);
    let store = options(&disk).open(DIR).unwrap();
    assert_eq!(now(store.read(&run, 1, 9)).unwrap().len(), 1);
}

#[test]
fn a_letter_that_comes_back_after_its_run_was_retired_is_not_taken_again() {
    // The sync may be the one that removes the letter, or an earlier one may have kept it.
    for fails in [false, true] {
        let disk = SimDisk::new(2);
        let store = options(&disk).open(DIR).unwrap();
        let run = StreamId::run("a").unwrap();
        append_all(&store, &run, &[Kind::RunCreated]);
        let letter = NewLetter::new(run.clone(), Kind::SignalReceived, 1);
        now(store.send(&letter)).unwrap();
        if fails {
            disk.fail_next(OpKind::SyncDir, errno::EIO);
        }
        assert_eq!(now(store.take_letters()).is_err(), fails);
        append_all(&store, &run, &[Kind::RunCompleted]);
        assert_eq!(store.retire(&ALL).unwrap().runs, [run]);
        lose_power(&disk, store);
        let store = options(&disk).open(DIR).unwrap();
        let taken = now(store.take_letters()).unwrap();
        assert!(
            taken.taken.is_empty() && taken.refused.is_empty(),
            "{taken:?}"
        );
    }
}

#[test]
fn leftovers_behind_a_letter_that_waits_are_not_taken_again() {
    let disk = SimDisk::new(3);
    let run = StreamId::run("a").unwrap();
    let letter = NewLetter::new(run.clone(), Kind::SignalReceived, 1);
    let store = options(&disk).open(DIR).unwrap();
    append_all(&store, &run, &[Kind::RunCreated]);
    now(store.send(&letter)).unwrap();
    disk.fail_next(OpKind::Remove, errno::EIO);
    assert!(now(store.take_letters()).is_err());
    // Other senders, whose letters come before and after by name.
    for _ in 0..8 {
        let mailbox = Path::new("store/mailbox");
        let outbox = dalsegno_store::mailbox::Outbox::open(Arc::new(disk.clone()), mailbox);
        outbox.unwrap().send(letter.clone()).unwrap();
    }
    append_all(&store, &run, &[Kind::RunCompleted]);
    store.retire(&ALL).unwrap();
    // All of them are for a run that is gone; but only those that waited are refused.
    assert_eq!(now(store.take_letters()).unwrap().refused.len(), 8);
}

#[test]
fn a_view_that_saw_a_run_begin_sees_the_next_one_of_its_name() {
    let disk = SimDisk::new(4);
    let store = options(&disk).open(DIR).unwrap();
    let run = StreamId::run("a").unwrap();
    append_all(&store, &run, &[Kind::RunCreated, Kind::RunStarted]);
    let view = options(&disk).open_read_only(DIR).unwrap();
    assert_eq!(now(view.read(&run, 1, 9)).unwrap().len(), 2);
    append_all(&store, &run, &[Kind::RunCompleted]);
    store.retire(&ALL).unwrap();
    append_all(&store, &run, &[Kind::RunCreated]);
    assert_eq!(
        now(view.read(&run, 1, 9)).unwrap(),
        now(store.read(&run, 1, 9)).unwrap()
    );
    assert_eq!(
        now(view.head(&run)).unwrap(),
        now(store.head(&run)).unwrap()
    );
    assert_eq!(view.state_digest(), store.state_digest());
}

#[test]
fn a_run_that_is_being_removed_cannot_be_read() {
    let disk = SimDisk::new(5);
    let store = options(&disk).open(DIR).unwrap();
    let run = StreamId::run("a").unwrap();
    append_all(&store, &run, &[Kind::RunCreated, Kind::RunCompleted]);
    store.seal().unwrap();
    // Its space cannot be made free for now.
    disk.fail_next(OpKind::Rename, errno::EIO);
    assert!(store.retire(&ALL).is_err());
    assert_eq!(now(store.head(&run)).unwrap(), None);
    assert!(now(store.read(&run, 1, 9)).unwrap().is_empty());
}

#[test]
fn an_interrupted_retention_is_no_damage() {
    let mut interrupted = 0;
    for cut in 0..160 {
        let disk = SimDisk::new(6);
        let store = options(&disk).open(DIR).unwrap();
        let run = StreamId::run("a").unwrap();
        let created = Fields::new().with(field::AGENT, "buyer");
        append(
            &store,
            &run,
            NewEvent::new(Kind::RunCreated).with_fields(created),
        )
        .unwrap();
        store.seal().unwrap();
        append_all(&store, &run, &[Kind::RunStarted, Kind::RunCompleted]);
        store.seal().unwrap();
        disk.crash_at(disk.ops() + cut);
        drop(store.retire(&ALL));
        interrupted += u64::from(disk.crashed());
        lose_power(&disk, store);
        let report = options(&disk).verify(DIR).unwrap();
        assert!(report.is_sound(), "cut at {cut}: {:?}", report.problems);
    }
    assert!(interrupted > 50, "only {interrupted}");
}

#[test]
fn a_full_disk_keeps_nobody_from_reading() {
    let disk = SimDisk::new(7);
    let store = options(&disk).open(DIR).unwrap();
    let run = StreamId::run("a").unwrap();
    append_all(&store, &run, &[Kind::RunCreated]);
    let step = NewEvent::new(Kind::StepIntended).with_input(NewPayload::json("x".repeat(5000)));
    append(&store, &run, step).unwrap();
    store.seal().unwrap();
    store.close().unwrap();
    drop(store);
    dalsegno_log::fs::Fs::remove(&disk, Path::new("store/index/0000000000000001.index")).unwrap();
    disk.set_capacity(Some(disk.used()));
    let store = options(&disk).open(DIR).unwrap();
    assert_eq!(now(store.read(&run, 1, 9)).unwrap().len(), 2);
}

#[test]
fn a_token_that_none_can_follow_is_refused() {
    let disk = SimDisk::new(8);
    let store = options(&disk).open(DIR).unwrap();
    let run = StreamId::run("a").unwrap();
    append_all(&store, &run, &[Kind::RunCreated]);
    let fields = Fields::new()
        .with(field::OWNER, "w")
        .with(field::TOKEN, u64::MAX);
    let taken = append(
        &store,
        &run,
        NewEvent::new(Kind::LeaseTaken).with_fields(fields),
    );
    assert!(
        matches!(taken, Err(StoreError::Refused { .. })),
        "{taken:?}"
    );
    assert_eq!(now(store.take_lease(&run, "w", 1)).unwrap().token, 1);
}

#[test]
fn a_memory_is_no_run() {
    let disk = SimDisk::new(9);
    let store = options(&disk).open(DIR).unwrap();
    let memory = StreamId::memory("a").unwrap();
    let created = append(&store, &memory, NewEvent::new(Kind::RunCreated));
    assert!(
        matches!(created, Err(StoreError::Refused { .. })),
        "{created:?}"
    );
}

/// A store with one letter that waits; and the letter's file.
fn with_a_letter(seed: u64) -> (SimDisk, String) {
    let disk = SimDisk::new(seed);
    let store = options(&disk).open(DIR).unwrap();
    let run = StreamId::run("a").unwrap();
    append_all(&store, &run, &[Kind::RunCreated]);
    let letter = NewLetter::new(run, Kind::SignalReceived, 1);
    now(store.send(&letter)).unwrap();
    store.close().unwrap();
    drop(store);
    let [file] = &disk.files("store/mailbox")[..] else {
        panic!("one letter");
    };
    (disk.snapshot(), format!("store/mailbox/{file}"))
}

#[test]
fn repair_leaves_a_letter_that_cannot_be_read_for_a_moment() {
    let (base, file) = with_a_letter(10);
    for op in 0.. {
        let disk = base.snapshot();
        let at = disk.ops() + op;
        disk.fail_at(at, Fault::Broken);
        drop(options(&disk).repair(DIR));
        assert!(disk.file_len(&file).is_ok(), "{:?}", disk.files(DIR));
        if disk.ops() <= at {
            assert!(op > 20, "only {op}");
            return;
        }
    }
}

#[test]
fn repair_leaves_a_letter_from_a_newer_version() {
    let (disk, file) = with_a_letter(11);
    let mut bytes = disk.read_file(&file).unwrap();
    let end = bytes.len() - 32;
    bytes[16] = 2;
    let hash = Hash::of(&bytes[..end]);
    bytes[end..].copy_from_slice(hash.as_bytes());
    disk.write_raw(&file, &bytes).unwrap();
    let repair = options(&disk).repair(DIR).unwrap();
    assert!(repair.actions.is_empty(), "{:?}", repair.actions);
    assert_eq!(disk.read_file(&file).unwrap(), bytes);
}

#[test]
fn an_index_of_a_segment_that_is_longer_again_is_no_damage() {
    let mut longer = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let store = options(&disk).open(DIR).unwrap();
        let run = StreamId::run("a").unwrap();
        append_all(&store, &run, &[Kind::RunCreated]);
        // That of the next segment succeeds, that of the seal does not.
        disk.fail_nth(OpKind::Sync, 1, errno::EIO);
        assert!(store.seal().is_err());
        disk.restart_process();
        drop(store);
        // The cache may show the file cut off behind its seal, and then it gets its index.
        let store = options(&disk).open(DIR).unwrap();
        store.seal().unwrap();
        let first = "store/log/0000000000000001.seg";
        let bytes = disk.file_len(first).unwrap();
        lose_power(&disk, store);
        longer += u64::from(disk.file_len(first).unwrap() > bytes);
        let report = options(&disk).verify(DIR).unwrap();
        assert!(report.is_sound(), "seed {seed}: {report}");
    }
    assert!(longer > 3, "only {longer}");
}
