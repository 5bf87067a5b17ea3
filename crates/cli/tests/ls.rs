//! `dalsegno ls` lists runs, those that need a person first.

#![allow(clippy::unwrap_used)]

mod common;

use common::places::Place;
use common::{TempDir, command, dalsegno, names, run, stores};
use serde_json::json;

in_both! {
    what_needs_a_person_comes_first,
    a_person_reads_a_table,
    filters_leave_out_what_was_not_asked_for,
    beside_a_live_owner,
}

fn what_needs_a_person_comes_first(dir: &Place) {
    stores::every_state(dir.path());
    let document = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    assert_eq!(document["schema"], "dalsegno.ls/1");
    let all = names(&document);
    assert_eq!(all.len(), 6, "{all:?}");
    let mut first: Vec<_> = all[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, ["approval", "doubt"]);
    let mut last: Vec<_> = all[4..].to_vec();
    last.sort_unstable();
    assert_eq!(last, ["done", "fail"]);

    let of = |name: &str| {
        let runs = document["runs"].as_array().unwrap();
        runs.iter().find(|run| run["run"] == name).unwrap().clone()
    };
    assert_eq!(of("approval")["waits"], json!(["approval publish#1"]));
    assert_eq!(of("approval")["needs_person"], true);
    assert_eq!(of("signal")["waits"], json!(["signal go"]));
    assert_eq!(of("signal")["needs_person"], false);
    assert_eq!(of("done")["status"], "completed");
    assert_eq!(of("fail")["status"], "failed");
    assert!(of("doubt")["attention"].as_str().unwrap().contains("send"));
    assert!(of("sleep")["next_timer_us"].is_u64());
}

fn a_person_reads_a_table(dir: &Place) {
    stores::every_state(dir.path());
    let text = dalsegno(dir.path(), ["ls"]).ok().stdout;
    let mut lines = text.lines();
    let heading = lines.next().unwrap();
    let heading: Vec<_> = heading
        .split("  ")
        .filter(|word| !word.is_empty())
        .collect();
    let heading: Vec<_> = heading.iter().map(|word| word.trim()).collect();
    assert_eq!(
        heading,
        ["RUN", "AGENT", "STATUS", "AGE", "CHANGED", "WAITS FOR"]
    );
    assert!(text.contains("approval publish#1"), "{text}");
    assert!(text.contains("needs person"), "{text}");
    assert!(!text.contains('\x1b'), "no colour in a pipe");
    let coloured = dalsegno(dir.path(), ["ls", "--color", "always"])
        .ok()
        .stdout;
    assert!(coloured.contains("\x1b["));
}

fn filters_leave_out_what_was_not_asked_for(dir: &Place) {
    stores::every_state(dir.path());
    for (args, expected) in [
        (&["--status", "failed"][..], &["fail"][..]),
        (&["--status", "failed,completed"], &["done", "fail"]),
        (
            &["--status", "failed", "--status", "completed"],
            &["done", "fail"],
        ),
        (&["--status", "needs-person"], &["approval", "doubt"]),
        (
            &["--status", "needs-person,failed"],
            &["approval", "doubt", "fail"],
        ),
        (&["--waiting"], &["approval", "doubt", "signal", "sleep"]),
        (&["--agent", "writer", "--status", "completed"], &["done"]),
        (&["--agent", "nobody"], &[]),
    ] {
        let ran = dalsegno(dir.path(), [&["ls", "--json"], args].concat());
        let document = ran.ok().json();
        let mut found = names(&document);
        found.sort_unstable();
        assert_eq!(found, expected, "{args:?}");
        assert_eq!(document["more"], false);
    }
    let document = dalsegno(dir.path(), ["ls", "--json", "--limit", "2"]).ok();
    assert_eq!(document.json()["more"], true);
    let text = dalsegno(dir.path(), ["ls", "-n", "2"]).ok().stdout;
    assert!(
        text.ends_with("… and more: --limit 0 shows all\n"),
        "{text}"
    );
    let exactly = dalsegno(dir.path(), ["ls", "--json", "--limit", "6"]).ok();
    assert_eq!(exactly.json()["more"], false);
    let all = dalsegno(dir.path(), ["ls", "--json", "--limit", "0"]).ok();
    assert_eq!(names(&all.json()).len(), 6);
    let none = dalsegno(dir.path(), ["ls", "--agent", "nobody"]).ok();
    assert_eq!(none.stdout, "no runs\n");
}

fn beside_a_live_owner(dir: &Place) {
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        app.start("writer", "signal", &"signal").await.unwrap();
        stores::settled(&app, &["signal"]).await;
        let document = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
        assert_eq!(names(&document), ["signal"]);
        app.close().await.unwrap();
    });
}

#[test]
fn no_store_is_said_with_what_may_have_been_meant() {
    let dir = TempDir::new();
    let missing = dir.join("nothing");
    let ran = dalsegno(&missing, ["ls"]).ends(1);
    assert!(
        ran.stderr.starts_with("error: no store in "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("hint: name the store with --store"));
    assert!(!missing.exists(), "looking makes nothing");

    stores::every_state(&dir.join("agents.dalsegno"));
    let ran = dalsegno(&missing, ["ls", "--json"]).ends(1);
    let error = ran.json_error();
    assert_eq!(error["schema"], "dalsegno.error/1");
    assert_eq!(error["exit"], 1);
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("did you mean --store"), "{hint}");
    assert!(hint.contains("agents.dalsegno"), "{hint}");

    // Something else is never taken for a store, nor changed.
    let ran = dalsegno(dir.path(), ["ls"]).ends(1);
    assert!(ran.stderr.contains("no file named store"), "{}", ran.stderr);
}

#[test]
fn the_store_is_named_by_the_environment_too() {
    let dir = TempDir::new();
    stores::every_state(&dir.join(".dalsegno"));
    let mut by_default = command();
    by_default.current_dir(dir.path()).args(["ls", "--json"]);
    assert_eq!(names(&run(by_default).ok().json()).len(), 6);
    let mut by_variable = command();
    by_variable
        .env("DALSEGNO_STORE", dir.join(".dalsegno"))
        .args(["ls", "--json"]);
    assert_eq!(names(&run(by_variable).ok().json()).len(), 6);
}

#[test]
fn wrong_use_is_code_2() {
    let dir = TempDir::new();
    let ran = dalsegno(dir.path(), ["ls", "--status", "compleeted"]).ends(2);
    assert!(ran.stderr.contains("completed"), "{}", ran.stderr);
    let ran = dalsegno(dir.path(), ["lss"]).ends(2);
    assert!(ran.stderr.contains("ls"), "{}", ran.stderr);
    let error = dalsegno(dir.path(), ["ls", "--nope", "--json"]).ends(2);
    assert_eq!(error.json_error()["exit"], 2);
}

#[test]
fn damage_is_code_4() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let segment = dir.join("log/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4200] ^= 0x55;
    std::fs::write(&segment, bytes).unwrap();
    for snapshot in std::fs::read_dir(dir.join("snapshots")).unwrap() {
        std::fs::remove_file(snapshot.unwrap().path()).unwrap();
    }
    let ran = dalsegno(dir.path(), ["ls"]).ends(4);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("dalsegno verify"), "{}", ran.stderr);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly_and_a_full_disk_does_not() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let mut child = command()
        .arg("--store")
        .arg(dir.path())
        .arg("ls")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let Ok(full) = full else { return };
    let output = command()
        .arg("--store")
        .arg(dir.path())
        .arg("ls")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        words.starts_with("error: cannot write the output"),
        "{words}"
    );
}
