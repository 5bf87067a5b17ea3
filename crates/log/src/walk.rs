//! Opening a log for writing, first half: find where it ends. Changes nothing.
//!
//! Steps 1 and 2 of `recovery.rs`. What is found here can be read at once, while the second half
//! makes certain that it is on disk; it must not be given out before that has returned.

use std::io;
use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::cursor::Expect;
use crate::error::{Damage, IoFailure, OpenError};
use crate::fs::{Fs, OpenMode};
use crate::layout::{self, BEFORE_THE_FIRST, Scan};
use crate::rules::{Mutant, Rule};
use crate::segment::{self, SegmentSizes};
use crate::sync::Arc;

pub(crate) struct Opening {
    pub fs: Arc<dyn Fs>,
    pub dir: PathBuf,
    pub sizes: SegmentSizes,
    pub mutant: Mutant,
}

/// A log as read, before anything was changed.
#[derive(Debug)]
pub(crate) struct Walked {
    /// All segment files there are, ascending.
    pub numbers: Vec<u64>,
    /// `None` if there is no segment.
    pub end: Option<WalkedEnd>,
}

#[derive(Debug)]
pub(crate) struct WalkedEnd {
    /// The last segment that was begun.
    pub scan: Scan,
    /// The one before, if the group that was to open that segment is torn.
    pub before: Option<Scan>,
    /// The last segment there is.
    pub newest: u64,
    /// The oldest segment that belongs to the log.
    pub oldest: u64,
    /// Number and first LSN of every segment that has a `Start`, ascending.
    pub started: Vec<(u64, Lsn)>,
}

impl WalkedEnd {
    /// The segment that was scanned takes the next group: settling changes none of the records.
    pub fn goes_on(&self) -> bool {
        self.scan.first_lsn.is_some() && !self.scan.sealed()
    }
}

impl Opening {
    /// Reads. Any damage that is seen here ends it.
    pub fn walk(&self) -> Result<Walked, OpenError> {
        let numbers = layout::numbers(self.fs.as_ref(), &self.dir)?;
        let end = match layout::newest_run(&numbers) {
            Some((lowest, newest)) => Some(self.walk_to_end(&numbers, lowest, newest)?),
            None => None,
        };
        Ok(Walked { numbers, end })
    }

    /// `lowest` to `newest` are the files there are; some at the lower end may have been dropped.
    fn walk_to_end(
        &self,
        numbers: &[u64],
        lowest: u64,
        newest: u64,
    ) -> Result<WalkedEnd, OpenError> {
        let (last, mut scan) = self.last_begun(lowest, newest)?;
        let mut before = None;
        let torn_start = scan.first_lsn.is_none() && !self.is_whole(&scan);
        if torn_start && last > lowest {
            // The group that was to open this segment is torn. The one before must be sealed.
            let sealed = self.scan(last - 1, None)?;
            if !sealed.sealed() {
                return Err(self.damaged(sealed.damage()));
            }
            scan = self.scan(last, sealed.at_end)?;
            before = Some(sealed);
        } else if scan.first_lsn.is_none() && last != 1 {
            return Err(self.damaged(scan.damage()));
        }
        let oldest = before.as_ref().map_or(scan.oldest, |sealed| sealed.oldest);
        if let Some(damage) = layout::gap(numbers, oldest) {
            return Err(self.damaged(damage));
        }
        let started = self.read_starts(scan.header.log_id, oldest, last, newest)?;
        let expect = scan.at_end.unwrap_or(BEFORE_THE_FIRST);
        if let Some(damage) = layout::beyond_reach(last, scan.end, &expect) {
            return Err(self.damaged(damage));
        }
        Ok(WalkedEnd {
            scan,
            before,
            newest,
            oldest,
            started,
        })
    }

