//! The way of an append: sizes, payloads into pieces, then, under one lock, the checks against the
//! state, the log, and the state.
//!
//! Invariants: what is refused has changed nothing; events reach the log in the order in which the
//! state takes them in; pieces are in the log before the first event that refers to them, and
//! get no reference from an event if they may be on their way out (`State::pieces_from`).

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use super::{Core, Inner, lock};
use crate::error::StoreError;
use crate::event::{Body, Event, INLINE_LIMIT_BYTES, Payload, Version};
use crate::fields::Fields;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::local::record;
use crate::name::{self, StreamId, StreamKind};
use crate::payload::{self, Piece};
use crate::rules::{Mutant, Rule};
use crate::state::{COUNT_LIMIT, State, StreamState};
use crate::store::{Append, Appended, NewEvent, NewPayload};

/// A content type as long as this is none.
const CONTENT_TYPE_LIMIT_BYTES: usize = 200;
/// Pieces go to the log in batches of about this size.
const PIECE_BATCH_BYTES: usize = 256 * 1024;
/// What a record costs in the log beside its bytes, at most.
const RECORD_OVERHEAD_BYTES: u64 = 64;

/// Payloads ready to be stored.
struct Prepared {
    /// For each event of the batch, input and output.
    payloads: Vec<[Option<Payload>; 2]>,
    /// What is not stored yet, children first.
    pieces: Vec<Piece>,
    /// `State::pieces_from` when the pieces were looked up, if any were.
    pieces_from: Option<u64>,
}

impl Inner {
    /// Appends for a user.
    pub fn append(&self, batch: Vec<Append>) -> Result<Appended, StoreError> {
        for append in &batch {
            if append.stream.kind() == StreamKind::Store {
                let kind = append.events.first().map(|event| event.kind.clone());
                return Err(StoreError::Refused {
                    stream: append.stream.clone(),
                    kind: kind.unwrap_or(Kind::StoreRecovered),
                    why: "only the store writes there".into(),
                });
            }
        }
        self.append_any(batch)
    }

    /// Appends to the store's own stream events that depend on the state, and on the LSN they will
    /// begin with.
    pub fn append_own_at(
        &self,
        make: impl FnOnce(u64, &State) -> Vec<NewEvent>,
    ) -> Result<Appended, StoreError> {
        let mut core = lock(&self.core);
        // Whoever appends holds the lock.
        let lsn = self.disk.log()?.last_lsn() + 1;
        let mut batch = [Append::to(StreamId::store(), make(lsn, &core.state))];
        let prepared = Prepared {
            payloads: Vec::new(),
            pieces: Vec::new(),
            pieces_from: None,
        };
        let appended = self.commit(&mut core, &mut batch, prepared)?;
        drop(core);
        self.watch.reached(appended.position);
        Ok(appended)
    }

    /// Appends to the store's own stream.
    pub fn append_own(&self, events: Vec<NewEvent>) -> Result<Appended, StoreError> {
        self.append_own_at(|_, _| events)
    }

    fn append_any(&self, mut batch: Vec<Append>) -> Result<Appended, StoreError> {
        self.check_sizes(&batch)?;
        loop {
            let prepared = self.prepare(&batch)?;
            let mut core = lock(&self.core);
            // Retention may have begun to remove pieces that were found a moment ago.
            let pieces_from = core.state.pieces_from;
            if prepared.pieces_from.is_some_and(|then| then != pieces_from) {
                continue;
            }
            let appended = self.commit(&mut core, &mut batch, prepared)?;
            let written = core.written;
            drop(core);
            self.watch.reached(appended.position);
            self.keeper.appended(self, written);
            return Ok(appended);
        }
    }

