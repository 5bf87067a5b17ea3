//! Export, import, retention with archives, snapshots and sealing, with each of their file
//! operations failing in turn, in each way an operation can fail, once or from then on.
//!
//! | after that | what is there |
//! |---|---|
//! | the store that is still open | all it had before; it goes on, unless its log was hit |
//! | a sync of the log failed | it acknowledges nothing any more |
//! | it is dropped, killed, or loses power | everything acknowledged, sound; and the work can be done again |

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;

use dalsegno_sim::disk::{LoseAll, SimDisk};
use dalsegno_store::{Append, Export, Kind, LocalStore, NewEvent, Store, StoreError, StreamId};

#[path = "stores/faults.rs"]
mod faults;
mod stores;

use faults::{End, Often, fail_everywhere, is_harmless};
use stores::{ARCHIVED, FILE, are_archived, heads, is_whole, names, now, options, with_a_store};

/// What is to be done with an open store.
struct Work<'a> {
    dir: &'static str,
    act: &'a dyn Fn(&LocalStore) -> Result<(), StoreError>,
    /// What must be so whether it was done or not.
    always: &'a dyn Fn(&SimDisk, &LocalStore),
    /// What must be so when it was done.
    done: &'a dyn Fn(&SimDisk, &LocalStore),
}

/// What the user of a store has been told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The work was done.
    done: bool,
    /// So many notes are durable, and so many there may be.
    durable: u64,
    tried: u64,
}

/// A store after its work, and what was told; no store if it could not be opened.
type Worked = (Option<LocalStore>, RefCell<Told>);

fn notes() -> StreamId {
    StreamId::memory("notes").unwrap()
}

/// Appends a note and waits for it.
fn note(store: &LocalStore, told: &RefCell<Told>) -> Result<(), StoreError> {
    let event = NewEvent::new(Kind::FactConfirmed);
    told.borrow_mut().tried += 1;
    let appended = now(store.append(vec![Append::to(notes(), vec![event])]))?;
    now(store.durable(appended.position))?;
    let mut told = told.borrow_mut();
    told.durable = told.tried;
    Ok(())
}

impl Work<'_> {
    fn start(&self, disk: &SimDisk) -> Worked {
        let told = RefCell::new(Told::default());
        let Ok(store) = options(disk).open(self.dir) else {
            return (None, told);
        };
        let _told_if_it_worked = note(&store, &told);
        let done = (self.act)(&store).is_ok();
        told.borrow_mut().done = done;
        (Some(store), told)
    }

    fn look(&self, disk: &SimDisk, store: &LocalStore, told: Told) {
        (self.always)(disk, store);
        if told.done {
            (self.done)(disk, store);
        }
        let noted = now(store.read(&notes(), 1, 100)).unwrap().len() as u64;
        assert!(
            (told.durable..=told.tried).contains(&noted),
            "{noted}: {told:?}"
        );
    }

    /// After the end of the process: all is there, opening again changes nothing, and the work can
    /// be done.
    fn reopen(&self, disk: &SimDisk, told: Told) {
        self.assert_sound(disk);
        let store = options(disk).open(self.dir).unwrap();
        self.look(disk, &store, told);
        let digest = store.state_digest();
        store.close().unwrap();
        drop(store);
        let store = options(disk).open(self.dir).unwrap();
        assert!(store.opened().clean);
        assert_eq!(store.state_digest(), digest);
        (self.act)(&store).unwrap();
        self.look(disk, &store, Told { done: true, ..told });
        disk.power_off_now();
        drop(store);
        disk.reboot(&mut LoseAll);
        self.assert_sound(disk);
        let view = options(disk).open_read_only(self.dir).unwrap();
        self.look(disk, &view, Told { done: true, ..told });
    }

    fn assert_sound(&self, disk: &SimDisk) {
        let report = options(disk).verify(self.dir).unwrap();
        assert!(report.is_sound(), "{report}{:#?}", disk.trace());
    }

    /// Goes on with the store that was open when it happened. Whether a sync of its log had failed.
    fn go_on(&self, disk: &SimDisk, store: &LocalStore, told: &RefCell<Told>) -> bool {
        let failed: Vec<String> = disk.trace().into_iter().filter(|l| has_failed(l)).collect();
        self.look(disk, store, *told.borrow());
        let noted = note(store, told);
        let hit_the_log = failed.iter().any(|line| is_of_the_log(line));
        let sync_failed = failed.iter().any(|line| is_sync_of_the_log(line));
        if sync_failed {
            assert!(noted.is_err(), "acknowledged after {failed:?}");
            assert!(note(store, told).is_err());
            drop((self.act)(store));
        } else if noted.is_ok() {
            (self.act)(store).unwrap();
            told.borrow_mut().done = true;
        } else {
            assert!(hit_the_log, "{noted:?} after {failed:?}");
        }
        self.look(disk, store, *told.borrow());
        sync_failed
    }

    fn with_faults(&self, base: &SimDisk) {
        let start = |disk: &SimDisk| self.start(disk);
        let (healthy, final_ones) = (Cell::new(0), Cell::new(0));
        let hits = fail_everywhere(base, start, |disk, fault, often, (store, told)| {
            let told_then = *told.borrow();
            let harmless = is_harmless(fault);
            assert!(told_then.done || !harmless, "{:?}", disk.trace());
            let ends: &[End] = match (harmless, often) {
                (false, Often::Once) => &[End::Kill, End::LosesAll, End::LosesSome],
                _ => &[],
            };
            for end in ends {
                let machine = disk.snapshot();
                machine.heal();
                end.befall(&machine);
                self.reopen(&machine, told_then);
            }
            if let (Some(store), Often::Once) = (&store, often) {
                disk.heal();
                let sync_failed = self.go_on(disk, store, &told);
                final_ones.set(final_ones.get() + u64::from(sync_failed));
                healthy.set(healthy.get() + u64::from(told.borrow().done && !sync_failed));
            }
            // With the disk as it is, which may be failing still.
            drop(store);
            disk.heal();
            let told = *told.borrow();
            End::LosesAll.befall(disk);
            self.reopen(disk, told);
        });
        let (healthy, final_ones) = (healthy.get(), final_ones.get());
        println!(
            "{hits} faults: {healthy} times the store went on, {final_ones} times never again"
        );
        assert!(hits > 50 && healthy > 20 && final_ones > 0);
    }
}

