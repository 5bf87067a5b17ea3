//! A process that owns a store and executes runs, to be spoken to and to be killed: this test
//! program once more. A test file that uses it has a test `the_owner` that calls [`main`].

#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::stores;

const STORE: &str = "DALSEGNO_TEST_OWNER_STORE";
const RUNS: &str = "DALSEGNO_TEST_OWNER_RUNS";

/// What the process does: starts runs, says so when they have settled, lives until its input ends.
pub fn main() {
    let Some(store) = std::env::var_os(STORE) else {
        return;
    };
    let runs = std::env::var(RUNS).unwrap();
    let runs: Vec<&str> = runs.split(',').filter(|run| !run.is_empty()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let app = stores::app(Path::new(&store)).await;
        for run in &runs {
            app.start("writer", run, run).await.unwrap();
        }
        stores::settled(&app, &runs).await;
        println!("\nsettled");
        std::io::stdout().flush().unwrap();
        let ended = tokio::task::spawn_blocking(|| {
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        });
        ended.await.unwrap();
        app.close().await.unwrap();
    });
}

/// An owner that is killed with `kill -9` if it is dropped.
pub struct Owner(Child);

impl Owner {
    /// Starts one that starts these runs, and waits until they have settled.
    pub fn start(store: &Path, runs: &[&str]) -> Owner {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_owner", "--ignored", "--nocapture"])
            .env(STORE, store)
            .env(RUNS, runs.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        assert!(lines.any(|line| line == "settled"), "the owner died");
        Owner(child)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Lets it close the store.
    pub fn close(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
