//! What a store must say to an append: the rules of streams, written a second time and apart from
//! the store's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use dalsegno_store::{
    Append, Body, Event, Fields, INLINE_LIMIT_BYTES, Kind, LetterRef, MUST_UNDERSTAND,
    NAME_LIMIT_BYTES, NewEvent, NewPayload, Payload, Status, StoreError, StreamId, StreamKind,
    field, payload,
};

use super::history::{Entry, History};

/// What one record costs in the log beside its bytes, as the store counts.
const RECORD_OVERHEAD_BYTES: u64 = 64;

/// How large things may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub event_bytes: u64,
    pub batch_bytes: u64,
}

impl Sizes {
    /// Those of a store with segments of this size.
    pub fn of_segment(bytes: u64) -> Sizes {
        Sizes {
            event_bytes: (64 << 10).min(bytes / 4),
            batch_bytes: bytes / 4 * 3,
        }
    }
}

/// Why nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Conflict,
    Ended,
    Refused,
    Fenced,
    Held,
    NotFound,
    TooLarge,
    Name,
    Closed,
}

impl Refusal {
    /// The refusal that an error is; `None` if something failed.
    pub fn of(error: &StoreError) -> Option<Refusal> {
        Some(match error {
            StoreError::Conflict { .. } => Refusal::Conflict,
            StoreError::Ended { .. } => Refusal::Ended,
            StoreError::Refused { .. } => Refusal::Refused,
            StoreError::Fenced { .. } => Refusal::Fenced,
            StoreError::Held { .. } => Refusal::Held,
            StoreError::NotFound { .. } => Refusal::NotFound,
            StoreError::TooLarge { .. } => Refusal::TooLarge,
            StoreError::Name(_) => Refusal::Name,
            StoreError::Closed => Refusal::Closed,
            _ => return None,
        })
    }
}

/// Events for one stream.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub stream: StreamId,
    pub expected: Option<u64>,
    pub token: Option<u64>,
    pub events: Vec<Wanted>,
}

/// An event that is to be.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub new: NewEvent,
    pub letter: Option<LetterRef>,
}

impl From<&Append> for Wish {
    fn from(append: &Append) -> Wish {
        Wish {
            stream: append.stream.clone(),
            expected: append.expected,
            token: append.token,
            events: append.events.iter().cloned().map(Wanted::new).collect(),
        }
    }
}

/// A stream in the middle of an append.
struct Draft {
    sequence: u64,
    status: Option<Status>,
    lease: Option<u64>,
    last_token: u64,
}

impl History {
    /// What becomes of an append of a user.
    pub fn judge(&self, batch: &[Wish], now_us: u64, sizes: Sizes) -> Result<Vec<Entry>, Refusal> {
        if batch.iter().any(|w| w.stream.kind() == StreamKind::Store) {
            return Err(Refusal::Refused);
        }
        self.judge_own(batch, now_us, sizes)
    }

    /// What becomes of an append of the store itself.
    pub fn judge_own(
        &self,
        batch: &[Wish],
        now_us: u64,
        sizes: Sizes,
    ) -> Result<Vec<Entry>, Refusal> {
        let wanted = || batch.iter().flat_map(|wish| &wish.events);
        for Wanted { new, .. } in wanted() {
            match &new.kind {
                Kind::User(name) if !is_name(name) => return Err(Refusal::Name),
                _ => {}
            }
            let payloads = new.input.iter().chain(&new.output);
            if payloads.into_iter().any(|p| p.content_type.len() > 200) {
                return Err(Refusal::TooLarge);
            }
        }
        let mut drafts = BTreeMap::new();
        let mut entries: Vec<Entry> = Vec::new();
        let mut clock = self.state.clock;
        for wish in batch {
            let draft = match drafts.entry(&wish.stream) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(self.draft(wish)?)
                }
            };
            if wish.expected.is_some_and(|e| e != draft.sequence) {
                return Err(Refusal::Conflict);
            }
            if wish.token.is_some() && wish.token != draft.lease {
                return Err(Refusal::Fenced);
            }
            for wanted in &wish.events {
                clock += 1;
                let place = (draft.sequence + 1, clock, now_us);
                let entry = entry_of(&wish.stream, place, wanted);
                if entry.bytes.len() as u64 > sizes.event_bytes {
                    return Err(Refusal::TooLarge);
                }
                draft.take(&entry.event).ok_or(Refusal::Refused)?;
                entries.push(entry);
            }
        }
        let size = |entry: &Entry| entry.bytes.len() as u64 + RECORD_OVERHEAD_BYTES;
        if entries.iter().map(size).sum::<u64>() > sizes.batch_bytes {
            return Err(Refusal::TooLarge);
        }
        if let Some(last) = entries.last_mut() {
            last.ends_batch = true;
        }
        Ok(entries)
    }

    fn draft(&self, wish: &Wish) -> Result<Draft, Refusal> {
        if self.state.retiring.contains(&wish.stream) {
            return Err(Refusal::Refused);
        }
        let sequence = self.head(&wish.stream);
        if self.ended.contains_key(&wish.stream) {
            let elsewhere = wish.expected.is_some_and(|expected| expected != sequence);
            return Err(match elsewhere {
                true => Refusal::Conflict,
                false => Refusal::Ended,
            });
        }
        let stream = self.state.streams.get(&wish.stream);
        Ok(Draft {
            sequence,
            status: stream.and_then(|s| s.status),
            lease: stream.and_then(|s| s.lease.as_ref()).map(|l| l.token),
            last_token: stream.map_or(0, |s| s.last_token),
        })
    }
}

