//! A portable file into any store.
//!
//! Invariants: nothing of a file is believed before all of it was verified. A stream is imported
//! whole, in one go, or not at all; one that is there already is continued if the file's history
//! begins with it, and left alone otherwise. So a memory with more events than a store takes at once
//! may be imported in parts: of it a beginning is there if that is interrupted, and the same import
//! goes on. What is forgotten here or in the file is not stored.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use super::refused;
use super::unwanted::Pieces;
use crate::error::StoreError;
use crate::event::{Event, Version};
use crate::forgotten::{forgotten_by, forgotten_in};
use crate::hash::Hash;
use crate::judge::within;
use crate::name::{StreamId, StreamKind};
use crate::payload::Piece;
use crate::portable::{Item, PortableReader, renamed};
use crate::state::COUNT_LIMIT;
use crate::store::{Foreign, Store};

/// Pieces are stored when they are so many bytes, and with the events that they are for.
const PIECES_BYTES: usize = 4 << 20;
/// What stands around an event in a store, at most.
const AROUND_EVENT_BYTES: u64 = 96;

/// What an import came to, by the names the streams have here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportReport {
    /// Streams that are new here or were continued, with their heads.
    pub imported: BTreeMap<StreamId, Version>,
    /// Streams that were here already, as long or longer.
    pub present: Vec<StreamId>,
    /// Streams that stay where they came from: what happened to the other store itself.
    pub left_out: Vec<StreamId>,
    /// How many events were added.
    pub events: u64,
}

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Importing<'a> {
    /// The only stream of the file gets this name here.
    pub rename: Option<&'a StreamId>,
    /// What the new events of one stream may take; of a memory that keeps its name, those of a part.
    pub stream_limit_bytes: Option<u64>,
}

/// What verifying a file told about one of its streams.
struct Incoming {
    head: Version,
    bytes: u64,
    /// The hash at the place where the stream ends here.
    here: Option<Hash>,
}

/// A stream that is to be imported.
struct Wanted {
    to: StreamId,
    /// Where it was here.
    from: Version,
    head: Version,
    /// It is taken in parts of about so many bytes.
    part_bytes: Option<u64>,
    /// Where it is here now.
    at: Version,
    /// What comes next.
    events: Vec<Vec<u8>>,
    bytes: u64,
}

impl Wanted {
    fn event(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.len() as u64 + AROUND_EVENT_BYTES;
        self.events.push(bytes);
    }

    fn is_full(&self) -> bool {
        self.part_bytes.is_some_and(|limit| self.bytes >= limit)
    }

    /// What was not taken yet, up to this version of the file.
    fn part(&mut self, original: StreamId, head: Version) -> Foreign {
        self.bytes = 0;
        Foreign {
            stream: self.to.clone(),
            original,
            after: std::mem::replace(&mut self.at, head),
            events: std::mem::take(&mut self.events),
            head,
        }
    }
}

/// Reads a portable file into a store; `open` gives it from its first byte on, and is called twice.
/// What was imported is durable when it answers.
///
/// # Errors
/// The file is damaged, a stream of it is here with another history, or it is too large for this
/// store. Streams that were imported before the error are complete, but for a memory that is taken in
/// parts; importing the file again goes on.
pub async fn import<R: Read>(
    store: &dyn Store,
    how: &Importing<'_>,
    mut open: impl FnMut() -> Result<R, StoreError>,
) -> Result<ImportReport, StoreError> {
    let (incoming, unwanted) = survey(store, how, PortableReader::open(open()?)?).await?;
    let mut report = ImportReport::default();
    let mut wanted = plan(store, &incoming, how, &mut report).await?;
    let present = report.present.iter();
    let mut runs: Vec<StreamId> = present.filter(|s| is_run(s)).cloned().collect();
    if !wanted.is_empty() {
        let mut reader = PortableReader::open(open()?)?;
        take(store, &mut reader, &mut wanted, &unwanted, &mut report).await?;
    }
    runs.extend(report.imported.keys().filter(|s| is_run(s)).cloned());
    store.let_go_on(&runs).await?;
    Ok(report)
}

fn is_run(stream: &StreamId) -> bool {
    stream.kind() == StreamKind::Run
}

/// An event with its bytes and its version, or else a piece.
fn apart(item: Item) -> Result<(Event, Vec<u8>, Version), Piece> {
    match item {
        Item::Event {
            event,
            bytes,
            version,
        } => Ok((event, bytes, version)),
        Item::Piece { hash, bytes } => Err(Piece { hash, bytes }),
    }
}

