//! What a store is, whatever it is made of: streams, runs, leases, timers, letters.
//!
//! Invariants that every implementation keeps, and that the contract tests show for each:
//! an append is whole or absent, also over several streams; each stream is a chain without gaps;
//! a fencing token that is not the current one cannot write; a letter is taken up exactly once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::content_type::ContentType;
use crate::error::StoreError;
use crate::event::{Event, EventRef, LetterRef, Payload, Version};
use crate::fields::Fields;
use crate::hash::Hash;
use crate::helper::NewHelper;
use crate::kind::Kind;
use crate::mailbox::NewLetter;
use crate::name::{StreamId, StreamKind};
use crate::payload::Piece;
use crate::state::{Lease, Status};

/// What a store answers, as soon as it can.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// How far a store is: rises with every append, whichever stream it is to.
pub type Position = u64;

/// Events for one stream.
#[derive(Clone, Debug)]
pub struct Append {
    /// Where to.
    pub stream: StreamId,
    /// The sequence of the last event the caller knows, 0 for a new stream; `None` if it does not
    /// matter what else is there.
    pub expected: Option<u64>,
    /// The fencing token the caller holds the run under, if it does.
    pub token: Option<u64>,
    /// What happened, in order.
    pub events: Vec<NewEvent>,
}

impl Append {
    /// To a stream, wherever it is.
    pub fn to(stream: StreamId, events: Vec<NewEvent>) -> Append {
        Append {
            stream,
            expected: None,
            token: None,
            events,
        }
    }

    /// Only if the stream's last event has this sequence.
    pub fn expecting(mut self, sequence: u64) -> Append {
        self.expected = Some(sequence);
        self
    }

    /// Only under this fencing token.
    pub fn under(mut self, token: u64) -> Append {
        self.token = Some(token);
        self
    }
}

/// An event that is to be: the store gives it its place and time.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// What happened.
    pub kind: Kind,
    /// The memory that was seen.
    pub memory: Option<Version>,
    /// What went in.
    pub input: Option<NewPayload>,
    /// What came out.
    pub output: Option<NewPayload>,
    /// Where it was taken from.
    pub sources: Vec<String>,
    /// The event that led to it.
    pub cause: Option<EventRef>,
    /// What else its kind says.
    pub fields: Fields,
    pub(crate) letter: Option<LetterRef>,
}

impl NewEvent {
    /// With nothing but its kind.
    pub fn new(kind: Kind) -> NewEvent {
        NewEvent {
            kind,
            memory: None,
            input: None,
            output: None,
            sources: Vec::new(),
            cause: None,
            fields: Fields::new(),
            letter: None,
        }
    }

    /// With these fields of its kind.
    pub fn with_fields(mut self, fields: Fields) -> NewEvent {
        self.fields = fields;
        self
    }

    /// With what went in.
    pub fn with_input(mut self, input: NewPayload) -> NewEvent {
        self.input = Some(input);
        self
    }

    /// With what came out.
    pub fn with_output(mut self, output: NewPayload) -> NewEvent {
        self.output = Some(output);
        self
    }
}

/// A payload as the user gives it.
#[derive(Clone, PartialEq, Eq)]
pub struct NewPayload {
    /// What it is, as in `application/json`.
    pub content_type: ContentType,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Kept in pieces of its own and never in its event, however short it is: see
    /// [`NewPayload::apart`].
    pub apart: bool,
}

impl NewPayload {
    /// Bytes of some type.
    pub fn new(content_type: impl Into<ContentType>, bytes: impl Into<Vec<u8>>) -> NewPayload {
        NewPayload {
            content_type: content_type.into(),
            bytes: bytes.into(),
            apart: false,
        }
    }

    /// Keeps it out of its event, however short it is, so that it can be forgotten
    /// ([`Store::erase_forgotten`]) while the event and its hash stay.
    ///
    /// Equal parts of payloads are stored once, and the hash of a short text can be guessed. So who
    /// wants to forget puts random bytes into the payload, at most 256 bytes apart.
    pub fn apart(mut self) -> NewPayload {
        self.apart = true;
        self
    }

    /// JSON, as text.
    pub fn json(text: impl Into<String>) -> NewPayload {
        NewPayload::new("application/json", text.into().into_bytes())
    }
}

/// Without the bytes, which are long and the user's.
impl fmt::Debug for NewPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.content_type, self.bytes.len())
    }
}

/// What an append came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where each stream is now, in the order given.
    pub heads: Vec<Version>,
    /// When the store is durable up to here, the events are.
    pub position: Position,
}

/// An event as it stands in its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The event.
    pub event: Event,
    /// The hash of its stream up to and including it.
    pub hash: Hash,
}

