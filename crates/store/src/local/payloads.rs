//! Reading payloads and their pieces: the recent part, then sealed segments through their indexes.
//!
//! Invariant: a piece is handed out only under the hash that it was asked for.

use std::sync::Arc;

use super::indexes::Handle;
use super::record::Record;
use super::{Inner, lock};
use crate::error::StoreError;
use crate::event::{Body, Payload};
use crate::hash::Hash;
use crate::payload;

impl Inner {
    /// The bytes of a payload.
    pub fn payload(&self, payload: &Payload) -> Result<Vec<u8>, StoreError> {
        match &payload.body {
            Body::Inline(bytes) => Ok(bytes.clone()),
            Body::Stored { root, bytes } => {
                self.refresh()?;
                let limit = self.options.limits.payload_bytes.max(*bytes);
                let fetch = |hash: &Hash| self.piece(hash);
                payload::assemble(root, *bytes, limit, fetch).map_err(|e| match e {
                    payload::AssembleError::Fetch { error, .. } => error,
                    other => {
                        let what = format!("the payload {root}");
                        StoreError::damaged(what, "its pieces", other.to_string())
                    }
                })
            }
        }
    }

    /// A piece as stored.
    pub fn piece(&self, hash: &Hash) -> Result<Arc<[u8]>, StoreError> {
        self.find_piece(hash)?.ok_or_else(|| {
            let what = format!("the payload piece {hash}");
            StoreError::damaged(what, "a record with it", "none")
        })
    }

    /// The same; `None` if it is not there.
    pub fn find_piece(&self, hash: &Hash) -> Result<Option<Arc<[u8]>>, StoreError> {
        let sealed = {
            let core = lock(&self.core);
            if let Some((_, bytes)) = core.recent.get_piece(hash) {
                return Ok(Some(Arc::clone(bytes)));
            }
            Arc::clone(&core.sealed)
        };
        for (at, info) in sealed.iter().enumerate().rev() {
            let found = self
                .indexes
                .ask(&self.disk, &sealed[..at], info, |handle| {
                    let Some(place) = handle.index.piece(hash)? else {
                        return Ok(Ok(None));
                    };
                    Ok(piece_at(handle, place, hash).map(Some))
                })?;
            if let Some(bytes) = found? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Whether a piece is stored, at this LSN or later, with everything below it.
    pub fn is_stored(&self, hash: &Hash, from: u64) -> Result<bool, StoreError> {
        let sealed = {
            let core = lock(&self.core);
            if let Some((lsn, _)) = core.recent.get_piece(hash) {
                return Ok(*lsn >= from);
            }
            Arc::clone(&core.sealed)
        };
        let young = sealed.iter().enumerate().rev();
        for (at, info) in young.take_while(|(_, info)| info.first_lsn >= from) {
            let found = self
                .indexes
                .ask(&self.disk, &sealed[..at], info, |h| h.index.piece(hash))?;
            if found.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn piece_at(handle: &Handle, place: u64, hash: &Hash) -> Result<Arc<[u8]>, StoreError> {
    let mut buffer = Vec::new();
    let log_record = handle.segment.record_at(place, &mut buffer)?;
    match Record::read(log_record.lsn, log_record.payload)? {
        Record::Piece(found, bytes) if found == *hash => Ok(Arc::from(bytes)),
        _ => {
            let what = format!("record {} of the log", log_record.lsn);
            let expected = format!("the piece {hash}");
            Err(StoreError::damaged(what, expected, "something else"))
        }
    }
}
