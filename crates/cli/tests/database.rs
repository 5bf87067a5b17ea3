//! What is special about stores in PostgreSQL: verifying, what does not apply, and bad input.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use std::path::{Path, PathBuf};

use common::places::Place;
use common::{Ran, dalsegno, stores, trouble};
use scripts::{Scripts, kill};

fn damaged(place: &Place, sql: &str, words: &str) {
    stores::every_state(place.path());
    dalsegno(place.path(), ["verify"]).ok();
    place.sql(sql);
    let ran = dalsegno(place.path(), ["verify"]).ends(4);
    assert!(ran.stdout.contains(words), "{words} is not in {ran:?}");
    let document = dalsegno(place.path(), ["verify", "--json"]).ends(4).json();
    assert_eq!(document["sound"], false);
    assert_eq!(
        document["problems"].as_array().unwrap().len(),
        1,
        "{document}"
    );
}

const DONE: &str = "(SELECT no FROM stream WHERE name = 'done')";

#[test]
fn whatever_is_changed_is_found_and_named() {
    for (sql, words) in [
        (
            format!(
                "UPDATE event SET bytes = set_byte(bytes, length(bytes) - 1, get_byte(bytes, \
                 length(bytes) - 1) # 1) WHERE sequence = 3 AND stream = {DONE}"
            ),
            "event 3 of run/done",
        ),
        (
            format!("DELETE FROM event WHERE sequence = 4 AND stream = {DONE}"),
            "event 4 of run/done",
        ),
        (
            // Nobody would notice that the last one is missing but for the row of the stream.
            format!(
                "DELETE FROM event WHERE stream = {DONE} AND sequence = \
                 (SELECT max(sequence) FROM event WHERE stream = {DONE})"
            ),
            "run/done",
        ),
        (
            format!(
                "UPDATE event SET hash = decode(repeat('00', 32), 'hex') \
                     WHERE sequence = 2 AND stream = {DONE}"
            ),
            "event 2 of run/done",
        ),
        (
            format!("UPDATE run SET status = 1 WHERE stream = {DONE}"),
            "the row of run/done in the list of runs",
        ),
        ("DELETE FROM timer".to_owned(), "the timers of run/sleep"),
        (
            "UPDATE timer SET due_us = due_us + 1".to_owned(),
            "the timers of run/sleep",
        ),
        (
            "DELETE FROM claimable WHERE stream = (SELECT no FROM stream WHERE name = 'sleep')"
                .to_owned(),
            "the row of run/sleep in the table claimable",
        ),
        (
            "UPDATE claimable SET agent = 'x' \
             WHERE stream = (SELECT no FROM stream WHERE name = 'sleep')"
                .to_owned(),
            "the row of run/sleep in the table claimable",
        ),
        (
            format!("UPDATE stream SET clock = clock + 5 WHERE no = {DONE}"),
            "the row of run/done",
        ),
        (
            "INSERT INTO timer VALUES (77777, 'x', 5)".to_owned(),
            "rows of the table timer with stream 77777",
        ),
    ] {
        damaged(&Place::database(), &sql, words);
    }
}

#[test]
fn pieces_of_payloads_are_read_too() {
    let (folder, place) = (Place::folder(), Place::database());
    trouble::large_store(folder.path(), 1);
    let file = folder.beside("large");
    dalsegno(folder.path(), ["export", "--all", file.to_str().unwrap()]).ok();
    dalsegno(place.path(), ["import", "--create", file.to_str().unwrap()]).ok();
    dalsegno(place.path(), ["verify"]).ok();
    place.sql(
        "UPDATE piece SET bytes = set_byte(bytes, 40, get_byte(bytes, 40) # 1)
         WHERE hash = (SELECT hash FROM piece ORDER BY hash LIMIT 1)",
    );
    let ran = dalsegno(place.path(), ["verify"]).ends(4);
    assert!(ran.stdout.contains("the payload piece"), "{ran:?}");
    place.sql("DELETE FROM piece WHERE hash = (SELECT hash FROM piece ORDER BY hash LIMIT 1)");
    let ran = dalsegno(place.path(), ["verify"]).ends(4);
    assert!(ran.stdout.contains("no such piece"), "{ran:?}");
}

#[test]
fn what_does_not_apply_is_said_with_what_to_use() {
    let place = Place::database();
    stores::every_state(place.path());
    for (args, instead) in [
        (&["repair"][..], "backup"),
        (&["snapshot"], "pg_dump"),
        (&["snapshot", "/tmp/nowhere"], "pg_dump"),
        (&["tail", "--from", "3"], "name a run"),
    ] {
        let ran = dalsegno(place.path(), args).ends(2);
        assert!(ran.stderr.contains(instead), "{args:?}: {ran:?}");
    }
}

#[test]
fn old_runs_go_into_files_and_come_back() {
    let place = Place::database();
    stores::every_state(place.path());
    let planned = dalsegno(place.path(), ["gc", "--older-than", "0s", "-n", "--json"]).ok();
    let planned = planned.json();
    assert_eq!(planned["runs"].as_array().unwrap().len(), 2);
    let archive = place.beside("archive");
    let archive = archive.to_str().unwrap();
    let args = ["gc", "--older-than", "0s", "--archive", archive, "--json"];
    let done = dalsegno(place.path(), args).ok().json();
    assert_eq!(done["records"], planned["records"]);
    let listed = dalsegno(place.path(), ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 4);
    dalsegno(
        place.path(),
        ["import", done["archives"][0].as_str().unwrap()],
    )
    .ok();
    let listed = dalsegno(place.path(), ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 6);
    dalsegno(place.path(), ["verify"]).ok();
}

