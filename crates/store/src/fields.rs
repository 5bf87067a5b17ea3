//! Numbered fields: the small, typed part of an event's content, as deterministic CBOR.
//!
//! Invariant: the same fields give the same bytes. Keys ascend, lengths are definite, numbers are
//! in their shortest form; bytes in any other form are refused. What is of a type that this version
//! does not know is kept as it is.

use crate::strict::{Next, Strict};

/// How deep lists may be nested.
const DEPTH_LIMIT: usize = 8;
/// What is set aside before anything is read: most events have fewer.
const FIRST_CAPACITY: u64 = 4;

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// A number from 0 on.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several values.
    List(Vec<Value>),
    /// Something that a newer version wrote, as CBOR.
    Other(Vec<u8>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::Bytes(bytes)
    }
}

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not readable as {what}: {why}")]
pub struct Malformed {
    /// As in "an event".
    pub what: &'static str,
    /// What was wrong.
    pub why: String,
}

impl Malformed {
    pub(crate) fn new(what: &'static str, why: impl ToString) -> Malformed {
        Malformed {
            what,
            why: why.to_string(),
        }
    }
}

/// Values under numbers.
///
/// ```
/// use dalsegno_store::Fields;
///
/// let fields = Fields::new().with(1, "worker-7").with(2, 3);
/// assert_eq!(fields.text(1), Some("worker-7"));
/// assert_eq!(fields.number(2), Some(3));
/// assert_eq!(fields.number(1), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
// Sorted by number: there are few, and a list of few is the quickest to make and to search.
pub struct Fields(Vec<(u64, Value)>);

impl Fields {
    /// None.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, key: u64, value: impl Into<Value>) -> Fields {
        let value = value.into();
        match self.find(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
        self
    }

    /// Where a field is, or would be.
    fn find(&self, key: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |(key, _)| *key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A field.
    pub fn get(&self, key: u64) -> Option<&Value> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Value)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// A field that is a number.
    pub fn number(&self, key: u64) -> Option<u64> {
        match self.get(key) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A field that is a text.
    pub fn text(&self, key: u64) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A field that is bytes.
    pub fn bytes(&self, key: u64) -> Option<&[u8]> {
        match self.get(key) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether all values are of types that read back as what they are, whatever is in them.
    pub(crate) fn are_plain(&self) -> bool {
        let plain = |value: &Value| !matches!(value, Value::List(_) | Value::Other(_));
        self.0.iter().all(|(_, value)| plain(value))
    }

    /// As deterministic CBOR.
    pub fn encode(&self) -> Vec<u8> {
        let mut cbor = Cbor::new();
        cbor.map(self.0.len());
        for (key, value) in &self.0 {
            cbor.number(*key);
            cbor.value(value);
        }
        cbor.finish()
    }

    /// From deterministic CBOR.
    ///
    /// # Errors
    /// It is something else.
    pub fn decode(bytes: &[u8]) -> Result<Fields, Malformed> {
        let mut reader = Strict::new(bytes, "fields");
        let count = reader.map()?;
        let mut fields = Vec::with_capacity(count.min(FIRST_CAPACITY) as usize);
        for _ in 0..count {
            let key = match fields.last() {
                Some((before, _)) => reader.key_after(*before)?,
                None => reader.number()?,
            };
            let value = match reader.next()? {
                Next::Number => Value::Number(reader.number()?),
                Next::Text => Value::Text(reader.text()?.to_owned()),
                _ => read_value(&mut reader, DEPTH_LIMIT)?,
            };
            fields.push((key, value));
        }
        reader.end()?;
        Ok(Fields(fields))
    }
}

pub(crate) fn definite(count: Option<u64>, what: &'static str) -> Result<u64, Malformed> {
    count.ok_or_else(|| Malformed::new(what, "a length is missing"))
}

fn read_value(reader: &mut Strict<'_>, depth: usize) -> Result<Value, Malformed> {
    Ok(match reader.next()? {
        Next::Number => Value::Number(reader.number()?),
        Next::Text => Value::Text(reader.text()?.to_owned()),
        Next::Bytes => Value::Bytes(reader.bytes()?.to_owned()),
        Next::Flag(flag) => {
            reader.flag();
            Value::Flag(flag)
        }
        Next::List if depth == 0 => return Err(reader.wrong("lists nested too deep")),
        Next::List => {
            let count = reader.list()?;
            let mut list = Vec::new();
            for _ in 0..count {
                list.push(read_value(reader, depth - 1)?);
            }
            Value::List(list)
        }
        Next::Other => Value::Other(reader.other()?),
    })
}

/// Writes CBOR into memory, where nothing can fail. By hand: every event is written with it, and a
/// library's errors that cannot happen took longer than the writing.
pub(crate) struct Cbor(Vec<u8>);

/// Most events fit into so many bytes.
const CAPACITY_BYTES: usize = 256;

impl Cbor {
    pub fn new() -> Cbor {
        Cbor(Vec::with_capacity(CAPACITY_BYTES))
    }

    /// The first bytes of an item: its major type and a number in the shortest form.
    fn head(&mut self, major: u8, number: u64) {
        let major = major << 5;
        let bytes = number.to_be_bytes();
        match number {
            0..=23 => self.0.push(major | bytes[7]),
            24..=0xff => self.0.extend_from_slice(&[major | 24, bytes[7]]),
            0x100..=0xffff => self.0.extend_from_slice(&[major | 25, bytes[6], bytes[7]]),
            0x1_0000..=0xffff_ffff => {
                self.0.push(major | 26);
                self.0.extend_from_slice(&bytes[4..]);
            }
            _ => {
                self.0.push(major | 27);
                self.0.extend_from_slice(&bytes);
            }
        }
    }

    pub fn map(&mut self, count: usize) {
        self.head(5, count as u64);
    }

    pub fn list(&mut self, count: usize) {
        self.head(4, count as u64);
    }

    pub fn number(&mut self, number: u64) {
        self.head(0, number);
    }

    pub fn text(&mut self, text: &str) {
        self.head(3, text.len() as u64);
        self.raw(text.as_bytes());
    }

    /// A text of several parts.
    pub fn text_of(&mut self, parts: &[&str]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.head(3, length as u64);
        parts.iter().for_each(|part| self.raw(part.as_bytes()));
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.head(2, bytes.len() as u64);
        self.raw(bytes);
    }

    /// CBOR that was read before and is written again as it was.
    pub fn raw(&mut self, cbor: &[u8]) {
        self.0.extend_from_slice(cbor);
    }

    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Number(number) => self.number(*number),
            Value::Flag(flag) => self.0.push(if *flag { 0xf5 } else { 0xf4 }),
            Value::Text(text) => self.text(text),
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::List(list) => {
                self.list(list.len());
                for value in list {
                    self.value(value);
                }
            }
            Value::Other(cbor) => self.raw(cbor),
        }
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let fields = Fields::new()
            .with(1, "text")
            .with(24, u64::MAX)
            .with(300, true)
            .with(2, vec![1, 2, 3])
            .with(3, Value::List(vec![Value::Number(1), Value::List(vec![])]))
            .with(9, Value::Other(vec![0xf9, 0x3c, 0x00]));
        assert_eq!(Fields::decode(&fields.encode()).unwrap(), fields);
    }

