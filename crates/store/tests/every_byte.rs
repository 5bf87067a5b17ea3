//! One byte of a store is changed, anywhere: verifying names the place, or the byte means nothing.
//! And repairing loses nothing that is readable.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod local;
#[allow(dead_code)] // Other tests use the rest.
#[path = "../../log/tests/common/mem_fs.rs"]
mod mem_fs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{
    Kind, NewEvent, Retention, RunQuery, Store, StoreError, StoreReport, StreamId,
};
use local::*;
use mem_fs::MemFs;

/// A store with something of everything in it.
fn make(dir: &Path) {
    let store = small().snapshot_bytes(8 << 10).open(dir).unwrap();
    let memory = StreamId::memory("facts").unwrap();
    for n in 0..4 {
        let id = run(&format!("run-{n}"));
        steps(&store, &id, 1, 1200);
        let fact = NewEvent::new(Kind::FactConfirmed).with_input(payload(50 + n, 300));
        append_with(&store, &memory, fact).unwrap();
        if n < 2 {
            append(&store, &id, Kind::RunCompleted).unwrap();
        }
        if n == 1 {
            let retention = Retention {
                ended_before_us: u64::MAX,
                archive: true,
            };
            store.retire(&retention).unwrap();
        }
    }
    store.seal().unwrap();
    append(&store, &run("run-3"), Kind::RunCompleted).unwrap();
    store.snapshot(true).unwrap();
    append(&store, &memory, Kind::FactConfirmed).unwrap();
    let letter = NewLetter::new(run("run-2"), Kind::SignalReceived, 5);
    now(store.send(&letter)).unwrap();
    store.close().unwrap();
}

/// All files of a store, by their names in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![dir.to_owned()];
    while let Some(at) = ahead.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                all.insert(path.strip_prefix(dir).unwrap().to_owned(), bytes);
            }
        }
    }
    all
}

fn verify(dir: &Path) -> Result<StoreReport, StoreError> {
    small().verify(dir)
}

#[test]
fn a_changed_byte_is_named_or_means_nothing() {
    let folder = Folder::new("every-byte");
    make(folder.path());
    let sound = verify(folder.path()).unwrap();
    assert!(sound.is_sound(), "{sound}");
    assert!(sound.snapshots >= 2 && sound.indexes >= 1, "{sound}");
    assert!(sound.letters == 1 && sound.archives == 1, "{sound}");
    // Two halves at a time, each on a store of its own.
    let halves = [0, 1].map(|half| {
        let sound = sound.clone();
        let files = files(folder.path());
        std::thread::spawn(move || change_every_byte(&files, &sound, half))
    });
    let (mut changed, mut meaningless) = (0, BTreeMap::<PathBuf, u64>::new());
    for half in halves {
        let (more_changed, more_meaningless) = half.join().unwrap();
        changed += more_changed;
        for (name, count) in more_meaningless {
            *meaningless.entry(name).or_default() += count;
        }
    }
    println!("{changed} bytes changed, meaningless: {meaningless:?}");
    // The text that the owner left in the lock, for people.
    let lock = PathBuf::from("log/lock");
    assert!(
        meaningless.keys().all(|name| *name == lock),
        "{meaningless:?}"
    );
}

/// Changes every second byte of all files, one at a time; how many, and which were not noticed.
fn change_every_byte(
    files: &BTreeMap<PathBuf, Vec<u8>>,
    sound: &StoreReport,
    half: usize,
) -> (u64, BTreeMap<PathBuf, u64>) {
    // In memory: nothing is synced for each of the many looks.
    let dir = Path::new("/store");
    let fs = MemFs::new();
    for (name, bytes) in files {
        fs.put(dir.join(name), bytes.clone());
    }
    let options = small().fs(Arc::new(fs.clone()));
    let (mut changed, mut meaningless) = (0, BTreeMap::<PathBuf, u64>::new());
    for (name, bytes) in files {
        let path = dir.join(name);
        // Every byte of what is used; of the long stretches of zeros behind, one in a while.
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        let places = (0..bytes.len()).filter(|at| *at <= used + 600 || at % 509 == 0);
        for at in places.filter(|at| at % 2 == half) {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            fs.put(path.clone(), other);
            changed += 1;
            // A marker that is none, or of a newer format, is an error and not a report.
            if let Ok(report) = options.verify(dir) {
                let named = !report.problems.is_empty() || report.torn.is_some();
                if !named {
                    let mut expected = sound.clone();
                    expected.dir = report.dir.clone();
                    assert_eq!(report, expected, "byte {at} of {}", name.display());
                    *meaningless.entry(name.clone()).or_default() += 1;
                }
            }
        }
        fs.put(path, bytes.clone());
    }
    (changed, meaningless)
}

fn copy(files: &BTreeMap<PathBuf, Vec<u8>>, dir: &Path) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_repair_makes_it_sound_and_keeps_what_is_readable() {
    let folder = Folder::new("repair-bytes");
    make(folder.path());
    let sound = verify(folder.path()).unwrap();
    let files = files(folder.path());
    let mut tried = 0;
    for (name, bytes) in &files {
        if name.starts_with("archive") || name.ends_with("lock") {
            continue;
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        for at in (0..=used).step_by(211) {
            let copy = Folder::new("repair-copy");
            self::copy(&files, copy.path());
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            std::fs::write(copy.path().join(name), &other).unwrap();
            let place = format!("byte {at} of {}", name.display());
            let done = match small().repair(copy.path()) {
                Ok(done) => done,
                Err(StoreError::NotAStore { .. } | StoreError::Version { .. }) => continue,
                Err(e) => panic!("{place}: {e}"),
            };
            tried += 1;
            assert!(done.report.is_sound(), "{place}: {}", done.report);
            let again = small().repair(copy.path()).unwrap();
            assert!(again.actions.is_empty(), "{place}: {:?}", again.actions);
            let store = small().open(copy.path()).unwrap();
            let lost = done.log.lost_records();
            if lost == 0 {
                for (stream, head) in &sound.heads {
                    if !stream.starts_with("store/") {
                        assert_eq!(done.report.heads.get(stream), Some(head), "{place}");
                    }
                }
            }
            assert!(
                done.report.events + lost >= sound.events,
                "{place}: {done:?}"
            );
            let runs = now(store.runs(&RunQuery::default())).unwrap();
            assert!(runs.len() as u64 + lost >= 2, "{place}");
            append(&store, &run("new"), Kind::RunCreated).unwrap();
        }
    }
    println!("{tried} repairs");
}
