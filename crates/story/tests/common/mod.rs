//! Processes of the story, and what a test needs to drive them.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod campaign;
pub mod check;
pub mod fleet;
pub mod hosts;
pub mod person;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dalsegno_story::http::Request;
use dalsegno_story::ledger::{self, Entry};

/// An empty folder on the real disk. It goes when the test has passed and stays when it failed.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for a look: {}", self.0.display());
        } else {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }
}

/// The seed in `DALSEGNO_SEED`, or a new one. A test prints it, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("DALSEGNO_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(ledger::now_us);
    println!("DALSEGNO_SEED={seed}");
    seed
}

/// Numbers that follow from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The world's process. It lives until this is dropped.
pub struct World {
    child: Child,
    pub address: String,
}

impl World {
    pub fn start(ledger: &Path) -> World {
        World::start_with(ledger, &[])
    }

    /// One that takes so long for each reply.
    pub fn start_at_pace(ledger: &Path, pace: Duration) -> World {
        World::start_with(ledger, &[pace.as_millis().to_string()])
    }

    fn start_with(ledger: &Path, more: &[String]) -> World {
        let mut child = Command::new(env!("CARGO_BIN_EXE_story-world"))
            .arg(ledger)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().to_owned();
        World { child, address }
    }

    pub fn get(&self, path: &str) -> String {
        let reply = Request::get(path).send(&self.address).unwrap();
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.text()
    }

    pub fn switch_probe_off(&self) {
        let reply = Request::post("/probe/off", "").send(&self.address);
        assert_eq!(reply.unwrap().status, 200);
    }

    /// How many requests have arrived from processes that are dead or have their reply.
    pub fn arrivals(&self) -> u64 {
        self.get("/arrivals").parse().unwrap()
    }

    pub fn ledger(&self) -> Vec<Entry> {
        ledger::parse(&self.get("/ledger")).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}
