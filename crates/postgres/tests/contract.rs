//! The contract of a store, kept by the one in PostgreSQL.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use dalsegno_contract::world::{Implementation, TestClock, World};
use dalsegno_pgtest::Server;
use dalsegno_postgres::{PostgresOptions, PostgresStore};
use dalsegno_store::Store;

dalsegno_contract::contract_tests! { postgres }

fn postgres() -> World {
    World::new(|clock| Box::new(Postgres::new(clock)))
}

struct Postgres {
    server: Server,
    url: String,
    options: PostgresOptions,
    store: PostgresStore,
}

impl Postgres {
    fn new(clock: TestClock) -> Postgres {
        let server = Server::shared();
        let url = server.url();
        let options = PostgresOptions::new()
            // Only what is said counts: what this handle did itself is not seen as another's.
            .poll_every(Duration::from_secs(3600))
            .clock(move || clock.now_us());
        let store = options.open(&url).unwrap();
        Postgres {
            server,
            url,
            options,
            store,
        }
    }
}

impl Implementation for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = self.options.open(&self.url).unwrap();
    }

    fn settle(&self) {}

    fn stored_bytes(&self) -> u64 {
        let sum = "SELECT (SELECT coalesce(sum(length(bytes)), 0) FROM event)
                        + (SELECT coalesce(sum(length(bytes)), 0) FROM piece)";
        self.server.number(&self.url, sum)
    }
}
