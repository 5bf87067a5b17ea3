//! The newest part of the log in memory: everything behind the last segment that has an index.
//!
//! It is as large as a segment or two, whatever the store holds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::hash::Hash;
use crate::name::StreamId;

/// Everything behind the last indexed segment.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    order: VecDeque<(u64, Key)>,
    streams: HashMap<Arc<StreamId>, Part>,
    pieces: HashMap<Hash, (u64, Arc<[u8]>)>,
}

#[derive(Debug)]
enum Key {
    Event(Arc<StreamId>),
    Piece(Hash),
}

/// The newest events of a stream.
#[derive(Debug)]
pub(crate) struct Part {
    /// The same as its key.
    stream: Arc<StreamId>,
    events: VecDeque<RecentEvent>,
    /// Its run ended here.
    pub ended: bool,
}

/// An event's bytes, shared with whoever reads it at the moment.
#[derive(Clone, Debug)]
pub(crate) struct RecentEvent {
    pub sequence: u64,
    pub bytes: Arc<[u8]>,
    /// The hash of its stream after it, if it was appended here.
    pub hash: Option<Hash>,
}

impl Recent {
    /// Takes in an event. LSNs rise.
    pub fn event(
        &mut self,
        lsn: u64,
        stream: &StreamId,
        sequence: u64,
        bytes: Arc<[u8]>,
        hash: Option<Hash>,
        ends_run: bool,
    ) {
        let event = RecentEvent {
            sequence,
            bytes,
            hash,
        };
        let stream = match self.streams.get_mut(stream) {
            Some(part) => {
                // The state does not take in an event twice either.
                if part
                    .events
                    .back()
                    .is_some_and(|last| last.sequence >= sequence)
                {
                    return;
                }
                part.events.push_back(event);
                part.ended |= ends_run;
                Arc::clone(&part.stream)
            }
            None => {
                let stream = Arc::new(stream.clone());
                let part = Part {
                    stream: Arc::clone(&stream),
                    events: VecDeque::from([event]),
                    ended: ends_run,
                };
                self.streams.insert(Arc::clone(&stream), part);
                stream
            }
        };
        self.order.push_back((lsn, Key::Event(stream)));
    }

    /// Takes in a piece.
    pub fn piece(&mut self, lsn: u64, hash: Hash, bytes: Arc<[u8]>) {
        self.pieces.insert(hash, (lsn, bytes));
        self.order.push_back((lsn, Key::Piece(hash)));
    }

    /// Everything up to this LSN has an index now.
    pub fn forget_until(&mut self, lsn: u64) {
        while self.order.front().is_some_and(|(first, _)| *first <= lsn) {
            match self.order.pop_front() {
                Some((_, Key::Event(stream))) => {
                    let Some(part) = self.streams.get_mut(&stream) else {
                        continue;
                    };
                    part.events.pop_front();
                    if part.events.is_empty() {
                        self.streams.remove(&stream);
                    }
                }
                Some((at, Key::Piece(hash))) => {
                    // Stored again since, perhaps.
                    let newest = self.pieces.get(&hash).map(|(newest, _)| *newest);
                    if newest == Some(at) {
                        self.pieces.remove(&hash);
                    }
                }
                None => return,
            }
        }
    }

    /// The last LSN it was given; 0 if it is empty.
    pub fn last_lsn(&self) -> u64 {
        self.order.back().map_or(0, |(lsn, _)| *lsn)
    }

    /// The newest events of a stream.
    pub fn part(&self, stream: &StreamId) -> Option<&Part> {
        self.streams.get(stream)
    }

    /// All streams that have events here.
    pub fn parts(&self) -> impl Iterator<Item = (&StreamId, &Part)> {
        self.streams.iter().map(|(stream, part)| (&**stream, part))
    }

    /// A piece and its LSN.
    pub fn get_piece(&self, hash: &Hash) -> Option<&(u64, Arc<[u8]>)> {
        self.pieces.get(hash)
    }
}

impl Part {
    /// The sequence of its first event here.
    pub fn first(&self) -> u64 {
        self.events.front().map_or(0, |event| event.sequence)
    }

    /// Its events here from one sequence to another, in order.
    pub fn events_between(&self, from: u64, until: u64) -> Vec<RecentEvent> {
        let begin = self.events.partition_point(|event| event.sequence < from);
        let events = self.events.range(begin..);
        let wanted = |event: &&RecentEvent| event.sequence <= until;
        events.take_while(wanted).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_has_an_index_is_forgotten() {
        let (a, b) = (StreamId::run("a").unwrap(), StreamId::run("b").unwrap());
        let mut recent = Recent::default();
        let hash = Hash::of(b"piece");
        recent.piece(1, hash, Arc::from(&b"piece"[..]));
        recent.event(2, &a, 1, Arc::from(&b"a1"[..]), None, false);
        recent.event(3, &b, 1, Arc::from(&b"b1"[..]), None, true);
        recent.event(4, &a, 2, Arc::from(&b"a2"[..]), None, false);
        recent.piece(5, hash, Arc::from(&b"piece"[..]));
        recent.forget_until(3);
        assert!(recent.part(&b).is_none());
        assert_eq!(recent.part(&a).unwrap().first(), 2);
        assert_eq!(recent.get_piece(&hash).unwrap().0, 5);
        recent.forget_until(5);
        assert_eq!(recent.parts().count(), 0);
        assert!(recent.get_piece(&hash).is_none());
    }
}
