//! A copy of a store that is taken beside its owner is a store of its own: sound, and with all that
//! was durable when the copying began.

#![allow(clippy::unwrap_used, clippy::panic)]

mod local;

use std::sync::atomic::{AtomicBool, Ordering};

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Kind, LocalStore, Retention, RunQuery, Store, StoreError};
use local::*;

#[test]
fn a_copy_beside_a_busy_owner_is_sound() {
    let (folder, copies) = (Folder::new("copies-from"), Folder::new("copies-to"));
    let store = small().open(folder.path()).unwrap();
    steps(&store, &run("first"), 3, 4000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..120 {
                let id = run(&format!("run-{n}"));
                steps(&store, &id, 3, 4000);
                if n % 2 == 0 {
                    append(&store, &id, Kind::RunCompleted).unwrap();
                }
                if n % 30 == 29 {
                    // Rewrites and drops segments under the copying.
                    let all = Retention {
                        ended_before_us: u64::MAX,
                        archive: true,
                    };
                    store.retire(&all).unwrap();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut round = 0;
        loop {
            let last_round = done.load(Ordering::SeqCst);
            round += 1;
            let reader = small().open_read_only(folder.path()).unwrap();
            let before = now(reader.position()).unwrap();
            let to = copies.path().join(format!("{round}"));
            let copy = small().copy(folder.path(), &to).unwrap();
            assert!(copy.position >= before, "{copy:?} {before}");
            let report = small().verify(&to).unwrap();
            assert!(report.is_sound(), "{report}");
            let opened = small().open(&to).unwrap();
            assert!(now(opened.head(&run("first"))).unwrap().is_some());
            append(&opened, &run("first"), Kind::RunCompleted).unwrap();
            opened.close().unwrap();
            assert!(small().verify(&to).unwrap().is_sound());
            if last_round {
                let mine = now(store.runs(&RunQuery::default())).unwrap().len();
                let opened = LocalStore::open(&to).unwrap();
                assert_eq!(now(opened.runs(&RunQuery::default())).unwrap().len(), mine);
                break;
            }
            std::fs::remove_dir_all(&to).unwrap();
        }
    });
}

#[test]
fn letters_come_along_and_are_taken_up_there_too() {
    let (folder, copies) = (
        Folder::new("copies-letters"),
        Folder::new("copies-letters-to"),
    );
    let store = small().open(folder.path()).unwrap();
    steps(&store, &run("r"), 1, 100);
    let letter = NewLetter::new(run("r"), Kind::SignalReceived, 1);
    now(store.send(&letter)).unwrap();
    small().copy(folder.path(), copies.path()).unwrap();
    let copy = small().open(copies.path()).unwrap();
    assert_eq!(now(copy.take_letters()).unwrap().taken.len(), 1);
    assert_eq!(now(store.take_letters()).unwrap().taken.len(), 1);
}

#[test]
fn nothing_is_copied_over_something_or_from_nothing() {
    let (folder, copies) = (Folder::new("copies-over"), Folder::new("copies-over-to"));
    assert!(matches!(
        small().copy(folder.path(), copies.path()),
        Err(StoreError::NotAStore { .. })
    ));
    small().open(folder.path()).unwrap().close().unwrap();
    std::fs::create_dir_all(copies.path()).unwrap();
    std::fs::write(copies.path().join("mine"), b"mine").unwrap();
    let refused = small().copy(folder.path(), copies.path());
    assert!(matches!(refused, Err(StoreError::Io(_))), "{refused:?}");
    assert_eq!(std::fs::read_dir(copies.path()).unwrap().count(), 1);
}
