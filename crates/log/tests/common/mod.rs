//! What the tests share: folders on the real disk, chance from a seed, child processes, and logs
//! as bytes.

// Each test uses some of it.
#![allow(dead_code, unused_imports)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_log::{LogView, Lsn};

pub mod mem_fs;
pub mod moments;
pub mod restamp;
pub mod small_disk;

/// An empty folder on the real disk. It goes when the test has passed and stays when it failed.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
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

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(n + 8);
        while bytes.len() < n {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(n);
        bytes
    }
}

/// The seed in `DALSEGNO_SEED`, or a new one. A test prints it, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("DALSEGNO_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    println!("DALSEGNO_SEED={seed}");
    seed
}

/// This test program again, running only its ignored test `name`: that one is no test but what a
/// child process of the others does.
pub fn this_program(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(this_program_args(name));
    command
}

pub fn this_program_args(name: &str) -> [&str; 5] {
    [name, "--exact", "--ignored", "--nocapture", "--quiet"]
}

/// Takes two lines of the test framework's out of what a child printed: ours begin with `@`.
pub fn reported(line: &str) -> Option<&str> {
    line.split_once('@').map(|(_, text)| text)
}

/// All records that a view shows.
pub fn all_records(view: &LogView) -> Vec<(Lsn, Vec<u8>)> {
    let mut reader = view.read_from(view.first_lsn()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push((record.lsn, record.payload.to_vec()));
    }
    records
}
