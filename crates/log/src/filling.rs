//! The group that is filling: records that have an LSN and wait in memory for the disk.
//!
//! Invariant: LSNs are given out in the order in which the frames stand in the buffer, without a
//! gap. The lock around this is held for a copy, never for the disk.

use std::time::Instant;

use crate::Lsn;
use crate::frame::{self, Kind, LAST_OF_BATCH};
use crate::stats::Lag;

/// Frames without a place yet, and how many. Never more than fit into a segment.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub bytes: Vec<u8>,
    pub records: u64,
    /// The LSN of its last record.
    pub last_lsn: Lsn,
    /// When its first record was appended.
    since: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Filling {
    group: Group,
    /// A group that the disk had no room for. It comes before the one that is filling.
    returned: Option<Group>,
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
            returned: None,
            next_lsn,
            closed: false,
            in_flight: Lag::default(),
            in_flight_since: None,
        }
    }

    /// Bytes that have gathered since the last group was taken.
    pub fn bytes(&self) -> usize {
        self.group.bytes.len()
    }

    /// Adds a batch; `crcs` are those of its records. Returns the LSN of the first one.
    pub fn push(&mut self, records: &[&[u8]], crcs: &[u32]) -> Lsn {
        let first = self.next_lsn;
        if self.group.records == 0 {
            self.group.since = Some(Instant::now());
        }
        for (i, (record, crc)) in records.iter().zip(crcs).enumerate() {
            let last = i + 1 == records.len();
            let flags = if last { LAST_OF_BATCH } else { 0 };
            let bytes = &mut self.group.bytes;
            let lsn = self.next_lsn;
            frame::encode(bytes, Kind::Record, flags, lsn, record, *crc);
            self.group.last_lsn = lsn;
            self.group.records += 1;
            self.next_lsn += 1;
        }
        first
    }

    /// Hands the next group over to be written. `group` gives its buffer in exchange.
    pub fn take(&mut self, group: &mut Group) {
        match self.returned.take() {
            Some(returned) => *group = returned,
            None => {
                group.bytes.clear();
                group.records = 0;
                group.since = None;
                std::mem::swap(&mut self.group, group);
            }
        }
        self.in_flight = Lag {
            records: group.records,
            bytes: group.bytes.len() as u64,
            age: None,
        };
        self.in_flight_since = group.since;
    }

    /// The group that was taken is durable.
    pub fn landed(&mut self) {
        self.in_flight = Lag::default();
        self.in_flight_since = None;
    }

    /// The group that was taken could not be written, and nothing of it was: it is the next again.
    pub fn give_back(&mut self, group: &mut Group) {
        self.returned = Some(std::mem::take(group));
        self.landed();
    }

    fn returned_since(&self) -> Option<Instant> {
        self.returned.as_ref().and_then(|group| group.since)
    }

    /// Since when the oldest record waits that is not durable.
    pub fn oldest(&self) -> Option<Instant> {
        self.in_flight_since
            .or(self.returned_since())
            .or(self.group.since)
    }

    pub fn lag(&self) -> Lag {
        let mut lag = self.in_flight;
        for group in self.returned.iter().chain([&self.group]) {
            lag.records += group.records;
            lag.bytes += group.bytes.len() as u64;
        }
        lag.age = self.oldest().map(|since| since.elapsed());
        lag
    }
}
