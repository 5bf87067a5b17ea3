//! What `verify` says about a log.

use std::ops::RangeInclusive;

use crate::Lsn;
use crate::error::Damage;
use crate::recovery::TornTail;

/// What [`crate::verify()`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Every segment, in order.
    pub segments: Vec<SegmentReport>,
    /// How many records are readable.
    pub records: u64,
    /// Bytes of these records' payloads.
    pub payload_bytes: u64,
    /// The first readable LSN; `None` if there is no record.
    pub first_lsn: Option<Lsn>,
    /// The last readable LSN.
    pub last_lsn: Option<Lsn>,
    /// How many records were removed on purpose, by rewriting their segments.
    pub removed_records: u64,
    /// How many records a repair gave up.
    pub lost_records: u64,
    /// Which ones these are, in order.
    pub lost: Vec<RangeInclusive<Lsn>>,
    /// A write that a crash interrupted, or that is under way. The next opening cuts it off.
    pub torn: Option<TornTail>,
    /// Everything that is not as it was written.
    pub damages: Vec<Damage>,
}

impl Report {
    /// Whether all bytes are as they were written. A torn tail does not count against it.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }
}

/// One segment in a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Its number.
    pub number: u64,
    /// How many records are readable in it.
    pub records: u64,
    /// The LSN of the first one.
    pub first_lsn: Option<Lsn>,
    /// The LSN of the last one.
    pub last_lsn: Option<Lsn>,
    /// The size of its file.
    pub file_bytes: u64,
    /// It has ended, and nothing is ever added to it.
    pub sealed: bool,
    /// How many of its records were removed on purpose.
    pub removed_records: u64,
    /// How many of its records a repair gave up.
    pub lost_records: u64,
}