    fn check_sizes(&self, batch: &[Append]) -> Result<(), StoreError> {
        let limits = &self.options.limits;
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

    /// Cuts large payloads into pieces, and finds out which are new.
    fn prepare(&self, batch: &[Append]) -> Result<Prepared, StoreError> {
        let events = || batch.iter().flat_map(|append| &append.events);
        let is_large = |payload: &NewPayload| payload.bytes.len() > INLINE_LIMIT_BYTES;
        let mut payloads = events().flat_map(|event| event.input.iter().chain(&event.output));
        let pieces_from = match payloads.any(is_large) {
            true => {
                let core = lock(&self.core);
                if core.closed {
                    return Err(StoreError::Closed);
                }
                Some(core.state.pieces_from)
            }
            // Everybody who appends needs that lock: it is asked for once if once is enough.
            false => None,
        };
        let mut prepared = Prepared {
            payloads: Vec::new(),
            pieces: Vec::new(),
            pieces_from,
        };
        let mut new = std::collections::HashSet::new();
        for event in events() {
            let mut store = |payload: &Option<NewPayload>| {
                payload
                    .as_ref()
                    .map(|payload| self.store(payload, &mut prepared.pieces, &mut new, pieces_from))
            };
            let payloads = [store(&event.input), store(&event.output)];
            prepared.payloads.push(payloads);
        }
        Ok(prepared)
    }

    fn store(
        &self,
        payload: &NewPayload,
        pieces: &mut Vec<Piece>,
        new: &mut std::collections::HashSet<Hash>,
        pieces_from: Option<u64>,
    ) -> Payload {
        let body = if payload.bytes.len() <= INLINE_LIMIT_BYTES {
            Body::Inline(payload.bytes.clone())
        } else {
            // An index that fails here is no harm: what is not found is stored again.
            let known = |hash: &Hash| {
                let is_stored = |from| self.is_stored(hash, from).unwrap_or(false);
                new.contains(hash) || pieces_from.is_some_and(is_stored)
            };
            let split = payload::split(&payload.bytes, known);
            new.extend(split.pieces.iter().map(|piece| piece.hash));
            pieces.extend(split.pieces);
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

    /// Checks a batch against the state, and appends it.
    fn commit(
        &self,
        core: &mut Core,
        batch: &mut [Append],
        prepared: Prepared,
    ) -> Result<Appended, StoreError> {
        if core.closed {
            return Err(StoreError::Closed);
        }
        let log = self.disk.log()?;
        let now_us = self.options.clock.now_us();
        let mut drafts: HashMap<StreamId, StreamState> = HashMap::with_capacity(batch.len());
        let mut events = Vec::new();
        let mut records: Vec<Vec<u8>> = Vec::new();
        let mut clock = core.state.clock;
        let mut payloads = prepared.payloads.into_iter();
        let mut bytes = 0;
        for append in batch.iter_mut() {
            let draft = match drafts.entry(append.stream.clone()) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(self.draft(core, append, now_us)?)
                }
            };
            check_position(append, draft, self.options.mutant)?;
            for new in &mut append.events {
                let [input, output] = payloads.next().unwrap_or_default();
                clock += 1;
                let sequence = draft.head.sequence + 1;
                // By its number, so that it is the same now and when it is read again.
                let kind = match &new.kind {
                    Kind::Unknown(number) => Kind::from_number(*number),
                    kind => kind.clone(),
                };
                let event = Event {
                    memory: new.memory,
                    input,
                    output,
                    sources: mem::take(&mut new.sources),
                    cause: new.cause.take(),
                    fields: mem::take(&mut new.fields),
                    letter: new.letter.take(),
                    ..Event::new(append.stream.clone(), sequence, clock, now_us, kind)
                };
                if clock >= COUNT_LIMIT {
                    // Only a forged clock gets there; nothing would follow it.
                    let (what, size, limit) = ("the store's clock", clock, COUNT_LIMIT);
                    return Err(StoreError::TooLarge { what, size, limit });
                }
                let record = record::of_event(&event);
                let encoded = record::event_of(&record);
                let limit = match append.stream.kind() {
                    // What the user allows users.
                    StreamKind::Run | StreamKind::Memory => self.options.event_bytes(),
                    StreamKind::Store => self.options.own_event_bytes(),
                };
                within("an event", encoded.len() as u64, limit)?;
                bytes += encoded.len() as u64 + RECORD_OVERHEAD_BYTES;
                let taken = check_readable(&event).and_then(|()| draft.apply(&event));
                taken.map_err(|why| StoreError::Refused {
                    stream: append.stream.clone(),
                    kind: new.kind.clone(),
                    why,
                })?;
                draft.head = draft.head.after(encoded);
                events.push((event, draft.head.hash));
                records.push(record);
            }
        }
        within("an append", bytes, self.options.batch_bytes())?;
        let heads = batch.iter().map(|append| {
            let draft = drafts.get(&append.stream);
            draft.map_or(Version::START, |draft| draft.head)
        });
        let heads = heads.collect();
        if events.is_empty() {
            let position = core.applied;
            return Ok(Appended { heads, position });
        }
        let mutant = self.options.mutant;
        let pieces_last = mutant.breaks(Rule::PiecesBeforeEvents);
        if !pieces_last {
            self.log_pieces(core, log, &prepared.pieces)?;
        }
        let logged = match mutant.breaks(Rule::OneBatch) {
            true => one_by_one(log, &records),
            false => log.append_batch(&records),
        };
        if logged.is_err() && mutant.breaks(Rule::AppendBeforeApply) {
            let both = events.iter().zip(&records);
            both.for_each(|((event, _), record)| {
                core.state.apply(event, record::event_of(record));
            });
        }
        let lsns = logged?;
        if pieces_last {
            self.log_pieces(core, log, &prepared.pieces)?;
        }
        for (lsn, ((event, hash), record)) in lsns.clone().zip(events.into_iter().zip(records)) {
            core.take(lsn, &event, record::event_of(&record).into(), hash);
        }
        core.written += bytes;
        Ok(Appended {
            heads,
            position: *lsns.end(),
        })
    }

    /// Appends events as they are, and one of the store's own that says where they are from.
    pub fn append_foreign(
        &self,
        core: &mut Core,
        events: Vec<(Event, Vec<u8>)>,
        note: NewEvent,
    ) -> Result<u64, StoreError> {
        if core.closed {
            return Err(StoreError::Closed);
        }
        let log = self.disk.log()?;
        let own = core.state.streams.get(&StreamId::store());
        let sequence = own.map_or(1, |own| own.head.sequence + 1);
        let clocks = events.iter().map(|(event, _)| event.clock);
        let clock = clocks.fold(core.state.clock, u64::max).saturating_add(1);
        let now_us = self.options.clock.now_us();
        let mut event = Event::new(StreamId::store(), sequence, clock, now_us, note.kind);
        event.fields = note.fields;
        let note = (event.encode(), event);
        let events: Vec<_> = events.into_iter().chain([(note.1, note.0)]).collect();
        let records: Vec<_> = events
            .iter()
            .map(|(_, e)| record::of_event_bytes(e))
            .collect();
        let lsns = log.append_batch(&records)?;
        for (lsn, (event, bytes)) in lsns.clone().zip(events) {
            core.written += bytes.len() as u64 + RECORD_OVERHEAD_BYTES;
            core.take_foreign(lsn, &event, bytes.into());
        }
        Ok(*lsns.end())
    }

    /// The state of a stream to try a batch on.
    fn draft(&self, core: &Core, append: &Append, now_us: u64) -> Result<StreamState, StoreError> {
        let stream = &append.stream;
        let refused = |why: &str| StoreError::Refused {
            stream: stream.clone(),
            kind: append
                .events
                .first()
                .map_or(Kind::RunCreated, |event| event.kind.clone()),
            why: why.into(),
        };
        if let Some(found) = core.state.streams.get(stream) {
            // The store's own stream goes on: it has to say what was lost.
            if found.broken && stream.kind() != StreamKind::Store {
                return Err(refused("events of it were lost, it can only be read"));
            }
            return Ok(found.clone());
        }
        if core.state.retiring.contains(stream) {
            return Err(refused("it is being removed, use another name for now"));
        }
        match self.ended(core, stream)? {
            Some(ended) => {
                // Where the caller thinks it is matters more than that it has ended.
                check_expected(append, ended.head)?;
                Err(StoreError::Ended {
                    stream: stream.clone(),
                    status: ended.status,
                })
            }
            None => Ok(StreamState::new(now_us)),
        }
    }

    /// Stores pieces. They count for nothing until an event refers to them, so they need not be
    /// in one batch with it.
    pub fn log_pieces(
        &self,
        core: &mut Core,
        log: &dalsegno_log::Log,
        pieces: &[Piece],
    ) -> Result<(), StoreError> {
        let limit = PIECE_BATCH_BYTES.min(self.options.segment_bytes as usize / 4);
        let mut rest = pieces;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|piece| {
                bytes += piece.bytes.len() + RECORD_OVERHEAD_BYTES as usize + 33;
                bytes <= limit
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let records: Vec<Vec<u8>> = now
                .iter()
                .map(|piece| record::of_piece(&piece.hash, &piece.bytes))
                .collect();
            let lsns = log.append_batch(&records)?;
            for (lsn, piece) in lsns.clone().zip(now) {
                core.recent.piece(lsn, piece.hash, Arc::from(&*piece.bytes));
            }
            core.applied = *lsns.end();
            core.written += bytes as u64;
            rest = later;
        }
        Ok(())
    }
}

impl Core {
    /// Takes in an event that the log has accepted; `hash` is that of its stream after it.
    pub fn take(&mut self, lsn: u64, event: &Event, bytes: Arc<[u8]>, hash: Hash) {
        self.state.apply_hashed(event, |_| hash);
        self.remember_event(lsn, event, bytes, Some(hash));
    }

    /// The same for an event whose hash nobody has computed yet.
    fn take_foreign(&mut self, lsn: u64, event: &Event, bytes: Arc<[u8]>) {
        self.state.apply(event, &bytes);
        self.remember_event(lsn, event, bytes, None);
    }

    fn remember_event(&mut self, lsn: u64, event: &Event, bytes: Arc<[u8]>, hash: Option<Hash>) {
        self.applied = lsn;
        let ends_run = event.kind.ends_run();
        self.recent
            .event(lsn, &event.stream, event.sequence, bytes, hash, ends_run);
    }
}

/// Fields can be built that read back as others or not at all. The log would keep them and every
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

/// As if an append were no more than its events. For showing that a test notices.
fn one_by_one(
    log: &dalsegno_log::Log,
    records: &[Vec<u8>],
) -> Result<std::ops::RangeInclusive<u64>, dalsegno_log::AppendError> {
    let first = log.last_lsn() + 1;
    for record in records {
        log.append(record)?;
    }
    Ok(first..=log.last_lsn())
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
