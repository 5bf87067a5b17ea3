//! A store without notifications, as behind a pooler or on a relative of PostgreSQL: changes of others
//! are seen by looking.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::*;
use dalsegno_contract::world::{block_on, event};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresOptions;
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Claim, Kind, Store};

#[test]
fn changes_are_seen_without_notifications() {
    let server = Server::shared();
    let url = server.url();
    let options = PostgresOptions::new()
        .notifications(false)
        .poll_every(Duration::from_millis(20));
    let (worker, other) = (options.open(&url).unwrap(), options.open(&url).unwrap());
    let claim = Claim {
        owner: "worker".into(),
        for_us: 600 * SECOND_US,
        limit: 1,
        ..Claim::default()
    };
    // Whatever a worker waits for: a new run, a letter, a run that was given back.
    let wait_for = |what: &str, other_does: &dyn Fn(), is_there: &dyn Fn() -> bool| {
        let before = block_on(worker.position()).unwrap();
        other_does();
        let mut after = before;
        while !is_there() {
            after = block_on(worker.changed(after)).unwrap();
        }
        assert!(block_on(worker.position()).unwrap() > before, "{what}");
    };
    let claimed = || !block_on(worker.claim(&claim)).unwrap().is_empty();
    let order = run("order");
    wait_for("a run", &|| drop(create(&other, "order")), &claimed);
    let letter = NewLetter::new(order.clone(), Kind::SignalReceived, 0);
    let send = || drop(block_on(other.send(&letter)).unwrap());
    let taken = || !block_on(worker.take_letters()).unwrap().taken.is_empty();
    wait_for("a letter", &send, &taken);
    let second = create(&other, "second");
    let token = take(&other, &second, "other", 600 * SECOND_US);
    append_under(&other, &second, token, event(Kind::RunStarted)).unwrap();
    let give_back = || block_on(other.hand_over_lease(&second, token)).unwrap();
    wait_for("a run that is given back", &give_back, &claimed);
}