/// A run, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Its stream.
    pub run: StreamId,
    /// Where it is in its life.
    pub status: Status,
    /// The agent it is of.
    pub agent: Option<String>,
    /// When it was created, in microseconds since 1970.
    pub created_us: u64,
    /// When its last event happened.
    pub updated_us: u64,
    /// Its last event.
    pub head: Version,
    /// Why only a person can move it on.
    pub attention: Option<String>,
    /// Who holds it.
    pub lease: Option<Lease>,
    /// When its next timer is due.
    pub next_timer_us: Option<u64>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Only these; all if empty.
    pub status: Vec<Status>,
    /// Only those in attention.
    pub attention: bool,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those after this one, by name.
    pub after: Option<StreamId>,
    /// At most so many; 0 for as many as there are.
    pub limit: usize,
    /// Those whose last event is the newest first, instead of by name.
    pub newest: bool,
}

impl RunQuery {
    pub(crate) fn wants(&self, run: &RunInfo) -> bool {
        (self.status.is_empty() || self.status.contains(&run.status))
            && (!self.attention || run.attention.is_some())
            && (self.agent.is_none() || self.agent == run.agent)
            && self.after.as_ref().is_none_or(|after| run.run > *after)
    }

    pub(crate) fn wants_ended(&self) -> bool {
        !self.attention && (self.status.is_empty() || self.status.iter().any(|s| s.is_final()))
    }
}

/// Events of another store that are to be taken over as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The stream, as it is named here.
    pub stream: StreamId,
    /// How it is named where it comes from.
    pub original: StreamId,
    /// Where it is here; [`Version::START`] if it is new.
    pub after: Version,
    /// The bytes of the events that follow.
    pub events: Vec<Vec<u8>>,
    /// The last one of them where they come from.
    pub head: Version,
}

/// A timer whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The run that waits.
    pub run: StreamId,
    /// Which of its timers.
    pub id: String,
    /// When it was due, in microseconds since 1970.
    pub due_us: u64,
}

/// Which runs a worker wants to go on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The worker.
    pub owner: String,
    /// For how long it takes them, in microseconds.
    pub for_us: u64,
    /// At most so many.
    pub limit: usize,
    /// Only runs of these agents; of all if empty.
    pub agents: Vec<String>,
    /// Only runs of these queues; of all if empty. Runs without a queue are in the queue ``.
    pub queues: Vec<String>,
}

/// What became of the letters that were waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LettersTaken {
    /// Letters that are events of their streams now.
    pub taken: Vec<(LetterRef, EventRef)>,
    /// Letters that their stream did not take, and why. An event of the store says so too.
    pub refused: Vec<(LetterRef, String)>,
    /// Files that are no letters; they were set aside.
    pub bad: Vec<(String, String)>,
}

/// How large things may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One payload.
    pub payload_bytes: u64,
    /// One event without its payloads that are stored by content.
    pub event_bytes: u64,
    /// The events of one append.
    pub batch_events: u64,
    /// A letter.
    pub letter_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload_bytes: 64 << 20,
            event_bytes: 64 << 10,
            batch_events: 10_000,
            letter_bytes: 1 << 20,
        }
    }
}

/// Where everything lives.
///
/// [`Store::durable`] and [`Store::changed`] wait without blocking. The others do their work when
/// polled: an append is in memory and waits for a disk only if its buffer is full; reading may read
/// files; [`Store::send`] and [`Store::take_letters`] sync them. A runtime with a single thread that
/// must not stall does these elsewhere.
pub trait Store: Send + Sync + fmt::Debug {
    /// How large things may be here.
    fn limits(&self) -> Limits;

    /// Whether other processes execute runs of this store, too. Then a process drives what it has
    /// claimed ([`Store::claim`]) and nothing else.
    fn is_shared(&self) -> bool {
        false
    }

    /// Appends to one or more streams: all of it, or nothing. The events are ordered and visible
    /// when it answers, and durable when [`Store::durable`] says so.
    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended>;

    /// Waits until everything up to a position survives a crash.
    fn durable(&self, position: Position) -> Answer<'_, ()>;

    /// The last event of a stream; `None` if there is no such stream.
    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>>;

    /// At most `limit` events of a stream, from a sequence on. Fewer only at its end.
    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>>;

