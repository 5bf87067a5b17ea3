//! Reads the journal of a run from its store.
//!
//! A loop is read from its last turn: its checkpoint is looked for from the end, and carries over
//! what it needs. So the time that it takes does not depend on how many turns there were.

use dalsegno_store::{Body, Event, Kind, Payload, Store, StoreError, StreamId};

use super::{Carry, Journal};
use crate::record;

/// Events read at once.
const PAGE: usize = 4096;
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
    for first in store.events(run, 1, 1.min(last as usize)).await? {
        journal.apply(first);
    }
    let mut from = 2;
    if journal.created.is_loop
        && let Some(checkpoint) = last_turn(store, run, last).await?
    {
        from = checkpoint.sequence + 1;
        resume_from(store, run, &mut journal, checkpoint).await?;
    }
    while from <= last {
        let limit = PAGE.min((last - from + 1) as usize);
        let page = store.events(run, from, limit).await?;
        if page.is_empty() {
            break;
        }
        for event in page {
            from = event.sequence + 1;
            journal.apply(event);
        }
    }
    Ok(journal)
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
    let carry = match &checkpoint.input {
        Some(payload) => Carry::from_json(&bytes_of(store, payload).await?),
        None => Carry::default(),
    };
    carry.restore(journal);
    for sequence in carry.open {
        for event in store.events(run, sequence, 1).await? {
            journal.apply(event);
        }
    }
    journal.apply(checkpoint);
    Ok(())
}

/// The bytes of a payload, wherever they are.
pub(crate) async fn bytes_of(store: &dyn Store, payload: &Payload) -> Result<Vec<u8>, StoreError> {
    match &payload.body {
        Body::Inline(bytes) => Ok(bytes.clone()),
        Body::Stored { .. } => store.payload(payload).await,
    }
}
