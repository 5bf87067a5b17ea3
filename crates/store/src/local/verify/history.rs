//! The records of a log in order: every event and its chain, every piece and what it refers to, and
//! the state that comes of it, compared with the snapshots.

use std::collections::{BTreeMap, HashMap};

use super::super::disk::{Disk, Records};
use super::super::opening;
use super::super::record::{self, Record};
use super::{Problem, StoreReport};
use crate::error::StoreError;
use crate::event::{Body, Event, Version};
use crate::forgotten::forgotten_by;
use crate::hash::Hash;
use crate::kind::Kind;
use crate::name::{StreamId, StreamKind};
use crate::payload;
use crate::state::State;

/// What reading the log has shown so far.
pub(super) struct History {
    state: State,
    heads: BTreeMap<StreamId, Version>,
    /// Pieces of which everything below is there, with the length of their content.
    whole: HashMap<Hash, u64>,
    /// Those that are still to be compared, by LSN.
    snapshots: Vec<(u64, String, Hash)>,
    /// Snapshots that differ, by LSN.
    differing: Vec<(u64, Problem)>,
    /// By stream, and by LSN: it may turn out that it was to be so.
    problems: Vec<(StreamId, u64, Problem)>,
    other: Vec<(u64, Problem)>,
    /// Payloads of memories that are not there, by event: its LSN and the root.
    missing: BTreeMap<(StreamId, u64), (u64, Hash)>,
    events: u64,
    pieces: u64,
    /// The LSN of the last event that says runs were retired, and that something was repaired.
    retired: u64,
    repaired: u64,
}

impl History {
    pub fn new(mut snapshots: Vec<(u64, String, Hash)>) -> History {
        // The lowest LSN is at the end.
        snapshots.sort_unstable_by(|a, b| b.cmp(a));
        History {
            state: State::default(),
            heads: BTreeMap::new(),
            whole: HashMap::new(),
            snapshots,
            differing: Vec::new(),
            problems: Vec::new(),
            other: Vec::new(),
            missing: BTreeMap::new(),
            events: 0,
            pieces: 0,
            retired: 0,
            repaired: 0,
        }
    }

    /// Reads all records, up to the first that cannot be read.
    pub fn read(&mut self, disk: &Disk) -> Result<(), StoreError> {
        let mut reader = disk.read_from(disk.first_lsn())?;
        while let Some(log_record) = reader.next_record()? {
            let lsn = log_record.lsn;
            self.compare_snapshots(lsn);
            let found = Record::read(lsn, log_record.payload);
            match &found {
                Ok(Record::Event(bytes)) => self.event(lsn, bytes),
                Ok(Record::Piece(hash, bytes)) => self.piece(lsn, hash, bytes),
                Err(e) => self.other.push((lsn, super::from_error(e))),
            }
            // What cannot be applied was named above.
            drop(opening::apply(&mut self.state, lsn, &found));
        }
        Ok(())
    }

    /// Compares the snapshots from before the record that comes next.
    fn compare_snapshots(&mut self, next: u64) {
        while self.snapshots.last().is_some_and(|(lsn, ..)| *lsn < next) {
            let Some((lsn, file, digest)) = self.snapshots.pop() else {
                return;
            };
            let state = self.state.digest();
            if state != digest {
                let expected = format!("the state at {lsn}, {state}");
                let problem =
                    Problem::new(format!("snapshots/{file}"), expected, digest.to_string());
                self.differing.push((lsn, problem));
            }
        }
    }

    fn piece(&mut self, lsn: u64, hash: &Hash, bytes: &[u8]) {
        match payload::under(hash, bytes) {
            Ok((length, children)) => {
                self.pieces += 1;
                let is_there =
                    |child: &payload::Child| self.whole.get(&child.hash) == Some(&child.len);
                if children.iter().all(is_there) {
                    self.whole.insert(*hash, length);
                }
            }
            Err(e) => {
                let place = format!("record {lsn} of the log");
                let expected = format!("the piece {hash}");
                self.other
                    .push((lsn, Problem::new(place, expected, e.to_string())));
            }
        }
    }

