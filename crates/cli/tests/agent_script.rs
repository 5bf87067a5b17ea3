//! The script of the README, killed with SIGKILL again and again: one mail, and one answer to each
//! question.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::TempDir;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

const KILLS: usize = 24;

fn agent(dir: &Path, topic: &str) -> Command {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let binary = Path::new(env!("CARGO_BIN_EXE_dalsegno"));
    let path = std::env::var("PATH").unwrap();
    let path = format!(
        "{}:{}:{path}",
        binary.parent().unwrap().display(),
        examples.join("tools").display()
    );
    let mut command = Command::new("bash");
    command
        .arg(examples.join("agent.sh"))
        .arg(topic)
        .current_dir(dir)
        .env("PATH", path)
        .env("DALSEGNO_STORE", dir.join("store"))
        .env("MODEL_SECONDS", "0.02")
        .env("MAIL_SECONDS", "0.05")
        .process_group(0)
        .stdin(Stdio::null());
    command
}

#[test]
fn it_survives_kill_nine() {
    let dir = TempDir::new();
    let mut chance = std::process::id() as u64 | 1;
    let mut random = |below: u64| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance % below
    };
    let (mut kills, mut topic) = (0, 0);
    let mut longest_ms = 300;
    while kills < KILLS {
        let name = format!("topic {topic}");
        let mut child = agent(dir.path(), &name)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        // At any moment of a life, which is the longer the more the machine has to do.
        std::thread::sleep(Duration::from_millis(random(longest_ms)));
        if child.try_wait().unwrap().is_some() {
            topic += 1;
            longest_ms = (longest_ms / 2).max(50);
            continue;
        }
        kills += 1;
        longest_ms += 20;
        match random(3) {
            // Only the script: what it has started goes on.
            0 => kill_process(pid, Signal::KILL).unwrap(),
            _ => kill_process_group(pid, Signal::KILL).unwrap(),
        }
        child.wait().unwrap();
    }
    let mut reports = Vec::new();
    for n in 0..=topic {
        let output = agent(dir.path(), &format!("topic {n}")).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{kills} kills: {words}");
        reports.push(format!("report on topic {n}"));
    }
    let outbox = std::fs::read_to_string(dir.join("outbox")).unwrap();
    assert_eq!(outbox.lines().count(), topic + 1, "{outbox}");
    for report in &reports {
        let mails: Vec<_> = outbox
            .lines()
            .filter(|mail| mail.contains(report))
            .collect();
        assert_eq!(mails.len(), 1, "{report}: {outbox}");
    }
    let listed = common::dalsegno(&dir.join("store"), ["ls", "--json"])
        .ok()
        .json();
    for run in listed["runs"].as_array().unwrap() {
        assert_eq!(run["status"], "completed", "{run}");
    }
    let report = dalsegno_store::Options::new()
        .verify(dir.join("store"))
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
}
