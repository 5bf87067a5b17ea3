//! Snapshots and indexes are helpers: damaged, deleted or old, the store says so and is the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use dalsegno_store::{Hash, Kind, LocalStore, StoreError, StreamId};

mod common;
use common::local::{
    Folder, all, append, durable, everything, files, fill, flip, memory, noted, options,
};

/// A filled store that was closed, and what was in it.
fn filled(folder: &Folder) -> (PathBuf, Hash) {
    let dir = folder.store();
    let store = options().open(&dir).unwrap();
    fill(&store);
    let content = everything(&store);
    store.close().unwrap();
    (dir, content)
}

fn snapshots(dir: &Path) -> Vec<PathBuf> {
    files(&dir.join("snapshots"))
}

/// The same as a reader sees it, who writes nothing.
fn check_content(dir: &Path, content: Hash) {
    let view = options().open_read_only(dir).unwrap();
    assert_eq!(everything(&view), content);
}

fn recoveries(store: &LocalStore) -> Vec<String> {
    let events = all(store, &StreamId::store());
    let recovered = events
        .iter()
        .filter(|recorded| recorded.event.kind == Kind::StoreRecovered);
    recovered.map(|r| format!("{:?}", r.event.fields)).collect()
}

#[test]
fn a_damaged_snapshot_is_passed_over_for_the_older_one() {
    let whole = Folder::new("lost-helpers");
    let (dir, _) = filled(&whole);
    let newest = snapshots(&dir).pop().unwrap();
    let length = std::fs::metadata(&newest).unwrap().len() as usize;
    for at in [0, 17, 30, 40, 45, 55, 60, length / 2, length - 1] {
        let folder = Folder::new("lost-helpers");
        let (dir, content) = filled(&folder);
        let newest = snapshots(&dir).pop().unwrap();
        let older = snapshots(&dir)[0].clone();
        flip(&newest, at);
        check_content(&dir, content);
        let store = options().open(&dir).unwrap();
        let opened = store.opened();
        let name = newest.file_name().unwrap().to_str().unwrap();
        assert_eq!(opened.notices.len(), 1, "{opened:?}");
        assert!(opened.notices[0].contains(name), "{opened:?}");
        let older_name = older.file_name().unwrap().to_str().unwrap();
        let position = opened.snapshot.unwrap().to_string();
        assert!(older_name.contains(&position), "{opened:?}");
        let told = recoveries(&store);
        assert!(told.len() == 1 && told[0].contains(name), "{told:?}");
        // The damaged one is replaced sooner or later, and it is said once.
        append(&store, &memory("notes"), vec![noted(1)]);
        store.close().unwrap();
        let store = options().open(&dir).unwrap();
        assert_eq!(store.opened().notices, [""; 0]);
    }
}

#[test]
fn without_a_good_snapshot_the_whole_log_is_read() {
    let folder = Folder::new("lost-helpers");
    let (dir, content) = filled(&folder);
    for snapshot in snapshots(&dir) {
        std::fs::write(snapshot, b"dalsegno st").unwrap();
    }
    check_content(&dir, content);
    let store = options().open(&dir).unwrap();
    let opened = store.opened();
    assert_eq!(opened.snapshot, None);
    assert_eq!(opened.replayed, opened.position);
    assert_eq!(opened.notices.len(), 3, "{opened:?}");
    assert!(opened.notices[2].contains("whole log"), "{opened:?}");
    assert_eq!(recoveries(&store).len(), 1);
}

#[test]
fn deleted_snapshots_and_indexes_are_no_loss() {
    let folder = Folder::new("lost-helpers");
    let (dir, content) = filled(&folder);
    for helpers in ["snapshots", "index"] {
        std::fs::remove_dir_all(dir.join(helpers)).unwrap();
        check_content(&dir, content);
        assert!(!dir.join(helpers).exists(), "a reader wrote");
        let store = options().open(&dir).unwrap();
        assert_eq!(store.opened().notices, [""; 0]);
        assert_eq!(everything(&store), content);
        store.close().unwrap();
    }
    assert!(files(&dir.join("index")).len() > 2, "made again");
}

