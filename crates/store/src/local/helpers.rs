//! Helpers: what others keep beside the log because it would take long to make again.
//!
//! Invariant: a helper is whole or absent. Whether it fits the log is for its reader to see.

use super::disk::Disk;
use super::{Inner, lock};
use crate::error::StoreError;

/// So large a helper is not read.
const LIMIT_BYTES: u64 = 64 << 30;
const ENDING: &str = ".helper";

impl Inner {
    /// As [`crate::Store::keep_helper`].
    pub fn keep_helper(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let file = file_name(name)?;
        if !matches!(self.disk, Disk::Owner(_)) || lock(&self.core).closed {
            return Ok(());
        }
        let _one_at_a_time = lock(&self.helping);
        self.folder.place(&self.folder.helpers(), &file, bytes)
    }

    /// As [`crate::Store::helper`].
    pub fn helper(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.folder.helpers().join(file_name(name)?);
        match self.folder.read(&path, LIMIT_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            // Who cannot read it makes it again.
            Err(_) => Ok(None),
        }
    }

    /// As [`crate::Store::drop_helpers`].
    pub fn drop_helpers(&self, prefix: &str) -> Result<(), StoreError> {
        file_name(prefix)?;
        self.disk.log()?;
        let _one_at_a_time = lock(&self.helping);
        let dir = self.folder.helpers();
        let mut names = self.folder.list(&dir)?;
        // What a crash left half made has the same words in it.
        names.retain(|name| name.starts_with(prefix));
        self.folder.remove(&dir, &names)
    }
}

fn file_name(name: &str) -> Result<String, StoreError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match name.chars().find(|c| !is_plain(*c)) {
        Some(c) => Err(crate::NameError::Character(c).into()),
        None if name.is_empty() => Err(crate::NameError::Empty.into()),
        None => Ok(format!("{name}{ENDING}")),
    }
}
