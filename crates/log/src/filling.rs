//! The group that is filling: records that have an LSN and wait in memory for the disk.
//!
//! Invariant: LSNs are given out in the order in which the frames stand in the buffer, without a
//! gap. The lock around this is held for a copy, never for the disk.

use std::time::Instant;

use crate::Lsn;
use crate::frame::{self, Kind, LAST_OF_BATCH};
use crate::stats::Lag;

/// Frames without a place yet, and how many.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub bytes: Vec<u8>,
    pub records: u64,
    /// When its first record was appended.
    pub since: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Filling {
    pub group: Group,
    pub next_lsn: Lsn,
    pub closed: bool,
    /// Size and age of the group that the disk has now.
    in_flight: Lag,
    in_flight_since: Option<Instant>,
}

impl Filling {
    pub fn new(next_lsn: Lsn) -> Filling {
        Filling {
            group: Group::default(),
            next_lsn,
            closed: false,
            in_flight: Lag::default(),
            in_flight_since: None,
        }
    }

    /// Adds a batch; `crcs` are those of its records. Returns the LSN of the first one.
    pub fn push<R: AsRef<[u8]>>(&mut self, records: &[R], crcs: &[u32]) -> Lsn {
        let first = self.next_lsn;
        if self.group.records == 0 {
            self.group.since = Some(Instant::now());
        }
        for (i, (record, crc)) in records.iter().zip(crcs).enumerate() {
            let last = i + 1 == records.len();
            let flags = if last { LAST_OF_BATCH } else { 0 };
            let bytes = &mut self.group.bytes;
            frame::encode(
                bytes,
                Kind::Record,
                flags,
                self.next_lsn,
                record.as_ref(),
                *crc,
            );
            self.next_lsn += 1;
            self.group.records += 1;
        }
        first
    }

    /// Hands the group over to be written, leaving `empty` in its place. Also says the last LSN in
    /// it.
    pub fn take(&mut self, empty: &mut Group) -> Lsn {
        empty.bytes.clear();
        empty.records = 0;
        empty.since = None;
        std::mem::swap(&mut self.group, empty);
        self.in_flight = Lag {
            records: empty.records,
            bytes: empty.bytes.len() as u64,
            age: None,
        };
        self.in_flight_since = empty.since;
        self.next_lsn - 1
    }

    /// The group that was taken is durable.
    pub fn landed(&mut self) {
        self.in_flight = Lag::default();
        self.in_flight_since = None;
    }

    /// The group that was taken could not be written and nothing of it was: it goes back in front.
    pub fn give_back(&mut self, group: &mut Group) {
        group.bytes.extend_from_slice(&self.group.bytes);
        group.records += self.group.records;
        group.since = group.since.or(self.group.since);
        std::mem::swap(&mut self.group, group);
        self.landed();
    }

    /// Since when the oldest record waits that is not durable.
    pub fn oldest(&self) -> Option<Instant> {
        self.in_flight_since.or(self.group.since)
    }

    pub fn lag(&self) -> Lag {
        Lag {
            records: self.in_flight.records + self.group.records,
            bytes: self.in_flight.bytes + self.group.bytes.len() as u64,
            age: self.oldest().map(|since| since.elapsed()),
        }
    }
}
