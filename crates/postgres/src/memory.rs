//! What a handle keeps in memory: the runs that it holds, and what of them is not in the database yet.
//!
//! | word | meaning |
//! |---|---|
//! | held | a run whose lease this handle took: only it gives places in that run's stream |
//! | queued | events that were answered, and are not sent yet |
//! | pending | a position whose events are not known to be committed |
//! | lost | a lease under which the database refused an event: nothing is taken under it any more |
//!
//! Invariants: the state of a held run is that of the database and the queue behind it. A position
//! leaves `pending` only when its events are committed, or when it is in `failed`; so that who waits
//! for it is never told that it is durable when it is not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use dalsegno_store::payload::Piece;
use dalsegno_store::{Position, StoreError, StreamId, StreamState};

use crate::save::{ClaimChange, EventRow, StreamSave};

/// A run that this handle holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub no: i64,
    pub token: u64,
    /// With everything that is queued.
    pub state: StreamState,
    /// As it is in the database.
    pub saved: StreamState,
    /// The clock of the last event of `state`.
    pub clock: u64,
    pub queue: Queue,
    /// A part of it is being sent. More can be queued behind.
    pub sending: bool,
    /// Somebody else than its holder has added something behind what the holder added last.
    pub news: bool,
}

/// Events that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub events: Vec<EventRow>,
    pub pieces: Vec<Piece>,
    pub positions: Vec<Position>,
    pub bytes: usize,
}

/// Why what stood at a position will never be durable.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    pub stream: StreamId,
    pub token: u64,
    pub current: u64,
}

impl Fence {
    pub fn error(&self) -> StoreError {
        StoreError::Fenced {
            stream: self.stream.clone(),
            token: self.token,
            current: self.current,
        }
    }
}

/// Everything that a handle keeps in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The highest logical clock seen.
    pub clock: u64,
    /// How far the store is, as this handle sees it.
    pub position: Position,
    pub held: HashMap<StreamId, Held>,
    /// Those of which something is queued.
    pub unsent: HashSet<StreamId>,
    /// What somebody who waits is sending, and the number of that.
    here: Option<(u64, Arc<Batch>)>,
    sent_here: u64,
    /// What somebody has begun to send and not brought to an end.
    pub orphans: Vec<Batch>,
    /// The flusher knows that something is queued, and will look again before long.
    pub flusher_waits: bool,
    /// Streams that a transaction of this handle writes, held or not: nothing is queued for them, and
    /// no other transaction begins. So whether a run is held changes only while it is in here.
    pub busy: HashSet<StreamId>,
    pub pending: BTreeSet<Position>,
    pub failed: BTreeMap<Position, Fence>,
    pub lost: HashMap<StreamId, Fence>,
    /// Somebody waits for this position.
    pub wanted: Position,
    pub queued_bytes: usize,
    /// Why the database takes nothing that is queued, if it says so.
    pub refused: Option<String>,
    pub closed: bool,
}

/// What one statement is to write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub saves: Vec<StreamSave>,
    pub pieces: Vec<Piece>,
    pub positions: HashMap<i64, Vec<Position>>,
    bytes: usize,
}

/// A statement takes about so many bytes, so that none waits long for the others'.
const BATCH_BYTES: usize = 4 << 20;

impl Memory {
    /// The place of a new append.
    pub fn next_position(&mut self) -> Position {
        self.position += 1;
        self.position
    }

    /// Whether a stream is being written.
    pub fn in_use(&self, stream: &StreamId) -> bool {
        let sending = self.held.get(stream).is_some_and(|held| held.sending);
        sending || self.busy.contains(stream)
    }

