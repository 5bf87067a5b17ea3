//! `dalsegno snapshot`: recovery points, and copies of a store in use.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use common::trouble::{
    flip, interrupt, large_segment, large_store, left, on_small_disk, without_rights,
};
use common::{TempDir, command, dalsegno, stores};
use serde_json::Value;

fn roles(document: &Value) -> Vec<&str> {
    let snapshots = document["snapshots"].as_array().unwrap();
    let roles = snapshots.iter().map(|info| info["role"].as_str().unwrap());
    roles.collect()
}

#[test]
fn a_recovery_point_is_pinned_listed_used_and_unpinned() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let pinned = dalsegno(dir.path(), ["snapshot", "--pin", "--json"])
        .ok()
        .json();
    assert_eq!(pinned["schema"], "dalsegno.snapshot/1");
    let position = pinned["written"].as_u64().unwrap();
    dalsegno(dir.path(), ["snapshot"]).ok();
    let listed = dalsegno(dir.path(), ["snapshot", "--list", "--json"])
        .ok()
        .json();
    assert!(roles(&listed).contains(&"recovery"), "{listed}");
    assert!(roles(&listed).contains(&"current"), "{listed}");
    let text = dalsegno(dir.path(), ["snapshot", "--list"]).ok().stdout;
    assert!(text.contains("recovery"), "{text}");

    // If all others are damaged, opening still has this one.
    for info in listed["snapshots"].as_array().unwrap() {
        if info["pinned"] == false {
            let file = info["file"].as_str().unwrap();
            flip(&dir.path().join("snapshots").join(file), 60);
        }
    }
    dalsegno(dir.path(), ["ls"]).ok();
    dalsegno(dir.path(), ["verify"]).ends(4);
    dalsegno(dir.path(), ["repair", "--yes"]).ok();
    dalsegno(dir.path(), ["verify"]).ok();

    let position = position.to_string();
    dalsegno(dir.path(), ["snapshot", "--unpin", &position]).ok();
    let ran = dalsegno(dir.path(), ["snapshot", "--unpin", &position]).ends(1);
    assert!(ran.stderr.contains("--list"), "{}", ran.stderr);
    dalsegno(dir.path(), ["snapshot", "--pin", "--list"]).ends(2);
}

#[test]
fn a_copy_is_taken_beside_a_live_owner() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let copy = place.join("copy");
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        for run in ["signal", "approval"] {
            app.start("writer", run, &run).await.unwrap();
        }
        stores::settled(&app, &["signal", "approval"]).await;
        let to = copy.to_str().unwrap();
        let document = dalsegno(dir.path(), ["snapshot", to, "--json"]).ok().json();
        assert_eq!(document["schema"], "dalsegno.snapshot-copy/1");
        assert_eq!(document["sound"], true);
        let mode = copy.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "what agents saw is private");
        let ran = dalsegno(dir.path(), ["snapshot", to]).ends(1);
        assert!(
            ran.stderr.contains("nothing is ever overwritten"),
            "{}",
            ran.stderr
        );
        let ran = dalsegno(dir.path(), ["snapshot", "--pin"]).ends(1);
        assert!(ran.stderr.contains("in use by process"), "{}", ran.stderr);
        assert!(ran.stderr.contains("snapshot DIR"), "{}", ran.stderr);
        app.close().await.unwrap();
    });
    let listed = dalsegno(&copy, ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    // It goes on like the store itself.
    common::block_on(async {
        let app = stores::app(&copy).await;
        app.signal("signal", "go", &"now").await.unwrap();
        let run = app.find("signal").await.unwrap();
        let _: String = run.result().await.unwrap();
        app.close().await.unwrap();
    });
    dalsegno(&copy, ["verify"]).ok();
}

#[test]
fn a_copy_of_damage_says_so() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    large_store(dir.path(), 20);
    flip(&large_segment(dir.path()), 1 << 19);
    let copy = place.join("copy");
    let ran = dalsegno(dir.path(), ["snapshot", copy.to_str().unwrap()]).ends(4);
    assert!(
        ran.stdout.contains("segment 2 of the log"),
        "{}",
        ran.stdout
    );
}

#[test]
fn ctrl_c_in_the_middle_of_a_copy_leaves_nothing() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    large_store(dir.path(), 12);
    let mut interrupted = 0;
    for round in 0..5 {
        let to = place.join(&round.to_string());
        let mut copy = command();
        copy.arg("--store").arg(dir.path()).arg("snapshot").arg(&to);
        let copy = copy.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = copy.spawn().unwrap();
        while !to.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        interrupt(&child);
        match child.wait().unwrap().code() {
            Some(130) => {
                interrupted += 1;
                assert!(!to.exists());
            }
            code => {
                assert_eq!(code, Some(0));
                dalsegno(&to, ["verify"]).ok();
            }
        }
    }
    assert!(interrupted > 0);
}

#[test]
fn a_full_disk_no_rights_and_no_store_are_said() {
    let (dir, disk) = (TempDir::new(), TempDir::new());
    stores::every_state(dir.path());
    let (store, to) = (dir.path().to_str().unwrap(), disk.join("copy"));
    let args = ["--store", store, "snapshot", to.to_str().unwrap()];
    let ran = on_small_disk(disk.path(), "1m", &args).ends(1);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    assert_eq!(left(&ran), [""; 0]);
    let ran = without_rights(dir.path(), &["snapshot", "--pin"]).ends(1);
    assert!(ran.stderr.contains("ermission denied"), "{}", ran.stderr);
    let nothing = disk.join("nothing");
    for args in [
        &["snapshot"][..],
        &["snapshot", "--list"],
        &["snapshot", to.to_str().unwrap()],
    ] {
        let ran = dalsegno(&nothing, args).ends(1);
        assert!(ran.stderr.contains("no store in"), "{}", ran.stderr);
    }
    assert!(!nothing.exists() && !to.exists());
}
