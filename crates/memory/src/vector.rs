//! Vectors: what a text means, as an embedder sees it, in whole numbers.
//!
//! A vector is quantised once, when it comes in: each component times 512, rounded, at most 127.
//! These bytes are what is stored and compared; they are the vector, not an approximation of it.
//! Sums of their products are whole numbers below 2^31 and so the same in every order, on every
//! machine and with every width of its registers.

use crate::document::within;
use crate::error::MemoryError;

/// What a component is multiplied by.
pub const SCALE: u32 = 512;
/// The largest component after that.
pub const CLAMP: i8 = 127;
/// The most dimensions: the sum of so many products fits 32 bits.
pub const DIMENSION_LIMIT: usize = 16_384;

/// A quantised vector.
#[derive(Clone, PartialEq, Eq)]
pub struct Vector(Vec<i8>);

impl Vector {
    /// From what an embedder gives: a vector of length 1. One of another length is taken as it is,
    /// and components beyond a quarter are cut.
    ///
    /// # Errors
    /// A component is not finite, or there are none or too many.
    pub fn quantise(components: &[f32]) -> Result<Vector, MemoryError> {
        check_dimension(components.len())?;
        let quantised = components.iter().enumerate().map(|(at, found)| {
            if !found.is_finite() {
                return Err(MemoryError::NotFinite { at, found: *found });
            }
            // Exact: a power of two, and rounding half away from zero. A cast saturates.
            let scaled = (found * SCALE as f32).round();
            Ok((scaled as i32).clamp(-i32::from(CLAMP), i32::from(CLAMP)) as i8)
        });
        Ok(Vector(quantised.collect::<Result<_, _>>()?))
    }

    /// One that is quantised already.
    ///
    /// # Errors
    /// It has no dimensions, or too many.
    pub fn from_i8(components: Vec<i8>) -> Result<Vector, MemoryError> {
        check_dimension(components.len())?;
        Ok(Vector(components))
    }

    /// Its components.
    pub fn components(&self) -> &[i8] {
        &self.0
    }

    /// How many there are.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().map(|component| *component as u8).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Vector> {
        Vector::from_i8(bytes.iter().map(|byte| *byte as i8).collect()).ok()
    }
}

fn check_dimension(dimension: usize) -> Result<(), MemoryError> {
    within("a vector, in dimensions,", dimension, DIMENSION_LIMIT)?;
    match dimension {
        0 => Err(MemoryError::Config {
            why: "a vector without dimensions".into(),
        }),
        _ => Ok(()),
    }
}

/// Without the components, which are long.
impl std::fmt::Debug for Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vector of {} dimensions", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn components_are_scaled_rounded_and_cut() {
        let vector = Vector::quantise(&[0.0, 0.001, -0.001, 0.1, 0.2481, 1.0, -9e30]).unwrap();
        assert_eq!(vector.components(), [0, 1, -1, 51, 127, 127, -127]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = Vector::quantise(&[0.5, bad]).unwrap_err().to_string();
            assert!(error.contains("component 1"), "{error}");
        }
        assert!(Vector::quantise(&[]).is_err());
        assert!(Vector::from_i8(vec![0; DIMENSION_LIMIT + 1]).is_err());
    }
}
