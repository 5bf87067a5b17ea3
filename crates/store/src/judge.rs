//! Judging an append: what every store asks before it writes, and the bytes that it then writes.
//!
//! A store opens a draft of each stream with [`draft`], gives every part of the batch to
//! [`Judge::take`], and writes what [`Judge::placed`] holds then: all of it, or nothing.
//!
//! Invariants: the same batch on the same states gives the same events, bytes and hashes in every
//! store. What is refused has changed nothing but drafts, which are thrown away then.

use std::mem;

use crate::error::StoreError;
use crate::event::{Body, Event, INLINE_LIMIT_BYTES, Payload, Version};
use crate::fields::Fields;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::{self, StreamId, StreamKind};
use crate::payload::{self, Piece};
use crate::rules::{Mutant, Rule};
use crate::state::{COUNT_LIMIT, Status, StreamState};
use crate::store::Limits;
use crate::store::{Append, NewEvent, NewPayload};

/// A content type as long as this is none.
const CONTENT_TYPE_LIMIT_BYTES: usize = 200;

/// The payloads of one event, ready to be stored: input and output.
pub type Payloads = [Option<Payload>; 2];

/// An event that an append was given a place for.
#[derive(Debug)]
pub struct Placed {
    /// The event.
    pub event: Event,
    /// Its encoding, behind what [`Judge::behind`] says.
    pub bytes: Vec<u8>,
    /// The hash of its stream after it.
    pub hash: Hash,
}

/// Judges the parts of an append one after the other.
#[derive(Debug)]
pub struct Judge {
    /// The logical clock of the last event; the next one has one more.
    pub clock: u64,
    /// When it all happens.
    pub now_us: u64,
    /// What an event of a user may take.
    pub event_bytes: u64,
    /// What an event of the store's own may take.
    pub own_event_bytes: u64,
    /// What stands before an event's encoding in [`Placed::bytes`].
    pub behind: &'static [u8],
    /// The events that were taken, in order.
    pub placed: Vec<Placed>,
    pub(crate) mutant: Mutant,
}

impl Judge {
    /// For events that follow this clock.
    pub fn new(clock: u64, now_us: u64, limits: &Limits) -> Judge {
        Judge {
            clock,
            now_us,
            event_bytes: limits.event_bytes,
            own_event_bytes: limits.event_bytes.max(1 << 20),
            behind: &[],
            placed: Vec::new(),
            mutant: Mutant::default(),
        }
    }

    /// Takes one part of an append into the draft of its stream. `payloads` has one entry for each
    /// event.
    ///
    /// # Errors
    /// The stream is elsewhere or held by another, or does not take an event.
    pub fn take(
        &mut self,
        append: &mut Append,
        draft: &mut StreamState,
        payloads: &mut dyn Iterator<Item = Payloads>,
    ) -> Result<(), StoreError> {
        check_position(append, draft, self.mutant)?;
        let stream = append.stream.clone();
        for new in &mut append.events {
            self.take_event(&stream, new, draft, payloads.next().unwrap_or_default())?;
        }
        Ok(())
    }

    fn take_event(
        &mut self,
        stream: &StreamId,
        new: &mut NewEvent,
        draft: &mut StreamState,
        [input, output]: Payloads,
    ) -> Result<(), StoreError> {
        let clock = self.clock + 1;
        // By its number, so that it is the same now and when it is read again.
        let kind = match &new.kind {
            Kind::Unknown(number) => Kind::from_number(*number),
            kind => kind.clone(),
        };
        let sequence = draft.head.sequence + 1;
        let event = Event {
            memory: new.memory,
            input,
            output,
            sources: mem::take(&mut new.sources),
            cause: new.cause.take(),
            fields: mem::take(&mut new.fields),
            letter: new.letter.take(),
            ..Event::new(stream.clone(), sequence, clock, self.now_us, kind)
        };
        if clock >= COUNT_LIMIT {
            // Only a forged clock gets there; nothing would follow it.
            let (what, size, limit) = ("the store's clock", clock, COUNT_LIMIT);
            return Err(StoreError::TooLarge { what, size, limit });
        }
        let bytes = event.encode_behind(self.behind);
        let encoded = &bytes[self.behind.len()..];
        let limit = match stream.kind() {
            // What the user allows users.
            StreamKind::Run | StreamKind::Memory => self.event_bytes,
            StreamKind::Store => self.own_event_bytes,
        };
        within("an event", encoded.len() as u64, limit)?;
        let taken = check_readable(&event).and_then(|()| draft.apply(&event));
        taken.map_err(|why| StoreError::Refused {
            stream: stream.clone(),
            kind: new.kind.clone(),
            why,
        })?;
        draft.head = draft.head.after(encoded);
        draft.updated_us = draft.updated_us.max(event.time_us);
        self.clock = clock;
        let hash = draft.head.hash;
        self.placed.push(Placed { event, bytes, hash });
        Ok(())
    }
}

