//! Workers with commands as agents, as real processes on a real PostgreSQL.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::common::places::Place;
use super::common::{self, Ran, TempDir};

/// A store, scripts for agents, and a folder in which they leave their traces.
pub struct Workers {
    pub place: Place,
    pub dir: TempDir,
}

impl Workers {
    pub fn new() -> Workers {
        Workers::at(Place::database())
    }

    pub fn at(place: Place) -> Workers {
        let dir = TempDir::new();
        // A worker that is killed leaves its sockets behind.
        std::fs::create_dir(dir.join("tmp")).unwrap();
        Workers { place, dir }
    }

    pub fn store(&self) -> &Path {
        self.place.path()
    }

    /// Makes the script of an agent; what `--agent` takes.
    pub fn agent(&self, name: &str, script: &str) -> String {
        let path = self.dir.join(&format!("{name}.sh"));
        std::fs::write(&path, format!("set -e\n{script}\n")).unwrap();
        format!("{name}=sh {} ", path.display())
    }

    /// Runs a command on the store.
    pub fn run(&self, args: &[&str]) -> Ran {
        common::dalsegno(self.store(), args)
    }

    pub fn start(&self, agent: &str, run: &str) {
        self.run(&["start", agent, run]).ok();
    }

    /// A worker that has begun to take runs. It is killed when it is dropped.
    pub fn worker(&self, args: &[&str]) -> Worker {
        let count = std::fs::read_dir(self.dir.path()).unwrap().count();
        let log = self.dir.join(&format!("log-{count}"));
        let binary = Path::new(env!("CARGO_BIN_EXE_dalsegno"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", binary.parent().unwrap().display());
        let mut command = common::command();
        command
            .arg("--store")
            .arg(self.store())
            .args(["worker", "--json", "--backoff", "5ms"])
            .args(args)
            .env("PATH", path)
            .env("OUT", self.dir.path())
            .env("TMPDIR", self.dir.join("tmp"))
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        let worker = Worker { child, log };
        worker.until("ready", None);
        worker
    }

    /// What agents have left under a name.
    pub fn left(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }

    /// Waits for it, and gives it.
    pub fn until_left(&self, name: &str) -> String {
        until(name, || !self.left(name).is_empty());
        self.left(name)
    }

    pub fn make(&self, name: &str) {
        std::fs::write(self.dir.join(name), "go\n").unwrap();
    }

    pub fn show(&self, run: &str) -> Value {
        let ran = self.run(&["show", run, "--json"]);
        ran.json()
    }

    /// Waits until a run has a status.
    pub fn until_is(&self, run: &str, status: &str) -> Value {
        let begun = Instant::now();
        loop {
            let shown = self.show(run);
            if shown["status"] == status {
                return shown;
            }
            if begun.elapsed() > DEADLINE {
                panic!("{run} is not {status}: {shown:#}\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a run needs a person; what `why` says.
    pub fn until_needs_person(&self, run: &str) -> Value {
        let begun = Instant::now();
        loop {
            let ran = self.run(&["why", run, "--json"]);
            let why = ran.json();
            if why["standing"] == "needs-person" {
                return why;
            }
            if begun.elapsed() > DEADLINE {
                panic!("{run} needs nobody: {why:#}\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What all workers have said.
    pub fn logs(&self) -> String {
        let files = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        names.sort();
        let logs = names
            .iter()
            .filter(|path| path.to_str().unwrap().contains("/log-"));
        logs.map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    }

    /// The idempotency keys that something was done under, each with how often.
    pub fn effects(&self) -> Vec<(String, usize)> {
        let files = std::fs::read_dir(self.dir.path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let effects = paths.filter(|path| path.to_str().unwrap().contains("/effect-"));
        let counted = effects.map(|path| {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                lines,
            )
        });
        counted.collect()
    }
}

const DEADLINE: Duration = Duration::from_secs(60);

/// Leaves a trace of an effect under its idempotency key.
pub const EFFECT: &str = "echo x >> \"$OUT/effect-$DALSEGNO_IDEMPOTENCY_KEY\"";

/// A worker.
pub struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; its code.
    pub fn ended(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < DEADLINE, "{:#?}", self.lines());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The lines of its log; what commands have said is between them.
    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines = text.lines();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The lines of one event, of one run if it is given.
    pub fn said(&self, event: &str, run: Option<&str>) -> Vec<Value> {
        let lines = self.lines().into_iter();
        lines
            .filter(|line| line["event"] == event && run.is_none_or(|run| line["run"] == run))
            .collect()
    }

    /// Waits until it says something.
    pub fn until(&self, event: &str, run: Option<&str>) -> Value {
        let begun = Instant::now();
        loop {
            if let Some(line) = self.said(event, run).pop() {
                return line;
            }
            if begun.elapsed() > DEADLINE {
                let text = std::fs::read_to_string(&self.log).unwrap();
                panic!("{event} was not said:\n{text}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that was stopped with SIGSTOP, too.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits for something that other processes do.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "it has not come: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there, zombies not counted.
pub fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}
