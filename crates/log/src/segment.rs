//! The segment file: its name, its header, and how a new one is made.
//!
//! | offset | size | field of the header |
//! |---:|---:|---|
//! | 0 | 8 | `DALSEGNO` |
//! | 8 | 4 | format version |
//! | 12 | 4 | at most this many sync groups were ever written here and not yet synced: 1; in a rewritten segment, which got its name when it was complete, 0 |
//! | 16 | 8 | log id, the same in all segments of a log |
//! | 24 | 8 | segment number, from 1, without gaps |
//! | 32 | 8 | size of the file in bytes when it was made |
//! | 40 | 4 | CRC32C of bytes 0..40 |
//! | 44 | 468 | zero |
//!
//! Frames follow from byte 512, the first one a `Start`, the last one, once the segment is full,
//! a `Seal`. The rest is zero, and is cut off when the segment is sealed. What the log's own frames
//! say is at the head of `marks.rs`, how a segment is rewritten at that of `rebuild.rs`.
//!
//! Invariant: a file with a segment's name is complete: it is filled with zeros before it gets its
//! name, as `fs/place.rs` says.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Damage;
use crate::frame::{self, u32_at, u64_at};
use crate::fs::{Fs, FsFile, PlaceError, place};
use crate::marks;
use crate::rules::Mutant;

pub(crate) const HEADER_BYTES: u64 = 512;
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Rule: the next group is written only after the sync of the one before it has returned.
const GROUPS_IN_FLIGHT: u32 = 1;
/// A rewritten segment was synced as a whole before it got its name.
const NO_GROUP_IN_FLIGHT: u32 = 0;

/// Where the header holds the log's id.
pub(crate) const LOG_ID_AT: u64 = 16;

const MAGIC: &[u8; 8] = b"DALSEGNO";
const VERSION_AT: usize = 8;
const CRC_AT: usize = 40;
/// Far more than there will ever be; keeps names at 16 digits.
pub(crate) const LAST_NUMBER: u64 = 999_999_999_999_999;
const ZERO_CHUNK_BYTES: usize = 256 * 1024;
const SUFFIX: &str = ".seg";

/// Room that every segment keeps free for its `Seal`.
pub(crate) fn seal_bytes() -> u64 {
    frame::frame_bytes(marks::SEAL_PAYLOAD_BYTES)
}

/// Room that groups of records leave free at the end of a segment: for the seal and a few marks,
/// so that a log on a full disk can be opened, closed, and made smaller.
pub(crate) fn reserve_bytes() -> u64 {
    seal_bytes() + 4 * frame::frame_bytes(marks::OLDEST_PAYLOAD_BYTES)
}

/// Room that the `Start` of a segment takes.
pub(crate) fn start_bytes() -> u64 {
    frame::frame_bytes(marks::START_PAYLOAD_BYTES)
}

pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016}{SUFFIX}")
}

pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(file_name(number))
}

/// The segment number in a file name, if it is one.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    if digits.len() != 16 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    (1..=LAST_NUMBER).contains(&number).then_some(number)
}

/// How large segments are made: each twice as large as the one before, from `first` to `largest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentSizes {
    pub first: u64,
    pub largest: u64,
}

