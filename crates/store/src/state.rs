//! What the store knows without reading history: a fold over events.
//!
//! Invariant: [`State::apply`] is pure and never panics, whatever an event holds. An event that
//! makes no sense for its run puts that run into *attention*; it never stops the store. The same
//! events in the same order give the same state, byte for byte ([`State::digest`]).

use std::collections::BTreeMap;

use crate::event::{Event, Version};
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::{StreamId, StreamKind};

mod codec;
#[cfg(test)]
mod tests;

/// Numbers of the fields that the store itself reads, by kind.
pub mod field {
    /// `RunCreated`: the agent's name.
    pub const AGENT: u64 = 1;
    /// `AttentionRaised`: why.
    pub const REASON: u64 = 1;
    /// `LeaseTaken`, `LeaseRenewed`, `LeaseReleased`: who.
    pub const OWNER: u64 = 1;
    /// The same: the fencing token.
    pub const TOKEN: u64 = 2;
    /// The same: until when, in microseconds since 1970.
    pub const UNTIL: u64 = 3;
    /// `TimerSet`, `TimerFired`, `TimerCancelled`: which.
    pub const TIMER: u64 = 1;
    /// `TimerSet`: when, in microseconds since 1970.
    pub const DUE: u64 = 2;
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

    fn number(self) -> u64 {
        self as u64
    }

    fn from_number(number: u64) -> Option<Status> {
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
    pub owner: String,
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
    pub agent: Option<String>,
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
}

impl StreamState {
    fn new(event: &Event) -> StreamState {
        StreamState {
            head: Version::START,
            status: None,
            agent: None,
            created_us: event.time_us,
            updated_us: event.time_us,
            attention: None,
            lease: None,
            last_token: 0,
            timers: BTreeMap::new(),
        }
    }

    /// Whether nothing can follow.
    pub fn has_ended(&self) -> bool {
        self.status.is_some_and(Status::is_final)
    }

    /// Takes an event in. An error says why it makes no sense here.
    fn apply(&mut self, event: &Event) -> Result<(), String> {
        if self.has_ended() {
            return Err(format!("{} after the run had ended", event.kind));
        }
        let fields = &event.fields;
        match &event.kind {
            kind if !kind.may_be_skipped() => {
                return Err(format!("{kind} is from a newer version: use that one"));
            }
            Kind::RunCreated => {
                self.expect_status(event, &[None])?;
                self.status = Some(Status::Pending);
                self.agent = fields.text(field::AGENT).map(str::to_owned);
            }
            Kind::RunStarted => self.go(event, Status::Running)?,
            Kind::RunCheckpointed => self.go(event, Status::Checkpointed)?,
            Kind::RunCompleted => self.go(event, Status::Completed)?,
            Kind::RunFailed => self.go(event, Status::Failed)?,
            Kind::RunCancelled => self.go(event, Status::Cancelled)?,
            Kind::AttentionRaised => {
                let reason = fields.text(field::REASON).unwrap_or("no reason given");
                self.attention = Some(reason.to_owned());
            }
            Kind::AttentionCleared => self.attention = None,
            Kind::LeaseTaken | Kind::LeaseRenewed | Kind::LeaseReleased => self.lease(event)?,
            Kind::TimerSet => {
                let (id, due) = (fields.text(field::TIMER), fields.number(field::DUE));
                let (id, due) = id.zip(due).ok_or("a timer without a name or a time")?;
                self.timers.insert(id.to_owned(), due);
            }
            Kind::TimerFired | Kind::TimerCancelled => {
                let id = fields.text(field::TIMER).ok_or("a timer without a name")?;
                self.timers.remove(id);
            }
            _ => {}
        }
        Ok(())
    }

    fn expect_status(&self, event: &Event, allowed: &[Option<Status>]) -> Result<(), String> {
        if allowed.contains(&self.status) {
            return Ok(());
        }
        let now = match self.status {
            Some(status) => format!("a run that is {status}"),
            None => "a stream that is no run".into(),
        };
        Err(format!("{} in {now}", event.kind))
    }

    fn go(&mut self, event: &Event, to: Status) -> Result<(), String> {
        let live = [
            Some(Status::Pending),
            Some(Status::Running),
            Some(Status::Checkpointed),
        ];
        self.expect_status(event, &live)?;
        self.status = Some(to);
        if to.is_final() {
            self.timers.clear();
            self.lease = None;
            self.attention = None;
        }
        Ok(())
    }

    fn lease(&mut self, event: &Event) -> Result<(), String> {
        let token = event
            .fields
            .number(field::TOKEN)
            .ok_or("a lease without a token")?;
        if event.kind == Kind::LeaseTaken {
            if token <= self.last_token {
                return Err(format!("token {token} after {}", self.last_token));
            }
        } else if self.lease.as_ref().is_none_or(|lease| lease.token != token) {
            return Err(format!(
                "{} with token {token}, which holds nothing",
                event.kind
            ));
        }
        if event.kind == Kind::LeaseReleased {
            self.lease = None;
            return Ok(());
        }
        self.last_token = token;
        self.lease = Some(Lease {
            owner: event
                .fields
                .text(field::OWNER)
                .unwrap_or_default()
                .to_owned(),
            token,
            until_us: event.fields.number(field::UNTIL).unwrap_or(0),
        });
        Ok(())
    }
}

/// Everything that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The logical clock of the last event.
    pub clock: u64,
    /// Streams that have not ended. Runs that have are only on disk.
    pub streams: BTreeMap<StreamId, StreamState>,
    /// The last letter taken from each sender.
    pub letters: BTreeMap<String, u64>,
}

/// What applying an event came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is part of the state now.
    Yes,
    /// The state had it already.
    Before,
    /// It ended its run, which has left the state.
    Ended,
}

impl State {
    /// Takes an event in; `bytes` is its encoding.
    ///
    /// # Errors
    /// The event does not follow what the state knows of its stream. Nothing has changed.
    pub fn apply(&mut self, event: &Event, bytes: &[u8]) -> Result<Applied, String> {
        let stream = self.streams.get(&event.stream);
        let head = stream.map_or(Version::START, |stream| stream.head);
        if event.sequence <= head.sequence {
            return Ok(Applied::Before);
        }
        if event.sequence != head.sequence + 1 {
            return Err(format!(
                "event {} after event {}",
                event.sequence, head.sequence
            ));
        }
        let stream = self
            .streams
            .entry(event.stream.clone())
            .or_insert_with(|| StreamState::new(event));
        if let Err(why) = stream.apply(event) {
            // Only this run stops, and says why.
            stream.attention = Some(format!("event {}: {why}", event.sequence));
        }
        stream.head = head.after(bytes);
        stream.updated_us = stream.updated_us.max(event.time_us);
        self.clock = self.clock.max(event.clock);
        if let Some(letter) = &event.letter {
            let last = self.letters.entry(letter.sender.clone()).or_insert(0);
            *last = letter.number.max(*last);
        }
        if stream.has_ended() && event.stream.kind() == StreamKind::Run {
            self.streams.remove(&event.stream);
            return Ok(Applied::Ended);
        }
        Ok(Applied::Yes)
    }

    /// Whether an event would make sense; the error says why not.
    ///
    /// # Errors
    /// It would put its run into attention, or does not follow its stream.
    pub fn check(&self, event: &Event) -> Result<(), String> {
        match self.streams.get(&event.stream) {
            Some(stream) => stream.clone().apply(event),
            None => StreamState::new(event).apply(event),
        }
    }

    /// A hash over everything in the state.
    pub fn digest(&self) -> Hash {
        Hash::of(&self.encode())
    }
}
