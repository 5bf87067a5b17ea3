//! A stream part: what a segment holds of one stream.
//!
//! | offset | size | field |
//! |---:|---:|---|
//! | 0 | 4 | checksum of the head, from byte 4 to the end of the name, see `source.rs` |
//! | 4 | 4 | checksum of the places |
//! | 8 | 8 | sequence of the first event here |
//! | 16 | 8 | events, at least 1 |
//! | 24 | 8 | bytes of the places |
//! | 32 | 32 | chain hash before the first event |
//! | 64 | 32 | chain hash after the last event |
//! | 96 | 2 | bytes of the name |
//! | 98 | | the stream's name, as in `run/order-42` |
//! | | | the places: for each event LEB128, how far behind the one before, the first from 0 |
//!
//! Parts follow each other without gaps, in the order of [`StreamId`]: runs, memories, the store,
//! each by the bytes of their names.
//!
//! In the stream table, the key is the first 8 bytes of the BLAKE3 hash of the name, and the value
//! 8 bytes for where the part is in the file and 8 bytes for its length.
//!
//! Invariant: the head is read without the places, which can be many, and is checked on its own.

use super::bytes::{array_at, push_varint, u16_at, u32_at, u64_at, varint};
use super::source::{self, Source};
use super::table::Shape;
use super::{Identity, IndexError, StreamPart, StreamSummary};
use crate::hash::Hash;
use crate::name::{NAME_LIMIT_BYTES, StreamId};

pub(super) const KEY_BYTES: usize = 8;
pub(super) const TABLE: Shape = Shape {
    key_bytes: KEY_BYTES,
    value_bytes: 16,
};

const CRC_BYTES: usize = 4;
const PLACES_CRC_AT: usize = 4;
const FIRST_AT: usize = 8;
const COUNT_AT: usize = 16;
const PLACES_BYTES_AT: usize = 24;
const BEFORE_AT: usize = 32;
const AFTER_AT: usize = 64;
const NAME_BYTES_AT: usize = 96;
/// A head without the name.
pub(super) const FIXED_BYTES: usize = 98;
/// The longest head.
pub(super) const HEAD_LIMIT_BYTES: u64 = (FIXED_BYTES + "memory/".len() + NAME_LIMIT_BYTES) as u64;

/// The key of a stream in the table.
pub(super) fn key_of(name: &str) -> [u8; KEY_BYTES] {
    array_at(Hash::of(name.as_bytes()).as_bytes(), 0)
}

/// Appends a part to a file in the making.
pub(super) fn push(out: &mut Vec<u8>, identity: &Identity, part: &StreamPart) {
    let mut places = Vec::new();
    let mut before = 0;
    for place in &part.places {
        push_varint(&mut places, place - before);
        before = *place;
    }
    let name = part.stream.to_string();
    let at = out.len();
    let places_at = at + FIXED_BYTES + name.len();
    let places_crc = source::checksum(identity, places_at as u64, &places);
    out.extend_from_slice(&[0; CRC_BYTES]);
    out.extend_from_slice(&places_crc.to_le_bytes());
    out.extend_from_slice(&part.first.to_le_bytes());
    out.extend_from_slice(&(part.places.len() as u64).to_le_bytes());
    out.extend_from_slice(&(places.len() as u64).to_le_bytes());
    out.extend_from_slice(part.before.as_bytes());
    out.extend_from_slice(part.after.as_bytes());
    // Names are checked where they come in: they are far shorter than that.
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    let crc = source::checksum(identity, at as u64, &out[at + CRC_BYTES..]);
    out[at..at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&places);
}

/// The head of a part, whose checksum is right.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub summary: StreamSummary,
    pub places_at: u64,
    /// Where the part ends.
    pub end: u64,
    places_crc: u32,
}

