//! The two ways of an append, which are judged by the same rules.
//!
//! | to | judged by | answered | sent |
//! |---|---|---|---|
//! | one run that this handle holds | its state in memory | at once | by the flusher, with those of others |
//! | anything else | rows that are locked | after the commit | in a transaction of its own |
//!
//! Invariant: an answer names the place that the events have or will have. What is answered at once
//! cannot be overtaken, because nobody else gives places in a run that is held (see `tx.rs`).

use dalsegno_store::engine::{self, Judge, Payloads};
use dalsegno_store::payload::Piece;
use dalsegno_store::{Append, Appended, Position, StoreError, StreamId};

use crate::error::Trouble;
use crate::inner::{Inner, trying};
use crate::save::EventRow;
use crate::tx::{Committed, Tx};

/// What the events of one append may take together.
const APPEND_LIMIT_BYTES: u64 = 16 << 20;

/// An append whose payloads are ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub batch: Vec<Append>,
    /// For each event of each part.
    pub payloads: Vec<Vec<Payloads>>,
    pub pieces: Vec<Piece>,
}

impl Inner {
    /// Checks sizes, and cuts payloads into pieces.
    pub fn prepare(&self, mut batch: Vec<Append>) -> Result<Prepared, StoreError> {
        engine::check_sizes(&batch, &self.options.limits)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut new = std::collections::HashSet::new();
        let mut payloads = Vec::new();
        for append in &mut batch {
            let mut of_part = Vec::with_capacity(append.events.len());
            for event in &mut append.events {
                let mut store = |payload: Option<dalsegno_store::NewPayload>| {
                    let payload = payload?;
                    let before = pieces.len();
                    let known = |hash: &_| new.contains(hash) || self.is_known(hash);
                    let stored = engine::store_payload(&payload, known, &mut pieces);
                    new.extend(pieces[before..].iter().map(|piece| piece.hash));
                    Some(stored)
                };
                of_part.push([store(event.input.take()), store(event.output.take())]);
            }
            payloads.push(of_part);
        }
        Ok(Prepared {
            batch,
            payloads,
            pieces,
        })
    }

    /// Appends to one run, if this handle holds it.
    pub async fn append_held(&self, prepared: Prepared) -> Queued {
        let Some(stream) = prepared.batch.first().map(|append| append.stream.clone()) else {
            return Queued::NotHeld(prepared);
        };
        if prepared.batch.iter().any(|append| append.stream != stream) {
            return Queued::NotHeld(prepared);
        }
        let limit = self.options.queue_bytes;
        // Who writes faster than the database waits here.
        let free = self.wait_until(|memory| match memory.held.get(&stream) {
            None => Ok(Some(())),
            Some(_) if memory.busy.contains(&stream) => Ok(None),
            Some(_) if memory.queued_bytes > limit => {
                memory.wanted = memory.wanted.max(memory.position);
                self.work.notify_one();
                Ok(None)
            }
            Some(_) => Ok(Some(())),
        });
        if let Err(e) = free.await {
            return Queued::Done(Err(e));
        }
        self.queue(&stream, prepared)
    }

    /// Judges an append by what is in memory, and queues it.
    fn queue(&self, stream: &StreamId, prepared: Prepared) -> Queued {
        let now_us = self.options.now_us();
        let mut guard = self.memory();
        let memory = &mut *guard;
        if memory.closed {
            return Queued::Done(Err(StoreError::Closed));
        }
        for append in &prepared.batch {
            if let Some(fence) = memory.fence(stream, append.token) {
                return Queued::Done(Err(fence.error()));
            }
        }
        if memory.busy.contains(stream) {
            return Queued::NotHeld(prepared);
        }
        let Some(held) = memory.held.get_mut(stream) else {
            return Queued::NotHeld(prepared);
        };
        let clock = memory.clock.max(held.clock);
        let mut judge = Judge::new(clock, now_us, &self.options.limits);
        let mut draft = held.state.clone();
        let Prepared {
            mut batch,
            payloads,
            pieces,
        } = prepared;
        for (append, payloads) in batch.iter_mut().zip(payloads) {
            let taken = engine::draft(append, Some(&draft), now_us).and_then(|opened| {
                draft = opened;
                judge.take(append, &mut draft, &mut payloads.into_iter())
            });
            if let Err(e) = taken {
                return Queued::Done(Err(e));
            }
        }
        let events: Vec<EventRow> = judge.placed.into_iter().map(EventRow::from).collect();
        if let Err(e) = check_bytes(events.iter()) {
            return Queued::Done(Err(e));
        }
        let heads = batch.iter().map(|_| draft.head).collect();
        if events.is_empty() {
            let position = memory.position;
            return Queued::Done(Ok(Appended { heads, position }));
        }
        memory.position += 1;
        let position = memory.position;
        memory.clock = judge.clock;
        let bytes: usize = events.iter().map(|event| event.bytes.len() + 64).sum();
        let bytes = bytes + pieces.iter().map(|p| p.bytes.len() + 64).sum::<usize>();
        held.clock = judge.clock;
        held.state = draft;
        held.news = batch.iter().any(|append| append.token.is_none());
        held.queue.events.extend(events);
        held.queue.pieces.extend(pieces);
        held.queue.positions.push(position);
        held.queue.bytes += bytes;
        memory.queued_bytes += bytes;
        memory.pending.insert(position);
        memory.unsent.insert(stream.clone());
        let is_asleep = !std::mem::replace(&mut memory.flusher_waits, true);
        drop(guard);
        self.changed.notify_waiters();
        if is_asleep {
            self.work.notify_one();
        }
        Queued::Done(Ok(Appended { heads, position }))
    }

