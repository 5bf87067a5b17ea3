//! For those who write a store: what all stores share, so that they cannot differ.
//!
//! | what | where |
//! |---|---|
//! | sizes, and streams that users may write | [`check_streams`], [`check_sizes`] |
//! | payloads into pieces | [`store_payload`] |
//! | whether an append is taken, and the bytes and hashes of its events | [`draft`], [`Judge`] |
//! | a stream's state as bytes | [`encode_state`], [`decode_state`] |
//! | the events of a lease | [`lease_taken`], [`lease_released`] |
//! | letters | [`seal_letter`], [`open_letter`], [`letter_event`], [`letter_refused`] |
//! | a run as a list shows it | [`run_info`] |
//! | events of another store | [`place_foreign`], [`imported`] |
//! | names of helpers | [`check_helper_name`] |
//! | what is meant to be missing | [`forgotten_by`], [`forgotten_in`] |
//!
//! Invariant: nothing here touches a disk or a network, and nothing here differs between stores.
//! Not for users of a store: it changes whenever a store needs it to.

use std::collections::BTreeMap;

use crate::error::StoreError;
use crate::event::{Event, LetterRef, Version};
use crate::fields::{Fields, Malformed};
use crate::kind::Kind;
use crate::mailbox::{Letter, MailboxError, NewLetter, letter};
use crate::name::StreamId;
use crate::state::{Applied, COUNT_LIMIT, Lease, State, Status, StreamState, field};
use crate::store::{Claim, Foreign, NewEvent, NewPayload, RunInfo, RunQuery, Store};

pub use crate::forgotten::{FORGOTTEN, forgotten_by, forgotten_in, roots_of};
pub use crate::helper::check_helper_name;
pub use crate::judge::{
    Judge, Payloads, Placed, check_sizes, check_streams, draft, is_large, store_payload,
};

/// `LetterRefused`: whom the letter was for, and why it was not taken.
const TO: u64 = 1;
const WHY: u64 = 2;
/// `Imported`: the stream as it is named here, as it was named in the other store, and its head there.
const STREAM: u64 = 1;
const ORIGINAL: u64 = 2;
const SEQUENCE: u64 = 3;
const HASH: u64 = 4;

/// Fails if a name cannot be one: of a stream, a kind, or a worker.
///
/// # Errors
/// It is empty, too long, or has control characters.
pub fn check_name(name: &str) -> Result<(), StoreError> {
    Ok(crate::name::check_name(name)?)
}

