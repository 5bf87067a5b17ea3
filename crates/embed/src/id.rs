//! Which embedder made a vector.
//!
//! Invariant: two embedders with one id give vectors that can be compared. Whatever changes the
//! vectors (weights, tokenizer, settings, the arithmetic of this crate) changes the hash.

use std::fmt;

/// The name of an embedder and a hash of all that decides its vectors. To be recorded beside them.
///
/// Shown as `wordllama-256#3f1c0a9be2d84c77`: the name, and the hash up to its eighth byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EmbedderId {
    name: String,
    hash: [u8; 32],
}

impl EmbedderId {
    /// An id of an embedder that is not of this crate.
    ///
    /// ```
    /// let id = dalsegno_embed::EmbedderId::new("mine", [b"weights".as_slice(), b"settings"]);
    /// assert!(id.to_string().starts_with("mine#"));
    /// ```
    pub fn new<'a>(
        name: impl Into<String>,
        decisive: impl IntoIterator<Item = &'a [u8]>,
    ) -> EmbedderId {
        let mut hasher = blake3::Hasher::new();
        for part in decisive {
            // With its length, so that no two lists of parts look the same.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        EmbedderId {
            name: name.into(),
            hash: *hasher.finalize().as_bytes(),
        }
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// BLAKE3 of all that decides its vectors.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}

impl fmt::Display for EmbedderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#", self.name)?;
        self.hash[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        let split = EmbedderId::new("a", [b"ab".as_slice(), b"c"]);
        let other = EmbedderId::new("a", [b"a".as_slice(), b"bc"]);
        assert_ne!(split.hash(), other.hash());
        assert_eq!(split, EmbedderId::new("a", [b"ab".as_slice(), b"c"]));
        assert_eq!(split.to_string().len(), "a#".len() + 16);
    }
}
