//! `dalsegno demo`: it shows what it says, finds a world that is broken, and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Ran, TempDir, command, dalsegno, run};
use serde_json::Value;

/// The demo with its temporary files in a folder of the test's.
fn demo(tmp: &Path, args: &[&str]) -> Ran {
    let mut command = command();
    command.env("TMPDIR", tmp).env_remove("HOME");
    command.arg("demo").args(args);
    run(command)
}

fn lines(ran: &Ran) -> Vec<Value> {
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn one_kill_and_everything_once() {
    let tmp = TempDir::new();
    let text = demo(tmp.path(), &[]).ok().stdout;
    for expected in [
        "in the middle of step 7, write-letter",
        "recorded: 6 of 12 steps",
        "steps 1-6 replayed from the record",
        "the demo, as the person, through the mailbox: approved",
        "12  farewell",
        "What the world counted in its own ledger",
        "ok     every effect happened exactly once",
        "ok     result and files are those of a run that was never disturbed",
        "the same end, nothing executed",
        "Nothing was lost, nothing happened twice.",
        "dalsegno demo --keep",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colour in a pipe");
    assert!(is_empty(tmp.path()), "nothing is left");
}

#[test]
fn documents_say_the_same() {
    let tmp = TempDir::new();
    let ran = demo(tmp.path(), &["--json", "--pace", "60"]).ok();
    let lines = lines(&ran);
    assert!(lines.iter().all(|line| line["schema"] == "dalsegno.demo/1"));
    assert_eq!(lines[0]["event"], "begun");
    let killed = of(&lines, "killed");
    assert_eq!(killed.len(), 1);
    assert_eq!(killed[0]["under_way"][0]["number"], 7);
    assert_eq!(killed[0]["under_way"][0]["in_world"], true);
    // Every step is recorded once, whoever did it.
    let steps = of(&lines, "step");
    let mut numbers: Vec<_> = steps.iter().filter_map(|s| s["number"].as_u64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
    let started = of(&lines, "run_started");
    assert_eq!(started.len(), 2);
    assert_eq!(started[1]["replayed"].as_array().unwrap().len(), 6);
    assert_eq!(of(&lines, "checked").len(), 3);
    let summary = lines.last().unwrap();
    assert_eq!(summary["event"], "summary");
    assert_eq!(summary["ok"], true);
    assert_eq!(summary["workers"], 2);
}

#[test]
fn ten_kills_at_random_moments() {
    let tmp = TempDir::new();
    let args = ["--kills", "10", "--seed", "1", "--pace", "30", "--json"];
    let ran = demo(tmp.path(), &args).ok();
    let lines = lines(&ran);
    assert_eq!(of(&lines, "killed").len(), 10);
    assert_eq!(lines.last().unwrap()["kills"], 10);
    assert!(is_empty(tmp.path()));
}

#[test]
fn an_effect_in_doubt_is_probed_or_a_person_looks() {
    let tmp = TempDir::new();
    let ran = demo(tmp.path(), &["--at", "10", "--pace", "60", "--json"]).ok();
    let probed = lines(&ran);
    let resolved = of(&probed, "resolved");
    assert_eq!(resolved[0]["by"], "probe");
    assert_eq!(resolved[0]["happened"], true);
    assert!(of(&probed, "attention").is_empty());

    let args = ["--at", "10", "--no-probe", "--pace", "60", "--json"];
    let ran = demo(tmp.path(), &args).ok();
    let asked = lines(&ran);
    assert_eq!(of(&asked, "attention").len(), 1);
    let said = of(&asked, "person_said");
    assert_eq!(said[1]["said"], "happened");
    assert_eq!(said[1]["because"], "it is in the world's ledger");
    assert_eq!(of(&asked, "resolved")[0]["by"], "demo");
}

#[test]
fn a_world_that_does_it_twice_is_found() {
    let tmp = TempDir::new();
    let args = ["--broken-world", "--pace", "30"];
    let ran = demo(tmp.path(), &args).ends(1);
    let wrong = "WRONG  notify of trip-0000 happened 2 times, not once";
    assert!(ran.stdout.contains(wrong), "{}", ran.stdout);
    let json = demo(tmp.path(), &[&args[..], &["--json"]].concat()).ends(1);
    let lines = lines(&json);
    assert_eq!(lines.last().unwrap()["ok"], false);
    assert_eq!(lines.last().unwrap()["wrong"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_kept_can_be_looked_at() {
    let tmp = TempDir::new();
    let keep = tmp.join("kept");
    let keep_arg = keep.to_str().unwrap();
    let ran = demo(tmp.path(), &["--keep", keep_arg, "--pace", "30"]).ok();
    let store = keep.join("store");
    let next = format!("dalsegno --store {} show trip-0000", store.display());
    assert!(ran.stdout.contains(&next), "{}", ran.stdout);
    let listed = dalsegno(&store, ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"][0]["run"], "trip-0000");
    assert_eq!(listed["runs"][0]["status"], "completed");
    // Nothing is ever overwritten.
    let ran = demo(tmp.path(), &["--keep", keep_arg]).ends(1);
    assert!(ran.stderr.contains("is not empty"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
}

#[test]
fn no_place_for_files_is_said() {
    let ran = demo(Path::new("/dev/null/nowhere"), &[]).ends(1);
    assert!(
        ran.stderr
            .starts_with("error: cannot make a folder in /dev/null/nowhere"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("TMPDIR"), "{}", ran.stderr);
}

#[test]
fn its_processes_do_not_run_alone() {
    let dir = TempDir::new();
    for part in ["world", "worker"] {
        let mut command = command();
        command.current_dir(dir.path());
        command.args(["demo", "--part", part]);
        let ran = run(command).ends(2);
        assert!(ran.stderr.contains("a part of `dalsegno demo`"));
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn a_reader_that_goes_away_changes_nothing() {
    let tmp = TempDir::new();
    let mut child = command()
        .env("TMPDIR", tmp.path())
        .args(["demo", "--pace", "30"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    assert!(is_empty(tmp.path()));
}

/// Starts the demo so that its documents come on the error output. Its other output is one that all
/// of its processes hold open: it ends when the last of them has.
fn start(tmp: &Path) -> Child {
    let script = "exec 3>&1; exec \"$0\" demo --json --pace 5000 1>&2";
    Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_dalsegno")])
        .env("TMPDIR", tmp)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Stops a demo in the middle by a signal. Its code, what it said, and that nothing is left.
fn stopped_by(signal: &str) -> (Option<i32>, String) {
    let tmp = TempDir::new();
    let mut child = start(tmp.path());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("run_started") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    assert!(!is_empty(tmp.path()), "it is at work");
    let kill = format!("kill -{signal} {}", child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status();
    assert!(killed.unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    // Ends when no process is left.
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut Vec::new())
        .unwrap();
    assert!(is_empty(tmp.path()), "no folder is left after {signal}");
    (child.wait().unwrap().code(), rest)
}

#[test]
fn ctrl_c_leaves_nothing() {
    for signal in ["INT", "TERM", "HUP"] {
        let (code, said) = stopped_by(signal);
        assert_eq!(code, Some(130), "{signal}");
        assert!(said.contains(r#""error":"interrupted""#), "{said}");
    }
}

/// Nobody can tidy up after their own SIGKILL: the world does it.
#[test]
fn killed_itself_it_leaves_nothing_either() {
    let (code, _) = stopped_by("KILL");
    assert_eq!(code, None);
}
