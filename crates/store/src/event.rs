//! The event: the record of something that happened, and the only thing that is ever written.
//!
//! An event is a map of numbered fields in deterministic CBOR (see `docs/format.md`):
//!
//! | number | field | form |
//! |---:|---|---|
//! | 1 | stream | text, as in `run/order-42` |
//! | 2 | sequence in the stream, from 1 | number |
//! | 3 | logical clock of the store | number |
//! | 4 | wall time, microseconds since 1970 | number |
//! | 5 | kind | number, or text for the user's own |
//! | 6 | memory version and hash seen | list of number and 32 bytes |
//! | 7 | input | payload |
//! | 8 | output | payload |
//! | 9 | sources | list of texts |
//! | 10 | causing event | list of stream and sequence |
//! | 11 | fields of the kind | map of numbered fields, as bytes |
//! | 12 | letter it was taken from | list of sender and number |
//!
//! A payload is a list of content type and either bytes, or a list of root hash and length: up to
//! [`INLINE_LIMIT_BYTES`] it is in the event, above that it is stored by content.
//!
//! Invariant: `decode(encode(event)) == event`, and bytes that decode encode to themselves, fields
//! of newer versions included. So the hash over the bytes is the same on every store.

use crate::content_type::ContentType;
use crate::fields::{Cbor, Fields, Malformed};
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::StreamId;
use crate::strict::{Next, Strict};

/// Payloads above this are stored by content. Part of the format: the hash depends on it.
pub const INLINE_LIMIT_BYTES: usize = 1024;

const STREAM: u64 = 1;
const SEQUENCE: u64 = 2;
const CLOCK: u64 = 3;
const TIME: u64 = 4;
const KIND: u64 = 5;
const MEMORY: u64 = 6;
const INPUT: u64 = 7;
const OUTPUT: u64 = 8;
const SOURCES: u64 = 9;
const CAUSE: u64 = 10;
const FIELDS: u64 = 11;
const LETTER: u64 = 12;

const WHAT: &str = "an event";

/// A position in a stream and the hash of everything up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The sequence number of the last event.
    pub sequence: u64,
    /// The chain's hash at that event.
    pub hash: Hash,
}

impl Version {
    /// Before the first event.
    pub const START: Version = Version {
        sequence: 0,
        hash: Hash::ZERO,
    };

    /// After one more event.
    pub fn after(&self, event_bytes: &[u8]) -> Version {
        Version {
            sequence: self.sequence + 1,
            hash: self.hash.chain(event_bytes),
        }
    }
}

/// The user's data, as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// What it is, as in `application/json`.
    pub content_type: ContentType,
    /// Where it is.
    pub body: Body,
}

/// Where a payload's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the event.
    Inline(Vec<u8>),
    /// Stored by content.
    Stored {
        /// The root of its tree.
        root: Hash,
        /// Its length.
        bytes: u64,
    },
}

/// The place of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRef {
    /// Its stream.
    pub stream: StreamId,
    /// Its place there.
    pub sequence: u64,
}

/// The letter an event was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterRef {
    /// Who sent it.
    pub sender: String,
    /// The sender's count.
    pub number: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its place there, from 1.
    pub sequence: u64,
    /// Its place in the order of all events of its store.
    pub clock: u64,
    /// When, in microseconds since 1970, by the clock of the machine.
    pub time_us: u64,
    /// What.
    pub kind: Kind,
    /// The memory that was seen when it happened.
    pub memory: Option<Version>,
    /// What went in.
    pub input: Option<Payload>,
    /// What came out.
    pub output: Option<Payload>,
    /// Where it was taken from.
    pub sources: Vec<String>,
    /// The event that led to it.
    pub cause: Option<EventRef>,
    /// What else its kind says.
    pub fields: Fields,
    /// The letter it was taken from.
    pub letter: Option<LetterRef>,
    /// Fields that a newer version wrote: number and CBOR.
    pub(crate) newer: Vec<(u64, Vec<u8>)>,
}

impl Event {
    /// An event with nothing but its place and kind.
    pub fn new(stream: StreamId, sequence: u64, clock: u64, time_us: u64, kind: Kind) -> Event {
        Event {
            stream,
            sequence,
            clock,
            time_us,
            kind,
            memory: None,
            input: None,
            output: None,
            sources: Vec::new(),
            cause: None,
            fields: Fields::new(),
            letter: None,
            newer: Vec::new(),
        }
    }

