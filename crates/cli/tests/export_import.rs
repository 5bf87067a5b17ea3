//! `dalsegno export` and `dalsegno import`: whole files or none, and nothing overwritten.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::trouble::{flip, interrupt, large_store, left, on_small_disk};
use common::{TempDir, at_once, command, dalsegno, run, start, stores};
use serde_json::json;

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_was_exported_is_imported_elsewhere() {
    let (dir, files_dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    stores::every_state(dir.path());
    let file = files_dir.join("two runs.dalsegno");
    let ran = dalsegno(
        dir.path(),
        ["export", "done", "signal", text(&file), "--json"],
    )
    .ok();
    let document = ran.json();
    assert_eq!(document["schema"], "dalsegno.export/1");
    let streams = document["streams"].as_array().unwrap();
    let names: Vec<_> = streams
        .iter()
        .map(|s| s["stream"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["run/done", "run/signal"]);
    let verified = dalsegno(dir.path(), ["verify", text(&file), "--json"])
        .ok()
        .json();
    assert_eq!(verified["hash"], document["hash"]);

    let ran = dalsegno(other.path(), ["import", text(&file)]).ends(1);
    assert!(ran.stderr.contains("--create"), "{}", ran.stderr);
    assert_eq!(files(other.path()), [""; 0]);
    let ran = dalsegno(other.path(), ["import", "--create", text(&file), "--json"]).ok();
    assert_eq!(ran.json()["imported"], document["streams"]);
    let again = dalsegno(other.path(), ["import", text(&file), "--json"])
        .ok()
        .json();
    assert_eq!(again["present"], json!(["run/done", "run/signal"]));
    assert_eq!(again["events"], 0);
    dalsegno(other.path(), ["verify"]).ok();
    let listed = dalsegno(other.path(), ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);

    // Under another name, and not over something else.
    let one = files_dir.join("one.dalsegno");
    dalsegno(dir.path(), ["export", "done", text(&one)]).ok();
    dalsegno(other.path(), ["import", text(&one), "--as", "done 🐋"]).ok();
    let ran = dalsegno(other.path(), ["import", text(&one), "--as", "signal"]).ends(1);
    assert!(
        ran.stderr.contains("there is one of this name"),
        "{}",
        ran.stderr
    );
}

#[test]
fn everything_goes_through_a_pipe() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    stores::every_state(dir.path());
    let mut export = command();
    export
        .arg("--store")
        .arg(dir.path())
        .args(["export", "--all", "-"]);
    let mut export = export.stdout(Stdio::piped()).spawn().unwrap();
    let mut import = command();
    import
        .arg("--store")
        .arg(other.path())
        .args(["import", "--create", "-"]);
    import.stdin(export.stdout.take().unwrap());
    let imported = run(import).ok();
    assert!(export.wait().unwrap().success());
    assert!(
        imported.stdout.contains("imported run/done"),
        "{}",
        imported.stdout
    );
    let mut listed = dalsegno(other.path(), ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"].as_array_mut().unwrap().len(), 6);

    // A reader that goes away has not got the file: that is no success here.
    let mut export = command();
    export
        .arg("--store")
        .arg(dir.path())
        .args(["export", "--all", "-"]);
    let mut export = export
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(export.stdout.take());
    assert_eq!(export.wait().unwrap().code(), Some(1));
    dalsegno(dir.path(), ["export", "--all", "-", "--json"]).ends(2);
    dalsegno(dir.path(), ["export", "lonely.dalsegno"]).ends(2);
}

#[test]
fn nothing_is_overwritten_without_a_word() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    stores::every_state(dir.path());
    let file = place.join("out");
    std::fs::write(&file, b"mine").unwrap();
    let ran = dalsegno(dir.path(), ["export", "--all", text(&file)]).ends(1);
    assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let missing = dalsegno(dir.path(), ["export", "nobody", text(&place.join("x"))]).ends(1);
    assert!(
        missing.stderr.contains("there is no run"),
        "{}",
        missing.stderr
    );
    let meant = dalsegno(dir.path(), ["export", "dun", text(&place.join("x"))]).ends(1);
    assert!(
        meant.stderr.contains("did you mean \"done\"?"),
        "{}",
        meant.stderr
    );
    dalsegno(dir.path(), ["export", "--all", text(place.path())]).ends(1);
    dalsegno(
        dir.path(),
        ["export", "--all", text(&place.join("no/such/folder"))],
    )
    .ends(1);
    assert_eq!(files(place.path()), ["out"], "no half of a file is left");
    // A device is not replaced by a file, nor a link by what it leads to.
    let device = dalsegno(dir.path(), ["export", "--all", "--force", "/dev/null"]).ends(1);
    assert!(
        device.stderr.contains("no regular file"),
        "{}",
        device.stderr
    );
    let link = place.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    dalsegno(dir.path(), ["export", "--all", text(&link)]).ends(1);
    dalsegno(dir.path(), ["export", "--all", "--force", text(&link)]).ok();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    dalsegno(dir.path(), ["verify", text(&file)]).ok();
    dalsegno(dir.path(), ["export", "--all", "--force", text(&file)]).ok();
    dalsegno(dir.path(), ["verify", text(&file)]).ok();

    // Anything else is not believed, and no store is made for it.
    let other = place.join("store");
    flip(&file, 2000);
    dalsegno(&other, ["verify", text(&file)]).ends(4);
    dalsegno(&other, ["import", "--create", text(&file)]).ends(4);
    std::fs::write(&file, b"something else").unwrap();
    dalsegno(&other, ["import", "--create", text(&file)]).ends(1);
    dalsegno(&other, ["import", "--create", text(&place.join("missing"))]).ends(1);
    assert!(!other.exists());
}

#[test]
fn export_works_beside_a_live_owner_and_import_names_it() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        app.start("writer", "signal", &"signal").await.unwrap();
        stores::settled(&app, &["signal"]).await;
        let file = place.join("signal.dalsegno");
        dalsegno(dir.path(), ["export", "signal", text(&file)]).ok();
        let ran = dalsegno(dir.path(), ["import", text(&file)]).ends(1);
        let owner = format!("in use by process {}", std::process::id());
        assert!(ran.stderr.contains(&owner), "{}", ran.stderr);
        app.close().await.unwrap();
    });
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    large_store(dir.path(), 12);
    let mut interrupted = 0;
    for round in 0..5 {
        let file = place.join(&format!("{round}.dalsegno"));
        let mut child = start(dir.path(), ["export", "--all", text(&file)]);
        let half: PathBuf = place.join(&format!("{round}.dalsegno.{}.tmp", child.id()));
        while !half.exists() && !file.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        interrupt(&child);
        match child.wait().unwrap().code() {
            Some(130) => {
                interrupted += 1;
                assert!(!file.exists() && !half.exists());
            }
            // It was too late.
            code => {
                assert_eq!(code, Some(0));
                dalsegno(dir.path(), ["verify", text(&file)]).ok();
            }
        }
    }
    assert!(interrupted > 0);
    assert!(
        files(place.path())
            .iter()
            .all(|name| !name.ends_with(".tmp"))
    );
}

