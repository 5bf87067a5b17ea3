//! Approve, deny, resolve, signal and cancel reach a run through the process that owns the store, at
//! once if it lives, else when the next one is started.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use common::owner::Owner;
use common::places::Place;
use common::{Ran, TempDir, command, dalsegno, stores};
use serde_json::{Value, json};

in_both! {
    a_living_owner_takes_them_up,
    what_cannot_be_meant_is_refused_with_a_reason,
    which_of_two_has_to_be_said,
    a_signal_can_come_from_the_standard_input,
    names_with_spaces_and_whales,
    without_an_owner_they_wait_for_the_next_one,
}

#[test]
#[ignore = "the process that owns the store, started by the tests"]
fn the_owner() {
    common::owner::main();
}

fn shown(store: &Path, run: &str) -> Value {
    dalsegno(store, ["show", run, "--json"]).json()
}

/// Follows a run to its end, which has to come; what it came to.
fn end(store: &Path, run: &str) -> Value {
    dalsegno(store, ["tail", run, "--json"]).ok();
    shown(store, run)
}

fn taken(ran: Ran, order: &str) -> Value {
    let document = ran.ok().json();
    assert_eq!(document["schema"], "dalsegno.order/1");
    assert_eq!(document["order"], order);
    assert_eq!(document["taken"], true);
    assert!(document["event"].is_u64());
    document
}

fn a_living_owner_takes_them_up(dir: &Place) {
    let runs = [
        "approval",
        "approval-2",
        "signal",
        "signal-2",
        "sleep",
        "doubt",
        "doubt-2",
        "doubt-3",
    ];
    let owner = Owner::start(dir.path(), &runs);
    let send = |args: &[&str]| {
        let args = [args, &["--wait", "20", "--json"]].concat();
        dalsegno(dir.path(), args)
    };
    let document = taken(send(&["approve", "approval", "--by", "ada"]), "approve");
    assert_eq!(document["about"], "publish#1");
    match dir.is_database() {
        true => assert_eq!(document["owner"], Value::Null),
        false => assert_eq!(document["owner"], format!("process {}", owner.id())),
    }
    assert_eq!(end(dir.path(), "approval")["result"], "approved: true");

    taken(
        send(&["deny", "approval-2", "publish#1", "--why", "no"]),
        "deny",
    );
    assert_eq!(end(dir.path(), "approval-2")["result"], "approved: false");

    taken(
        send(&["signal", "signal", "go", "{\"a\": [1, null]}"]),
        "signal",
    );
    assert_eq!(end(dir.path(), "signal")["result"], "{\"a\":[1,null]}");
    taken(
        send(&["signal", "signal-2", "go", "--text", "it's me"]),
        "signal",
    );
    assert_eq!(end(dir.path(), "signal-2")["result"], "\"it's me\"");

    taken(send(&["cancel", "sleep", "--reason", "enough"]), "cancel");
    assert_eq!(end(dir.path(), "sleep")["status"], "cancelled");

    taken(
        send(&["resolve", "doubt", "--happened", "--result", "\"yes\""]),
        "resolve",
    );
    assert_eq!(end(dir.path(), "doubt")["result"], "yes");
    taken(
        send(&["resolve", "doubt-2", "send#1", "--did-not-happen"]),
        "resolve",
    );
    assert_eq!(end(dir.path(), "doubt-2")["result"], "sent");
    taken(send(&["resolve", "doubt-3", "--fail"]), "resolve");
    assert_eq!(end(dir.path(), "doubt-3")["status"], "failed");
    owner.close();
}