#[test]
fn a_damaged_index_is_made_again() {
    let folder = Folder::new("lost-helpers");
    let (dir, content) = filled(&folder);
    let indexes = files(&dir.join("index"));
    let whole: Vec<_> = indexes
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let length = whole.iter().map(Vec::len).max().unwrap();
    for step in 0..40 {
        let at = step * length / 40;
        for (path, bytes) in indexes.iter().zip(&whole) {
            std::fs::write(path, bytes).unwrap();
            if at < bytes.len() {
                flip(path, at);
            }
        }
        check_content(&dir, content);
        let store = options().open(&dir).unwrap();
        assert_eq!(everything(&store), content, "byte {at}");
        store.close().unwrap();
    }
    for bytes in [&b""[..], b"other", &[0; 9000]] {
        for path in &indexes {
            std::fs::write(path, bytes).unwrap();
        }
        let store = options().open(&dir).unwrap();
        assert_eq!(everything(&store), content);
        store.close().unwrap();
    }
    let again: Vec<_> = indexes
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(again == whole, "made again, but others");
}

/// Indexes of another segment or another store are not believed.
#[test]
fn an_index_of_something_else_is_made_again() {
    let folder = Folder::new("lost-helpers");
    let (dir, content) = filled(&folder);
    let indexes = files(&dir.join("index"));
    let first = std::fs::read(&indexes[0]).unwrap();
    for path in &indexes {
        std::fs::write(path, &first).unwrap();
    }
    let store = options().open(&dir).unwrap();
    assert_eq!(everything(&store), content);
    store.close().unwrap();
    let other = Folder::new("lost-helpers");
    let (other, _) = filled(&other);
    for (path, foreign) in indexes.iter().zip(files(&other.join("index"))) {
        std::fs::copy(foreign, path).unwrap();
    }
    check_content(&dir, content);
}

#[test]
fn a_snapshot_of_another_store_is_passed_over() {
    let folder = Folder::new("lost-helpers");
    let (dir, content) = filled(&folder);
    let other = Folder::new("lost-helpers");
    let (other, _) = filled(&other);
    for (own, foreign) in snapshots(&dir).iter().zip(snapshots(&other)) {
        std::fs::copy(foreign, own).unwrap();
    }
    check_content(&dir, content);
    let store = options().open(&dir).unwrap();
    assert_eq!(store.opened().notices.len(), 3, "{:?}", store.opened());
}

/// The end of the log is missing: that is no crash, and nobody may write over it.
#[test]
fn a_snapshot_newer_than_the_log_is_refused() {
    let folder = Folder::new("lost-helpers");
    let dir = folder.store();
    let store = options().open(&dir).unwrap();
    fill(&store);
    store.close().unwrap();
    let backup = folder.join("backup");
    std::fs::create_dir(&backup).unwrap();
    for file in files(&dir.join("log")) {
        std::fs::copy(&file, backup.join(file.file_name().unwrap())).unwrap();
    }
    let store = options().open(&dir).unwrap();
    let before = store.opened().position;
    append(&store, &memory("notes"), vec![noted(1)]);
    durable(&store);
    store.close().unwrap();
    std::fs::remove_dir_all(dir.join("log")).unwrap();
    std::fs::rename(&backup, dir.join("log")).unwrap();
    for opened in [options().open(&dir), options().open_read_only(&dir)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("up to {before}")), "{text}");
        assert!(text.contains(&format!("up to {}", before + 1)), "{text}");
        assert!(text.contains(".snapshot"), "{text}");
    }
}

#[test]
fn a_pinned_snapshot_stays() {
    let folder = Folder::new("lost-helpers");
    let dir = folder.store();
    let store = options().open(&dir).unwrap();
    append(&store, &memory("notes"), vec![noted(1)]);
    let pinned = store.snapshot(true).unwrap();
    assert!(pinned.pinned);
    fill(&store);
    let left = store.snapshots().unwrap();
    assert!(left.contains(&pinned), "{left:?}");
    assert!(left.iter().filter(|info| !info.pinned).count() <= 2);
    let content = everything(&store);
    store.close().unwrap();
    for info in left.iter().filter(|info| !info.pinned) {
        drop(std::fs::remove_file(dir.join("snapshots").join(&info.file)));
    }
    check_content(&dir, content);
}
