//! The program that the documentation begins with: killed in the middle, it goes on there.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::TempDir;
use dalsegno_store::{Kind, Options, Store, StreamId};

/// The example beside this test's own program, which cargo builds with the tests.
fn program() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let program = me.parent().unwrap().parent().unwrap();
    let program = program.join("examples/report");
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "-p", "dalsegno", "--example", "report"]);
        assert!(build.status().unwrap().success());
    }
    program
}

/// Waits until so many answers can be read from disk.
async fn until_answered(store: &Path, count: usize) {
    let store = Options::new().open_read_only(store).unwrap();
    let run = StreamId::run("report on whales").unwrap();
    loop {
        let position = store.position().await.unwrap();
        let events = store.events(&run, 1, 100).await.unwrap();
        let answers = events.iter().filter(|e| e.kind == Kind::StepSucceeded);
        if answers.count() >= count {
            return;
        }
        store.changed(position).await.unwrap();
    }
}

#[tokio::test]
async fn killed_in_the_middle_it_goes_on_there() {
    let dir = TempDir::new("first-program");
    std::fs::create_dir_all(dir.path().join("target")).unwrap();
    let start = || {
        let mut command = Command::new(program());
        command.current_dir(dir.path()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut first = start();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    // When the third is asked for, the answers to the first two are recorded.
    for part in 1..=3 {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("asking the model for part {part}"));
    }
    until_answered(&dir.path().join("target/report.dalsegno"), 2).await;
    first.kill().unwrap();
    first.wait().unwrap();
    // On a busy machine it may have come further.
    let asked = 3 + lines.count();

    let second = start().wait_with_output().unwrap();
    let said = String::from_utf8(second.stdout).unwrap();
    let goes_on = |part: usize| said.starts_with(&format!("asking the model for part {part}\n"));
    assert!((3..=asked + 1).any(goes_on), "{asked} asked, then {said}");
    assert_eq!(said.matches("sending it").count(), 1, "{said}");
    assert!(said.contains("[whales, part 1] [whales, part 2]"), "{said}");

    let third = start().wait_with_output().unwrap();
    let said = String::from_utf8(third.stdout).unwrap();
    assert!(said.starts_with("[whales, part 1]"), "{said}");
}
