//! What the log should hold: the oracle that every reopened log is compared with.
//!
//! The promises, as checks:
//!
//! | promise | check |
//! |---|---|
//! | nothing acknowledged is lost | the recovered log reaches at least `durable` |
//! | in order, byte for byte | every record read equals the one appended under its LSN |
//! | nothing appears that was not appended | no LSN above the last one given out |
//! | what was not acknowledged is there as a prefix or not at all | LSNs are dense up to the last one, but for what was removed |
//! | a batch is whole or absent | the last LSN read is the last of its batch |
//! | what recovery reported stays | after a reopen, everything found counts as durable |
//! | what was removed on purpose stays away, and nothing else does | a record is absent if it was removed; if that was interrupted, it may be either |
//! | a drop is for good, and takes only what it may | the first LSN never falls, and never passes the LSN given |

use std::collections::VecDeque;

use dalsegno_log::Lsn;

/// A record that was appended.
#[derive(Clone, Debug)]
struct Appended {
    payload: Vec<u8>,
    ends_batch: bool,
    presence: Presence,
}

/// Whether a record has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    There,
    /// Its removal was tried, and did not end well.
    Either,
    Removed,
}

/// The records the log was given, and what it promised about them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Records from `base + 1` on.
    records: VecDeque<Appended>,
    base: Lsn,
    /// Everything up to here was acknowledged.
    pub durable: Lsn,
    /// The first LSN of the group acknowledged last.
    pub last_group: Lsn,
    /// Records below this may be gone.
    pub may_be_dropped: Lsn,
    /// Records below this must be gone.
    pub is_dropped: Lsn,
}

impl Model {
    /// An empty log.
    pub fn new() -> Model {
        Model {
            last_group: 1,
            ..Model::default()
        }
    }

    /// The last LSN given out.
    pub fn last(&self) -> Lsn {
        self.base + self.records.len() as Lsn
    }

    /// A batch was accepted under these LSNs.
    pub fn appended(&mut self, first: Lsn, payloads: Vec<Vec<u8>>) -> Result<(), String> {
        if first != self.last() + 1 {
            return Err(format!("LSN {first} given out after {}", self.last()));
        }
        let count = payloads.len();
        for (i, payload) in payloads.into_iter().enumerate() {
            self.records.push_back(Appended {
                payload,
                ends_batch: i + 1 == count,
                presence: Presence::There,
            });
        }
        Ok(())
    }

    /// The log says that it is durable up to here.
    pub fn acknowledged(&mut self, lsn: Lsn) -> Result<(), String> {
        if lsn > self.last() {
            return Err(format!("LSN {lsn} acknowledged, {} appended", self.last()));
        }
        if lsn < self.durable {
            return Err(format!("durable fell from {} to {lsn}", self.durable));
        }
        if lsn > self.durable {
            self.last_group = self.durable + 1;
            self.durable = lsn;
        }
        Ok(())
    }

    fn get(&self, lsn: Lsn) -> Option<&Appended> {
        let index = lsn.checked_sub(self.base + 1)?;
        self.records.get(index as usize)
    }

    fn set(&mut self, lsns: &[Lsn], presence: Presence) {
        for lsn in lsns {
            let index = lsn.checked_sub(self.base + 1);
            let record = index.and_then(|index| self.records.get_mut(index as usize));
            if let Some(record) = record.filter(|record| record.presence != Presence::Removed) {
                record.presence = presence;
            }
        }
    }

    /// These records are about to be removed: until that is done, they may be there or not.
    pub fn removing(&mut self, lsns: &[Lsn]) {
        self.set(lsns, Presence::Either);
    }

    /// These records were removed, durably.
    pub fn removed(&mut self, lsns: &[Lsn]) {
        self.set(lsns, Presence::Removed);
    }

    /// A record may be missing, because it was removed or may have been.
    fn may_be_missing(&self, lsn: Lsn) -> bool {
        let record = self.get(lsn);
        record.is_some_and(|record| record.presence != Presence::There)
    }

    /// Compares one record with what was appended.
    pub fn check_record(&self, lsn: Lsn, payload: &[u8]) -> Result<(), String> {
        if lsn <= self.base {
            return Ok(());
        }
        match self.get(lsn) {
            None => Err(format!("LSN {lsn} read, but never appended")),
            Some(appended) if appended.payload != payload => {
                Err(format!("LSN {lsn} has other bytes than were appended"))
            }
            Some(appended) if appended.presence == Presence::Removed => {
                Err(format!("LSN {lsn} is there, although it was removed"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Compares what was read of a part of the log, from `first` to `last`.
    pub fn check_part(&self, first: Lsn, last: Lsn, read: &[(Lsn, Vec<u8>)]) -> Result<(), String> {
        let mut read = read.iter().peekable();
        for due in first..=last {
            match read.next_if(|(lsn, _)| *lsn == due) {
                Some((lsn, payload)) => self.check_record(*lsn, payload)?,
                None if due <= self.base || self.may_be_missing(due) => {}
                None => return Err(format!("LSN {due} is missing")),
            }
        }
        match read.next() {
            Some((lsn, _)) => Err(format!("LSN {lsn} read, in a part from {first} to {last}")),
            None => Ok(()),
        }
    }

    /// What was read is right; says which records up to `last` should be there and are not.
    pub fn missing(&self, read: &[(Lsn, Vec<u8>)], last: Lsn) -> Result<Vec<Lsn>, String> {
        let mut missing = Vec::new();
        let mut read = read.iter().peekable();
        for due in self.base + 1..=last {
            while read.next_if(|(lsn, _)| *lsn < due).is_some() {}
            match read.next_if(|(lsn, _)| *lsn == due) {
                Some((lsn, payload)) => self.check_record(*lsn, payload)?,
                None if due < self.may_be_dropped || self.may_be_missing(due) => {}
                None => missing.push(due),
            }
        }
        Ok(missing)
    }

    /// Compares what was read with what should be there. `least` is the LSN that must be reached.
    pub fn check(&self, first: Lsn, read: &[(Lsn, Vec<u8>)], least: Lsn) -> Result<(), String> {
        if first > self.may_be_dropped.max(1) {
            return Err(format!(
                "the log begins at {first}, but nothing from {} on was dropped",
                self.may_be_dropped.max(1)
            ));
        }
        if first < self.is_dropped {
            return Err(format!(
                "the log begins at {first}, although it had begun at {}",
                self.is_dropped
            ));
        }
        let mut next = first;
        for (lsn, payload) in read {
            while next < *lsn && self.may_be_missing(next) {
                next += 1;
            }
            if *lsn != next {
                return Err(format!("LSN {lsn} read where {next} was due"));
            }
            next += 1;
            self.check_record(*lsn, payload)?;
        }
        while self.may_be_missing(next) {
            next += 1;
        }
        let last = next - 1;
        if last < least {
            return Err(format!(
                "LSN {least} was acknowledged, the log ends at {last}"
            ));
        }
        if let Some(appended) = self.get(last)
            && !appended.ends_batch
        {
            return Err(format!("the log ends at {last}, in the middle of a batch"));
        }
        Ok(())
    }

    /// After a recovery: what was found is durable, what was not found never was.
    pub fn recovered(&mut self, first: Lsn, last: Lsn) {
        self.records
            .truncate(last.saturating_sub(self.base) as usize);
        self.durable = last;
        // A mark follows it in a later group: from now on its loss must be seen.
        self.last_group = last + 1;
        self.is_dropped = self.is_dropped.max(first);
        while self.base + 1 < first && self.records.pop_front().is_some() {
            self.base += 1;
        }
    }
}
