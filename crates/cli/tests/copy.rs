//! `dalsegno copy`: a store in another place, with the same bytes and hashes.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::owner::Owner;
use common::places::Place;
use common::{Ran, command, dalsegno, run, stores, trouble};
use serde_json::Value;

#[test]
#[ignore = "the process that other tests start"]
fn the_owner() {
    common::owner::main();
}

fn copy(from: &Path, to: &Path, options: &[&str]) -> Ran {
    run(copying(from, to, options))
}

fn copying(from: &Path, to: &Path, options: &[&str]) -> Command {
    let mut command = command();
    command.arg("copy").arg(from).arg(to).args(options);
    command
}

/// The hash of every run and memory, as `verify` reads them from the first byte on.
fn heads(store: &Path) -> Value {
    let document = dalsegno(store, ["verify", "--heads", "--json"]).ok().json();
    assert_eq!(document["sound"], true, "{document}");
    let mut heads = document["heads"].as_object().unwrap().clone();
    heads.retain(|stream, _| !stream.starts_with("store"));
    Value::Object(heads)
}

/// What a portable file has behind the frame about itself, and before that about its end.
fn exported(store: &Path, place: &Place, name: &str) -> Value {
    let file = place.beside(name);
    let path = file.to_str().unwrap();
    dalsegno(store, ["export", "--force", "done", "approval", path]).ok();
    let mut document = dalsegno(store, ["verify", path, "--json"]).ok().json();
    for differs in ["file", "hash"] {
        document.as_object_mut().unwrap().remove(differs);
    }
    document
}

const PLACES: [fn() -> Place; 2] = [Place::folder, Place::database];

#[test]
fn from_everywhere_to_everywhere() {
    for from in PLACES {
        let from = from();
        stores::every_state(from.path());
        for to in PLACES {
            let to = to();
            let before = from.everything();
            let document = copy(from.path(), to.path(), &["--json"]).ok().json();
            assert_eq!(document["schema"], "dalsegno.copy/1");
            assert_eq!(document["same"], true);
            assert_eq!(document["streams"], 6);
            assert_eq!(document["copied"]["streams"], 6);
            assert_eq!(document["copied"]["events"], document["events"]);
            assert_eq!(heads(from.path()), heads(to.path()));
            assert_eq!(from.everything(), before, "it is only read");
            let [one, two] = [&from, &to].map(|place| exported(place.path(), place, "x"));
            assert_eq!(one, two);
            // Once more there is nothing to do, and that is said.
            let text = copy(from.path(), to.path(), &[]).ok().stdout;
            assert!(text.starts_with("nothing was to be copied"), "{text}");
            // The copy is a store like any other: its runs go on.
            dalsegno(to.path(), ["approve", "approval", "--by", "ada"]).ok();
            let owner = Owner::start(to.path(), &["approval", "signal"]);
            let args = ["signal", "signal", "go", "--wait", "20"];
            dalsegno(to.path(), args).ok();
            let shown = || {
                dalsegno(to.path(), ["show", "approval", "--json"])
                    .ok()
                    .json()
            };
            let until = Instant::now() + Duration::from_secs(20);
            while shown()["status"] != "completed" && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            owner.close();
            assert_eq!(shown()["result"], "approved: true");
            dalsegno(to.path(), ["verify"]).ok();
            // It is another store by now.
            let other = copy(from.path(), to.path(), &[]).ends(1);
            assert!(other.stderr.contains("something else in it"), "{other:?}");
        }
    }
}

#[test]
fn large_payloads_come_along() {
    let (from, to, back) = (Place::folder(), Place::database(), Place::folder());
    trouble::large_store(from.path(), 3);
    let document = copy(from.path(), to.path(), &["--json"]).ok().json();
    assert!(document["copied"]["pieces"].as_u64().unwrap() > 500);
    copy(to.path(), back.path(), &[]).ok();
    assert_eq!(heads(from.path()), heads(back.path()));
    let [one, two] = [&from, &back].map(|place| {
        let file = place.beside("large");
        dalsegno(place.path(), ["export", "large", file.to_str().unwrap()]).ok();
        std::fs::read(file).unwrap()
    });
    // But for when each was made, and what follows from that.
    assert_eq!(one.len(), two.len());
    let differ = one.iter().zip(&two).filter(|(a, b)| a != b).count();
    assert!(differ < 64, "{differ} bytes differ");
}

