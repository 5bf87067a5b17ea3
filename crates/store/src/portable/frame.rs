//! The bytes of a portable file: its head, its frames, and what the frames that are its own say.
//!
//! | frame | field | form |
//! |---|---:|---|
//! | about | 1 | what it holds: 0 for the whole store, else a list of streams in their order |
//! | | 2 | when it was made, microseconds since 1970 |
//! | | 3 | format of the events |
//! | | 4 | format of the pieces |
//! | heads | 1 | list of stream, sequence of its last event, 32 bytes of chain hash |
//! | end | 1 | number of events |
//! | | 2 | number of pieces |
//! | | 3 | number of streams |
//! | | 4 | BLAKE3 over all bytes of the file before this frame |
//!
//! Streams are ordered by kind (runs, memories, the store's own), then by the bytes of their name.
//! Unknown fields are allowed in *about* only.

use std::collections::BTreeSet;

use super::{About, EVENT_FORMAT, EVENT_LIMIT_BYTES, Holds, PORTABLE_FORMAT};
use crate::event::Version;
use crate::fields::{Fields, Value};
use crate::hash::Hash;
use crate::name::StreamId;
use crate::payload;

pub(super) const MAGIC: &[u8; 16] = b"dalsegno export\n";
/// The magic, the version, CRC32C of both.
pub(super) const HEAD_BYTES: usize = 24;
/// Tag, length, checksum.
pub(super) const FRAME_HEAD_BYTES: usize = 9;
pub(super) const HASH_BYTES: usize = 32;

/// Few enough that a frame of them is far below its limit, whatever their names.
pub(super) const HEADS_PER_FRAME: usize = 1000;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    About = 1,
    Piece = 2,
    Event = 3,
    Heads = 4,
    End = 5,
}

impl Tag {
    pub fn from_byte(byte: u8) -> Option<Tag> {
        let all = [Tag::About, Tag::Piece, Tag::Event, Tag::Heads, Tag::End];
        all.into_iter().find(|tag| *tag as u8 == byte)
    }

    /// The longest content. Part of the format: a reader sets nothing aside for more.
    pub fn limit_bytes(self) -> usize {
        match self {
            Tag::About | Tag::Heads => 1 << 20,
            Tag::Piece => 16 << 10,
            Tag::Event => EVENT_LIMIT_BYTES,
            Tag::End => 1 << 10,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Tag::About => "about",
            Tag::Piece => "piece",
            Tag::Event => "event",
            Tag::Heads => "heads",
            Tag::End => "end",
        }
    }
}

