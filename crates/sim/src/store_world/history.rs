//! What a store was given: all events in their order, and how many of them were acknowledged.
//!
//! The promises, as checks:
//!
//! | promise | check |
//! |---|---|
//! | nothing acknowledged is lost | what is found has at least the acknowledged events |
//! | in order, byte for byte | what is found is the beginning of what was appended |
//! | an append is whole or absent, over all its streams | the beginning ends with an append |
//! | nothing appears that was not appended | behind it come only what recovery and repair said, and letters |
//! | a letter happens once, in the order of its sender | each letter event is the next of its sender |
//! | the state is that of the log, however it was read | its digest is that of a fold over all events |
//!
//! The bytes of each event are computed here, from what the user gave; so a chain that fits proves
//! the content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dalsegno_store::{
    Applied, Event, Kind, LetterRef, Recorded, State, StreamId, StreamState, Value, field,
};

use super::letters::Post;
use super::verdict::{Sizes, Wanted, Wish};

/// An event that was appended.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub event: Event,
    pub bytes: Vec<u8>,
    /// What went in and came out.
    pub payloads: [Option<Arc<[u8]>>; 2],
    pub ends_batch: bool,
}

/// All events of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub entries: Vec<Arc<Entry>>,
    /// So many of them were acknowledged.
    pub durable: usize,
    /// The fold over all of them.
    pub state: State,
    /// Runs that have ended, as they were then.
    pub ended: BTreeMap<StreamId, StreamState>,
    /// Where the events of each stream are.
    pub streams: BTreeMap<StreamId, Vec<usize>>,
    /// Letters that have become events.
    pub letters: BTreeSet<(String, u64)>,
    /// Names that were ever used.
    pub names: BTreeSet<StreamId>,
    /// Which entries are of runs that were retired.
    gone: BTreeSet<usize>,
    /// Runs that ended before this time were to be retired, in a call that may not have ended.
    pub retire_before_us: u64,
    /// How often the store was repaired, whether there was anything to do or not.
    pub repairs: usize,
}

impl History {
    /// Takes in one event.
    pub fn push(&mut self, entry: Arc<Entry>) {
        let stream = entry.event.stream.clone();
        let applied = self.state.apply(&entry.event, &entry.bytes);
        if let Applied::Ended(state) = applied {
            self.ended.insert(stream.clone(), *state);
        }
        if let Some(letter) = &entry.event.letter {
            self.letters.insert((letter.sender.clone(), letter.number));
        }
        for run in retired_by(&entry.event) {
            let places = self.streams.remove(&run).unwrap_or_default();
            self.gone.extend(places);
            self.ended.remove(&run);
        }
        self.names.insert(stream.clone());
        let places = self.streams.entry(stream).or_default();
        places.push(self.entries.len());
        self.entries.push(entry);
    }

    /// Everything so far was acknowledged.
    pub fn acknowledge(&mut self, count: usize) {
        self.durable = self.durable.max(count);
    }

    /// The events from here on were lost.
    pub fn truncate(&mut self, count: usize) {
        if count == self.entries.len() {
            return;
        }
        let entries = std::mem::take(&mut self.entries);
        *self = History {
            durable: self.durable,
            names: std::mem::take(&mut self.names),
            retire_before_us: self.retire_before_us,
            repairs: self.repairs,
            ..History::default()
        };
        entries.into_iter().take(count).for_each(|e| self.push(e));
    }

