//! What is said of a run whose process is gone, and how it is moved on.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use common::owner::Owner;
use common::{Ran, TempDir, dalsegno};
use scripts::{Scripts, kill};

const HANGS: &str = "exec sleep 1000";

#[test]
#[ignore = "the process that owns the store, started by the tests"]
fn the_owner() {
    common::owner::main();
}

fn say(scripts: &Scripts, words: &[&str]) -> Ran {
    common::run(scripts.command(words))
}

/// A step that was killed; the same command again.
fn killed(scripts: &Scripts, options: &[&str]) -> impl Fn() -> Ran {
    kill(scripts.started("order-42", "pay", options, HANGS));
    let script = format!("echo 'pay begun' >> \"$LEDGER\"; {HANGS}");
    move || scripts.step("order-42", "pay", &["--timeout", "5s"], &script)
}

fn files(scripts: &Scripts) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![scripts.store()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), std::fs::read(path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_once_step_of_a_dead_process_needs_a_person_before_anybody_has_looked() {
    let scripts = Scripts::new();
    let _again = killed(&scripts, &[]);
    let before = files(&scripts);

    let ls = say(&scripts, &["ls", "--json"]).ok().json();
    let row = &ls["runs"][0];
    assert_eq!(row["status"], "running");
    assert_eq!(row["needs_person"], true);
    assert_eq!(row["worker"], serde_json::Value::Null);
    let words = "its process is gone, and nobody knows whether pay#1 happened";
    assert_eq!(row["attention"], words);
    let page = say(&scripts, &["ls"]).ok().stdout;
    assert!(page.contains("needs person"), "{page}");
    let listed = say(&scripts, &["ls", "--status", "needs-person"]).ok();
    assert!(listed.stdout.contains("order-42"), "{}", listed.stdout);

    let why = say(&scripts, &["why", "order-42", "--json"]).ends(3).json();
    assert_eq!(why["standing"], "needs-person");
    let commands: Vec<_> = why["commands"].as_array().unwrap().clone();
    for command in [
        "dalsegno resolve order-42 pay#1 --happened --result JSON",
        "dalsegno resolve order-42 pay#1 --did-not-happen",
    ] {
        assert!(commands.contains(&command.into()), "{commands:?}");
    }
    let page = say(&scripts, &["why", "order-42"]).ends(3).stdout;
    assert!(page.contains(words), "{page}");
    let page = say(&scripts, &["show", "order-42"]).ends(3).stdout;
    assert!(page.contains("running, needs a person"), "{page}");
    assert!(page.contains("gone, and nobody knows"), "{page}");

    assert!(before == files(&scripts), "looking changes nothing");
}

#[test]
fn what_a_person_says_of_it_at_once_is_taken() {
    let scripts = Scripts::new();
    let again = killed(&scripts, &[]);
    let happened = ["--happened", "--result", "\"paid\"", "--by", "ada"];
    let words = [&["resolve", "order-42", "pay#1"][..], &happened].concat();
    say(&scripts, &words).ok();
    assert_eq!(again().ok().stdout, "paid");
    assert_eq!(scripts.happened("pay begun"), 1);

    let show = say(&scripts, &["show", "order-42", "--json"]).ok().json();
    assert_eq!(show["needs_person"], false);
    assert_eq!(show["attention"], serde_json::Value::Null);
    assert_eq!(
        show["waits"],
        serde_json::json!(["the next step of its script"])
    );
    let page = say(&scripts, &["show", "order-42"]).ok().stdout;
    assert!(page.contains("run order-42 of agent shell: checkpointed\n"));
    let ls = say(&scripts, &["ls", "--json"]).ok().json();
    assert_eq!(ls["runs"][0]["needs_person"], false);
    assert_eq!(ls["runs"][0]["attention"], serde_json::Value::Null);
    say(&scripts, &["why", "order-42"]).ok();
    say(&scripts, &["end", "--run", "order-42"]).ok();
    let page = say(&scripts, &["show", "order-42"]).ok().stdout;
    let lives = "lives     taken up 4 times, once after a crash, last by session dalsegno step";
    assert!(page.contains(lives), "{page}");
    scripts.verify();
}

/// `recover` takes the letter up, and nobody the run.
#[test]
fn a_run_that_has_its_answer_needs_no_person_any_more() {
    let scripts = Scripts::new();
    let again = killed(&scripts, &[]);
    again().ends(3);
    say(&scripts, &["resolve", "order-42", "--did-not-happen"]).ok();
    say(&scripts, &["recover"]).ok();
    let row = say(&scripts, &["ls", "--json"]).ok().json()["runs"][0].clone();
    assert_eq!(row["needs_person"], false, "{row}");
    assert_eq!(
        row["waits"],
        serde_json::json!(["its script to be run again"])
    );
    say(&scripts, &["show", "order-42"]).ok();
    say(&scripts, &["why", "order-42"]).ok();
    scripts.verify();
}

#[test]
fn a_step_that_may_run_again_needs_its_script_only() {
    let scripts = Scripts::new();
    let _again = killed(&scripts, &["--effect", "idempotent"]);
    let page = say(&scripts, &["ls"]).ok().stdout;
    assert!(page.contains("process gone"), "{page}");
    assert!(page.contains("its script to be run again"), "{page}");
    let why = say(&scripts, &["why", "order-42", "--json"]).ok().json();
    assert_eq!(why["standing"], "worker-gone");
    assert_eq!(why["commands"], serde_json::json!([]));
    say(&scripts, &["show", "order-42"]).ok();
}

#[test]
fn a_step_that_is_at_work_is_moving_and_cannot_be_resolved() {
    let scripts = Scripts::new();
    let step = scripts.started("order-42", "pay", &[], HANGS);
    let ls = say(&scripts, &["ls", "--json"]).ok().json();
    assert_eq!(ls["runs"][0]["needs_person"], false);
    assert_ne!(ls["runs"][0]["worker"], serde_json::Value::Null);
    let why = say(&scripts, &["why", "order-42", "--json"]).ok().json();
    assert_eq!(why["standing"], "moving");
    assert_eq!(why["in_doubt"], serde_json::json!([]));
    let because = why["because"].as_str().unwrap();
    let pid = step.id();
    assert!(because.contains(&format!("process {pid} for its step pay")));
    say(&scripts, &["show", "order-42"]).ok();
    let ran = say(&scripts, &["resolve", "order-42", "--did-not-happen"]).ends(1);
    assert!(ran.stderr.contains("is being worked on"), "{}", ran.stderr);
    kill(step);
}

#[test]
fn a_command_that_outlives_its_step_is_named() {
    let scripts = Scripts::new();
    let leaves = "sleep 1000 & echo $! > \"$LEDGER.pid\"; wait";
    let child = scripts.started("r", "a", &[], leaves);
    let file = scripts.dir.join("ledger.pid");
    scripts::wait_until(|| std::fs::read_to_string(&file).is_ok_and(|p| p.ends_with('\n')));
    let pid = child.id();
    kill(child);
    let why = say(&scripts, &["why", "r", "--json"]).ok().json();
    let because = why["because"].as_str().unwrap().to_owned();
    let words = format!("process {pid} for its step a is gone, and a command");
    assert!(because.starts_with(&words), "{because}");
    let left = std::fs::read_to_string(&file).unwrap();
    let left = rustix::process::Pid::from_raw(left.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
    scripts::wait_until(|| say(&scripts, &["why", "r"]).code == Some(3));
}

#[test]
fn a_run_between_its_steps_waits_for_its_script() {
    let scripts = Scripts::new();
    scripts.step("a b", "one", &[], "true").ok();
    let why = say(&scripts, &["why", "a b"]).ok().stdout;
    assert!(why.contains("it waits for the next step of its script"));
    assert!(why.contains("dalsegno end --run 'a b'"), "{why}");
    // No time is no limit that could be kept.
    let ran = scripts.step("a b", "two", &["--timeout", "0s"], "true");
    ran.ends(2);
}

/// Somebody looked at the first attempt, and what they say comes when there is a second.
#[test]
fn what_was_said_of_an_earlier_attempt_does_not_count_for_a_later() {
    let scripts = Scripts::new();
    let again = killed(&scripts, &[]);
    again().ends(3);
    let no = ["resolve", "order-42", "--did-not-happen"];
    say(&scripts, &no).ok();
    let letters = scripts.store().join("mailbox");
    let letter = std::fs::read_dir(&letters).unwrap().next().unwrap();
    let (letter, late) = (letter.unwrap().path(), scripts.dir.join("late"));
    std::fs::rename(&letter, &late).unwrap();
    // Another one is faster, and it is begun again and killed again.
    say(&scripts, &no).ok();
    kill(scripts.started("order-42", "pay", &[], HANGS));
    assert_eq!(scripts.happened("pay begun"), 2);
    std::fs::rename(&late, &letter).unwrap();
    again().ends(3);
    assert_eq!(scripts.happened("pay begun"), 2, "nobody has looked");
    say(&scripts, &["resolve", "order-42", "--happened"]).ok();
    again().ok();
    scripts.verify();
}

#[test]
fn a_run_of_a_program_that_was_killed_waits_for_the_next() {
    let dir = TempDir::new();
    let owner = Owner::start(dir.path(), &["hang"]);
    let page = dalsegno(dir.path(), ["ls"]).ok().stdout;
    assert!(page.contains("running"), "{page}");
    drop(owner);
    let page = dalsegno(dir.path(), ["ls"]).ok().stdout;
    assert!(page.contains("process gone"), "{page}");
    assert!(page.contains("the next process"), "{page}");
    let why = dalsegno(dir.path(), ["why", "hang", "--json"]).ok().json();
    assert_eq!(why["standing"], "worker-gone");
    dalsegno(dir.path(), ["show", "hang"]).ok();
}
