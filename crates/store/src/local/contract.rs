//! The local store as a [`Store`].

use super::disk::Disk;
use super::{LocalStore, lock};
use crate::error::StoreError;
use crate::event::{Event, LetterRef, Payload, Version};
use crate::hash::Hash;
use crate::helper::NewHelper;
use crate::mailbox::NewLetter;
use crate::name::{StreamId, StreamKind};
use crate::payload::Piece;
use crate::state::Lease;
use crate::store::{
    Answer, Append, Appended, Foreign, LettersTaken, Limits, Position, Recorded, RunInfo, RunQuery,
    Store, Timer,
};

impl Store for LocalStore {
    fn limits(&self) -> Limits {
        let options = &self.inner.options;
        Limits {
            event_bytes: options.event_bytes(),
            ..options.limits
        }
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move { self.inner.append(batch) })
    }

    fn durable(&self, position: Position) -> Answer<'_, ()> {
        Box::pin(async move {
            match &self.inner.disk {
                Disk::Owner(_) if position == 0 => Ok(()),
                Disk::Owner(log) => Ok(log.durable(position).await?),
                Disk::Reader(_) => {
                    // What can be read is durable.
                    self.inner.refresh()?;
                    match position.checked_sub(1) {
                        None => Ok(()),
                        Some(before) => {
                            let reached = self.inner.watch.beyond(before).await;
                            reached.map(drop).ok_or(StoreError::Closed)
                        }
                    }
                }
            }
        })
    }

    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        Box::pin(async move { self.inner.looking_again(|| self.inner.head(stream)) })
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        Box::pin(async move {
            self.inner
                .looking_again(|| self.inner.read(stream, from, limit, true))
        })
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        Box::pin(async move {
            let read = self
                .inner
                .looking_again(|| self.inner.read(stream, from, limit, false))?;
            Ok(read.into_iter().map(|recorded| recorded.event).collect())
        })
    }

    fn last_events<'a>(
        &'a self,
        streams: &'a [(StreamId, Version)],
        limit: usize,
    ) -> Answer<'a, Vec<Result<Vec<Event>, StoreError>>> {
        Box::pin(async move { self.inner.last_events(streams, limit) })
    }

    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        Box::pin(async move { self.inner.looking_again(|| self.inner.payload(payload)) })
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        Box::pin(async move { self.inner.pieces(hashes) })
    }

    fn take_over(&self, pieces: Vec<Piece>, streams: Vec<Foreign>) -> Answer<'_, Position> {
        Box::pin(async move { self.inner.take_over_alone(&pieces, &streams) })
    }

    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        Box::pin(async move { self.inner.erase_forgotten_alone(stream, said_at) })
    }

    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        Box::pin(async move { Ok(self.inner.begin_helpers(stream)) })
    }

    fn keep_helper<'a>(
        &'a self,
        stream: &'a StreamId,
        begun: u64,
        helper: NewHelper,
    ) -> Answer<'a, bool> {
        Box::pin(async move { self.inner.keep_helper(stream, begun, &helper) })
    }

    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.inner.helper(stream, name) })
    }

    fn drop_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, ()> {
        Box::pin(async move { self.inner.drop_helpers(stream) })
    }

    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>> {
        Box::pin(async move {
            self.inner
                .looking_again(|| self.inner.streams(kind, after, limit))
        })
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
        Box::pin(async move { self.inner.looking_again(|| self.inner.runs(query)) })
    }

    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        Box::pin(async move { self.inner.take_lease(run, owner, for_us) })
    }

    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease> {
        Box::pin(async move { self.inner.renew_lease(run, token, for_us) })
    }

    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        Box::pin(async move { self.inner.release_lease(run, token) })
    }

    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
        Box::pin(async move {
            self.inner.refresh()?;
            let core = lock(&self.inner.core);
            let due = core.state.due.iter();
            let due = due.take_while(|(due_us, ..)| *due_us <= now_us).take(limit);
            Ok(due
                .map(|(due_us, run, id)| Timer {
                    run: run.clone(),
                    id: id.clone(),
                    due_us: *due_us,
                })
                .collect())
        })
    }

    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        Box::pin(async move {
            self.inner.refresh()?;
            let core = lock(&self.inner.core);
            Ok(core.state.due.first().map(|(due_us, ..)| *due_us))
        })
    }

    fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef> {
        Box::pin(async move { self.inner.send(letter.clone()) })
    }

    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
        Box::pin(async move { self.inner.is_taken(letter) })
    }

    fn take_letters(&self) -> Answer<'_, LettersTaken> {
        Box::pin(async move { self.inner.take_letters() })
    }

    fn position(&self) -> Answer<'_, Position> {
        Box::pin(async move {
            self.inner.refresh()?;
            Ok(lock(&self.inner.core).applied)
        })
    }

    fn changed(&self, after: Position) -> Answer<'_, Position> {
        Box::pin(async move {
            self.inner.refresh()?;
            let reached = self.inner.watch.beyond(after).await;
            reached.ok_or(StoreError::Closed)
        })
    }
}
