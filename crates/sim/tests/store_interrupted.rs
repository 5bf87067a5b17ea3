//! Export, import, retention with archives, and repair, with a power cut at every operation: what
//! a store has is there before and after, a file is whole or absent, and doing it again finishes it.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use dalsegno_sim::disk::{Chooser, KeepAll, LoseAll, Random, SimDisk};
use dalsegno_sim::rng::Rng;
use dalsegno_store::{Export, Store, StoreError, StreamId};

mod stores;

use stores::{
    ARCHIVED, FILE, are_archived, damage, heads, is_whole, names, now, options, with_a_store,
};

/// Does something with the power going at each of its operations in turn, and looks at what is
/// there after each kind of end. Says how many operations it had.
fn cut_everywhere(
    base: &SimDisk,
    act: impl Fn(&SimDisk) -> Result<(), StoreError>,
    check: impl Fn(&SimDisk, bool),
) -> u64 {
    for op in 0.. {
        let disk = base.snapshot();
        disk.crash_at(disk.ops() + op);
        let done = act(&disk).is_ok();
        let whole = !disk.crashed();
        let choosers: [&mut dyn Chooser; 4] = [
            &mut LoseAll,
            &mut KeepAll,
            &mut Random::new(Rng::new(op)),
            &mut Random::new(Rng::new(op + 10_000)),
        ];
        for chooser in choosers {
            let machine = disk.snapshot();
            machine.reboot(chooser);
            check(&machine, done);
        }
        if whole {
            assert!(done);
            return op;
        }
    }
    0
}

#[test]
fn an_export_is_whole_or_absent() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    let export = |disk: &SimDisk| {
        let store = options(disk).open("store")?;
        let streams: BTreeSet<StreamId> = names().into_iter().collect();
        store.export(&Export::Streams(streams), Path::new(FILE))?;
        store.close()
    };
    let ops = cut_everywhere(&base, export, |disk, done| {
        let whole = is_whole(disk, FILE);
        assert!(whole == Some(4) || (whole.is_none() && !done));
        assert_eq!(heads(&options(disk).open("store").unwrap()), before);
        export(disk).unwrap();
        assert_eq!(is_whole(disk, FILE), Some(4));
        assert!(options(disk).verify("store").unwrap().is_sound());
    });
    println!("{ops} operations");
}

#[test]
fn an_import_brings_whole_streams_and_goes_on_where_it_stopped() {
    let base = with_a_store("from");
    let from = options(&base).open("from").unwrap();
    let expected = heads(&from);
    from.export(&Export::Store, Path::new(FILE)).unwrap();
    from.close().unwrap();
    let import = |disk: &SimDisk| {
        let store = options(disk).open("to")?;
        store.import(Path::new(FILE), None)?;
        store.close()
    };
    let ops = cut_everywhere(&base, import, |disk, done| {
        let store = options(disk).open("to").unwrap();
        for (found, expected) in heads(&store).iter().zip(&expected) {
            assert!(found == expected || (found.is_none() && !done));
        }
        drop(store);
        import(disk).unwrap();
        assert_eq!(heads(&options(disk).open("to").unwrap()), expected);
        let report = options(disk).verify("to").unwrap();
        assert!(report.is_sound(), "{report}");
    });
    println!("{ops} operations");
}

#[test]
fn a_run_is_in_the_store_or_in_the_archive() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    let retire = |disk: &SimDisk| {
        let store = options(disk).open("store")?;
        store.retire(&ARCHIVED)?;
        store.close()
    };
    let ops = cut_everywhere(&base, retire, |disk, done| {
        let found = heads(&options(disk).open("store").unwrap());
        assert_eq!(found[2..], before[2..]);
        assert!(found[..2] == before[..2] || are_archived(disk));
        assert!(!done || found[..2] == [None, None]);
        retire(disk).unwrap();
        let found = heads(&options(disk).open("store").unwrap());
        assert_eq!(
            (&found[..2], &found[2..]),
            (&[None, None][..], &before[2..])
        );
        assert!(are_archived(disk));
        let report = options(disk).verify("store").unwrap();
        assert!(report.is_sound(), "{report}");
    });
    println!("{ops} operations");
}

#[test]
fn a_repair_that_was_interrupted_is_finished_by_another() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    damage(&base);
    let repair = |disk: &SimDisk| options(disk).repair("store").map(drop);
    let ops = cut_everywhere(&base, repair, |disk, _| {
        repair(disk).unwrap();
        let again = options(disk).repair("store").unwrap();
        assert!(again.actions.is_empty(), "{:?}", again.actions);
        assert!(again.report.is_sound(), "{}", again.report);
        let store = options(disk).open("store").unwrap();
        for (at, stream) in names().iter().enumerate().filter(|(at, _)| *at != 1) {
            assert_eq!(now(store.head(stream)).unwrap(), before[at]);
        }
    });
    println!("{ops} operations");
}
