//! What the store knows without reading history: a fold over events.
//!
//! Invariant: [`State::apply`] is pure and never panics, whatever an event holds. An event that
//! makes no sense for its run puts that run into *attention*; it never stops the store. The same
//! events in the same order give the same state, byte for byte ([`State::digest`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{Event, LetterRef, Version};
use crate::fields::Value;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::{StreamId, StreamKind};

mod codec;
mod stream;
#[cfg(test)]
mod tests;

/// Numbers of the fields that the store itself reads, by kind.
pub mod field {
    /// `RunCreated`: the agent's name.
    pub const AGENT: u64 = 1;
    /// `RunCreated`: the queue that workers take it from; the one without a name if left out.
    pub const QUEUE: u64 = 11;
    /// `RunCreated`: its priority in the queue, higher first; 0 if left out.
    pub const PRIORITY: u64 = 12;
    /// `AttentionRaised`: why.
    pub const REASON: u64 = 1;
    /// `LeaseTaken`: who.
    pub const OWNER: u64 = 1;
    /// `LeaseTaken`, `LeaseReleased`: the fencing token.
    pub const TOKEN: u64 = 2;
    /// `LeaseTaken`: until when, in microseconds since 1970.
    pub const UNTIL: u64 = 3;
    /// `TimerSet`, `TimerFired`, `TimerCancelled`: which.
    pub const TIMER: u64 = 1;
    /// `TimerSet`: when, in microseconds since 1970.
    pub const DUE: u64 = 2;
    /// `RunsRetired`: the names of the runs.
    pub const RUNS: u64 = 1;
    /// `RunsRetired`: payload pieces stored before this LSN must get no new references.
    pub const PIECES_FROM: u64 = 2;
    /// `StoreRepaired`: the same as [`PIECES_FROM`], if the log was damaged.
    pub const REPAIRED_PIECES_FROM: u64 = 3;
    /// `RunsRetired`: the last letter taken from each sender, as lists of sender, number and clock.
    pub const LETTERS: u64 = 3;
    /// `RunsRetired`: the letters are added to those that the event before gave.
    pub const MORE_LETTERS: u64 = 4;
}

/// Where a run is in its life. It only ever moves down this list, except that a checkpointed run
/// runs again when it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Created, not begun.
    Pending,
    /// A worker has it.
    Running,
    /// Written down, and not in any worker's memory.
    Checkpointed,
    /// Done.
    Completed,
    /// Ended in an error.
    Failed,
    /// Ended by somebody.
    Cancelled,
}

impl Status {
    /// Whether nothing can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    /// What a run is after an event of this kind, if it ends with it.
    pub(crate) fn of_end(kind: &Kind) -> Option<Status> {
        match kind {
            Kind::RunCompleted => Some(Status::Completed),
            Kind::RunFailed => Some(Status::Failed),
            Kind::RunCancelled => Some(Status::Cancelled),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u64 {
        self as u64
    }

    pub(crate) fn from_number(number: u64) -> Option<Status> {
        let all = [
            Status::Pending,
            Status::Running,
            Status::Checkpointed,
            Status::Completed,
            Status::Failed,
            Status::Cancelled,
        ];
        all.into_iter().find(|status| status.number() == number)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Pending => "pending",
            Status::Running => "running",
            Status::Checkpointed => "checkpointed",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        })
    }
}

/// Who may write to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The worker.
    pub owner: Arc<str>,
    /// Rises with every new holder; who has an older one is refused.
    pub token: u64,
    /// Until when, in microseconds since 1970.
    pub until_us: u64,
}

/// A stream that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// Where it is.
    pub head: Version,
    /// The life of a run; `None` for other streams.
    pub status: Option<Status>,
    /// The agent that a run is of.
    pub agent: Option<Arc<str>>,
    /// When it was created, in microseconds since 1970.
    pub created_us: u64,
    /// When its last event happened.
    pub updated_us: u64,
    /// Why only a person can move it on.
    pub attention: Option<String>,
    /// Who holds it now.
    pub lease: Option<Lease>,
    /// The highest fencing token ever given.
    pub last_token: u64,
    /// Its timers: which and when.
    pub timers: BTreeMap<String, u64>,
    /// Events of it were lost. Nothing can be appended.
    pub broken: bool,
}

