//! What the log should hold: the oracle that every reopened log is compared with.
//!
//! The promises, as checks:
//!
//! | promise | check |
//! |---|---|
//! | nothing acknowledged is lost | the recovered log reaches at least `durable` |
//! | in order, byte for byte | every record read equals the one appended under its LSN |
//! | nothing appears that was not appended | no LSN above the last one given out |
//! | what was not acknowledged is there as a prefix or not at all | LSNs are dense up to the last one |
//! | a batch is whole or absent | the last LSN read is the last of its batch |
//! | what recovery reported stays | after a reopen, everything found counts as durable |
//! | a drop is for good, and takes only what it may | the first LSN never falls, and never passes the LSN given |

use std::collections::VecDeque;

use dalsegno_log::Lsn;

/// A record that was appended.
#[derive(Clone, Debug)]
struct Appended {
    payload: Vec<u8>,
    ends_batch: bool,
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
            if *lsn != next {
                return Err(format!("LSN {lsn} read where {next} was due"));
            }
            next += 1;
            if *lsn <= self.base {
                continue;
            }
            match self.records.get((lsn - self.base - 1) as usize) {
                None => return Err(format!("LSN {lsn} read, but never appended")),
                Some(appended) if appended.payload != *payload => {
                    return Err(format!("LSN {lsn} has other bytes than were appended"));
                }
                Some(_) => {}
            }
        }
        let last = next - 1;
        if last < least {
            return Err(format!(
                "LSN {least} was acknowledged, the log ends at {last}"
            ));
        }
        if last > self.base
            && let Some(appended) = self.records.get((last - self.base - 1) as usize)
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
