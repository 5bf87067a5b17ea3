//! The newest part of the log in memory: everything behind the last segment that has an index.
//!
//! It is as large as a segment or two, whatever the store holds.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use super::record::Peek;
use crate::hash::Hash;
use crate::name::StreamId;

/// So much is gathered before it is taken in.
const TOGETHER_BYTES: usize = 64 * 1024;

/// Everything behind the last indexed segment.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    order: VecDeque<(u64, Key)>,
    streams: HashMap<StreamId, Part>,
    pieces: HashMap<Hash, (u64, Arc<[u8]>)>,
}

#[derive(Debug)]
enum Key {
    Event(StreamId),
    // There are far fewer of these, and they are longer.
    Piece(Box<Hash>),
}

/// The newest events of a stream.
#[derive(Debug, Default)]
pub(crate) struct Part {
    events: VecDeque<RecentEvent>,
    /// Its run ended here.
    pub ended: bool,
}

/// An event's bytes, shared with whoever reads it at the moment.
#[derive(Clone, Debug)]
pub(crate) struct RecentEvent {
    pub sequence: u64,
    pub bytes: EventBytes,
    /// The hash of its stream after it, if it was appended here. Apart, because most of what is
    /// found at opening has none.
    pub hash: Option<Box<Hash>>,
}

/// The bytes of an event, alone or among those of others that were read with it.
#[derive(Clone, Debug)]
pub(crate) struct EventBytes {
    all: Arc<[u8]>,
    // No record is longer than a segment, which is below 4 GiB.
    from: u32,
    until: u32,
}

impl Deref for EventBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.all[self.from as usize..self.until as usize]
    }
}

impl From<Arc<[u8]>> for EventBytes {
    fn from(all: Arc<[u8]>) -> EventBytes {
        let until = all.len() as u32;
        let from = 0;
        EventBytes { all, from, until }
    }
}

/// Events on their way into the recent part. Many together take one allocation: at opening there
/// is a whole segment of them.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    events: Vec<(u64, Peek, usize)>,
    /// Names that were read before, so that the events of a stream share one.
    names: HashMap<Box<str>, StreamId>,
}

impl Gathered {
    /// The stream of a text; `None` if it is no stream's name.
    pub fn name(&mut self, text: &str) -> Option<StreamId> {
        if let Some(known) = self.names.get(text) {
            return Some(known.clone());
        }
        let stream: StreamId = text.parse().ok()?;
        self.names.insert(text.into(), stream.clone());
        Some(stream)
    }
}

impl Recent {
    /// Takes in an event. LSNs rise.
    pub fn event(
        &mut self,
        lsn: u64,
        stream: &StreamId,
        sequence: u64,
        bytes: impl Into<EventBytes>,
        hash: Option<Hash>,
        ends_run: bool,
    ) {
        let event = RecentEvent {
            sequence,
            bytes: bytes.into(),
            hash: hash.map(Box::new),
        };
        let part = self.streams.entry(stream.clone()).or_default();
        // The state does not take in an event twice either.
        let newest = part.events.back().map(|last| last.sequence);
        if newest.is_some_and(|newest| newest >= sequence) {
            return;
        }
        part.events.push_back(event);
        part.ended |= ends_run;
        self.order.push_back((lsn, Key::Event(stream.clone())));
    }

    /// Takes in a piece.
    pub fn piece(&mut self, lsn: u64, hash: Hash, bytes: Arc<[u8]>) {
        self.pieces.insert(hash, (lsn, bytes));
        self.order.push_back((lsn, Key::Piece(Box::new(hash))));
    }

    /// Takes an event up, to be taken in with others.
    pub fn gather(&mut self, gathered: &mut Gathered, lsn: u64, peek: Peek, bytes: &[u8]) {
        gathered.bytes.extend_from_slice(bytes);
        gathered.events.push((lsn, peek, bytes.len()));
        if gathered.bytes.len() >= TOGETHER_BYTES {
            self.take_in(gathered);
        }
    }

    /// Takes in what was gathered.
    pub fn take_in(&mut self, gathered: &mut Gathered) {
        if gathered.events.is_empty() {
            return;
        }
        let all: Arc<[u8]> = Arc::from(gathered.bytes.as_slice());
        gathered.bytes.clear();
        let mut from = 0;
        for (lsn, peek, length) in gathered.events.drain(..) {
            let until = from + length as u32;
            let bytes = EventBytes {
                all: Arc::clone(&all),
                from,
                until,
            };
            from = until;
            self.event(lsn, &peek.stream, peek.sequence, bytes, None, peek.ends_run);
        }
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
                    let newest = self.pieces.get(&*hash).map(|(newest, _)| *newest);
                    if newest == Some(at) {
                        self.pieces.remove(&*hash);
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
        self.streams.iter()
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

    fn bytes(bytes: &[u8]) -> Arc<[u8]> {
        Arc::from(bytes)
    }

    #[test]
    fn what_is_gathered_is_taken_in_as_if_one_by_one() {
        let names = ["a", "b", "c"].map(|name| StreamId::run(name).unwrap());
        let (mut recent, mut gathered) = (Recent::default(), Gathered::default());
        let length = |lsn: u64| (lsn as usize * 7919) % 3000;
        for lsn in 1..=300_u64 {
            let peek = Peek {
                stream: names[lsn as usize % 3].clone(),
                sequence: lsn.div_ceil(3),
                ends_run: lsn == 300,
            };
            recent.gather(&mut gathered, lsn, peek, &vec![lsn as u8; length(lsn)]);
        }
        recent.take_in(&mut gathered);
        assert_eq!(recent.last_lsn(), 300);
        let ended = names.clone().map(|name| recent.part(&name).unwrap().ended);
        assert_eq!(ended, [true, false, false]);
        for lsn in 1..=300_u64 {
            let part = recent.part(&names[lsn as usize % 3]).unwrap();
            let found = part.events_between(lsn.div_ceil(3), lsn.div_ceil(3));
            assert_eq!(*found[0].bytes, vec![lsn as u8; length(lsn)], "{lsn}");
        }
    }

    #[test]
    fn what_has_an_index_is_forgotten() {
        let (a, b) = (StreamId::run("a").unwrap(), StreamId::run("b").unwrap());
        let mut recent = Recent::default();
        let hash = Hash::of(b"piece");
        recent.piece(1, hash, bytes(b"piece"));
        recent.event(2, &a, 1, bytes(b"a1"), None, false);
        recent.event(3, &b, 1, bytes(b"b1"), None, true);
        recent.event(4, &a, 2, bytes(b"a2"), None, false);
        recent.piece(5, hash, bytes(b"piece"));
        recent.forget_until(3);
        assert!(recent.part(&b).is_none());
        assert_eq!(recent.part(&a).unwrap().first(), 2);
        assert_eq!(recent.get_piece(&hash).unwrap().0, 5);
        recent.forget_until(5);
        assert_eq!(recent.parts().count(), 0);
        assert!(recent.get_piece(&hash).is_none());
    }
}