#[test]
fn doctor_looks_at_the_server() {
    let place = Place::database();
    stores::every_state(place.path());
    let document = dalsegno(place.path(), ["doctor", "--json"]).ok().json();
    let checks: Vec<&str> = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["check"].as_str().unwrap())
        .collect();
    let all = [
        "store", "server", "commit", "clock", "workers", "mailbox", "size",
    ];
    assert_eq!(checks, all);
}

/// One sentence, one hint, this code, and never the password.
#[track_caller]
fn said(store: &str, code: i32, words: &str, hint: &str) {
    for args in [
        &["ls"][..],
        &["doctor"],
        &["verify"],
        &["step", "--run", "r", "--name", "n", "--", "true"],
    ] {
        let Ran { stderr, stdout, .. } = dalsegno(Path::new(store), args).ends(match args[0] {
            "step" if code == 1 => 125,
            _ => code,
        });
        assert!(stderr.contains(words), "{stderr}");
        assert!(stderr.contains(hint), "{stderr}");
        assert!(stderr.contains("hint: "), "{stderr}");
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
        assert!(!(stderr + &stdout).contains("hunter2"));
    }
}

#[test]
fn bad_input_is_one_sentence_with_a_hint() {
    let place = Place::database();
    let port = place.server().port();
    // What is no address.
    said(
        "mysql://u:hunter2@h/d",
        2,
        "no address of a PostgreSQL database",
        "postgres://user",
    );
    said(
        "postgres://u:hunter2@/d",
        2,
        "no address",
        "postgres://user",
    );
    said(
        &format!("postgres://u:hunter2@127.0.0.1:{port}/d?schema=Up"),
        2,
        "schema must be",
        "postgres://user",
    );
    // Nobody answers.
    said(
        "postgres://u:hunter2@127.0.0.1:1/d",
        1,
        "no PostgreSQL answers at 127.0.0.1:1",
        "start it",
    );
    // A wrong password, or none.
    let known = place.server();
    let url = known.url();
    known.sql(
        &url,
        "DROP ROLE IF EXISTS needs_password; CREATE ROLE needs_password LOGIN PASSWORD 'right'",
    );
    let base = format!("127.0.0.1:{port}/postgres");
    said(
        &format!("postgres://needs_password:hunter2@{base}"),
        1,
        "refused the connection",
        "check the user and the password",
    );
    said(
        &format!("postgres://postgres:hunter2@127.0.0.1:{port}/nowhere"),
        1,
        "nowhere",
        "create that database",
    );
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking() {
    let place = Place::database();
    let ran = dalsegno(place.path(), ["ls"]).ends(1);
    assert!(ran.stderr.contains("no store at 127.0.0.1"), "{ran:?}");
    assert!(ran.stderr.contains("?schema="), "{ran:?}");
    let count = "SELECT count(*) FROM pg_namespace WHERE nspname = current_schema()";
    assert_eq!(place.sql(count), "0\n");
}

#[test]
fn rights_that_are_missing_and_versions_that_are_newer() {
    let place = Place::database();
    stores::every_state(place.path());
    let url = place.path().to_str().unwrap();
    let (_, schema) = url.split_once("?schema=").unwrap();
    let role = format!("reader_{schema}");
    place.sql(&format!("CREATE ROLE {role} LOGIN"));
    let as_role = url.replace("postgres@", &format!("{role}:hunter2@"));
    let ran = dalsegno(Path::new(&as_role), ["ls"]).ends(1);
    assert!(ran.stderr.contains("permission denied"), "{ran:?}");
    assert!(
        ran.stderr.contains("hint: give the user the right"),
        "{ran:?}"
    );
    // Who may make no schema.
    let new = PathBuf::from(as_role.replace(&format!("={schema}"), "=of_its_own"));
    let file = place.beside("x");
    dalsegno(place.path(), ["export", "done", file.to_str().unwrap()]).ok();
    let ran = dalsegno(&new, ["import", "--create", file.to_str().unwrap()]).ends(1);
    assert!(ran.stderr.contains("permission denied"), "{ran:?}");
    place.sql(&format!("DROP ROLE {role}"));
    place.sql("UPDATE meta SET version = 99");
    let ran = dalsegno(place.path(), ["ls"]).ends(1);
    assert!(ran.stderr.contains("has version 99"), "{ran:?}");
    assert!(ran.stderr.contains("hint: use a newer one"), "{ran:?}");
}

#[test]
fn a_step_keeps_its_run_and_a_dead_one_lets_it_go() {
    let place = Place::database();
    let scripts = Scripts::at(&place);
    // Longer than a lease, which is kept meanwhile.
    let child = scripts.started("r", "long", &[], "sleep 10");
    let refused = scripts
        .step("r", "other", &["--wait", "9"], "true")
        .ends(125);
    assert!(
        refused
            .stderr
            .contains("is being worked on by dalsegno step"),
        "{refused:?}"
    );
    let why = dalsegno(place.path(), ["why", "r", "--json"]).ok().json();
    assert_eq!(why["standing"], "moving");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Killed, it is in doubt when its lease has ended.
    let same = ["--input", "x", "--wait", "20"];
    kill(scripts.started("r", "again", &same, "sleep 10"));
    let doubt = scripts.step("r", "again", &same, "true").ends(3);
    assert!(doubt.stderr.contains("again"), "{doubt:?}");
    let args = ["resolve", "r", "--did-not-happen", "--by", "ada"];
    dalsegno(place.path(), args).ok();
    let done = scripts.step("r", "again", &same, "echo now").ok();
    assert_eq!(done.stdout, "now\n");
    scripts.verify();
}
