//! A step whose process is killed in the middle of it.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use dalsegno::Remote;
use scripts::{Scripts, is_alive, kill, wait_until};

/// Leaves the number of its process, does something, and waits to be killed.
const HANGS: &str = "echo $$ > \"$LEDGER.pid\"; echo effect >> \"$LEDGER\"; exec sleep 1000";

fn killed(scripts: &Scripts, run: &str, name: &str, options: &[&str]) {
    let child = scripts.started(run, name, options, HANGS);
    wait_until(|| scripts.ledger().ends_with("effect\n"));
    kill(child);
}

fn again(scripts: &Scripts, run: &str, name: &str, options: &[&str]) -> common::Ran {
    let script = format!("echo '{name} begun' >> \"$LEDGER\"; {HANGS}");
    scripts.step(run, name, options, &script)
}

#[test]
fn the_command_dies_with_it() {
    let scripts = Scripts::new();
    killed(&scripts, "r", "a", &[]);
    let pid = std::fs::read_to_string(scripts.dir.join("ledger.pid")).unwrap();
    wait_until(|| !is_alive(pid.trim()));
}

#[test]
fn a_once_step_is_not_done_again_and_a_person_says_what_became_of_it() {
    let scripts = Scripts::new();
    for (run, verdict) in [("yes", true), ("no", false)] {
        killed(&scripts, run, "pay", &[]);
        let effects = scripts.happened("effect");
        for _ in 0..2 {
            let ran = again(&scripts, run, "pay", &[]).ends(3);
            assert!(
                ran.stderr
                    .contains("nobody knows whether tool pay#1 happened")
            );
            assert!(
                ran.stderr
                    .contains(&format!("dalsegno resolve {run} pay#1 --"))
            );
        }
        // Nor does the run go on past it.
        scripts
            .step(run, "next", &[], "echo next >> \"$LEDGER\"")
            .ends(3);
        assert_eq!(scripts.happened("effect"), effects);
        common::block_on(async {
            let remote = Remote::open(scripts.store()).unwrap();
            match verdict {
                true => {
                    remote
                        .resolve_happened(run, "pay#1", "receipt 7", "ada")
                        .await
                }
                false => remote.resolve_not_happened(run, "pay#1", "ada").await,
            }
            .unwrap();
        });
        if verdict {
            assert_eq!(again(&scripts, run, "pay", &[]).ok().stdout, "receipt 7");
            assert_eq!(scripts.happened("effect"), effects);
        } else {
            let options = ["--timeout", "100ms"];
            again(&scripts, run, "pay", &options).ends(3);
            assert_eq!(scripts.happened("effect"), effects + 1);
        }
    }
    assert_eq!(scripts.happened("next"), 0);
    scripts
        .step("yes", "next", &[], "echo next >> \"$LEDGER\"")
        .ok();
    scripts.verify();
}

#[test]
fn a_probe_is_asked_under_the_same_key() {
    let scripts = Scripts::new();
    let keyed = "echo $DALSEGNO_IDEMPOTENCY_KEY > \"$LEDGER.$DALSEGNO_RUN\"; exec sleep 1000";
    let script = format!("echo 'pay begun' >> \"$LEDGER\"; {keyed}");
    for (run, probe, code, out) in [
        (
            "yes",
            "test $DALSEGNO_IDEMPOTENCY_KEY = $(cat $LEDGER.yes) && echo receipt 7",
            0,
            "receipt 7\n",
        ),
        ("unknown", "echo ask the bank >&2; exit 2", 3, ""),
        ("broken", "/nowhere/tool", 3, ""),
        ("silent", "kill -9 $$", 3, ""),
    ] {
        let child = scripts.started(run, "pay", &["--probe", probe], keyed);
        let key = scripts.dir.join(&format!("ledger.{run}"));
        wait_until(|| std::fs::read_to_string(&key).is_ok_and(|key| key.ends_with('\n')));
        kill(child);
        let ran = scripts
            .step(run, "pay", &["--probe", probe], &script)
            .ends(code);
        assert_eq!(ran.stdout, out);
        if code == 0 {
            let ran = scripts
                .step(run, "pay", &["--probe", "exit 2"], &script)
                .ok();
            assert_eq!(ran.stdout, out, "it is recorded");
        } else {
            assert!(
                ran.stderr.contains("the probe cannot tell"),
                "{}",
                ran.stderr
            );
        }
    }
    scripts.verify();
}

