//! What stays of documents that are forgotten, in others: neighbours of the same file repeat the end of
//! a chunk, and another memory of the store may have the same document.
//!
//! Invariant: what is found is said and not touched. It is found while the documents can still be read.

use std::collections::{BTreeMap, HashMap, HashSet};

use dalsegno_memory::{DocId, Memory};
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
    let mut files: BTreeMap<String, Vec<(DocId, String)>> = BTreeMap::new();
    for id in ids {
        let content = memory.get(*id).await?.content;
        let source = content.sources.first();
        if let Some((name, _)) = source.and_then(|source| source.rsplit_once('#')) {
            let of_file = files.entry(name.to_owned()).or_default();
            of_file.push((*id, content.text));
        }
    }
    let meant: HashSet<DocId> = ids.iter().copied().collect();
    let mut parts = Vec::new();
    for (name, forgotten) in &files {
        let mut there = Vec::new();
        for is_input in [false, true] {
            let origin = Origin { name, is_input };
            let walked = origin.walk(memory, |_, revisions| {
                let others = revisions.into_iter().filter(|r| !meant.contains(&r.id));
                there.extend(others.filter_map(|r| Some((r.id, r.content?.text))));
            });
            walked.await?;
        }
        let (forgotten, there) = (Texts::new(forgotten), Texts::new(&there));
        for ((of, has), bytes) in shared(&forgotten, &there) {
            parts.push(Part {
                id: has.0,
                of: of.0,
                bytes,
            });
        }
    }
    parts.sort_by_key(|part| (part.id, part.of));
    Ok(parts)
}

/// How much of what one of these says one of the others begins or ends with; nothing if it is little.
fn shared(ones: &Texts<'_>, others: &Texts<'_>) -> BTreeMap<(DocId, DocId), usize> {
    let mut shared: BTreeMap<(DocId, DocId), usize> = BTreeMap::new();
    let mut note = |pair, bytes: usize| {
        let most = shared.entry(pair).or_default();
        *most = bytes.max(*most);
    };
    for (one, text) in ones.all {
        others.begin_as_it_ends(text, |other, bytes| note((*one, other), bytes));
    }
    for (other, text) in others.all {
        ones.begin_as_it_ends(text, |one, bytes| note((one, *other), bytes));
    }
    shared
}

/// Texts, found by how they begin: a file may have very many chunks, and not each is compared with each.
struct Texts<'a> {
    all: &'a [(DocId, String)],
    by_head: HashMap<[u8; LEAST_CHARS], Vec<usize>>,
}

impl Texts<'_> {
    fn new(all: &[(DocId, String)]) -> Texts<'_> {
        let mut by_head: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, (_, text)) in all.iter().enumerate() {
            if let Some(head) = text.as_bytes().first_chunk() {
                by_head.entry(*head).or_default().push(at);
            }
        }
        Texts { all, by_head }
    }

    /// Those that begin with an end of a text, or are in it: how much that is, at most.
    fn begin_as_it_ends(&self, text: &str, mut found: impl FnMut(DocId, usize)) {
        let mut seen = HashSet::new();
        for (at, _) in text.char_indices() {
            let Some(head) = text.as_bytes()[at..].first_chunk::<LEAST_CHARS>() else {
                break;
            };
            for other in self.by_head.get(head).into_iter().flatten() {
                let (rest, (id, other_text)) = (&text[at..], &self.all[*other]);
                let bytes = rest.len().min(other_text.len());
                let is_shared = other_text.starts_with(rest) || rest.starts_with(other_text);
                if is_shared && is_much(&rest[..bytes]) && seen.insert(*other) {
                    found(*id, bytes);
                }
            }
        }
    }
}

fn is_much(text: &str) -> bool {
    text.chars().nth(LEAST_CHARS - 1).is_some()
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
    use super::*;

    fn shared_bytes(one: &str, other: &str) -> usize {
        let one = [(DocId(1), one.to_owned())];
        let other = [(DocId(2), other.to_owned())];
        let shared = shared(&Texts::new(&one), &Texts::new(&other));
        shared.into_values().max().unwrap_or(0)
    }

    #[test]
    fn of_many_texts_each_is_found_that_shares_something() {
        let seam = |n: usize| format!("what stands between {n} and the one behind it");
        let texts = |from: usize, to: usize| -> Vec<(DocId, String)> {
            let text = |n: usize| format!("{} and so on, {}", seam(n), seam(n + 1));
            (from..to).map(|n| (DocId(n as u64), text(n))).collect()
        };
        let (forgotten, mut there) = (texts(100, 200), texts(0, 100));
        there.extend(texts(200, 300));
        let shared = shared(&Texts::new(&forgotten), &Texts::new(&there));
        let pairs: Vec<_> = shared.into_iter().collect();
        let pair = |of, has, n| ((DocId(of), DocId(has)), seam(n).len());
        assert_eq!(pairs, [pair(100, 99, 100), pair(199, 200, 200)]);
    }

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
