//! What the log's own frames say: the payloads of marks and gaps.
//!
//! All numbers are little-endian; what is not listed is zero.
//!
//! | frame | offset | size | field |
//! |---|---:|---:|---|
//! | `Start` | 0 | 8 | where the segment before ended |
//! | | 8 | 4 | the chain over all its frames |
//! | | 16 | 8 | the oldest segment that belongs to the log |
//! | `Opened`, `Dropped` | 0 | 8 | the oldest segment that belongs to the log |
//! | `Closed` | | 0 | |
//! | `Seal` | 0 | 8 | the LSN of the segment's `Start` |
//! | | 8 | 4 | the chain over all frames before the seal |
//! | `Seal` of a rewritten segment, also | 16 | 8 | where the segment ended before it was first rewritten |
//! | | 24 | 4 | the chain over all its frames then |
//! | `Gap` | 0 | 8 | how many records it stands for, from its own LSN on |
//! | | 8 | 4 | why they are not there: 1 = removed on purpose, 2 = lost to damage |
//!
//! Invariant: the `Start` of a segment and the `Seal` before it agree on how the segment before
//! ended, however often that one was rewritten. A file in the wrong place is seen by that.

use crate::Lsn;
use crate::frame::{u32_at, u64_at};

/// Payload of `Opened` and `Dropped` frames: the oldest segment that belongs to the log.
pub(crate) const OLDEST_PAYLOAD_BYTES: usize = 8;

pub(crate) fn decode_oldest(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == OLDEST_PAYLOAD_BYTES).then(|| u64_at(bytes, 0))
}

/// How a segment ended. All zero before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Behind its last frame.
    pub offset: u64,
    /// The chain over all its frames.
    pub chain: u32,
}

const ENDING_BYTES: usize = 16;

impl Ending {
    fn encode(&self) -> [u8; ENDING_BYTES] {
        let mut bytes = [0; ENDING_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.chain.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Ending> {
        (bytes.len() == ENDING_BYTES && bytes[12..] == [0; 4]).then(|| Ending {
            offset: u64_at(bytes, 0),
            chain: u32_at(bytes, 8),
        })
    }
}

/// Payload of a `Start` frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// How the segment before ended.
    pub previous: Ending,
    /// The oldest segment that belongs to the log.
    pub oldest: u64,
}

pub(crate) const START_PAYLOAD_BYTES: usize = ENDING_BYTES + 8;

impl Start {
    pub fn encode(&self) -> [u8; START_PAYLOAD_BYTES] {
        let mut bytes = [0; START_PAYLOAD_BYTES];
        bytes[..ENDING_BYTES].copy_from_slice(&self.previous.encode());
        bytes[ENDING_BYTES..].copy_from_slice(&self.oldest.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Start> {
        if bytes.len() != START_PAYLOAD_BYTES {
            return None;
        }
        Some(Start {
            previous: Ending::decode(&bytes[..ENDING_BYTES])?,
            oldest: u64_at(bytes, ENDING_BYTES),
        })
    }
}

/// Payload of a `Seal` frame: what the sealed segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub first_lsn: Lsn,
    /// The chain over all frames before the seal.
    pub chain: u32,
    /// In a rewritten segment: how it ended before, which is what the next `Start` knows.
    pub original: Option<Ending>,
}

pub(crate) const SEAL_PAYLOAD_BYTES: usize = 16;

impl Seal {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SEAL_PAYLOAD_BYTES];
        bytes[0..8].copy_from_slice(&self.first_lsn.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.chain.to_le_bytes());
        if let Some(original) = &self.original {
            bytes.extend_from_slice(&original.encode());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Seal> {
        let (own, original) = match bytes.len() {
            SEAL_PAYLOAD_BYTES => (bytes, None),
            _ => {
                let (own, original) = bytes.split_at_checked(SEAL_PAYLOAD_BYTES)?;
                (own, Some(Ending::decode(original)?))
            }
        };
        (own[12..] == [0; 4]).then(|| Seal {
            first_lsn: u64_at(own, 0),
            chain: u32_at(own, 8),
            original,
        })
    }
}

/// Why records are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Removed on purpose, by rewriting their segment.
    Removed = 1,
    /// Damaged, and given up by a repair.
    Lost = 2,
}

/// Payload of a `Gap` frame, which stands where records were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// How many, from the frame's own LSN on. At least one.
    pub records: u64,
    pub why: Why,
}

pub(crate) const GAP_PAYLOAD_BYTES: usize = 16;

impl Gap {
    pub fn encode(&self) -> [u8; GAP_PAYLOAD_BYTES] {
        let mut bytes = [0; GAP_PAYLOAD_BYTES];
        bytes[0..8].copy_from_slice(&self.records.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.why as u32).to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Gap> {
        if bytes.len() != GAP_PAYLOAD_BYTES || bytes[12..] != [0; 4] {
            return None;
        }
        let why = match u32_at(bytes, 8) {
            1 => Why::Removed,
            2 => Why::Lost,
            _ => return None,
        };
        let records = u64_at(bytes, 0);
        (records > 0).then_some(Gap { records, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDING: Ending = Ending {
        offset: 4096,
        chain: 0xfeed,
    };

    #[test]
    fn a_seal_says_by_its_length_whether_its_segment_was_rewritten() {
        for original in [None, Some(ENDING), Some(Ending::default())] {
            let seal = Seal {
                first_lsn: 7,
                chain: 9,
                original,
            };
            let bytes = seal.encode();
            assert_eq!(Seal::decode(&bytes), Some(seal));
            assert_eq!(Seal::decode(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_start_is_decoded_as_it_was_encoded() {
        let start = Start {
            previous: ENDING,
            oldest: 3,
        };
        assert_eq!(Start::decode(&start.encode()), Some(start));
        assert_eq!(Start::decode(&start.encode()[..16]), None);
    }

    #[test]
    fn a_gap_stands_for_at_least_one_record_and_says_why() {
        for why in [Why::Removed, Why::Lost] {
            let gap = Gap { records: 5, why };
            assert_eq!(Gap::decode(&gap.encode()), Some(gap));
            let none = Gap { records: 0, why };
            assert_eq!(Gap::decode(&none.encode()), None);
        }
        let mut unknown = Gap {
            records: 5,
            why: Why::Lost,
        }
        .encode();
        unknown[8] = 3;
        assert_eq!(Gap::decode(&unknown), None);
    }
}
