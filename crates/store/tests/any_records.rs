//! Whatever stands in the log, a store opens, says what it cannot read, and goes on with the rest.
//!
//! Records are written into the log directly, past all checks: garbage, events cut off or with
//! bytes changed, events out of place, kinds of newer versions, and the largest numbers there are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use dalsegno_store::engine::FORGOTTEN;
use dalsegno_store::payload;
use dalsegno_store::{
    Event, Fields, Hash, Kind, LetterRef, LocalStore, NewEvent, NewPayload, Opened, Retention,
    RunQuery, Status, Store, StreamId, StreamKind, Value, field,
};

mod common;
use common::Random;
use common::local::{
    Folder, all, append, block_on, durable, everything, memory, noted, options, run, seed,
};

const EVENT: u8 = 1;
const PIECE: u8 = 2;

/// Writes records into the log of a store, as its owner would.
fn forge(dir: &Path, records: &[Vec<u8>]) {
    let log = dalsegno_log::Options::new()
        .segment_bytes(32 << 10)
        .open(dir.join("log"))
        .unwrap();
    for record in records {
        log.append(record).unwrap();
    }
    log.close().unwrap();
}

fn record(event: &Event) -> Vec<u8> {
    [&[EVENT], &event.encode()[..]].concat()
}

fn event(stream: &StreamId, sequence: u64, kind: Kind) -> Event {
    Event::new(stream.clone(), sequence, 1, 1, kind)
}

/// A store with a run "good" that goes on, "victim" that does too, and "done" that has ended.
fn make(dir: &Path) {
    let store = options().open(dir).unwrap();
    for name in ["good", "victim", "done"] {
        append(
            &store,
            &run(name),
            vec![NewEvent::new(Kind::RunCreated), noted(1)],
        );
    }
    append(
        &store,
        &run("done"),
        vec![NewEvent::new(Kind::RunCompleted)],
    );
    append(&store, &memory("notes"), vec![noted(1)]);
    store.close().unwrap();
}

fn attention(store: &LocalStore, name: &str) -> Option<String> {
    let runs = block_on(store.runs(&RunQuery::default())).unwrap();
    let found = runs.into_iter().find(|info| info.run == run(name));
    found.and_then(|info| info.attention)
}

/// The other runs work: they are listed, read, written, held, ended; also when their history is
/// old, and after opening again.
fn check_the_rest(dir: &Path) -> (LocalStore, Opened) {
    let store = options().open(dir).unwrap();
    let opened = store.opened().clone();
    let view = options().open_read_only(dir).unwrap();
    durable(&store);
    block_on(view.position()).unwrap();
    assert_eq!(view.state_digest(), store.state_digest());
    drop(view);
    let good = run("good");
    for round in 0..2 {
        let before = all(&store, &good).len();
        let lease = block_on(store.take_lease(&good, "w", 1000)).unwrap();
        append(&store, &good, vec![noted(2)]);
        block_on(store.release_lease(&good, lease.token)).unwrap();
        append(&store, &memory("notes"), vec![noted(2)]);
        let name = format!("fresh-{round}-{before}");
        append(&store, &run(&name), vec![NewEvent::new(Kind::RunCreated)]);
        append(&store, &run(&name), vec![NewEvent::new(Kind::RunFailed)]);
        assert_eq!(all(&store, &good).len(), before + 3);
        assert_eq!(all(&store, &run(&name)).len(), 2);
        all(&store, &memory("notes"));
        let runs = block_on(store.runs(&RunQuery::default())).unwrap();
        let fresh = runs.iter().find(|info| info.run == run(&name)).unwrap();
        assert_eq!(fresh.status, Status::Failed);
        for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
            let streams = block_on(store.streams(kind, None, 0)).unwrap();
            for (stream, _) in streams {
                // Whether it can be read is its own affair; that it stops nobody is ours.
                drop(block_on(store.read(&stream, 1, 100)));
                drop(block_on(store.read(&stream, u64::MAX, 100)));
            }
        }
        block_on(store.timers_due(u64::MAX, 100)).unwrap();
        block_on(store.take_letters()).unwrap();
        store.seal().unwrap();
        assert_eq!(store.health(), None);
    }
    // What follows from the log follows from it again, with snapshots or without.
    let digest = store.state_digest();
    store.close().unwrap();
    let store = options().open(dir).unwrap();
    assert_eq!(store.state_digest(), digest);
    store.close().unwrap();
    drop(std::fs::remove_dir_all(dir.join("snapshots")));
    drop(std::fs::remove_dir_all(dir.join("index")));
    let view = options().open_read_only(dir).unwrap();
    assert_eq!(view.state_digest(), digest);
    let store = options().open(dir).unwrap();
    (store, opened)
}

