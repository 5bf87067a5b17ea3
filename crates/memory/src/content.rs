//! The content of a document as bytes: what its event refers to, and what is removed when it is
//! forgotten.
//!
//! ```text
//! salt  240 bytes of fields  salt  240 bytes of fields  …  the rest of the fields  salt
//! ```
//!
//! The salt has 16 random bytes, another one for each document. It is there so that the hash which
//! stays in the event tells nothing about the text, and so that no two documents share a piece of
//! what is stored: a piece has 512 bytes, or is the last one. See `docs/format.md`.
//!
//! Invariant: what is encoded is decoded as it was; other bytes are refused.

use dalsegno_store::{Fields, Value};

use crate::document::{Content, Scope};
use crate::error::MemoryError;
use crate::vector::Vector;

/// What the payload of a document is.
pub(crate) const CONTENT_TYPE: &str = "application/dalsegno-document";

const SALT_BYTES: usize = 16;
const STRETCH_BYTES: usize = 240;

const TEXT: u64 = 1;
const TITLE: u64 = 2;
const SOURCES: u64 = 3;
const TAGS: u64 = 4;
const CONFIDENCE: u64 = 5;
const SCOPE: u64 = 6;
const VALID_FROM: u64 = 7;
const VALID_UNTIL: u64 = 8;
const VECTOR: u64 = 9;

const AGENT: u64 = 1;
const RUN: u64 = 2;

/// With new salt.
pub(crate) fn encode(content: &Content) -> Result<Vec<u8>, MemoryError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(|e| MemoryError::Random(e.to_string()))?;
    Ok(salted(&fields(content).encode(), &salt))
}

/// `None` if it is no content of a document.
pub(crate) fn decode(bytes: &[u8]) -> Option<Content> {
    from_fields(&Fields::decode(&unsalted(bytes)?).ok()?)
}

fn salted(bytes: &[u8], salt: &[u8; SALT_BYTES]) -> Vec<u8> {
    let stretches = bytes.len().div_ceil(STRETCH_BYTES);
    let mut all = Vec::with_capacity(bytes.len() + (stretches + 1) * SALT_BYTES);
    all.extend_from_slice(salt);
    for stretch in bytes.chunks(STRETCH_BYTES) {
        all.extend_from_slice(stretch);
        all.extend_from_slice(salt);
    }
    all
}

fn unsalted(bytes: &[u8]) -> Option<Vec<u8>> {
    let (salt, rest) = bytes.split_at_checked(SALT_BYTES)?;
    let mut plain = Vec::with_capacity(rest.len());
    for stretch in rest.chunks(STRETCH_BYTES + SALT_BYTES) {
        let (stretch, found) = stretch.split_at_checked(stretch.len().checked_sub(SALT_BYTES)?)?;
        if found != salt || stretch.is_empty() {
            return None;
        }
        plain.extend_from_slice(stretch);
    }
    Some(plain)
}

fn fields(content: &Content) -> Fields {
    let texts = |texts: &[String]| {
        let texts = texts.iter().map(|text| Value::Text(text.clone()));
        Value::List(texts.collect())
    };
    let mut fields = Fields::new().with(TEXT, content.text.as_str());
    if let Some(title) = &content.title {
        fields = fields.with(TITLE, title.as_str());
    }
    if !content.sources.is_empty() {
        fields = fields.with(SOURCES, texts(&content.sources));
    }
    if !content.tags.is_empty() {
        fields = fields.with(TAGS, texts(&content.tags));
    }
    fields = fields.with(CONFIDENCE, u64::from(content.confidence));
    let scope = match &content.scope {
        Scope::Shared => None,
        Scope::Agent(name) => Some((AGENT, name)),
        Scope::Run(name) => Some((RUN, name)),
    };
    if let Some((kind, name)) = scope {
        let pair = vec![Value::Number(kind), Value::Text(name.clone())];
        fields = fields.with(SCOPE, Value::List(pair));
    }
    for (key, time) in [
        (VALID_FROM, content.valid_from_us),
        (VALID_UNTIL, content.valid_until_us),
    ] {
        if let Some(us) = time {
            fields = fields.with(key, zigzag(us));
        }
    }
    if let Some(vector) = &content.vector {
        fields = fields.with(VECTOR, vector.to_bytes());
    }
    fields
}

fn from_fields(fields: &Fields) -> Option<Content> {
    let texts = |key| match fields.get(key) {
        None => Some(Vec::new()),
        Some(Value::List(values)) => values
            .iter()
            .map(|value| match value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect(),
        Some(_) => None,
    };
    let scope = match fields.get(SCOPE) {
        None => Scope::Shared,
        Some(Value::List(pair)) => match pair.as_slice() {
            [Value::Number(AGENT), Value::Text(name)] => Scope::Agent(name.clone()),
            [Value::Number(RUN), Value::Text(name)] => Scope::Run(name.clone()),
            _ => return None,
        },
        Some(_) => return None,
    };
    Some(Content {
        text: fields.text(TEXT)?.to_owned(),
        title: fields.text(TITLE).map(str::to_owned),
        sources: texts(SOURCES)?,
        tags: texts(TAGS)?,
        confidence: u16::try_from(fields.number(CONFIDENCE)?).ok()?,
        scope,
        valid_from_us: fields.number(VALID_FROM).map(unzigzag),
        valid_until_us: fields.number(VALID_UNTIL).map(unzigzag),
        vector: match fields.bytes(VECTOR) {
            Some(bytes) => Some(Vector::from_bytes(bytes)?),
            None => None,
        },
    })
}

/// Times before 1970 as numbers from 0 on: 0, -1, 1, -2, 2 and so on.
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn full(text: usize) -> Content {
        Content {
            text: "x".repeat(text),
            title: Some("a title".into()),
            sources: vec!["a page".into(), String::new()],
            tags: vec!["kitchen".into()],
            confidence: 700,
            scope: Scope::Agent("cook".into()),
            valid_from_us: Some(-5),
            valid_until_us: Some(i64::MAX),
            vector: Some(Vector::from_i8(vec![1, -128, 127]).unwrap()),
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for text in [1, 100, 239, 240, 241, 5000] {
            let bytes = encode(&full(text)).unwrap();
            assert_eq!(decode(&bytes).unwrap(), full(text));
            assert_ne!(encode(&full(text)).unwrap(), bytes, "another salt");
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end]).is_none());
            }
        }
        assert!(decode(b"").is_none());
    }

    #[test]
    fn no_piece_is_without_salt() {
        let bytes = encode(&full(20_000)).unwrap();
        let salt = &bytes[..SALT_BYTES];
        for window in bytes.windows(512) {
            assert!(window.windows(SALT_BYTES).any(|found| found == salt));
        }
        assert!(bytes.ends_with(salt));
    }

    #[test]
    fn times_before_1970_are_times() {
        for us in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(us)), us);
        }
    }
}
