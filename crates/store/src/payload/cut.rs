//! Where a payload is cut into leaves, and a level of the tree into nodes. Format 1: no change
//! here is compatible.
//!
//! | | leaf, in bytes | node, in children |
//! |---|---:|---:|
//! | decided by | gear hash of the last 64 bytes | hash of the last child |
//! | never shorter than | 512 | 4 |
//! | chance of a cut from there on | 1/4096 | 1/32 |
//! | usual length, and from there on | 1024 | 8 |
//! | the chance is | 1/256 | 1/2 |
//! | never longer than | 4096 | 32 |
//!
//! Two chances instead of one keep the lengths near the usual one (as FastCDC does). That matters
//! here: what a growing conversation stores again each turn is the unfinished leaf and the
//! unfinished node of each level. Larger leaves would compress better and need fewer hashes,
//! smaller ones make less to store again; these are close to the least total for messages of 2 KB,
//! and the optimum is flat. Only the last leaf of a payload and the last node of a level can be
//! shorter than the least length.
//!
//! Invariant: whether a leaf ends at a byte depends on nothing but that leaf's own bytes up to
//! there, and likewise for a node and its children. So equal beginnings are cut alike.

use crate::hash::Hash;

pub(super) const LEAF_MIN_BYTES: usize = 512;
pub(super) const LEAF_USUAL_BYTES: usize = 1024;
pub(super) const LEAF_MAX_BYTES: usize = 4096;
const LEAF_CUT_EARLY: u64 = one_in(4096);
const LEAF_CUT_LATE: u64 = one_in(256);

const NODE_MIN_CHILDREN: usize = 4;
const NODE_USUAL_CHILDREN: usize = 8;
pub(super) const NODE_MAX_CHILDREN: usize = 32;
const NODE_CUT_EARLY: u64 = one_in(32);
const NODE_CUT_LATE: u64 = one_in(2);

/// After so many bytes a byte has been shifted out of the gear hash.
const WINDOW_BYTES: usize = 64;

/// A random number per value of a byte: SplitMix64 from seed 0.
static GEAR: [u64; 256] = gear();

/// How long the first leaf of these bytes is. 0 only if there are none.
pub(super) fn leaf_len(bytes: &[u8]) -> usize {
    if bytes.len() <= LEAF_MIN_BYTES {
        return bytes.len();
    }
    let usual = bytes.len().min(LEAF_USUAL_BYTES);
    let max = bytes.len().min(LEAF_MAX_BYTES);
    let mut gear = bytes[LEAF_MIN_BYTES - WINDOW_BYTES..LEAF_MIN_BYTES]
        .iter()
        .fold(0, |gear, &byte| roll(gear, byte));
    for (from, to, below) in [
        (LEAF_MIN_BYTES, usual, LEAF_CUT_EARLY),
        (usual, max, LEAF_CUT_LATE),
    ] {
        for (offset, &byte) in bytes[from..to].iter().enumerate() {
            gear = roll(gear, byte);
            if gear < below {
                return from + offset + 1;
            }
        }
    }
    max
}

/// Whether a node that has so many children ends with this one.
pub(super) fn node_ends(children: usize, last: &Hash) -> bool {
    if children < NODE_MIN_CHILDREN {
        return false;
    }
    let [a, b, c, d, e, f, g, h, ..] = *last.as_bytes();
    let chance = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let below = if children < NODE_USUAL_CHILDREN {
        NODE_CUT_EARLY
    } else {
        NODE_CUT_LATE
    };
    chance < below || children >= NODE_MAX_CHILDREN
}

#[inline(always)]
fn roll(gear: u64, byte: u8) -> u64 {
    (gear << 1).wrapping_add(GEAR[usize::from(byte)])
}

/// A random number is below this once in `n` times.
const fn one_in(n: u64) -> u64 {
    u64::MAX / n + 1
}

const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut seed = 0_u64;
    let mut at = 0;
    while at < table.len() {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[at] = z ^ (z >> 31);
        at += 1;
    }
    table
}
