//! A store over another one: it does some things in its own way, and leaves the rest to the other.
//!
//! Invariant: what an [`Over`] does not say itself is exactly what the store below says.

use std::fmt;

use crate::mailbox::NewLetter;
use crate::payload::Piece;
use crate::{
    Answer, Append, Appended, Claim, Event, Foreign, Hash, Lease, LetterRef, LettersTaken, Limits,
    NewHelper, Payload, Position, Recorded, RunInfo, RunQuery, Store, StoreError, StreamId,
    StreamKind, Timer, Version,
};

/// A store over another one, for tests that watch, hold up or break what is asked of a store. Each
/// method is that of [`Store`], and asks the store below unless it is written anew.
pub trait Over: Send + Sync + fmt::Debug {
    /// The store below.
    fn below(&self) -> &dyn Store;

    /// As [`Store::limits`].
    fn limits(&self) -> Limits {
        self.below().limits()
    }

    /// As [`Store::is_shared`].
    fn is_shared(&self) -> bool {
        self.below().is_shared()
    }

    /// As [`Store::append`].
    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        self.below().append(batch)
    }

    /// As [`Store::durable`].
    fn durable(&self, position: Position) -> Answer<'_, ()> {
        self.below().durable(position)
    }

    /// As [`Store::head`].
    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        self.below().head(stream)
    }

    /// As [`Store::read`].
    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        self.below().read(stream, from, limit)
    }

    /// As [`Store::events`].
    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        self.below().events(stream, from, limit)
    }

    /// As [`Store::last_events`].
    fn last_events<'a>(
        &'a self,
        streams: &'a [(StreamId, Version)],
        limit: usize,
    ) -> Answer<'a, Vec<Result<Vec<Event>, StoreError>>> {
        self.below().last_events(streams, limit)
    }

    /// As [`Store::payload`].
    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        self.below().payload(payload)
    }

    /// As [`Store::pieces`].
    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        self.below().pieces(hashes)
    }

    /// As [`Store::take_over`].
    fn take_over(&self, pieces: Vec<Piece>, streams: Vec<Foreign>) -> Answer<'_, Position> {
        self.below().take_over(pieces, streams)
    }

    /// As [`Store::let_go_on`].
    fn let_go_on<'a>(&'a self, runs: &'a [StreamId]) -> Answer<'a, ()> {
        self.below().let_go_on(runs)
    }

    /// As [`Store::erase_forgotten`].
    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        self.below().erase_forgotten(stream, said_at)
    }

    /// As [`Store::begin_helpers`].
    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        self.below().begin_helpers(stream)
    }

    /// As [`Store::keep_helper`].
    fn keep_helper<'a>(
        &'a self,
        stream: &'a StreamId,
        begun: u64,
        helper: NewHelper,
    ) -> Answer<'a, bool> {
        self.below().keep_helper(stream, begun, helper)
    }

    /// As [`Store::helper`].
    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        self.below().helper(stream, name)
    }

    /// As [`Store::drop_helpers`].
    fn drop_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, ()> {
        self.below().drop_helpers(stream)
    }

    /// As [`Store::streams`].
    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>> {
        self.below().streams(kind, after, limit)
    }

    /// As [`Store::runs`].
    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
        self.below().runs(query)
    }

    /// As [`Store::take_lease`].
    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        self.below().take_lease(run, owner, for_us)
    }

    /// As [`Store::renew_lease`].
    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease> {
        self.below().renew_lease(run, token, for_us)
    }

    /// As [`Store::release_lease`].
    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        self.below().release_lease(run, token)
    }

    /// As [`Store::hand_over_lease`].
    fn hand_over_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        self.below().hand_over_lease(run, token)
    }

    /// As [`Store::renew_leases`].
    fn renew_leases<'a>(
        &'a self,
        held: &'a [(StreamId, u64)],
        for_us: u64,
    ) -> Answer<'a, Vec<Result<Lease, StoreError>>> {
        self.below().renew_leases(held, for_us)
    }

    /// As [`Store::claim`].
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Vec<(StreamId, Lease)>> {
        self.below().claim(claim)
    }

    /// As [`Store::timers_due`].
    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
        self.below().timers_due(now_us, limit)
    }

    /// As [`Store::next_timer_us`].
    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        self.below().next_timer_us()
    }

    /// As [`Store::send`].
    fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef> {
        self.below().send(letter)
    }

    /// As [`Store::is_taken`].
    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
        self.below().is_taken(letter)
    }

    /// As [`Store::take_letters`].
    fn take_letters(&self) -> Answer<'_, LettersTaken> {
        self.below().take_letters()
    }

    /// As [`Store::position`].
    fn position(&self) -> Answer<'_, Position> {
        self.below().position()
    }

    /// As [`Store::changed`].
    fn changed(&self, after: Position) -> Answer<'_, Position> {
        self.below().changed(after)
    }
}

