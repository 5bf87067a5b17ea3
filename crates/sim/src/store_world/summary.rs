//! What lives of a store went through, in numbers.

use crate::campaign::Total;

/// What a life went through, summed up over lives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Power cuts.
    pub power_cuts: u64,
    /// Kills that left the cache alone.
    pub kills: u64,
    /// Openings that succeeded.
    pub recoveries: u64,
    /// Openings of copies of the disk, damaged or not.
    pub copies: u64,
    /// Torn tails that were cut off.
    pub torn_tails: u64,
    /// Operations that failed because the disk did.
    pub failures: u64,
    /// Bits flipped.
    pub flipped_bits: u64,
    /// Events appended.
    pub appended: u64,
    /// Appends refused, rightly.
    pub refused: u64,
    /// Events acknowledged.
    pub acknowledged: u64,
    /// Runs that ended.
    pub ended_runs: u64,
    /// Runs that were retired.
    pub retired_runs: u64,
    /// Snapshots that were there at openings.
    pub snapshots: u64,
    /// Segments that were there at openings.
    pub segments: u64,
    /// Letters sent.
    pub letters: u64,
    /// Letters that became events of their streams.
    pub letters_taken: u64,
    /// Letters that their stream refused.
    pub letters_refused: u64,
    /// Leases taken.
    pub leases: u64,
    /// Exports that succeeded.
    pub exports: u64,
    /// Imports that succeeded.
    pub imports: u64,
    /// Repairs that had something to do.
    pub repairs: u64,
    /// File system operations.
    pub operations: u64,
}

impl Total for Summary {
    fn add(&mut self, other: &Summary) {
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.recoveries += other.recoveries;
        self.copies += other.copies;
        self.torn_tails += other.torn_tails;
        self.failures += other.failures;
        self.flipped_bits += other.flipped_bits;
        self.appended += other.appended;
        self.refused += other.refused;
        self.acknowledged += other.acknowledged;
        self.ended_runs += other.ended_runs;
        self.retired_runs += other.retired_runs;
        self.snapshots += other.snapshots;
        self.segments += other.segments;
        self.letters += other.letters;
        self.letters_taken += other.letters_taken;
        self.letters_refused += other.letters_refused;
        self.leases += other.leases;
        self.exports += other.exports;
        self.imports += other.imports;
        self.repairs += other.repairs;
        self.operations += other.operations;
    }
}