/// Part of a store that is damaged.
pub fn damaged(
    what: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> StoreError {
    StoreError::damaged(what, expected, found)
}

/// A stream's state as bytes: the same for the same state.
pub fn encode_state(state: &StreamState) -> Vec<u8> {
    state.encode()
}

/// A stream's state from its bytes.
///
/// # Errors
/// They are something else.
pub fn decode_state(bytes: &[u8]) -> Result<StreamState, Malformed> {
    StreamState::decode(bytes)
}

/// The number by which a status is stored.
pub fn status_number(status: Status) -> u64 {
    status.number()
}

/// That a run was taken.
pub fn lease_taken(lease: &Lease) -> NewEvent {
    let fields = Fields::new()
        .with(field::OWNER, &*lease.owner)
        .with(field::TOKEN, lease.token)
        .with(field::UNTIL, lease.until_us);
    NewEvent::new(Kind::LeaseTaken).with_fields(fields)
}

/// That it was given back.
pub fn lease_released(token: u64) -> NewEvent {
    let fields = Fields::new().with(field::TOKEN, token);
    NewEvent::new(Kind::LeaseReleased).with_fields(fields)
}

/// A run that goes on, as a list shows it.
pub fn run_info(run: &StreamId, stream: &StreamState) -> RunInfo {
    RunInfo {
        run: run.clone(),
        // One that lost its beginning.
        status: stream.status.unwrap_or(Status::Pending),
        agent: stream.agent.as_deref().map(str::to_owned),
        created_us: stream.created_us,
        updated_us: stream.updated_us,
        head: stream.head,
        attention: stream.attention.clone(),
        lease: stream.lease.clone(),
        next_timer_us: stream.timers.values().min().copied(),
    }
}

/// The bytes of a letter that is to be sent.
///
/// # Errors
/// It is too large, or holds what no reader would accept.
pub fn seal_letter(
    letter: NewLetter,
    as_ref: &LetterRef,
    limit_bytes: u64,
) -> Result<Vec<u8>, MailboxError> {
    letter::sealed(letter, as_ref, limit_bytes)
}

/// A letter from its bytes; the error says why they are none.
///
/// # Errors
/// They are not what its sender wrote.
pub fn open_letter(bytes: &[u8], as_ref: &LetterRef) -> Result<Letter, String> {
    letter::opened(bytes, as_ref)
}

/// Fails if no sender can have sent such a letter.
///
/// # Errors
/// Its sender or number are none.
pub fn check_letter_ref(letter: &LetterRef) -> Result<(), StoreError> {
    if letter::is_letter(letter) {
        return Ok(());
    }
    let name = format!("{:.40}-{}", letter.sender, letter.number);
    Err(MailboxError::NoLetter(name).into())
}

/// What may be said to a stream from outside.
///
/// # Errors
/// Something else.
pub fn check_letter(to: &StreamId, kind: &Kind) -> Result<(), StoreError> {
    match kind {
        Kind::SignalReceived
        | Kind::ApprovalAnswered
        | Kind::CancelRequested
        | Kind::StepResolved
        | Kind::AttentionCleared
        | Kind::BudgetSet
        | Kind::User(_) => Ok(()),
        _ => Err(StoreError::Refused {
            stream: to.clone(),
            kind: kind.clone(),
            why: "a letter can be a signal, an answer, a request to cancel, what became of a \
                  step, the end of attention, a budget, or an event of your own kind"
                .into(),
        }),
    }
}

/// The event that a letter becomes.
///
/// # Errors
/// No letter may say that.
pub fn letter_event(letter: Letter) -> Result<NewEvent, StoreError> {
    check_letter(&letter.to, &letter.kind)?;
    let letter_ref = letter.letter_ref();
    let mut event = NewEvent::new(letter.kind).with_fields(letter.fields);
    let payload = letter.payload;
    event.input = payload.map(|(kind, bytes)| NewPayload::new(kind, bytes));
    event.letter = Some(letter_ref);
    Ok(event)
}

/// Whether it is the letter that is wrong, and not the store.
pub fn is_letters_fault(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Refused { .. }
            | StoreError::Ended { .. }
            | StoreError::TooLarge { .. }
            | StoreError::Name(_)
    )
}

/// The store's own event about a letter that its stream did not take.
pub fn letter_refused(letter: &LetterRef, to: &StreamId, why: &str) -> NewEvent {
    let fields = Fields::new()
        .with(TO, to.to_string().as_str())
        .with(WHY, why);
    let mut event = NewEvent::new(Kind::LetterRefused).with_fields(fields);
    event.letter = Some(letter.clone());
    event
}

/// Names the letter that an event is taken from.
pub fn from_letter(mut event: NewEvent, letter: LetterRef) -> NewEvent {
    event.letter = Some(letter);
    event
}

/// The queue and the priority that a run was created with.
pub fn queue_of(created: &Fields) -> (&str, u64) {
    let queue = created.text(field::QUEUE).unwrap_or_default();
    (queue, created.number(field::PRIORITY).unwrap_or(0))
}