    fn event(&mut self, lsn: u64, bytes: &[u8]) {
        let place = format!("record {lsn} of the log");
        let peek = match record::peek(lsn, bytes) {
            Ok(peek) => peek,
            Err(e) => return self.other.push((lsn, super::from_error(&e))),
        };
        let stream = peek.stream;
        let head = self.heads.get(&stream).copied().unwrap_or(Version::START);
        if peek.sequence != head.sequence + 1 {
            let expected = format!("event {} of {stream}", head.sequence + 1);
            let problem = Problem::new(&place, expected, format!("event {}", peek.sequence));
            self.problems.push((stream.clone(), lsn, problem));
        }
        let version = Version {
            sequence: peek.sequence,
            hash: head.hash.chain(bytes),
        };
        self.heads.insert(stream.clone(), version);
        let event = match Event::decode(bytes) {
            Ok(event) => event,
            Err(e) => {
                let problem = Problem::new(place, "an event", e.to_string());
                return self.problems.push((stream, lsn, problem));
            }
        };
        self.events += 1;
        match event.kind {
            Kind::RunsRetired => self.retired = lsn,
            Kind::StoreRepaired => self.repaired = lsn,
            _ => {}
        }
        for payload in event.payloads() {
            let Body::Stored { root, bytes } = &payload.body else {
                continue;
            };
            if self.whole.get(root) != Some(bytes) {
                let sequence = event.sequence;
                if stream.kind() == StreamKind::Memory {
                    // An event behind it may say that it is forgotten.
                    self.missing
                        .insert((stream.clone(), sequence), (lsn, *root));
                    continue;
                }
                let problem = missing_payload(&stream, sequence, lsn, root);
                self.problems.push((stream.clone(), lsn, problem));
            }
        }
        for sequence in forgotten_by(&event) {
            self.missing.remove(&(stream.clone(), sequence));
        }
    }

    /// Says what was found. False if there are runs that are being removed.
    pub fn finish(mut self, last_lsn: u64, report: &mut StoreReport) -> bool {
        self.compare_snapshots(last_lsn + 1);
        report.position = last_lsn;
        report.events += self.events;
        report.pieces += self.pieces;
        report.streams += self.heads.len() as u64;
        for (lsn, file, _) in &self.snapshots {
            let place = format!("snapshots/{file}");
            let expected = format!("a log up to record {lsn}");
            let found = format!("one up to record {last_lsn}");
            report.problems.push(Problem::new(place, expected, found));
        }
        for ((stream, sequence), (lsn, root)) in std::mem::take(&mut self.missing) {
            let problem = missing_payload(&stream, sequence, lsn, &root);
            self.problems.push((stream, lsn, problem));
        }
        // Retired runs may be gone in part, and their pieces; and what a snapshot from before
        // says of them is no longer in the log.
        let retiring = &self.state.retiring;
        let problems = self.problems.into_iter();
        let problems = problems.filter(|(stream, ..)| !retiring.contains(stream));
        let problems = problems.map(|(_, lsn, problem)| (lsn, problem));
        for (lsn, problem) in problems.chain(self.other) {
            if lsn < self.repaired {
                report.losses.push(problem);
            } else {
                report.problems.push(problem);
            }
        }
        let newest = self.retired.max(self.repaired);
        let differing = self.differing.into_iter().filter(|(lsn, _)| *lsn >= newest);
        report
            .problems
            .extend(differing.map(|(_, problem)| problem));
        let heads = self.heads.into_iter();
        let heads = heads.filter(|(stream, _)| !retiring.contains(stream));
        report.heads = heads
            .map(|(id, head)| (id.to_string(), head.hash))
            .collect();
        retiring.is_empty()
    }
}

fn missing_payload(stream: &StreamId, sequence: u64, lsn: u64, root: &Hash) -> Problem {
    let place = format!("event {sequence} of {stream}, record {lsn} of the log");
    let expected = format!("the pieces of the payload {root} before it");
    Problem::new(place, expected, "not all of them")
}