#[test]
fn a_probe_that_says_no_lets_it_run_again() {
    let scripts = Scripts::new();
    let file = "test -e \"$LEDGER.go\" && echo paid || exec sleep 1000";
    let script = format!("echo 'pay begun' >> \"$LEDGER\"; {file}");
    kill(scripts.started("r", "pay", &["--probe", "exit 1"], file));
    std::fs::write(scripts.dir.join("ledger.go"), "").unwrap();
    let ran = scripts
        .step("r", "pay", &["--probe", "exit 1"], &script)
        .ok();
    assert_eq!(ran.stdout, "paid\n");
    assert_eq!(scripts.happened("pay begun"), 2);
    // A command that failed is probed as well, and tried again as often as that was said.
    let fails = "echo tried >> \"$LEDGER\"; exit 9";
    scripts
        .step("r", "b", &["--probe", "exit 1"], fails)
        .ends(9);
    scripts
        .step("r", "b", &["--probe", "exit 1", "--retry", "1"], fails)
        .ends(9);
    assert_eq!(scripts.happened("tried"), 3);
    let ran = scripts
        .step("r", "b", &["--probe", "echo it is there"], fails)
        .ok();
    assert_eq!(ran.stdout, "it is there\n");
    assert_eq!(scripts.happened("tried"), 4);
}

#[test]
fn what_may_run_again_does_with_the_same_key() {
    let scripts = Scripts::new();
    let keyed = "echo $DALSEGNO_IDEMPOTENCY_KEY $DALSEGNO_ATTEMPT >> \"$LEDGER.keys\"; \
                 test -e \"$LEDGER.go\" || exec sleep 1000";
    let script = format!("echo 'load begun' >> \"$LEDGER\"; {keyed}");
    let options = ["--effect", "idempotent"];
    for _ in 0..2 {
        kill(scripts.started("r", "load", &options, keyed));
    }
    std::fs::write(scripts.dir.join("ledger.go"), "").unwrap();
    scripts.step("r", "load", &options, &script).ok();
    let keys = std::fs::read_to_string(scripts.dir.join("ledger.keys")).unwrap();
    let keys: Vec<_> = keys
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert!(keys.iter().all(|(key, _)| *key == keys[0].0), "{keys:?}");
    assert_eq!(keys.last().unwrap().1, keys.len().to_string());
}

#[test]
fn what_it_left_behind_is_waited_for() {
    let scripts = Scripts::new();
    // The shell dies with `dalsegno step`; the process in the background does not.
    let leaves = "sleep 1000 & echo $! > \"$LEDGER.pid\"; wait";
    let child = scripts.started("r", "a", &["--effect", "idempotent"], leaves);
    wait_until(|| {
        std::fs::read_to_string(scripts.dir.join("ledger.pid")).is_ok_and(|p| p.ends_with('\n'))
    });
    kill(child);
    let pid = std::fs::read_to_string(scripts.dir.join("ledger.pid")).unwrap();
    let script = format!("echo 'a begun' >> \"$LEDGER\"; {leaves}");
    let options = ["--effect", "idempotent", "--wait", "100ms"];
    let ran = scripts.step("r", "a", &options, &script).ends(125);
    assert!(
        ran.stderr.contains("is being worked on by process"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("left behind"), "{}", ran.stderr);
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    scripts.step("r", "b", &[], "echo on").ok();
}

#[test]
fn a_process_that_a_finished_step_left_keeps_nobody_out() {
    let scripts = Scripts::new();
    let daemon = "sleep 1000 > /dev/null 2>&1 & echo $!";
    let pid = scripts.step("r", "serve", &[], daemon).ok().stdout;
    scripts.step("r", "b", &["--wait", "100ms"], "echo on").ok();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