    /// Takes what is queued, of streams that nobody writes at the moment.
    pub fn take_batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut later = HashSet::new();
        for stream in self.unsent.drain() {
            let Some(held) = self.held.get_mut(&stream) else {
                continue;
            };
            if self.busy.contains(&stream) || held.sending || batch.bytes > BATCH_BYTES {
                later.insert(stream);
                continue;
            }
            held.sending = true;
            let queue = std::mem::take(&mut held.queue);
            batch.bytes += queue.bytes;
            batch.pieces.extend(queue.pieces);
            batch.positions.insert(held.no, queue.positions);
            let claim = match held.state.has_ended() {
                true => ClaimChange::Gone,
                false => ClaimChange::Keep,
            };
            batch.saves.push(StreamSave {
                no: held.no,
                stream: stream.clone(),
                before: held.saved.clone(),
                token: held.token,
                after: held.state.clone(),
                clock: held.clock,
                events: queue.events,
                claim,
                news: held.news,
            });
        }
        self.unsent = later;
        self.queued_bytes = self.queued_bytes.saturating_sub(batch.bytes);
        batch
    }

    /// Somebody who waits sends a batch; the number of that.
    pub fn send_here(&mut self, batch: &Arc<Batch>) -> u64 {
        self.sent_here += 1;
        self.here = Some((self.sent_here, Arc::clone(batch)));
        self.sent_here
    }

    /// The number of what somebody who waits is sending.
    pub fn number_here(&self) -> Option<u64> {
        self.here.as_ref().map(|(number, _)| *number)
    }

    /// Takes that away, if it is still this.
    pub fn take_here(&mut self, number: u64) -> Option<Batch> {
        let here = self.here.take_if(|(at, _)| *at == number);
        here.map(|(_, batch)| Arc::unwrap_or_clone(batch))
    }

    /// Whether there is something that the flusher has to send.
    pub fn is_unsent(&self) -> bool {
        !self.unsent.is_empty() || !self.orphans.is_empty()
    }

    /// Whether it has to be sent now.
    pub fn is_urgent(&self, many_bytes: usize) -> bool {
        let wanted = || self.pending.range(..=self.wanted).next().is_some();
        self.is_unsent()
            && (self.closed
                || !self.orphans.is_empty()
                || self.queued_bytes > many_bytes
                || wanted())
    }

    /// A stream of a batch is committed.
    pub fn sent(&mut self, save: &StreamSave, positions: &[Position]) {
        for position in positions {
            self.pending.remove(position);
        }
        let Some(held) = self.held.get_mut(&save.stream) else {
            return;
        };
        if held.token != save.token {
            return;
        }
        held.sending = false;
        held.saved = save.after.clone();
        if held.state.has_ended() && held.queue.events.is_empty() {
            self.held.remove(&save.stream);
        }
    }

    /// The database refused a stream: nothing is taken under its lease any more. That may be known
    /// already, and the run be held again under a newer one.
    pub fn lose(&mut self, stream: &StreamId, token: u64, sent: &[Position], current: u64) {
        let fence = Fence {
            stream: stream.clone(),
            token,
            current,
        };
        let mut positions = sent.to_vec();
        if self
            .held
            .get(stream)
            .is_some_and(|held| held.token == token)
            && let Some(held) = self.held.remove(stream)
        {
            self.queued_bytes = self.queued_bytes.saturating_sub(held.queue.bytes);
            self.unsent.remove(stream);
            positions.extend(held.queue.positions);
            self.lost.insert(stream.clone(), fence.clone());
        }
        for position in positions {
            self.pending.remove(&position);
            self.failed.insert(position, fence.clone());
        }
    }

    /// Why nothing is taken under a token, if this handle knows that.
    pub fn fence(&self, stream: &StreamId, token: Option<u64>) -> Option<&Fence> {
        let fence = self.lost.get(stream)?;
        token.filter(|token| *token <= fence.token).map(|_| fence)
    }

    /// Whether everything up to a position is committed, or an error if what stood there never will
    /// be.
    pub fn is_durable(&self, position: Position) -> Result<bool, StoreError> {
        if let Some(fence) = self.failed.get(&position) {
            return Err(fence.error());
        }
        Ok(self.pending.range(..=position).next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use dalsegno_store::StreamId;

    /// A batch is on its way when it becomes known otherwise that the lease is no more.
    #[test]
    fn what_was_sent_under_a_lease_that_is_lost_already_fails_too() {
        let mut memory = Memory::default();
        let run = StreamId::run("order").unwrap_or_else(|_| StreamId::store());
        memory.pending.insert(7);
        memory.lose(&run, 1, &[7], 2);
        assert!(memory.pending.is_empty());
        assert!(memory.failed.contains_key(&7));
    }
}
