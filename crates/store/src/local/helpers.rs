//! Helpers: what others keep beside the log because it would take long to make again.
//!
//! Each is a file, named after the kind of its stream, the first 16 digits of the hash of the stream's
//! name, and its own name.
//!
//! Invariants: a helper is whole or absent. Whether it fits the log is for its reader to see. What is
//! kept was begun after the helpers of its stream were last dropped.

use std::collections::HashMap;

use super::disk::Disk;
use super::{Inner, lock};
use crate::error::StoreError;
use crate::hash::Hash;
use crate::helper::{NewHelper, check_helper_name};
use crate::name::StreamId;

/// So large a helper is neither kept nor read.
const LIMIT_BYTES: u64 = 64 << 30;
const ENDING: &str = ".helper";

/// What is known of helpers since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Helping {
    /// How often those of a stream were dropped.
    drops: HashMap<StreamId, u64>,
    /// What was kept, by file, and the version that it is of.
    kept: HashMap<String, u64>,
}

impl Inner {
    /// As [`crate::Store::begin_helpers`].
    pub fn begin_helpers(&self, stream: &StreamId) -> Option<u64> {
        let keeps = matches!(self.disk, Disk::Owner(_)) && !lock(&self.core).closed;
        let drops = lock(&self.helping).drops.get(stream).copied();
        keeps.then(|| drops.unwrap_or(0))
    }

    /// As [`crate::Store::keep_helper`].
    pub fn keep_helper(
        &self,
        stream: &StreamId,
        begun: u64,
        helper: &NewHelper,
    ) -> Result<bool, StoreError> {
        let file = file_name(stream, &helper.name)?;
        // Held until it is written: nobody may drop it, or keep another one, in between.
        let mut helping = lock(&self.helping);
        let drops = helping.drops.get(stream).copied().unwrap_or(0);
        let is_newer_there = helping.kept.get(&file).is_some_and(|of| *of > helper.of);
        let is_too_large = helper.bytes.len() as u64 > LIMIT_BYTES;
        let keeps = matches!(self.disk, Disk::Owner(_)) && !lock(&self.core).closed;
        if !keeps || begun != drops || is_newer_there || is_too_large {
            return Ok(false);
        }
        self.folder
            .place(&self.folder.helpers(), &file, &helper.bytes)?;
        helping.kept.insert(file, helper.of);
        Ok(true)
    }

    /// As [`crate::Store::helper`].
    pub fn helper(&self, stream: &StreamId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.folder.helpers().join(file_name(stream, name)?);
        match self.folder.read(&path, LIMIT_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            // Who cannot read it makes it again.
            Err(_) => Ok(None),
        }
    }

    /// As [`crate::Store::drop_helpers`].
    pub fn drop_helpers(&self, stream: &StreamId) -> Result<(), StoreError> {
        self.disk.log()?;
        let prefix = prefix(stream);
        let mut helping = lock(&self.helping);
        *helping.drops.entry(stream.clone()).or_default() += 1;
        helping.kept.retain(|file, _| !file.starts_with(&prefix));
        let dir = self.folder.helpers();
        let mut names = self.folder.list(&dir)?;
        // What a crash left half made has the same words in it.
        names.retain(|name| name.starts_with(&prefix));
        self.folder.remove(&dir, &names)
    }
}

/// What the files of all helpers of a stream begin with.
fn prefix(stream: &StreamId) -> String {
    let hash = Hash::of(stream.to_string().as_bytes()).to_string();
    let digits: String = hash.chars().take(16).collect();
    format!("{}-{digits}-", stream.kind())
}

fn file_name(stream: &StreamId, name: &str) -> Result<String, StoreError> {
    check_helper_name(name)?;
    Ok(format!("{}{name}{ENDING}", prefix(stream)))
}
