//! `dalsegno doctor`: each check says what it found, and what to do.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;

use common::trouble::{
    everything, flip, on_small_disk_then, segment, without_rights, without_snapshots,
};
use common::{TempDir, dalsegno, stores};
use dalsegno_store::{Append, Kind, NewEvent, Options, Store, StreamId};
use serde_json::Value;

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap()
}

fn doctor(store: &std::path::Path, code: i32) -> Value {
    let document = dalsegno(store, ["doctor", "--json"]).ends(code).json();
    assert_eq!(document["schema"], "dalsegno.doctor/1");
    document
}

#[test]
fn a_store_that_is_well_stays_as_it_is() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    let before = everything(&store);
    let document = doctor(&store, 0);
    for name in [
        "store",
        "writable",
        "permissions",
        "clock",
        "owner",
        "mailbox",
        "repair",
    ] {
        assert_eq!(check(&document, name)["verdict"], "ok", "{document:#}");
    }
    for name in ["sync", "space", "file system", "open files"] {
        assert_ne!(check(&document, name)["found"], "", "{document:#}");
    }
    assert_eq!(check(&document, "owner")["found"], "nobody");
    let text = dalsegno(&store, ["doctor"]).ok().stdout;
    assert!(
        text.contains("a file was made, written, synced and removed"),
        "{text}"
    );
    assert_eq!(before, everything(&store), "nothing is left behind");
}

#[test]
fn a_live_owner_and_letters_are_said() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    common::block_on(async {
        let remote = dalsegno::Remote::open(&store).unwrap();
        remote.signal("signal", "go", &"now").await.unwrap();
    });
    let document = doctor(&store, 0);
    let mailbox = check(&document, "mailbox");
    assert_eq!(mailbox["verdict"], "warn");
    assert!(
        mailbox["to_do"]
            .as_str()
            .unwrap()
            .contains("dalsegno recover")
    );
    common::block_on(async {
        let app = stores::app(&store).await;
        let document = doctor(&store, 0);
        let owner = format!("process {}", std::process::id());
        assert_eq!(check(&document, "owner")["found"], owner);
        app.close().await.unwrap();
    });
}

#[test]
fn a_clock_that_went_back_is_bad() {
    let dir = TempDir::new();
    let store = dir.join("store");
    common::block_on(async {
        let tomorrow = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
        let tomorrow = tomorrow.duration_since(std::time::UNIX_EPOCH).unwrap();
        let options = Options::new().clock(move || tomorrow.as_micros() as u64);
        let local = options.open(&store).unwrap();
        let run = StreamId::run("r").unwrap();
        let created = vec![NewEvent::new(Kind::RunCreated)];
        local.append(vec![Append::to(run, created)]).await.unwrap();
        local.close().unwrap();
    });
    let document = doctor(&store, 1);
    let clock = check(&document, "clock");
    assert_eq!(clock["verdict"], "bad");
    assert!(
        clock["found"].as_str().unwrap().contains("behind"),
        "{clock}"
    );
}

#[test]
fn damage_is_code_4_and_the_other_checks_are_made() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    flip(&segment(&store), 4200);
    without_snapshots(&store);
    let document = doctor(&store, 4);
    assert_eq!(document["damaged"], true);
    assert_eq!(check(&document, "store")["verdict"], "bad");
    assert_eq!(check(&document, "writable")["verdict"], "ok");
}

#[test]
fn what_others_may_read_is_warned_of_and_what_may_not_be_written_is_bad() {
    let dir = TempDir::new();
    let store = dir.join("store");
    stores::every_state(&store);
    std::fs::set_permissions(store.join("store"), PermissionsExt::from_mode(0o644)).unwrap();
    let document = doctor(&store, 0);
    let permissions = check(&document, "permissions");
    assert_eq!(permissions["verdict"], "warn");
    assert!(permissions["to_do"].as_str().unwrap().contains("chmod"));
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let ran = without_rights(&store, &["doctor"]).ends(1);
    assert!(ran.stdout.contains("  writable  "), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("run this as the user"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_small_disk_in_memory_is_said() {
    let (dir, disk) = (TempDir::new(), TempDir::new());
    stores::every_state(&dir.join("store"));
    let (from, to) = (dir.join("store"), disk.join("copy"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let ran = on_small_disk_then(
        disk.path(),
        "40m",
        &["--store", from, "snapshot", to],
        &["--store", to, "doctor", "--json"],
    )
    .ends(1);
    let document: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(check(&document, "space")["verdict"], "bad", "{document:#}");
    let kind = check(&document, "file system");
    assert_eq!(kind["verdict"], "warn");
    assert!(kind["found"].as_str().unwrap().contains("tmpfs"), "{kind}");
}

#[test]
fn no_store_is_said() {
    let dir = TempDir::new();
    let ran = dalsegno(dir.path(), ["doctor"]).ends(1);
    assert!(ran.stderr.contains("no store in"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