/// Forges records, and expects the run "victim" to be in attention, or a notice that names each.
fn check_forged(what: &str, records: &[Vec<u8>]) {
    let folder = Folder::new("any-records");
    let dir = folder.store();
    make(&dir);
    forge(&dir, records);
    println!("{what}");
    let (store, opened) = check_the_rest(&dir);
    let named = opened.notices.iter().filter(|n| n.contains("record "));
    let attention = attention(&store, "victim");
    assert!(
        named.count() >= records.len() || attention.is_some(),
        "{what}: nobody is told of it: {opened:?}"
    );
    if !opened.notices.is_empty() {
        let told = all(&store, &StreamId::store());
        assert!(told.iter().any(|e| e.event.kind == Kind::StoreRecovered));
    }
}

#[test]
fn garbage_is_named() {
    let event = record(&event(&run("new"), 1, Kind::RunCreated));
    check_forged("an empty record", &[vec![]]);
    check_forged("a record of an unknown sort", &[vec![9, 1, 2]]);
    check_forged("a piece without a hash", &[vec![2; 20]]);
    check_forged("an event without bytes", &[vec![EVENT]]);
    check_forged("zeros", &[vec![0; 3000], vec![EVENT, 0, 0]]);
    check_forged(
        "an event with more behind it",
        &[[&event[..], &[0]].concat()],
    );
    let cut: Vec<_> = (1..event.len()).map(|n| event[..n].to_vec()).collect();
    check_forged("events that are cut off", &cut);
}

#[test]
fn an_event_of_which_only_the_place_can_be_read_stops_its_run() {
    let whole = record(&event(&run("victim"), 3, Kind::StepIntended));
    let mut longer = whole.clone();
    longer.push(0xff);
    check_forged("bytes behind the event", &[longer]);
}

/// A store with an event that cannot be read, and pieces that it may need: nobody knows.
fn with_an_event_that_cannot_be_read(dir: &Path) -> (LocalStore, Vec<Hash>) {
    make(dir);
    let pieces = payload::split(&[7; 3000], |_| false).pieces;
    let mut records: Vec<Vec<u8>> = pieces
        .iter()
        .map(|piece| [&[PIECE], &piece.hash.as_bytes()[..], &piece.bytes].concat())
        .collect();
    let mut unreadable = record(&event(&run("victim"), 3, Kind::StepIntended));
    unreadable.push(0xff);
    records.push(unreadable);
    forge(dir, &records);
    let hashes = pieces.iter().map(|piece| piece.hash).collect();
    (options().open(dir).unwrap(), hashes)
}

#[test]
fn what_an_event_needs_that_cannot_be_read_is_not_forgotten_with_something_else() {
    let folder = Folder::new("any-records");
    let (store, pieces) = with_an_event_that_cannot_be_read(&folder.store());
    let notes = memory("notes");
    let secret = NewPayload::new("x/y", b"secret".to_vec()).apart();
    let secret = NewEvent::new(Kind::FactConfirmed).with_input(secret);
    let at = append(&store, &notes, vec![secret]).heads[0].sequence;
    let fields = Fields::new().with(FORGOTTEN, Value::List(vec![Value::Number(at)]));
    let forgets = NewEvent::new(Kind::MemoryForgotten).with_fields(fields);
    let said_at = append(&store, &notes, vec![forgets]).heads[0].sequence;
    durable(&store);
    let erased = block_on(store.erase_forgotten(&notes, said_at)).unwrap();
    assert_eq!(erased, 1);
    block_on(store.pieces(&pieces)).unwrap();
}

