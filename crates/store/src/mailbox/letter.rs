//! A letter: its name as a file, and its bytes.
//!
//! | offset | bytes | what |
//! |---:|---:|---|
//! | 0 | 16 | `dalsegno-letter` and a newline |
//! | 16 | 4 | format version, little-endian: 1 |
//! | 20 | to the last 32 | a map in deterministic CBOR |
//! | end - 32 | 32 | BLAKE3 of everything before |
//!
//! | number | field | form |
//! |---:|---|---|
//! | 1 | sender | text, 16 hex digits |
//! | 2 | number, from 1 | number |
//! | 3 | stream it is for | text, as in `run/order-42` |
//! | 4 | kind | number, or text for the user's own |
//! | 5 | when it was sent, microseconds since 1970 | number |
//! | 6 | fields of the kind, if any | map of numbered fields, as bytes |
//! | 7 | payload, if any | list of content type and bytes |
//!
//! Invariants: bytes that read as a letter are exactly those that its sender wrote, under the name
//! that it gave them: a letter copied to another name cannot happen twice. Every later version
//! keeps magic, version and hash, so that a letter from a newer program is told from a damaged one.

use minicbor::Decoder;
use minicbor::data::Type;

use crate::content_type::ContentType;
use crate::event::LetterRef;
use crate::fields::{Cbor, Fields, Malformed, definite};
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::StreamId;

use super::MailboxError;

#[cfg(test)]
mod tests;

const MAGIC: &[u8; 16] = b"dalsegno-letter\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = MAGIC.len() + 4;
const HASH_BYTES: usize = 32;
const SUFFIX: &str = ".letter";
const SENDER_DIGITS: usize = 16;
const NUMBER_DIGITS: usize = 16;
/// The last number that has 16 digits.
const LAST_NUMBER: u64 = 9_999_999_999_999_999;
const WHAT: &str = "a letter";

const SENDER: u64 = 1;
const NUMBER: u64 = 2;
const TO: u64 = 3;
const KIND: u64 = 4;
const SENT: u64 = 5;
const FIELDS: u64 = 6;
const PAYLOAD: u64 = 7;

/// Something said to a run from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Who sent it: the name that its outbox made for itself.
    pub sender: String,
    /// The sender's count, from 1.
    pub number: u64,
    /// The stream that it is for.
    pub to: StreamId,
    /// The kind of event that it asks for.
    pub kind: Kind,
    /// What its kind says.
    pub fields: Fields,
    /// The user's data: content type and bytes.
    pub payload: Option<(ContentType, Vec<u8>)>,
    /// When it was sent, in microseconds since 1970, by the sender's clock.
    pub sent_us: u64,
}

/// A letter that has no sender and number yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLetter {
    /// The stream that it is for.
    pub to: StreamId,
    /// The kind of event that it asks for.
    pub kind: Kind,
    /// What its kind says.
    pub fields: Fields,
    /// The user's data: content type and bytes.
    pub payload: Option<(ContentType, Vec<u8>)>,
    /// When it is sent, in microseconds since 1970.
    pub sent_us: u64,
}

impl NewLetter {
    /// A letter with neither fields nor payload.
    pub fn new(to: StreamId, kind: Kind, sent_us: u64) -> NewLetter {
        NewLetter {
            to,
            kind,
            fields: Fields::new(),
            payload: None,
            sent_us,
        }
    }

    pub(super) fn from(self, letter: &LetterRef) -> Letter {
        Letter {
            sender: letter.sender.clone(),
            number: letter.number,
            to: self.to,
            kind: self.kind,
            fields: self.fields,
            payload: self.payload,
            sent_us: self.sent_us,
        }
    }
}

/// The bytes of a letter that is to be sent, which its reader will accept.
pub(crate) fn sealed(
    letter: NewLetter,
    as_ref: &LetterRef,
    limit_bytes: u64,
) -> Result<Vec<u8>, MailboxError> {
    let bytes = letter.from(as_ref).encode();
    if bytes.len() as u64 > limit_bytes {
        return Err(MailboxError::TooLarge {
            bytes: bytes.len() as u64,
            limit_bytes,
        });
    }
    // Fields can be built that no reader accepts. It is the sender who can do something about it.
    match Letter::decode(&bytes, as_ref) {
        Ok(_) => Ok(bytes),
        Err(why) => Err(MailboxError::Unsendable(why.to_string())),
    }
}

/// A letter from its bytes; the error says why they are none.
pub(crate) fn opened(bytes: &[u8], as_ref: &LetterRef) -> Result<Letter, String> {
    Letter::decode(bytes, as_ref).map_err(|e| e.to_string())
}

/// Whether a sender can have sent such a letter.
pub(crate) fn is_letter(letter: &LetterRef) -> bool {
    file_name(letter).is_some()
}

/// Bytes that give no letter.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// Whole, but of a version that this program does not know.
    #[error("it has format version {0}, which this program does not know: use a newer one")]
    Newer(u32),
    /// Not what a sender wrote.
    #[error("{0}")]
    Bad(String),
}

impl From<Malformed> for Unreadable {
    fn from(malformed: Malformed) -> Unreadable {
        Unreadable::Bad(malformed.to_string())
    }
}

/// The file that a letter is in; none if no outbox can have made such a letter.
pub(super) fn file_name(letter: &LetterRef) -> Option<String> {
    let LetterRef { sender, number } = letter;
    let name = format!("{sender}-{number:0NUMBER_DIGITS$}{SUFFIX}");
    // A reference may come from outside; it must not lead out of the folder.
    (parse_name(&name).as_ref() == Some(letter)).then_some(name)
}

