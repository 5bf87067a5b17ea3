//! Repair with each of its file operations failing in turn, in each way an operation can fail, once
//! or from then on: nothing that can be read is lost, running it again finishes it, and a file that
//! cannot be read for a moment is not taken for a damaged one.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use dalsegno_sim::disk::{LoseAll, SimDisk};
use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Kind, Options, Recorded, Store, StoreError, StreamId};

#[path = "stores/faults.rs"]
mod faults;
mod stores;

use faults::{End, Often, fail_everywhere, is_harmless};
use stores::{ARCHIVED, damage, names, now, options, with_a_store};

/// All that can be read of a store's users' streams, with its pinned snapshots and letters.
type Readable = (BTreeMap<StreamId, Vec<Recorded>>, Vec<String>, Vec<String>);

fn readable(disk: &SimDisk) -> Readable {
    let view = options(disk).open_read_only("store").unwrap();
    let streams = names().into_iter();
    let streams = streams.map(|stream| {
        let from = |n| now(view.read(&stream, n, 1)).unwrap_or_default();
        let events = (1..10).flat_map(from).collect();
        (stream.clone(), events)
    });
    let end = |dir, end: &str| {
        let mut names = disk.files(dir);
        names.retain(|name| name.ends_with(end));
        names
    };
    let pinned = end("store/snapshots", ".pinned");
    (streams.collect(), pinned, end("store/mailbox", ".letter"))
}

/// A store with a pinned snapshot and a letter, too.
fn with_everything() -> SimDisk {
    let base = with_a_store("store");
    let store = options(&base).open("store").unwrap();
    store.snapshot(true).unwrap();
    let letter = NewLetter::new(names()[2].clone(), Kind::SignalReceived, 1);
    now(store.send(&letter)).unwrap();
    store.close().unwrap();
    drop(store);
    base.reboot(&mut LoseAll);
    base
}

fn repair(options: &Options) -> Result<Vec<String>, StoreError> {
    options.repair("store").map(|repair| repair.actions)
}

#[test]
fn a_repair_loses_nothing_that_can_be_read() {
    let base = with_everything();
    damage(&base);
    let expected = {
        let disk = base.snapshot();
        assert!(!repair(&options(&disk)).unwrap().is_empty());
        readable(&disk)
    };
    let act = |disk: &SimDisk| repair(&options(disk));
    let hits = fail_everywhere(&base, act, |disk, fault, often, done| {
        let harmless = is_harmless(fault);
        assert!(done.is_ok() || !harmless, "{done:?}");
        disk.heal();
        let ends: &[End] = match (harmless, often) {
            (false, Often::Once) => &[End::Kill, End::LosesSome],
            _ => &[End::LosesAll],
        };
        for end in ends {
            let machine = disk.snapshot();
            end.befall(&machine);
            if !harmless {
                repair(&options(&machine)).unwrap();
                machine.reboot(&mut LoseAll);
                // What a failed sync covered may be damaged again: then it is repaired once more.
                repair(&options(&machine)).unwrap();
            }
            let report = options(&machine).verify("store").unwrap();
            assert!(report.is_sound(), "{report}");
            let found = readable(&machine);
            // After a sync that failed, a snapshot that was put aside may come back.
            assert_eq!((found.0, found.2), (expected.0.clone(), expected.2.clone()));
        }
    });
    println!("{hits} faults");
    assert!(hits > 100);
}

#[test]
fn a_repair_of_a_sound_store_changes_nothing_whatever_fails() {
    let base = with_everything();
    let store = options(&base).open("store").unwrap();
    store.retire(&ARCHIVED).unwrap();
    store.close().unwrap();
    drop(store);
    base.reboot(&mut LoseAll);
    let files = |disk: &SimDisk| {
        let dirs = ["", "/index", "/snapshots", "/mailbox", "/archive", "/aside"];
        let names = dirs.map(|dir| disk.files(format!("store{dir}")));
        (names, disk.files("store/log").len())
    };
    let before = (readable(&base), files(&base));
    let act = |disk: &SimDisk| repair(&options(disk));
    let hits = fail_everywhere(&base, act, |disk, _, _, done| {
        disk.heal();
        let actions = done.unwrap_or_default();
        assert!(actions.is_empty(), "{actions:?} {:#?}", disk.trace());
        assert_eq!((readable(disk), files(disk)), before, "{:#?}", disk.trace());
        disk.reboot(&mut LoseAll);
        assert_eq!((readable(disk), files(disk)), before, "{:#?}", disk.trace());
    });
    println!("{hits} faults");
    assert!(hits > 100);
}
