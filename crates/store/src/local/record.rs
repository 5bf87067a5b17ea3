//! What the store writes into the log: one record per event and one per payload piece.
//!
//! | first byte | then |
//! |---:|---|
//! | 1 | an event's bytes |
//! | 2 | a piece's hash, 32 bytes, and the piece as stored |
//!
//! Invariant: pieces stand before the first event, and the first piece, that refers to them.

use minicbor::Decoder;

use crate::error::StoreError;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::StreamId;

const EVENT: u8 = 1;
const PIECE: u8 = 2;
const HASH_BYTES: usize = 32;

/// A record, taken apart but not checked further.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    Event(&'a [u8]),
    Piece(Hash, &'a [u8]),
}

impl<'a> Record<'a> {
    /// Takes a record of the log apart.
    pub fn read(lsn: u64, payload: &'a [u8]) -> Result<Record<'a>, StoreError> {
        match payload {
            [EVENT, event @ ..] => Ok(Record::Event(event)),
            [PIECE, rest @ ..] if rest.len() > HASH_BYTES => {
                let (hash, piece) = rest.split_at(HASH_BYTES);
                let mut bytes = [0; HASH_BYTES];
                bytes.copy_from_slice(hash);
                Ok(Record::Piece(Hash::from_bytes(bytes), piece))
            }
            _ => Err(StoreError::damaged(
                format!("record {lsn} of the log"),
                "an event or a piece",
                format!("{:02x?}", &payload[..payload.len().min(8)]),
            )),
        }
    }
}

/// What stands before an event's bytes in its record.
pub(crate) const BEFORE_EVENT: &[u8] = &[EVENT];

/// The event's bytes in the record of one.
pub(crate) fn event_of(record: &[u8]) -> &[u8] {
    &record[1..]
}

/// The record of an event's bytes.
pub(crate) fn of_event_bytes(event: &[u8]) -> Vec<u8> {
    [&[EVENT], event].concat()
}

/// The record of a piece.
pub(crate) fn of_piece(hash: &Hash, piece: &[u8]) -> Vec<u8> {
    [&[PIECE], hash.as_bytes().as_slice(), piece].concat()
}

/// The head of an event, without the cost of all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peek {
    pub stream: StreamId,
    pub sequence: u64,
    /// It ended its run.
    pub ends_run: bool,
}

/// Reads stream, sequence and kind of an event: its first fields, in this order.
pub(crate) fn peek(lsn: u64, event: &[u8]) -> Result<Peek, StoreError> {
    peek_named(lsn, event, |text| text.parse().ok())
}

/// The same; `name` knows the stream of a text, or how to read it.
pub(crate) fn peek_named(
    lsn: u64,
    event: &[u8],
    name: impl FnOnce(&str) -> Option<StreamId>,
) -> Result<Peek, StoreError> {
    try_peek(event, name).ok_or_else(|| {
        StoreError::damaged(
            format!("record {lsn} of the log"),
            "an event",
            "other bytes",
        )
    })
}

fn try_peek(event: &[u8], name: impl FnOnce(&str) -> Option<StreamId>) -> Option<Peek> {
    let mut d = Decoder::new(event);
    d.map().ok()??;
    let key = |d: &mut Decoder<'_>, number| (d.u64().ok()? == number).then_some(());
    key(&mut d, 1)?;
    let stream = name(d.str().ok()?)?;
    key(&mut d, 2)?;
    let sequence = d.u64().ok().filter(|sequence| *sequence > 0)?;
    for number in [3, 4] {
        key(&mut d, number)?;
        d.u64().ok()?;
    }
    key(&mut d, 5)?;
    // The user's own kinds are texts.
    let ends_run = d.u64().is_ok_and(|kind| Kind::from_number(kind).ends_run());
    Some(Peek {
        stream,
        sequence,
        ends_run,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::Event;

    #[test]
    fn a_peek_sees_what_decoding_sees() {
        for kind in [
            Kind::RunCreated,
            Kind::RunFailed,
            Kind::User("x".into()),
            Kind::Unknown(70_000),
        ] {
            let stream = StreamId::run("a run").unwrap();
            let event = Event::new(stream, 300, 70_000, 1 << 40, kind.clone());
            let peek = peek(1, &event.encode()).unwrap();
            assert_eq!((peek.stream, peek.sequence), (event.stream, 300));
            assert_eq!(peek.ends_run, kind.ends_run());
        }
        assert!(peek(1, b"").is_err());
    }

    #[test]
    fn records_are_told_apart_and_others_refused() {
        let hash = Hash::of(b"x");
        let piece = of_piece(&hash, b"x");
        assert!(matches!(Record::read(1, &piece), Ok(Record::Piece(h, b"x")) if h == hash));
        let event = of_event_bytes(b"e");
        assert!(matches!(Record::read(1, &event), Ok(Record::Event(b"e"))));
        for bad in [&b""[..], b"\x03", &piece[..33], b"\x02"] {
            assert!(
                Record::read(7, bad)
                    .unwrap_err()
                    .to_string()
                    .contains("record 7")
            );
        }
    }
}
