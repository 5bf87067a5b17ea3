//! The only source of chance in the simulator: a small seeded generator.
//!
//! Invariant: the numbers depend on the seed and on the calls made so far, on nothing else. It is
//! SplitMix64, which has a single word of state and passes the usual statistical tests; it is not
//! for secrets.

/// A seeded pseudo-random generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose whole future is decided by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high half of a product: its bias is below n / 2^64, which no test here can see.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// An index below `n`; 0 if `n` is 0.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// A number in `low..=high`; `low` if the range is empty.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        match high.saturating_sub(low).checked_add(1) {
            Some(n) => low + self.below(n),
            None => self.next_u64(),
        }
    }

    /// True `per_mille` times in a thousand. Asking for 0 draws no number, so that switching a
    /// fault off does not shift the rest of the run.
    pub fn chance(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// Fills `buf`.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.fill(&mut bytes);
        bytes
    }

    /// An independent generator for a part of the run, so that the part can change without
    /// shifting the rest.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_algorithm() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(1);
        let seen: Vec<u64> = (0..200).map(|_| rng.range(3, 6)).collect();
        for n in 3..=6 {
            assert!(seen.contains(&n), "{n} never came");
        }
        assert!(seen.iter().all(|n| (3..=6).contains(n)));
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        assert_eq!(rng.range(9, 9), 9);
    }

    #[test]
    fn chance_is_about_right_and_certain_at_the_ends() {
        let mut rng = Rng::new(2);
        let hits = (0..10_000).filter(|_| rng.chance(250)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| rng.chance(1000)));
        assert!((0..1000).all(|_| !rng.chance(0)));
    }

    #[test]
    fn bytes_have_the_length_asked_for() {
        let mut rng = Rng::new(3);
        assert_eq!(rng.bytes(0).len(), 0);
        let bytes = rng.bytes(21);
        assert_eq!(bytes.len(), 21);
        assert!(bytes[16..].iter().any(|b| *b != 0));
    }
}
