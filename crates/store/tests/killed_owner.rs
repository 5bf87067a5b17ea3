//! An owner that is killed loses nothing that it had acknowledged.
//!
//! A child process appends to several streams at a time and reports each append after the store
//! said that it is durable. It is killed at a random moment, also while it opens the store, seals
//! or writes a snapshot, round after round on the same folder. All events of an append have its
//! number, so that half an append would be seen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Append, Kind, LocalStore, NewEvent, NewPayload, Options, Store, StreamId, StreamKind,
};

mod common;
use common::Random;
use common::local::{
    Folder, all, block_on, durable, everything, memory, noted, options, reported, run, seed,
    this_program,
};

const KILLS: u64 = 50;
const THREADS: u64 = 3;

fn child_options() -> Options {
    options()
        .snapshot_bytes(20_000)
        .snapshot_every(Duration::from_millis(30))
}

/// Says something to the parent in one write, so that a kill cannot halve it.
fn report(text: &str) {
    let line = format!("@{text}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

#[test]
#[ignore = "the process that is killed"]
fn appends_until_it_is_killed() {
    let Ok(round) = std::env::var("KILLED_ROUND") else {
        return;
    };
    let round: u64 = round.parse().unwrap();
    report("opening");
    let store = child_options()
        .open(std::env::var_os("KILLED_DIR").unwrap())
        .unwrap();
    report("open");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || append_forever(&store, round, thread));
        }
    });
}

/// Each append goes to a run of its own thread, and to a memory that all share.
fn append_forever(store: &LocalStore, round: u64, thread: u64) {
    let mut random = Random(round << 8 | thread);
    for count in 0.. {
        let id = round << 40 | thread << 32 | count;
        let mut events = vec![NewEvent::new(Kind::RunCreated), noted(id)];
        let bytes = random.below(3000);
        let input = NewPayload::new("x/y", random.bytes(bytes));
        events.push(noted(id).with_input(input));
        if random.below(3) > 0 {
            events.push(NewEvent::new(Kind::RunCompleted));
        }
        let batch = vec![
            Append::to(run(&format!("{id}")), events),
            Append::to(memory("shared"), vec![noted(id), noted(id)]),
        ];
        let appended = block_on(store.append(batch)).unwrap();
        block_on(store.durable(appended.position)).unwrap();
        report(&format!("ack {id}"));
        if random.below(20) == 0 {
            store.seal().unwrap();
        }
        if thread == 0 && random.below(3) == 0 {
            let mut letter = NewLetter::new(memory("said"), Kind::SignalReceived, 0);
            letter.fields = noted(id).fields;
            block_on(store.send(&letter)).unwrap();
            report(&format!("sent {id}"));
            if random.below(2) == 0 {
                block_on(store.take_letters()).unwrap();
            }
        }
    }
}

#[derive(Default)]
struct Known {
    acknowledged: Vec<u64>,
    sent: Vec<u64>,
    recoveries: usize,
    /// Looks at everything, which takes its time.
    thorough: bool,
    /// The events of each stream as they were last seen: they can only become more.
    seen: BTreeMap<StreamId, usize>,
}

impl Known {
    fn hear(&mut self, line: &str) -> bool {
        let words: Vec<&str> = reported(line).unwrap_or_default().split(' ').collect();
        match words[..] {
            ["ack", id] => self.acknowledged.push(id.parse().unwrap()),
            ["sent", id] => self.sent.push(id.parse().unwrap()),
            _ => return reported(line).is_some(),
        }
        true
    }