impl Head {
    /// From bytes that were read at `at`: the head, and perhaps more behind it.
    pub fn decode(source: &Source, at: u64, bytes: &[u8]) -> Result<Head, IndexError> {
        let head = bytes
            .get(..FIXED_BYTES)
            .map(|fixed| FIXED_BYTES + usize::from(u16_at(fixed, NAME_BYTES_AT)))
            .and_then(|length| bytes.get(..length))
            .ok_or_else(|| {
                let found = format!("{} bytes", bytes.len());
                source.damage(at, "the head of a stream part", found)
            })?;
        source.compare(at, &head[CRC_BYTES..], u32_at(head, 0))?;
        let nonsense = |what: &str, found: String| source.damage(at, what, found);

        let name = str::from_utf8(&head[FIXED_BYTES..])
            .map_err(|e| nonsense("a name in UTF-8", e.to_string()))?;
        let stream = name
            .parse()
            .map_err(|e| nonsense("the name of a stream", format!("{e}")))?;
        let (first, count) = (u64_at(head, FIRST_AT), u64_at(head, COUNT_AT));
        let places_bytes = u64_at(head, PLACES_BYTES_AT);
        // No place takes less than a byte.
        if count == 0 || count > places_bytes || first.checked_add(count).is_none() {
            let found = format!("{count} events from {first} on in {places_bytes} bytes");
            return Err(nonsense("events with places", found));
        }
        let places_at = at + head.len() as u64;
        let end = places_at
            .checked_add(places_bytes)
            .ok_or_else(|| nonsense("places in the file", format!("{places_bytes} bytes")))?;
        Ok(Head {
            summary: StreamSummary {
                stream,
                first,
                count,
                before: Hash::from_bytes(array_at(head, BEFORE_AT)),
                after: Hash::from_bytes(array_at(head, AFTER_AT)),
            },
            places_at,
            end,
            places_crc: u32_at(head, PLACES_CRC_AT),
        })
    }

    /// The part, from the bytes at `places_at`.
    pub fn with_places(self, source: &Source, bytes: &[u8]) -> Result<StreamPart, IndexError> {
        source.compare(self.places_at, bytes, self.places_crc)?;
        let places = decode_places(bytes, self.summary.count, source.identity().segment_bytes)
            .ok_or_else(|| {
                let expected = format!("{} rising places in the segment", self.summary.count);
                source.damage(self.places_at, expected, "others")
            })?;
        Ok(StreamPart {
            stream: self.summary.stream,
            first: self.summary.first,
            before: self.summary.before,
            after: self.summary.after,
            places,
        })
    }
}

fn decode_places(mut bytes: &[u8], count: u64, segment_bytes: u64) -> Option<Vec<u64>> {
    let count = usize::try_from(count).ok().filter(|n| *n <= bytes.len())?;
    let mut places = Vec::with_capacity(count);
    let mut before: Option<u64> = None;
    for _ in 0..count {
        let place = before.unwrap_or(0).checked_add(varint(&mut bytes)?)?;
        if before.is_some_and(|before| before > place) || place >= segment_bytes {
            return None;
        }
        places.push(place);
        before = Some(place);
    }
    bytes.is_empty().then_some(places)
}

/// The entry of the stream table for a part.
pub(super) fn entry(key: [u8; KEY_BYTES], at: u64, bytes: u64) -> [u8; KEY_BYTES + 16] {
    let mut entry = [0; KEY_BYTES + 16];
    entry[..KEY_BYTES].copy_from_slice(&key);
    entry[KEY_BYTES..KEY_BYTES + 8].copy_from_slice(&at.to_le_bytes());
    entry[KEY_BYTES + 8..].copy_from_slice(&bytes.to_le_bytes());
    entry
}

/// Where a part is and how long, from a value of the stream table.
pub(super) fn value(value: &[u8]) -> (u64, u64) {
    (u64_at(value, 0), u64_at(value, 8))
}

impl StreamPart {
    /// Why this cannot be part of a segment, if it cannot.
    pub(super) fn contradiction(&self, segment_bytes: u64) -> Option<String> {
        let stream: &StreamId = &self.stream;
        let (Some(last), true) = (self.places.last(), self.places.is_sorted()) else {
            return Some(format!("the events of {stream} are out of order"));
        };
        if *last >= segment_bytes {
            return Some(format!("an event of {stream} at {last} is behind its end"));
        }
        self.first
            .checked_add(self.places.len() as u64)
            .is_none()
            .then(|| format!("{stream} has too many events"))
    }
}