impl Draft {
    /// Takes an event in; `None` if it makes no sense.
    fn take(&mut self, event: &Event) -> Option<()> {
        let run = event.stream.kind() == StreamKind::Run;
        let live = self.status.is_some_and(|status| !status.is_final());
        let fields = &event.fields;
        let number = fields.number(field::TOKEN);
        let understood = match event.kind {
            // One that must not be passed over.
            Kind::Unknown(n) => n < MUST_UNDERSTAND,
            _ => true,
        };
        // What cannot be read back cannot be written.
        let readable = Fields::decode(&fields.encode()).as_ref() == Ok(fields);
        let over = self.status.is_some_and(Status::is_final);
        let created = event.kind == Kind::RunCreated;
        if !understood || !readable || over || (run && !created && !live) {
            return None;
        }
        let (status, allowed) = match event.kind {
            Kind::RunCreated => (Status::Pending, run && self.status.is_none()),
            Kind::RunStarted => (Status::Running, live),
            Kind::RunCheckpointed => (Status::Checkpointed, live),
            Kind::RunCompleted => (Status::Completed, live),
            Kind::RunFailed => (Status::Failed, live),
            Kind::RunCancelled => (Status::Cancelled, live),
            Kind::LeaseTaken => {
                let token = number.filter(|token| *token > self.last_token)?;
                // One that none can follow would lock the run for good.
                (self.last_token, self.lease) = (token, Some(token));
                return self.go_on(token < u64::MAX);
            }
            Kind::LeaseReleased => {
                let held = number.is_some() && number == self.lease;
                self.lease = None;
                return self.go_on(held);
            }
            Kind::TimerSet => {
                let whole = fields.text(field::TIMER).is_some();
                return self.go_on(whole && fields.number(field::DUE).is_some());
            }
            Kind::TimerFired | Kind::TimerCancelled => {
                return self.go_on(fields.text(field::TIMER).is_some());
            }
            _ => return self.go_on(true),
        };
        self.status = Some(status);
        if status.is_final() {
            self.lease = None;
        }
        self.go_on(allowed)
    }

    fn go_on(&mut self, allowed: bool) -> Option<()> {
        self.sequence += 1;
        allowed.then_some(())
    }
}

/// The event that comes of a wish.
fn entry_of(
    stream: &StreamId,
    (sequence, clock, time_us): (u64, u64, u64),
    wanted: &Wanted,
) -> Entry {
    let new = &wanted.new;
    let kind = match new.kind {
        // It may be a number that has a name.
        Kind::Unknown(number) => Kind::from_number(number),
        ref kind => kind.clone(),
    };
    let mut event = Event::new(stream.clone(), sequence, clock, time_us, kind);
    event.memory = new.memory;
    event.input = new.input.as_ref().map(stored);
    event.output = new.output.as_ref().map(stored);
    event.sources.clone_from(&new.sources);
    event.cause.clone_from(&new.cause);
    event.fields = new.fields.clone();
    event.letter.clone_from(&wanted.letter);
    let bytes = |payload: &NewPayload| Arc::from(&*payload.bytes);
    Entry {
        bytes: event.encode(),
        event,
        payloads: [
            new.input.as_ref().map(bytes),
            new.output.as_ref().map(bytes),
        ],
        ends_batch: false,
    }
}

fn stored(payload: &NewPayload) -> Payload {
    let body = if payload.bytes.len() <= INLINE_LIMIT_BYTES {
        Body::Inline(payload.bytes.clone())
    } else {
        let split = payload::split(&payload.bytes, |_| true);
        Body::Stored {
            root: split.root,
            bytes: split.len,
        }
    };
    Payload {
        content_type: payload.content_type.clone(),
        body,
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LIMIT_BYTES && !name.chars().any(char::is_control)
}