impl SegmentSizes {
    /// The size of the segment with this number. It follows from the number alone, so that nobody has to
    /// remember it.
    pub fn of(&self, number: u64) -> u64 {
        let doubled = number.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doubled).min(self.largest)
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub log_id: u64,
    pub number: u64,
    pub size_bytes: u64,
    /// Complete from the moment it got its name: nothing in it can be torn.
    pub rewritten: bool,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let in_flight = if self.rewritten {
            NO_GROUP_IN_FLIGHT
        } else {
            GROUPS_IN_FLIGHT
        };
        bytes[12..16].copy_from_slice(&in_flight.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.size_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], number: u64) -> Result<SegmentHeader, HeaderError> {
        let damage = |offset: usize, expected: String, found: String| {
            HeaderError::Damage(Damage {
                segment: number,
                offset: offset as u64,
                expected,
                found,
            })
        };
        if bytes.len() < HEADER_BYTES as usize {
            let expected = format!("a header of {HEADER_BYTES} bytes");
            return Err(damage(0, expected, format!("{} bytes", bytes.len())));
        }
        if &bytes[0..8] != MAGIC {
            let found = format!("{:02x?}", &bytes[0..8]);
            return Err(damage(0, "the bytes \"DALSEGNO\"".into(), found));
        }
        let (expected, found) = (crc32c::crc32c(&bytes[..CRC_AT]), u32_at(bytes, CRC_AT));
        if expected != found {
            let (expected, found) = (checksum_text(expected), checksum_text(found));
            return Err(damage(VERSION_AT, format!("header {expected}"), found));
        }
        let version = u32_at(bytes, VERSION_AT);
        if version != FORMAT_VERSION {
            return Err(HeaderError::Version(version));
        }
        let rewritten = match u32_at(bytes, 12) {
            GROUPS_IN_FLIGHT => false,
            NO_GROUP_IN_FLIGHT => true,
            found => {
                let expected = "0 or 1 groups in flight".into();
                return Err(damage(12, expected, format!("{found}")));
            }
        };
        if let Some(at) = bytes[CRC_AT + 4..HEADER_BYTES as usize]
            .iter()
            .position(|b| *b != 0)
        {
            let at = CRC_AT + 4 + at;
            return Err(damage(at, "zero".into(), format!("0x{:02x}", bytes[at])));
        }
        let header = SegmentHeader {
            log_id: u64_at(bytes, 16),
            number: u64_at(bytes, 24),
            size_bytes: u64_at(bytes, 32),
            rewritten,
        };
        if header.number != number {
            let found = format!("segment {}", header.number);
            return Err(damage(24, format!("segment {number}"), found));
        }
        Ok(header)
    }
}

pub(crate) fn checksum_text(crc: u32) -> String {
    format!("checksum 0x{crc:08x}")
}

/// Why a segment's header was not accepted.
#[derive(Debug)]
pub(crate) enum HeaderError {
    Io(io::Error),
    Version(u32),
    Damage(Damage),
}

pub(crate) fn read_header(file: &dyn FsFile, number: u64) -> Result<SegmentHeader, HeaderError> {
    let mut bytes = [0; HEADER_BYTES as usize];
    let got = file.read_full(&mut bytes, 0).map_err(HeaderError::Io)?;
    SegmentHeader::decode(&bytes[..got], number)
}

/// Makes a segment file: allocated, filled with zeros, durable under its name. From here on, a
/// durable append into it costs one flush, and cannot meet a full disk (on a file system that
/// overwrites in place; one that copies on write may still need room).
pub(crate) fn prepare(
    fs: &dyn Fs,
    dir: &Path,
    header: SegmentHeader,
    mutant: Mutant,
) -> Result<Box<dyn FsFile>, PlaceError> {
    place::place(fs, dir, &path(dir, header.number), mutant, |file| {
        file.write_full(&header.encode(), 0)?;
        let zeros = vec![0; ZERO_CHUNK_BYTES.min(header.size_bytes as usize)];
        let mut at = HEADER_BYTES;
        while at < header.size_bytes {
            let n = (header.size_bytes - at).min(zeros.len() as u64);
            file.write_full(&zeros[..n as usize], at)?;
            at += n;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_parsed_strictly() {
        for number in [1, 42, LAST_NUMBER] {
            assert_eq!(parse_name(&file_name(number)), Some(number));
        }
        for name in [
            "",
            "1.seg",
            "0000000000000000.seg",
            "1000000000000000.seg",
            "+000000000000001.seg",
            "0000000000000001.seg.tmp",
            "000000000000000a.seg",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
        let temporary = "0000000000000001.seg.tmp";
        assert_eq!(
            place::without_temporary(temporary).and_then(parse_name),
            Some(1)
        );
    }

    #[test]
    fn every_byte_of_the_header_is_covered() {
        let header = SegmentHeader {
            log_id: 5,
            number: 3,
            size_bytes: 4096,
            rewritten: false,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, 3).unwrap(), header);
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(SegmentHeader::decode(&damaged, 3).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let header = SegmentHeader {
            log_id: 5,
            number: 3,
            size_bytes: 4096,
            rewritten: true,
        };
        let mut bytes = header.encode();
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            SegmentHeader::decode(&bytes, 3),
            Err(HeaderError::Version(2))
        ));
    }
}
