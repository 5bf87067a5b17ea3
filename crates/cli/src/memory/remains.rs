//! What stays of documents that are forgotten, in others: neighbours of the same file repeat the end of
//! a chunk, and another memory of the store may have the same document.
//!
//! Invariant: what is found is said and not touched. It is found while the documents can still be read.

use std::collections::BTreeMap;

use dalsegno_memory::{Content, DocId, Memory};
use dalsegno_store::{Event, Store, StreamId, StreamKind};
use serde::Serialize;

use super::slots::Origin;
use crate::exit::Result;

/// Less than this is shared by chance.
const LEAST_CHARS: usize = 20;

/// A document that has a part of what another one says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The one that has it.
    pub id: u64,
    /// Of this one.
    pub of: u64,
    /// How much.
    pub bytes: usize,
}

/// A document of another memory that is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Twin {
    /// The other memory.
    pub memory: String,
    /// The document, by its number there and here.
    pub id: u64,
}

/// Which other chunks of the same files have a part of what these documents say, and how much.
///
/// # Errors
/// The memory cannot be read.
pub async fn parts(memory: &Memory, ids: &[DocId]) -> Result<Vec<Part>> {
    let mut files: BTreeMap<String, Vec<(DocId, Content)>> = BTreeMap::new();
    for id in ids {
        let content = memory.get(*id).await?.content;
        let source = content.sources.first();
        if let Some((name, _)) = source.and_then(|source| source.rsplit_once('#')) {
            files
                .entry(name.to_owned())
                .or_default()
                .push((*id, content));
        }
    }
    let mut parts = Vec::new();
    for (name, forgotten) in &files {
        for is_input in [false, true] {
            let origin = Origin { name, is_input };
            let walked = origin.walk(memory, |_, revisions| {
                for revision in revisions {
                    let Some(there) = revision.content else {
                        continue;
                    };
                    if ids.contains(&revision.id) {
                        continue;
                    }
                    for (of, content) in forgotten {
                        let bytes = shared_bytes(&content.text, &there.text);
                        if bytes > 0 {
                            parts.push(Part {
                                id: revision.id.0,
                                of: of.0,
                                bytes,
                            });
                        }
                    }
                }
            });
            walked.await?;
        }
    }
    parts.sort_by_key(|part| (part.id, part.of));
    Ok(parts)
}

/// How much of what one says the other begins or ends with; 0 if it is little.
fn shared_bytes(one: &str, other: &str) -> usize {
    ends_as_begins(one, other).max(ends_as_begins(other, one))
}

/// The longest end of `one` that `other` begins with, or all of `other` if it is in `one`.
fn ends_as_begins(one: &str, other: &str) -> usize {
    let Some((end, last)) = other.char_indices().nth(LEAST_CHARS - 1) else {
        return 0;
    };
    let head = &other[..end + last.len_utf8()];
    let first_bytes = head.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    while let Some(found) = one[from..].find(head) {
        let rest = &one[from + found..];
        if other.starts_with(rest) || rest.starts_with(other) {
            return rest.len().min(other.len());
        }
        from += found + first_bytes;
    }
    0
}

/// What these documents are in the stream: for [`twins`], once they are forgotten.
///
/// # Errors
/// The store cannot be read.
pub async fn events(store: &dyn Store, memory: &StreamId, ids: &[DocId]) -> Result<Vec<Event>> {
    let mut events = Vec::with_capacity(ids.len());
    for id in ids {
        events.extend(store.events(memory, id.0, 1).await?);
    }
    Ok(events)
}

/// Which other memories still have the same documents, as one has that was imported under another
/// name. Histories that begin alike are alike up to some event, so none is searched behind it.
///
/// # Errors
/// The store cannot be read.
pub async fn twins(store: &dyn Store, memory: &StreamId, forgotten: &[Event]) -> Result<Vec<Twin>> {
    let mut twins = Vec::new();
    let others = store.streams(StreamKind::Memory, None, 0).await?;
    for (other, _) in others.iter().filter(|(other, _)| other != memory) {
        for event in forgotten {
            let there = store.events(other, event.sequence, 1).await?;
            let there = there.first().and_then(|there| there.input.as_ref());
            let Some(same) = there.filter(|there| Some(*there) == event.input.as_ref()) else {
                break;
            };
            // Forgotten there, too, it cannot be read.
            if store.payload(same).await.is_ok() {
                twins.push(Twin {
                    memory: other.name().to_owned(),
                    id: event.sequence,
                });
            }
        }
    }
    Ok(twins)
}

#[cfg(test)]
mod tests {
    use super::shared_bytes;

    #[test]
    fn what_two_texts_share_at_their_ends() {
        let long = "a sentence that is long enough";
        for (one, other, bytes) in [
            (format!("Before. {long}"), format!("{long} and after"), 30),
            (format!("{long} and after"), format!("Before. {long}"), 30),
            (long.to_owned(), format!("in {long} the middle"), 30),
            (format!("{long} x"), format!("{long} y"), 0),
            ("short".to_owned(), "short end".to_owned(), 0),
            ("ä".repeat(30), "ä".repeat(25), 50),
            (format!("{long} {long}"), format!("{long} {long} x"), 61),
            (String::new(), long.to_owned(), 0),
        ] {
            assert_eq!(shared_bytes(&one, &other), bytes, "{one:?}, {other:?}");
        }
    }
}
