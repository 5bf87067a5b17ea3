//! The log under a store, open for writing or for reading beside its owner.

use dalsegno_log::{FoundRecords, Log, LogView, ReadError, Reader, SegmentInfo, SegmentReader};

use crate::error::StoreError;

/// A log whose records can be read in order.
pub(crate) trait Records {
    /// Takes in what another process may have added.
    fn refresh(&self) -> Result<(), StoreError>;
    fn segments(&self) -> Vec<SegmentInfo>;
    fn read_from(&self, lsn: u64) -> Result<Reader, ReadError>;
    fn first_lsn(&self) -> u64;
    fn last_lsn(&self) -> u64;
}

/// The log of a store.
#[derive(Debug)]
pub(crate) enum Disk {
    /// This process owns the store.
    Owner(Log),
    /// Another one may.
    Reader(Box<LogView>),
}

impl Disk {
    /// The log to write to.
    pub fn log(&self) -> Result<&Log, StoreError> {
        match self {
            Disk::Owner(log) => Ok(log),
            Disk::Reader(_) => Err(StoreError::ReadOnly),
        }
    }

    pub fn open_segment(&self, number: u64) -> Result<SegmentReader, ReadError> {
        match self {
            Disk::Owner(log) => log.open_segment(number),
            Disk::Reader(view) => view.open_segment(number),
        }
    }
}

impl Records for Disk {
    fn refresh(&self) -> Result<(), StoreError> {
        match self {
            Disk::Owner(_) => Ok(()),
            Disk::Reader(view) => Ok(view.refresh().map(drop)?),
        }
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        match self {
            Disk::Owner(log) => log.segments(),
            Disk::Reader(view) => view.segments(),
        }
    }

    fn read_from(&self, lsn: u64) -> Result<Reader, ReadError> {
        match self {
            Disk::Owner(log) => log.read_from(lsn),
            Disk::Reader(view) => view.read_from(lsn),
        }
    }

    fn first_lsn(&self) -> u64 {
        match self {
            Disk::Owner(log) => log.first_lsn(),
            Disk::Reader(view) => view.first_lsn(),
        }
    }

    fn last_lsn(&self) -> u64 {
        match self {
            Disk::Owner(log) => log.last_lsn(),
            Disk::Reader(view) => view.last_lsn(),
        }
    }
}

/// The log of a store that is being opened.
impl Records for FoundRecords {
    fn refresh(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        self.segments()
    }

    fn read_from(&self, lsn: u64) -> Result<Reader, ReadError> {
        self.read_from(lsn)
    }

    fn first_lsn(&self) -> u64 {
        self.first_lsn()
    }

    fn last_lsn(&self) -> u64 {
        self.last_lsn()
    }
}
