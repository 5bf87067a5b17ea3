//! The program that the documentation begins with: killed in the middle, it goes on there.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::TempDir;

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

#[test]
fn killed_in_the_middle_it_goes_on_there() {
    let dir = TempDir::new("first-program");
    std::fs::create_dir_all(dir.path().join("target")).unwrap();
    let start = || {
        let mut command = Command::new(program());
        command.current_dir(dir.path()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut first = start();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    // When the third is asked for, the answers to the first two are recorded; and on disk soon.
    for part in 1..=3 {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("asking the model for part {part}"));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    first.kill().unwrap();
    first.wait().unwrap();

    let second = start().wait_with_output().unwrap();
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(said.starts_with("asking the model for part 3\n"), "{said}");
    assert_eq!(said.matches("sending it").count(), 1, "{said}");
    assert!(said.contains("[whales, part 1] [whales, part 2]"), "{said}");

    let third = start().wait_with_output().unwrap();
    let said = String::from_utf8(third.stdout).unwrap();
    assert!(said.starts_with("[whales, part 1]"), "{said}");
}
