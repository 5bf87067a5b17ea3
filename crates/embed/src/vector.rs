//! Vectors of int8, and how a direction becomes one.
//!
//! | step | in integers |
//! |---|---|
//! | scale | the largest component gets 40 bits, so that squares fit and nothing of use is lost |
//! | norm | the integer square root of the sum of squares |
//! | quantise | `512 × component / norm`, to the nearest, halves away from zero, at most ±127 |
//!
//! Invariant: the bytes are the vector. They are not an approximation of something better that is
//! kept elsewhere: they are recorded, hashed and searched. Products of them are summed exactly, in
//! any order.

use std::fmt;

use crate::fixed::{self, Format};

/// How the components of a vector of length one are written as bytes.
///
/// To be recorded beside vectors: those of another quantisation cannot be compared with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantisation {
    /// What a component is multiplied with.
    pub scale: u32,
    /// The largest magnitude that is kept; what is larger becomes this.
    pub clamp: u8,
}

impl fmt::Display for Quantisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "int8 scale {} clamp {}", self.scale, self.clamp)
    }
}

/// The direction of a text, in bytes.
///
/// Its length before quantisation was one ([`Vector::QUANTISATION`]), or zero: then it is
/// [`Vector::is_zero`], and its product with every vector is zero.
///
/// ```
/// use dalsegno_embed::Vector;
///
/// let vector = Vector::from_f32(&[0.0, 3.0, -4.0, 100.0])?;
/// assert_eq!(vector.as_slice(), [0, 15, -20, 127]); // 512 × 0.999 is more than a byte holds
/// assert_eq!(vector.dot(&vector), Some(15 * 15 + 20 * 20 + 127 * 127));
/// # Ok::<(), dalsegno_embed::VectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vector(Vec<i8>);

/// Numbers that are no direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VectorError {
    /// One of the numbers is NaN or infinite.
    #[error("number {place} of the vector is not finite: ask whoever computed it for another one")]
    NotFinite {
        /// Which one, from 0.
        place: usize,
    },
    /// One of the bytes is -128, which the quantisation never yields.
    #[error(
        "byte {place} of the vector is -128, and the smallest is -127: it is not of this quantisation"
    )]
    BelowClamp {
        /// Which one, from 0.
        place: usize,
    },
}

impl Vector {
    /// How all vectors here are quantised.
    pub const QUANTISATION: Quantisation = Quantisation {
        scale: 512,
        clamp: 127,
    };

    /// Gives numbers the length one and quantises them, in integers: the same bits give the same
    /// bytes everywhere. Numbers that are all zero stay so.
    pub fn from_f32(numbers: &[f32]) -> Result<Vector, VectorError> {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let block = fixed::read_block(&bytes, Format::F32)
            .map_err(|place| VectorError::NotFinite { place })?;
        let wide: Vec<i64> = block.into_iter().map(i64::from).collect();
        Ok(Vector::unit(&wide))
    }

    /// Takes bytes that were quantised elsewhere in the same way.
    pub fn from_i8(bytes: Vec<i8>) -> Result<Vector, VectorError> {
        match bytes.iter().position(|byte| *byte == i8::MIN) {
            Some(place) => Err(VectorError::BelowClamp { place }),
            None => Ok(Vector(bytes)),
        }
    }

    /// The vector of what says nothing.
    pub fn zero(dimensions: usize) -> Vector {
        Vector(vec![0; dimensions])
    }

    /// Gives components of any unit the length one and quantises them.
    pub(crate) fn unit(components: &[i64]) -> Vector {
        let largest = components
            .iter()
            .map(|c| c.unsigned_abs())
            .max()
            .unwrap_or(0);
        if largest == 0 {
            return Vector::zero(components.len());
        }
        let bits = u64::BITS - largest.leading_zeros();
        let magnitudes = || components.iter().map(|c| with_bits(c.unsigned_abs(), bits));
        let squares: u128 = magnitudes().map(|m| u128::from(m) * u128::from(m)).sum();
        let norm = squares.isqrt() as u64; // At least 2^39, as the largest component is.
        let Quantisation { scale, clamp } = Vector::QUANTISATION;
        let quantised = magnitudes()
            .map(|m| ((m * u64::from(scale) + norm / 2) / norm).min(u64::from(clamp)) as i8);
        Vector(
            quantised
                .zip(components)
                .map(|(byte, component)| if *component < 0 { -byte } else { byte })
                .collect(),
        )
    }

