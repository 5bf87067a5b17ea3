//! `dalsegno gc`: old runs that have ended go, and nothing else.

#![allow(clippy::unwrap_used)]

mod common;

use common::trouble::{everything, flip, large_segment, large_store, without_rights};
use common::{TempDir, at_once, dalsegno, names, start, stores};

#[test]
fn what_is_announced_goes_and_can_come_back() {
    let (dir, archive) = (TempDir::new(), TempDir::new());
    stores::every_state(dir.path());
    let before = everything(dir.path());
    let would = dalsegno(
        dir.path(),
        ["gc", "--older-than", "0s", "--dry-run", "--json"],
    )
    .ok();
    let would = would.json();
    assert_eq!(would["schema"], "dalsegno.gc/1");
    assert_eq!(names(&would), ["done", "fail"]);
    assert!(would["bytes"].as_u64().unwrap() > 0);
    let text = dalsegno(dir.path(), ["gc", "--older-than", "0s", "-n"])
        .ok()
        .stdout;
    assert!(text.contains("would remove 2 runs"), "{text}");
    assert_eq!(before, everything(dir.path()));
    for args in [
        &["--older-than", "1d"][..],
        &["--keep", "2"],
        &["--keep", "9", "--older-than", "0s"],
    ] {
        let ran = dalsegno(dir.path(), [&["gc"], args].concat()).ok();
        assert_eq!(ran.stdout, "nothing to remove\n", "{args:?}");
    }
    let kept = dalsegno(dir.path(), ["gc", "--keep", "1", "--dry-run", "--json"])
        .ok()
        .json();
    assert_eq!(names(&kept).len(), 1);

    let to = archive.join("old");
    let to = to.to_str().unwrap();
    let done = dalsegno(
        dir.path(),
        ["gc", "--older-than", "0s", "--archive", to, "--json"],
    )
    .ok();
    let done = done.json();
    assert_eq!(names(&done), ["done", "fail"]);
    assert_eq!(done["records"], would["records"]);
    let listed = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    assert_eq!(names(&listed).len(), 4);
    dalsegno(dir.path(), ["verify"]).ok();
    let file = done["archives"][0].as_str().unwrap();
    dalsegno(dir.path(), ["import", file]).ok();
    let listed = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    assert_eq!(names(&listed).len(), 6);
    dalsegno(dir.path(), ["gc", "--keep", "0"]).ok();
    dalsegno(dir.path(), ["verify"]).ok();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    for args in [
        &["gc"][..],
        &["gc", "--older-than", "soon"],
        &["gc", "--keep", "-1"],
    ] {
        dalsegno(dir.path(), args).ends(2);
    }
    let nothing = TempDir::new();
    dalsegno(nothing.path(), ["gc", "--keep", "1"]).ends(1);
    let ran = without_rights(dir.path(), &["gc", "--keep", "1"]).ends(1);
    assert!(ran.stderr.contains("ermission denied"), "{}", ran.stderr);
}

#[test]
fn beside_a_live_owner_only_the_dry_run_works() {
    let dir = TempDir::new();
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        let _: String = app.run("writer", "done", &"done").await.unwrap();
        let would = dalsegno(dir.path(), ["gc", "--older-than", "0s", "-n", "--json"]).ok();
        assert_eq!(names(&would.json()), ["done"]);
        let ran = dalsegno(dir.path(), ["gc", "--older-than", "0s"]).ends(1);
        assert!(ran.stderr.contains("in use by process"), "{}", ran.stderr);
        app.close().await.unwrap();
    });
}

#[test]
fn a_damaged_run_is_not_removed_before_it_is_archived() {
    let (dir, archive) = (TempDir::new(), TempDir::new());
    large_store(dir.path(), 20);
    flip(&large_segment(dir.path()), 1 << 19);
    let to = archive.path().to_str().unwrap();
    let ran = dalsegno(dir.path(), ["gc", "--keep", "0", "--archive", to]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(std::fs::read_dir(archive.path()).unwrap().count(), 0);
    let listed = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    assert_eq!(names(&listed), ["large"]);
}

#[test]
fn killed_or_interrupted_in_the_middle_it_is_taken_up_again() {
    let (dir, archive) = (TempDir::new(), TempDir::new());
    large_store(dir.path(), 12);
    let to = archive.join("old");
    let archive = to.to_str().unwrap();
    let mut child = start(dir.path(), ["gc", "--keep", "0", "--archive", archive]);
    while !to.exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    common::trouble::interrupt(&child);
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    let half: Vec<_> = std::fs::read_dir(&to)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        half.iter()
            .all(|name| !name.to_string_lossy().ends_with(".tmp")),
        "{half:?}"
    );
    dalsegno(dir.path(), ["verify"]).ok();
    dalsegno(dir.path(), ["gc", "--keep", "0"]).ok();
    dalsegno(dir.path(), ["verify"]).ok();
    let listed = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    assert_eq!(names(&listed), [""; 0]);
}

#[test]
fn two_at_once() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let codes = at_once(2, dir.path(), &["gc", "--keep", "0"]);
    assert!(codes.contains(&Some(0)), "{codes:?}");
    dalsegno(dir.path(), ["verify"]).ok();
}