    /// Appends in a transaction of its own.
    pub async fn append_in_transaction(&self, prepared: &Prepared) -> Result<Appended, StoreError> {
        let streams: Vec<StreamId> = prepared.batch.iter().map(|a| a.stream.clone()).collect();
        if streams.is_empty() {
            let position = self.memory().position;
            let heads = Vec::new();
            return Ok(Appended { heads, position });
        }
        let _ours = self.take_ours(&streams).await?;
        trying!(self, {
            let tx = self.begin(&streams).await?;
            self.fill_and_commit(tx, prepared).await
        })
    }

    /// Locks streams in a transaction.
    pub async fn begin(&self, streams: &[StreamId]) -> Result<Tx<'_>, Trouble> {
        let mut unique = streams.to_vec();
        unique.sort();
        unique.dedup();
        let lent = self.pool.lend().await?;
        Tx::begin(self, lent, &unique).await
    }

    async fn fill_and_commit(
        &self,
        mut tx: Tx<'_>,
        prepared: &Prepared,
    ) -> Result<Appended, Trouble> {
        let parts = prepared.batch.iter().zip(&prepared.payloads);
        for (append, payloads) in parts {
            if let Err(e) = tx.append(append.clone(), payloads.clone()) {
                tx.leave().await?;
                return Err(e.into());
            }
        }
        tx.store(prepared.pieces.iter().cloned());
        let heads = prepared.batch.iter().map(|append| tx.head(&append.stream));
        let heads = heads.collect();
        if tx.is_empty() {
            tx.leave().await?;
            let position = self.memory().position;
            return Ok(Appended { heads, position });
        }
        let (position, _) = self.commit(tx).await?;
        Ok(Appended { heads, position })
    }

    /// Commits a transaction, and takes it into the memory. Its position.
    pub async fn commit(&self, tx: Tx<'_>) -> Result<(Position, Committed), Trouble> {
        let committed = tx.commit().await?;
        let mut memory = self.memory();
        memory.clock = memory.clock.max(committed.clock);
        for save in &committed.saves {
            let Some(held) = memory.held.get_mut(&save.stream) else {
                continue;
            };
            held.state = save.after.clone();
            held.saved = save.after.clone();
            held.news = save.news;
            held.clock = save.clock;
            let queue = std::mem::take(&mut held.queue);
            memory.unsent.remove(&save.stream);
            let Some(held) = memory.held.get(&save.stream) else {
                continue;
            };
            let gone = save.after.has_ended()
                || save.after.lease.as_ref().map(|lease| lease.token) != Some(held.token);
            if gone {
                memory.held.remove(&save.stream);
            }
            memory.queued_bytes = memory.queued_bytes.saturating_sub(queue.bytes);
            for position in &queue.positions {
                memory.pending.remove(position);
            }
        }
        let position = memory.next_position();
        drop(memory);
        self.moved.notify_waiters();
        self.changed.notify_waiters();
        Ok((position, committed))
    }

    /// Waits until nobody else of this handle writes these streams; nobody does as long as the answer
    /// lives.
    pub async fn take_ours(&self, streams: &[StreamId]) -> Result<Ours<'_>, StoreError> {
        self.wait_until(|memory| {
            if memory.closed {
                return Err(StoreError::Closed);
            }
            if streams.iter().any(|stream| memory.in_use(stream)) {
                return Ok(None);
            }
            memory.busy.extend(streams.iter().cloned());
            Ok(Some(()))
        })
        .await?;
        Ok(Ours {
            inner: self,
            streams: streams.to_vec(),
        })
    }

    /// The same for those of these streams that nobody of this handle writes or holds, at once.
    pub fn take_free(&self, streams: &[StreamId]) -> Ours<'_> {
        let mut memory = self.memory();
        let free =
            |stream: &&StreamId| !memory.in_use(stream) && !memory.held.contains_key(*stream);
        let streams: Vec<StreamId> = streams.iter().filter(free).cloned().collect();
        memory.busy.extend(streams.iter().cloned());
        drop(memory);
        Ours {
            inner: self,
            streams,
        }
    }
}

fn check_bytes<'e>(events: impl Iterator<Item = &'e EventRow>) -> Result<(), StoreError> {
    let size = events.map(|event| event.bytes.len() as u64).sum();
    if size <= APPEND_LIMIT_BYTES {
        return Ok(());
    }
    Err(StoreError::TooLarge {
        what: "an append",
        size,
        limit: APPEND_LIMIT_BYTES,
    })
}

/// What became of an append to a run that may be held.
pub(crate) enum Queued {
    Done(Result<Appended, StoreError>),
    NotHeld(Prepared),
}

/// Streams that nobody else of this handle writes.
#[derive(Debug)]
pub(crate) struct Ours<'a> {
    inner: &'a Inner,
    pub streams: Vec<StreamId>,
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        let mut memory = self.inner.memory();
        for stream in &self.streams {
            memory.busy.remove(stream);
        }
        drop(memory);
        self.inner.moved.notify_waiters();
        self.inner.work.notify_one();
    }
}
