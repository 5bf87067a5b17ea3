//! The portable file: a run, a memory or a whole store as one file that can be carried elsewhere.
//!
//! Everything that is needed to verify it is in it: every event of its streams from the first one
//! on, so that their chains can be followed from nothing, and every piece of their payloads.
//!
//! ```text
//! head    24 bytes: "dalsegno export\n", format version, checksum
//! frames  about, then pieces and events, then heads, then the end
//! ```
//!
//! A frame is a tag (1 byte), the length of its content (4 bytes, little-endian), CRC32C of tag,
//! length and content (4 bytes), and the content:
//!
//! | tag | frame | content | at most |
//! |---:|---|---|---:|
//! | 1 | about | numbered fields: what the file holds, when it was made, which formats | 1 MiB |
//! | 2 | piece | 32 bytes of hash, then the piece as stored | 16 KiB |
//! | 3 | event | its bytes | 1 MiB |
//! | 4 | heads | numbered fields: streams, each with its last sequence and chain hash | 1 MiB |
//! | 5 | end | numbered fields: how much there was, BLAKE3 over all bytes before this frame | 1 KiB |
//!
//! Invariant: what [`PortableReader`] brought to its end is what a [`PortableWriter`] finished. Every
//! rule about the order of pieces and events is kept in one place (`portable/book.rs`), which both
//! ask. Memory is bounded by the number of pieces and streams, not by the length of the file.
//!
//! Absent on purpose: signatures. Who has the heads of the streams from somewhere trusted can
//! compare them; the file alone shows that it is whole, not who made it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::event::{Event, Version};
use crate::hash::Hash;
use crate::name::StreamId;

mod book;
mod file;
mod frame;
mod reader;
mod writer;

pub use file::{FsReader, FsWriter};
pub use reader::{Item, PortableReader, verify_portable};
pub use writer::PortableWriter;

/// The format of portable files that this version writes, and the newest one it reads.
pub const PORTABLE_FORMAT: u32 = 1;

/// The format of the events in it.
pub const EVENT_FORMAT: u64 = 1;

/// The longest event that a portable file can hold, in bytes. Payloads that would make an event
/// long are stored by content.
pub const EVENT_LIMIT_BYTES: usize = 1 << 20;

/// What a portable file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Which streams.
    pub holds: Holds,
    /// When it was made, in microseconds since 1970.
    pub created_us: u64,
}

/// Which streams a portable file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All that the store had.
    Store,
    /// These, at least one, each with one event or more.
    Streams(BTreeSet<StreamId>),
}

/// What is in a portable file, all of it verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortableReport {
    /// What it says about itself.
    pub about: About,
    /// Its streams, each with its last event's place and the hash of everything up to it.
    pub streams: BTreeMap<StreamId, Version>,
    /// How many events.
    pub events: u64,
    /// How many pieces of payloads.
    pub pieces: u64,
    /// The length of the file.
    pub bytes: u64,
    /// BLAKE3 over all bytes before the last frame.
    pub hash: Hash,
}

/// A portable file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortableError {
    /// The disk, or whatever the file is on, failed.
    #[error("could not go on at byte {offset} of the portable file: {error}")]
    Io {
        /// How far it had come.
        offset: u64,
        /// What was said.
        error: io::Error,
    },
    /// It is some other file.
    #[error(
        "not a portable file: it should begin with \"dalsegno export\" and begins with {found:?}: \
         check that it is the right file"
    )]
    OtherFile {
        /// Its first bytes.
        found: String,
    },
    /// A newer version wrote it.
    #[error(
        "the portable file has {what} in format {found}, and this version reads up to {known}: \
         use a newer version of dalsegno"
    )]
    Newer {
        /// What of it is in a newer format.
        what: &'static str,
        /// Which one.
        found: u64,
        /// The newest that is known.
        known: u64,
    },
    /// It is not as it was written, or was written wrongly.
    #[error(
        "the portable file is damaged at byte {offset}: expected {expected}, found {found}: take \
         nothing from it, and get another copy"
    )]
    Damaged {
        /// Where.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// What was to be written has no place in the file. Nothing of it was written.
    #[error("not written to the portable file: expected {expected}, found {found}")]
    Refused {
        /// What could be written next.
        expected: String,
        /// What was given.
        found: String,
    },
    /// It failed before, and said why then.
    #[error("the portable file failed before: begin again with a new one")]
    Stopped,
}

/// An event under another name, for importing a stream where its own is taken: its stream and the
/// event that led to it are renamed, all else stays.
///
/// The history gets other hashes by that. What names the stream in free text, or in the fields of
/// the user's own kinds, is not touched.
pub fn renamed(event: &Event, from: &StreamId, to: &StreamId) -> Event {
    let mut event = event.clone();
    let cause = event.cause.as_mut().map(|cause| &mut cause.stream);
    for stream in [Some(&mut event.stream), cause].into_iter().flatten() {
        if stream == from {
            *stream = to.clone();
        }
    }
    event
}
