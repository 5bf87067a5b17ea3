//! The hashes of a chain, computed while its events are being read.
//!
//! Invariant: the hashes are those of exactly the bytes that were given, in that order.

use crate::hash::Hash;

/// Calls `read`, which is to give the bytes of each event, about so many, to the function that it
/// gets. Returns the hash after each of them, the first from `before`.
pub(crate) fn hashes<E>(
    before: Hash,
    events: usize,
    read: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
) -> Result<Vec<Hash>, E> {
    let mut chain = Chain::new(before, events);
    read(&mut |event| chain.take(event))?;
    Ok(chain.hashes)
}

struct Chain {
    hash: Hash,
    hashes: Vec<Hash>,
}

impl Chain {
    fn new(before: Hash, events: usize) -> Chain {
        Chain {
            hash: before,
            hashes: Vec::with_capacity(events),
        }
    }

    fn take(&mut self, event: &[u8]) {
        self.hash = self.hash.chain(event);
        self.hashes.push(self.hash);
    }
}
