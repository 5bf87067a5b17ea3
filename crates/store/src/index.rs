//! The index of a sealed segment: which events of a stream are in it, which pieces, which runs
//! ended.
//!
//! An index is a file beside its segment, and a cache: it can be deleted and made again from the
//! segment. Most questions cost one or two small reads, and no memory that grows with the log.
//!
//! | section | what it answers | file |
//! |---|---|---|
//! | header | which segment is it of | `header.rs` |
//! | stream parts | which events of a stream, and where | `part.rs` |
//! | ended runs | which runs ended here, and how | `ended.rs` |
//! | stream table | where is the part of a stream | `table.rs` |
//! | piece table | where is a piece | `table.rs` |
//!
//! The layout is a table at the head of each of these files, and in `docs/format.md`.
//!
//! Invariant: an index never gives a wrong answer because of what became of its file, in particular
//! never a wrong "not here". Every byte that an answer follows from is covered by a checksum that is
//! compared at that very read. Whoever gets an error makes the index anew.

mod bytes;
mod encode;
mod ended;
mod error;
mod header;
mod part;
mod source;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use dalsegno_log::fs::FsFile;

pub(crate) use encode::encode;
pub(crate) use error::IndexError;

use crate::event::Version;
use crate::hash::Hash;
use crate::name::StreamId;
use crate::state::Status;
use header::{Header, PARTS_AT};
use part::{HEAD_LIMIT_BYTES, Head, KEY_BYTES};
use source::{Source, Window};
use table::Shape;

const PIECE_KEY_BYTES: usize = 32;
/// In the piece table, the key is the piece's hash and the value 8 bytes for its place.
const PIECE_TABLE: Shape = Shape {
    key_bytes: PIECE_KEY_BYTES,
    value_bytes: 8,
};

/// Which sealed segment an index is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub store: u64,
    pub segment: u64,
    pub first_lsn: u64,
    pub last_lsn: u64,
    /// The length of its file.
    pub segment_bytes: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "segment {} of store {:016x} with LSNs {} to {} in {} bytes",
            self.segment, self.store, self.first_lsn, self.last_lsn, self.segment_bytes
        )
    }
}

/// What a segment holds of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamPart {
    pub stream: StreamId,
    /// The sequence of its first event here; the others follow without gaps.
    pub first: u64,
    /// The chain hash before that event.
    pub before: Hash,
    /// The chain hash after the last event here.
    pub after: Hash,
    /// Where the record of each event is in the segment's file, never falling. The place of an
    /// event that is missing is that of the next one.
    pub places: Vec<u64>,
}

/// The same without the places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamSummary {
    pub stream: StreamId,
    pub first: u64,
    pub count: u64,
    pub before: Hash,
    pub after: Hash,
}

/// A run whose last event is in the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedRun {
    pub run: StreamId,
    pub status: Status,
    pub agent: Option<String>,
    pub created_us: u64,
    pub ended_us: u64,
    pub head: Version,
}

/// All that an index is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub streams: Vec<StreamPart>,
    pub ended: Vec<EndedRun>,
    /// Hash and place of each.
    pub pieces: Vec<(Hash, u64)>,
}

/// An open index file. Holds its header and nothing else of it.
#[derive(Debug)]
pub(crate) struct Index {
    source: Source,
    header: Header,
    key_of: fn(&str) -> [u8; KEY_BYTES],
}

/// What an index says it is of; nothing of it was checked.
pub(crate) fn claimed_identity(bytes: &[u8]) -> Option<Identity> {
    bytes.get(..header::HEADER_BYTES).map(Identity::decode)
}

impl Index {
    /// Reads the header. The path is for errors.
    ///
    /// # Errors
    /// The header is damaged, or of another version; the index is of another segment than
    /// `expected`; the file has another length than it was made with. Likewise below: damage where
    /// the answer would be, or a file system that fails.
    pub fn open(
        file: Box<dyn FsFile>,
        path: &Path,
        expected: &Identity,
    ) -> Result<Index, IndexError> {
        let source = Source::new(file, path.to_owned(), *expected)?;
        let header = Header::read(&source)?;
        Ok(Index {
            source,
            header,
            key_of: part::key_of,
        })
    }

    /// What the segment holds of a stream; `None` if nothing.
    pub fn stream(&self, stream: &StreamId) -> Result<Option<StreamPart>, IndexError> {
        let Some((head, bytes)) = self.find_part(stream, u64::MAX)? else {
            return Ok(None);
        };
        head.with_places(&self.source, &bytes).map(Some)
    }

    /// The same without reading the places.
    pub fn stream_summary(&self, stream: &StreamId) -> Result<Option<StreamSummary>, IndexError> {
        let found = self.find_part(stream, HEAD_LIMIT_BYTES)?;
        Ok(found.map(|(head, _)| head.summary))
    }

    /// Where a piece is in the segment's file; `None` if it is not there.
    pub fn piece(&self, hash: &Hash) -> Result<Option<u64>, IndexError> {
        let place = |value: &[u8]| Ok(Some(bytes::u64_at(value, 0)));
        self.header
            .pieces
            .find(&self.source, hash.as_bytes(), place)
    }

