//! Handing a log over to the next process, which opens it without a sync.
//!
//! Opening a log writes its last group again, because its writer may have been killed before the
//! sync, or the sync may have failed. Who hands the log over knows that neither is so, and leaves a
//! note that says where the log ended then. It needs no sync of its own: if a crash takes it, the
//! next opening does all its work.
//!
//! | offset | bytes | meaning |
//! |---:|---:|---|
//! | 0 | 8 | `handover` |
//! | 8 | 8 | log id, little-endian like all numbers |
//! | 16 | 8 | number of the segment that takes the next group |
//! | 24 | 8 | where in it the next group begins |
//! | 32 | 8 | the last group |
//! | 40 | 8 | its epoch |
//! | 48 | 8 | the next LSN |
//! | 56 | 8 | the segment's chain up to there |
//! | 64 | 8 | number of the prepared segment whose name is durable; 0 if there is none |
//! | 72 | 4 | CRC32C of everything before |
//!
//! Invariant: a note is written only when the sync of everything before that end has returned, so
//! what it says stays true for ever. It is believed only if it describes exactly the end that was
//! found, with nothing behind it: an older note, or one of another log, says nothing.

use std::io;
use std::path::Path;

use crate::Lsn;
use crate::fs::{Fs, OpenMode};

/// The file of the note.
pub(crate) const FILE: &str = "handover";
const MAGIC: &[u8; 8] = b"handover";
const NUMBERS: usize = 8;
const BYTES: usize = 8 + NUMBERS * 8 + 4;

/// Where a log ended when it was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandOver {
    pub log_id: u64,
    pub segment: u64,
    pub offset: u64,
    pub group: u64,
    pub epoch: u64,
    pub next_lsn: Lsn,
    pub chain: u32,
    /// The prepared segment, if there is one.
    pub spare: u64,
}

impl HandOver {
    /// Whether it is about this end. The prepared segment is looked at apart.
    pub fn is_of(&self, end: &HandOver) -> bool {
        HandOver { spare: 0, ..*self } == HandOver { spare: 0, ..*end }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(MAGIC);
        for number in [
            self.log_id,
            self.segment,
            self.offset,
            self.group,
            self.epoch,
            self.next_lsn,
            u64::from(self.chain),
            self.spare,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<HandOver> {
        let (content, crc) = bytes.split_at(BYTES - 4);
        if crc != crc32c::crc32c(content).to_le_bytes() || !content.starts_with(MAGIC) {
            return None;
        }
        let number = |at: usize| {
            let at = 8 + at * 8;
            let bytes = content.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        Some(HandOver {
            log_id: number(0)?,
            segment: number(1)?,
            offset: number(2)?,
            group: number(3)?,
            epoch: number(4)?,
            next_lsn: number(5)?,
            chain: number(6)?.try_into().ok()?,
            spare: number(7)?,
        })
    }

    /// Leaves the note. An error means that there may be none, and nothing else.
    pub fn leave(&self, fs: &dyn Fs, dir: &Path) -> io::Result<()> {
        let path = dir.join(FILE);
        let file = match fs.open(&path, OpenMode::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => fs.open(&path, OpenMode::CreateNew)?,
            opened => opened?,
        };
        file.write_full(&self.encode(), 0)
    }

    /// The note that was left; `None` if there is none that can be read.
    pub fn find(fs: &dyn Fs, dir: &Path) -> Option<HandOver> {
        let file = fs.open(&dir.join(FILE), OpenMode::Read).ok()?;
        let mut bytes = [0; BYTES];
        let got = file.read_full(&mut bytes, 0).ok()?;
        (got == BYTES).then(|| HandOver::decode(&bytes)).flatten()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_note_is_read() {
        let note = HandOver {
            log_id: 1,
            segment: 2,
            offset: 3,
            group: 4,
            epoch: 5,
            next_lsn: 6,
            chain: 7,
            spare: 8,
        };
        let bytes: [u8; BYTES] = note.encode().try_into().unwrap();
        assert_eq!(HandOver::decode(&bytes), Some(note));
        for at in 0..BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert_eq!(HandOver::decode(&changed), None, "byte {at}");
        }
        assert!(note.is_of(&HandOver { spare: 0, ..note }));
        assert!(!note.is_of(&HandOver { chain: 8, ..note }));
    }
}