    /// The same without the hashes: each event has been checked on its own, and that none is
    /// missing, but not the chain. For who reads often, or only the end of a long stream.
    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        Box::pin(async move {
            let read = self.read(stream, from, limit).await?;
            Ok(read.into_iter().map(|recorded| recorded.event).collect())
        })
    }

    /// Of each of these streams, at most `limit` events up to the head that is given, as
    /// [`Store::events`]; what is wrong with one is said there and keeps no other back. For lists.
    fn last_events<'a>(
        &'a self,
        streams: &'a [(StreamId, Version)],
        limit: usize,
    ) -> Answer<'a, Vec<Result<Vec<Event>, StoreError>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(streams.len());
            for (stream, head) in streams {
                let from = head.sequence.saturating_sub(limit as u64) + 1;
                all.push(self.events(stream, from, limit).await);
            }
            Ok(all)
        })
    }

    /// The bytes of a payload.
    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>>;

    /// Pieces of payloads as they are stored, in the order asked for. For taking payloads elsewhere.
    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        let _ = hashes;
        Box::pin(async { Err(crate::engine::cannot_transfer()) })
    }

    /// Takes over events of another store with their bytes and hashes, and pieces that they refer
    /// to: all of it, or nothing of the events. They are not judged, but must follow what is here.
    /// The store's own stream records where they are from. Durable as [`Store::append`] is.
    ///
    /// A store that processes share lets nobody claim such runs before [`Store::let_go_on`], so that
    /// a run can be taken over in parts.
    fn take_over(&self, pieces: Vec<Piece>, streams: Vec<Foreign>) -> Answer<'_, Position> {
        drop((pieces, streams));
        Box::pin(async { Err(crate::engine::cannot_transfer()) })
    }

    /// Lets runs that were taken over be claimed: all of them is here.
    fn let_go_on<'a>(&'a self, runs: &'a [StreamId]) -> Answer<'a, ()> {
        let _ = runs;
        Box::pin(async { Ok(()) })
    }

    /// Removes what an event of a memory says is forgotten: the helpers of the stream, and then the
    /// payloads of the events that the [`Kind::MemoryForgotten`] at `said_at` names. What another
    /// event refers to stays. When it answers, they cannot be read any more, and no crash brings
    /// them back; asking again does no harm. The answer is how many pieces went.
    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        let _ = (stream, said_at);
        Box::pin(async { Err(crate::engine::cannot_erase()) })
    }

    /// Begins to make [helpers](NewHelper) of a stream; `None` if none would be kept. Who has begun
    /// comes to the end of the stream, makes them of what is there, and keeps them with what was
    /// answered here. So what was forgotten before is in none of them, and of who began before
    /// something was forgotten nothing is kept afterwards.
    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        let _ = stream;
        Box::pin(async { Ok(None) })
    }

    /// Keeps a helper of a stream, whole, instead of the one of that name; whether it did. It does not
    /// if the helpers of the stream were dropped since the making of this one was begun, if the one
    /// that is there is of a later version, or if it is too large. It may be gone at any time: who
    /// reads it checks it, and can make it again.
    fn keep_helper<'a>(
        &'a self,
        stream: &'a StreamId,
        begun: u64,
        helper: NewHelper,
    ) -> Answer<'a, bool> {
        let _ = (stream, begun, helper);
        Box::pin(async { Ok(false) })
    }

    /// The helper of a stream that was kept under a name, if it is there.
    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        let _ = (stream, name);
        Box::pin(async { Ok(None) })
    }

    /// Removes all helpers of a stream. When it answers they are gone for good, and nothing comes back
    /// that somebody has begun to make before.
    fn drop_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, ()> {
        let _ = stream;
        Box::pin(async { Ok(()) })
    }

    /// Streams of one kind with their heads, in the order of their names, from after this one;
    /// 0 for as many as there are.
    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>>;

    /// Runs in the order of their names, unless the query wants the newest first.
    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>>;

    /// Takes a run that nobody holds, under a new fencing token, for a time in microseconds.
    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease>;

    /// Goes on holding it, for a time in microseconds from now.
    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease>;

    /// Gives it back.
    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()>;

    /// Gives it back so that another process goes on with it at once, although it is written down
    /// and waits for nothing that could come.
    fn hand_over_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        self.release_lease(run, token)
    }

    /// Goes on holding several runs. What became of each is said there.
    fn renew_leases<'a>(
        &'a self,
        held: &'a [(StreamId, u64)],
        for_us: u64,
    ) -> Answer<'a, Vec<Result<Lease, StoreError>>> {
        Box::pin(async move {
            let mut renewed = Vec::with_capacity(held.len());
            for (run, token) in held {
                renewed.push(self.renew_lease(run, *token, for_us).await);
            }
            Ok(renewed)
        })
    }

    /// Takes runs that may go on now and that nobody holds. A store that many processes share gives
    /// those of the highest priority first, then those that have waited longest; this default gives
    /// unfinished runs that nobody holds and that wait for no person, by name.
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Vec<(StreamId, Lease)>> {
        Box::pin(crate::engine::claim_by_name(self, claim))
    }

    /// Timers due at a time, the longest overdue first.
    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>>;

    /// When the next timer is due.
    fn next_timer_us(&self) -> Answer<'_, Option<u64>>;

    /// Says something to a stream from any process; durable when it answers.
    fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef>;

    /// Whether a letter has been taken up or refused.
    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool>;

    /// Takes up the letters that are waiting. What was taken is durable when it answers.
    fn take_letters(&self) -> Answer<'_, LettersTaken>;

    /// How far the store is.
    fn position(&self) -> Answer<'_, Position>;

    /// Waits until the store is further than this position, and says how far it is.
    fn changed(&self, after: Position) -> Answer<'_, Position>;
}
