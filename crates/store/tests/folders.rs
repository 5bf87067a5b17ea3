//! Opening a folder: what is no store is never touched, and errors say what is the matter.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Kind, LocalStore, Options, Store, StoreError};

mod common;
use common::local::{
    Folder, all, block_on, everything, files, fill, memory, noted, options, reported, run,
    this_program, try_append,
};

fn check_modes(path: &Path) -> usize {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_dir() {
        assert_eq!(mode, 0o700, "{}", path.display());
        1 + files(path)
            .iter()
            .map(|file| check_modes(file))
            .sum::<usize>()
    } else {
        assert_eq!(mode, 0o600, "{}", path.display());
        1
    }
}

#[test]
fn nobody_else_can_read_a_store() {
    let folder = Folder::new("folders");
    let store = options().open(folder.store()).unwrap();
    fill(&store);
    store.snapshot(true).unwrap();
    let letter = NewLetter::new(run("r1"), Kind::SignalReceived, 0);
    block_on(store.send(&letter)).unwrap();
    check_modes(&folder.store());
    block_on(store.take_letters()).unwrap();
    store.close().unwrap();
    let store = options().open(folder.store()).unwrap();
    assert!(check_modes(&folder.store()) > 15);
    drop(store);
}

/// Opening fails in every way there is, and changes nothing.
fn check_untouched(dir: &Path, is_right: impl Fn(&StoreError) -> bool) {
    let list = |dir: &Path| {
        let mut found = Vec::new();
        let mut folders = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            for path in files(&folder) {
                if path.is_dir() {
                    found.push((path.clone(), Vec::new()));
                    folders.push(path);
                } else {
                    found.push((path.clone(), std::fs::read(&path).unwrap()));
                }
            }
        }
        found
    };
    let before = dir.exists().then(|| list(dir));
    for opened in [
        Options::new().existing_only().open(dir),
        Options::new().open_read_only(dir),
        if before.is_some() {
            Options::new().open(dir)
        } else {
            Options::new().existing_only().open(dir)
        },
    ] {
        let error = opened.unwrap_err();
        assert!(is_right(&error), "{error}");
        let text = error.to_string();
        assert!(text.contains(&dir.display().to_string()), "{text}");
    }
    assert_eq!(dir.exists().then(|| list(dir)), before);
}

#[test]
fn a_folder_with_something_else_in_it_is_no_store() {
    let folder = Folder::new("folders");
    let no_store = |e: &StoreError| matches!(e, StoreError::NotAStore { .. });
    let files_in_it = folder.join("files");
    std::fs::create_dir(&files_in_it).unwrap();
    std::fs::write(files_in_it.join("letter.txt"), "dear").unwrap();
    check_untouched(&files_in_it, no_store);
    let folder_in_it = folder.join("folder");
    std::fs::create_dir_all(folder_in_it.join("sub")).unwrap();
    check_untouched(&folder_in_it, no_store);
    let log_in_it = folder.join("log");
    drop(dalsegno_log::Log::open(log_in_it.join("log")).unwrap());
    check_untouched(&log_in_it, no_store);
    let other_marker = folder.join("marker");
    std::fs::create_dir(&other_marker).unwrap();
    std::fs::write(other_marker.join("store"), "a shop\n").unwrap();
    check_untouched(&other_marker, no_store);
    let marker_is_a_folder = folder.join("marker-folder");
    std::fs::create_dir_all(marker_is_a_folder.join("store")).unwrap();
    check_untouched(&marker_is_a_folder, no_store);
    let a_file = folder.join("file");
    std::fs::write(&a_file, "dear").unwrap();
    assert!(Options::new().open(&a_file).is_err());
    assert_eq!(std::fs::read(&a_file).unwrap(), b"dear");
}

#[test]
fn a_folder_that_is_missing_or_empty_is_no_store_yet() {
    let folder = Folder::new("folders");
    let no_store = |e: &StoreError| matches!(e, StoreError::NotAStore { .. });
    check_untouched(&folder.join("missing"), no_store);
    assert!(!folder.join("missing").exists());
    let empty = folder.join("empty");
    std::fs::create_dir(&empty).unwrap();
    let existing = Options::new().existing_only().open(&empty);
    assert!(matches!(existing, Err(StoreError::NotAStore { .. })));
    assert!(files(&empty).is_empty());
    // What a crash leaves of a store in the making does not stop the next one.
    std::fs::write(empty.join("store.tmp"), "dalsegno st").unwrap();
    drop(LocalStore::open(&empty).unwrap());
    let nested = folder.join("a").join("b");
    if let Err(e) = LocalStore::open(&nested) {
        assert!(e.to_string().contains("b"), "{e}");
    }
}

