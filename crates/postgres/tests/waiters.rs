//! Who waits for something to be durable sends it at times itself. That one may stop being polled, as
//! the loser of a `select` is that is kept: nobody else may have to wait for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::*;
use dalsegno_contract::world::noted;
use dalsegno_pgtest::Server;
use dalsegno_store::{Append, Store, StreamId};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn who_waits_and_is_not_polled_any_more_is_in_nobodys_way() {
    let server = Server::shared();
    let url = server.url();
    let store = open(&url);
    let (one, two) = (create(&store, "one"), create(&store, "two"));
    let tokens = [&one, &two].map(|run| take(&store, run, "a worker", 3600 * SECOND_US));
    // From here on there is a connection that waiters can use.
    append_under(&store, &one, tokens[0], noted(1)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let say = async |run: &StreamId, token, number| {
            let append = Append::to(run.clone(), vec![noted(number)]).under(token);
            store.append(vec![append]).await.unwrap().position
        };
        for round in 2..4 {
            let position = say(&one, tokens[0], round).await;
            let mut left_alone = store.durable(position);
            let polled = left_alone
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending), "{polled:?}");
            // The same run, and another one.
            for (run, token) in [(&one, tokens[0]), (&two, tokens[1])] {
                let position = say(run, token, 100 + round).await;
                let durable = tokio::time::timeout(LIMIT, store.durable(position)).await;
                durable
                    .expect("nobody waits for who is not polled")
                    .unwrap();
            }
            // It has not been forgotten.
            left_alone.await.unwrap();
        }
    });
    assert_eq!(all(&open(&url), &one).len(), 2 + 1 + 2 * 2);
    assert_eq!(all(&open(&url), &two).len(), 2 + 2);
}
