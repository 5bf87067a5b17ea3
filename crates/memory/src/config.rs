//! How hits are ranked: everything that decides the order, as bytes with a hash.
//!
//! Invariant: two configurations with the same hash rank alike on every machine and with every
//! version of this library. What is built in, as rules and tables, is in the bytes too, so that a
//! library with others gives another hash and does not read the old bytes.

use dalsegno_store::{Fields, Hash};

use crate::analyser::{Analyser, Language};
use crate::error::MemoryError;
use crate::vector::{CLAMP, SCALE};

/// The number of the formulas: BM25, dot products and fusion as `docs/memory.md` has them.
const FORMULAS: u64 = 1;

const VERSION: u64 = 1;
const LANGUAGE: u64 = 2;
const STOP_WORDS: u64 = 3;
const ANALYSER: u64 = 4;
const K1: u64 = 5;
const B: u64 = 6;
const FUSION_K: u64 = 7;
const DEPTH: u64 = 8;
const WORDS_WEIGHT: u64 = 9;
const VECTORS_WEIGHT: u64 = 10;
const QUANTISE_SCALE: u64 = 11;
const QUANTISE_CLAMP: u64 = 12;
const MODEL: u64 = 13;

/// How hits are ranked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RankingConfig {
    /// How text becomes words.
    pub analyser: Analyser,
    /// How much a word counts that comes often, in thousandths: k1 of BM25.
    pub k1_per_mille: u32,
    /// How much long documents are held back, in thousandths: b of BM25.
    pub b_per_mille: u32,
    /// How little the first ranks stand out when legs are fused: k of reciprocal rank fusion.
    pub fusion_k: u32,
    /// How many hits of each leg are fused.
    pub depth: u32,
    /// How much words count when legs are fused, in thousandths.
    pub words_weight: u32,
    /// How much vectors count when legs are fused, in thousandths.
    pub vectors_weight: u32,
    /// What made the vectors: a name or a hash of the model. Changes no order, but the hash.
    pub model: Option<String>,
}

impl Default for RankingConfig {
    fn default() -> RankingConfig {
        RankingConfig {
            analyser: Analyser::default(),
            k1_per_mille: 1200,
            b_per_mille: 750,
            fusion_k: 10,
            depth: 200,
            words_weight: 1000,
            vectors_weight: 1000,
            model: None,
        }
    }
}

impl RankingConfig {
    /// With the usual analyser of another language.
    pub fn language(mut self, language: Language) -> RankingConfig {
        self.analyser = Analyser::of(language);
        self
    }

    /// With k1 and b of BM25, in thousandths.
    pub fn bm25(mut self, k1_per_mille: u32, b_per_mille: u32) -> RankingConfig {
        (self.k1_per_mille, self.b_per_mille) = (k1_per_mille, b_per_mille);
        self
    }

    /// With the weights of words and vectors, in thousandths.
    pub fn weights(mut self, words: u32, vectors: u32) -> RankingConfig {
        (self.words_weight, self.vectors_weight) = (words, vectors);
        self
    }

    /// With what made the vectors.
    pub fn model(mut self, model: impl Into<String>) -> RankingConfig {
        self.model = Some(model.into());
        self
    }

    /// Fails if it cannot be used.
    ///
    /// # Errors
    /// A number is out of its range; the error says which and what the range is.
    pub fn check(&self) -> Result<(), MemoryError> {
        for (what, found, from, to) in [
            ("k1", self.k1_per_mille, 0, 10_000),
            ("b", self.b_per_mille, 0, 1000),
            ("the k of fusion", self.fusion_k, 1, 100_000),
            ("the depth", self.depth, 1, 10_000),
            ("the weight of words", self.words_weight, 0, 100_000),
            ("the weight of vectors", self.vectors_weight, 0, 100_000),
        ] {
            if !(from..=to).contains(&found) {
                let why = format!("{what} is {found}, and may be from {from} to {to}");
                return Err(MemoryError::Config { why });
            }
        }
        Ok(())
    }

    /// As bytes: the same for the same ranking.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Fields::new()
            .with(VERSION, FORMULAS)
            .with(LANGUAGE, self.analyser.language.number())
            .with(STOP_WORDS, self.analyser.english_stop_words)
            .with(ANALYSER, self.analyser.pins())
            .with(K1, u64::from(self.k1_per_mille))
            .with(B, u64::from(self.b_per_mille))
            .with(FUSION_K, u64::from(self.fusion_k))
            .with(DEPTH, u64::from(self.depth))
            .with(WORDS_WEIGHT, u64::from(self.words_weight))
            .with(VECTORS_WEIGHT, u64::from(self.vectors_weight))
            .with(QUANTISE_SCALE, u64::from(SCALE))
            .with(QUANTISE_CLAMP, CLAMP as u64);
        if let Some(model) = &self.model {
            fields = fields.with(MODEL, model.as_str());
        }
        fields.encode()
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are no configuration, or one of a library that ranks otherwise.
    pub fn from_bytes(bytes: &[u8]) -> Result<RankingConfig, MemoryError> {
        let unreadable = |why: &str| MemoryError::Config { why: why.into() };
        let fields = Fields::decode(bytes).map_err(|e| unreadable(&e.to_string()))?;
        let number = |key| {
            let found = fields.number(key).and_then(|n| u32::try_from(n).ok());
            found.ok_or_else(|| unreadable(&format!("field {key} is missing")))
        };
        let language = Language::from_number(u64::from(number(LANGUAGE)?));
        let stop_words = fields.get(STOP_WORDS) == Some(&true.into());
        let config = RankingConfig {
            analyser: Analyser {
                language: language.ok_or_else(|| unreadable("the language is not known"))?,
                english_stop_words: stop_words,
            },
            k1_per_mille: number(K1)?,
            b_per_mille: number(B)?,
            fusion_k: number(FUSION_K)?,
            depth: number(DEPTH)?,
            words_weight: number(WORDS_WEIGHT)?,
            vectors_weight: number(VECTORS_WEIGHT)?,
            model: fields.text(MODEL).map(str::to_owned),
        };
        config.check()?;
        match config.to_bytes() == bytes {
            true => Ok(config),
            false => Err(unreadable(
                "it was made with other formulas, rules or tables of Unicode: use the version of \
                 this library that made it",
            )),
        }
    }

    /// A hash over [`RankingConfig::to_bytes`].
    pub fn hash(&self) -> Hash {
        Hash::of(&self.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_was_written() {
        let config = RankingConfig::default()
            .language(Language::German)
            .bm25(900, 400)
            .weights(2000, 500)
            .model("a model");
        assert_eq!(
            RankingConfig::from_bytes(&config.to_bytes()).unwrap(),
            config
        );
        assert_ne!(config.hash(), RankingConfig::default().hash());
    }

    #[test]
    fn what_ranks_otherwise_is_refused() {
        let bytes = RankingConfig::default().to_bytes();
        let fields = Fields::decode(&bytes).unwrap();
        for other in [
            fields.clone().with(VERSION, 2),
            fields.clone().with(QUANTISE_SCALE, 256),
            fields.clone().with(ANALYSER, vec![1]),
            fields.clone().with(LANGUAGE, 99),
            fields.clone().with(DEPTH, 0),
            fields.clone().with(99, 1),
        ] {
            assert!(RankingConfig::from_bytes(&other.encode()).is_err());
        }
        assert!(RankingConfig::from_bytes(b"").is_err());
    }
}