fn has_failed(line: &str) -> bool {
    !line.contains(" -> ok") && line.contains(" -> ")
}

fn is_of_the_log(line: &str) -> bool {
    line.contains(".seg") || line.contains("/log")
}

fn is_sync_of_the_log(line: &str) -> bool {
    let sync = line.contains(" sync ") || line.contains(" sync_dir ");
    // Then the folder was not even opened.
    let never_begun = line.contains("os error 24");
    sync && is_of_the_log(line) && !never_begun
}

fn all_streams() -> Export {
    Export::Streams(names().into_iter().collect::<BTreeSet<StreamId>>())
}

#[test]
fn an_export_is_whole_or_absent() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    let undisturbed = {
        let mut bytes = Vec::new();
        let view = options(&base).open_read_only("store").unwrap();
        view.export_to(&all_streams(), &mut bytes).unwrap();
        bytes
    };
    let work = Work {
        dir: "store",
        act: &|store| store.export(&all_streams(), Path::new(FILE)).map(drop),
        always: &|disk, store| {
            assert_eq!(heads(store), before);
            assert!([None, Some(4)].contains(&is_whole(disk, FILE)));
        },
        done: &|disk, _| assert!(disk.read_file(FILE).unwrap() == undisturbed),
    };
    work.with_faults(&base);
}

#[test]
fn an_import_brings_whole_streams_or_none() {
    let base = with_a_store("from");
    let from = options(&base).open("from").unwrap();
    let expected = heads(&from);
    from.export(&Export::Store, Path::new(FILE)).unwrap();
    from.close().unwrap();
    let to = options(&base).open("to").unwrap();
    to.close().unwrap();
    drop(to);
    let work = Work {
        dir: "to",
        act: &|store| store.import(Path::new(FILE), None).map(drop),
        always: &|_, store| {
            for (found, expected) in heads(store).iter().zip(&expected) {
                assert!(found == expected || found.is_none());
            }
        },
        done: &|_, store| assert_eq!(heads(store), expected),
    };
    work.with_faults(&base);
}

#[test]
fn a_run_is_in_the_store_or_in_the_archive() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    let work = Work {
        dir: "store",
        act: &|store| store.retire(&ARCHIVED).map(drop),
        always: &|disk, store| {
            let found = heads(store);
            assert_eq!(found[2..], before[2..]);
            for (found, before) in found[..2].iter().zip(&before) {
                assert!(found == before || (found.is_none() && are_archived(disk)));
            }
        },
        done: &|disk, store| {
            assert_eq!(heads(store)[..2], [None, None]);
            assert!(are_archived(disk));
        },
    };
    work.with_faults(&base);
}

#[test]
fn a_snapshot_takes_nothing_away() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    let work = Work {
        dir: "store",
        act: &|store| store.snapshot(true).and(store.snapshot(false)).map(drop),
        always: &|_, store| assert_eq!(heads(store), before),
        done: &|_, store| {
            let there = store.snapshots().unwrap();
            assert!(there.iter().any(|info| info.pinned));
            let rolling = there.iter().filter(|info| !info.pinned).count();
            assert!(rolling > 0, "{there:?}");
        },
    };
    work.with_faults(&base);
}

#[test]
fn a_seal_makes_durable_what_was_before_it() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    let sealed = StreamId::memory("sealed").unwrap();
    let work = Work {
        dir: "store",
        act: &|store| {
            let event = NewEvent::new(Kind::FactConfirmed);
            now(store.append(vec![Append::to(sealed.clone(), vec![event])]))?;
            store.seal()
        },
        always: &|_, store| assert_eq!(heads(store), before),
        done: &|_, store| assert!(!now(store.read(&sealed, 1, 9)).unwrap().is_empty()),
    };
    work.with_faults(&base);
}