    /// The events of a stream.
    pub fn of<'a>(&'a self, stream: &StreamId) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let places = self.streams.get(stream).into_iter().flatten();
        places.map(|place| &*self.entries[*place])
    }

    /// How many events a stream has.
    pub fn head(&self, stream: &StreamId) -> u64 {
        self.streams.get(stream).map_or(0, |s| s.len() as u64)
    }

    /// Compares all events found, in the order of their clocks, with the beginning of what was
    /// appended. Says how many entries and how many of the events found these are.
    pub fn check_beginning(&self, found: &[Recorded]) -> Result<(usize, usize), String> {
        let (count, read) = self.common(found);
        if count < self.durable {
            let lost = &self.entries[count].event;
            let there = found.get(read).map(|recorded| &recorded.event);
            return Err(format!(
                "event {} of {} was acknowledged, and is not there (found {there:?})",
                lost.sequence, lost.stream
            ));
        }
        if count > 0 && !self.entries[count - 1].ends_batch {
            let last = &self.entries[count - 1].event;
            return Err(format!(
                "a part of an append is there, up to event {} of {}",
                last.sequence, last.stream
            ));
        }
        Ok((count, read))
    }

    /// How many entries from the beginning are there, and how many events these are: those of runs
    /// that are retired by then are not.
    fn common(&self, found: &[Recorded]) -> (usize, usize) {
        let mut retired: BTreeMap<StreamId, u64> = BTreeMap::new();
        for Recorded { event, .. } in found {
            for run in retired_by(event) {
                retired.insert(run, event.clock);
            }
        }
        let is_gone = |event: &Event| {
            let until = retired.get(&event.stream);
            until.is_some_and(|until| event.clock < *until)
        };
        let (mut count, mut read) = (0, 0);
        for (at, entry) in self.entries.iter().enumerate() {
            if is_gone(&entry.event) {
                continue;
            }
            match found.get(read) {
                Some(found) if found.event == entry.event => {
                    (count, read) = (at + 1, read + 1);
                }
                _ => return (count, read),
            }
        }
        (self.entries.len(), read)
    }

    /// Entries that can be read.
    pub fn visible(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let all = self.entries.iter().enumerate();
        let there = all.filter(|(at, _)| !self.gone.contains(at));
        there.map(|(at, entry)| (at, &**entry))
    }

    /// Takes in what is found behind the beginning: what recoveries said, and letters that were
    /// taken up before the power went.
    pub fn adopt(
        &mut self,
        found: &[Recorded],
        post: &Post,
        sizes: Sizes,
        recoveries: usize,
    ) -> Result<(), String> {
        let (count, read) = self.check_beginning(found)?;
        let lost = count < self.entries.len();
        self.truncate(count);
        let mut seen = 0;
        for Recorded { event, .. } in &found[read..] {
            if event.kind == Kind::StoreRecovered && event.stream == StreamId::store() {
                seen += 1;
                self.push(own(event));
            } else if event.kind == Kind::StoreRepaired && event.stream == StreamId::store() {
                self.push(own(event));
            } else if lost {
                return Err(format!("behind events that were lost: {event:?}"));
            } else {
                self.adopt_event(event, post, sizes)?;
            }
        }
        if seen > recoveries {
            return Err(format!("{seen} recoveries recorded, {recoveries} happened"));
        }
        let repaired = self.entries.iter();
        let repaired = repaired.filter(|entry| entry.event.kind == Kind::StoreRepaired);
        match repaired.count() {
            count if count > self.repairs => Err(format!("{count} repairs were recorded")),
            _ => Ok(()),
        }
    }

    /// Takes in an event that the store made of a call, if that is right.
    pub fn adopt_event(&mut self, event: &Event, post: &Post, sizes: Sizes) -> Result<(), String> {
        if event.clock != self.state.clock + 1 {
            let clock = self.state.clock;
            return Err(format!("after clock {clock} came {event:?}"));
        }
        if let Some(letter) = &event.letter {
            return self.adopt_letter(event, letter, post, sizes);
        }
        let right = match event.kind {
            Kind::RunsRetired => retired_by(event) == self.to_retire(),
            Kind::SpaceReclaimed => !self.state.retiring.is_empty(),
            _ => false,
        };
        if !right || event.stream != StreamId::store() {
            return Err(format!("an event that nobody appended: {event:?}"));
        }
        self.push(own(event));
        // The events that told of letters may go with the runs; what they told must not.
        let forgotten =
            |(sender, number): &&(String, u64)| self.state.last_letter(sender) < *number;
        match self.letters.iter().find(forgotten) {
            Some((sender, number)) => Err(format!("letter {number} of {sender} was forgotten")),
            None => Ok(()),
        }
    }

    /// The runs that were retired by entries from this one on.
    pub fn retired_since(&self, first: usize) -> Vec<StreamId> {
        let entries = self.entries.get(first..).unwrap_or_default();
        entries.iter().flat_map(|e| retired_by(&e.event)).collect()
    }

    /// The runs that a call to retire must name.
    fn to_retire(&self) -> Vec<StreamId> {
        let ended = self.ended.iter();
        let old = ended.filter(|(_, run)| run.updated_us < self.retire_before_us);
        old.map(|(name, _)| name.clone()).collect()
    }

    /// Takes in an event that a letter became, if that is right.
    fn adopt_letter(
        &mut self,
        event: &Event,
        letter: &LetterRef,
        post: &Post,
        sizes: Sizes,
    ) -> Result<(), String> {
        let name = format!("letter {} of {}", letter.number, letter.sender);
        let Some(sent) = post.get(letter) else {
            return Err(format!("{name} was never sent, and became {event:?}"));
        };
        let mine = (letter.sender.clone(), 0)..=(letter.sender.clone(), u64::MAX);
        let last = self.letters.range(mine).next_back();
        let last = last.map_or(0, |(_, number)| *number);
        if letter.number <= last {
            return Err(format!("{name} became an event after letter {last}"));
        }
        if let Some(left) = post.certain(&letter.sender, last + 1, letter.number) {
            return Err(format!("{name} became an event before letter {left}"));
        }
        let entry = match self.judge(&[sent.wish(letter)], event.time_us, sizes) {
            Ok(mut entries) => entries.pop().ok_or("a letter of nothing")?,
            Err(_) => {
                let mut refused = sent.refusal(event);
                refused.letter = Some(letter.clone());
                let wish = Wish {
                    stream: StreamId::store(),
                    expected: None,
                    token: None,
                    events: vec![refused],
                };
                let entries = self.judge_own(&[wish], event.time_us, sizes);
                let mut entries = entries.map_err(|r| format!("{name}: {r:?}"))?;
                entries.pop().ok_or("a letter of nothing")?
            }
        };
        if entry.event != *event {
            let expected = &entry.event;
            return Err(format!("{name} became {event:?}, expected {expected:?}"));
        }
        self.push(Arc::new(entry));
        Ok(())
    }
}

/// An event of the store itself, as it was found.
fn own(event: &Event) -> Arc<Entry> {
    Arc::new(Entry {
        bytes: event.encode(),
        event: event.clone(),
        payloads: [None, None],
        ends_batch: true,
    })
}

/// The runs that are gone from this event on.
fn retired_by(event: &Event) -> Vec<StreamId> {
    let names = match event.fields.get(field::RUNS) {
        Some(Value::List(names)) if event.kind == Kind::RunsRetired => names.as_slice(),
        _ => &[],
    };
    if event.stream != StreamId::store() {
        return Vec::new();
    }
    let names = names.iter().filter_map(|name| match name {
        Value::Text(name) => name.parse().ok(),
        _ => None,
    });
    names.collect()
}

impl Wanted {
    pub(super) fn new(new: dalsegno_store::NewEvent) -> Wanted {
        Wanted { new, letter: None }
    }
}