/// How many senders of letters are remembered. A letter's file is removed before the next is taken,
/// so that a sender who is forgotten has no letter left that could be taken again.
const SENDERS_LIMIT: usize = 1024;

/// Clocks, tokens and sequences from here on are nonsense: no store counts that far, and one that
/// went on from there would run out of numbers.
pub(crate) const COUNT_LIMIT: u64 = 1 << 62;

/// Everything that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The logical clock of the last event.
    pub clock: u64,
    /// Streams that have not ended. Runs that have are only on disk.
    pub streams: BTreeMap<StreamId, StreamState>,
    /// The last letter taken from each sender, and when by the logical clock.
    pub(crate) letters: BTreeMap<String, Taken>,
    /// Runs that are gone, but whose space is not free yet.
    pub retiring: BTreeSet<StreamId>,
    /// Payload pieces stored before this LSN must get no new references: they may be on their way
    /// out.
    pub pieces_from: u64,
    /// All timers in the order in which they are due. Follows from `streams`.
    pub(crate) due: BTreeSet<(u64, StreamId, String)>,
}

/// The last letter taken from a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub number: u64,
    pub clock: u64,
}

impl Taken {
    /// As [`field::LETTERS`] has it.
    pub fn to_value(self, sender: &str) -> Value {
        Value::List(vec![sender.into(), self.number.into(), self.clock.into()])
    }
}

fn read_taken(value: &Value) -> Option<(String, Taken)> {
    let Value::List(list) = value else {
        return None;
    };
    let [
        Value::Text(sender),
        Value::Number(number),
        Value::Number(clock),
    ] = list.as_slice()
    else {
        return None;
    };
    let (number, clock) = (*number, *clock);
    Some((sender.clone(), Taken { number, clock }))
}

/// What applying an event came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is part of the state now.
    Yes,
    /// The state had it already.
    Before,
    /// It ended its run, which was this before it left the state.
    Ended(Box<StreamState>),
}

impl State {
    /// Takes an event in; `bytes` is its encoding.
    ///
    /// An event that does not follow the one before it in its stream, because something between
    /// them was lost, is taken in too; its stream is broken from then on, and in attention.
    pub fn apply(&mut self, event: &Event, bytes: &[u8]) -> Applied {
        self.apply_hashed(event, |before| before.chain(bytes))
    }

    /// The same; `hash` gives the stream's hash after the event from the one before, and may have
    /// computed it earlier.
    pub(crate) fn apply_hashed(
        &mut self,
        event: &Event,
        hash: impl FnOnce(Hash) -> Hash,
    ) -> Applied {
        let found = self.streams.get(&event.stream);
        let head = found.map_or(Version::START, |stream| stream.head);
        if event.sequence <= head.sequence {
            return Applied::Before;
        }
        let stream = self.streams.entry(event.stream.clone());
        let stream = stream.or_insert_with(|| StreamState::new(event.time_us));
        for (id, due) in &stream.timers {
            self.due.remove(&(*due, event.stream.clone(), id.clone()));
        }
        if event.sequence != head.sequence + 1 {
            stream.broken = true;
            stream.attention = Some(format!(
                "events {} to {} are missing",
                head.sequence + 1,
                event.sequence - 1
            ));
        }
        let applied = match event.clock {
            COUNT_LIMIT.. => Err(format!("a clock of {}", event.clock)),
            clock => {
                self.clock = self.clock.max(clock);
                stream.apply(event)
            }
        };
        if let Err(why) = applied {
            // Only this run stops, and says why.
            stream.attention = Some(format!("event {}: {why}", event.sequence));
        }
        stream.head = Version {
            sequence: event.sequence,
            hash: hash(head.hash),
        };
        stream.updated_us = stream.updated_us.max(event.time_us);
        let has_ended = stream.has_ended() && event.stream.kind() == StreamKind::Run;
        if !has_ended {
            for (id, due) in &stream.timers {
                self.due.insert((*due, event.stream.clone(), id.clone()));
            }
        }
        if let Some(letter) = &event.letter {
            self.note_letter(letter, event.clock);
        }
        if event.stream.kind() == StreamKind::Store {
            self.apply_own(event);
        }
        let ended = has_ended.then(|| self.streams.remove(&event.stream));
        match ended.flatten() {
            Some(stream) => Applied::Ended(Box::new(stream)),
            None => Applied::Yes,
        }
    }

