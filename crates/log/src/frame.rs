//! The frame: one record (or one mark of the log's own) as bytes on disk.
//!
//! All numbers are little-endian. A frame starts at a multiple of 8 and is padded with zeros to
//! the next one.
//!
//! | offset | size | field |
//! |---:|---:|---|
//! | 0 | 1 | kind; 0 is unwritten space and never a frame |
//! | 1 | 1 | flags: 1 = last of its batch, 2 = last of its sync group |
//! | 2 | 2 | zero |
//! | 4 | 4 | payload length |
//! | 8 | 8 | LSN (for a mark: the LSN of the next record; for a gap: the first it stands for) |
//! | 16 | 8 | sync group; in a rewritten segment that of its first seal, in all frames |
//! | 24 | 8 | epoch: rises with every opening after which something was written |
//! | 32 | 4 | CRC32C of the payload |
//! | 36 | 4 | CRC32C of log id, segment number, offset in the segment, and bytes 0..36 |
//! | 40 | … | payload, then zeros up to a multiple of 8 |
//!
//! Invariant: a frame is valid only in the log, the segment and the place it was written for,
//! because all three are under the header's checksum. Stale, copied or misdirected bytes do not
//! decode.

use crate::Lsn;

pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const ALIGN: u64 = 8;

const FLAGS_AT: usize = 1;
const ZERO_AT: usize = 2;
const LENGTH_AT: usize = 4;
const LSN_AT: usize = 8;
const GROUP_AT: usize = 16;
const EPOCH_AT: usize = 24;
const PAYLOAD_CRC_AT: usize = 32;
const HEADER_CRC_AT: usize = 36;

pub(crate) const LAST_OF_BATCH: u8 = 1;
pub(crate) const LAST_OF_GROUP: u8 = 2;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record of the user's.
    Record = 1,
    /// First frame of a segment: says how the segment before it ended.
    Start = 2,
    /// Last frame of a segment.
    Seal = 3,
    /// The log was opened for writing here.
    Opened = 4,
    /// The log was closed in good order here.
    Closed = 5,
    /// Segments were given up here; `Start` and `Opened` repeat which one is the oldest left.
    Dropped = 6,
    /// Stands where records were; only in a rewritten segment.
    Gap = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            1 => Some(Kind::Record),
            2 => Some(Kind::Start),
            3 => Some(Kind::Seal),
            4 => Some(Kind::Opened),
            5 => Some(Kind::Closed),
            6 => Some(Kind::Dropped),
            7 => Some(Kind::Gap),
            _ => None,
        }
    }
}

/// A frame's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub flags: u8,
    pub payload_bytes: u32,
    pub lsn: Lsn,
    pub group: u64,
    pub epoch: u64,
    pub payload_crc: u32,
    /// The header's own checksum; segments chain these.
    pub crc: u32,
}

impl Header {
    pub fn ends_batch(&self) -> bool {
        self.flags & LAST_OF_BATCH != 0
    }

    pub fn ends_group(&self) -> bool {
        self.flags & LAST_OF_GROUP != 0
    }

    /// Bytes from this frame's start to the next one's.
    pub fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes as usize)
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAFrame {
    /// Kind 0, as in space never written.
    Unwritten,
    UnknownKind(u8),
    Malformed,
    HeaderChecksum {
        expected: u32,
        found: u32,
    },
}

