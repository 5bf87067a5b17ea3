//! The contract of a store, kept by the local one: on the machine's disk and on a simulated one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_contract::world::{Implementation, TestClock, World};
use dalsegno_sim::disk::SimDisk;
use dalsegno_store::{LocalStore, Options, Store};

mod on_disk {
    dalsegno_contract::contract_tests! { super::local }
}

mod in_memory {
    dalsegno_contract::contract_tests! { super::simulated }
}

/// The local store on the file system of the machine, with its threads.
fn local() -> World {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("contract-{}-{count}", std::process::id());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(std::fs::remove_dir_all(&dir));
    let options = Options::new().segment_bytes(64 << 10);
    World::new(|clock| Box::new(Local::new(options, clock, dir, None)))
}

/// The local store in memory and without threads: the same every time.
fn simulated() -> World {
    let disk = SimDisk::new(1);
    let options = Options::new()
        .fs(Arc::new(disk.clone()))
        .without_threads()
        .segment_bytes(32 << 10);
    let dir = PathBuf::from("store");
    World::new(|clock| Box::new(Local::new(options, clock, dir, Some(disk))))
}

struct Local {
    options: Options,
    dir: PathBuf,
    disk: Option<SimDisk>,
    store: LocalStore,
}

impl Local {
    fn new(options: Options, clock: TestClock, dir: PathBuf, disk: Option<SimDisk>) -> Local {
        let options = options.clock(move || clock.now_us());
        let store = options.open(&dir).unwrap();
        Local {
            options,
            dir,
            disk,
            store,
        }
    }
}

impl Implementation for Local {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn reopen(&mut self) {
        let digest = self.store.state_digest();
        self.store.close().unwrap();
        self.store = self.options.open(&self.dir).unwrap();
        assert!(self.store.opened().clean, "{:?}", self.store.opened());
        assert!(self.store.opened().notices.is_empty());
        assert_eq!(self.store.state_digest(), digest, "another state");
    }

    fn settle(&self) {
        self.store.seal().unwrap();
    }

    fn stored_bytes(&self) -> u64 {
        // Sealed segments are cut to what is in them.
        self.store.seal().unwrap();
        let log = self.dir.join("log");
        match &self.disk {
            Some(disk) => {
                let files = disk.files(&log);
                let sealed = files.iter().filter(|name| name.ends_with(".seg"));
                let mut sizes: Vec<u64> = sealed
                    .map(|name| disk.file_len(log.join(name)).unwrap())
                    .collect();
                sizes.pop();
                sizes.iter().sum()
            }
            None => {
                let files = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap());
                let mut sealed: Vec<_> = files
                    .filter(|file| file.file_name().to_string_lossy().ends_with(".seg"))
                    .map(|file| (file.file_name(), file.metadata().unwrap().len()))
                    .collect();
                sealed.sort();
                sealed.pop();
                sealed.iter().map(|(_, bytes)| bytes).sum()
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        drop(self.store.close());
        if self.disk.is_none() && !std::thread::panicking() {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }
}
