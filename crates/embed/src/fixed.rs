//! Floating-point numbers read as integers that share one exponent.
//!
//! A number in a model file is `m × 2^e` with integers `m` and `e`. All numbers of a block (a matrix,
//! or one vector) are written as multiples of one unit, `2^(top - 30)`, where `2^top` is the smallest
//! power of two above the largest of them. What is no multiple is rounded to the nearest, ties to
//! even.
//!
//! Invariant: only integers are computed with, so the result depends on the bits of the block and on
//! nothing else: not on the processor, its SIMD width, or the compiler. No result is above `2^30`,
//! so 2^33 of them can be summed in an `i64`. The numbers of an f16 matrix that are at least 2^-19 of
//! its largest are exact.

/// How the numbers of a block are stored.
#[cfg_attr(not(feature = "table"), allow(dead_code))] // Only files have the short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    F16,
    Bf16,
    F32,
}

impl Format {
    /// The name in a safetensors header.
    #[cfg(feature = "table")]
    pub(crate) fn named(name: &str) -> Option<Format> {
        match name {
            "F16" => Some(Format::F16),
            "BF16" => Some(Format::Bf16),
            "F32" => Some(Format::F32),
            _ => None,
        }
    }

    /// The bytes of one number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Format::F16 | Format::Bf16 => 2,
            Format::F32 => 4,
        }
    }

    /// Bits of the exponent, and bits of the fraction.
    fn layout(self) -> (u32, u32) {
        match self {
            Format::F16 => (5, 10),
            Format::Bf16 => (8, 7),
            Format::F32 => (8, 23),
        }
    }

    fn bits(self, bytes: &[u8]) -> u32 {
        match *bytes {
            [a, b] => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0, // Callers cut blocks into pieces of `self.bytes()`.
        }
    }
}

/// A number as `mantissa × 2^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    mantissa: i64,
    exponent: i32,
}

impl Parts {
    /// `None` for an infinity or what is not a number.
    fn of(bits: u32, format: Format) -> Option<Parts> {
        let (exponent_bits, fraction_bits) = format.layout();
        let fraction = i64::from(bits & ((1 << fraction_bits) - 1));
        let biased = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let negative = bits >> (fraction_bits + exponent_bits) & 1 == 1;
        if biased == (1 << exponent_bits) - 1 {
            return None;
        }
        // The smallest numbers have no hidden one, and the exponent of the next smallest.
        let mantissa = if biased == 0 {
            fraction
        } else {
            fraction | 1 << fraction_bits
        };
        let bias = (1 << (exponent_bits - 1)) - 1;
        Some(Parts {
            mantissa: if negative { -mantissa } else { mantissa },
            exponent: biased.max(1) as i32 - bias - fraction_bits as i32,
        })
    }

    /// The smallest `top` with `|self| < 2^top`; `None` for zero.
    fn top(self) -> Option<i32> {
        let bits = 64 - self.mantissa.unsigned_abs().leading_zeros() as i32;
        (bits > 0).then_some(bits + self.exponent)
    }

    /// In multiples of `2^unit`, to the nearest, ties to even. The caller has chosen a unit so large
    /// that the result fits.
    fn in_units(self, unit: i32) -> i32 {
        let shift = unit - self.exponent;
        let magnitude = self.mantissa.unsigned_abs();
        let rounded = if shift <= 0 {
            magnitude << -shift
        } else if shift > 32 {
            0 // A mantissa has at most 24 bits: below half of a unit.
        } else {
            let whole = magnitude >> shift;
            let rest = magnitude & ((1 << shift) - 1);
            let half = 1 << (shift - 1);
            whole + u64::from(rest > half || rest == half && whole & 1 == 1)
        };
        let rounded = rounded as i32; // At most 2^30.
        if self.mantissa < 0 { -rounded } else { rounded }
    }
}

/// The bits of the largest number of a block.
const TOP_BITS: i32 = 30;

/// The numbers of a block in its unit, or the place of the first that is not a number.
pub(crate) fn read_block(bytes: &[u8], format: Format) -> Result<Vec<i32>, usize> {
    let numbers = || {
        bytes
            .chunks_exact(format.bytes())
            .map(|piece| format.bits(piece))
    };
    let mut top = None;
    for (place, bits) in numbers().enumerate() {
        top = top.max(Parts::of(bits, format).ok_or(place)?.top());
    }
    let Some(top) = top else {
        return Ok(vec![0; numbers().count()]);
    };
    let unit = top - TOP_BITS;
    Ok(numbers()
        .map(|bits| Parts::of(bits, format).map_or(0, |parts| parts.in_units(unit)))
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn f32_block(numbers: &[f32]) -> Result<Vec<i32>, usize> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        read_block(&bytes, Format::F32)
    }

    #[test]
    fn numbers_share_the_exponent_of_the_largest() {
        let one = 1 << 29; // 1.0 is below 2^1, so the unit is 2^-29.
        assert_eq!(f32_block(&[1.0, -0.5, 0.0]).unwrap(), [one, -one / 2, 0]);
        assert_eq!(f32_block(&[0.0, -0.0]).unwrap(), [0, 0]);
        // The same at the ends of what an f32 can hold.
        let tiny = f32::from_bits(2); // 2^-148
        assert_eq!(f32_block(&[tiny, -tiny / 2.0]).unwrap(), [one, -one / 2]);
        assert_eq!(f32_block(&[2f32.powi(127), 1.0]).unwrap(), [one, 0]);
        // The largest f32 needs 24 bits.
        assert_eq!(f32_block(&[f32::MAX]).unwrap(), [(1 << 30) - (1 << 6)]);
    }

    #[test]
    fn ties_go_to_even() {
        let unit = 2f32.powi(-29); // As 1.0 is the largest.
        let cases = [
            (0.5, 0),
            (0.75, 1),
            (1.5, 2),
            (2.5, 2),
            (-2.5, -2),
            (-3.5, -4),
            (0.25, 0),
        ];
        for (units, expected) in cases {
            assert_eq!(
                f32_block(&[1.0, units * unit]).unwrap()[1],
                expected,
                "{units}"
            );
        }
    }

    #[test]
    fn every_f16_is_read_as_its_value() {
        for bits in 0..=u16::MAX {
            let negative = bits >> 15 == 1;
            let (biased, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let expected = match biased {
                31 => None,
                0 => Some(fraction * 2f64.powi(-24)),
                _ => Some((1024.0 + fraction) * 2f64.powi(biased - 25)),
            };
            let found = Parts::of(u32::from(bits), Format::F16)
                .map(|parts| parts.mantissa as f64 * 2f64.powi(parts.exponent));
            assert_eq!(
                found,
                expected.map(|value| if negative { -value } else { value })
            );
        }
    }

    #[test]
    fn a_bf16_is_the_upper_half_of_an_f32() {
        let wide = [1.0f32, -3.5, 0.0078125, 2f32.powi(-130)];
        let narrow: Vec<u8> = wide
            .iter()
            .flat_map(|n| ((n.to_bits() >> 16) as u16).to_le_bytes())
            .collect();
        assert_eq!(read_block(&narrow, Format::Bf16), f32_block(&wide));
    }

    #[test]
    fn what_is_not_a_number_is_named_by_its_place() {
        assert_eq!(f32_block(&[1.0, 2.0, f32::NAN]), Err(2));
        assert_eq!(f32_block(&[f32::NEG_INFINITY]), Err(0));
        assert_eq!(read_block(&[0, 0x7c], Format::F16), Err(0));
        assert_eq!(read_block(&[0x80, 0x7f], Format::Bf16), Err(0));
    }
}
