//! BM25 in whole numbers: how much a word says about a document.
//!
//! ```text
//! idf   = log2((2N + 2) / (2 df + 1))                                     24 bits behind the point
//! norm  = k1 · (1000 - b + b · length · N / total) / 1000                  per mille, 8 bits
//! part  = idf · tf · (k1 + 1000) / (1000 · tf + norm)                      32 bits behind the point
//! score = sum over the words of the query of part · how often it asks for the word
//! ```
//!
//! `N` documents with `total` words, of which `df` have the word, this one `tf` times among `length`.
//! All of these are counted at the version that is searched. Every division rounds down.
//!
//! Invariant: no floating point, so the same numbers on every machine. Nothing overflows for what
//! [`crate::RankingConfig::check`] lets through.

/// Bits behind the point of an idf.
const IDF_BITS: u32 = 24;
/// Bits behind the point of a norm.
const NORM_BITS: u32 = 8;
/// Bits behind the point of a saturation, which is below 11.
const SATURATION_BITS: u32 = 26;
/// Bits behind the point of a score.
pub(crate) const SCORE_BITS: u32 = 32;
/// A word counts so often in a document, at most.
pub(crate) const TF_LIMIT: u32 = 65_535;
/// A norm beyond this is as good as this.
const NORM_LIMIT: u64 = 1 << 40;

/// The idf of a word that `df` of `documents` have.
pub(crate) fn idf(documents: u64, df: u64) -> u64 {
    log2(2 * documents + 2, 2 * df + 1)
}

/// log2(a / b) with [`IDF_BITS`] bits behind the point, rounded down; 0 if a <= b.
fn log2(a: u64, b: u64) -> u64 {
    if a <= b || b == 0 {
        return 0;
    }
    // a / b = mantissa · 2^exponent, with the mantissa from 1 to 2 in 63 bits behind the point.
    let ratio = (u128::from(a) << 63) / u128::from(b);
    let exponent = ratio.ilog2() - 63;
    let mut mantissa = (ratio >> exponent) as u64;
    let mut log = u64::from(exponent);
    for _ in 0..IDF_BITS {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let above_two = square >> 64 != 0;
        mantissa = (square >> u32::from(above_two)) as u64;
        log = log << 1 | u64::from(above_two);
    }
    log
}

/// What is the same for all words of a query: how lengths count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norms {
    k1: u64,
    always: u64,
    /// What each word of a document adds, with 24 bits more behind the point.
    per_word: u64,
}

impl Norms {
    pub fn new(k1_per_mille: u32, b_per_mille: u32, documents: u64, total: u64) -> Norms {
        let (k1, b) = (u64::from(k1_per_mille), u64::from(b_per_mille));
        let per_word = match total {
            0 => 0,
            total => {
                let scaled = u128::from(k1 * b * documents.min(1 << 32)) << (NORM_BITS + 24);
                let per_word = scaled / (1000 * u128::from(total));
                u64::try_from(per_word).unwrap_or(u64::MAX)
            }
        };
        Norms {
            k1,
            always: ((k1 * (1000 - b)) << NORM_BITS) / 1000,
            per_word,
        }
    }

    /// The norm of a document with so many words.
    #[inline]
    pub fn of(&self, length: u32) -> u64 {
        let by_length = (u128::from(self.per_word) * u128::from(length)) >> 24;
        self.always
            + u64::try_from(by_length)
                .unwrap_or(NORM_LIMIT)
                .min(NORM_LIMIT)
    }

    /// What a word adds to the score of a document.
    #[inline]
    pub fn part(&self, idf: u64, tf: u32, norm: u64) -> u64 {
        let tf = u64::from(tf);
        let much = (tf * (self.k1 + 1000)) << (NORM_BITS + SATURATION_BITS);
        let little = ((1000 * tf) << NORM_BITS) + norm;
        let saturation = much / little.max(1);
        // A word that is there counts, however little.
        ((saturation * idf) >> (SATURATION_BITS + IDF_BITS - SCORE_BITS)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_textbook() {
        for (a, b) in [(2, 1), (3, 1), (200_002, 3), (1001, 1000), (u64::MAX, 1)] {
            let expected = (a as f64 / b as f64).log2();
            let found = log2(a, b) as f64 / f64::from(1 << IDF_BITS);
            assert!(
                (found - expected).abs() < 2e-7,
                "{a}/{b}: {found} {expected}"
            );
        }
        assert_eq!(log2(8, 1), 3 << IDF_BITS);
        assert_eq!(log2(1, 1), 0);
        assert_eq!(log2(1, 9), 0);
    }

    #[test]
    fn the_largest_numbers_fit() {
        let norms = Norms::new(10_000, 1000, u64::from(u32::MAX), 1);
        for length in [0, 1, u32::MAX] {
            let norm = norms.of(length);
            let idf = idf(u64::from(u32::MAX), 0);
            for tf in [1, TF_LIMIT] {
                assert!(norms.part(idf, tf, norm) < 1 << 42);
            }
        }
        let free = Norms::new(0, 0, 0, 0);
        assert_eq!(free.part(1 << IDF_BITS, 5, free.of(9)), 1 << SCORE_BITS);
    }

    #[test]
    fn parts_are_those_of_the_textbook() {
        let (k1, b, n, total) = (1.2_f64, 0.75, 1000.0, 50_000.0);
        let norms = Norms::new(1200, 750, 1000, 50_000);
        for (tf, df, length) in [(1, 1, 1), (3, 20, 50), (60, 900, 4000)] {
            let norm = k1 * (1.0 - b + b * f64::from(length) * n / total);
            let idf_f = ((2.0 * n + 2.0) / (2.0 * f64::from(df) + 1.0)).log2();
            let tf_f = f64::from(tf);
            let expected = idf_f * tf_f * (k1 + 1.0) / (tf_f + norm);
            let part = norms.part(idf(1000, df as u64), tf, norms.of(length));
            let found = part as f64 / 2_f64.powi(32);
            assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
        }
    }
}
