//! A store that answers late, as one over a network does: what it was asked may be done long before
//! who asked hears of it, or not at all if that one has let go.
//!
//! Invariant: what it answers is what the store behind it says. Only what runs do to their own
//! streams and to memories takes time; what a test asks does not.

#![allow(dead_code, clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dalsegno::Runtime;
use dalsegno::testkit::SimRuntime;
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Answer, Append, Appended, Event, Hash, Lease, LetterRef, LettersTaken, Limits, Payload,
    Position, Recorded, RunInfo, RunQuery, Store, StreamId, StreamKind, Timer, Version,
};

/// A number that looks random, from a seed.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        // As in `splitmix64`.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

#[derive(Debug)]
pub struct Slow {
    store: Arc<dyn Store>,
    clock: SimRuntime,
    dice: Mutex<Dice>,
    /// An answer takes less than so many milliseconds; 0 for none.
    limit_ms: AtomicU64,
    /// Appends that were refused.
    pub refused: AtomicU64,
    /// How often memories were read from their beginning.
    pub begun: AtomicU64,
}

impl Slow {
    pub fn new(store: Arc<dyn Store>, clock: &SimRuntime, seed: u64) -> Arc<Slow> {
        Arc::new(Slow {
            store,
            clock: clock.clone(),
            dice: Mutex::new(Dice(seed)),
            limit_ms: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        })
    }

    /// From now on an answer takes less than so many milliseconds.
    pub fn takes(&self, limit_ms: u64) {
        self.limit_ms.store(limit_ms, Ordering::Relaxed);
    }

    async fn wait(&self) {
        let limit = self.limit_ms.load(Ordering::Relaxed);
        if limit > 0 {
            let ms = self.dice.lock().unwrap().below(limit);
            let until_us = self.clock.now_us() + ms * 1000;
            self.clock.sleep_until(until_us).await;
        }
    }
}

impl Store for Slow {
    fn limits(&self) -> Limits {
        self.store.limits()
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        let is_of_a_run = batch.first().is_some_and(|own| own.token.is_some());
        Box::pin(async move {
            if is_of_a_run {
                self.wait().await;
            }
            let appended = self.store.append(batch).await;
            let refused = u64::from(appended.is_err());
            self.refused.fetch_add(refused, Ordering::Relaxed);
            if is_of_a_run {
                self.wait().await;
            }
            appended
        })
    }

    fn durable(&self, position: Position) -> Answer<'_, ()> {
        Box::pin(async move {
            self.wait().await;
            self.store.durable(position).await
        })
    }

    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        Box::pin(async move {
            if stream.kind() == StreamKind::Memory {
                self.wait().await;
            }
            self.store.head(stream).await
        })
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        self.store.read(stream, from, limit)
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        Box::pin(async move {
            if stream.kind() == StreamKind::Memory {
                let begun = u64::from(from == 1);
                self.begun.fetch_add(begun, Ordering::Relaxed);
                self.wait().await;
            }
            self.store.events(stream, from, limit).await
        })
    }

    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        self.store.payload(payload)
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        Box::pin(async move {
            self.wait().await;
            self.store.pieces(hashes).await
        })
    }

    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        self.store.erase_forgotten(stream, said_at)
    }

    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>> {
        self.store.streams(kind, after, limit)
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
        self.store.runs(query)
    }

    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        self.store.take_lease(run, owner, for_us)
    }

    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease> {
        self.store.renew_lease(run, token, for_us)
    }

    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        self.store.release_lease(run, token)
    }

    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
        self.store.timers_due(now_us, limit)
    }

    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        self.store.next_timer_us()
    }

    fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef> {
        self.store.send(letter)
    }

    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
        self.store.is_taken(letter)
    }

    fn take_letters(&self) -> Answer<'_, LettersTaken> {
        self.store.take_letters()
    }

    fn position(&self) -> Answer<'_, Position> {
        self.store.position()
    }

    fn changed(&self, after: Position) -> Answer<'_, Position> {
        self.store.changed(after)
    }
}
