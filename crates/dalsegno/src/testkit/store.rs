//! A store at whose every append and sync the process may die.

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Answer, Append, Appended, Event, Lease, LetterRef, LettersTaken, LocalStore, Payload, Position,
    Recorded, RunInfo, RunQuery, Store, StreamId, StreamKind, Timer, Version,
};

use super::Schedule;

#[derive(Debug)]
pub(crate) struct MortalStore {
    pub store: LocalStore,
    pub schedule: Schedule,
}

/// What an append is about, in words.
fn about(batch: &[Append]) -> String {
    let kinds = batch.iter().flat_map(|append| &append.events);
    let kinds: Vec<String> = kinds.map(|event| event.kind.to_string()).collect();
    kinds.join(", ")
}

impl Store for MortalStore {
    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move {
            let what = about(&batch);
            self.schedule.moment(|| format!("before {what}")).await;
            let appended = self.store.append(batch).await;
            self.schedule.moment(|| format!("after {what}")).await;
            appended
        })
    }

    fn durable(&self, position: Position) -> Answer<'_, ()> {
        Box::pin(async move {
            let durable = self.store.durable(position).await;
            self.schedule
                .moment(|| format!("durable up to {position}"))
                .await;
            durable
        })
    }

    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        Box::pin(async move {
            let lease = self.store.take_lease(run, owner, for_us).await;
            self.schedule.moment(|| format!("took {run}")).await;
            lease
        })
    }

    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        Box::pin(async move {
            let released = self.store.release_lease(run, token).await;
            self.schedule.moment(|| format!("gave back {run}")).await;
            released
        })
    }

    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        self.store.head(stream)
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
        self.store.events(stream, from, limit)
    }

    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        self.store.payload(payload)
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

    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease> {
        self.store.renew_lease(run, token, for_us)
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
