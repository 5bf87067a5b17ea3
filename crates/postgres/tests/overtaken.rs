//! Two handles and one run: who was overtaken cannot write, and who does not hold it says it by
//! letter.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::*;
use dalsegno_contract::world::{block_on, event, noted};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresOptions;
use dalsegno_store::{Append, Kind, NewPayload, Store, StoreError};

fn assert_fenced(error: &StoreError, token: u64) {
    match error {
        StoreError::Fenced { token: found, .. } => assert_eq!(*found, token),
        other => panic!("{other}"),
    }
}

#[test]
fn a_worker_that_was_overtaken_is_refused_by_the_database() {
    let server = Server::shared();
    let url = server.url();
    let (first, second) = (open(&url), open(&url));
    let order = create(&first, "order");
    let token = take(&first, &order, "first", 1);
    let other = create(&first, "other");
    let other_token = take(&first, &other, "first", 60 * SECOND_US);
    // Its time is over, by the clock of the database.
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(take(&second, &order, "second", 60 * SECOND_US), token + 1);
    append_under(&second, &order, token + 1, noted(1)).unwrap();
    // The first one does not know it yet: it is told when it asks whether that is durable.
    let append = Append::to(order.clone(), vec![noted(2)]).under(token);
    let appended = block_on(first.append(vec![append.clone()])).unwrap();
    let beside = Append::to(other.clone(), vec![noted(3)]).under(other_token);
    let beside = block_on(first.append(vec![beside])).unwrap();
    assert_fenced(
        &block_on(first.durable(appended.position)).unwrap_err(),
        token,
    );
    // And from then on, always.
    assert_fenced(
        &block_on(first.durable(appended.position)).unwrap_err(),
        token,
    );
    assert_fenced(&block_on(first.append(vec![append])).unwrap_err(), token);
    let renewed = block_on(first.renew_lease(&order, token, SECOND_US));
    assert_fenced(&renewed.unwrap_err(), token);
    // The runs beside it are not disturbed.
    block_on(first.durable(beside.position)).unwrap();
    append_under(&first, &other, other_token, noted(4)).unwrap();
    let events = all(&second, &order);
    assert_eq!(events.len(), 4);
    assert_eq!(events[3].event.fields.number(1), Some(1));
    assert_eq!(all(&first, &order), events);
    assert_eq!(all(&second, &other).len(), 4);
}