    #[test]
    fn it_is_written_as_a_library_would() {
        for number in (0..64).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + 1]
        }) {
            let mut ours = Cbor::new();
            ours.number(number);
            let mut theirs = minicbor::Encoder::new(Vec::new());
            theirs.u64(number).unwrap();
            assert_eq!(ours.finish(), theirs.into_writer());
        }
        for length in [0, 1, 23, 24, 255, 256, 65_535, 65_536] {
            let text = "x".repeat(length);
            let mut ours = Cbor::new();
            ours.text(&text);
            ours.bytes(text.as_bytes());
            ours.list(length);
            ours.map(length);
            ours.value(&Value::Flag(true));
            ours.value(&Value::Flag(false));
            let mut theirs = minicbor::Encoder::new(Vec::new());
            theirs.str(&text).unwrap().bytes(text.as_bytes()).unwrap();
            theirs
                .array(length as u64)
                .unwrap()
                .map(length as u64)
                .unwrap();
            theirs.bool(true).unwrap().bool(false).unwrap();
            assert_eq!(ours.finish(), theirs.into_writer());
        }
    }

    #[test]
    fn there_is_one_form_only() {
        for (bytes, why) in [
            (&[0xbf, 0xff][..], "indefinite map"),
            (&[0xa1, 0x18, 0x01, 0x01], "key not in its shortest form"),
            (&[0xa1, 0x01, 0x18, 0x01], "number not in its shortest form"),
            (&[0xa2, 0x02, 0x00, 0x01, 0x00], "keys that descend"),
            (&[0xa2, 0x01, 0x00, 0x01, 0x00], "a key twice"),
            (&[0xa0, 0x00], "bytes behind the end"),
            (&[0xa1, 0x01], "too short"),
            (&[], "nothing"),
        ] {
            assert!(Fields::decode(bytes).is_err(), "{why}");
        }
        let deep = [[0xa1, 0x01].as_slice(), &[0x81; 100], &[0x00]].concat();
        assert!(Fields::decode(&deep).is_err());
        // A list that says it has more items than there are bytes.
        assert!(
            Fields::decode(&[0xa1, 0x01, 0x9b, 255, 255, 255, 255, 255, 255, 255, 255]).is_err()
        );
    }
}
