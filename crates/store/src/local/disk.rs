//! The log under a store, open for writing or for reading beside its owner.

use dalsegno_log::{Log, LogView, ReadError, Reader, SegmentInfo, SegmentReader};

use crate::error::StoreError;

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

    pub fn segments(&self) -> Vec<SegmentInfo> {
        match self {
            Disk::Owner(log) => log.segments(),
            Disk::Reader(view) => view.segments(),
        }
    }

    pub fn open_segment(&self, number: u64) -> Result<SegmentReader, ReadError> {
        match self {
            Disk::Owner(log) => log.open_segment(number),
            Disk::Reader(view) => view.open_segment(number),
        }
    }

    pub fn read_from(&self, lsn: u64) -> Result<Reader, ReadError> {
        match self {
            Disk::Owner(log) => log.read_from(lsn),
            Disk::Reader(view) => view.read_from(lsn),
        }
    }

    pub fn first_lsn(&self) -> u64 {
        match self {
            Disk::Owner(log) => log.first_lsn(),
            Disk::Reader(view) => view.first_lsn(),
        }
    }

    pub fn last_lsn(&self) -> u64 {
        match self {
            Disk::Owner(log) => log.last_lsn(),
            Disk::Reader(view) => view.last_lsn(),
        }
    }
}
