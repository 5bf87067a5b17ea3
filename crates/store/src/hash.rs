//! The hash by which content and history are named: BLAKE3, 32 bytes, written as 64 hex digits.

use std::fmt;
use std::str::FromStr;

/// A BLAKE3 hash.
///
/// `Display` and `FromStr` use lower-case hex, `Debug` shows the first eight digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Stands for "nothing yet": where a chain begins. No content is known to have it.
    pub const ZERO: Hash = Hash([0; 32]);

    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// The next hash of a chain: over this hash, then the bytes.
    pub fn chain(&self, bytes: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(bytes);
        Hash(*hasher.finalize().as_bytes())
    }

    /// The hash of these bytes among those of one purpose: the same bytes under another key have
    /// another hash.
    pub(crate) fn keyed(key: &[u8; 32], bytes: &[u8]) -> Hash {
        Hash(*blake3::keyed_hash(key, bytes).as_bytes())
    }

    /// A hash that was computed before.
    pub const fn from_bytes(bytes: [u8; 32]) -> Hash {
        Hash(bytes)
    }

    /// The hash as bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "Hash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// A text that is not a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a hash: expected 64 hex digits, found {found:?}")]
pub struct ParseHashError {
    /// The text, at most its first 80 characters.
    pub found: String,
}

impl FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Hash, ParseHashError> {
        parse(text.as_bytes()).ok_or_else(|| ParseHashError {
            found: text.chars().take(80).collect(),
        })
    }
}

fn parse(text: &[u8]) -> Option<Hash> {
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    let mut bytes = [0; 32];
    if pairs.len() != bytes.len() {
        return None;
    }
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(Hash(bytes))
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Of the empty input, from BLAKE3's own test vectors.
    const EMPTY: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    #[test]
    fn is_blake3() {
        assert_eq!(Hash::of(b"").to_string(), EMPTY);
        assert_eq!(Hash::of(b"ab").chain(b"c"), {
            let mut both = Hash::of(b"ab").as_bytes().to_vec();
            both.push(b'c');
            Hash::of(&both)
        });
        assert_ne!(Hash::keyed(&[1; 32], b"a"), Hash::keyed(&[2; 32], b"a"));
    }

    #[test]
    fn text_and_back() {
        let hash = Hash::of(b"");
        assert_eq!(EMPTY.parse::<Hash>().unwrap(), hash);
        assert_eq!(EMPTY.to_uppercase().parse::<Hash>().unwrap(), hash);
        assert_eq!(Hash::from_bytes(*hash.as_bytes()), hash);
        assert_eq!(format!("{hash:?}"), "Hash(af1349b9…)");
    }

    #[test]
    fn other_text_is_refused() {
        let long = format!("{EMPTY}00");
        let letter = EMPTY.replace('a', "g");
        let wide = EMPTY.replace("af", "ä");
        for text in [
            "",
            "af",
            &EMPTY[1..],
            &long,
            &letter,
            &wide,
            &"é".repeat(500),
        ] {
            let error = text.parse::<Hash>().unwrap_err();
            assert!(error.to_string().len() < 300, "{error}");
        }
    }
}