#[test]
fn a_lease_that_ran_out_is_lost_when_another_writes_without_taking_it() {
    let server = Server::shared();
    let url = server.url();
    let (holder, other) = (open(&url), open(&url));
    let order = create(&holder, "order");
    let token = take(&holder, &order, "holder", 1);
    std::thread::sleep(Duration::from_millis(5));
    let append = Append::to(order.clone(), vec![noted(1)]);
    block_on(other.append(vec![append])).unwrap();
    assert_fenced(
        &append_under(&holder, &order, token, noted(2)).unwrap_err(),
        token,
    );
    // Its own token is still the newest, and yet nothing is taken under it: something was lost.
    assert_fenced(
        &append_under(&holder, &order, token, noted(3)).unwrap_err(),
        token,
    );
    assert_eq!(take(&holder, &order, "holder", SECOND_US), token + 1);
    append_under(&holder, &order, token + 1, noted(4)).unwrap();
    let numbers: Vec<_> = all(&other, &order)
        .iter()
        .filter_map(|e| match e.event.kind {
            Kind::User(_) => e.event.fields.number(1),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [1, 4]);
}

#[test]
fn what_others_append_to_a_held_run_comes_through_its_holder() {
    let server = Server::shared();
    let url = server.url();
    let (holder, other) = (open(&url), open(&url));
    let order = create(&holder, "order");
    let parent = create(&other, "parent");
    let token = take(&holder, &order, "holder", 60 * SECOND_US);
    let large = NewPayload::json("paid ".repeat(1000));
    let batch = vec![
        Append::to(parent.clone(), vec![noted(1)]),
        Append::to(
            order.clone(),
            vec![
                event(Kind::SignalReceived).with_input(large.clone()),
                noted(2),
            ],
        ),
    ];
    // The holder has answered with a place already.
    let append = Append::to(order.clone(), vec![noted(3)]).under(token);
    let promised = block_on(holder.append(vec![append])).unwrap();
    let appended = block_on(other.append(batch)).unwrap();
    block_on(other.durable(appended.position)).unwrap();
    assert_eq!(
        appended.heads[0].sequence, 2,
        "of the run that nobody holds"
    );
    // Others cannot take it up as long as the lease lives.
    assert_eq!(block_on(other.take_letters()).unwrap(), Default::default());
    block_on(holder.durable(promised.position)).unwrap();
    let taken = block_on(holder.take_letters()).unwrap();
    let places: Vec<u64> = taken
        .taken
        .iter()
        .map(|(_, event)| event.sequence)
        .collect();
    assert_eq!(places, [4, 5]);
    append_under(&holder, &order, token, noted(5)).unwrap();
    let events = all(&other, &order);
    assert_eq!(promised.heads[0].hash, events[2].hash);
    assert_eq!(events[3].event.kind, Kind::SignalReceived);
    let input = events[3].event.input.clone().unwrap();
    assert_eq!(block_on(other.payload(&input)).unwrap(), large.bytes);
    assert_eq!(events.len(), 6);
    assert_eq!(block_on(holder.take_letters()).unwrap(), Default::default());
    // Where the stream is, only the holder knows.
    let expecting = Append::to(order.clone(), vec![noted(6)]).expecting(6);
    let error = block_on(other.append(vec![expecting])).unwrap_err();
    assert!(matches!(error, StoreError::Held { .. }), "{error}");
    // What the run cannot take is refused at once.
    let again = Append::to(order.clone(), vec![event(Kind::RunCreated)]);
    let error = block_on(other.append(vec![again])).unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

#[test]
fn letters_for_a_run_whose_holder_is_gone_are_taken_by_others() {
    let server = Server::shared();
    let url = server.url();
    let (holder, other) = (open(&url), open(&url));
    let order = create(&holder, "order");
    take(&holder, &order, "holder", 60 * SECOND_US);
    let said = Append::to(order.clone(), vec![noted(1)]);
    block_on(other.append(vec![said])).unwrap();
    assert_eq!(all(&other, &order).len(), 2);
    holder.close().unwrap();
    let taken = block_on(other.take_letters()).unwrap().taken;
    assert_eq!(taken.len(), 1);
    assert_eq!(all(&other, &order).len(), 3);
}

#[test]
fn a_change_of_another_handle_is_heard_and_seen() {
    let server = Server::shared();
    for poll_every in [Duration::from_secs(3600), Duration::from_millis(20)] {
        let url = server.url();
        let watching = PostgresOptions::new().poll_every(poll_every);
        let watching = watching.open(&url).unwrap();
        let other = open(&url);
        let order = create(&other, "order");
        let token = take(&other, &order, "other", 60 * SECOND_US);
        if poll_every > Duration::from_secs(1) {
            // Heard: a new run concerns others.
            watching.wait_until_it_listens();
            let before = block_on(watching.position()).unwrap();
            create(&other, "another");
            assert!(block_on(watching.changed(before)).unwrap() > before);
        } else {
            // Seen: what a worker does to its own run is not said.
            let mut follow = dalsegno_store::Follow::new(&watching, order.clone(), 3);
            append_under(&other, &order, token, noted(7)).unwrap();
            assert_eq!(block_on(follow.next()).unwrap().len(), 1);
        }
    }
}

/// Who asks for more time and is refused knows from then on that the run is another's.
#[test]
fn who_cannot_renew_reads_what_others_have_written() {
    let server = Server::shared();
    let url = server.url();
    let (first, second) = (open(&url), open(&url));
    let order = create(&first, "order");
    let token = take(&first, &order, "first", 1);
    let taken = take(&second, &order, "second", 60 * SECOND_US);
    let last = append_under(&second, &order, taken, event(Kind::RunStarted)).unwrap();
    let refused = block_on(first.renew_lease(&order, token, 60 * SECOND_US)).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    let head = block_on(first.head(&order)).unwrap().unwrap();
    assert_eq!(head.sequence, last);
    append_under(&first, &order, token, noted(1)).unwrap_err();
}