pub(super) fn head() -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&PORTABLE_FORMAT.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The head of a frame whose content is these parts, one after the other, `len` bytes in all.
pub(super) fn frame_head(tag: Tag, len: u32, parts: &[&[u8]]) -> [u8; FRAME_HEAD_BYTES] {
    let mut bytes = [0; FRAME_HEAD_BYTES];
    bytes[0] = tag as u8;
    bytes[1..5].copy_from_slice(&len.to_le_bytes());
    let crc = parts.iter().fold(crc32c::crc32c(&bytes[..5]), |crc, part| {
        crc32c::crc32c_append(crc, part)
    });
    bytes[5..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

const HOLDS: u64 = 1;
const CREATED: u64 = 2;
const EVENTS_FORMAT: u64 = 3;
const PIECES_FORMAT: u64 = 4;
const WHOLE_STORE: u64 = 0;

pub(super) fn encode_about(about: &About) -> Vec<u8> {
    let holds = match &about.holds {
        Holds::Store => Value::Number(WHOLE_STORE),
        Holds::Streams(streams) => {
            let texts = streams.iter().map(|stream| stream.to_string().into());
            Value::List(texts.collect())
        }
    };
    Fields::new()
        .with(HOLDS, holds)
        .with(CREATED, about.created_us)
        .with(EVENTS_FORMAT, EVENT_FORMAT)
        .with(PIECES_FORMAT, u64::from(payload::FORMAT))
        .encode()
}

/// What a file's first frame says.
pub(super) struct ReadAbout {
    pub about: About,
    /// Of the events.
    pub event_format: u64,
    /// Of the pieces.
    pub piece_format: u64,
}

/// An error says what is wrong with it.
pub(super) fn decode_about(content: &[u8]) -> Result<ReadAbout, String> {
    let fields = Fields::decode(content).map_err(|e| e.to_string())?;
    let number = |key, what| {
        let number = fields.number(key);
        number.ok_or_else(|| format!("no {what}"))
    };
    let holds = match fields.get(HOLDS) {
        Some(Value::Number(WHOLE_STORE)) => Holds::Store,
        Some(Value::List(list)) => Holds::Streams(decode_streams(list)?),
        _ => return Err("not a word on what it holds".into()),
    };
    Ok(ReadAbout {
        about: About {
            holds,
            created_us: number(CREATED, "time")?,
        },
        event_format: number(EVENTS_FORMAT, "format of events")?,
        piece_format: number(PIECES_FORMAT, "format of pieces")?,
    })
}

fn decode_streams(list: &[Value]) -> Result<BTreeSet<StreamId>, String> {
    let mut streams = BTreeSet::new();
    for value in list {
        let stream = decode_stream(value)?;
        if streams.last().is_some_and(|last| *last >= stream) {
            return Err(format!("{stream} out of its order"));
        }
        streams.insert(stream);
    }
    if streams.is_empty() {
        return Err("an empty list of streams".into());
    }
    Ok(streams)
}

fn decode_stream(value: &Value) -> Result<StreamId, String> {
    match value {
        Value::Text(text) => text.parse().map_err(|e| format!("{e}")),
        _ => Err("a stream whose name is no text".into()),
    }
}

const HEADS: u64 = 1;

pub(super) fn encode_heads(heads: &[(&StreamId, &Version)]) -> Vec<u8> {
    let heads = heads.iter().map(|(stream, version)| {
        Value::List(vec![
            stream.to_string().into(),
            version.sequence.into(),
            version.hash.as_bytes().to_vec().into(),
        ])
    });
    Fields::new()
        .with(HEADS, Value::List(heads.collect()))
        .encode()
}

pub(super) fn decode_heads(content: &[u8]) -> Result<Vec<(StreamId, Version)>, String> {
    let fields = Fields::decode(content).map_err(|e| e.to_string())?;
    let mut all = fields.iter();
    match (all.next(), all.next()) {
        (Some((HEADS, Value::List(list))), None) if !list.is_empty() => {
            list.iter().map(decode_head).collect()
        }
        _ => Err("something else than one list".into()),
    }
}

fn decode_head(value: &Value) -> Result<(StreamId, Version), String> {
    let Value::List(parts) = value else {
        return Err("a head that is no list".into());
    };
    match parts.as_slice() {
        [stream, Value::Number(sequence), Value::Bytes(hash)] => {
            let hash: [u8; HASH_BYTES] = hash
                .as_slice()
                .try_into()
                .map_err(|_| "a hash that has not 32 bytes")?;
            let version = Version {
                sequence: *sequence,
                hash: Hash::from_bytes(hash),
            };
            Ok((decode_stream(stream)?, version))
        }
        _ => Err("a head that is not stream, sequence and hash".into()),
    }
}

/// What the last frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub events: u64,
    pub pieces: u64,
    pub streams: u64,
    pub hash: Hash,
}

impl End {
    pub fn encode(&self) -> Vec<u8> {
        Fields::new()
            .with(1, self.events)
            .with(2, self.pieces)
            .with(3, self.streams)
            .with(4, self.hash.as_bytes().to_vec())
            .encode()
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let End {
            events,
            pieces,
            streams,
            hash,
        } = self;
        write!(
            f,
            "an end with {events} events, {pieces} pieces, {streams} streams and the hash {hash}"
        )
    }
}
