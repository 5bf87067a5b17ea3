//! Claiming: runs that may go on, each by one worker, the most urgent first.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;

use common::*;
use dalsegno_contract::world::{block_on, event, noted};
use dalsegno_pgtest::Server;
use dalsegno_postgres::{PostgresOptions, PostgresStore};
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Append, Claim, Fields, Kind, Lease, Store, StreamId, field};

fn claim(limit: usize) -> Claim {
    Claim {
        owner: "worker".into(),
        for_us: 60 * SECOND_US,
        limit,
        ..Claim::default()
    }
}

fn claimed(store: &PostgresStore, claim: &Claim) -> Vec<(StreamId, Lease)> {
    block_on(store.claim(claim)).unwrap()
}

fn names(store: &PostgresStore, claim: &Claim) -> Vec<String> {
    let runs = claimed(store, claim);
    runs.iter().map(|(run, _)| run.name().to_owned()).collect()
}

fn create_in(store: &PostgresStore, name: &str, agent: &str, queue: &str, priority: u64) {
    let mut fields = Fields::new().with(field::AGENT, agent);
    if !queue.is_empty() {
        fields = fields.with(field::QUEUE, queue);
    }
    if priority > 0 {
        fields = fields.with(field::PRIORITY, priority);
    }
    let created = event(Kind::RunCreated).with_fields(fields);
    block_on(store.append(vec![Append::to(run(name), vec![created])])).unwrap();
}

#[test]
fn the_most_urgent_come_first_and_then_the_oldest() {
    let server = Server::shared();
    let store = open(&server.url());
    for (name, priority) in [("c", 0), ("b", 5), ("a", 0), ("d", 9), ("e", 5)] {
        create_in(&store, name, "cook", "", priority);
    }
    assert_eq!(names(&store, &claim(2)), ["d", "b"]);
    assert_eq!(names(&store, &claim(10)), ["e", "c", "a"]);
    assert!(names(&store, &claim(10)).is_empty());
}

#[test]
fn only_the_wanted_queues_and_agents() {
    let server = Server::shared();
    let store = open(&server.url());
    create_in(&store, "a", "cook", "slow", 0);
    create_in(&store, "b", "cook", "", 0);
    create_in(&store, "c", "waiter", "", 0);
    create_in(&store, "d", "waiter", "fast", 0);
    let of = |agents: &[&str], queues: &[&str]| Claim {
        agents: agents.iter().map(|&a| a.into()).collect(),
        queues: queues.iter().map(|&q| q.into()).collect(),
        ..claim(10)
    };
    assert!(names(&store, &of(&["nobody"], &[])).is_empty());
    assert_eq!(names(&store, &of(&["waiter"], &["", "slow"])), ["c"]);
    assert_eq!(names(&store, &of(&[], &["slow"])), ["a"]);
    assert_eq!(names(&store, &of(&["cook", "waiter"], &[])), ["b", "d"]);
}

#[test]
fn a_claimed_run_is_held_and_comes_back_when_its_worker_is_gone() {
    let server = Server::shared();
    let url = server.url();
    let (first, second) = (open(&url), open(&url));
    let order = create(&first, "order");
    let (run, lease) = claimed(&first, &claim(1)).remove(0);
    assert_eq!((&run, lease.token, &*lease.owner), (&order, 1, "worker"));
    append_under(&first, &order, 1, event(Kind::RunStarted)).unwrap();
    assert!(claimed(&second, &claim(1)).is_empty());
    // Without a heartbeat its time ends, and it is taken over under a new token.
    server.sql(&url, "UPDATE claimable SET ready_us = 1");
    let taken = claimed(&second, &claim(1)).remove(0);
    assert_eq!((taken.0, taken.1.token), (order.clone(), 2));
    append_under(&second, &order, 2, noted(1)).unwrap();
    append_under(&first, &order, 1, noted(2)).unwrap_err();
    // A heartbeat moves the end on.
    let renewed = block_on(second.renew_leases(&[(order.clone(), 2)], 600 * SECOND_US));
    let until_us = renewed.unwrap()[0].as_ref().unwrap().until_us;
    assert!(until_us > taken.1.until_us);
    // Whoever closes hands over at once.
    second.close().unwrap();
    assert_eq!(names(&open(&url), &claim(1)), ["order"]);
}