fn without_an_owner_they_wait_for_the_next_one(dir: &Place) {
    stores::every_state(dir.path());
    let ran = dalsegno(dir.path(), ["approve", "approval", "--by", "ada"]).ok();
    let later = match dir.is_database() {
        true => "in the database; the worker that has the run, or the next one, takes it up",
        false => "on disk; no process owns the store now: it is taken up at the next start",
    };
    let said = format!("run approval: approval publish#1 approved by ada, {later}\n");
    assert_eq!(ran.stdout, said);
    let ran = dalsegno(dir.path(), ["signal", "signal", "go", "--wait", "0.05"]).ends(1);
    assert!(
        ran.stderr.contains("has not taken it up within 0.05 s"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("is not lost"), "{}", ran.stderr);
    let owner = Owner::start(dir.path(), &[]);
    assert_eq!(end(dir.path(), "approval")["result"], "approved: true");
    assert_eq!(end(dir.path(), "signal")["result"], "null");
    owner.close();
}

fn what_cannot_be_meant_is_refused_with_a_reason(dir: &Place) {
    stores::every_state(dir.path());
    for (args, code, words) in [
        (
            &["approve", "done"][..],
            1,
            "has no open request for approval",
        ),
        (
            &["approve", "approval", "publsh#1"],
            1,
            "did you mean \"publish#1\"?",
        ),
        (&["deny", "aproval"], 1, "did you mean \"approval\"?"),
        (&["resolve", "signal", "--fail"], 1, "has no step in doubt"),
        (
            &["resolve", "doubt", "sned#1", "--fail"],
            1,
            "did you mean \"send#1\"?",
        ),
        (&["resolve", "doubt"], 2, "required"),
        (
            &["resolve", "doubt", "--fail", "--happened"],
            2,
            "cannot be used with",
        ),
        (
            &["resolve", "doubt", "--happened", "--result", "{"],
            2,
            "is not JSON",
        ),
        (&["resolve", "doubt", "--budget", "dollars=1"], 2, "steps=N"),
        (&["signal", "done", "go"], 1, "is completed"),
        (&["signal", "signal", "go", "hello"], 2, "is not JSON"),
        (&["cancel", "done"], 1, "is completed"),
        (&["cancel", "nobody"], 1, "there is no run"),
    ] {
        let ran = dalsegno(dir.path(), args).ends(code);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty());
    }
}

fn which_of_two_has_to_be_said(dir: &Place) {
    let owner = Owner::start(dir.path(), &["two"]);
    let ran = dalsegno(dir.path(), ["approve", "two"]).ends(2);
    assert!(
        ran.stderr.contains("name one of one#1, two#1"),
        "{}",
        ran.stderr
    );
    for approval in ["one#1", "two#1"] {
        dalsegno(dir.path(), ["approve", "two", approval, "--wait", "20"]).ok();
    }
    assert_eq!(end(dir.path(), "two")["status"], "completed");
    owner.close();
}

fn a_signal_can_come_from_the_standard_input(dir: &Place) {
    stores::every_state(dir.path());
    let mut child = command()
        .arg("--store")
        .arg(dir.path())
        .args(["signal", "signal", "go", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"from\": \"a pipe\"}").unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    let owner = Owner::start(dir.path(), &[]);
    let result = end(dir.path(), "signal")["result"].clone();
    assert_eq!(result, json!("{\"from\":\"a pipe\"}"));
    owner.close();
}

/// Two people answer at the same time: the first one counts, and the other one is told.
#[test]
fn the_second_answer_is_told_that_it_was_the_second() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let mut args = Vec::new();
    for (by, order) in [("ada", "approve"), ("bob", "deny")] {
        args.push([order, "approval", "--by", by, "--wait", "60"]);
    }
    let spawn = |args: &[&str]| {
        let mut command = command();
        command.arg("--store").arg(dir.path()).args(args);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let waiting: Vec<_> = args.iter().map(|args| spawn(args)).collect();
    let mailbox = dir.join("mailbox");
    while letters(&mailbox) < 2 {
        std::thread::yield_now();
    }
    let owner = Owner::start(dir.path(), &[]);
    let ended: Vec<_> = waiting
        .into_iter()
        .map(|w| w.wait_with_output().unwrap())
        .collect();
    let mut codes: Vec<_> = ended
        .iter()
        .map(|output| output.status.code().unwrap())
        .collect();
    let approved = codes[0] == 0;
    codes.sort_unstable();
    assert_eq!(codes, [0, 1], "{ended:?}");
    let lost = ended
        .iter()
        .find(|output| !output.status.success())
        .unwrap();
    let words = String::from_utf8_lossy(&lost.stderr);
    assert!(
        words.contains("has not taken what was said to it"),
        "{words}"
    );
    assert_eq!(
        end(dir.path(), "approval")["result"],
        format!("approved: {approved}")
    );
    owner.close();
}

/// How many letters are in a mailbox, wherever in it.
fn letters(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let entries = entries.map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => letters(&path),
            false => usize::from(path.extension().is_some_and(|e| e == "letter")),
        })
        .sum()
}

fn names_with_spaces_and_whales(dir: &Place) {
    let run = "signal-on 🐋 and 東京";
    let owner = Owner::start(dir.path(), &[run]);
    dalsegno(dir.path(), ["signal", run, "go", "--wait", "20"]).ok();
    assert_eq!(end(dir.path(), run)["status"], "completed");
    let text = dalsegno(dir.path(), ["ls"]).ok().stdout;
    assert!(text.contains(run), "{text}");
    let text = dalsegno(dir.path(), ["why", run]).ok().stdout;
    assert!(text.contains(run), "{text}");
    owner.close();
}