#[test]
fn what_an_event_needs_that_cannot_be_read_does_not_go_with_an_old_run() {
    let folder = Folder::new("any-records");
    let (store, pieces) = with_an_event_that_cannot_be_read(&folder.store());
    let everything = Retention {
        ended_before_us: u64::MAX,
        archive: false,
    };
    let would_go = store.would_retire(&everything).unwrap().records;
    let retired = store.retire(&everything).unwrap();
    assert_eq!(retired.runs, [run("done")]);
    assert_eq!(retired.records_removed, would_go);
    block_on(store.pieces(&pieces)).unwrap();
}

#[test]
fn events_out_of_place_stop_their_run() {
    let victim = run("victim");
    for sequence in [0, 1, 2, 4, 5, 1 << 20, 1 << 40, u64::MAX - 1, u64::MAX] {
        for kind in [Kind::StepIntended, Kind::RunCreated, Kind::RunCompleted] {
            let event = event(&victim, sequence, kind.clone());
            check_forged(&format!("{kind} as event {sequence}"), &[record(&event)]);
        }
    }
    let two = [u64::MAX, u64::MAX].map(|sequence| event(&victim, sequence, Kind::StepFailed));
    check_forged("the last event twice", &two.map(|event| record(&event)));
    let rising = [7, 9, 100, 50, u64::MAX, 3].map(|at| event(&victim, at, Kind::StepFailed));
    let records: Vec<_> = rising.iter().map(record).collect();
    check_forged("events that jump", &records);
}

#[test]
fn events_that_make_no_sense_stop_their_run() {
    let victim = run("victim");
    for kind in [
        Kind::RunCreated,
        Kind::Unknown(0x8000),
        Kind::Unknown(u64::MAX),
        Kind::LeaseTaken,
        Kind::LeaseReleased,
        Kind::TimerSet,
        Kind::TimerFired,
    ] {
        let event = event(&victim, 3, kind.clone());
        check_forged(&kind.to_string(), &[record(&event)]);
    }
}

#[test]
fn events_after_the_end_stop_nobody_else() {
    let folder = Folder::new("any-records");
    let dir = folder.store();
    make(&dir);
    let done = run("done");
    let ends = [4, 5].map(|at| record(&event(&done, at, Kind::RunFailed)));
    let more = record(&event(&done, 6, Kind::StepIntended));
    forge(&dir, &[&ends[..], &[more]].concat());
    let (store, _) = check_the_rest(&dir);
    assert!(attention(&store, "done").is_some());
}

/// Neither does an end whose beginning, in older history, cannot be read.
#[test]
fn an_end_without_a_readable_beginning_stops_nobody_else() {
    let folder = Folder::new("any-records");
    let dir = folder.store();
    make(&dir);
    let new = run("new");
    let mut beginning = record(&event(&new, 1, Kind::RunCreated));
    beginning.push(0xff);
    forge(&dir, &[beginning]);
    let (store, _) = check_the_rest(&dir);
    store.close().unwrap();
    drop(store);
    forge(&dir, &[record(&event(&new, 2, Kind::RunCompleted))]);
    let (store, _) = check_the_rest(&dir);
    assert!(attention(&store, "new").is_some());
}

/// Only the run whose events have them may suffer from numbers that no store can go on counting
/// from.
#[test]
fn the_largest_numbers_stop_nobody_else() {
    let victim = run("victim");
    let mut clock = event(&victim, 3, Kind::StepIntended);
    clock.clock = u64::MAX;
    check_forged("the last clock", &[record(&clock)]);
    let token = Fields::new()
        .with(field::OWNER, "w")
        .with(field::TOKEN, u64::MAX)
        .with(field::UNTIL, u64::MAX);
    let mut lease = event(&victim, 3, Kind::LeaseTaken);
    lease.fields = token;
    check_forged("the last token", &[record(&lease)]);
}