/// Events of another store as they will stand here, and what their stream is then; `found` is the
/// stream as it is here. They are not judged: what makes no sense puts its run into attention.
///
/// # Errors
/// They do not follow what is here, or are no events of this stream.
pub fn place_foreign(
    foreign: &Foreign,
    found: Option<&StreamState>,
) -> Result<(StreamState, Vec<Placed>), StoreError> {
    let stream = &foreign.stream;
    let refused = |why: String| StoreError::Refused {
        stream: stream.clone(),
        kind: Kind::Imported,
        why,
    };
    let mut head = found.map_or(Version::START, |found| found.head);
    if head != foreign.after || found.is_some_and(StreamState::has_ended) {
        return Err(refused("it was changed at the same time".into()));
    }
    let streams = found.map(|found| (stream.clone(), found.clone()));
    let mut state = State {
        streams: streams.into_iter().collect::<BTreeMap<_, _>>(),
        ..State::default()
    };
    let mut placed = Vec::with_capacity(foreign.events.len());
    let mut ended = None;
    for bytes in &foreign.events {
        let event = Event::decode(bytes);
        let event = event.map_err(|e| refused(format!("what is no event: {e}")))?;
        head = head.after(bytes);
        if event.stream != *stream || event.sequence != head.sequence || ended.is_some() {
            let (found, of) = (event.sequence, &event.stream);
            return Err(refused(format!(
                "event {found} of {of} where event {} of it was to stand",
                head.sequence
            )));
        }
        if event.clock >= COUNT_LIMIT / 2 {
            // This store's clock would go on from there.
            let why = format!("event {} has a clock of {}", event.sequence, event.clock);
            return Err(refused(why));
        }
        if let Applied::Ended(last) = state.apply_hashed(&event, |_| head.hash) {
            ended = Some(*last);
        }
        placed.push(Placed {
            event,
            bytes: bytes.clone(),
            hash: head.hash,
        });
    }
    let after = ended.or_else(|| state.streams.remove(stream));
    let after = after.ok_or_else(|| refused("no events".into()))?;
    Ok((after, placed))
}

/// The store's own event about what was taken over.
pub fn imported(foreign: &Foreign) -> NewEvent {
    let head = foreign.head;
    let fields = Fields::new()
        .with(STREAM, foreign.stream.to_string().as_str())
        .with(ORIGINAL, foreign.original.to_string().as_str())
        .with(SEQUENCE, head.sequence)
        .with(HASH, head.hash.as_bytes().to_vec());
    NewEvent::new(Kind::Imported).with_fields(fields)
}

/// That a store has no way to remove a part of what it has.
pub(crate) fn cannot_erase() -> StoreError {
    StoreError::Backend("this kind of store cannot forget: use another".into())
}

/// That a store has no way to give streams to others or to take them.
pub(crate) fn cannot_transfer() -> StoreError {
    StoreError::Backend("this kind of store cannot be copied: use another".into())
}

/// Takes unfinished runs that nobody holds, by name: [`Store::claim`] of a store that has no order
/// of its own.
pub(crate) async fn claim_by_name<S: Store + ?Sized>(
    store: &S,
    claim: &Claim,
) -> Result<Vec<(StreamId, Lease)>, StoreError> {
    let query = RunQuery {
        status: vec![Status::Pending, Status::Running, Status::Checkpointed],
        ..RunQuery::default()
    };
    let mut taken = Vec::new();
    for info in store.runs(&query).await? {
        if taken.len() >= claim.limit {
            break;
        }
        let agent = info.agent.unwrap_or_default();
        let is_wanted = claim.agents.is_empty() || claim.agents.contains(&agent);
        if info.lease.is_some() || info.attention.is_some() || !is_wanted {
            continue;
        }
        if !claim.queues.is_empty() {
            let first = store.events(&info.run, 1, 1).await?;
            let fields = first.first().map(|created| &created.fields);
            let queue = fields.map_or("", |fields| queue_of(fields).0);
            if !claim.queues.iter().any(|wanted| wanted == queue) {
                continue;
            }
        }
        match store
            .take_lease(&info.run, &claim.owner, claim.for_us)
            .await
        {
            Ok(lease) => taken.push((info.run, lease)),
            // Somebody was faster.
            Err(StoreError::Held { .. } | StoreError::Ended { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(taken)
}