impl<T: Over> Store for T {
    fn limits(&self) -> Limits {
        Over::limits(self)
    }
    fn is_shared(&self) -> bool {
        Over::is_shared(self)
    }
    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Over::append(self, batch)
    }
    fn durable(&self, position: Position) -> Answer<'_, ()> {
        Over::durable(self, position)
    }
    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        Over::head(self, stream)
    }
    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        Over::read(self, stream, from, limit)
    }
    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        Over::events(self, stream, from, limit)
    }
    fn last_events<'a>(
        &'a self,
        streams: &'a [(StreamId, Version)],
        limit: usize,
    ) -> Answer<'a, Vec<Result<Vec<Event>, StoreError>>> {
        Over::last_events(self, streams, limit)
    }
    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        Over::payload(self, payload)
    }
    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        Over::pieces(self, hashes)
    }
    fn take_over(&self, pieces: Vec<Piece>, streams: Vec<Foreign>) -> Answer<'_, Position> {
        Over::take_over(self, pieces, streams)
    }
    fn let_go_on<'a>(&'a self, runs: &'a [StreamId]) -> Answer<'a, ()> {
        Over::let_go_on(self, runs)
    }
    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        Over::erase_forgotten(self, stream, said_at)
    }
    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        Over::begin_helpers(self, stream)
    }
    fn keep_helper<'a>(
        &'a self,
        stream: &'a StreamId,
        begun: u64,
        helper: NewHelper,
    ) -> Answer<'a, bool> {
        Over::keep_helper(self, stream, begun, helper)
    }
    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        Over::helper(self, stream, name)
    }
    fn drop_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, ()> {
        Over::drop_helpers(self, stream)
    }
    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>> {
        Over::streams(self, kind, after, limit)
    }
    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
        Over::runs(self, query)
    }
    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        Over::take_lease(self, run, owner, for_us)
    }
    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease> {
        Over::renew_lease(self, run, token, for_us)
    }
    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        Over::release_lease(self, run, token)
    }
    fn hand_over_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        Over::hand_over_lease(self, run, token)
    }
    fn renew_leases<'a>(
        &'a self,
        held: &'a [(StreamId, u64)],
        for_us: u64,
    ) -> Answer<'a, Vec<Result<Lease, StoreError>>> {
        Over::renew_leases(self, held, for_us)
    }
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Vec<(StreamId, Lease)>> {
        Over::claim(self, claim)
    }
    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
        Over::timers_due(self, now_us, limit)
    }
    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        Over::next_timer_us(self)
    }
    fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef> {
        Over::send(self, letter)
    }
    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
        Over::is_taken(self, letter)
    }
    fn take_letters(&self) -> Answer<'_, LettersTaken> {
        Over::take_letters(self)
    }
    fn position(&self) -> Answer<'_, Position> {
        Over::position(self)
    }
    fn changed(&self, after: Position) -> Answer<'_, Position> {
        Over::changed(self, after)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::LocalStore;

    /// Answers one thing in its own way.
    #[derive(Debug)]
    struct Silent(LocalStore);

    impl Over for Silent {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn events<'a>(&'a self, _: &'a StreamId, _: u64, _: usize) -> Answer<'a, Vec<Event>> {
            Box::pin(std::future::ready(Err(StoreError::ReadOnly)))
        }
    }

    /// What a store answers of itself by way of another answer is asked below too.
    #[test]
    fn the_ends_of_streams_are_those_of_the_store_below() {
        let dir = std::env::temp_dir().join(format!("dalsegno-over-{}", std::process::id()));
        let store = Silent(LocalStore::open(&dir).unwrap());
        let head = Version {
            sequence: 1,
            hash: Hash::ZERO,
        };
        let streams = [(StreamId::run("a").unwrap(), head)];
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let ends = runtime.block_on(Store::last_events(&store, &streams, 1));
        let ends = ends.unwrap();
        assert!(ends[0].as_ref().unwrap().is_empty());
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
