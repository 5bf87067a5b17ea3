//! A store that can only be read: what a replay sees.
//!
//! Invariant: every write is refused, whatever the store behind it allows.

use std::sync::Arc;

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::payload::Piece;
use dalsegno_store::{
    Answer, Append, Appended, Event, Foreign, Hash, Lease, LetterRef, LettersTaken, Limits,
    Payload, Position, Recorded, RunInfo, RunQuery, Store, StoreError, StreamId, StreamKind, Timer,
    Version,
};

/// Another store, for reading.
#[derive(Debug)]
pub(crate) struct ReadOnly(pub Arc<dyn Store>);

fn refused<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(StoreError::ReadOnly)))
}

impl Store for ReadOnly {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn append(&self, _batch: Vec<Append>) -> Answer<'_, Appended> {
        refused()
    }

    fn durable(&self, _position: Position) -> Answer<'_, ()> {
        // Nothing is ever written that one could wait for.
        refused()
    }

    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        self.0.head(stream)
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        self.0.read(stream, from, limit)
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        self.0.events(stream, from, limit)
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        self.0.pieces(hashes)
    }

    fn take_over(&self, _pieces: Vec<Piece>, _streams: Vec<Foreign>) -> Answer<'_, Position> {
        refused()
    }

    fn let_go_on<'a>(&'a self, _runs: &'a [StreamId]) -> Answer<'a, ()> {
        refused()
    }

    fn erase_forgotten<'a>(&'a self, _stream: &'a StreamId, _said_at: u64) -> Answer<'a, u64> {
        refused()
    }

    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        self.0.helper(stream, name)
    }

    fn drop_helpers<'a>(&'a self, _stream: &'a StreamId) -> Answer<'a, ()> {
        refused()
    }

    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        self.0.payload(payload)
    }

    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>> {
        self.0.streams(kind, after, limit)
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
        self.0.runs(query)
    }

    fn take_lease<'a>(
        &'a self,
        _run: &'a StreamId,
        _owner: &'a str,
        _for_us: u64,
    ) -> Answer<'a, Lease> {
        refused()
    }

    fn renew_lease<'a>(
        &'a self,
        _run: &'a StreamId,
        _token: u64,
        _for_us: u64,
    ) -> Answer<'a, Lease> {
        refused()
    }

    fn release_lease<'a>(&'a self, _run: &'a StreamId, _token: u64) -> Answer<'a, ()> {
        refused()
    }

    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
        self.0.timers_due(now_us, limit)
    }

    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        self.0.next_timer_us()
    }

    fn send<'a>(&'a self, _letter: &'a NewLetter) -> Answer<'a, LetterRef> {
        refused()
    }

    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
        self.0.is_taken(letter)
    }

    fn take_letters(&self) -> Answer<'_, LettersTaken> {
        refused()
    }

    fn position(&self) -> Answer<'_, Position> {
        self.0.position()
    }

    fn changed(&self, after: Position) -> Answer<'_, Position> {
        self.0.changed(after)
    }
}
