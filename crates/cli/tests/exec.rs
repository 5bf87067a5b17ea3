//! `dalsegno exec`: real processes, real signals.

#![allow(clippy::unwrap_used)]

mod common;
mod scripts;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::{Ran, TempDir};
use rustix::process::{Pid, Signal, kill_process};
use scripts::{is_alive, wait_until};

fn exec(dir: &TempDir, options: &[&str], script: &str) -> Command {
    let mut command = common::command();
    let fast = ["--backoff", "1ms"];
    let fast = if options.contains(&"--backoff") {
        &[][..]
    } else {
        &fast
    };
    command
        .env("LEDGER", dir.join("ledger"))
        .current_dir(dir.path())
        .arg("exec")
        .args(fast)
        .args(options)
        .args(["--", "sh", "-c", script]);
    command
}

fn ledger(dir: &TempDir) -> String {
    std::fs::read_to_string(dir.join("ledger")).unwrap_or_default()
}

/// Starts it, and waits until its process has said that it is there.
fn started(dir: &TempDir, options: &[&str], script: &str) -> Child {
    let script = format!(
        "echo $$ > \"$LEDGER.pid\"; {script}; echo there >> \"$LEDGER\"; while :; do sleep 0.01; done"
    );
    let child = exec(dir, options, &script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(|| ledger(dir).contains("there\n"));
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

fn ended(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn pid_of(dir: &TempDir) -> String {
    let pid = std::fs::read_to_string(dir.join("ledger.pid")).unwrap();
    pid.trim().to_owned()
}

#[test]
fn what_crashes_is_started_again_until_it_is_done() {
    let dir = TempDir::new();
    let script = "echo life $DALSEGNO_RESTARTS $DALSEGNO_RUN >> \"$LEDGER\"; \
                  case $DALSEGNO_RESTARTS in 0) exit 1;; 1) kill -9 $$;; 2) kill -TERM $$;; esac; echo done";
    let ran = common::run(exec(&dir, &["--run", "my run"], script)).ok();
    assert_eq!(ran.stdout, "done\n");
    let lives: String = (0..4).map(|n| format!("life {n} my run\n")).collect();
    assert_eq!(ledger(&dir), lives);
    for text in [
        "it ended with code 1",
        "signal 9 ended it",
        "signal 15 ended it",
        "done",
    ] {
        assert!(ran.stderr.contains(text), "{}", ran.stderr);
    }
}

#[test]
fn it_gives_up_with_the_code_of_the_last_crash() {
    let dir = TempDir::new();
    let crash = "echo x >> \"$LEDGER\"; exit 9";
    common::run(exec(&dir, &["--max-restarts", "3"], crash)).ends(9);
    assert_eq!(ledger(&dir), "x\n".repeat(4));
    common::run(exec(&dir, &["--restart", "never"], "kill -9 $$")).ends(137);
    common::run(exec(&dir, &["--restart", "never"], "exit 5")).ends(5);
    let options = ["--restart", "always", "--max-restarts", "2"];
    common::run(exec(&dir, &options, "echo y >> \"$LEDGER\"")).ok();
    assert_eq!(ledger(&dir).matches('y').count(), 3);
    // Who asks for a person would only ask again.
    let ran = common::run(exec(&dir, &[], "echo z >> \"$LEDGER\"; exit 3")).ends(3);
    assert_eq!(ledger(&dir).matches('z').count(), 1);
    assert!(ran.stderr.contains("a person is needed"));
}

#[test]
fn what_cannot_be_run_is_said() {
    let dir = TempDir::new();
    let run = |program: &str| {
        let mut command = common::command();
        command
            .current_dir(dir.path())
            .args(["exec", "--", program]);
        common::run(command)
    };
    let ran = run("/nowhere/agent").ends(127);
    assert!(ran.stderr.contains("cannot run /nowhere/agent"));
    run("/tmp").ends(126);
}

#[test]
fn sigterm_is_passed_on_and_it_is_not_started_again() {
    let dir = TempDir::new();
    let drains = "trap 'echo drained >> \"$LEDGER\"; exit 7' TERM";
    let child = started(&dir, &[], drains);
    signal(&child, Signal::TERM);
    let ran = ended(child).ends(7);
    assert_eq!(ledger(&dir), "there\ndrained\n");
    assert!(ran.stderr.contains("draining"), "{}", ran.stderr);
}

#[test]
fn other_signals_are_passed_on_and_change_nothing() {
    let dir = TempDir::new();
    let listens = "trap 'echo hup >> \"$LEDGER\"' HUP; trap 'echo usr1 >> \"$LEDGER\"' USR1";
    let child = started(&dir, &[], listens);
    signal(&child, Signal::HUP);
    wait_until(|| ledger(&dir).contains("hup"));
    signal(&child, Signal::USR1);
    wait_until(|| ledger(&dir).contains("usr1"));
    signal(&child, Signal::INT);
    ended(child).ends(130);
}

#[test]
fn who_does_not_drain_is_killed() {
    let dir = TempDir::new();
    let child = started(&dir, &["--grace", "50ms"], "trap '' TERM");
    signal(&child, Signal::TERM);
    let ran = ended(child).ends(137);
    assert!(ran.stderr.contains("not ended in time"), "{}", ran.stderr);

    let dir = TempDir::new();
    let child = started(
        &dir,
        &["--grace", "1h"],
        "trap 'echo term >> \"$LEDGER\"' TERM",
    );
    signal(&child, Signal::TERM);
    wait_until(|| ledger(&dir).contains("term"));
    signal(&child, Signal::TERM);
    let ran = ended(child).ends(137);
    assert!(ran.stderr.contains("a second time"), "{}", ran.stderr);
    assert!(!is_alive(&pid_of(&dir)));
}

#[test]
fn sigterm_ends_the_wait_before_a_restart() {
    let dir = TempDir::new();
    let script = "echo there >> \"$LEDGER\"; exit 4";
    let mut child = exec(&dir, &["--backoff", "1h", "--max-backoff", "1h"], script)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("starting it again in 3600s")));
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(ledger(&dir), "there\n");
}

#[test]
fn the_process_dies_with_its_supervisor() {
    let dir = TempDir::new();
    let mut child = started(&dir, &[], "true");
    child.kill().unwrap();
    child.wait().unwrap();
    let pid = pid_of(&dir);
    wait_until(|| !is_alive(&pid));
}

#[test]
fn lines_are_documents_if_that_is_asked_for() {
    let dir = TempDir::new();
    let ran = common::run(exec(&dir, &["--json"], "test $DALSEGNO_RESTARTS = 1")).ok();
    let lines: Vec<serde_json::Value> = ran
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: Vec<_> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        events,
        [
            "started",
            "ended",
            "restarting",
            "started",
            "ended",
            "stopped"
        ]
    );
    assert!(lines.iter().all(|line| line["schema"] == "dalsegno.exec/1"));
    assert_eq!(lines[1]["exit"], 1);
}

