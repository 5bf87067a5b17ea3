//! Finished runs that are old leave the store; everything else stays.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use dalsegno_contract::world::{block_on, event, noted};
use dalsegno_pgtest::Server;
use dalsegno_postgres::{PostgresOptions, PostgresStore};
use dalsegno_store::{Append, Kind, NewPayload, Retention, Store, StreamId};

const HOUR_US: u64 = 3600 * SECOND_US;

#[test]
fn old_finished_runs_go_and_everything_else_stays() {
    let server = Server::shared();
    let url = server.url();
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let time = Arc::clone(&clock);
    let options = PostgresOptions::new().clock(move || time.load(Ordering::SeqCst));
    let store = options.open(&url).unwrap();
    let add = |run: &StreamId, events| {
        block_on(store.append(vec![Append::to(run.clone(), events)])).unwrap();
    };
    let text = |n: u64| NewPayload::json(format!("payload {n} ").repeat(2000));
    let (old, going, young) = (
        create(&store, "old"),
        create(&store, "going"),
        create(&store, "young"),
    );
    add(
        &old,
        vec![noted(1).with_output(text(1)), noted(2).with_output(text(2))],
    );
    add(&going, vec![noted(2).with_output(text(2))]);
    add(&old, vec![event(Kind::RunCompleted)]);
    clock.fetch_add(HOUR_US, Ordering::SeqCst);
    let before = clock.load(Ordering::SeqCst);
    add(
        &young,
        vec![noted(3).with_output(text(3)), event(Kind::RunFailed)],
    );
    clock.fetch_add(3 * HOUR_US, Ordering::SeqCst);
    let pieces = server.number(&url, "SELECT count(*) FROM piece");
    let retention = Retention {
        ended_before_us: before,
        archive: false,
    };
    let retired = block_on(store.retire(&retention)).unwrap();
    assert_eq!(retired.runs, std::slice::from_ref(&old));
    assert!(retired.records_removed > 4, "{retired:?}");
    let left = server.number(&url, "SELECT count(*) FROM piece");
    assert!(left < pieces, "{left} of {pieces}");
    assert_eq!(block_on(store.head(&old)).unwrap(), None);
    for (run, at) in [(&going, 1), (&young, 1)] {
        let events = all(&store, run);
        let output = events[at].event.output.as_ref().unwrap();
        let number = events[at].event.fields.number(1).unwrap();
        assert_eq!(block_on(store.payload(output)).unwrap(), text(number).bytes);
    }
    // The store says so, and the name is free again.
    let told = all(&store, &StreamId::store());
    assert_eq!(told[0].event.kind, Kind::RunsRetired);
    create(&store, "old");
    assert!(block_on(store.retire(&retention)).unwrap().runs.is_empty());
    let archive = Retention {
        archive: true,
        ..retention
    };
    assert!(block_on(store.retire(&archive)).is_err());
}

/// A store with a clock of its own, whose pieces nobody has touched for hours.
fn with_clock(url: &str) -> (PostgresStore, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let time = Arc::clone(&clock);
    let options = PostgresOptions::new().clock(move || time.load(Ordering::SeqCst));
    (options.open(url).unwrap(), clock)
}

/// Lets a run end, and go some hours later.
fn retire_one(store: &PostgresStore, clock: &AtomicU64, run: &StreamId) {
    let end = Append::to(run.clone(), vec![event(Kind::RunCompleted)]);
    block_on(store.append(vec![end])).unwrap();
    clock.fetch_add(5 * HOUR_US, Ordering::SeqCst);
    let retention = Retention {
        ended_before_us: clock.load(Ordering::SeqCst) - HOUR_US,
        archive: false,
    };
    let retired = block_on(store.retire(&retention)).unwrap();
    assert_eq!(retired.runs, std::slice::from_ref(run));
}

#[test]
fn what_a_letter_refers_to_stays_until_it_is_taken_up() {
    let server = Server::shared();
    let url = server.url();
    let (store, clock) = with_clock(&url);
    let (old, held) = (create(&store, "old"), create(&store, "held"));
    take(&store, &held, "a worker", HOUR_US);
    // Somebody else says something large to the run while a worker has it.
    let time = Arc::clone(&clock);
    let options = PostgresOptions::new().clock(move || time.load(Ordering::SeqCst));
    let other = options.open(&url).unwrap();
    let large = NewPayload::json("large ".repeat(5000));
    let said = noted(1).with_output(large.clone());
    block_on(other.append(vec![Append::to(held.clone(), vec![said])])).unwrap();
    assert_eq!(server.number(&url, "SELECT count(*) FROM letter"), 1);
    retire_one(&store, &clock, &old);
    let report = block_on(store.verify(|_| ())).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(block_on(other.take_letters()).unwrap().taken.len(), 1);
    let events = all(&other, &held);
    let output = events.last().unwrap().event.output.clone().unwrap();
    assert_eq!(block_on(other.payload(&output)).unwrap(), large.bytes);
}

/// A machine that slept: for the process no time has passed, for the database hours have.
#[test]
fn a_piece_that_went_while_the_machine_slept_is_stored_again() {
    let server = Server::shared();
    let url = server.url();
    let (store, clock) = with_clock(&url);
    let (old, next) = (create(&store, "old"), create(&store, "next"));
    let large = NewPayload::json("large ".repeat(5000));
    let say = |run: &StreamId| {
        let said = noted(1).with_output(large.clone());
        block_on(store.append(vec![Append::to(run.clone(), vec![said])])).unwrap();
    };
    say(&old);
    retire_one(&store, &clock, &old);
    say(&next);
    let events = all(&store, &next);
    let output = events.last().unwrap().event.output.clone().unwrap();
    assert_eq!(block_on(store.payload(&output)).unwrap(), large.bytes);
}
