//! Export and import: streams in a portable file, out of one store and into another.
//!
//! Invariants: nothing of a file is believed before all of it was verified. A stream is imported
//! whole, in one append, or not at all; one that is there already is continued if the file's
//! history begins with it, and left alone otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use dalsegno_log::IoFailure;
use dalsegno_log::fs::{OpenMode, place_file};

use super::record;
use super::{Inner, LocalStore, lock};
use crate::error::StoreError;
use crate::event::{Body, Event, Version};
use crate::fields::Fields;
use crate::hash::Hash;
use crate::judge::within;
use crate::kind::Kind;
use crate::name::{StreamId, StreamKind};
use crate::payload::{self, Piece};
use crate::portable::{
    About, FsReader, FsWriter, Holds, Item, PortableReader, PortableReport, PortableWriter, renamed,
};
use crate::state::COUNT_LIMIT;
use crate::store::NewEvent;

/// So many events are read at a time.
const PAGE_EVENTS: usize = 500;
/// `Imported`: the stream as it is named here, as it was named in the file, and the file's head.
const STREAM: u64 = 1;
const ORIGINAL: u64 = 2;
const SEQUENCE: u64 = 3;
const HASH: u64 = 4;

/// What to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// Everything.
    Store,
    /// These streams.
    Streams(BTreeSet<StreamId>),
}

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
    /// Events up to this one are here.
    from: u64,
    head: Version,
}

impl LocalStore {
    /// Writes streams into a portable file at `path`: complete and durable when it returns, or
    /// absent.
    ///
    /// # Errors
    /// A stream is not there or damaged, or the file could not be written.
    pub fn export(&self, what: &Export, path: &Path) -> Result<PortableReport, StoreError> {
        let fs = &self.inner.folder.fs;
        let path = fs
            .absolute(path)
            .map_err(|e| IoFailure::new("find", path, e))?;
        self.inner.export_file(what, &path)
    }

    /// Writes streams to anything that takes bytes.
    ///
    /// # Errors
    /// A stream is not there or damaged, or the bytes were not taken.
    pub fn export_to(&self, what: &Export, to: impl Write) -> Result<PortableReport, StoreError> {
        self.inner.export(what, to)
    }

    /// Reads a portable file into this store. With `rename`, its only stream gets another name
    /// here.
    ///
    /// # Errors
    /// The file is damaged, a stream of it is here with another history, or it is too large for
    /// this store. Streams that were imported before the error are complete; importing the file
    /// again goes on.
    pub fn import(
        &self,
        path: &Path,
        rename: Option<&StreamId>,
    ) -> Result<ImportReport, StoreError> {
        self.inner.import(path, rename)
    }
}

impl Inner {
    pub fn export_file(&self, what: &Export, path: &Path) -> Result<PortableReport, StoreError> {
        let dir = path.parent().unwrap_or(path);
        let mut result = None;
        let placed = place_file(self.folder.fs.as_ref(), dir, path, |file| {
            let mut writer = FsWriter::new(file);
            let report = self.export(what, &mut writer);
            let written = writer.flush();
            let failed = report.is_err();
            result = Some(report);
            written?;
            match failed {
                true => Err(io::ErrorKind::Other.into()),
                false => Ok(()),
            }
        });
        match (result, placed) {
            (Some(Err(e)), _) => Err(e),
            (Some(Ok(report)), Ok(())) => Ok(report),
            (_, Err(e)) => Err(IoFailure::new("write", path, e.into()).into()),
            (None, Ok(())) => Err(StoreError::damaged("an export", "a report", "none")),
        }
    }