#[test]
fn numbers_that_are_only_large_are_taken() {
    let folder = Folder::new("any-records");
    let dir = folder.store();
    make(&dir);
    let victim = run("victim");
    let mut late = event(&victim, 3, Kind::TimerSet);
    late.time_us = u64::MAX;
    late.fields = Fields::new()
        .with(field::TIMER, "x")
        .with(field::DUE, u64::MAX);
    let mut letter = event(&victim, 4, Kind::SignalReceived);
    letter.letter = Some(LetterRef {
        sender: "someone".into(),
        number: u64::MAX,
    });
    let mut memory = event(&victim, 5, Kind::StepIntended);
    memory.memory = Some(dalsegno_store::Version {
        sequence: u64::MAX,
        hash: Hash::ZERO,
    });
    forge(&dir, &[record(&late), record(&letter), record(&memory)]);
    let (store, opened) = check_the_rest(&dir);
    assert_eq!(opened.notices, [""; 0]);
    assert_eq!(attention(&store, "victim"), None);
    assert_eq!(block_on(store.next_timer_us()).unwrap(), Some(u64::MAX));
    assert_eq!(all(&store, &victim).len(), 5);
    append(&store, &victim, vec![noted(1)]);
}

/// The store's own events may say anything, too.
#[test]
fn the_stores_own_events_can_be_odd() {
    let own = StreamId::store();
    let folder = Folder::new("any-records");
    let dir = folder.store();
    make(&dir);
    let odd = [
        Value::Number(7),
        Value::List(vec![Value::Number(7), "no stream".into(), "run/".into()]),
        Value::List(vec!["run/never-was".into(), "store/events".into()]),
    ];
    let mut records = Vec::new();
    for (sequence, runs) in (1..).zip(odd) {
        let mut retired = event(&own, sequence, Kind::RunsRetired);
        retired.fields = Fields::new().with(field::RUNS, runs);
        records.push(record(&retired));
    }
    records.push(record(&event(&own, 4, Kind::SpaceReclaimed)));
    records.push(record(&event(&own, 5, Kind::RunCompleted)));
    forge(&dir, &records);
    let (store, _) = check_the_rest(&dir);
    store.close().unwrap();
}

/// Random records of all these sorts together.
#[test]
fn whatever_stands_in_the_log_the_store_goes_on() {
    let mut random = Random(seed());
    for _ in 0..12 {
        let folder = Folder::new("any-records");
        let dir = folder.store();
        make(&dir);
        let count = 1 + random.below(60);
        let records: Vec<_> = (0..count).map(|_| any_record(&mut random)).collect();
        forge(&dir, &records);
        let (store, _) = check_the_rest(&dir);
        store.close().unwrap();
    }
}

fn any_number(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => u64::MAX - random.below(3) as u64,
        1 => random.next() >> random.below(64),
        _ => random.below(8) as u64,
    }
}

fn any_record(random: &mut Random) -> Vec<u8> {
    let length = random.below(300);
    if random.below(6) == 0 {
        return random.bytes(length);
    }
    let names = ["victim", "done", "new", "other"];
    let stream = match random.below(6) {
        0 => memory("strange"),
        _ => run(names[random.below(names.len())]),
    };
    let kind = Kind::from_number(any_number(random) % 110);
    let mut event = event(&stream, any_number(random), kind);
    event.clock = any_number(random);
    event.time_us = any_number(random);
    let value = match random.below(3) {
        0 => Value::Number(any_number(random)),
        1 => "text".into(),
        _ => Value::List(vec![Value::Number(any_number(random)), "run/good?".into()]),
    };
    event.fields = Fields::new()
        .with(1, value)
        .with(2, any_number(random))
        .with(3, any_number(random));
    if random.below(4) == 0 {
        event.letter = Some(LetterRef {
            sender: "someone".into(),
            number: any_number(random),
        });
    }
    let mut record = record(&event);
    match random.below(5) {
        0 => record.truncate(random.below(record.len() + 1)),
        1 => {
            let at = random.below(record.len());
            record[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    record
}

/// The checks of these tests are right about a store that nobody tampered with.
#[test]
fn a_store_of_its_own_making_is_clean() {
    let folder = Folder::new("any-records");
    let dir = folder.store();
    make(&dir);
    let (store, opened) = check_the_rest(&dir);
    assert_eq!((opened.notices, opened.clean), (vec![], true));
    everything(&store);
}