/// Refuses what is for the store's own stream, which only the store writes.
pub fn check_streams(batch: &[Append]) -> Result<(), StoreError> {
    for append in batch {
        if append.stream.kind() == StreamKind::Store {
            let kind = append.events.first().map(|event| event.kind.clone());
            return Err(StoreError::Refused {
                stream: append.stream.clone(),
                kind: kind.unwrap_or(Kind::StoreRecovered),
                why: "only the store writes there".into(),
            });
        }
    }
    Ok(())
}

/// Refuses what is larger than it may be.
pub fn check_sizes(batch: &[Append], limits: &Limits) -> Result<(), StoreError> {
    let events: u64 = batch.iter().map(|append| append.events.len() as u64).sum();
    within("an append of events", events, limits.batch_events)?;
    for event in batch.iter().flat_map(|append| &append.events) {
        if let Kind::User(kind) = &event.kind {
            name::check_name(kind)?;
        }
        for payload in event.input.iter().chain(&event.output) {
            let bytes = payload.bytes.len() as u64;
            within("a payload", bytes, limits.payload_bytes)?;
            let length = payload.content_type.len() as u64;
            let limit = CONTENT_TYPE_LIMIT_BYTES as u64;
            within("a content type", length, limit)?;
        }
    }
    Ok(())
}

/// Whether a payload is too large to be in its event, or is to be kept apart from it.
pub fn is_large(payload: &NewPayload) -> bool {
    payload.apart || payload.bytes.len() > INLINE_LIMIT_BYTES
}

/// A payload as its event has it. If it is large, its pieces that are not `known` go to `pieces`,
/// children first.
pub fn store_payload(
    payload: &NewPayload,
    mut known: impl FnMut(&Hash) -> bool,
    pieces: &mut Vec<Piece>,
) -> Payload {
    let body = if is_large(payload) {
        // Nobody else has a piece of what is apart, so that need not be asked.
        let known = |hash: &Hash| !payload.apart && known(hash);
        let split = payload::split(&payload.bytes, known);
        pieces.extend(split.pieces);
        Body::Stored {
            root: split.root,
            bytes: split.len,
        }
    } else {
        Body::Inline(payload.bytes.clone())
    };
    Payload {
        content_type: payload.content_type.clone(),
        body,
    }
}

/// What to try an append on, given what its stream is now; `None` if there is no such stream.
///
/// # Errors
/// Nothing can be added to it.
pub fn draft(
    append: &Append,
    found: Option<&StreamState>,
    now_us: u64,
) -> Result<StreamState, StoreError> {
    let Some(found) = found else {
        return Ok(StreamState::new(now_us));
    };
    // The store's own stream goes on: it has to say what was lost.
    if found.broken && append.stream.kind() != StreamKind::Store {
        return Err(refused(
            append,
            "events of it were lost, it can only be read",
        ));
    }
    match found.status.filter(|status| status.is_final()) {
        Some(status) => Err(ended(append, found.head, status)),
        None => Ok(found.clone()),
    }
}

/// Why nothing can be added to a run that has ended.
pub(crate) fn ended(append: &Append, head: Version, status: Status) -> StoreError {
    // Where the caller thinks it is matters more than that it has ended.
    check_expected(append, head)
        .err()
        .unwrap_or_else(|| StoreError::Ended {
            stream: append.stream.clone(),
            status,
        })
}

pub(crate) fn refused(append: &Append, why: &str) -> StoreError {
    let kind = append.events.first().map(|event| event.kind.clone());
    StoreError::Refused {
        stream: append.stream.clone(),
        kind: kind.unwrap_or(Kind::RunCreated),
        why: why.into(),
    }
}

/// Fields can be built that read back as others or not at all. The store would keep them and every
/// later opening would see something else, so it is the caller who is told.
fn check_readable(event: &Event) -> Result<(), String> {
    if event.fields.are_plain() {
        return Ok(());
    }
    match Fields::decode(&event.fields.encode()) {
        Ok(fields) if fields == event.fields => Ok(()),
        Ok(_) => Err("its fields would be read as others: use the type that each value has".into()),
        Err(e) => Err(format!("its fields could not be read again: {e}")),
    }
}

fn check_position(append: &Append, draft: &StreamState, mutant: Mutant) -> Result<(), StoreError> {
    if !mutant.breaks(Rule::CheckExpected) {
        check_expected(append, draft.head)?;
    }
    match append.token {
        _ if mutant.breaks(Rule::CheckToken) => Ok(()),
        Some(token) if draft.lease.as_ref().is_none_or(|l| l.token != token) => {
            Err(StoreError::Fenced {
                stream: append.stream.clone(),
                token,
                current: draft.last_token,
            })
        }
        _ => Ok(()),
    }
}

fn check_expected(append: &Append, head: Version) -> Result<(), StoreError> {
    match append.expected {
        Some(expected) if expected != head.sequence => Err(StoreError::Conflict {
            stream: append.stream.clone(),
            expected,
            head,
        }),
        _ => Ok(()),
    }
}

pub(crate) fn within(what: &'static str, size: u64, limit: u64) -> Result<(), StoreError> {
    if size <= limit {
        return Ok(());
    }
    Err(StoreError::TooLarge { what, size, limit })
}