#[test]
fn an_import_that_was_interrupted_goes_on() {
    let (dir, other, place) = (TempDir::new(), TempDir::new(), TempDir::new());
    large_store(dir.path(), 6);
    let file = place.join("large.dalsegno");
    dalsegno(dir.path(), ["export", "--all", text(&file)]).ok();
    let mut child = start(other.path(), ["import", "--create", text(&file)]);
    while !other.join("log").exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    interrupt(&child);
    child.wait().unwrap();
    dalsegno(other.path(), ["import", "--create", text(&file)]).ok();
    dalsegno(other.path(), ["verify"]).ok();
}

/// A pipe whose writer never ends: what was read of it until then goes.
#[test]
fn ctrl_c_while_reading_a_pipe_leaves_nothing() {
    let (dir, spool) = (TempDir::new(), TempDir::new());
    let mut import = command();
    import
        .arg("--store")
        .arg(dir.join("s"))
        .args(["import", "--create", "-"]);
    import
        .env("TMPDIR", spool.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = import.spawn().unwrap();
    while files(spool.path()).is_empty() {
        std::thread::yield_now();
    }
    // Waiting would close it, and end the file.
    let stdin = child.stdin.take();
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
    assert_eq!(files(spool.path()), [""; 0]);
    assert!(!dir.join("s").exists());
}

#[test]
fn two_exports_of_one_file_at_once() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    stores::every_state(dir.path());
    let file = place.join("same.dalsegno");
    let codes = at_once(4, dir.path(), &["export", "--all", text(&file)]);
    assert_eq!(codes, [Some(0), Some(1), Some(1), Some(1)]);
    dalsegno(dir.path(), ["verify", text(&file)]).ok();
    assert_eq!(files(place.path()), ["same.dalsegno"]);
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left_on_it() {
    let (dir, disk) = (TempDir::new(), TempDir::new());
    large_store(dir.path(), 3);
    let store = text(dir.path());
    let file = disk.join("out.dalsegno");
    let args = ["--store", store, "export", "--all", text(&file)];
    let ran = on_small_disk(disk.path(), "1m", &args).ends(1);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: make room"), "{}", ran.stderr);
    assert_eq!(left(&ran), [""; 0]);

    let good = TempDir::new();
    let file = good.join("out.dalsegno");
    dalsegno(dir.path(), ["export", "--all", text(&file)]).ok();
    let small = disk.join("store");
    let args = ["--store", text(&small), "import", "--create", text(&file)];
    let ran = on_small_disk(disk.path(), "1m", &args).ends(1);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
}

#[test]
fn nothing_is_done_without_rights() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    for args in [
        &["export", "--all", "/tmp/never.dalsegno"][..],
        &["import", "/etc/hostname"],
    ] {
        let ran = common::trouble::without_rights(dir.path(), args).ends(1);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
    assert!(!Path::new("/tmp/never.dalsegno").exists());
}
