//! The database goes away in the middle of the work, as in a power cut, and comes back.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use dalsegno_contract::world::{block_on, noted};
use dalsegno_pgtest::Server;
use dalsegno_store::{Append, NewPayload, Store};

/// So many runs are worked on at once.
const RUNS: usize = 6;
const OUTAGES: usize = 4;

#[test]
fn what_was_acknowledged_is_there_after_the_server_was_stopped_at_once() {
    let server = Server::start();
    let url = server.url();
    let store = open(&url);
    let stop = AtomicBool::new(false);
    let is_down = AtomicBool::new(false);
    let acknowledged: Vec<AtomicU64> = (0..RUNS).map(|_| AtomicU64::new(0)).collect();
    let held: Vec<_> = (0..RUNS)
        .map(|n| {
            let run = create(&store, &format!("r{n}"));
            let token = take(&store, &run, "worker", 600 * SECOND_US);
            (run, token)
        })
        .collect();
    std::thread::scope(|scope| {
        for ((run, token), acknowledged) in held.iter().zip(&acknowledged) {
            let (store, stop, is_down) = (&store, &stop, &is_down);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    number += 1;
                    let long = NewPayload::json(format!("{number} ").repeat(700));
                    let event = noted(number).with_output(long);
                    append_under(store, run, *token, event).unwrap();
                    assert!(
                        !is_down.load(Ordering::SeqCst),
                        "nobody was there to say so"
                    );
                    acknowledged.store(number, Ordering::SeqCst);
                }
            });
        }
        let total = || -> u64 { acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).sum() };
        let mut before = 0;
        for _ in 0..OUTAGES {
            // It goes on after each outage, without anybody doing anything.
            while total() < before + 50 {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.stop_at_once();
            // Answers that were on their way have arrived.
            std::thread::sleep(Duration::from_millis(50));
            is_down.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(150));
            is_down.store(false, Ordering::SeqCst);
            before = total();
            server.start_again();
        }
        while total() < before + 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
    store.close().unwrap();
    let store = open(&url);
    for ((run, _), acknowledged) in held.iter().zip(&acknowledged) {
        let events = all(&store, run);
        // Created, taken, and then each number once and in order.
        let numbers: Vec<_> = events[2..]
            .iter()
            .map(|e| e.event.fields.number(1).unwrap())
            .collect();
        let wanted: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, wanted);
        assert_eq!(numbers.len() as u64, acknowledged.load(Ordering::SeqCst));
    }
}

#[test]
fn appends_in_transactions_happen_once_across_outages() {
    let server = Server::start();
    let url = server.url();
    let store = open(&url);
    let streams = ["a", "b"].map(|name| dalsegno_store::StreamId::memory(name).unwrap());
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (store, stop, done, streams) = (&store, &stop, &done, &streams);
            scope.spawn(move || {
                let mut count = 0;
                while !stop.load(Ordering::SeqCst) {
                    count += 1;
                    let id = thread << 32 | count;
                    let both = streams
                        .iter()
                        .map(|stream| Append::to(stream.clone(), vec![noted(id)]))
                        .collect();
                    block_on(store.append(both)).unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..OUTAGES {
            let before = done.load(Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < before + 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.stop_at_once();
            server.start_again();
        }
        let before = done.load(Ordering::SeqCst);
        while done.load(Ordering::SeqCst) < before + 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let done = done.load(Ordering::SeqCst) as usize;
    let numbers = |stream| -> Vec<u64> {
        let events = all(&store, stream);
        events
            .iter()
            .map(|e| e.event.fields.number(1).unwrap())
            .collect()
    };
    let (a, b) = (numbers(&streams[0]), numbers(&streams[1]));
    assert_eq!(a, b, "each append is in both or in none");
    assert_eq!(a.len(), done);
    let mut once = a.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), done, "and it is there once");
}

/// A server that allows each statement only so much time undoes what takes longer, as while somebody
/// else has a row locked. It is asked again.
#[test]
fn a_statement_that_was_given_too_little_time_is_asked_again() {
    let server = Server::shared();
    let url = server.url();
    let order = create(&open(&url), "order");
    let hasty = open(&format!("{url}&options=-c%20statement_timeout%3D200"));
    std::thread::scope(|scope| {
        let (server, url) = (&server, &url);
        scope.spawn(move || {
            let lock = "BEGIN; SELECT 1 FROM stream WHERE name = 'order' FOR UPDATE; \
                        SELECT pg_sleep(2); COMMIT";
            server.sql(url, lock);
        });
        let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'BEGIN; SELECT 1 FROM \
                      stream%' AND wait_event = 'PgSleep'";
        while server.number(url, sleeps) == 0 {}
        let appended = hasty.append(vec![Append::to(order.clone(), vec![noted(1)])]);
        block_on(appended).unwrap();
    });
    assert_eq!(all(&hasty, &order).len(), 2);
}