    pub fn export(&self, what: &Export, to: impl Write) -> Result<PortableReport, StoreError> {
        let (streams, holds) = match what {
            Export::Streams(streams) => {
                let holds = Holds::Streams(streams.clone());
                (streams.iter().cloned().collect(), holds)
            }
            Export::Store => {
                let mut all = Vec::new();
                for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
                    let streams = self.streams(kind, None, 0)?;
                    all.extend(streams.into_iter().map(|(stream, _)| stream));
                }
                (all, Holds::Store)
            }
        };
        let about = About {
            holds,
            created_us: self.options.clock.now_us(),
        };
        let mut writer = PortableWriter::new(to, about)?;
        for stream in &streams {
            self.export_stream(stream, &mut writer)?;
        }
        let (_, report) = writer.finish()?;
        Ok(report)
    }

    fn export_stream<W: Write>(
        &self,
        stream: &StreamId,
        writer: &mut PortableWriter<W>,
    ) -> Result<(), StoreError> {
        // What is appended from now on is not part of it.
        let head = self.head(stream)?.ok_or_else(|| StoreError::NotFound {
            stream: stream.clone(),
        })?;
        let mut next = 1;
        let mut hash = Hash::ZERO;
        while next <= head.sequence {
            let left = usize::try_from(head.sequence - next + 1).unwrap_or(usize::MAX);
            let limit = left.min(PAGE_EVENTS);
            let page = self.looking_again(|| self.read(stream, next, limit, false))?;
            if page.is_empty() {
                let expected = format!("event {next}");
                return Err(StoreError::damaged(stream.to_string(), expected, "none"));
            }
            next += page.len() as u64;
            for recorded in page {
                for payload in recorded.event.payloads() {
                    if let Body::Stored { root, .. } = &payload.body {
                        self.export_piece(root, writer, payload::MAX_DEPTH)?;
                    }
                }
                let bytes = recorded.event.encode();
                hash = hash.chain(&bytes);
                writer.event(&bytes)?;
            }
        }
        if hash != head.hash {
            let (expected, found) = (head.hash.to_string(), hash.to_string());
            return Err(StoreError::damaged(stream.to_string(), expected, found));
        }
        Ok(())
    }

    /// A piece and all below it, children first.
    fn export_piece<W: Write>(
        &self,
        hash: &Hash,
        writer: &mut PortableWriter<W>,
        depth: usize,
    ) -> Result<(), StoreError> {
        if writer.has_piece(hash) {
            return Ok(());
        }
        let bytes = self.looking_again(|| self.piece(hash))?;
        let damaged = |found: String| {
            StoreError::damaged(format!("the payload piece {hash}"), "a piece", found)
        };
        let children = payload::children(&bytes).map_err(|e| damaged(e.to_string()))?;
        let below = depth.checked_sub(1);
        for child in children {
            let below = below.ok_or_else(|| damaged("one that lies too deep".into()))?;
            self.export_piece(&child.hash, writer, below)?;
        }
        writer.piece(hash, &bytes)?;
        Ok(())
    }

    fn import(&self, path: &Path, rename: Option<&StreamId>) -> Result<ImportReport, StoreError> {
        self.disk.log()?;
        // Pieces of which the events are still to come must not be taken for garbage.
        let _no_retention = lock(&self.retiring);
        let incoming = self.survey(path, rename)?;
        let mut report = ImportReport::default();
        let mut wanted = self.plan(&incoming, rename, &mut report)?;
        if wanted.is_empty() {
            return Ok(report);
        }
        let mut events: BTreeMap<StreamId, Vec<(Event, Vec<u8>)>> = BTreeMap::new();
        let mut reader = open(self, path)?;
        while let Some(item) = reader.next()? {
            match item {
                Item::Piece { hash, bytes } => self.import_piece(Piece { hash, bytes })?,
                Item::Event {
                    event,
                    bytes,
                    version,
                } => {
                    let stream = event.stream.clone();
                    let Some(want) = wanted.get(&stream) else {
                        continue;
                    };
                    if event.sequence > want.from {
                        let (event, bytes) = match want.to == stream {
                            true => (event, bytes),
                            false => {
                                let event = renamed(&event, &stream, &want.to);
                                let bytes = event.encode();
                                (event, bytes)
                            }
                        };
                        events
                            .entry(stream.clone())
                            .or_default()
                            .push((event, bytes));
                    }
                    if version == want.head
                        && let Some(want) = wanted.remove(&stream)
                    {
                        let events = events.remove(&stream).unwrap_or_default();
                        report.events += events.len() as u64;
                        let head = self.import_events(&stream, &want, events)?;
                        report.imported.insert(want.to, head);
                    }
                }
            }
        }
        let position = lock(&self.core).applied;
        self.disk.log()?.wait_durable(position)?;
        Ok(report)
    }

    /// Verifies all of a file, and notes what it has of each stream.
    fn survey(
        &self,
        path: &Path,
        rename: Option<&StreamId>,
    ) -> Result<BTreeMap<StreamId, Incoming>, StoreError> {
        let mut reader = open(self, path)?;
        let mut incoming: BTreeMap<StreamId, Incoming> = BTreeMap::new();
        let mut heads: BTreeMap<StreamId, Option<Version>> = BTreeMap::new();
        while let Some(item) = reader.next()? {
            let Item::Event {
                event,
                bytes,
                version,
            } = item
            else {
                continue;
            };
            let stream = event.stream;
            if event.clock >= COUNT_LIMIT / 2 {
                // This store's clock would go on from there.
                let why = format!("event {} has a clock of {}", event.sequence, event.clock);
                return Err(refused(&stream, why));
            }
            if !heads.contains_key(&stream) {
                let here = self.head(rename.unwrap_or(&stream))?;
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
                entry.bytes += record::of_event_bytes(&bytes).len() as u64 + 64;
            }
            if here.is_some_and(|here| here.sequence == version.sequence) {
                entry.here = Some(version.hash);
            }
        }
        Ok(incoming)
    }

    /// Decides what to do with each stream, before anything is written.
    fn plan(
        &self,
        incoming: &BTreeMap<StreamId, Incoming>,
        rename: Option<&StreamId>,
        report: &mut ImportReport,
    ) -> Result<BTreeMap<StreamId, Wanted>, StoreError> {
        if rename.is_some() && incoming.len() != 1 {
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
            let to = rename.unwrap_or(stream).clone();
            if to.kind() != stream.kind() {
                return Err(refused(&to, format!("the file has {stream}")));
            }
            let from = match self.head(&to)? {
                None => 0,
                Some(_) if to != *stream => {
                    return Err(refused(&to, "there is one of this name".into()));
                }
                Some(here) if here.sequence >= found.head.sequence => {
                    self.must_begin_with(&to, found.head)?;
                    report.present.push(to);
                    continue;
                }
                Some(here) if found.here == Some(here.hash) => here.sequence,
                Some(here) => {
                    let why = format!("its history up to event {} is another", here.sequence);
                    return Err(refused(&to, why));
                }
            };
            within(
                "the events of a stream to be imported",
                found.bytes,
                self.options.batch_bytes(),
            )?;
            let head = found.head;
            wanted.insert(stream.clone(), Wanted { to, from, head });
        }
        Ok(wanted)
    }

    fn must_begin_with(&self, stream: &StreamId, version: Version) -> Result<(), StoreError> {
        let read = self.read(stream, version.sequence, 1, true)?;
        if read.first().is_some_and(|here| here.hash == version.hash) {
            return Ok(());
        }
        let why = format!("its history up to event {} is another", version.sequence);
        Err(refused(stream, why))
    }

    fn import_piece(&self, piece: Piece) -> Result<(), StoreError> {
        let from = lock(&self.core).state.pieces_from;
        if self.is_stored(&piece.hash, from)? {
            return Ok(());
        }
        let mut core = lock(&self.core);
        self.log_pieces(&mut core, self.disk.log()?, &[piece])
    }

    /// Appends the rest of a stream, and that it was imported, in one go.
    fn import_events(
        &self,
        original: &StreamId,
        want: &Wanted,
        events: Vec<(Event, Vec<u8>)>,
    ) -> Result<Version, StoreError> {
        let fields = Fields::new()
            .with(STREAM, want.to.to_string().as_str())
            .with(ORIGINAL, original.to_string().as_str())
            .with(SEQUENCE, want.head.sequence)
            .with(HASH, want.head.hash.as_bytes().to_vec());
        let note = NewEvent::new(Kind::Imported).with_fields(fields);
        let mut core = lock(&self.core);
        if core.state.retiring.contains(&want.to) {
            let why = "it is being removed: finish that with retention, then import again";
            return Err(refused(&want.to, why.into()));
        }
        if want.from == 0 && self.ended(&core, &want.to)?.is_some() {
            return Err(refused(&want.to, "it was changed at the same time".into()));
        }
        let here = core.state.streams.get(&want.to);
        if here.map_or(0, |stream| stream.head.sequence) != want.from {
            return Err(refused(&want.to, "it was changed at the same time".into()));
        }
        let position = self.append_foreign(&mut core, events, note)?;
        let head = core.state.streams.get(&want.to).map(|stream| stream.head);
        let head = match head {
            Some(head) => Some(head),
            None => self.ended(&core, &want.to)?.map(|ended| ended.head),
        };
        let written = core.written;
        drop(core);
        self.watch.reached(position);
        self.keeper.appended(self, written);
        head.ok_or_else(|| StoreError::damaged(want.to.to_string(), "what was imported", "nothing"))
    }
}

fn open(store: &Inner, path: &Path) -> Result<PortableReader<FsReader>, StoreError> {
    let file = store.folder.fs.open(path, OpenMode::Read);
    let file = file.map_err(|e| IoFailure::new("open", path, e))?;
    Ok(PortableReader::open(FsReader::new(file))?)
}

fn refused(stream: &StreamId, why: String) -> StoreError {
    StoreError::Refused {
        stream: stream.clone(),
        kind: Kind::Imported,
        why,
    }
}
