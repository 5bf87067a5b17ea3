//! Export, import, retention with archives, and repair, with a power cut at every operation: what
//! a store has is there before and after, a file is whole or absent, and doing it again finishes it.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dalsegno_sim::disk::{Chooser, KeepAll, LoseAll, Random, SimDisk};
use dalsegno_sim::rng::Rng;
use dalsegno_store::portable::verify_portable;
use dalsegno_store::{
    Answer, Append, Export, Kind, LocalStore, NewEvent, NewPayload, Options, Retention, Store,
    StoreError, StreamId, Version,
};

const FILE: &str = "files/all.dalsegno";
const ARCHIVED: Retention = Retention {
    ended_before_us: u64::MAX,
    archive: true,
};

fn options(disk: &SimDisk) -> Options {
    let options = Options::new().segment_bytes(32 << 10).without_threads();
    options.clock(|| 1).fs(Arc::new(disk.clone()))
}

fn now<T>(mut answer: Answer<'_, T>) -> Result<T, StoreError> {
    let mut context = Context::from_waker(Waker::noop());
    match answer.as_mut().poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("nobody else is there to wait for"),
    }
}

fn names() -> [StreamId; 4] {
    let runs = ["a", "b", "c"].map(|name| StreamId::run(name).unwrap());
    let [a, b, c] = runs;
    [a, b, c, StreamId::memory("m").unwrap()]
}

/// A store with runs, ended and not, and a memory, with payloads that they share.
fn with_a_store(dir: &str) -> SimDisk {
    let disk = SimDisk::new(7);
    let store = options(&disk).open(dir).unwrap();
    for (n, stream) in names().iter().enumerate() {
        let shared = NewPayload::new("text/plain", vec![b'x'; 3000 + n]);
        let kinds = match n {
            3 => vec![Kind::FactConfirmed],
            2 => vec![Kind::RunCreated, Kind::StepIntended],
            _ => vec![Kind::RunCreated, Kind::StepIntended, Kind::RunCompleted],
        };
        for kind in kinds {
            let event = NewEvent::new(kind).with_input(shared.clone());
            let batch = vec![Append::to(stream.clone(), vec![event])];
            now(store.append(batch)).unwrap();
        }
        store.seal().unwrap();
    }
    store.close().unwrap();
    drop(store);
    dalsegno_log::fs::Fs::create_dir(&disk, Path::new("files")).unwrap();
    disk.reboot(&mut LoseAll);
    disk
}

fn heads(store: &LocalStore) -> Vec<Option<Version>> {
    let streams = names();
    let heads = streams.iter().map(|stream| {
        let head = now(store.head(stream)).unwrap()?;
        let events = now(store.read(stream, 1, 100)).unwrap();
        assert_eq!(events.last().unwrap().hash, head.hash);
        for recorded in &events {
            for payload in recorded.event.payloads() {
                assert!(now(store.payload(payload)).unwrap().len() >= 3000);
            }
        }
        Some(head)
    });
    heads.collect()
}

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

fn is_whole(disk: &SimDisk, path: &str) -> Option<usize> {
    let bytes = disk.read_file(path).ok()?;
    let report = verify_portable(&bytes[..]).unwrap();
    Some(report.streams.len())
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
    let archived = |disk: &SimDisk| {
        let files = disk.files("store/archive").into_iter();
        let mut files = files.filter(|name| name.ends_with(".dalsegno"));
        files.any(|name| is_whole(disk, &format!("store/archive/{name}")) == Some(2))
    };
    let ops = cut_everywhere(&base, retire, |disk, done| {
        let found = heads(&options(disk).open("store").unwrap());
        assert_eq!(found[2..], before[2..]);
        assert!(found[..2] == before[..2] || archived(disk));
        assert!(!done || found[..2] == [None, None]);
        retire(disk).unwrap();
        let found = heads(&options(disk).open("store").unwrap());
        assert_eq!(
            (&found[..2], &found[2..]),
            (&[None, None][..], &before[2..])
        );
        assert!(archived(disk));
        let report = options(disk).verify("store").unwrap();
        assert!(report.is_sound(), "{report}");
    });
    println!("{ops} operations");
}

#[test]
fn a_repair_that_was_interrupted_is_finished_by_another() {
    let base = with_a_store("store");
    let before = heads(&options(&base).open_read_only("store").unwrap());
    // Run `b` is in the second segment; and an index and a snapshot are damaged too.
    let segment = "store/log/0000000000000002.seg";
    let middle = base.file_len(segment).unwrap() / 2 + 200;
    base.flip_bit(segment, middle, 3).unwrap();
    base.flip_bit("store/index/0000000000000001.index", 5000, 3)
        .unwrap();
    let newest = base.files("store/snapshots").into_iter().max().unwrap();
    base.flip_bit(format!("store/snapshots/{newest}"), 60, 1)
        .unwrap();
    assert!(!options(&base).verify("store").unwrap().is_sound());
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
