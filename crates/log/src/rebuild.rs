//! Writes a rewritten segment: what is kept of another one, and gaps for the rest.
//!
//! | what | in a rewritten segment |
//! |---|---|
//! | header | no group in flight: the file is complete before it gets its name |
//! | frames | a `Start`, then records and gaps, then a `Seal`. No other marks: the `Start` repeats which segment is the oldest |
//! | records | with their LSN, their bytes and their flag of the last in a batch; a gap ends a batch |
//! | gaps | one for all neighbours that are missing for the same reason |
//! | group, epoch | in all frames those of the segment's first seal, from which the next segment goes on |
//! | `Start` | how the segment before ended, unchanged |
//! | `Seal` | also how this segment ended at first, which the next segment's `Start` knows |
//!
//! Invariant: LSNs are dense from the `Start` to the `Seal`. Every one is that of a record or
//! inside a gap.

use std::io;

use crate::Lsn;
use crate::frame::{self, Header, Kind, LAST_OF_BATCH, PlaceSeed, Stamp};
use crate::fs::FsFile;
use crate::marks::{Ending, Gap, Seal, Start, Why};
use crate::segment::{self, SegmentHeader};
use crate::writer::encode_mark;

/// Frames are written out when this much has gathered.
const CHUNK_BYTES: usize = 256 * 1024;

/// What a rewritten segment says about itself and its place among the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub log_id: u64,
    pub number: u64,
    pub first_lsn: Lsn,
    /// Of all its frames.
    pub group: u64,
    pub epoch: u64,
    pub start: Start,
    /// How the segment ended at first; `None` if nobody knows any more.
    pub original: Option<Ending>,
}

/// A rewritten segment in the making.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    file: &'a dyn FsFile,
    identity: Identity,
    seed: PlaceSeed,
    /// Where the frames in `buffer` will stand.
    offset: u64,
    buffer: Vec<u8>,
    chain: u32,
    next_lsn: Lsn,
    /// Not in the buffer yet: it may grow.
    gap: Option<Gap>,
}

impl Builder<'_> {
    /// Begins at the start of an empty file.
    pub fn new(file: &dyn FsFile, identity: Identity) -> Builder<'_> {
        let mut buffer = Vec::new();
        let payload = identity.start.encode();
        encode_mark(&mut buffer, Kind::Start, identity.first_lsn, &payload);
        Builder {
            file,
            identity,
            seed: PlaceSeed::new(identity.log_id, identity.number),
            offset: segment::HEADER_BYTES,
            buffer,
            chain: 0,
            next_lsn: identity.first_lsn,
            gap: None,
        }
    }

    /// The LSN that comes next.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The record with the next LSN.
    pub fn record(&mut self, header: &Header, payload: &[u8]) -> io::Result<()> {
        self.end_gap();
        let flags = header.flags & LAST_OF_BATCH;
        let (lsn, crc) = (self.next_lsn, header.payload_crc);
        frame::encode(&mut self.buffer, Kind::Record, flags, lsn, payload, crc);
        self.next_lsn += 1;
        if self.buffer.len() >= CHUNK_BYTES {
            self.write_out(false)?;
        }
        Ok(())
    }

    /// A gap from the next LSN up to, and not including, `until`. Nothing if that is no record.
    pub fn gap_until(&mut self, until: Lsn, why: Why) {
        let Some(records) = until.checked_sub(self.next_lsn).filter(|n| *n > 0) else {
            return;
        };
        match &mut self.gap {
            Some(gap) if gap.why == why => {
                gap.records += records;
                self.next_lsn += records;
            }
            _ => {
                self.end_gap();
                self.gap = Some(Gap { records, why });
                self.next_lsn += records;
            }
        }
    }

    fn end_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            let lsn = self.next_lsn - gap.records;
            encode_mark(&mut self.buffer, Kind::Gap, lsn, &gap.encode());
        }
    }

    /// Writes the seal and the header; says how long the file is. The caller syncs it.
    pub fn finish(mut self) -> io::Result<u64> {
        self.end_gap();
        self.write_out(false)?;
        let seal = Seal {
            first_lsn: self.identity.first_lsn,
            chain: self.chain,
            original: Some(self.identity.original.unwrap_or(Ending {
                offset: self.offset,
                chain: self.chain,
            })),
        };
        encode_mark(&mut self.buffer, Kind::Seal, self.next_lsn, &seal.encode());
        self.write_out(true)?;
        let header = SegmentHeader {
            log_id: self.identity.log_id,
            number: self.identity.number,
            size_bytes: self.offset,
            rewritten: true,
        };
        self.file.write_full(&header.encode(), 0)?;
        Ok(self.offset)
    }

    fn write_out(&mut self, ends_group: bool) -> io::Result<()> {
        let stamp = Stamp {
            seed: self.seed,
            offset: self.offset,
            group: self.identity.group,
            epoch: self.identity.epoch,
        };
        self.chain = frame::stamp_part(&mut self.buffer, stamp, self.chain, ends_group);
        self.file.write_full(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
