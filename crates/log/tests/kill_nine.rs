//! A process that is killed loses nothing that it had acknowledged.
//!
//! A child process appends from several threads and reports each batch after the log said that it
//! is durable. It is killed at a random moment, also while it opens the log, round after round on
//! the same folder. Every payload can be made again from its batch's number and its place in the
//! batch, so what is read is checked in full, acknowledged or not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use dalsegno_log::{AppendError, Log, LogView, Lsn, Options, verify};

mod common;
use common::{Folder, Rng, all_records, reported, seed, this_program};

const ROUNDS: u64 = 200;
const THREADS: u64 = 4;
const BATCH_RECORDS_MAX: u64 = 6;
const PAYLOAD_HEAD_BYTES: usize = 16;

/// The batches of a round's thread are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Batch {
    round: u64,
    thread: u64,
    count: u64,
}

impl Batch {
    fn id(self) -> u64 {
        self.round << 40 | self.thread << 32 | self.count
    }

    fn of(id: u64) -> Batch {
        Batch {
            round: id >> 40,
            thread: id >> 32 & 0xff,
            count: id & 0xffff_ffff,
        }
    }

    fn records(self) -> u64 {
        1 + Rng(self.id()).below(BATCH_RECORDS_MAX)
    }

    /// A write of many pages can be killed half-way, so every fifth round has large ones.
    fn payload_bytes_max(self) -> u64 {
        if self.round % 5 == 4 { 20_000 } else { 700 }
    }

    fn payload(self, index: u64) -> Vec<u8> {
        let mut rng = Rng(self.id() ^ index << 56);
        let mut payload = self.id().to_le_bytes().to_vec();
        payload.extend_from_slice(&index.to_le_bytes());
        let bytes = rng.below(self.payload_bytes_max()) as usize;
        payload.extend(rng.bytes(bytes));
        payload
    }

    fn payloads(self) -> Vec<Vec<u8>> {
        (0..self.records()).map(|i| self.payload(i)).collect()
    }
}

/// Says something to the parent in one write, so that a kill cannot halve it.
fn report(text: &str) {
    let line = format!("@{text}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

#[test]
#[ignore = "the process that is killed"]
fn writes_until_it_is_killed() {
    let Ok(round) = std::env::var("KILL_NINE_ROUND") else {
        return;
    };
    let round: u64 = round.parse().unwrap();
    let dir = std::env::var("KILL_NINE_DIR").unwrap();
    let segment_bytes = [8, 12, 32, 64, 256][(round % 5) as usize] * 1024;
    report("opening");
    let options = Options::new().segment_bytes(segment_bytes);
    let log = options.open(dir).unwrap();
    report("open");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = log.clone();
            scope.spawn(move || append_forever(&log, round, thread));
        }
    });
}

fn append_forever(log: &Log, round: u64, thread: u64) {
    for count in 0.. {
        let batch = Batch {
            round,
            thread,
            count,
        };
        let lsns = match log.append_batch(&batch.payloads()) {
            Ok(lsns) => lsns,
            Err(AppendError::TooLarge { .. }) => panic!("a batch of this test is too large"),
            Err(e) => panic!("{e}"),
        };
        log.wait_durable(*lsns.end()).unwrap();
        report(&format!("ack {} {}", batch.id(), lsns.start()));
        let mut rng = Rng(batch.id());
        if thread == 0 && rng.below(8) == 0 {
            let keep = rng.below(200);
            let before = log.durable_lsn().saturating_sub(keep);
            report(&format!("drop {before}"));
            log.drop_before(before).unwrap();
        } else if rng.below(40) == 0 {
            log.seal().unwrap();
        }
    }
}

/// What the parent knows must be there.
#[derive(Default)]
struct Known {
    /// The first LSN of every acknowledged batch.
    acknowledged: BTreeMap<Lsn, Batch>,
    /// What an earlier round saw; it can go only by being dropped.
    seen: Vec<(Lsn, Vec<u8>)>,
    /// The log may begin at this LSN, or earlier.
    dropped_before: Lsn,
    torn_tails: u64,
}

