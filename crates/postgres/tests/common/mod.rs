//! What tests of the store in PostgreSQL share.

#![allow(dead_code)] // Not every test uses all of it.
#![allow(clippy::unwrap_used)]

use dalsegno_contract::world::{block_on, created};
use dalsegno_postgres::{PostgresOptions, PostgresStore};
use dalsegno_store::{Append, NewEvent, Recorded, Store, StoreError, StreamId};

pub const SECOND_US: u64 = 1_000_000;

/// A handle to a store, with the clocks of machine and server.
pub fn open(url: &str) -> PostgresStore {
    PostgresOptions::new().open(url).unwrap()
}

pub fn run(name: &str) -> StreamId {
    StreamId::run(name).unwrap()
}

/// Makes a run of the agent `cook`.
pub fn create(store: &PostgresStore, name: &str) -> StreamId {
    let run = run(name);
    let append = Append::to(run.clone(), vec![created("cook")]);
    block_on(store.append(vec![append])).unwrap();
    run
}

/// Takes a run; its token.
pub fn take(store: &PostgresStore, run: &StreamId, owner: &str, for_us: u64) -> u64 {
    block_on(store.take_lease(run, owner, for_us))
        .unwrap()
        .token
}

/// Appends under a token and waits until it is durable.
pub fn append_under(
    store: &PostgresStore,
    run: &StreamId,
    token: u64,
    event: NewEvent,
) -> Result<u64, StoreError> {
    block_on(async {
        let append = Append::to(run.clone(), vec![event]).under(token);
        let appended = store.append(vec![append]).await?;
        store.durable(appended.position).await?;
        Ok(appended.heads[0].sequence)
    })
}

/// All events of a stream; that they are a chain is checked.
pub fn all(store: &PostgresStore, stream: &StreamId) -> Vec<Recorded> {
    block_on(dalsegno_contract::world::all(store, stream))
}
