//! How much of a text an embedder looks at.
//!
//! Invariant: what is beyond the limit does not change the vector and costs nothing. A text is cut
//! between characters, never inside of one.

use std::fmt;

/// How much of a text counts. The rest is not looked at: divide long texts before embedding them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimit {
    /// The first bytes of the text.
    pub bytes: usize,
    /// Of those, the first tokens, with the ones that the model adds; `None` if there is no limit.
    pub tokens: Option<usize>,
}

impl fmt::Display for TextLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the first {} bytes", self.bytes)?;
        match self.tokens {
            Some(tokens) => write!(f, ", and of them the first {tokens} tokens"),
            None => Ok(()),
        }
    }
}

/// The bytes that local models look at. Far more than a text of one meaning has; it bounds the time
/// that one call takes.
#[cfg(any(feature = "table", feature = "transformer"))]
pub(crate) const LOCAL_BYTES_MAX: usize = 64 << 10;

/// The start of a text, at most so many bytes, whole characters.
#[cfg(any(feature = "table", feature = "transformer", feature = "http"))]
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1; // 0 is a boundary.
    }
    &text[..end]
}

/// Whether there is nothing to embed. All embedders answer with the zero vector then, also those
/// whose model would give an arbitrary one.
#[cfg(any(feature = "table", feature = "transformer", feature = "http"))]
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

#[cfg(all(test, feature = "table"))]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (bytes, expected) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aé"),
            (4, "aéb"),
            (9, "aéb"),
        ] {
            assert_eq!(cut("aéb", bytes), expected);
        }
        assert!(is_blank(" \n\u{3000}") && is_blank("") && !is_blank(" ."));
    }
}
