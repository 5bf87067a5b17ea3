//! Steps of scripts, through the real binary.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::common::places::Place;
use super::common::{self, Ran, TempDir};

/// A store of its own, and a file beside it in which commands leave their traces.
pub struct Scripts {
    pub dir: TempDir,
    /// Where the store is, if not in that folder.
    elsewhere: Option<PathBuf>,
}

impl Scripts {
    pub fn new() -> Scripts {
        Scripts {
            dir: TempDir::new(),
            elsewhere: None,
        }
    }

    pub fn at(place: &Place) -> Scripts {
        Scripts {
            elsewhere: Some(place.path().to_owned()),
            ..Scripts::new()
        }
    }

    pub fn store(&self) -> PathBuf {
        let elsewhere = self.elsewhere.clone();
        elsewhere.unwrap_or_else(|| self.dir.join("store"))
    }

    /// What commands have left.
    pub fn ledger(&self) -> String {
        std::fs::read_to_string(self.dir.join("ledger")).unwrap_or_default()
    }

    /// How often something happened.
    pub fn happened(&self, what: &str) -> usize {
        self.ledger().lines().filter(|line| *line == what).count()
    }

    /// `dalsegno step`, with the traces' file in the environment.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = common::command();
        command
            .env("DALSEGNO_STORE", self.store())
            .env("LEDGER", self.dir.join("ledger"))
            .args(words);
        command
    }

    /// Runs `dalsegno step --run RUN --name NAME OPTIONS -- sh -c SCRIPT`.
    pub fn step(&self, run: &str, name: &str, options: &[&str], script: &str) -> Ran {
        common::run(self.step_command(run, name, options, script))
    }

    pub fn step_command(&self, run: &str, name: &str, options: &[&str], script: &str) -> Command {
        let mut words = vec!["step", "--run", run, "--name", name];
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        self.command(&words)
    }

    /// Starts it, and waits until its command has left a trace.
    pub fn started(&self, run: &str, name: &str, options: &[&str], script: &str) -> Child {
        let begun = format!("{name} begun");
        let before = self.happened(&begun);
        let script = format!("echo '{begun}' >> \"$LEDGER\"; {script}");
        let mut command = self.step_command(run, name, options, &script);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.unwrap();
        wait_until(|| self.happened(&begun) > before);
        child
    }

    /// The library's view of the store.
    pub fn verify(&self) {
        common::dalsegno(&self.store(), ["verify"]).ok();
    }
}

/// Kills a process, and waits for its end.
pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits for something that other processes do.
pub fn wait_until(is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed().as_secs() < 60, "it has not come");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Whether a process is there, zombies not counted.
pub fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}