    /// The last segment that anything was written to. Behind it there may be a prepared one, which
    /// is not read whole here: a segment is begun only after the one before it was sealed.
    fn last_begun(&self, lowest: u64, newest: u64) -> Result<(u64, Scan), OpenError> {
        let mut last = newest;
        while last > lowest && !self.starts_with_content(last)? {
            last -= 1;
        }
        let scan = self.scan_from_its_start(last)?;
        if scan.sealed() {
            // The first write to the next one may be torn, and its first bytes among what is missing.
            for number in (last + 1..=newest).rev() {
                if self.has_content(number)? {
                    return Ok((number, self.scan_from_its_start(number)?));
                }
            }
        }
        Ok((last, scan))
    }

    /// The segments after the last one that was begun are as they were prepared, or this is damage.
    pub fn check_prepared(&self, last: u64, newest: u64) -> Result<(), OpenError> {
        for number in (last + 1..=newest).rev() {
            if self.has_content(number)? {
                // It was begun, so the one before it was sealed, durably.
                let before = self.scan(number - 1, None)?;
                return Err(self.damaged(before.damage()));
            }
        }
        Ok(())
    }

    /// The first LSN of every segment that has a `Start`, which is every one before `last`.
    fn read_starts(
        &self,
        log_id: u64,
        oldest: u64,
        last: u64,
        newest: u64,
    ) -> Result<Vec<(u64, Lsn)>, OpenError> {
        let mut started: Vec<(u64, Lsn)> = Vec::new();
        for number in oldest..=newest {
            let (file, header) =
                layout::open_segment(self.fs.as_ref(), &self.dir, number, OpenMode::Read)?;
            if header.log_id != log_id {
                let damage = layout::foreign(number, log_id, header.log_id);
                return Err(self.damaged(damage));
            }
            let path = segment::path(&self.dir, number);
            let file_bytes = self.fail("measure", &path, file.len())?;
            if number > last
                && let Some(damage) = layout::cut_short(&header, file_bytes, segment::HEADER_BYTES)
            {
                return Err(self.damaged(damage));
            }
            let start = layout::first_lsn(file, header, self.mutant);
            match self.fail("read", &path, start)? {
                Some(lsn) => layout::add_started(&mut started, number, lsn)
                    .map_err(|damage| self.damaged(damage))?,
                None if number < last => {
                    let start = self.scan(number, None)?;
                    return Err(self.damaged(start.damage()));
                }
                None => {}
            }
        }
        Ok(started)
    }

    fn scan_from_its_start(&self, number: u64) -> Result<Scan, OpenError> {
        self.scan(number, (number == 1).then_some(BEFORE_THE_FIRST))
    }

    fn starts_with_content(&self, number: u64) -> Result<bool, OpenError> {
        let (file, header) =
            layout::open_segment(self.fs.as_ref(), &self.dir, number, OpenMode::Read)?;
        let path = segment::path(&self.dir, number);
        let begins = layout::starts_with_content(file.as_ref(), header.rewritten);
        self.fail("read", &path, begins)
    }

    fn has_content(&self, number: u64) -> Result<bool, OpenError> {
        let (file, header) =
            layout::open_segment(self.fs.as_ref(), &self.dir, number, OpenMode::Read)?;
        let path = segment::path(&self.dir, number);
        let rest = layout::has_content(file.as_ref(), header.rewritten);
        self.fail("read", &path, rest)
    }

    fn scan(&self, number: u64, expect: Option<Expect>) -> Result<Scan, OpenError> {
        let (file, header) =
            layout::open_segment(self.fs.as_ref(), &self.dir, number, OpenMode::Write)?;
        let path = segment::path(&self.dir, number);
        self.fail(
            "read",
            &path,
            layout::scan(file, header, expect, self.mutant),
        )
    }

    /// Whether the segment was complete when it got its name, so that nothing in it is torn.
    pub fn is_whole(&self, scan: &Scan) -> bool {
        scan.header.rewritten && !self.mutant.breaks(Rule::RewrittenIsWhole)
    }

    pub fn fail<T>(
        &self,
        operation: &'static str,
        path: &Path,
        result: io::Result<T>,
    ) -> Result<T, OpenError> {
        result.map_err(|e| IoFailure::new(operation, path, e).into())
    }

    pub fn damaged(&self, damage: Damage) -> OpenError {
        OpenError::Damage {
            dir: self.dir.clone(),
            damage,
        }
    }
}