#[test]
fn a_store_from_a_newer_version_is_left_alone() {
    let folder = Folder::new("folders");
    let dir = folder.store();
    fill(&options().open(&dir).unwrap());
    let marker = dir.join("store");
    let text = std::fs::read_to_string(&marker).unwrap();
    for newer in [
        text.replace("format 1", "format 2"),
        "dalsegno store\nformat 2\nand whatever it has then\n".into(),
    ] {
        assert_ne!(newer, text);
        std::fs::write(&marker, newer).unwrap();
        check_untouched(&dir, |e| {
            matches!(
                e,
                StoreError::Version {
                    found: 2,
                    known: 1,
                    ..
                }
            )
        });
    }
    std::fs::write(&marker, text).unwrap();
    everything(&options().open(&dir).unwrap());
}

#[test]
fn a_damaged_marker_is_named() {
    let folder = Folder::new("folders");
    let dir = folder.store();
    fill(&options().open(&dir).unwrap());
    let marker = dir.join("store");
    let whole = std::fs::read(&marker).unwrap();
    let mut variants = vec![vec![], [&whole[..], b"x"].concat(), vec![0; 10_000]];
    variants.extend((1..whole.len()).step_by(7).map(|at| whole[..at].to_vec()));
    variants.extend((0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    }));
    for bytes in variants {
        std::fs::write(&marker, bytes).unwrap();
        for opened in [options().open(&dir), options().open_read_only(&dir)] {
            let error = opened.unwrap_err();
            // One bit can make a 3 of the format's 1.
            assert!(
                matches!(
                    error,
                    StoreError::NotAStore { .. }
                        | StoreError::Damaged { .. }
                        | StoreError::Version { .. }
                ),
                "{error}"
            );
            let text = error.to_string();
            assert!(text.contains(&dir.display().to_string()), "{text}");
            assert!(text.len() < 1000, "{text}");
        }
    }
    std::fs::write(&marker, whole).unwrap();
    everything(&options().open(&dir).unwrap());
}

#[test]
#[ignore = "the process that owns the store"]
fn owns_a_store_until_it_is_killed() {
    let Some(dir) = std::env::var_os("OWNED_STORE") else {
        return;
    };
    let _store = options().open(dir).unwrap();
    println!("@open");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    use std::io::{BufRead, BufReader};
    let folder = Folder::new("folders");
    let dir = folder.store();
    let store = options().open(&dir).unwrap();
    fill(&store);
    let digest = everything(&store);
    let own_id = std::process::id().to_string();
    let error = options().open(&dir).unwrap_err().to_string();
    assert!(error.contains(&own_id), "{error}");
    let view = options().open_read_only(&dir).unwrap();
    assert_eq!(everything(&view), digest);
    let refused = try_append(&view, &memory("notes"), vec![noted(1)]).unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly), "{refused}");
    drop(view);
    store.close().unwrap();
    let mut child = this_program("owns_a_store_until_it_is_killed")
        .env("OWNED_STORE", &dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = lines.map(|line| line.unwrap());
    assert!(said.any(|line| reported(&line) == Some("open")));
    let error = options().open(&dir).unwrap_err().to_string();
    assert!(error.contains(&child.id().to_string()), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let store = options().open(&dir).unwrap();
    assert_eq!(all(&store, &memory("notes")).len(), 13);
}

/// Also if the store is at work behind the scenes just then.
#[test]
fn a_dropped_store_can_be_opened_at_once() {
    let folder = Folder::new("folders");
    let busy = options().snapshot_every(std::time::Duration::from_micros(50));
    for number in 0..150 {
        let store = busy.open(folder.store()).unwrap();
        let events = (0..20).map(|_| noted(number)).collect();
        try_append(&store, &memory("notes"), events).unwrap();
        // So that the drop meets every moment of the work.
        std::thread::sleep(std::time::Duration::from_micros(number * 7));
        drop(store);
    }
    let store = busy.open(folder.store()).unwrap();
    assert_eq!(all(&store, &memory("notes")).len(), 3000);
}

#[test]
fn a_closed_store_says_so() {
    let folder = Folder::new("folders");
    let store = options().open(folder.store()).unwrap();
    let other = store.clone();
    store.close().unwrap();
    store.close().unwrap();
    let refused = try_append(&other, &memory("notes"), vec![noted(1)]).unwrap_err();
    assert!(matches!(refused, StoreError::Closed), "{refused}");
    let position = block_on(other.position()).unwrap_err();
    assert!(matches!(position, StoreError::Closed), "{position}");
    let waited = block_on(other.changed(0)).unwrap_err();
    assert!(matches!(waited, StoreError::Closed), "{waited}");
    let letters = block_on(other.take_letters()).unwrap_err();
    assert!(matches!(letters, StoreError::Closed), "{letters}");
    drop((store, other));
    drop(options().open(folder.store()).unwrap());
}

/// Stores end up in messages and logs, where what users gave them must not.
#[test]
fn a_store_is_printed_without_its_content() {
    let folder = Folder::new("folders");
    let store = options().open(folder.store()).unwrap();
    fill(&store);
    let text = format!("{store:?}");
    assert!(
        text.contains(&folder.store().display().to_string()),
        "{text}"
    );
    assert!(text.len() < 500 && !text.contains("notes"), "{text}");
}