/// As the first process of a container it has to wait for what others leave.
#[test]
fn as_pid_1_it_leaves_no_zombies() {
    let dir = TempDir::new();
    let script = "(sleep 0.05 & ) ; (sleep 0.06 & ); sleep 0.4; \
                  grep -l '^State:.Z' /proc/[0-9]*/status 2> /dev/null | wc -l; exit 6";
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(env!("CARGO_BIN_EXE_dalsegno"))
        .args(["exec", "--restart", "never", "--", "sh", "-c", script])
        .current_dir(dir.path());
    let ran = common::run(command);
    if ran.stderr.starts_with("unshare:") {
        return;
    }
    assert_eq!(ran.ends(6).stdout.trim(), "0");
}

#[test]
fn a_script_of_steps_is_brought_to_its_end() {
    let dir = TempDir::new();
    let binary = env!("CARGO_BIN_EXE_dalsegno");
    let script = format!(
        "set -e; for n in 1 2 3; do {binary} step --name s$n --effect idempotent -- \
         sh -c 'echo step $DALSEGNO_STEP >> \"$LEDGER\"'; \
         test $DALSEGNO_RESTARTS -ge $n || kill -9 $$; done; {binary} end"
    );
    common::run(exec(&dir, &["--run", "nightly"], &script)).ok();
    assert_eq!(ledger(&dir), "step s1\nstep s2\nstep s3\n");
    let listed = common::dalsegno(&dir.join(".dalsegno"), ["ls", "--json"])
        .ok()
        .json();
    assert_eq!(listed["runs"][0]["status"], "completed");
}