#[test]
fn who_is_killed_in_the_middle_goes_on() {
    for to in PLACES {
        let (from, to) = (Place::folder(), to());
        common::block_on(async {
            let app = stores::app(from.path()).await;
            for n in 0..150 {
                app.start("writer", &format!("done-{n}"), "done")
                    .await
                    .unwrap();
            }
            let runs: Vec<String> = (0..150).map(|n| format!("done-{n}")).collect();
            let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
            stores::settled(&app, &runs).await;
            app.close().await.unwrap();
        });
        trouble::large_store(&from.beside("large"), 12);
        let file = from.beside("file");
        let file = file.to_str().unwrap();
        dalsegno(&from.beside("large"), ["export", "--all", file]).ok();
        dalsegno(from.path(), ["import", file]).ok();
        let mut killed = 0;
        for wait_ms in [5, 30, 60, 100, 150, 200] {
            let mut child = copying(from.path(), to.path(), &[])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(wait_ms));
            killed += usize::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
            if !to.is_database() && killed == 1 {
                assert!(!to.path().exists(), "it has its name only when it is whole");
            }
        }
        assert!(killed > 0, "it was too fast");
        copy(from.path(), to.path(), &[]).ok();
        assert_eq!(heads(from.path()), heads(to.path()));
        dalsegno(to.path(), ["verify"]).ok();
    }
}

#[test]
fn who_works_on_it_is_named() {
    for from in PLACES {
        let (from, to) = (from(), Place::database());
        // One that hangs is held, one that waits is not.
        let owner = Owner::start(from.path(), &["hang", "signal"]);
        let refused = copy(from.path(), to.path(), &[]).ends(1);
        assert!(refused.stderr.contains("is in use: "), "{refused:?}");
        assert!(refused.stderr.contains("--live"), "{refused:?}");
        assert_eq!(
            to.sql("SELECT count(*) FROM pg_namespace WHERE nspname = current_schema()"),
            "0\n"
        );
        copy(from.path(), to.path(), &["--live"]).ok();
        // What is not all there is not gone on with.
        let free = "SELECT count(*) FROM claimable WHERE ready_us < 9223372036854775807";
        assert_eq!(to.sql(free), "0\n");
        dalsegno(from.path(), ["signal", "signal", "go", "--wait", "20"]).ok();
        let document = copy(from.path(), to.path(), &["--live", "--json"])
            .ok()
            .json();
        assert_eq!(document["copied"]["streams"], 1, "{document}");
        drop(owner);
        if !from.is_database() {
            copy(from.path(), to.path(), &[]).ok();
            assert_eq!(to.sql(free), "1\n");
            assert_eq!(heads(from.path()), heads(to.path()));
        }
    }
}

#[test]
fn what_nobody_has_taken_up_is_not_lost() {
    for from in PLACES {
        let (from, to) = (from(), Place::folder());
        stores::every_state(from.path());
        dalsegno(from.path(), ["approve", "approval", "--by", "ada"]).ok();
        let refused = copy(from.path(), to.path(), &[]).ends(1);
        assert!(refused.stderr.contains("1 letter"), "{refused:?}");
        assert!(refused.stderr.contains("recover"), "{refused:?}");
        dalsegno(from.path(), ["recover"]).ends(3);
        copy(from.path(), to.path(), &[]).ok();
        assert_eq!(heads(from.path()), heads(to.path()));
    }
}

#[test]
fn nothing_is_overwritten() {
    let (from, other) = (Place::folder(), Place::folder());
    stores::every_state(from.path());
    std::fs::create_dir(other.path()).unwrap();
    std::fs::write(other.path().join("notes"), "mine").unwrap();
    let refused = copy(from.path(), other.path(), &[]).ends(1);
    assert!(refused.stderr.contains("something in"), "{refused:?}");
    copy(from.path(), from.path(), &[]).ends(2);
    let missing = copy(&from.beside("none"), other.path(), &[]).ends(1);
    assert!(missing.stderr.contains("no store in"), "{missing:?}");
    // A run of the same name with another history.
    let to = Place::database();
    common::block_on(async {
        let app = stores::app(to.path()).await;
        app.start("writer", "done", "signal").await.unwrap();
        stores::settled(&app, &["done"]).await;
        app.close().await.unwrap();
    });
    let before = to.everything();
    let refused = copy(from.path(), to.path(), &[]).ends(1);
    assert!(refused.stderr.contains("run/done"), "{refused:?}");
    assert_eq!(to.everything(), before);
}

#[test]
fn damage_is_noticed_in_both() {
    let (from, to) = (Place::database(), Place::folder());
    stores::every_state(from.path());
    let change = "UPDATE event SET bytes = set_byte(bytes, length(bytes) - 1,
        get_byte(bytes, length(bytes) - 1) # 1)
        WHERE sequence = 3 AND stream = (SELECT no FROM stream WHERE name = 'done')";
    from.sql(change);
    copy(from.path(), to.path(), &[]).ends(4);
    assert!(!to.path().exists());
}