/// Bytes a frame with this payload takes.
pub(crate) fn frame_bytes(payload_bytes: usize) -> u64 {
    (HEADER_BYTES as u64 + payload_bytes as u64).next_multiple_of(ALIGN)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// The checksum's start value for all frames of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceSeed(u32);

impl PlaceSeed {
    pub fn new(log_id: u64, segment: u64) -> PlaceSeed {
        let seed = crc32c::crc32c(&log_id.to_le_bytes());
        PlaceSeed(crc32c::crc32c_append(seed, &segment.to_le_bytes()))
    }

    fn header_crc(self, offset: u64, header: &[u8]) -> u32 {
        // In one piece: every record that is read costs this, and two short calls cost twice.
        let mut placed = [0; 8 + HEADER_CRC_AT];
        placed[..8].copy_from_slice(&offset.to_le_bytes());
        placed[8..].copy_from_slice(&header[..HEADER_CRC_AT]);
        crc32c::crc32c_append(self.0, &placed)
    }
}

/// Appends a frame whose place, group and epoch are not known yet; [`stamp`] completes it.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    kind: Kind,
    flags: u8,
    lsn: Lsn,
    payload: &[u8],
    payload_crc: u32,
) {
    let start = out.len();
    let mut header = [0; HEADER_BYTES];
    header[0] = kind as u8;
    header[FLAGS_AT] = flags;
    // Payloads are limited to a segment's size, which is below 4 GiB.
    header[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[LSN_AT..LSN_AT + 8].copy_from_slice(&lsn.to_le_bytes());
    header[PAYLOAD_CRC_AT..PAYLOAD_CRC_AT + 4].copy_from_slice(&payload_crc.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    out.resize(start + frame_bytes(payload.len()) as usize, 0);
}

/// Where and when a group is written: what [`stamp`] puts into its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub seed: PlaceSeed,
    pub offset: u64,
    pub group: u64,
    pub epoch: u64,
}

/// Completes all frames of `group_bytes`, which will be written at `stamp.offset`, and marks the
/// last one as the end of its group. Returns the chain value continued over them.
pub(crate) fn stamp(group_bytes: &mut [u8], stamp: Stamp, chain: u32) -> u32 {
    stamp_part(group_bytes, stamp, chain, true)
}

/// The same for a part of a group; `ends_group` if it is the last part.
pub(crate) fn stamp_part(bytes: &mut [u8], stamp: Stamp, mut chain: u32, ends_group: bool) -> u32 {
    let total = bytes.len();
    let mut at = 0;
    while at < total {
        let length = u32_at(bytes, at + LENGTH_AT) as usize;
        let next = at + frame_bytes(length) as usize;
        let header = &mut bytes[at..at + HEADER_BYTES];
        if ends_group && next >= total {
            header[FLAGS_AT] |= LAST_OF_GROUP;
        }
        header[GROUP_AT..GROUP_AT + 8].copy_from_slice(&stamp.group.to_le_bytes());
        header[EPOCH_AT..EPOCH_AT + 8].copy_from_slice(&stamp.epoch.to_le_bytes());
        let crc = stamp.seed.header_crc(stamp.offset + at as u64, header);
        header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        chain = chain_next(chain, crc);
        at = next;
    }
    chain
}

/// A segment's chain: a checksum over the header checksums of its frames, in order.
pub(crate) fn chain_next(chain: u32, header_crc: u32) -> u32 {
    crc32c::crc32c_append(chain, &header_crc.to_le_bytes())
}

/// Decodes the header in the first [`HEADER_BYTES`] of `bytes`, found at `offset`.
pub(crate) fn decode(bytes: &[u8], seed: PlaceSeed, offset: u64) -> Result<Header, NotAFrame> {
    if bytes[0] == 0 {
        return Err(NotAFrame::Unwritten);
    }
    let kind = Kind::from_byte(bytes[0]).ok_or(NotAFrame::UnknownKind(bytes[0]))?;
    let found = u32_at(bytes, HEADER_CRC_AT);
    let expected = seed.header_crc(offset, bytes);
    if expected != found {
        return Err(NotAFrame::HeaderChecksum { expected, found });
    }
    let flags = bytes[FLAGS_AT];
    if flags & !(LAST_OF_BATCH | LAST_OF_GROUP) != 0 || bytes[ZERO_AT..LENGTH_AT] != [0, 0] {
        return Err(NotAFrame::Malformed);
    }
    Ok(Header {
        kind,
        flags,
        payload_bytes: u32_at(bytes, LENGTH_AT),
        lsn: u64_at(bytes, LSN_AT),
        group: u64_at(bytes, GROUP_AT),
        epoch: u64_at(bytes, EPOCH_AT),
        payload_crc: u32_at(bytes, PAYLOAD_CRC_AT),
        crc: found,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn one_frame(payload: &[u8], at: Stamp) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(
            &mut bytes,
            Kind::Record,
            LAST_OF_BATCH,
            7,
            payload,
            crc32c::crc32c(payload),
        );
        stamp(&mut bytes, at, 0);
        bytes
    }

    const AT: Stamp = Stamp {
        seed: PlaceSeed(0x1234),
        offset: 512,
        group: 3,
        epoch: 2,
    };

    #[test]
    fn decodes_what_was_encoded() {
        let bytes = one_frame(b"hello", AT);
        let header = decode(&bytes, AT.seed, AT.offset).unwrap();
        assert_eq!(bytes.len(), 48);
        assert_eq!((header.lsn, header.group, header.epoch), (7, 3, 2));
        assert!(header.ends_batch() && header.ends_group());
        assert_eq!(header.frame_bytes(), 48);
    }

    #[test]
    fn is_valid_only_in_its_own_place() {
        let bytes = one_frame(b"hello", AT);
        assert!(decode(&bytes, AT.seed, AT.offset + 8).is_err());
        assert!(decode(&bytes, PlaceSeed::new(1, 1), AT.offset).is_err());
        assert_ne!(PlaceSeed::new(1, 2), PlaceSeed::new(2, 1));
    }

    #[test]
    fn every_bit_of_the_header_is_covered() {
        let bytes = one_frame(b"hello", AT);
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, AT.seed, AT.offset).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn zeros_are_unwritten() {
        assert_eq!(
            decode(&[0; HEADER_BYTES], AT.seed, 0),
            Err(NotAFrame::Unwritten)
        );
    }
}
