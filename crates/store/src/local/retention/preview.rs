//! What retention would do, without doing it.

use std::collections::BTreeSet;

use super::super::disk::Records;
use super::super::record::{self, Record};
use super::super::{Inner, lock};
use super::{Live, Retention};
use crate::error::StoreError;
use crate::name::StreamId;

/// What retention would come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WouldRetire {
    /// Runs that would go.
    pub runs: Vec<StreamId>,
    /// Runs that are gone already, and whose space an interrupted retention has not given back.
    pub unfinished: Vec<StreamId>,
    /// How many records of the log would go: events, and pieces of payloads that nobody else needs.
    pub records: u64,
    /// Their bytes. What the disk gets back is a little more: frames, and segments that are empty.
    pub bytes: u64,
}

impl Inner {
    pub(super) fn would_retire(&self, retention: &Retention) -> Result<WouldRetire, StoreError> {
        self.refresh()?;
        let runs = self.old_runs(retention)?;
        let unfinished = lock(&self.core).state.retiring.clone();
        let going: BTreeSet<StreamId> = runs.iter().chain(&unfinished).cloned().collect();
        let mut would = WouldRetire {
            runs,
            unfinished: unfinished.into_iter().collect(),
            ..WouldRetire::default()
        };
        if !going.is_empty() {
            (would.records, would.bytes) = self.looking_again(|| self.size_of(&going))?;
        }
        Ok(would)
    }

    /// The records that only these runs need, and their bytes.
    fn size_of(&self, going: &BTreeSet<StreamId>) -> Result<(u64, u64), StoreError> {
        let mut live = Live::default();
        let mut reader = self.disk.read_from(self.disk.first_lsn())?;
        while let Some(record) = reader.next_record()? {
            self.mark_event(record.lsn, record.payload, going, &mut live)?;
        }
        let (mut records, mut bytes) = (0, 0);
        let mut reader = self.disk.read_from(self.disk.first_lsn())?;
        while let Some(record) = reader.next_record()? {
            let goes = match Record::read(record.lsn, record.payload) {
                Ok(Record::Event(event)) => {
                    record::peek(record.lsn, event).is_ok_and(|peek| going.contains(&peek.stream))
                }
                Ok(Record::Piece(hash, _)) => !live.contains(&hash),
                Err(_) => false,
            };
            if goes {
                records += 1;
                bytes += record.payload.len() as u64;
            }
        }
        Ok((records, bytes))
    }
}