    /// How many components there are.
    pub fn dimensions(&self) -> usize {
        self.0.len()
    }

    /// Whether it points nowhere: the text said nothing that the model knows.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[i8] {
        &self.0
    }

    /// The bytes, to keep.
    pub fn into_vec(self) -> Vec<i8> {
        self.0
    }

    /// The product of two vectors: large if they point the same way. `None` if they have not the
    /// same number of components.
    pub fn dot(&self, other: &Vector) -> Option<i64> {
        if self.0.len() != other.0.len() {
            return None;
        }
        let products = self
            .0
            .iter()
            .zip(&other.0)
            .map(|(a, b)| i32::from(*a) * i32::from(*b));
        Some(products.map(i64::from).sum())
    }
}

/// The bits of the largest component while the norm is computed: with 2^32 components, the sum of
/// squares is below 2^112, and a component times the scale is below 2^50.
const WORKING_BITS: u32 = 40;

/// A magnitude out of some whose largest has `bits`, so scaled that the largest has
/// [`WORKING_BITS`]; to the nearest, halves up.
fn with_bits(magnitude: u64, bits: u32) -> u64 {
    if bits <= WORKING_BITS {
        magnitude << (WORKING_BITS - bits)
    } else {
        let shift = bits - WORKING_BITS;
        (magnitude >> shift) + (magnitude >> (shift - 1) & 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_vector_of_one_component_is_clamped() {
        assert_eq!(Vector::unit(&[7]).as_slice(), [127]);
        assert_eq!(Vector::unit(&[i64::MIN]).as_slice(), [-127]);
        assert_eq!(Vector::unit(&[]).as_slice(), [0i8; 0]);
    }

    #[test]
    fn halves_go_away_from_zero() {
        // A million ones have the norm 1024, so each of them is 512 / 1024.
        let ones: Vec<i64> = (0..1 << 20)
            .map(|place| if place % 2 == 0 { 1 } else { -1 })
            .collect();
        assert_eq!(Vector::unit(&ones).as_slice()[..4], [1, -1, 1, -1]);
        // A little more, and each is below a half.
        let more: Vec<i64> = ones.into_iter().chain([8]).collect();
        assert_eq!(Vector::unit(&more).as_slice()[..4], [0, 0, 0, 0]);
    }

    #[test]
    fn numbers_that_are_no_direction_are_refused() {
        let infinite = Vector::from_f32(&[0.0, f32::INFINITY]).unwrap_err();
        assert!(
            infinite
                .to_string()
                .starts_with("number 1 of the vector is not finite")
        );
        let outside = Vector::from_i8(vec![0, -127, -128]).unwrap_err();
        assert_eq!(outside, VectorError::BelowClamp { place: 2 });
        assert!(Vector::from_f32(&[0.0, -0.0]).unwrap().is_zero());
        assert!(
            Vector::from_f32(&[1.0])
                .unwrap()
                .dot(&Vector::zero(2))
                .is_none()
        );
    }

    proptest! {
        /// Integers give what real numbers would, but for rounding at the very edge.
        #[test]
        fn close_to_real_numbers(numbers in prop::collection::vec(-1e6f32..1e6, 1..600)) {
            let vector = Vector::from_f32(&numbers).unwrap();
            let norm = numbers.iter().map(|n| f64::from(*n).powi(2)).sum::<f64>().sqrt();
            for (byte, number) in vector.as_slice().iter().zip(&numbers) {
                let exact = if norm == 0.0 { 0.0 } else { f64::from(*number) / norm * 512.0 };
                let exact = exact.clamp(-127.0, 127.0);
                prop_assert!((f64::from(*byte) - exact).abs() < 0.500_001, "{byte} for {exact}");
            }
        }

        /// Only the direction counts: a power of two changes nothing.
        #[test]
        fn length_does_not_matter(
            components in prop::collection::vec(-1_000_000i64..1_000_000, 1..50),
            shift in 0u32..40,
        ) {
            let longer: Vec<i64> = components.iter().map(|c| c << shift).collect();
            prop_assert_eq!(Vector::unit(&components), Vector::unit(&longer));
        }
    }
}
