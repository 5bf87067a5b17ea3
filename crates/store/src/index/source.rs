//! Reading an index file: never beyond its end, never without comparing the checksum.
//!
//! A checksum is the CRC32C over the segment's identity (40 bytes, as in the header), the place of
//! what it covers in the file (8 bytes), and what it covers. So bytes of another segment's index,
//! or from another place of this one, do not pass for those that belong here.
//!
//! Invariant: what is allocated for a read is no longer than the file.

use std::path::PathBuf;
use std::sync::Arc;

use dalsegno_log::IoFailure;
use dalsegno_log::fs::FsFile;

use super::{Identity, IndexError};

/// How much a walk over a section reads at a time.
const WINDOW_BYTES: u64 = 64 * 1024;

/// The checksum of bytes that are at `offset` in the index of a segment.
pub(super) fn checksum(identity: &Identity, offset: u64, bytes: &[u8]) -> u32 {
    let seed = crc32c::crc32c(&identity.encode());
    let placed = crc32c::crc32c_append(seed, &offset.to_le_bytes());
    crc32c::crc32c_append(placed, bytes)
}

/// A file that is said to be the index of a segment.
#[derive(Debug)]
pub(super) struct Source {
    file: Box<dyn FsFile>,
    path: PathBuf,
    /// Its length when it was opened.
    bytes: u64,
    /// The segment that it has to be of.
    identity: Identity,
}

impl Source {
    pub fn new(
        file: Box<dyn FsFile>,
        path: PathBuf,
        identity: Identity,
    ) -> Result<Source, IndexError> {
        let mut source = Source {
            file,
            path,
            bytes: 0,
            identity,
        };
        source.bytes = source.length_now()?;
        Ok(source)
    }

    pub fn length_now(&self) -> Result<u64, IndexError> {
        self.file.len().map_err(|e| self.failed("measure", e))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn damage(
        &self,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> IndexError {
        IndexError::Damage {
            path: self.path(),
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Exactly these bytes of the file.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, IndexError> {
        let room = self.bytes.saturating_sub(offset);
        let too_few = |there: u64| {
            let found = format!("a file that ends after {there} of them");
            self.damage(offset, format!("{bytes} bytes"), found)
        };
        let length = usize::try_from(bytes)
            .ok()
            .filter(|_| bytes <= room)
            .ok_or_else(|| too_few(room))?;
        let mut buffer = vec![0; length];
        let got = self
            .file
            .read_full(&mut buffer, offset)
            .map_err(|e| self.failed("read", e))?;
        if got < length {
            return Err(too_few(got as u64));
        }
        Ok(buffer)
    }

    /// Compares the checksum that is stored for bytes that were read at `offset`.
    pub fn compare(&self, offset: u64, bytes: &[u8], stored: u32) -> Result<(), IndexError> {
        let computed = checksum(&self.identity, offset, bytes);
        if computed == stored {
            return Ok(());
        }
        Err(self.damage(
            offset,
            format!("{} bytes with checksum {stored:08x}", bytes.len()),
            format!("checksum {computed:08x}"),
        ))
    }

    fn failed(&self, operation: &'static str, error: std::io::Error) -> IndexError {
        IndexError::Io(IoFailure {
            operation,
            path: self.path(),
            error: Arc::new(error),
        })
    }
}

/// A walk forwards over a part of the file, which reads ahead.
pub(super) struct Window<'a> {
    source: &'a Source,
    end: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub fn new(source: &'a Source, end: u64) -> Window<'a> {
        Window {
            source,
            end,
            at: 0,
            bytes: Vec::new(),
        }
    }

    /// Exactly these bytes of the file, not checked.
    pub fn get(&mut self, offset: u64, bytes: u64) -> Result<&[u8], IndexError> {
        let room = self.end.saturating_sub(offset);
        if bytes > room {
            let found = format!("a section that ends after {room} of them");
            let expected = format!("{bytes} bytes");
            return Err(self.source.damage(offset, expected, found));
        }
        let held = self.at..self.at + self.bytes.len() as u64;
        if !(held.start <= offset && offset + bytes <= held.end) {
            // Ahead only in small steps: a walk passes over what it does not want.
            self.bytes = self
                .source
                .read(offset, bytes.max(WINDOW_BYTES.min(room)))?;
            self.at = offset;
        }
        let from = (offset - self.at) as usize;
        Ok(&self.bytes[from..from + bytes as usize])
    }

    /// At most these bytes of the file: fewer if the section ends before.
    pub fn get_up_to(&mut self, offset: u64, bytes: u64) -> Result<&[u8], IndexError> {
        let room = self.end.saturating_sub(offset);
        self.get(offset, bytes.min(room))
    }
}