/// The letter that a file's name stands for; none if it is no letter's name.
pub(super) fn parse_name(name: &str) -> Option<LetterRef> {
    let (sender, number) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if sender.len() != SENDER_DIGITS || !sender.bytes().all(hex) {
        return None;
    }
    if number.len() != NUMBER_DIGITS || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = number.parse().ok()?;
    (1..=LAST_NUMBER).contains(&number).then(|| LetterRef {
        sender: sender.to_owned(),
        number,
    })
}

impl Letter {
    /// What an event that comes of this letter refers to it by.
    pub fn letter_ref(&self) -> LetterRef {
        LetterRef {
            sender: self.sender.clone(),
            number: self.number,
        }
    }

    /// All bytes of its file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let body = self.encode_body();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + HASH_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&body);
        let hash = Hash::of(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    fn encode_body(&self) -> Vec<u8> {
        let optional = [!self.fields.is_empty(), self.payload.is_some()];
        let mut cbor = Cbor::new();
        cbor.map(5 + optional.iter().filter(|there| **there).count());
        cbor.number(SENDER);
        cbor.text(&self.sender);
        cbor.number(NUMBER);
        cbor.number(self.number);
        cbor.number(TO);
        cbor.text(&self.to.to_string());
        cbor.number(KIND);
        match &self.kind {
            Kind::User(name) => cbor.text(name),
            kind => cbor.number(kind.number().unwrap_or(0)),
        }
        cbor.number(SENT);
        cbor.number(self.sent_us);
        if !self.fields.is_empty() {
            cbor.number(FIELDS);
            cbor.bytes(&self.fields.encode());
        }
        if let Some((content_type, bytes)) = &self.payload {
            cbor.number(PAYLOAD);
            cbor.list(2);
            cbor.text(content_type);
            cbor.bytes(bytes);
        }
        cbor.finish()
    }

    /// From all bytes of the file that has the name of `letter`.
    pub(super) fn decode(bytes: &[u8], letter: &LetterRef) -> Result<Letter, Unreadable> {
        let bad = |why: &str| Err(Unreadable::Bad(why.to_owned()));
        let Some((content, hash)) = bytes.split_last_chunk::<HASH_BYTES>() else {
            return bad("it is too short for a letter");
        };
        let Some((magic, rest)) = content.split_first_chunk::<16>() else {
            return bad("it is too short for a letter");
        };
        let Some((version, body)) = rest.split_first_chunk::<4>() else {
            return bad("it is too short for a letter");
        };
        if magic != MAGIC {
            return bad("it does not begin as a letter does");
        }
        if Hash::of(content).as_bytes() != hash {
            return bad("its hash is that of other bytes");
        }
        match u32::from_le_bytes(*version) {
            VERSION => {}
            0 => return bad("it has format version 0, which there never was"),
            newer => return Err(Unreadable::Newer(newer)),
        }
        let read = Letter::decode_body(body)?;
        if read.sender != letter.sender || read.number != letter.number {
            return Err(Unreadable::Bad(format!(
                "it is letter {} of sender {:.40?}, under the name of another",
                read.number, read.sender
            )));
        }
        Ok(read)
    }

    fn decode_body(bytes: &[u8]) -> Result<Letter, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let d = &mut decoder;
        let (mut sender, mut number, mut to, mut kind, mut sent_us) =
            (None, None, None, None, None);
        let mut fields = Fields::new();
        let mut payload = None;
        for _ in 0..definite(d.map().map_err(wrong)?, WHAT)? {
            match d.u64().map_err(wrong)? {
                SENDER => sender = Some(d.str().map_err(wrong)?.to_owned()),
                NUMBER => number = Some(d.u64().map_err(wrong)?),
                TO => {
                    let text = d.str().map_err(wrong)?;
                    to = Some(text.parse().map_err(|e| Malformed::new(WHAT, e))?);
                }
                KIND => {
                    kind = Some(match d.datatype().map_err(wrong)? {
                        Type::String => Kind::User(d.str().map_err(wrong)?.to_owned()),
                        _ => Kind::from_number(d.u64().map_err(wrong)?),
                    });
                }
                SENT => sent_us = Some(d.u64().map_err(wrong)?),
                FIELDS => fields = Fields::decode(d.bytes().map_err(wrong)?)?,
                PAYLOAD => payload = Some(read_payload(d)?),
                // To pass over it would be to do less than the sender asked for.
                other => {
                    let why = format!("field {other}, which version {VERSION} does not have");
                    return Err(Malformed::new(WHAT, why));
                }
            }
        }
        let missing = |what: &str| Malformed::new(WHAT, format!("it has no {what}"));
        let letter = Letter {
            sender: sender.ok_or_else(|| missing("sender"))?,
            number: number.ok_or_else(|| missing("number"))?,
            to: to.ok_or_else(|| missing("stream"))?,
            kind: kind.ok_or_else(|| missing("kind"))?,
            fields,
            payload,
            sent_us: sent_us.ok_or_else(|| missing("time"))?,
        };
        if letter.encode_body() != bytes {
            return Err(Malformed::new(WHAT, "not in the one form there is"));
        }
        Ok(letter)
    }
}

fn read_payload(d: &mut Decoder<'_>) -> Result<(ContentType, Vec<u8>), Malformed> {
    match d.array().map_err(wrong)? {
        Some(2) => {}
        _ => return Err(Malformed::new(WHAT, "a pair that is none")),
    }
    let content_type = d.str().map_err(wrong)?.into();
    Ok((content_type, d.bytes().map_err(wrong)?.to_owned()))
}

#[allow(clippy::needless_pass_by_value)] // The shape that map_err wants.
fn wrong(error: minicbor::decode::Error) -> Malformed {
    Malformed::new(WHAT, error)
}
