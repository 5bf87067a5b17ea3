//! Readers beside a store's owner see a beginning of what happened: whole appends, in order,
//! however the owner seals and snapshots meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dalsegno_store::{
    Append, Follow, Kind, LocalStore, NewEvent, NewPayload, Recorded, RunQuery, Store, StreamKind,
};

mod common;
use common::Random;
use common::local::{Folder, block_on, check_chain, everything, memory, noted, options, run};

const APPENDS: u64 = 600;

/// Append number n goes to memories "a" and "b", has a payload, and makes run n, which ends if n
/// is even.
fn write(store: &LocalStore, until: u64) {
    let mut random = Random(7);
    for number in 0..until {
        let bytes = 900 + random.below(2000);
        let input = NewPayload::new("x/y", random.bytes(bytes));
        let mut life = vec![NewEvent::new(Kind::RunCreated)];
        if number % 2 == 0 {
            life.push(NewEvent::new(Kind::RunCompleted));
        }
        let batch = vec![
            Append::to(memory("a"), vec![noted(number).with_input(input)]),
            Append::to(run(&format!("{number:06}")), life),
            Append::to(memory("b"), vec![noted(number)]),
        ];
        let appended = block_on(store.append(batch)).unwrap();
        match number % 50 {
            10 => block_on(store.durable(appended.position)).unwrap(),
            20 => store.seal().unwrap(),
            30 => drop(store.snapshot(false).unwrap()),
            40 => drop(store.snapshot(number % 100 == 40).unwrap()),
            _ => {}
        }
    }
}

fn numbers(events: &[Recorded]) -> Vec<u64> {
    let numbers = events.iter().map(|e| e.event.fields.number(1).unwrap());
    numbers.collect()
}

/// Looks at everything once. Between two looks a store may grow, so what is read later has at least
/// as much.
fn look(view: &LocalStore, seen: &mut u64) {
    let b_head = block_on(view.head(&memory("b"))).unwrap();
    let least = b_head.map_or(0, |head| head.sequence);
    assert!(least >= *seen, "what was there is gone");
    *seen = least;
    let a = block_on(view.read(&memory("a"), 1, usize::MAX)).unwrap();
    check_chain(&memory("a"), &a);
    assert!(a.len() as u64 >= least, "half an append");
    let wanted: Vec<u64> = (0..a.len() as u64).collect();
    assert_eq!(numbers(&a), wanted);
    for recorded in a.iter().rev().take(3).chain(a.first()) {
        let input = recorded.event.input.as_ref().unwrap();
        assert!(block_on(view.payload(input)).unwrap().len() >= 900);
    }
    let runs = block_on(view.runs(&RunQuery::default())).unwrap();
    assert!(runs.len() >= a.len(), "half an append");
    for (number, info) in runs.iter().enumerate() {
        assert_eq!(info.run, run(&format!("{number:06}")), "a run is missing");
        assert_eq!(info.status.is_final(), number % 2 == 0, "half an append");
    }
    let b = block_on(view.read(&memory("b"), 1, usize::MAX)).unwrap();
    check_chain(&memory("b"), &b);
    assert!(b.len() >= runs.len(), "half an append");
    let streams = block_on(view.streams(StreamKind::Run, None, 0)).unwrap();
    assert!(streams.len() >= b.len(), "half an append");
}

/// A new view again and again, or one that goes along.
fn read(dir: &Path, done: &AtomicBool, anew: bool) -> u64 {
    let open = || options().open_read_only(dir).unwrap();
    let mut view = open();
    let mut looks = 0;
    let mut seen = 0;
    loop {
        let last = done.load(Ordering::SeqCst);
        if anew {
            view = open();
        }
        look(&view, &mut seen);
        looks += 1;
        if last {
            assert_eq!(seen, APPENDS);
            return looks;
        }
    }
}

#[test]
fn readers_see_whole_appends_in_order() {
    let folder = Folder::new("readers");
    let dir = folder.store();
    let snapshots = Duration::from_millis(20);
    let store = options().snapshot_every(snapshots).open(&dir).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [true, false].map(|anew| {
            let (dir, done) = (&dir, &done);
            scope.spawn(move || read(dir, done, anew))
        });
        write(&store, APPENDS);
        let position = block_on(store.position()).unwrap();
        block_on(store.durable(position)).unwrap();
        done.store(true, Ordering::SeqCst);
        for reader in readers {
            println!("{} looks", reader.join().unwrap());
        }
    });
    let view = options().open_read_only(&dir).unwrap();
    assert_eq!(everything(&view), everything(&store));
}

#[test]
fn a_reader_can_follow_the_owner() {
    let folder = Folder::new("readers");
    let dir = folder.store();
    let store = options().open(&dir).unwrap();
    let view = options().open_read_only(&dir).unwrap();
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut follow = Follow::new(&view, memory("a"), 1);
            let mut seen = Vec::new();
            while seen.len() < 200 {
                seen.extend(block_on(follow.next()).unwrap());
            }
            seen
        });
        write(&store, 200);
        let position = block_on(store.position()).unwrap();
        block_on(store.durable(position)).unwrap();
        let seen = follower.join().unwrap();
        check_chain(&memory("a"), &seen);
        assert_eq!(numbers(&seen), (0..200).collect::<Vec<_>>());
    });
}