    fn run_and_kill(&mut self, dir: &Path, round: u64, random: &mut Random) {
        let while_opening = random.below(5) == 0;
        let lines = if while_opening {
            1
        } else {
            2 + random.below(60)
        };
        let mut child = this_program("appends_until_it_is_killed")
            .env("KILLED_ROUND", round.to_string())
            .env("KILLED_DIR", dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        while heard < lines {
            let line = said.next().expect("the child ended by itself").unwrap();
            heard += usize::from(self.hear(&line));
        }
        // The moment should not always be that of a report.
        for _ in 0..random.below(200_000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        for line in said {
            self.hear(&line.unwrap());
        }
        assert_eq!(child.wait().unwrap().code(), None);
    }

    fn check(&mut self, store: &LocalStore) {
        let shared = all(store, &memory("shared"));
        let number = |recorded: &dalsegno_store::Recorded| recorded.event.fields.number(1).unwrap();
        let mut there: Vec<u64> = shared.iter().map(number).collect();
        assert!(
            there.chunks(2).all(|two| two[0] == two[1]),
            "half an append"
        );
        there.dedup();
        let runs = block_on(store.streams(StreamKind::Run, None, 0)).unwrap();
        assert_eq!(runs.len(), there.len(), "half an append");
        for id in &there {
            // What was looked at in an earlier round is looked at again at the end.
            if self.seen.contains_key(&run(&id.to_string())) && !self.thorough {
                continue;
            }
            let events = all(store, &run(&id.to_string()));
            assert!(events.len() >= 3 && events[1..3].iter().all(|e| number(e) == *id));
            let input = events[2].event.input.as_ref().unwrap();
            block_on(store.payload(input)).unwrap();
        }
        there.sort_unstable();
        for id in &self.acknowledged {
            assert!(there.binary_search(id).is_ok(), "{id} is gone");
        }
        for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
            for (stream, head) in block_on(store.streams(kind, None, 0)).unwrap() {
                let before = self.seen.insert(stream, head.sequence as usize);
                assert!(before.is_none_or(|before| before <= head.sequence as usize));
            }
        }
    }

    /// Each letter that was sent is an event, once, and each sender's are in their order.
    fn check_letters(&mut self, store: &LocalStore) {
        block_on(store.take_letters()).unwrap();
        let said = all(store, &memory("said"));
        let said = said.iter().map(|e| e.event.fields.number(1).unwrap());
        let mut said: Vec<u64> = said.collect();
        // Stable: of one round, and so of one sender, they stay as they are.
        said.sort_by_key(|id| id >> 40);
        assert!(
            said.is_sorted_by(|a, b| a < b),
            "twice, or out of order: {said:?}"
        );
        said.retain(|id| self.sent.contains(id));
        assert_eq!(said, self.sent);
    }
}

#[test]
fn what_was_acknowledged_survives_the_kill() {
    let folder = Folder::new("killed-owner");
    let dir = folder.store();
    let mut random = Random(seed());
    drop(child_options().open(&dir).unwrap());
    let mut known = Known::default();
    for round in 0..KILLS {
        known.run_and_kill(&dir, round, &mut random);
        known.thorough = round % 16 == 15 || round == KILLS - 1;
        let view = options().open_read_only(&dir).unwrap();
        known.check(&view);
        let digest = view.state_digest();
        drop(view);
        if random.below(2) == 0 && !known.thorough {
            continue;
        }
        let store = child_options().open(&dir).unwrap();
        known.recoveries += usize::from(!store.opened().clean);
        known.check(&store);
        if store.opened().clean {
            assert_eq!(store.state_digest(), digest);
        }
        known.check_letters(&store);
        durable(&store);
        let view = options().open_read_only(&dir).unwrap();
        assert_eq!(view.state_digest(), store.state_digest());
        if known.thorough {
            assert_eq!(everything(&view), everything(&store));
        }
        assert_eq!(store.health(), None);
    }
    println!(
        "{KILLS} kills, {} appends acknowledged, {} letters sent, {} recoveries",
        known.acknowledged.len(),
        known.sent.len(),
        known.recoveries
    );
    assert!(
        known.acknowledged.len() as u64 > KILLS,
        "hardly anything happened"
    );
    assert!(known.recoveries > 0, "nothing to recover from");
}
