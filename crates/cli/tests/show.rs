//! `dalsegno show` shows a run step by step, event by event, and as it was.

#![allow(clippy::unwrap_used)]

mod common;

use common::TempDir;
use common::owner::Owner;
use common::places::Place;
use common::{dalsegno, stores};
use serde_json::{Value, json};

in_both! {
    a_finished_run_step_by_step,
    what_needs_a_person_is_code_3_and_a_failure_is_not,
    every_event_and_the_state_then,
    a_name_that_is_nearly_right,
}

#[test]
#[ignore = "the process that owns the store, started by the tests"]
fn the_owner() {
    common::owner::main();
}

fn step<'a>(document: &'a Value, name: &str) -> &'a Value {
    let steps = document["steps"].as_array().unwrap();
    let found = steps.iter().find(|step| step["step"] == name);
    found.unwrap_or_else(|| unreachable!("{document:#}"))
}

fn a_finished_run_step_by_step(dir: &Place) {
    stores::every_state(dir.path());
    let document = dalsegno(dir.path(), ["show", "done", "--json"]).ok().json();
    assert_eq!(document["schema"], "dalsegno.show/1");
    assert_eq!(document["status"], "completed");
    assert_eq!(document["result"], "on done");
    assert_eq!(document["usage"]["tokens_out"], 20);
    assert_eq!(document["lives"].as_array().unwrap().len(), 1);
    let write = step(&document, "write#1");
    assert_eq!(write["kind"], "model");
    assert_eq!(write["state"], "done");
    assert_eq!((&write["life"], &write["replayed"]), (&json!(1), &json!(0)));
    assert_eq!(write["attempts"], 1);
    assert_eq!(write["usage"]["cost_micros"], 1500);
    assert_eq!(write["result"]["value"], "on done");
    assert!(write["took_us"].is_u64());

    let text = dalsegno(dir.path(), ["show", "done"]).ok().stdout;
    assert!(
        text.starts_with("run done of agent writer: completed\n"),
        "{text}"
    );
    for word in [
        "write#1",
        "executed",
        "0.0015",
        "\"on done\"",
        "session worker-1",
    ] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

fn what_needs_a_person_is_code_3_and_a_failure_is_not(dir: &Place) {
    stores::every_state(dir.path());
    for (run, code) in [("approval", 3), ("doubt", 3), ("signal", 0), ("fail", 0)] {
        let document = dalsegno(dir.path(), ["show", run, "--json"])
            .ends(code)
            .json();
        assert_eq!(document["needs_person"], code == 3, "{run}");
    }
    let document = dalsegno(dir.path(), ["show", "doubt", "--json"]).json();
    assert_eq!(document["in_doubt"], json!(["send#1"]));
    let document = dalsegno(dir.path(), ["show", "approval", "--json"]).json();
    assert_eq!(document["approvals"], json!(["publish#1"]));
    // What an agent said cannot change the terminal.
    let text = dalsegno(dir.path(), ["show", "fail"]).ok().stdout;
    assert!(text.contains("the printer is on fire\\u{1b}[31m"), "{text}");
    assert!(!text.contains('\x1b'));
}

fn every_event_and_the_state_then(dir: &Place) {
    stores::every_state(dir.path());
    let document = dalsegno(dir.path(), ["show", "done", "--events", "--json"]);
    let document = document.ok().json();
    let events = document["events"].as_array().unwrap();
    assert_eq!(events[0]["kind"], "run-created");
    assert_eq!(events.last().unwrap()["kind"], "run-completed");
    assert_eq!(document.get("steps"), None);
    let written = events
        .iter()
        .find(|event| event["kind"] == "step-succeeded");
    let written = written.unwrap();
    assert_eq!(written["step"], "write#1");
    assert_eq!(written["output"]["value"], "on done");

    let at = written["sequence"].as_u64().unwrap() - 1;
    let at = at.to_string();
    let then = dalsegno(dir.path(), ["show", "done", "--at", &at, "--json"]);
    let then = then.ok().json();
    assert_eq!(then["status"], "running");
    assert_eq!(step(&then, "write#1")["state"], "begun");
    assert_eq!(then["at"].to_string(), at);

    let text = dalsegno(dir.path(), ["show", "done", "--events", "-n", "2"])
        .ok()
        .stdout;
    assert!(
        text.contains("earlier events: --limit 0 shows all"),
        "{text}"
    );
    assert_eq!(
        text.lines().filter(|line| line.starts_with("20")).count(),
        2
    );
    let ran = dalsegno(dir.path(), ["show", "done", "--at", "999"]).ends(2);
    assert!(
        ran.stderr.contains("hint: its events are 1 to"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_a_kill_left_behind_and_what_recovery_saved() {
    let dir = TempDir::new();
    let owner = Owner::start(dir.path(), &["hang"]);
    let document = dalsegno(dir.path(), ["show", "hang", "--json"]).ok().json();
    assert_eq!(document["status"], "running");
    drop(owner);
    let owner = Owner::start(dir.path(), &["hang", "signal"]);
    let document = dalsegno(dir.path(), ["show", "hang", "--json"])
        .ends(3)
        .json();
    let lives = document["lives"].as_array().unwrap();
    assert_eq!(lives.len(), 2);
    assert_eq!(lives[1]["recovered"], true);
    assert_eq!(document["saved"]["calls"], 1);
    assert_eq!(document["saved"]["cost_micros"], 1500);
    let write = step(&document, "write#1");
    assert_eq!((&write["life"], &write["replayed"]), (&json!(1), &json!(1)));
    assert_eq!(step(&document, "send#1")["state"], "in doubt");
    let text = dalsegno(dir.path(), ["show", "hang"]).ends(3).stdout;
    for word in [
        "needs a person",
        "taken up twice, once after a crash",
        "replayed",
        "not paid again",
    ] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    owner.close();
}

fn a_name_that_is_nearly_right(dir: &Place) {
    stores::every_state(dir.path());
    let ran = dalsegno(dir.path(), ["show", "aproval"]).ends(1);
    assert_eq!(
        ran.stderr,
        "error: there is no run \"aproval\"\nhint: did you mean \"approval\"?\n"
    );
    let ran = dalsegno(dir.path(), ["show", "zzz"]).ends(1);
    assert!(ran.stderr.contains("`dalsegno ls` lists the runs"));
    let long = "x".repeat(100_000);
    for name in ["", "a\nb", &long] {
        let ran = dalsegno(dir.path(), ["show", name]).ends(2);
        assert!(ran.stderr.starts_with("error: a name "), "{}", ran.stderr);
        assert!(ran.stderr.len() < 500);
    }
}