    /// The payloads it has.
    pub fn payloads(&self) -> impl Iterator<Item = &Payload> {
        self.input.iter().chain(&self.output)
    }

    /// As deterministic CBOR.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_behind(&[])
    }

    /// The same, behind other bytes.
    pub(crate) fn encode_behind(&self, before: &[u8]) -> Vec<u8> {
        let optional = [
            self.memory.is_some(),
            self.input.is_some(),
            self.output.is_some(),
            !self.sources.is_empty(),
            self.cause.is_some(),
            !self.fields.is_empty(),
            self.letter.is_some(),
        ];
        let optional = optional.iter().filter(|there| **there).count();
        let mut cbor = Cbor::new();
        cbor.raw(before);
        cbor.map(5 + optional + self.newer.len());
        cbor.number(STREAM);
        cbor.text_of(&[self.stream.kind().word(), "/", self.stream.name()]);
        for (key, number) in [
            (SEQUENCE, self.sequence),
            (CLOCK, self.clock),
            (TIME, self.time_us),
        ] {
            cbor.number(key);
            cbor.number(number);
        }
        cbor.number(KIND);
        match &self.kind {
            Kind::User(name) => cbor.text(name),
            kind => cbor.number(kind.number().unwrap_or(0)),
        }
        self.encode_optional(&mut cbor);
        for (key, value) in &self.newer {
            cbor.number(*key);
            cbor.raw(value);
        }
        cbor.finish()
    }

    fn encode_optional(&self, cbor: &mut Cbor) {
        if let Some(memory) = &self.memory {
            cbor.number(MEMORY);
            cbor.list(2);
            cbor.number(memory.sequence);
            cbor.bytes(memory.hash.as_bytes());
        }
        for (key, payload) in [(INPUT, &self.input), (OUTPUT, &self.output)] {
            if let Some(payload) = payload {
                cbor.number(key);
                encode_payload(cbor, payload);
            }
        }
        if !self.sources.is_empty() {
            cbor.number(SOURCES);
            cbor.list(self.sources.len());
            for source in &self.sources {
                cbor.text(source);
            }
        }
        if let Some(cause) = &self.cause {
            cbor.number(CAUSE);
            cbor.list(2);
            cbor.text(&cause.stream.to_string());
            cbor.number(cause.sequence);
        }
        if !self.fields.is_empty() {
            cbor.number(FIELDS);
            cbor.bytes(&self.fields.encode());
        }
        if let Some(letter) = &self.letter {
            cbor.number(LETTER);
            cbor.list(2);
            cbor.text(&letter.sender);
            cbor.number(letter.number);
        }
    }

    /// From deterministic CBOR.
    ///
    /// # Errors
    /// The bytes are something else, or in another form than [`Event::encode`] gives.
    pub fn decode(bytes: &[u8]) -> Result<Event, Malformed> {
        let head = Head::decode(bytes, None)?;
        let mut event = Event::new(
            head.stream,
            head.sequence,
            head.clock,
            head.time_us,
            head.kind,
        );
        head.rest.read_into(&mut event)?;
        Ok(event)
    }

    fn read_optional(&mut self, key: u64, reader: &mut Strict<'_>) -> Result<(), Malformed> {
        match key {
            MEMORY => {
                reader.pair()?;
                self.memory = Some(Version {
                    sequence: reader.number()?,
                    hash: read_hash(reader)?,
                });
            }
            INPUT => self.input = Some(read_payload(reader)?),
            OUTPUT => self.output = Some(read_payload(reader)?),
            SOURCES => {
                for _ in 0..reader.list()? {
                    self.sources.push(reader.text()?.to_owned());
                }
                not_empty(self.sources.is_empty(), reader)?;
            }
            CAUSE => {
                reader.pair()?;
                self.cause = Some(EventRef {
                    stream: read_stream(reader)?,
                    sequence: reader.number()?,
                });
            }
            FIELDS => {
                self.fields = Fields::decode(reader.bytes()?)?;
                not_empty(self.fields.is_empty(), reader)?;
            }
            LETTER => {
                reader.pair()?;
                self.letter = Some(LetterRef {
                    sender: reader.text()?.to_owned(),
                    number: reader.number()?,
                });
            }
            newer => self.newer.push((newer, reader.other()?)),
        }
        Ok(())
    }
}

