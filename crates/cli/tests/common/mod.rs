//! A folder that goes away, the real binary, and stores that the real library has made.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub mod adding;
pub mod models;
pub mod owner;
pub mod places;
pub mod stores;
pub mod trouble;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

/// A folder of a test's own, removed with it.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dalsegno-cli-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&dir));
        std::fs::create_dir_all(&dir).unwrap();
        TempDir(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The command, with nothing of the environment that changes what it prints.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dalsegno"));
    command
        .env_remove("DALSEGNO_STORE")
        .env_remove("DALSEGNO_MODEL")
        .env_remove("NO_COLOR")
        .env("COLUMNS", "100")
        .stdin(Stdio::null());
    command
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// It ended with this code; what it printed.
    #[track_caller]
    pub fn ends(self, code: i32) -> Ran {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// It worked; what it printed.
    #[track_caller]
    pub fn ok(self) -> Ran {
        self.ends(0)
    }

    /// The only document that it printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The error that it printed as JSON.
    #[track_caller]
    pub fn json_error(&self) -> Value {
        serde_json::from_str(&self.stderr).unwrap_or_else(|e| panic!("{e}: {}", self.stderr))
    }
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `dalsegno --store STORE ARGS…` to its end.
pub fn dalsegno<S: AsRef<OsStr>>(store: &Path, args: impl IntoIterator<Item = S>) -> Ran {
    let mut command = command();
    command.arg("--store").arg(store).args(args);
    run(command)
}

/// Starts `dalsegno --store STORE ARGS…`, and looks at nothing that it prints.
pub fn start<S: AsRef<OsStr>>(store: &Path, args: impl IntoIterator<Item = S>) -> Child {
    let mut command = command();
    command.arg("--store").arg(store).args(args);
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().unwrap()
}

/// Runs `dalsegno --store STORE ARGS…` so many times at once; the codes that they ended with.
pub fn at_once(times: usize, store: &Path, args: &[&str]) -> Vec<Option<i32>> {
    let children: Vec<_> = (0..times).map(|_| start(store, args)).collect();
    let ended = children.into_iter().map(|mut child| child.wait().unwrap());
    let mut codes: Vec<_> = ended.map(|ended| ended.code()).collect();
    codes.sort_unstable();
    codes
}

/// The runs that a document lists.
pub fn names(document: &Value) -> Vec<&str> {
    let runs = document["runs"].as_array().unwrap().iter();
    runs.map(|run| run["run"].as_str().unwrap()).collect()
}

/// Runs a future to its end: for making stores with the library.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}