#[test]
fn a_run_that_waits_is_claimed_when_something_comes() {
    let server = Server::shared();
    let store = open(&server.url());
    let order = create(&store, "order");
    let timer = |due_us: u64| {
        let fields = Fields::new()
            .with(field::TIMER, "t")
            .with(field::DUE, due_us);
        event(Kind::TimerSet).with_fields(fields)
    };
    let park = |events: Vec<dalsegno_store::NewEvent>| {
        let (run, lease) = claimed(&store, &claim(1)).remove(0);
        for event in events {
            append_under(&store, &run, lease.token, event).unwrap();
        }
        block_on(store.release_lease(&run, lease.token)).unwrap();
    };
    // It waits for nothing that has a time.
    park(vec![event(Kind::RunCheckpointed)]);
    assert!(claimed(&store, &claim(1)).is_empty());
    // A letter, when it is taken up.
    let said = NewLetter::new(order.clone(), Kind::SignalReceived, 0);
    block_on(store.send(&said)).unwrap();
    block_on(store.take_letters()).unwrap();
    // A timer whose time has come, and one far away.
    park(vec![timer(1), event(Kind::RunCheckpointed)]);
    park(vec![timer(u64::MAX), event(Kind::RunCheckpointed)]);
    assert!(claimed(&store, &claim(1)).is_empty());
    // An event of another.
    block_on(store.append(vec![Append::to(order.clone(), vec![noted(1)])])).unwrap();
    // A person has to look.
    park(vec![event(Kind::AttentionRaised)]);
    assert!(claimed(&store, &claim(1)).is_empty());
    let cleared = Append::to(order.clone(), vec![event(Kind::AttentionCleared)]);
    block_on(store.append(vec![cleared])).unwrap();
    // What has ended is not claimed.
    let (_, lease) = claimed(&store, &claim(1)).remove(0);
    append_under(&store, &order, lease.token, event(Kind::RunCompleted)).unwrap();
    assert!(claimed(&store, &claim(1)).is_empty());
}

/// Its holder writes it down, a letter becomes an event of it, and it is given back.
#[test]
fn what_came_just_before_a_run_was_given_back_is_not_overlooked() {
    let server = Server::shared();
    let url = server.url();
    let (store, other) = (open(&url), open(&url));
    let order = create(&store, "order");
    let (_, lease) = claimed(&store, &claim(1)).remove(0);
    append_under(&store, &order, lease.token, event(Kind::RunCheckpointed)).unwrap();
    let signal = Append::to(order.clone(), vec![event(Kind::SignalReceived)]);
    block_on(other.append(vec![signal])).unwrap();
    assert_eq!(block_on(store.take_letters()).unwrap().taken.len(), 1);
    block_on(store.release_lease(&order, lease.token)).unwrap();
    assert_eq!(names(&other, &claim(1)), ["order"]);
}

/// Its worker found that only a person can move it on, and died before it gave the run back.
#[test]
fn a_run_that_needs_a_person_is_not_claimed_when_its_worker_dies() {
    let server = Server::shared();
    let url = server.url();
    let (store, other) = (open(&url), open(&url));
    let order = create(&store, "order");
    let (_, lease) = claimed(&store, &claim(1)).remove(0);
    append_under(&store, &order, lease.token, event(Kind::AttentionRaised)).unwrap();
    server.sql(&url, "UPDATE claimable SET ready_us = 1");
    assert!(claimed(&other, &claim(1)).is_empty());
    let events = all(&other, &order).len();
    assert_eq!(events, 3, "nobody has taken it");
    let ready = "SELECT count(*) FROM claimable WHERE ready_us = 1 OR token IS NOT NULL";
    assert_eq!(
        server.number(&url, ready),
        0,
        "nor will it be looked at again"
    );
    let cleared = Append::to(order.clone(), vec![event(Kind::AttentionCleared)]);
    block_on(other.append(vec![cleared])).unwrap();
    assert_eq!(names(&other, &claim(1)), ["order"]);
    // Who is still there after all has lost it.
    append_under(&store, &order, lease.token, noted(1)).unwrap_err();
}

/// A run that waits for nothing is claimed again if its process says so.
#[test]
fn a_run_that_is_handed_over_goes_on_at_once() {
    let server = Server::shared();
    let store = open(&server.url());
    let order = create(&store, "order");
    let (_, lease) = claimed(&store, &claim(1)).remove(0);
    append_under(&store, &order, lease.token, event(Kind::RunCheckpointed)).unwrap();
    block_on(store.hand_over_lease(&order, lease.token)).unwrap();
    assert_eq!(names(&store, &claim(1)), ["order"]);
}

