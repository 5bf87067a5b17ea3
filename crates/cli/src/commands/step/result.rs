//! What a command came to, as it is recorded: a JSON document, so that every view of a run shows it.
//!
//! | name | |
//! |---|---|
//! | `exit` | its exit code |
//! | `stdout`, `stderr` | what it printed, if that is text; left out if it is nothing |
//! | `stdout_base64`, `stderr_base64` | the same if it is no text |
//!
//! What a person or a probe says that a step came to may be any other JSON: text is what it printed.

use dalsegno_store::NewPayload;
use serde::{Deserialize, Serialize};

/// What a command came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Result {
    pub exit: u8,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// As it is written.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Document {
    exit: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stderr_base64: Option<String>,
}

impl Result {
    /// As it is recorded.
    pub fn payload(&self) -> NewPayload {
        // A document of text and a number can be written.
        NewPayload::json(serde_json::to_string(&self.document()).unwrap_or_default())
    }

    /// As a document.
    pub fn document(&self) -> Document {
        let (stdout, stdout_base64) = text_or_not(&self.stdout);
        let (stderr, stderr_base64) = text_or_not(&self.stderr);
        Document {
            exit: self.exit,
            stdout,
            stdout_base64,
            stderr,
            stderr_base64,
        }
    }

    /// What is recorded.
    pub fn read(recorded: Option<&[u8]>) -> Result {
        let Some(bytes) = recorded else {
            return Result::default();
        };
        if let Ok(document) = serde_json::from_slice::<Document>(bytes) {
            let one = |text: Option<String>, base64: Option<String>| match (text, base64) {
                (Some(text), _) => text.into_bytes(),
                (None, Some(text)) => base64::decode(&text),
                (None, None) => Vec::new(),
            };
            return Result {
                exit: document.exit,
                stdout: one(document.stdout, document.stdout_base64),
                stderr: one(document.stderr, document.stderr_base64),
            };
        }
        let stdout = match serde_json::from_slice::<serde_json::Value>(bytes) {
            Ok(serde_json::Value::String(text)) => text.into_bytes(),
            Ok(serde_json::Value::Null) => Vec::new(),
            _ => bytes.to_vec(),
        };
        Result {
            stdout,
            ..Result::default()
        }
    }
}

fn text_or_not(bytes: &[u8]) -> (Option<String>, Option<String>) {
    if bytes.is_empty() {
        return (None, None);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64::encode(bytes))),
    }
}

mod base64 {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    pub fn encode(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
        for chunk in bytes.chunks(3) {
            let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
            let number = at(0) << 16 | at(1) << 8 | at(2);
            for digit in 0..4 {
                let value = (number >> (18 - 6 * digit)) as usize & 63;
                let is_there = digit <= chunk.len();
                text.push(if is_there { DIGITS[value] as char } else { '=' });
            }
        }
        text
    }

    /// What cannot be read is left out: it was written by us, or by somebody who sees what comes.
    pub fn decode(text: &str) -> Vec<u8> {
        let value = |digit: u8| DIGITS.iter().position(|known| *known == digit);
        let digits: Vec<_> = text.bytes().filter_map(value).collect();
        let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
        for chunk in digits.chunks(4) {
            let number = chunk.iter().fold(0, |number, digit| number << 6 | digit);
            let number = number << (6 * (4 - chunk.len()));
            let three = [number >> 16, number >> 8, number];
            let count = chunk.len().saturating_sub(1);
            bytes.extend(three.iter().take(count).map(|byte| *byte as u8));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        for length in 0..10 {
            let bytes: Vec<u8> = (0..length).map(|n| 255 - n * 7).collect();
            assert_eq!(base64::decode(&base64::encode(&bytes)), bytes);
        }
        assert_eq!(base64::encode(b"any"), "YW55");
        assert_eq!(base64::encode(b"an"), "YW4=");
        let result = Result {
            exit: 7,
            stdout: vec![0xff, 0, 1],
            stderr: b"text\n".to_vec(),
        };
        assert_eq!(Result::read(Some(&result.payload().bytes)), result);
    }

    #[test]
    fn what_a_person_says_is_printed() {
        let read = |text: &str| Result::read(Some(text.as_bytes())).stdout;
        assert_eq!(read("\"paid\""), b"paid");
        assert_eq!(read("null"), b"");
        assert_eq!(read("{\"id\": 7}"), b"{\"id\": 7}");
        assert_eq!(Result::read(None), Result::default());
    }
}
