//! A disk that is full or read-only: clear errors, nothing acknowledged is lost, and the store
//! goes on when there is room again.
//!
//! Each scenario runs in a child process on a real file system of a few megabytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use dalsegno_log::{AppendError, SyncError};
use dalsegno_store::{Kind, LocalStore, NewEvent, NewPayload, Store, StoreError};

mod common;
use common::local::{
    Folder, all, append, block_on, everything, memory, noted, options, run, try_append,
};
use common::{Random, small_disk};

fn root() -> Option<PathBuf> {
    std::env::var_os("SMALL_DISK").map(PathBuf::from)
}

fn is_no_space(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Append(AppendError::NoSpace(_)) | StoreError::Sync(SyncError::NoSpace(_))
    )
}

/// Appends until there is no room, and says how many events were acknowledged.
fn append_until_full(store: &LocalStore, random: &mut Random) -> usize {
    let notes = memory("notes");
    let mut acknowledged = 0;
    loop {
        let bytes = 500 + random.below(4000);
        let input = NewPayload::new("x/y", random.bytes(bytes));
        let event = noted(acknowledged).with_input(input);
        let appended = match try_append(store, &notes, vec![event]) {
            Ok(appended) => appended,
            Err(e) if is_no_space(&e) => return acknowledged as usize,
            Err(e) => panic!("{e}"),
        };
        match block_on(store.durable(appended.position)) {
            Ok(()) => acknowledged = appended.heads[0].sequence,
            Err(e) if is_no_space(&e) => {
                let text = e.to_string();
                assert!(text.contains("space") || text.contains("full"), "{text}");
                return acknowledged as usize;
            }
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
#[ignore = "runs on a small disk"]
fn meets_a_full_disk() {
    let Some(root) = root() else { return };
    let dir = root.join("store");
    let ballast = root.join("ballast");
    std::fs::write(&ballast, vec![1; 500_000]).unwrap();
    let mut random = Random(1);
    let store = options().open(&dir).unwrap();
    append(&store, &run("order"), vec![NewEvent::new(Kind::RunCreated)]);
    let first = append_until_full(&store, &mut random);
    assert!(first > 50, "{first}");
    // Everything that was acknowledged can be read, also by others.
    assert!(all(&store, &memory("notes")).len() >= first);
    let view = options().open_read_only(&dir).unwrap();
    assert!(all(&view, &memory("notes")).len() >= first);
    drop(view);
    std::fs::remove_file(&ballast).unwrap();
    let position = block_on(store.position()).unwrap();
    block_on(store.durable(position)).unwrap();
    append(
        &store,
        &run("order"),
        vec![NewEvent::new(Kind::RunCompleted)],
    );
    let second = append_until_full(&store, &mut random);
    assert!(second > first + 50, "{first}, {second}");
    drop(store);
    // It can be opened on the full disk; what was acknowledged is there.
    let store = options().open(&dir).unwrap();
    let found = all(&store, &memory("notes"));
    assert!(found.len() >= second, "{} of {second}", found.len());
    for (number, recorded) in found.iter().enumerate() {
        let input = recorded.event.input.as_ref().unwrap();
        block_on(store.payload(input)).unwrap();
        assert!(number < second || number < found.len());
    }
    assert_eq!(all(&store, &run("order")).len(), 2);
}

#[test]
#[ignore = "runs on a small disk"]
fn meets_a_disk_that_is_read_only() {
    let Some(root) = root() else { return };
    let dir = root.join("store");
    let store = options().open(&dir).unwrap();
    common::local::fill(&store);
    let content = everything(&store);
    store.close().unwrap();
    drop(store);
    // A reader makes no index, so none may be needed.
    std::fs::remove_dir_all(dir.join("index")).unwrap();
    let remounted = std::process::Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&root)
        .status()
        .unwrap();
    assert!(remounted.success());
    let view = options().open_read_only(&dir).unwrap();
    assert_eq!(everything(&view), content);
    let letter = dalsegno_store::mailbox::NewLetter::new(run("r1"), Kind::SignalReceived, 0);
    let sent = block_on(view.send(&letter)).unwrap_err().to_string();
    assert!(sent.contains("mailbox"), "{sent}");
    for dir in [&dir, &root.join("new")] {
        let error = options().open(dir).unwrap_err().to_string();
        assert!(error.contains(&dir.display().to_string()), "{error}");
        assert!(error.to_lowercase().contains("read-only"), "{error}");
    }
}

#[track_caller]
fn check_on_a_small_disk(size: &str, scenario: &str) {
    let folder = Folder::new("full-store-disk");
    let mount_point = folder.join("disk");
    std::fs::create_dir(&mount_point).unwrap();
    let output = small_disk::run_on(&mount_point, size, scenario);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[test]
fn a_full_disk_can_be_waited_out() {
    check_on_a_small_disk("2m", "meets_a_full_disk");
}

#[test]
fn a_read_only_disk_can_be_read() {
    check_on_a_small_disk("4m", "meets_a_disk_that_is_read_only");
}
