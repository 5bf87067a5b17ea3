//! What a step takes on the server's disk.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use dalsegno_contract::world::{block_on, event};
use dalsegno_pgtest::Server;
use dalsegno_store::{Append, Kind, NewPayload, Store};

/// What the outcome of a step says, about.
const OUTCOME_BYTES: usize = 300;

/// By hand, for the table in docs/store.md: `cargo nextest run -p dalsegno-postgres --test growth
/// --run-ignored only --no-capture`.
#[test]
#[ignore = "measures"]
fn a_step_of_ten_thousand() {
    measure(10_000);
}

#[test]
fn a_step_takes_what_its_events_take_and_little_more() {
    let (total, events) = measure(1_000);
    assert!(total < 2.0 * events + 100.0, "{total} for {events}");
}

/// Bytes per step: of all tables and indexes, and of the events alone.
fn measure(steps: u64) -> (f64, f64) {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let order = create(&store, "order");
    let token = take(&store, &order, "worker", 3600 * SECOND_US);
    let sizes = || {
        server.sql(&url, "VACUUM");
        let mut sizes = Vec::new();
        for table in ["event", "stream", "run", "claimable"] {
            for function in ["pg_table_size", "pg_indexes_size"] {
                let size = server.number(&url, &format!("SELECT {function}('{table}')"));
                sizes.push((format!("{function} {table}"), size));
            }
        }
        sizes
    };
    let before = sizes();
    for number in 0..steps {
        let outcome = NewPayload::json(format!("{number:0width$}", width = OUTCOME_BYTES));
        let step = vec![
            event(Kind::StepIntended),
            event(Kind::StepSucceeded).with_output(outcome),
        ];
        let append = Append::to(order.clone(), step).under(token);
        block_on(async {
            let appended = store.append(vec![append]).await.unwrap();
            store.durable(appended.position).await.unwrap();
        });
    }
    store.close().unwrap();
    let per_step = |bytes: u64| bytes as f64 / steps as f64;
    let mut total = 0.0;
    for ((name, before), (_, after)) in before.iter().zip(sizes()) {
        let grown = per_step(after.saturating_sub(*before));
        println!("{grown:8.1} bytes per step: {name}");
        total += grown;
    }
    let sum = "SELECT sum(length(bytes)) FROM event";
    let events = per_step(server.number(&url, sum));
    println!("{total:8.1} bytes per step in all; {events:.1} are those of its two events");
    (total, events)
}
