//! `dalsegno tail` follows runs beside their owner, and ends cleanly.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::owner::Owner;
use common::places::Place;
use common::{TempDir, command, dalsegno, stores};
use serde_json::Value;

in_both! {
    a_run_is_followed_to_its_end,
    all_runs_are_followed_until_ctrl_c,
    an_ended_run_is_shown_and_left,
}

#[test]
#[ignore = "the process that owns the store, started by the tests"]
fn the_owner() {
    common::owner::main();
}

struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Following {
    fn start(store: &Path, args: &[&str]) -> Following {
        let mut child = command()
            .arg("--store")
            .arg(store)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// Reads up to an event of this kind.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next();
            if event["kind"] == kind {
                return event;
            }
        }
    }

    /// Sends a signal of the operating system; what is left to read, and the code.
    fn signalled(mut self, name: &str) -> (Vec<String>, Option<i32>) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
        let rest = self.lines.by_ref().map(Result::unwrap).collect();
        (rest, self.child.wait().unwrap().code())
    }
}

fn a_run_is_followed_to_its_end(dir: &Place) {
    let owner = Owner::start(dir.path(), &["signal"]);
    let mut tail = Following::start(dir.path(), &["tail", "signal", "--from", "1", "--json"]);
    let first = tail.next();
    assert_eq!(first["schema"], "dalsegno.event/1");
    assert_eq!(
        (&first["sequence"], &first["kind"]),
        (&1.into(), &"run-created".into())
    );
    tail.until("run-checkpointed");
    dalsegno(dir.path(), ["signal", "signal", "go", "7"]).ok();
    let came = tail.until("signal-received");
    assert_eq!(came["input"]["value"], 7);
    let mut last = came;
    for line in tail.lines.by_ref() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let next = last["sequence"].as_u64().unwrap() + 1;
        assert_eq!(event["sequence"], next, "each once and in order");
        last = event;
    }
    assert_eq!(last["kind"], "run-completed");
    assert_eq!(tail.child.wait().unwrap().code(), Some(0));
    owner.close();
}

fn all_runs_are_followed_until_ctrl_c(dir: &Place) {
    let owner = Owner::start(dir.path(), &["signal", "signal-2"]);
    for name in ["INT", "TERM"] {
        let mut tail = Following::start(dir.path(), &["tail", "--json", "-n", "3"]);
        // The events of a database have times, and no position.
        let by = match dir.is_database() {
            true => "time_us",
            false => "position",
        };
        let positions: Vec<_> = (0..3).map(|_| tail.next()[by].as_u64().unwrap()).collect();
        assert!(positions.is_sorted());
        let (rest, code) = tail.signalled(name);
        assert_eq!(code, Some(0));
        let whole = |line: &String| serde_json::from_str::<Value>(line).is_ok();
        assert!(rest.iter().all(whole), "{rest:?}");
    }
    let mut tail = Following::start(dir.path(), &["tail", "--json", "-n", "0"]);
    for run in ["signal-2", "signal"] {
        dalsegno(dir.path(), ["signal", run, "go", "--wait", "20"]).ok();
        assert_eq!(tail.until("run-completed")["run"], run);
    }
    tail.signalled("INT");
    owner.close();
}

fn an_ended_run_is_shown_and_left(dir: &Place) {
    stores::every_state(dir.path());
    let text = dalsegno(dir.path(), ["tail", "done"]).ok().stdout;
    assert!(
        text.lines().last().unwrap().ends_with("run-completed"),
        "{text}"
    );
    let text = dalsegno(dir.path(), ["tail", "done", "-n", "1"])
        .ok()
        .stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    let text = dalsegno(dir.path(), ["tail", "done", "--from", "999"])
        .ok()
        .stdout;
    assert!(text.is_empty(), "{text}");
    let text = dalsegno(dir.path(), ["tail", "done", "-n", "0"])
        .ok()
        .stdout;
    assert!(text.is_empty(), "{text}");
    let ran = dalsegno(dir.path(), ["tail", "dune"]).ends(1);
    assert!(
        ran.stderr.contains("did you mean \"done\"?"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let dir = TempDir::new();
    let owner = Owner::start(dir.path(), &["signal"]);
    let mut tail = Following::start(dir.path(), &["tail", "--json", "-n", "1"]);
    tail.next();
    let Following { mut child, lines } = tail;
    drop(lines);
    // It notices when it has something to say.
    dalsegno(dir.path(), ["signal", "signal", "go"]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    owner.close();
}
