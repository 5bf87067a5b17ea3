//! An index as bytes, for keeping it beside the store.
//!
//! | bytes | what |
//! |---:|---|
//! | 16 | `dalsegno memory` and a zero |
//! | 8 | format: 1. All numbers are little-endian |
//! | 32 | of what: a hash over the part, the memory and the analyser |
//! | 8, 32 | the version that it is of: sequence and chain hash |
//! | … | the part |
//! | 4 | CRC32C of everything before |
//!
//! Invariant: bytes that are not as they were written, are of something else, or are of another
//! history are refused; nothing in them is used before that is known.

use dalsegno_store::{Hash, Version};

const MAGIC: &[u8; 16] = b"dalsegno memory\0";
const FORMAT: u64 = 1;
const HEAD_BYTES: usize = 16 + 8 + 32 + 8 + 32;
const CRC_BYTES: usize = 4;

/// Writes one.
pub(crate) struct BlobWriter(Vec<u8>);

impl BlobWriter {
    pub fn new(of: &Hash, version: Version) -> BlobWriter {
        let mut writer = BlobWriter(Vec::new());
        writer.bytes(MAGIC);
        writer.number(FORMAT);
        writer.hash(of);
        writer.number(version.sequence);
        writer.hash(&version.hash);
        writer
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub fn hash(&mut self, hash: &Hash) {
        self.bytes(hash.as_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    pub fn numbers_u32(&mut self, numbers: &[u32]) {
        self.0.reserve(4 * numbers.len());
        for number in numbers {
            self.bytes(&number.to_le_bytes());
        }
    }

    pub fn numbers_u16(&mut self, numbers: &[u16]) {
        self.0.reserve(2 * numbers.len());
        for number in numbers {
            self.bytes(&number.to_le_bytes());
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What was written behind this place.
    pub fn from(&self, place: usize) -> &[u8] {
        &self.0[place..]
    }

    pub fn finish(mut self) -> Vec<u8> {
        let crc = crc32c::crc32c(&self.0);
        self.bytes(&crc.to_le_bytes());
        self.0
    }
}

/// Reads one. Every read is `None` where the bytes end too early.
pub(crate) struct BlobReader<'b> {
    bytes: &'b [u8],
    pub version: Version,
}

impl<'b> BlobReader<'b> {
    /// `None` if it is damaged, in another format or of something else.
    pub fn open(bytes: &'b [u8], of: &Hash) -> Option<BlobReader<'b>> {
        let (bytes, crc) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
        if crc32c::crc32c(bytes).to_le_bytes() != crc || bytes.len() < HEAD_BYTES {
            return None;
        }
        let mut reader = BlobReader {
            bytes,
            version: Version::START,
        };
        let is_ours = reader.take(MAGIC.len())? == MAGIC && reader.number()? == FORMAT;
        if !is_ours || reader.hash()? != *of {
            return None;
        }
        reader.version = Version {
            sequence: reader.number()?,
            hash: reader.hash()?,
        };
        Some(reader)
    }

    pub fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    pub fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// A number of things that are still to come, each of at least so many bytes.
    pub fn count(&mut self, least_bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count.checked_mul(least_bytes)? <= self.bytes.len()).then_some(count)
    }

    pub fn hash(&mut self) -> Option<Hash> {
        let (hash, rest) = self.bytes.split_first_chunk::<32>()?;
        self.bytes = rest;
        Some(Hash::from_bytes(*hash))
    }

    pub fn text(&mut self) -> Option<&'b str> {
        let length = self.count(1)?;
        std::str::from_utf8(self.take(length)?).ok()
    }

    pub fn numbers_u32(&mut self, count: usize) -> Option<Vec<u32>> {
        let (chunks, _) = self.take(count.checked_mul(4)?)?.as_chunks::<4>();
        Some(
            chunks
                .iter()
                .map(|four| u32::from_le_bytes(*four))
                .collect(),
        )
    }

    pub fn numbers_u16(&mut self, count: usize) -> Option<Vec<u16>> {
        let (chunks, _) = self.take(count.checked_mul(2)?)?.as_chunks::<2>();
        Some(chunks.iter().map(|two| u16::from_le_bytes(*two)).collect())
    }

    /// That everything was read.
    pub fn end(&self) -> Option<()> {
        self.bytes.is_empty().then_some(())
    }
}
