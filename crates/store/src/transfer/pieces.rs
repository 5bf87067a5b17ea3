//! The pieces of payloads that are to be taken elsewhere: each once, children first.
//!
//! Invariant: a piece is handed out only if it is what its hash says, and after everything below it.

use std::collections::HashMap;

use crate::error::StoreError;
use crate::event::{Body, Event};
use crate::hash::Hash;
use crate::payload::{self, Child, Piece};
use crate::store::Store;

/// So many are asked for at once.
const AT_ONCE: usize = 256;

/// Pieces that the payloads of an event need, but for those that are there already; in the order in
/// which they have to be stored.
pub(super) async fn of_event(
    store: &dyn Store,
    event: &Event,
    is_there: impl Fn(&Hash) -> bool,
) -> Result<Vec<Piece>, StoreError> {
    let mut found: HashMap<Hash, (Vec<u8>, Vec<Child>)> = HashMap::new();
    let mut ordered = Vec::new();
    for payload in event.payloads() {
        if let Body::Stored { root, .. } = &payload.body {
            fetch(store, root, &is_there, &mut found).await?;
            take(root, &mut found, &mut ordered);
        }
    }
    Ok(ordered)
}

/// Reads what is below a root, level by level.
async fn fetch(
    store: &dyn Store,
    root: &Hash,
    is_there: &impl Fn(&Hash) -> bool,
    found: &mut HashMap<Hash, (Vec<u8>, Vec<Child>)>,
) -> Result<(), StoreError> {
    let mut level = vec![*root];
    let mut depth = 0;
    loop {
        level.retain(|hash| !is_there(hash) && !found.contains_key(hash));
        level.sort_unstable_by_key(|hash| *hash.as_bytes());
        level.dedup();
        if level.is_empty() {
            return Ok(());
        }
        if depth > payload::MAX_DEPTH {
            return Err(damaged(&level[0], "one that lies too deep"));
        }
        depth += 1;
        let mut below = Vec::new();
        for some in level.chunks(AT_ONCE) {
            for (hash, bytes) in some.iter().zip(store.pieces(some).await?) {
                let opened = payload::under(hash, &bytes);
                let (_, children) = opened.map_err(|e| damaged(hash, &e.to_string()))?;
                below.extend(children.iter().map(|child| child.hash));
                found.insert(*hash, (bytes, children));
            }
        }
        level = below;
    }
}

/// Takes a piece and all below it out of what was found, children first. Ends, because a piece is
/// named by the hash of what is in it, and so none is below itself.
fn take(hash: &Hash, found: &mut HashMap<Hash, (Vec<u8>, Vec<Child>)>, ordered: &mut Vec<Piece>) {
    // Not found: it is there already, or came before.
    let Some((bytes, children)) = found.remove(hash) else {
        return;
    };
    for child in &children {
        take(&child.hash, found, ordered);
    }
    ordered.push(Piece { hash: *hash, bytes });
}

fn damaged(hash: &Hash, found: &str) -> StoreError {
    StoreError::damaged(format!("the payload piece {hash}"), "a piece", found)
}