    /// Takes in an event of which only the place can be read: its stream stops here, in attention.
    pub(crate) fn freeze(&mut self, stream: &StreamId, sequence: u64, bytes: &[u8], why: &str) {
        let stream = self
            .streams
            .entry(stream.clone())
            .or_insert_with(|| StreamState::new(0));
        if sequence <= stream.head.sequence {
            return;
        }
        stream.broken = true;
        stream.attention = Some(format!("event {sequence} cannot be read: {why}"));
        stream.head = Version {
            sequence,
            hash: stream.head.hash.chain(bytes),
        };
    }

    /// The store's own events that change more than their stream.
    fn apply_own(&mut self, event: &Event) {
        match event.kind {
            Kind::RunsRetired => {
                let names = match event.fields.get(field::RUNS) {
                    Some(Value::List(names)) => names.as_slice(),
                    _ => &[],
                };
                for name in names {
                    let Value::Text(name) = name else { continue };
                    let Ok(run) = name.parse::<StreamId>() else {
                        continue;
                    };
                    // It had ended, and is here only if its end was removed from the log already.
                    self.remove_stream(&run);
                    self.retiring.insert(run);
                }
                let from = event.fields.number(field::PIECES_FROM).unwrap_or(0);
                self.pieces_from = self.pieces_from.max(from);
                // That a retired run has taken up a letter must not be forgotten with its events.
                if let Some(Value::List(letters)) = event.fields.get(field::LETTERS) {
                    if event.fields.number(field::MORE_LETTERS).is_none() {
                        self.letters.clear();
                    }
                    self.letters.extend(letters.iter().filter_map(read_taken));
                }
            }
            Kind::StoreRepaired => {
                // What is below a piece that is there may have been lost.
                let from = event.fields.number(field::REPAIRED_PIECES_FROM);
                self.pieces_from = self.pieces_from.max(from.unwrap_or(0));
            }
            Kind::SpaceReclaimed => self.retiring.clear(),
            _ => {}
        }
    }

    fn remove_stream(&mut self, id: &StreamId) {
        if let Some(stream) = self.streams.remove(id) {
            for (timer, due) in stream.timers {
                self.due.remove(&(due, id.clone(), timer));
            }
        }
    }

    fn note_letter(&mut self, letter: &LetterRef, clock: u64) {
        let taken = self.letters.entry(letter.sender.clone());
        let taken = taken.or_insert(Taken { number: 0, clock });
        taken.number = taken.number.max(letter.number);
        taken.clock = clock;
        if self.letters.len() > SENDERS_LIMIT {
            let oldest = self.letters.iter().min_by_key(|(_, taken)| taken.clock);
            if let Some(sender) = oldest.map(|(sender, _)| sender.clone()) {
                self.letters.remove(&sender);
            }
        }
    }

    /// The number of the last letter taken from a sender; 0 if none is remembered.
    pub fn last_letter(&self, sender: &str) -> u64 {
        self.letters.get(sender).map_or(0, |taken| taken.number)
    }

    /// A hash over everything in the state.
    pub fn digest(&self) -> Hash {
        Hash::of(&self.encode())
    }
}
