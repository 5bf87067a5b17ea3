//! The first page of an index file: what it is of, and where everything is.
//!
//! | offset | size | field |
//! |---:|---:|---|
//! | 0 | 16 | `dalsegno index`, a line feed, a zero |
//! | 16 | 4 | format version |
//! | 20 | 4 | CRC32C of bytes 0..20 and 24..4096 |
//! | 24 | 40 | the segment: store, number, first LSN, last LSN, bytes; 8 bytes each |
//! | 64 | 8 | bytes of the stream parts |
//! | 72 | 8 | ended runs |
//! | 80 | 8 | bytes of the ended runs |
//! | 88 | 24 | stream table: entries, homes, blocks; 8 bytes each |
//! | 112 | 24 | piece table: the same |
//! | 136 | 3960 | zero |
//!
//! The sections follow in this order and without gaps: stream parts, ended runs, stream
//! table, piece table. Bytes 0..24 mean the same in every version, so that a version is known to be newer
//! and not just a flipped bit.
//!
//! Invariant: a header that decodes describes a file of exactly the length that it has.

use super::bytes::{u32_at, u64_at};
use super::source::Source;
use super::table::{BLOCK_BYTES, Shape, Table};
use super::{Identity, IndexError, ended, part};

pub(super) const HEADER_BYTES: usize = 4096;
pub(super) const FORMAT_VERSION: u32 = 1;

pub(super) const MAGIC: &[u8; 16] = b"dalsegno index\n\0";
pub(super) const VERSION_AT: usize = 16;
pub(super) const CRC_AT: usize = 20;
const IDENTITY_AT: usize = 24;
const IDENTITY_BYTES: usize = 40;
const PART_BYTES_AT: usize = 64;
const ENDED_AT: usize = 72;
const ENDED_BYTES_AT: usize = 80;
const STREAMS_AT: usize = 88;
const PIECES_AT: usize = 112;
const USED_BYTES: usize = 136;

/// Where the stream parts begin.
pub(super) const PARTS_AT: u64 = HEADER_BYTES as u64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Where the stream parts end, and the ended runs begin. The stream table is where those end.
    pub ended_at: u64,
    pub ended: u64,
    pub streams: Table,
    pub pieces: Table,
}

impl Identity {
    pub(super) fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        let numbers = [
            self.store,
            self.segment,
            self.first_lsn,
            self.last_lsn,
            self.segment_bytes,
        ];
        for (at, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(page: &[u8]) -> Identity {
        let number = |index: usize| u64_at(page, IDENTITY_AT + 8 * index);
        Identity {
            store: number(0),
            segment: number(1),
            first_lsn: number(2),
            last_lsn: number(3),
            segment_bytes: number(4),
        }
    }
}

impl Header {
    pub fn encode(&self, identity: &Identity) -> Vec<u8> {
        let mut page = Vec::with_capacity(HEADER_BYTES);
        page.extend_from_slice(MAGIC);
        page.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&identity.encode());
        let numbers = [
            self.ended_at - PARTS_AT,
            self.ended,
            self.streams.at - self.ended_at,
            self.streams.entries,
            self.streams.homes,
            self.streams.blocks,
            self.pieces.entries,
            self.pieces.homes,
            self.pieces.blocks,
        ];
        for number in numbers {
            page.extend_from_slice(&number.to_le_bytes());
        }
        page.resize(HEADER_BYTES, 0);
        stamp(&mut page);
        page
    }

    /// Reads the header of a file, which has to be of the segment that the source names.
    pub fn read(source: &Source) -> Result<Header, IndexError> {
        let page = source.read(0, HEADER_BYTES as u64)?;
        if page[..MAGIC.len()] != *MAGIC {
            let found = format!("{:?}", String::from_utf8_lossy(&page[..MAGIC.len()]));
            return Err(source.damage(0, "the words \"dalsegno index\"", found));
        }
        let (stored, computed) = (u32_at(&page, CRC_AT), checksum(&page));
        if stored != computed {
            let expected = format!("a header with checksum {stored:08x}");
            return Err(source.damage(0, expected, format!("checksum {computed:08x}")));
        }
        let version = u32_at(&page, VERSION_AT);
        if version != FORMAT_VERSION {
            return Err(IndexError::Version {
                path: source.path(),
                found: version,
                known: FORMAT_VERSION,
            });
        }
        let identity = Identity::decode(&page);
        if identity != *source.identity() {
            return Err(IndexError::OtherSegment {
                path: source.path(),
                expected: *source.identity(),
                found: identity,
            });
        }
        if let Some(at) = page[USED_BYTES..].iter().position(|byte| *byte != 0) {
            let found = format!("{:#04x}", page[USED_BYTES + at]);
            return Err(source.damage((USED_BYTES + at) as u64, "zero", found));
        }
        let header = Header::sections(&page)
            .ok_or_else(|| source.damage(0, "sections that hold what they count", "others"))?;
        let end = header.pieces.end();
        if end != source.bytes() {
            let expected = format!("a file of {end} bytes");
            return Err(source.damage(
                source.bytes().min(end),
                expected,
                format!("{}", source.bytes()),
            ));
        }
        Ok(header)
    }

    /// Where the sections are; `None` if the numbers contradict each other.
    fn sections(page: &[u8]) -> Option<Header> {
        let number = |at: usize| u64_at(page, at);
        let table = |at: u64, numbers: usize, shape: Shape| {
            let table = Table {
                at,
                entries: number(numbers),
                homes: number(numbers + 8),
                blocks: number(numbers + 16),
                shape,
            };
            let bytes = table.blocks.checked_mul(BLOCK_BYTES as u64)?;
            at.checked_add(bytes)?;
            table.is_possible().then_some(table)
        };
        let ended_at = PARTS_AT.checked_add(number(PART_BYTES_AT))?;
        let ended_end = ended_at.checked_add(number(ENDED_BYTES_AT))?;
        let streams = table(ended_end, STREAMS_AT, part::TABLE)?;
        let header = Header {
            ended_at,
            ended: number(ENDED_AT),
            streams,
            pieces: table(streams.end(), PIECES_AT, super::PIECE_TABLE)?,
        };
        let fit = |items: u64, bytes: u64, least: usize| items <= bytes / least as u64;
        let possible = fit(streams.entries, ended_at - PARTS_AT, part::FIXED_BYTES)
            && fit(header.ended, ended_end - ended_at, ended::FIXED_BYTES);
        possible.then_some(header)
    }
}

fn checksum(page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..CRC_AT]), &page[CRC_AT + 4..])
}

/// Writes the checksum into a header page.
pub(super) fn stamp(page: &mut [u8]) {
    let crc = checksum(page);
    page[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}