/// What every event has, and so comes first.
#[derive(Debug)]
pub(crate) struct Head<'b> {
    pub stream: StreamId,
    pub sequence: u64,
    pub clock: u64,
    pub time_us: u64,
    pub kind: Kind,
    pub rest: Rest<'b>,
}

/// The fields behind the head, not read yet.
#[derive(Debug)]
pub(crate) struct Rest<'b> {
    fields: u64,
    reader: Strict<'b>,
}

impl Rest<'_> {
    /// Reads them into an event that has none of them.
    #[inline]
    pub fn read_into(mut self, event: &mut Event) -> Result<(), Malformed> {
        let mut before = KIND;
        for _ in 0..self.fields {
            before = self.reader.key_after(before)?;
            event.read_optional(before, &mut self.reader)?;
        }
        self.reader.end()
    }
}

impl<'b> Head<'b> {
    /// Reads the head of an event. Whoever reads many events of a stream has its name already.
    #[inline]
    pub fn decode(bytes: &'b [u8], stream: Option<&StreamId>) -> Result<Head<'b>, Malformed> {
        let mut reader = Strict::new(bytes, WHAT);
        let count = reader.map()?;
        if count < KIND {
            return Err(reader.wrong(format_args!("only {count} fields")));
        }
        reader.expect_key(STREAM)?;
        let name = reader.unchecked_text()?;
        let stream = match stream.filter(|stream| stream.is_text(name)) {
            Some(stream) => stream.clone(),
            None => {
                let name = reader.checked_text(name)?;
                name.parse().map_err(|e| Malformed::new(WHAT, e))?
            }
        };
        reader.expect_key(SEQUENCE)?;
        let sequence = reader.number()?;
        if sequence == 0 {
            return Err(reader.wrong("a sequence of 0"));
        }
        reader.expect_key(CLOCK)?;
        let clock = reader.number()?;
        reader.expect_key(TIME)?;
        let time_us = reader.number()?;
        reader.expect_key(KIND)?;
        let kind = match reader.next()? {
            Next::Text => Kind::User(reader.text()?.to_owned()),
            _ => Kind::from_number(reader.number()?),
        };
        Ok(Head {
            stream,
            sequence,
            clock,
            time_us,
            kind,
            rest: Rest {
                fields: count - KIND,
                reader,
            },
        })
    }
}

/// What is empty is left out.
fn not_empty(empty: bool, reader: &Strict<'_>) -> Result<(), Malformed> {
    match empty {
        false => Ok(()),
        true => Err(reader.wrong("something empty that should not be there")),
    }
}

fn read_stream(reader: &mut Strict<'_>) -> Result<StreamId, Malformed> {
    let text = reader.text()?;
    text.parse().map_err(|e| Malformed::new(WHAT, e))
}

fn read_hash(reader: &mut Strict<'_>) -> Result<Hash, Malformed> {
    match reader.bytes()?.try_into() {
        Ok(bytes) => Ok(Hash::from_bytes(bytes)),
        Err(_) => Err(reader.wrong("a hash that has not 32 bytes")),
    }
}

fn encode_payload(cbor: &mut Cbor, payload: &Payload) {
    cbor.list(2);
    cbor.text(&payload.content_type);
    match &payload.body {
        Body::Inline(bytes) => cbor.bytes(bytes),
        Body::Stored { root, bytes } => {
            cbor.list(2);
            cbor.bytes(root.as_bytes());
            cbor.number(*bytes);
        }
    }
}

fn read_payload(reader: &mut Strict<'_>) -> Result<Payload, Malformed> {
    reader.pair()?;
    let bytes = reader.unchecked_text()?;
    let content_type = match ContentType::known(bytes) {
        Some(known) => known,
        None => reader.checked_text(bytes)?.into(),
    };
    let body = match reader.next()? {
        Next::Bytes => Body::Inline(reader.bytes()?.to_owned()),
        _ => {
            reader.pair()?;
            Body::Stored {
                root: read_hash(reader)?,
                bytes: reader.number()?,
            }
        }
    };
    Ok(Payload { content_type, body })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn full() -> Event {
        let stream = StreamId::run("order-42").unwrap();
        let mut event = Event::new(
            stream.clone(),
            7,
            99,
            1_700_000_000_000_000,
            Kind::StepIntended,
        );
        event.memory = Some(Version {
            sequence: 3,
            hash: Hash::of(b"memory"),
        });
        event.input = Some(Payload {
            content_type: "application/json".into(),
            body: Body::Inline(b"{}".to_vec()),
        });
        event.output = Some(Payload {
            content_type: "text/plain".into(),
            body: Body::Stored {
                root: Hash::of(b"root"),
                bytes: 70_000,
            },
        });
        event.sources = vec!["a page".into(), "another".into()];
        event.cause = Some(EventRef {
            stream,
            sequence: 6,
        });
        event.fields = Fields::new().with(1, "charge").with(2, 1);
        event.letter = Some(LetterRef {
            sender: "cli".into(),
            number: 1,
        });
        event
    }

    #[test]
    fn what_is_written_is_read() {
        for event in [
            full(),
            Event::new(StreamId::store(), 1, 1, 0, Kind::User("x".into())),
        ] {
            assert_eq!(Event::decode(&event.encode()).unwrap(), event);
        }
    }

    #[test]
    fn kinds_and_fields_of_a_newer_version_survive() {
        let mut event = full();
        event.kind = Kind::Unknown(4711);
        event.newer = vec![(13, vec![0x63, b'n', b'e', b'w']), (900, vec![0xf6])];
        let bytes = event.encode();
        let read = Event::decode(&bytes).unwrap();
        assert_eq!(read, event);
        assert_eq!(read.encode(), bytes);
    }

    #[test]
    fn fields_of_a_newer_version_stand_in_order_too() {
        for keys in [[900, 13], [13, 13], [0, 13]] {
            let mut event = full();
            event.newer = keys.map(|key| (key, vec![0xf6])).to_vec();
            assert!(Event::decode(&event.encode()).is_err(), "{keys:?}");
        }
    }

    #[test]
    fn a_break_is_no_value() {
        let mut event = full();
        event.newer = vec![(13, vec![0xff])];
        assert!(Event::decode(&event.encode()).is_err());
        // {1: break}
        assert!(Fields::decode(&[0xa1, 0x01, 0xff]).is_err());
    }

    #[test]
    fn no_prefix_and_no_changed_byte_panics_or_reads_as_the_same() {
        let bytes = full().encode();
        for end in 0..bytes.len() {
            assert!(Event::decode(&bytes[..end]).is_err());
        }
        let check = |changed: Vec<u8>| {
            if let Ok(event) = Event::decode(&changed) {
                assert!(changed == bytes || event != full());
                assert_eq!(event.encode(), changed);
            }
        };
        for at in 0..bytes.len() {
            for byte in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = byte;
                check(changed.clone());
                changed.insert(at + 1, bytes[at]);
                check(changed);
            }
            let mut shorter = bytes.clone();
            shorter.remove(at);
            check(shorter);
        }
    }

    #[test]
    fn what_is_empty_or_out_of_order_is_refused() {
        let event = Event::new(StreamId::store(), 1, 1, 0, Kind::RunCreated);
        let bytes = event.encode();
        let with = |more: &[u8]| {
            let mut bytes = [&bytes, more].concat();
            bytes[0] += 1;
            Event::decode(&bytes)
        };
        assert!(with(&[13, 0xf6]).is_ok(), "a field of a newer version");
        for (more, why) in [
            (&[9, 0x80][..], "no sources"),
            (&[11, 0x41, 0xa0], "no fields"),
            (&[0, 0xf6], "a number that descends"),
            (&[5, 1], "a number twice"),
        ] {
            assert!(with(more).is_err(), "{why}");
        }
        // {0: null, 1: …}
        let mut zero = [&[bytes[0] + 1, 0, 0xf6], &bytes[1..]].concat();
        assert!(Event::decode(&zero).is_err());
        zero.drain(1..3);
        assert!(Event::decode(&zero).is_err(), "one field less than it says");
    }

    #[test]
    fn the_form_is_fixed() {
        let bytes = full().encode();
        let hex: String = bytes.iter().take(21).map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "ac016c72756e2f6f726465722d3432020703186304");
    }
}