impl Known {
    /// Lets a child work until it has said `lines` lines and then a little longer.
    fn run_and_kill(&mut self, dir: &Path, round: u64, rng: &mut Rng) {
        let in_recovery = rng.below(4) == 0;
        let lines = if in_recovery { 1 } else { 2 + rng.below(60) };
        let mut child = this_program("writes_until_it_is_killed")
            .env("KILL_NINE_ROUND", round.to_string())
            .env("KILL_NINE_DIR", dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        while heard < lines {
            let line = said.next().expect("the child ended by itself").unwrap();
            heard += u64::from(self.hear(&line));
        }
        // The moment should not always be that of a report.
        for _ in 0..rng.below(200_000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        for line in said {
            self.hear(&line.unwrap());
        }
        let status = child.wait().unwrap();
        assert!(!status.success() && status.code().is_none(), "{status}");
    }

    fn hear(&mut self, line: &str) -> bool {
        let Some(text) = reported(line) else {
            return false;
        };
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["ack", id, first] => {
                let batch = Batch::of(id.parse().unwrap());
                let before = self.acknowledged.insert(first.parse().unwrap(), batch);
                assert_eq!(before, None, "LSN {first} was given out twice");
            }
            ["drop", before] => {
                self.dropped_before = self.dropped_before.max(before.parse().unwrap());
            }
            _ => {}
        }
        true
    }

    /// Everything there has been appended, in order and whole; everything acknowledged is there.
    fn check(&mut self, records: Vec<(Lsn, Vec<u8>)>, first: Lsn) {
        assert!(first <= self.dropped_before.max(1), "dropped too much");
        let mut next_of_thread: HashMap<(u64, u64), u64> = HashMap::new();
        let mut at = 0;
        while let Some((lsn, payload)) = records.get(at) {
            let head = payload[..8].try_into().unwrap();
            let batch = Batch::of(u64::from_le_bytes(head));
            assert!(payload.len() >= PAYLOAD_HEAD_BYTES, "{payload:?}");
            for (i, expected) in batch.payloads().iter().enumerate() {
                let (found_lsn, found) = records.get(at + i).expect("a batch is whole");
                assert_eq!(*found_lsn, first + (at + i) as u64, "LSNs have no gap");
                assert!(
                    found == expected,
                    "LSN {found_lsn} is not what was appended"
                );
            }
            if let Some(acknowledged) = self.acknowledged.get(lsn) {
                assert_eq!(*acknowledged, batch);
            }
            // A thread's batches come in order, without a gap, from where the log begins.
            let thread = (batch.round, batch.thread);
            let next = next_of_thread.entry(thread).or_insert(batch.count);
            assert_eq!(*next, batch.count, "{batch:?}");
            *next += 1;
            at += batch.records() as usize;
        }
        let end = first + records.len() as u64;
        self.acknowledged = self.acknowledged.split_off(&first);
        for (lsn, batch) in &self.acknowledged {
            assert!(*lsn < end, "{batch:?} was acknowledged and is gone");
            let found = &records[(lsn - first) as usize].1;
            assert!(*found == batch.payload(0), "{batch:?} is not at LSN {lsn}");
        }
        self.seen.retain(|(lsn, _)| *lsn >= first);
        assert!(
            records.starts_with(&self.seen),
            "what was there has changed"
        );
        self.seen = records;
    }

    /// Reads without changing anything, and in half of the rounds recovers too, so that the next
    /// child finds what the kill left in the other half.
    fn look(&mut self, dir: &Path, rng: &mut Rng) {
        let report = verify(dir).unwrap();
        assert!(report.is_sound(), "{:?}", report.damages);
        let view = LogView::open(dir).unwrap();
        self.check(all_records(&view), view.first_lsn());
        if rng.below(2) == 0 {
            return;
        }
        let log = Options::new().segment_bytes(8 * 1024).open(dir).unwrap();
        self.torn_tails += u64::from(log.recovery().torn.is_some());
        assert_eq!(log.recovery().first_lsn, view.first_lsn());
        assert_eq!(log.recovery().last_lsn, view.last_lsn());
        assert_eq!(log.last_lsn(), log.durable_lsn());
        let mut reader = log.read_from(log.first_lsn()).unwrap();
        for (lsn, payload) in &self.seen {
            let record = reader.next_record().unwrap().unwrap();
            assert!(record.lsn == *lsn && record.payload == payload, "LSN {lsn}");
        }
        assert_eq!(reader.next_record().unwrap(), None);
    }
}

#[test]
fn what_was_acknowledged_survives_the_kill() {
    let folder = Folder::new("kill-nine");
    let dir = folder.join("log");
    let mut rng = Rng(seed());
    drop(Log::open(&dir).unwrap());
    let mut known = Known::default();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let before = known.acknowledged.len();
        known.run_and_kill(&dir, round, &mut rng);
        acknowledged += known.acknowledged.len() - before;
        known.look(&dir, &mut rng);
    }
    println!(
        "{ROUNDS} kills, {acknowledged} batches acknowledged, {} torn tails",
        known.torn_tails
    );
    assert!(acknowledged as u64 > ROUNDS, "hardly anything happened");
}
