//! A stream whose row is locked: as it was found, as a transaction makes it, and what is to be written.
//!
//! Invariant: whether a run may go on follows from what comes for it and from who holds it, here and
//! nowhere else.

use dalsegno_store::engine::{self, decode_state};
use dalsegno_store::{Append, Event, Lease, StoreError, StreamId, StreamKind, StreamState};
use tokio_postgres::Row;

use crate::inner::Inner;
use crate::save::{ClaimChange, EventRow, StreamSave, us_of};

/// A stream as a transaction has it.
#[derive(Debug)]
pub(crate) struct Locked {
    pub no: Option<i64>,
    pub token: u64,
    /// As it is in the database.
    pub before: StreamState,
    /// With what this transaction adds.
    pub draft: StreamState,
    /// Nothing that was found is there, or it has ended: judged when something is to be added.
    pub exists: bool,
    pub clock: u64,
    pub queued: Vec<EventRow>,
    pub added: Vec<EventRow>,
    pub claim: ClaimChange,
    /// The lease that is live, and the handle that has it.
    pub holder: Option<(Lease, String)>,
    /// This handle holds it, whether the time is over or not.
    pub is_ours: bool,
    /// As of [`crate::memory::Held`].
    pub news: bool,
    pub has_claim: bool,
    /// Its row names a holder, whose time may be over.
    pub was_held: bool,
}

impl Locked {
    pub fn new(now_us: u64) -> Locked {
        let nothing = Append::to(StreamId::store(), Vec::new());
        // A stream that is not there takes everything.
        let state = engine::draft(&nothing, None, now_us);
        let state = state.unwrap_or_else(|_| unreachable!("nothing was found that could refuse"));
        Locked {
            no: None,
            token: 0,
            before: state.clone(),
            draft: state,
            exists: false,
            clock: 0,
            queued: Vec::new(),
            added: Vec::new(),
            claim: ClaimChange::Keep,
            holder: None,
            is_ours: false,
            news: false,
            has_claim: false,
            was_held: false,
        }
    }

    pub fn read(stream: &StreamId, row: &Row) -> Result<Locked, StoreError> {
        let state = read_state(stream, row.get(6))?;
        Ok(Locked {
            no: Some(row.get(2)),
            token: row.get::<_, i64>(5) as u64,
            before: state.clone(),
            draft: state,
            exists: true,
            clock: row.get::<_, i64>(4) as u64,
            queued: Vec::new(),
            added: Vec::new(),
            claim: ClaimChange::Keep,
            holder: None,
            is_ours: false,
            news: false,
            has_claim: false,
            was_held: false,
        })
    }

    /// Whether there is such a stream.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// The lease of another handle that is live, unless the caller has its token.
    pub fn held_by_another(&self, inner: &Inner, token: Option<u64>) -> Option<Lease> {
        let (lease, handle) = self.holder.as_ref()?;
        (*handle != inner.handle && token != Some(lease.token)).then(|| lease.clone())
    }

    /// Events come that may let the run go on.
    pub fn arrives<'e>(
        &mut self,
        stream: &StreamId,
        mut events: impl Iterator<Item = &'e Event>,
        now_us: i64,
    ) {
        if stream.kind() != StreamKind::Run {
            return;
        }
        let Some(first) = events.next() else {
            return;
        };
        if self.no.is_none() && self.claim == ClaimChange::Keep {
            let (queue, priority) = engine::queue_of(&first.fields);
            self.claim = ClaimChange::New {
                queue: crate::save::db_text(queue),
                priority: i32::try_from(priority).unwrap_or(i32::MAX),
                ready_us: now_us,
            };
        } else if self.holder.is_none() && self.has_claim && self.claim == ClaimChange::Keep {
            self.claim = ClaimChange::Set {
                ready_us: now_us,
                token: None,
                holder: None,
            };
        }
    }

    /// What is to be written of it, if anything is.
    pub fn save(&mut self, stream: &StreamId) -> Option<StreamSave> {
        if self.added.is_empty() && self.claim == ClaimChange::Keep {
            return None;
        }
        let no = self.no?;
        let mut claim = std::mem::replace(&mut self.claim, ClaimChange::Keep);
        if self.draft.has_ended() {
            claim = match claim {
                ClaimChange::New { .. } => ClaimChange::Keep,
                _ => ClaimChange::Gone,
            };
        } else if self.draft.attention.is_some() && self.before.attention.is_none() {
            // Only a person can move it on: what one says later lets it be claimed again. Whoever
            // holds it goes on holding it.
            match &mut claim {
                ClaimChange::New { ready_us, .. }
                | ClaimChange::Set {
                    ready_us,
                    token: None,
                    ..
                } => *ready_us = crate::save::NEVER_US,
                _ => {}
            }
        }
        let mut events = std::mem::take(&mut self.queued);
        events.append(&mut self.added);
        Some(StreamSave {
            no,
            stream: stream.clone(),
            before: self.before.clone(),
            token: self.token,
            after: self.draft.clone(),
            clock: self.clock,
            events,
            claim,
            news: self.news,
        })
    }
}

impl From<engine::Placed> for EventRow {
    fn from(placed: engine::Placed) -> EventRow {
        EventRow {
            sequence: placed.event.sequence,
            bytes: placed.bytes,
            hash: placed.hash,
        }
    }
}

/// The state in a row.
pub(crate) fn read_state(stream: &StreamId, bytes: &[u8]) -> Result<StreamState, StoreError> {
    decode_state(bytes)
        .map_err(|e| engine::damaged(format!("the row of {stream}"), "a state", e.to_string()))
}

pub(crate) fn holder_of(row: &Row, state: &StreamState, now_us: i64) -> Option<(Lease, String)> {
    let token = row.get::<_, Option<i64>>(2)? as u64;
    let handle: Option<String> = row.get(3);
    let ready_us: i64 = row.get(4);
    let lease = live_lease(state, Some(token), ready_us, now_us)?;
    Some((lease, handle.unwrap_or_default()))
}

/// The lease of a run, if it is held now.
pub(crate) fn live_lease(
    state: &StreamState,
    token: Option<u64>,
    ready_us: i64,
    now_us: i64,
) -> Option<Lease> {
    let lease = state.lease.as_ref()?;
    (token == Some(lease.token) && ready_us > now_us).then(|| Lease {
        until_us: us_of(ready_us),
        ..lease.clone()
    })
}