async fn take<R: Read>(
    store: &dyn Store,
    reader: &mut PortableReader<R>,
    wanted: &mut BTreeMap<StreamId, Wanted>,
    unwanted: &HashSet<Hash>,
    report: &mut ImportReport,
) -> Result<(), StoreError> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut pieces_bytes = 0;
    let mut to_erase: Vec<(StreamId, u64)> = Vec::new();
    while let Some(item) = reader.next()? {
        let (event, bytes, version) = match apart(item) {
            Ok(event) => event,
            Err(piece) if unwanted.contains(&piece.hash) => continue,
            Err(piece) => {
                pieces_bytes += piece.bytes.len();
                pieces.push(piece);
                if pieces_bytes > PIECES_BYTES {
                    store
                        .take_over(std::mem::take(&mut pieces), Vec::new())
                        .await?;
                    pieces_bytes = 0;
                }
                continue;
            }
        };
        let stream = event.stream.clone();
        let Some(want) = wanted.get_mut(&stream) else {
            continue;
        };
        if event.sequence > want.from.sequence {
            // What is here already may be forgotten by now.
            if forgotten_by(&event).any(|sequence| sequence <= want.from.sequence) {
                to_erase.push((want.to.clone(), event.sequence));
            }
            want.event(match want.to == stream {
                true => bytes,
                false => renamed(&event, &stream, &want.to).encode(),
            });
        }
        let is_whole = version == want.head;
        if !is_whole && !want.is_full() {
            continue;
        }
        let part = want.part(stream.clone(), version);
        report.events += part.events.len() as u64;
        pieces_bytes = 0;
        let pieces = std::mem::take(&mut pieces);
        store.take_over(pieces, vec![part]).await?;
        if is_whole && let Some(want) = wanted.remove(&stream) {
            let head = store.head(&want.to).await?;
            let head = head.ok_or_else(|| {
                StoreError::damaged(want.to.to_string(), "what was imported", "nothing")
            })?;
            report.imported.insert(want.to, head);
        }
    }
    for (stream, said_at) in to_erase {
        store.erase_forgotten(&stream, said_at).await?;
    }
    Ok(())
}

/// Verifies all of a file, and notes what it has of each stream, and which pieces are not to be stored.
async fn survey<R: Read>(
    store: &dyn Store,
    how: &Importing<'_>,
    mut reader: PortableReader<R>,
) -> Result<(BTreeMap<StreamId, Incoming>, HashSet<Hash>), StoreError> {
    let mut incoming: BTreeMap<StreamId, Incoming> = BTreeMap::new();
    let mut heads: BTreeMap<StreamId, Option<Version>> = BTreeMap::new();
    let mut pieces = Pieces::default();
    while let Some(item) = reader.next()? {
        let (event, bytes, version) = match apart(item) {
            Ok(event) => event,
            Err(Piece { hash, bytes }) => {
                pieces.piece(hash, &bytes);
                continue;
            }
        };
        pieces.event(&event);
        let stream = event.stream;
        if event.clock >= COUNT_LIMIT / 2 {
            // This store's clock would go on from there.
            let why = format!("event {} has a clock of {}", event.sequence, event.clock);
            return Err(refused(&stream, why));
        }
        if !heads.contains_key(&stream) {
            let name = how.rename.unwrap_or(&stream);
            let here = store.head(name).await?;
            if let Some(head) = here {
                let forgotten = forgotten_in(store, name, head).await?;
                pieces.forgotten(&stream, forgotten);
            }
            heads.insert(stream.clone(), here);
        }
        let here = heads.get(&stream).copied().flatten();
        let entry = incoming.entry(stream).or_insert(Incoming {
            head: version,
            bytes: 0,
            here: None,
        });
        entry.head = version;
        if here.is_none_or(|here| version.sequence > here.sequence) {
            entry.bytes += bytes.len() as u64 + AROUND_EVENT_BYTES;
        }
        if here.is_some_and(|here| here.sequence == version.sequence) {
            entry.here = Some(version.hash);
        }
    }
    Ok((incoming, pieces.unwanted()))
}

/// Decides what to do with each stream, before anything is written.
async fn plan(
    store: &dyn Store,
    incoming: &BTreeMap<StreamId, Incoming>,
    how: &Importing<'_>,
    report: &mut ImportReport,
) -> Result<BTreeMap<StreamId, Wanted>, StoreError> {
    if how.rename.is_some() && incoming.len() != 1 {
        return Err(StoreError::TooLarge {
            what: "a file to be imported under another name",
            size: incoming.len() as u64,
            limit: 1,
        });
    }
    let mut wanted = BTreeMap::new();
    for (stream, found) in incoming {
        if stream.kind() == StreamKind::Store {
            report.left_out.push(stream.clone());
            continue;
        }
        let to = how.rename.unwrap_or(stream).clone();
        if to.kind() != stream.kind() {
            return Err(refused(&to, format!("the file has {stream}")));
        }
        let from = match store.head(&to).await? {
            None => Version::START,
            Some(_) if to != *stream => {
                return Err(refused(&to, "there is one of this name"));
            }
            Some(here) if here.sequence >= found.head.sequence => {
                must_begin_with(store, &to, found.head).await?;
                report.present.push(to);
                continue;
            }
            Some(here) if found.here == Some(here.hash) => here,
            Some(here) => return Err(another_history(&to, here.sequence)),
        };
        // Who is interrupted goes on with a memory under its own name. A run must not be driven before
        // it is whole.
        let may_be_in_parts = stream.kind() == StreamKind::Memory && to == *stream;
        let part_bytes = match how.stream_limit_bytes {
            Some(limit) if may_be_in_parts && found.bytes > limit => Some(limit / 2),
            Some(limit) => {
                within("the events of a stream to be imported", found.bytes, limit)?;
                None
            }
            None => None,
        };
        let want = Wanted {
            to,
            from,
            head: found.head,
            part_bytes,
            at: from,
            events: Vec::new(),
            bytes: 0,
        };
        wanted.insert(stream.clone(), want);
    }
    Ok(wanted)
}

async fn must_begin_with(
    store: &dyn Store,
    stream: &StreamId,
    version: Version,
) -> Result<(), StoreError> {
    let read = store.read(stream, version.sequence, 1).await?;
    if read.first().is_some_and(|here| here.hash == version.hash) {
        return Ok(());
    }
    Err(another_history(stream, version.sequence))
}

fn another_history(stream: &StreamId, sequence: u64) -> StoreError {
    refused(
        stream,
        format!("its history up to event {sequence} is another"),
    )
}
