//! The hashes of a chain, computed while its events are still being read.
//!
//! Each hash takes the one before, so they come one after the other, and for a long run they take
//! as long as everything else together. From many events on, a second thread computes them while
//! reading goes on.
//!
//! Invariant: the hashes are those of exactly the bytes that were given, in that order, whichever
//! thread computes them.

use std::mem;
use std::panic;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use crate::hash::Hash;

/// With fewer events, a thread costs more than it saves.
const MANY_EVENTS: usize = 2000;
/// Small, because until it comes the thread has nothing to do.
const FIRST_BATCH_BYTES: usize = 8 * 1024;
const BATCH_BYTES: usize = 64 * 1024;
/// If so many are not done yet, reading waits: they must not fill the memory.
const WAITING_BATCHES: usize = 32;

/// Calls `read`, which is to give the bytes of each event, about so many, to the function that it
/// gets. Returns the hash after each of them, the first from `before`.
pub(crate) fn hashes<E>(
    before: Hash,
    events: usize,
    read: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
) -> Result<Vec<Hash>, E> {
    if events < MANY_EVENTS {
        return hashes_here(before, events, read);
    }
    thread::scope(|scope| {
        let (sender, batches) = sync_channel(WAITING_BATCHES);
        let spawned = thread::Builder::new()
            .name("dalsegno-chain".into())
            .spawn_scoped(scope, move || hashes_of(before, events, &batches));
        let Ok(thread) = spawned else {
            // The machine gives no more of them.
            return hashes_here(before, events, read);
        };
        let mut batch = Batch::with_capacity(FIRST_BATCH_BYTES);
        // Sending fails only after a panic of the thread, and joining shows that.
        let outcome = read(&mut |event| {
            if !batch.has_room_for(event) {
                let full = mem::replace(&mut batch, Batch::with_capacity(BATCH_BYTES));
                drop(sender.send(full));
            }
            batch.push(event);
        });
        drop(sender.send(batch));
        // There are no more, and so the thread ends.
        drop(sender);
        let hashes = thread.join().unwrap_or_else(|e| panic::resume_unwind(e));
        outcome.map(|()| hashes)
    })
}

fn hashes_here<E>(
    before: Hash,
    events: usize,
    read: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
) -> Result<Vec<Hash>, E> {
    let mut chain = Chain::new(before, events);
    read(&mut |event| chain.take(event))?;
    Ok(chain.hashes)
}

fn hashes_of(before: Hash, events: usize, batches: &Receiver<Batch>) -> Vec<Hash> {
    let mut chain = Chain::new(before, events);
    for batch in batches {
        batch.events().for_each(|event| chain.take(event));
    }
    chain.hashes
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

/// Events one behind the other.
struct Batch {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Batch {
    fn with_capacity(bytes: usize) -> Batch {
        Batch {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::new(),
        }
    }

    /// One that is larger than a batch has one for itself.
    fn has_room_for(&self, event: &[u8]) -> bool {
        self.ends.is_empty() || self.bytes.len() + event.len() <= self.bytes.capacity()
    }

    fn push(&mut self, event: &[u8]) {
        self.bytes.extend_from_slice(event);
        self.ends.push(self.bytes.len());
    }

    fn events(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(from, to)| &self.bytes[from..*to])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_thread_computes_what_is_computed_here() {
        for count in [0, 1, MANY_EVENTS - 1, MANY_EVENTS, 5 * MANY_EVENTS] {
            let length = |n: usize| match n % 1000 {
                0 => 0,
                1 => 2 * BATCH_BYTES,
                n => n / 3,
            };
            let events: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8; length(n)]).collect();
            let mut hash = Hash::of(b"before");
            let read = hashes(hash, count, |push| {
                events.iter().for_each(|event| push(event));
                Ok::<(), ()>(())
            });
            let mut expected = Vec::new();
            for event in &events {
                hash = hash.chain(event);
                expected.push(hash);
            }
            assert_eq!(read.unwrap(), expected);
        }
    }

    #[test]
    fn what_stops_the_reading_comes_out() {
        for count in [1, MANY_EVENTS] {
            let stopped = hashes(Hash::ZERO, count, |push| {
                push(b"an event");
                Err("damage")
            });
            assert_eq!(stopped, Err("damage"));
        }
    }
}
