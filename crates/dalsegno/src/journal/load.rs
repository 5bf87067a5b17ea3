//! Reads the journal of a run from its store.
//!
//! A loop is read from its last turn: its checkpoint is looked for from the end, and carries over
//! what it needs. So the time that it takes does not depend on how many turns there were. If the
//! last state cannot be read, the one before is used, with all that is recorded since: the turns
//! behind it are made again, and nothing in them is executed.

use dalsegno_store::{Body, Event, Kind, Payload, Store, StoreError, StreamId};

use super::{Carry, Journal};
use crate::record;

/// Events read at once.
const PAGE: usize = 1024;
/// Room is made for so many steps at most before they are read.
const MOST_EXPECTED: u64 = 1 << 20;
/// How far back the last checkpoint is looked for first; then four times as far, and so on.
const FIRST_LOOK: u64 = 64;

/// Reads what a run has done, up to an event if one is given.
pub(crate) async fn load(
    store: &dyn Store,
    run: &StreamId,
    up_to: Option<u64>,
) -> Result<Journal, StoreError> {
    let Some(head) = store.head(run).await? else {
        let stream = run.clone();
        return Err(StoreError::NotFound { stream });
    };
    let last = up_to.map_or(head.sequence, |up_to| up_to.min(head.sequence));
    let mut journal = Journal::default();
    let first = store.events(run, 1, 2.min(last as usize)).await?;
    for event in first {
        // Of a fork the second says where it comes from.
        if event.sequence == 1 || event.kind == Kind::RunForked {
            journal.apply(event);
        }
    }
    let mut from = 2;
    let mut lost = Vec::new();
    if journal.created.is_loop {
        let mut before = last;
        while let Some(checkpoint) = last_turn(store, run, before).await? {
            let sequence = checkpoint.sequence;
            match unreadable(store, &checkpoint).await? {
                Some(why) => {
                    lost.push(Lost::new(&checkpoint, why));
                    before = sequence - 1;
                }
                None => {
                    from = sequence + 1;
                    resume_from(store, run, &mut journal, checkpoint).await?;
                    break;
                }
            }
        }
    }
    // Most events are the intent or the outcome of a step.
    let steps = last.saturating_sub(from) / 2;
    journal.steps.expect_more(steps.min(MOST_EXPECTED) as usize);
    while from <= last {
        let limit = PAGE.min((last - from + 1) as usize);
        let page = store.events(run, from, limit).await?;
        if page.is_empty() {
            break;
        }
        for event in page {
            from = event.sequence + 1;
            match lost.iter().any(|lost| lost.sequence + 1 == from) {
                true => journal.last = journal.last.max(from - 1),
                false => journal.apply(event),
            }
        }
    }
    journal.note_lost(&lost);
    Ok(journal)
}

/// A state after a turn that cannot be read.
struct Lost {
    sequence: u64,
    turn: u64,
    why: String,
}

impl Lost {
    fn new(checkpoint: &Event, why: String) -> Lost {
        Lost {
            sequence: checkpoint.sequence,
            turn: checkpoint
                .fields
                .number(record::checkpoint::TURN)
                .unwrap_or_default(),
            why,
        }
    }
}

impl Journal {
    /// The turns behind the last state that can be read are made again from their steps.
    fn note_lost(&mut self, lost: &[Lost]) {
        let Some(newest) = lost.first() else { return };
        self.redo_until = newest.turn;
        let instead = match self.turn.as_ref().and_then(|c| Some((c.turn?, c.sequence))) {
            Some((turn, sequence)) => format!("the state after turn {turn} (event {sequence})"),
            None => "the run's input".to_owned(),
        };
        let which: Vec<_> = lost
            .iter()
            .map(|lost| {
                format!(
                    "after turn {} (event {}): {}",
                    lost.turn, lost.sequence, lost.why
                )
            })
            .collect();
        self.damage = Some(format!(
            "a written state cannot be read: {}: going on from {instead} and what is recorded since; \
             see all damage with verify",
            which.join("; ")
        ));
    }
}

/// Why a checkpoint cannot be used; `None` if it can.
async fn unreadable(store: &dyn Store, checkpoint: &Event) -> Result<Option<String>, StoreError> {
    for payload in checkpoint.payloads() {
        match bytes_of(store, payload).await {
            Ok(_) => {}
            Err(e @ (StoreError::Damaged { .. } | StoreError::Read(_))) => {
                return Ok(Some(e.to_string()));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// The last checkpoint of a turn, looked for from the end.
async fn last_turn(
    store: &dyn Store,
    run: &StreamId,
    last: u64,
) -> Result<Option<Event>, StoreError> {
    let mut look = FIRST_LOOK;
    let mut end = last;
    while end > 1 {
        let from = end.saturating_sub(look).max(1) + 1;
        let page = store.events(run, from, (end - from + 1) as usize).await?;
        for event in page.into_iter().rev() {
            if event.kind == Kind::CheckpointWritten
                && event.fields.number(record::checkpoint::TURN).is_some()
            {
                return Ok(Some(event));
            }
        }
        end = from - 1;
        look *= 4;
    }
    Ok(None)
}

async fn resume_from(
    store: &dyn Store,
    run: &StreamId,
    journal: &mut Journal,
    checkpoint: Event,
) -> Result<(), StoreError> {
    let (carry, events) = carried(store, run, &checkpoint).await?;
    carry.restore(journal);
    events.into_iter().for_each(|event| journal.apply(event));
    journal.apply(checkpoint);
    Ok(())
}

/// What the end of a turn carries over, and the events before it that still count.
pub(crate) async fn carried(
    store: &dyn Store,
    run: &StreamId,
    checkpoint: &Event,
) -> Result<(Carry, Vec<Event>), StoreError> {
    let carry = match &checkpoint.input {
        Some(payload) => Carry::from_json(&bytes_of(store, payload).await?),
        None => Carry::default(),
    };
    let mut events = Vec::new();
    for sequence in &carry.open {
        events.extend(store.events(run, *sequence, 1).await?);
    }
    // What others recorded while the turn was ending, and its worker had not heard of.
    let mut from = carry.seen.saturating_add(1);
    while from < checkpoint.sequence {
        let limit = PAGE.min((checkpoint.sequence - from) as usize);
        let page = store.events(run, from, limit).await?;
        if page.is_empty() {
            break;
        }
        for event in page {
            from = event.sequence + 1;
            let said = matches!(
                event.kind,
                Kind::SignalReceived | Kind::CancelRequested | Kind::BudgetSet
            );
            if said && !carry.open.contains(&event.sequence) {
                events.push(event);
            }
        }
    }
    Ok((carry, events))
}

/// The bytes of a payload, wherever they are.
pub(crate) async fn bytes_of(store: &dyn Store, payload: &Payload) -> Result<Vec<u8>, StoreError> {
    match &payload.body {
        Body::Inline(bytes) => Ok(bytes.clone()),
        Body::Stored { .. } => store.payload(payload).await,
    }
}
