//! What is too large is refused, with its size and the limit, and the run goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use dalsegno_store::{
    Fields, Kind, Limits, LocalStore, NameError, NewEvent, NewPayload, Options, StoreError,
    StreamId,
};

mod common;
use common::local::{Folder, all, append, noted, run, try_append};

fn store(folder: &Folder) -> (LocalStore, StreamId) {
    let limits = Limits {
        payload_bytes: 10_000,
        event_bytes: 4000,
        batch_events: 5,
        letter_bytes: 2000,
    };
    let options = Options::new().limits(limits).segment_bytes(32 << 10);
    let store = options.open(folder.store()).unwrap();
    let order = run("order");
    append(&store, &order, vec![NewEvent::new(Kind::RunCreated)]);
    (store, order)
}

/// Refused for its size, and nothing was written; what is just not too large is taken.
fn check(name: &str, limit: u64, size: u64, good: Vec<NewEvent>, bad: Vec<NewEvent>) {
    let folder = Folder::new("limits");
    let (store, order) = store(&folder);
    let error = try_append(&store, &order, bad).unwrap_err();
    match &error {
        StoreError::TooLarge {
            what,
            size: found,
            limit: l,
        } => assert_eq!((*what, *found, *l), (name, size, limit)),
        other => panic!("{other}"),
    }
    let text = error.to_string();
    for part in [name, &size.to_string(), &limit.to_string()] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(all(&store, &order).len(), 1);
    append(&store, &order, good.clone());
    assert_eq!(all(&store, &order).len(), 1 + good.len());
}

fn payload(bytes: usize) -> NewPayload {
    NewPayload::new("text/plain", vec![7; bytes])
}

#[test]
fn a_payload() {
    let with = |bytes| vec![noted(1).with_output(payload(bytes))];
    check("a payload", 10_000, 10_001, with(10_000), with(10_001));
}

#[test]
fn a_content_type() {
    let with = |bytes| {
        let payload = NewPayload::new("x".repeat(bytes), "");
        vec![noted(1).with_input(payload)]
    };
    check("a content type", 200, 201, with(200), with(201));
}

#[test]
fn an_append_of_many_events() {
    let with = |count| (0..count).map(noted).collect::<Vec<_>>();
    check("an append of events", 5, 6, with(5), with(6));
}

#[test]
fn an_event() {
    let with =
        |bytes| vec![noted(1).with_fields(Fields::new().with(1, "x".repeat(bytes).as_str()))];
    // What an event takes beside this field.
    let folder = Folder::new("limits");
    let (store, order) = store(&folder);
    append(&store, &order, with(1000));
    let beside = all(&store, &order)[1].event.encode().len() - 1000;
    drop(store);
    let size = 4001;
    check(
        "an event",
        4000,
        size,
        with(4000 - beside),
        with(4001 - beside),
    );
}

#[test]
fn an_append_that_does_not_fit_into_a_segment() {
    let folder = Folder::new("limits");
    let options = Options::new().segment_bytes(32 << 10);
    let store = options.open(folder.store()).unwrap();
    let notes = StreamId::memory("notes").unwrap();
    let wordy = noted(1).with_fields(Fields::new().with(1, "x".repeat(8000).as_str()));
    let error = try_append(&store, &notes, vec![wordy.clone(); 4]).unwrap_err();
    assert!(
        matches!(error, StoreError::TooLarge { what: "an append", limit, .. } if limit == 24 << 10),
        "{error}"
    );
    assert!(all(&store, &notes).is_empty());
    for _ in 0..10 {
        append(&store, &notes, vec![wordy.clone(); 2]);
    }
    // An event that is not too large by the limit, but for such a segment.
    let wordier = noted(1).with_fields(Fields::new().with(1, "x".repeat(9000).as_str()));
    let error = try_append(&store, &notes, vec![wordier]).unwrap_err();
    assert!(
        matches!(error, StoreError::TooLarge { limit: 8192, .. }),
        "{error}"
    );
    assert_eq!(all(&store, &notes).len(), 20);
}

#[test]
fn a_large_payload_in_small_segments() {
    let folder = Folder::new("limits");
    let options = Options::new().segment_bytes(32 << 10);
    let store = options.open(folder.store()).unwrap();
    let notes = StreamId::memory("notes").unwrap();
    let mut random = common::Random(1);
    let bytes = random.bytes(1 << 20);
    let large = NewPayload::new("x/y", bytes.clone());
    append(&store, &notes, vec![noted(1).with_input(large)]);
    store.close().unwrap();
    let store = options.open(folder.store()).unwrap();
    let events = all(&store, &notes);
    let input = events[0].event.input.as_ref().unwrap();
    let read = common::local::block_on(dalsegno_store::Store::payload(&store, input));
    assert!(read.unwrap() == bytes);
}

#[test]
fn a_name() {
    let long = "x".repeat(201);
    let error = StreamId::run(&long).unwrap_err();
    assert_eq!(error, NameError::TooLong { bytes: 201 });
    assert!(error.to_string().contains("201") && error.to_string().contains("200"));
    let folder = Folder::new("limits");
    let (store, order) = store(&folder);
    let own = NewEvent::new(Kind::User(long));
    let error = try_append(&store, &order, vec![own]).unwrap_err();
    assert!(matches!(error, StoreError::Name(_)), "{error}");
    let longest = run(&"ü".repeat(100));
    append(&store, &longest, vec![NewEvent::new(Kind::RunCreated)]);
    store.seal().unwrap();
    assert_eq!(all(&store, &longest).len(), 1);
}

#[test]
fn a_letter() {
    let folder = Folder::new("limits");
    let (store, order) = store(&folder);
    let mut letter = dalsegno_store::mailbox::NewLetter::new(order, Kind::SignalReceived, 0);
    letter.payload = Some(("text/plain".into(), vec![7; 3000]));
    let sent = common::local::block_on(dalsegno_store::Store::send(&store, &letter));
    let text = sent.unwrap_err().to_string();
    assert!(
        text.contains("2000") && text.contains("nothing was sent"),
        "{text}"
    );
}
