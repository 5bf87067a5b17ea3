//! Dot products of quantised vectors, with what the processor has for it.
//!
//! Invariant: every way gives the same number, because the sum of whole numbers that all fit has no
//! order. The plain way is the definition; a test compares the others with it.

/// How dot products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As any processor can.
    Plain,
    /// With AVX2 of x86-64; made only if the processor has it.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With NEON of 64-bit ARM; made only if the processor has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Way {
    /// The best one here.
    pub fn best() -> Way {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Way::Avx2;
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Way::Neon;
        }
        Way::Plain
    }

    /// The sum of the products of two vectors of the same dimension.
    #[inline]
    pub fn dot(self, a: &[i8], b: &[i8]) -> i32 {
        match self {
            Way::Plain => plain(a, b),
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 => x86::dot(a, b),
            #[cfg(target_arch = "aarch64")]
            Way::Neon => arm::dot(a, b),
        }
    }
}

fn plain(a: &[i8], b: &[i8]) -> i32 {
    let products = a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b));
    products.sum()
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // Four times as fast, and there is no safe way to these instructions.
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16,
        _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256,
    };

    pub fn dot(a: &[i8], b: &[i8]) -> i32 {
        // SAFETY: `Way::Avx2` is made only where AVX2 was detected.
        unsafe { dot_avx2(a, b) }
    }

    #[target_feature(enable = "avx2")]
    unsafe fn dot_avx2(a: &[i8], b: &[i8]) -> i32 {
        let (a, a_rest) = a.as_chunks::<16>();
        let (b, b_rest) = b.as_chunks::<16>();
        let mut sums = _mm256_setzero_si256();
        for (a, b) in a.iter().zip(b) {
            // SAFETY: both are 16 bytes long, and these loads need no alignment.
            let (a, b) = unsafe {
                (
                    _mm_loadu_si128(a.as_ptr().cast::<__m128i>()),
                    _mm_loadu_si128(b.as_ptr().cast::<__m128i>()),
                )
            };
            let products = _mm256_madd_epi16(_mm256_cvtepi8_epi16(a), _mm256_cvtepi8_epi16(b));
            sums = _mm256_add_epi32(sums, products);
        }
        let mut eight = [0_i32; 8];
        // SAFETY: eight sums of 4 bytes are 32 bytes, and this store needs no alignment.
        unsafe { _mm256_storeu_si256(eight.as_mut_ptr().cast::<__m256i>(), sums) };
        eight.iter().sum::<i32>() + super::plain(a_rest, b_rest)
    }
}

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)] // Several times as fast, and there is no safe way to these instructions.
mod arm {
    use std::arch::aarch64::{
        vaddvq_s32, vdupq_n_s32, vget_high_s8, vget_low_s8, vld1q_s8, vmull_s8, vpadalq_s16,
    };

    pub fn dot(a: &[i8], b: &[i8]) -> i32 {
        // SAFETY: `Way::Neon` is made only where NEON was detected.
        unsafe { dot_neon(a, b) }
    }

    #[target_feature(enable = "neon")]
    unsafe fn dot_neon(a: &[i8], b: &[i8]) -> i32 {
        let (a, a_rest) = a.as_chunks::<16>();
        let (b, b_rest) = b.as_chunks::<16>();
        let mut sums = vdupq_n_s32(0);
        for (a, b) in a.iter().zip(b) {
            // SAFETY: both are 16 bytes long, and these loads need no alignment.
            let (a, b) = unsafe { (vld1q_s8(a.as_ptr()), vld1q_s8(b.as_ptr())) };
            sums = vpadalq_s16(sums, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
            sums = vpadalq_s16(sums, vmull_s8(vget_high_s8(a), vget_high_s8(b)));
        }
        vaddvq_s32(sums) + super::plain(a_rest, b_rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_gives_the_same_number() {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 56) as i8
        };
        for length in (0..70).chain([384, 1024, 16_384]) {
            let a: Vec<i8> = (0..length).map(|_| next()).collect();
            let b: Vec<i8> = (0..length).map(|_| next()).collect();
            assert_eq!(Way::best().dot(&a, &b), plain(&a, &b), "{length}");
            let lowest = vec![i8::MIN; length];
            assert_eq!(Way::best().dot(&lowest, &lowest), 16_384 * length as i32);
        }
    }
}