#[test]
fn many_workers_claim_each_run_once() {
    const RUNS: usize = 120;
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    for number in 0..RUNS {
        create(&store, &format!("r{number:03}"));
    }
    let taken: Vec<StreamId> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let worker = open(&url);
                    let mut mine = Vec::new();
                    let mut empty = 0;
                    while empty < 3 {
                        let some = claimed(&worker, &claim(7));
                        empty = if some.is_empty() { empty + 1 } else { 0 };
                        for (run, lease) in &some {
                            append_under(&worker, run, lease.token, noted(1)).unwrap();
                        }
                        mine.extend(some.into_iter().map(|(run, _)| run));
                    }
                    // Or what it holds would be handed over.
                    (worker, mine)
                })
            })
            .collect();
        let workers: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        workers.into_iter().flat_map(|(_, mine)| mine).collect()
    });
    assert_eq!(taken.len(), RUNS);
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), RUNS);
}

/// A claim reads what it takes, however many wait for something else.
#[test]
fn runs_that_wait_cost_a_claim_nothing() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    create(&store, "order");
    server.sql(
        &url,
        "INSERT INTO claimable SELECT 1000 + g, '', g % 3, 'cook', 9223372036854775807, NULL, NULL
         FROM generate_series(1, 20000) g; ANALYZE claimable",
    );
    let candidates = include_str!("../src/sql/candidates.sql");
    let prepared = format!(
        "PREPARE c (text, text[], bigint, bigint) AS {candidates};
         SET enable_seqscan TO off; SET plan_cache_mode TO force_generic_plan;
         EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE c ('', '{{}}', NULL, 10)"
    );
    let plan = server.sql(&url, &prepared);
    assert!(!plan.contains("Seq Scan on claimable"), "{plan}");
    let filtered = plan
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Rows Removed by Filter: "))
        .filter_map(|count| count.parse::<u64>().ok())
        .max();
    assert!(filtered.unwrap_or(0) < 10, "{plan}");
    assert_eq!(names(&store, &claim(5)), ["order"]);
}

/// What a person says is for a worker to see, also if it does not end the attention by itself.
#[test]
fn a_run_that_a_person_has_answered_is_claimed_again() {
    let server = Server::shared();
    let store = PostgresStore::open(&server.url()).unwrap();
    create_in(&store, "r", "cook", "", 0);
    let (run, lease) = claimed(&store, &claim(1)).remove(0);
    block_on(async {
        let kinds = [
            Kind::RunStarted,
            Kind::RunCheckpointed,
            Kind::AttentionRaised,
        ];
        let events = kinds.into_iter().map(event).collect();
        let append = Append::to(run.clone(), events).under(lease.token);
        store.append(vec![append]).await.unwrap();
        store.release_lease(&run, lease.token).await.unwrap();
    });
    assert_eq!(claimed(&store, &claim(1)), [], "nothing was said");
    let said = Append::to(run, vec![event(Kind::StepResolved)]);
    block_on(store.append(vec![said])).unwrap();
    assert_eq!(names(&store, &claim(1)), ["r"]);
}

/// A worker that takes a run before its timer is due by the worker's clock can only give it back.
#[test]
fn a_worker_whose_clock_is_late_does_not_get_a_run_back_before_its_timer() {
    let server = Server::shared();
    let url = server.url();
    let hour_us = 3600 * SECOND_US;
    let machine_us = move || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_micros() as u64 - hour_us
    };
    let late = PostgresOptions::new().machine_clock(machine_us);
    let late = late.open(&url).unwrap();
    let order = create(&late, "order");
    let (_, lease) = claimed(&late, &claim(1)).remove(0);
    let fields = Fields::new()
        .with(field::TIMER, "later")
        .with(field::DUE, machine_us() + 600 * SECOND_US);
    let timer = event(Kind::TimerSet).with_fields(fields);
    for event in [timer, event(Kind::RunCheckpointed)] {
        append_under(&late, &order, lease.token, event).unwrap();
    }
    block_on(late.release_lease(&order, lease.token)).unwrap();
    assert!(names(&late, &claim(1)).is_empty());
}
