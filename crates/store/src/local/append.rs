//! The way of an append: sizes, payloads into pieces, then, under one lock, the checks against the
//! state, the log, and the state.
//!
//! Invariants: what is refused has changed nothing; events reach the log in the order in which the
//! state takes them in; pieces are in the log before the first event that refers to them, and
//! get no reference from an event if they may be on their way out (`Core::pieces_from`).

use std::collections::HashMap;
use std::sync::Arc;

use super::{Core, Inner, lock};
use crate::error::StoreError;
use crate::event::{Event, Version};
use crate::hash::Hash;
use crate::judge::{self, Judge, Payloads, Placed, within};
use crate::local::record;
use crate::name::StreamId;
use crate::payload::Piece;
use crate::rules::Rule;
use crate::state::{State, StreamState};
use crate::store::{Append, Appended, NewEvent, NewPayload};

/// Pieces go to the log in batches of about this size.
const PIECE_BATCH_BYTES: usize = 256 * 1024;
/// What a record costs in the log beside its bytes, at most.
const RECORD_OVERHEAD_BYTES: u64 = 64;

/// Payloads ready to be stored.
struct Prepared {
    /// For each event of the batch, input and output.
    payloads: Vec<Payloads>,
    /// What is not stored yet, children first.
    pieces: Vec<Piece>,
    /// `Core::pieces_from` when the pieces were looked up, if any were.
    pieces_from: Option<u64>,
}

impl Inner {
    /// Appends for a user.
    pub fn append(&self, batch: Vec<Append>) -> Result<Appended, StoreError> {
        judge::check_streams(&batch)?;
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
        judge::check_sizes(&batch, &self.options.limits)?;
        loop {
            let prepared = self.prepare(&batch)?;
            let mut core = lock(&self.core);
            // Retention may have begun to remove pieces that were found a moment ago.
            let pieces_from = core.pieces_from();
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

    /// Cuts large payloads into pieces, and finds out which are new.
    fn prepare(&self, batch: &[Append]) -> Result<Prepared, StoreError> {
        let events = || batch.iter().flat_map(|append| &append.events);
        let mut payloads = events().flat_map(|event| event.input.iter().chain(&event.output));
        let pieces_from = match payloads.any(judge::is_large) {
            true => {
                let core = lock(&self.core);
                if core.closed {
                    return Err(StoreError::Closed);
                }
                Some(core.pieces_from())
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
    ) -> crate::event::Payload {
        let before = pieces.len();
        // An index that fails here is no harm: what is not found is stored again.
        let known = |hash: &Hash| {
            let is_stored = |from| self.is_stored(hash, from).unwrap_or(false);
            new.contains(hash) || pieces_from.is_some_and(is_stored)
        };
        let stored = judge::store_payload(payload, known, pieces);
        new.extend(pieces[before..].iter().map(|piece| piece.hash));
        stored
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
        let mut judge = Judge {
            own_event_bytes: self.options.own_event_bytes(),
            event_bytes: self.options.event_bytes(),
            behind: record::BEFORE_EVENT,
            mutant: self.options.mutant,
            ..Judge::new(
                core.state.clock,
                self.options.clock.now_us(),
                &self.options.limits,
            )
        };
        let mut drafts: HashMap<StreamId, StreamState> = HashMap::with_capacity(batch.len());
        let mut payloads = prepared.payloads.into_iter();
        for append in batch.iter_mut() {
            let draft = match drafts.entry(append.stream.clone()) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(self.draft(core, append, judge.now_us)?)
                }
            };
            judge.take(append, draft, &mut payloads)?;
        }
        let placed = judge.placed;
        let sizes = placed
            .iter()
            .map(|placed| record::event_of(&placed.bytes).len() as u64 + RECORD_OVERHEAD_BYTES);
        let bytes = sizes.sum();
        within("an append", bytes, self.options.batch_bytes())?;
        let heads = batch.iter().map(|append| {
            let draft = drafts.get(&append.stream);
            draft.map_or(Version::START, |draft| draft.head)
        });
        let heads = heads.collect();
        if placed.is_empty() {
            let position = core.applied;
            return Ok(Appended { heads, position });
        }
        let (records, events): (Vec<Vec<u8>>, Vec<(Event, Hash)>) = placed
            .into_iter()
            .map(|placed| (placed.bytes, (placed.event, placed.hash)))
            .unzip();
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

    /// Appends events as they are, and some of the store's own that say where they are from.
    pub fn append_foreign(
        &self,
        core: &mut Core,
        foreign: Vec<Placed>,
        notes: Vec<NewEvent>,
    ) -> Result<u64, StoreError> {
        let log = self.disk.log()?;
        let own = core.state.streams.get(&StreamId::store());
        let mut head = own.map_or(Version::START, |own| own.head);
        let clocks = foreign.iter().map(|placed| placed.event.clock);
        let mut clock = clocks.fold(core.state.clock, u64::max);
        let now_us = self.options.clock.now_us();
        let mut all = foreign;
        for note in notes {
            clock = clock.saturating_add(1);
            let sequence = head.sequence + 1;
            let mut event = Event::new(StreamId::store(), sequence, clock, now_us, note.kind);
            event.fields = note.fields;
            let bytes = event.encode();
            head = head.after(&bytes);
            let hash = head.hash;
            all.push(Placed { event, bytes, hash });
        }
        let records: Vec<_> = all
            .iter()
            .map(|placed| record::of_event_bytes(&placed.bytes))
            .collect();
        let lsns = log.append_batch(&records)?;
        for (lsn, Placed { event, bytes, hash }) in lsns.clone().zip(all) {
            core.written += bytes.len() as u64 + RECORD_OVERHEAD_BYTES;
            core.take(lsn, &event, bytes.into(), hash);
        }
        Ok(*lsns.end())
    }

    /// The state of a stream to try a batch on.
    fn draft(&self, core: &Core, append: &Append, now_us: u64) -> Result<StreamState, StoreError> {
        let stream = &append.stream;
        if let Some(found) = core.state.streams.get(stream) {
            return judge::draft(append, Some(found), now_us);
        }
        if core.state.retiring.contains(stream) {
            let why = "it is being removed, use another name for now";
            return Err(judge::refused(append, why));
        }
        match self.ended(core, stream)? {
            Some(ended) => Err(judge::ended(append, ended.head, ended.status)),
            None => judge::draft(append, None, now_us),
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
    /// Pieces in records below this LSN may be on their way out.
    pub fn pieces_from(&self) -> u64 {
        self.state.pieces_from.max(self.erasing_from)
    }

    /// Takes in an event that the log has accepted; `hash` is that of its stream after it.
    pub fn take(&mut self, lsn: u64, event: &Event, bytes: Arc<[u8]>, hash: Hash) {
        self.state.apply_hashed(event, |_| hash);
        self.remember_event(lsn, event, bytes, Some(hash));
    }

    fn remember_event(&mut self, lsn: u64, event: &Event, bytes: Arc<[u8]>, hash: Option<Hash>) {
        self.applied = lsn;
        let ends_run = event.kind.ends_run();
        self.recent
            .event(lsn, &event.stream, event.sequence, bytes, hash, ends_run);
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
