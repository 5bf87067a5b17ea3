//! What memories forget: which payloads of which events are meant to be missing.
//!
//! An event of kind [`Kind::MemoryForgotten`] names events of its own stream, before it, by their
//! sequences. Their payloads are gone or about to go, and that is no damage. The events themselves
//! stay, and so do all hashes.
//!
//! Invariant: only a memory forgets, and only what came before.

use std::collections::HashSet;

use crate::error::StoreError;
use crate::event::{Body, Event, Version};
use crate::fields::Value;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::{StreamId, StreamKind};
use crate::store::Store;

/// `MemoryForgotten`: the sequences of the events whose payloads are forgotten.
pub const FORGOTTEN: u64 = 1;

/// So many events are read at a time.
const PAGE_EVENTS: usize = 2000;

/// The events whose payloads are forgotten, as this event says; none if it says nothing of the kind.
pub fn forgotten_by(event: &Event) -> impl Iterator<Item = u64> + '_ {
    let forgets = event.kind == Kind::MemoryForgotten && event.stream.kind() == StreamKind::Memory;
    let named = match event.fields.get(FORGOTTEN) {
        Some(Value::List(named)) if forgets => named.as_slice(),
        _ => &[],
    };
    named.iter().filter_map(|value| match value {
        Value::Number(sequence) if *sequence < event.sequence => Some(*sequence),
        _ => None,
    })
}

/// All events of a stream, up to this one, whose payloads are forgotten.
///
/// # Errors
/// The stream could not be read.
pub async fn forgotten_in(
    store: &dyn Store,
    stream: &StreamId,
    head: Version,
) -> Result<HashSet<u64>, StoreError> {
    let mut forgotten = HashSet::new();
    let mut next = 1;
    while stream.kind() == StreamKind::Memory && next <= head.sequence {
        let left = usize::try_from(head.sequence - next + 1).unwrap_or(usize::MAX);
        let page = store.events(stream, next, left.min(PAGE_EVENTS)).await?;
        if page.is_empty() {
            break;
        }
        next += page.len() as u64;
        page.iter()
            .for_each(|event| forgotten.extend(forgotten_by(event)));
    }
    Ok(forgotten)
}

/// The roots of the payloads of an event that are not in it.
pub fn roots_of(event: &Event) -> impl Iterator<Item = Hash> + '_ {
    event.payloads().filter_map(|payload| match payload.body {
        Body::Stored { root, .. } => Some(root),
        Body::Inline(_) => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fields::Fields;

    fn forgets(stream: StreamId, named: Vec<Value>) -> Vec<u64> {
        let mut event = Event::new(stream, 5, 1, 0, Kind::MemoryForgotten);
        event.fields = Fields::new().with(FORGOTTEN, Value::List(named));
        forgotten_by(&event).collect()
    }

    #[test]
    fn only_a_memory_forgets_and_only_what_came_before() {
        let named = || vec![1.into(), 4.into(), 5.into(), 9.into(), "2".into()];
        assert_eq!(forgets(StreamId::memory("m").unwrap(), named()), [1, 4]);
        assert!(forgets(StreamId::run("r").unwrap(), named()).is_empty());
        let other = Event::new(StreamId::memory("m").unwrap(), 5, 1, 0, Kind::MemoryUpdated);
        assert_eq!(forgotten_by(&other).count(), 0);
    }
}