    /// Tells of every stream that has events here, in the order of [`StreamId`]. Before an error it
    /// may have told of some.
    #[cfg(test)]
    pub fn for_each_stream(&self, mut f: impl FnMut(StreamSummary)) -> Result<(), IndexError> {
        self.walk_parts(|_, head| {
            f(head.summary);
            Ok(())
        })
    }

    /// Tells of every run that ended here, in the order of their names. Before an error it may have
    /// told of some.
    pub fn for_each_ended(&self, mut f: impl FnMut(EndedRun)) -> Result<(), IndexError> {
        let end = self.header.streams.at;
        let mut window = Window::new(&self.source, end);
        let mut at = self.header.ended_at;
        let mut order = Order::default();
        for _ in 0..self.header.ended {
            let (run, next) = ended::read(&self.source, &mut window, at)?;
            order.next(&self.source, at, &run.run)?;
            f(run);
            at = next;
        }
        self.must_end(at, end)
    }

    /// Reads every byte of the file. Without an error, no bit of it is other than it was written,
    /// and all lookups and walks agree with each other.
    pub fn check(&self) -> Result<(), IndexError> {
        let source = &self.source;
        let length = source.length_now()?;
        if length != source.bytes() {
            let expected = format!("a file of {} bytes", source.bytes());
            return Err(source.damage(length.min(source.bytes()), expected, format!("{length}")));
        }
        Header::read(source)?;
        // Each entry names another part, and there are as many entries as parts: so every part
        // has its entry.
        let mut before = None;
        self.header.streams.check(source, |block, key, value| {
            let (at, bytes) = part::value(value);
            let (head, _) = self.read_part(at, bytes, HEAD_LIMIT_BYTES)?;
            let name = head.summary.stream.to_string();
            let this = Some((key.to_owned(), at));
            if key != (self.key_of)(&name) || before >= this {
                let found = format!("one for {name}");
                return Err(source.damage(block, "an entry for each stream part", found));
            }
            before = this;
            Ok(())
        })?;
        let mut before = None;
        self.header.pieces.check(source, |block, key, value| {
            let place = bytes::u64_at(value, 0);
            let this = Some(key.to_owned());
            if before >= this || place >= source.identity().segment_bytes {
                let expected = "each piece once, and in the segment";
                return Err(source.damage(block, expected, format!("one at {place}")));
            }
            before = this;
            Ok(())
        })?;
        self.walk_parts(|window, head| {
            let (at, bytes) = (head.places_at, head.end - head.places_at);
            head.with_places(source, window.get(at, bytes)?)?;
            Ok(())
        })?;
        self.for_each_ended(|_| {})
    }

    /// The head of a stream's part, and behind it the bytes of its places, if the part is read
    /// that far.
    fn find_part(
        &self,
        stream: &StreamId,
        at_most: u64,
    ) -> Result<Option<(Head, Vec<u8>)>, IndexError> {
        let key = (self.key_of)(&stream.to_string());
        self.header.streams.find(&self.source, &key, |value| {
            let (at, bytes) = part::value(value);
            // Another stream may have the same key.
            let (head, places) = self.read_part(at, bytes, at_most)?;
            Ok((head.summary.stream == *stream).then_some((head, places)))
        })
    }

    /// Reads a part that the stream table knows.
    fn read_part(&self, at: u64, bytes: u64, at_most: u64) -> Result<(Head, Vec<u8>), IndexError> {
        let mut read = self.source.read(at, bytes.min(at_most))?;
        let head = Head::decode(&self.source, at, &read)?;
        if head.end - at != bytes || head.end > self.header.ended_at {
            let found = format!("{}", head.end - at);
            return Err(self
                .source
                .damage(at, format!("a part of {bytes} bytes"), found));
        }
        let places = read.split_off((head.places_at - at) as usize);
        Ok((head, places))
    }

    fn walk_parts(
        &self,
        mut each: impl FnMut(&mut Window<'_>, Head) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut window = Window::new(&self.source, self.header.ended_at);
        let mut at = PARTS_AT;
        let mut order = Order::default();
        for _ in 0..self.header.streams.entries {
            let bytes = window.get_up_to(at, HEAD_LIMIT_BYTES)?;
            let head = Head::decode(&self.source, at, bytes)?;
            order.next(&self.source, at, &head.summary.stream)?;
            let end = head.end;
            each(&mut window, head)?;
            at = end;
        }
        self.must_end(at, self.header.ended_at)
    }

    fn must_end(&self, at: u64, end: u64) -> Result<(), IndexError> {
        if at == end {
            return Ok(());
        }
        let expected = format!("the section's end at {end}");
        Err(self.source.damage(at, expected, "no more in it"))
    }
}

/// Sees to it that names rise in a walk.
#[derive(Default)]
struct Order(Option<StreamId>);

impl Order {
    fn next(&mut self, source: &Source, at: u64, name: &StreamId) -> Result<(), IndexError> {
        match self.0.replace(name.clone()) {
            Some(before) if before >= *name => {
                let expected = format!("a name behind {before}");
                Err(source.damage(at, expected, name.to_string()))
            }
            _ => Ok(()),
        }
    }
}
