//! Runs, memories and whole stores go from one store to another in one file, and arrive as they
//! were or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;

use std::collections::BTreeSet;

use dalsegno_store::portable::verify_portable;
use dalsegno_store::{
    Export, Fields, Kind, LocalStore, NewEvent, RunQuery, Status, Store, StoreError, StreamId,
    StreamKind, transfer,
};
use local::*;

fn open(folder: &Folder) -> LocalStore {
    small().open(folder.path()).unwrap()
}

fn only(stream: &StreamId) -> Export {
    Export::Streams(BTreeSet::from([stream.clone()]))
}

/// Both stores have the same of a stream, payloads included.
fn assert_same(a: &LocalStore, b: &LocalStore, stream: &StreamId) {
    let (left, right) = (now(a.read(stream, 1, 1000)), now(b.read(stream, 1, 1000)));
    let (left, right) = (left.unwrap(), right.unwrap());
    assert_eq!(left, right);
    assert!(!left.is_empty());
    for recorded in &left {
        for payload in recorded.event.payloads() {
            let (a, b) = (now(a.payload(payload)), now(b.payload(payload)));
            assert_eq!(a.unwrap(), b.unwrap());
        }
    }
}

fn refused(result: Result<impl std::fmt::Debug, StoreError>) -> String {
    match result.unwrap_err() {
        e @ StoreError::Refused { .. } => e.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_run_arrives_as_it_was() {
    let (here, there) = (Folder::new("transfer-a"), Folder::new("transfer-b"));
    let (a, b) = (open(&here), open(&there));
    let id = run("order-1");
    steps(&a, &id, 6, 5000);
    let file = here.path().join("run.dalsegno");
    let report = a.export(&only(&id), &file).unwrap();
    let head = now(a.head(&id)).unwrap().unwrap();
    assert_eq!(report.streams[&id], head);
    assert_eq!(
        verify_portable(std::fs::File::open(&file).unwrap()).unwrap(),
        report
    );
    let mut bytes = Vec::new();
    a.export_to(&only(&id), &mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, report.bytes);

    let imported = b.import(&file, None).unwrap();
    assert_eq!(imported.imported[&id], head);
    assert_same(&a, &b, &id);
    // It is recorded where it came from.
    let own = now(b.read(&StreamId::store(), 1, 10)).unwrap();
    assert_eq!(own[0].event.kind, Kind::Imported);
    assert_eq!(
        own[0].event.fields.bytes(4),
        Some(&head.hash.as_bytes()[..])
    );
    // Again: nothing to do. After that it goes on in either store.
    let position = now(b.position()).unwrap();
    assert_eq!(
        b.import(&file, None).unwrap().present,
        std::slice::from_ref(&id)
    );
    assert_eq!(now(b.position()).unwrap(), position);
    append(&b, &id, Kind::RunCompleted).unwrap();
    assert_eq!(b.import(&file, None).unwrap().present, [id]);
}

#[test]
fn under_another_name_it_is_another_run() {
    let (here, there) = (Folder::new("rename-a"), Folder::new("rename-b"));
    let (a, b) = (open(&here), open(&there));
    let (id, copy) = (run("order-1"), run("copy"));
    steps(&a, &id, 2, 3000);
    append(&a, &id, Kind::RunFailed).unwrap();
    let file = here.path().join("run.dalsegno");
    a.export(&only(&id), &file).unwrap();
    b.import(&file, Some(&copy)).unwrap();
    let (left, right) = (now(a.read(&id, 1, 99)), now(b.read(&copy, 1, 99)));
    let (left, right) = (left.unwrap(), right.unwrap());
    assert_eq!(left.len(), right.len());
    assert_ne!(left[0].hash, right[0].hash);
    let runs = now(b.runs(&RunQuery::default())).unwrap();
    assert_eq!((runs.len(), runs[0].status), (1, Status::Failed));
    // Into the same store beside the original, and not onto one that is there.
    a.import(&file, Some(&copy)).unwrap();
    assert!(refused(a.import(&file, Some(&copy))).contains("of this name"));
    let memory = StreamId::memory("m").unwrap();
    assert!(refused(a.import(&file, Some(&memory))).contains("run/order-1"));
}

#[test]
fn a_memory_is_continued_and_another_history_is_refused() {
    let (here, there) = (Folder::new("memory-a"), Folder::new("memory-b"));
    let (a, b) = (open(&here), open(&there));
    let memory = StreamId::memory("facts").unwrap();
    let fact = |n: u64| NewEvent::new(Kind::FactConfirmed).with_input(payload(n, 2000));
    let (first, second) = (here.path().join("1"), here.path().join("2"));
    append_with(&a, &memory, fact(1)).unwrap();
    a.export(&only(&memory), &first).unwrap();
    append_with(&a, &memory, fact(2)).unwrap();
    a.export(&only(&memory), &second).unwrap();
    b.import(&first, None).unwrap();
    assert_eq!(b.import(&second, None).unwrap().events, 1);
    assert_same(&a, &b, &memory);
    // An old file adds nothing.
    assert_eq!(
        b.import(&first, None).unwrap().present,
        std::slice::from_ref(&memory)
    );
    append_with(&b, &memory, fact(3)).unwrap();
    append_with(&a, &memory, fact(4)).unwrap();
    a.export(&only(&memory), &second).unwrap();
    let position = now(b.position()).unwrap();
    assert!(refused(b.import(&second, None)).contains("event 3 is another"));
    assert_eq!(now(b.position()).unwrap(), position);
}

#[test]
fn a_whole_store_arrives_and_its_own_events_stay() {
    let (here, there) = (Folder::new("whole-a"), Folder::new("whole-b"));
    let a = open(&here);
    for n in 0..12 {
        let id = run(&format!("run-{n}"));
        steps(&a, &id, 3, 4000);
        if n % 2 == 0 {
            append(&a, &id, Kind::RunCompleted).unwrap();
        }
    }
    a.close().unwrap();
    let a = open(&here);
    let file = here.path().join("all.dalsegno");
    let report = a.export(&Export::Store, &file).unwrap();
    let b = open(&there);
    let imported = b.import(&file, None).unwrap();
    assert_eq!(imported.imported.len(), 12);
    assert_eq!(imported.left_out.len(), report.streams.len() - 12);
    let all = now(a.streams(StreamKind::Run, None, 0)).unwrap();
    assert_eq!(all, now(b.streams(StreamKind::Run, None, 0)).unwrap());
    for (stream, _) in &all {
        assert_same(&a, &b, stream);
    }
    b.close().unwrap();
    let report = small().verify(there.path()).unwrap();
    assert!(report.is_sound(), "{report}");
}

#[test]
fn of_a_damaged_file_nothing_arrives() {
    let (here, there) = (Folder::new("damaged-a"), Folder::new("damaged-b"));
    let (a, b) = (open(&here), open(&there));
    let id = run("order-1");
    steps(&a, &id, 2, 2000);
    let file = here.path().join("run.dalsegno");
    a.export(&only(&id), &file).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let position = now(b.position()).unwrap();
    for at in (0..bytes.len()).step_by(97) {
        let mut other = bytes.clone();
        other[at] ^= 1;
        std::fs::write(&file, other).unwrap();
        let error = b.import(&file, None).unwrap_err();
        assert!(matches!(error, StoreError::Portable(_)), "{error}");
    }
    assert_eq!(now(b.position()).unwrap(), position);
    let missing = a
        .export(&only(&run("nobody")), &here.path().join("x"))
        .unwrap_err();
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing}");
    assert!(!here.path().join("x").exists());
}

#[test]
fn what_is_too_large_for_one_append_is_refused_with_the_limit() {
    let (here, there) = (Folder::new("large-a"), Folder::new("large-b"));
    let (a, b) = (open(&here), open(&there));
    let id = run("long");
    append(&a, &id, Kind::RunCreated).unwrap();
    for n in 0..60 {
        let fields = Fields::new().with(1, "x".repeat(500).as_str()).with(2, n);
        append_with(
            &a,
            &id,
            NewEvent::new(Kind::StepIntended).with_fields(fields),
        )
        .unwrap();
    }
    let file = here.path().join("run.dalsegno");
    a.export(&only(&id), &file).unwrap();
    let error = b.import(&file, None).unwrap_err();
    assert!(
        matches!(error, StoreError::TooLarge { limit: 24_576, .. }),
        "{error}"
    );
    let roomy = Folder::new("large-c");
    let c = small().segment_bytes(1 << 20).open(roomy.path()).unwrap();
    c.import(&file, None).unwrap();
    assert_same(&a, &c, &id);
}

/// A memory grows for years, and nobody drives it: so it is taken in parts.
#[test]
fn a_memory_that_is_too_large_for_one_append_arrives_in_parts() {
    let (here, there) = (Folder::new("parts-a"), Folder::new("parts-b"));
    let (a, b) = (open(&here), open(&there));
    let memory = StreamId::memory("facts").unwrap();
    let fact = |n: u64| {
        let fields = Fields::new().with(1, "x".repeat(500).as_str()).with(2, n);
        let fact = NewEvent::new(Kind::FactConfirmed).with_fields(fields);
        fact.with_input(payload(n, 2000))
    };
    let files = [here.path().join("1"), here.path().join("2")];
    for (file, facts) in files.iter().zip([0..100, 100..300]) {
        for n in facts {
            append_with(&a, &memory, fact(n)).unwrap();
        }
        a.export(&only(&memory), file).unwrap();
    }
    assert_eq!(b.import(&files[0], None).unwrap().events, 100);
    let report = b.import(&files[1], None).unwrap();
    assert_eq!(report.events, 200);
    assert_eq!(
        report.imported[&memory],
        now(a.head(&memory)).unwrap().unwrap()
    );
    assert_same(&a, &b, &memory);
    b.close().unwrap();
    let report = small().verify(there.path()).unwrap();
    assert!(report.is_sound(), "{report}");
    // Under another name nobody could go on with a part of it.
    let b = open(&there);
    let other = StreamId::memory("others").unwrap();
    let error = b.import(&files[1], Some(&other)).unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    assert_eq!(now(b.head(&other)).unwrap(), None);
}

/// What was interrupted while it was read again is read again by the next try, which has nothing to
/// write.
#[test]
fn a_copy_that_was_interrupted_while_it_was_compared_is_compared_again() {
    let (from, to) = (Folder::new("copy-from"), Folder::new("copy-to"));
    let (source, target) = (open(&from), open(&to));
    steps(&source, &run("order"), 20, 100);
    let copy = |last: u64| {
        let mut compared = 0;
        let mut go_on = |at: transfer::Copying| {
            compared = compared.max(at.verified);
            compared < last
        };
        let copied = now(transfer::copy(&source, &target, false, &mut go_on));
        (copied.is_ok(), compared)
    };
    let (copied, compared) = copy(1);
    assert!(!copied && compared > 0, "{copied} {compared}");
    let (copied, again) = copy(u64::MAX);
    assert!(copied);
    assert_eq!(again, compared);
}
