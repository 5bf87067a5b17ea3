//! Texts of about 300 bytes and vectors, made by chance from a seed: the same in every run.

use dalsegno_memory::Vector;

use crate::Error;

pub const DIMENSION: usize = 384;
const WORDS: usize = 60;

/// Chance that can be repeated (splitmix64).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Words as texts have them: few that come often, many that come rarely.
    pub fn words(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            let spread = [30, 300, 3000, 60_000][self.below(4) as usize];
            let word = self.below(spread);
            text.push_str(&format!("w{word} "));
        }
        text.pop();
        text
    }

    /// A document's text.
    pub fn text(&mut self) -> String {
        self.words(WORDS)
    }

    pub fn vector(&mut self) -> Result<Vector, Error> {
        let components = (0..DIMENSION).map(|_| self.below(101) as i8 - 50).collect();
        Ok(Vector::from_i8(components)?)
    }
}
