//! A small store on a simulated disk, for tests that disturb what is done with it.
//!
//! Invariant: every time and every choice is the same in every run, so that a portable file of the
//! store has the same bytes whenever it is written.

// Each test uses some of it.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dalsegno_sim::disk::{LoseAll, SimDisk};
use dalsegno_store::portable::verify_portable;
use dalsegno_store::{
    Answer, Append, Kind, LocalStore, NewEvent, NewPayload, Options, Retention, Store, StoreError,
    StreamId, Version,
};

/// Where streams are exported to and imported from.
pub const FILE: &str = "files/all.dalsegno";
/// All runs that have ended, into archives.
pub const ARCHIVED: Retention = Retention {
    ended_before_us: u64::MAX,
    archive: true,
};

pub fn options(disk: &SimDisk) -> Options {
    let options = Options::new().segment_bytes(32 << 10).without_threads();
    options.clock(|| 1).fs(Arc::new(disk.clone()))
}

pub fn now<T>(mut answer: Answer<'_, T>) -> Result<T, StoreError> {
    let mut context = Context::from_waker(Waker::noop());
    match answer.as_mut().poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("nobody else is there to wait for"),
    }
}

/// Runs `a` and `b`, which have ended, `c`, which has not, and a memory.
pub fn names() -> [StreamId; 4] {
    let runs = ["a", "b", "c"].map(|name| StreamId::run(name).unwrap());
    let [a, b, c] = runs;
    [a, b, c, StreamId::memory("m").unwrap()]
}

/// A store with runs, ended and not, and a memory, with payloads that they share.
pub fn with_a_store(dir: &str) -> SimDisk {
    let disk = SimDisk::new(7);
    let store = options(&disk).open(dir).unwrap();
    for (n, stream) in names().iter().enumerate() {
        let shared = NewPayload::new("text/plain", vec![b'x'; 3000 + n]);
        let kinds = match n {
            3 => vec![Kind::FactConfirmed],
            2 => vec![Kind::RunCreated, Kind::StepIntended],
            _ => vec![Kind::RunCreated, Kind::StepIntended, Kind::RunCompleted],
        };
        for kind in kinds {
            let event = NewEvent::new(kind).with_input(shared.clone());
            let batch = vec![Append::to(stream.clone(), vec![event])];
            now(store.append(batch)).unwrap();
        }
        store.seal().unwrap();
    }
    store.close().unwrap();
    drop(store);
    dalsegno_log::fs::Fs::create_dir(&disk, Path::new("files")).unwrap();
    disk.reboot(&mut LoseAll);
    disk
}

/// The heads of all streams, after reading every event and payload of them.
pub fn heads(store: &LocalStore) -> Vec<Option<Version>> {
    let streams = names();
    let heads = streams.iter().map(|stream| {
        let head = now(store.head(stream)).unwrap()?;
        let events = now(store.read(stream, 1, 100)).unwrap();
        assert_eq!(events.last().unwrap().hash, head.hash);
        for recorded in &events {
            for payload in recorded.event.payloads() {
                assert!(now(store.payload(payload)).unwrap().len() >= 3000);
            }
        }
        Some(head)
    });
    heads.collect()
}

/// How many streams a portable file has; `None` if there is no file. It must verify if there is.
pub fn is_whole(disk: &SimDisk, path: &str) -> Option<usize> {
    let bytes = disk.read_file(path).ok()?;
    let report = verify_portable(&bytes[..]).unwrap();
    Some(report.streams.len())
}

/// Whether an archive of the store has the runs that have ended.
pub fn are_archived(disk: &SimDisk) -> bool {
    let files = disk.files("store/archive").into_iter();
    let mut files = files.filter(|name| name.ends_with(".dalsegno"));
    files.any(|name| is_whole(disk, &format!("store/archive/{name}")) == Some(2))
}

/// Damages the segment that has run `b`, an index and the newest snapshot of `store`.
pub fn damage(disk: &SimDisk) {
    let segment = "store/log/0000000000000002.seg";
    let middle = disk.file_len(segment).unwrap() / 2 + 200;
    disk.flip_bit(segment, middle, 3).unwrap();
    disk.flip_bit("store/index/0000000000000001.index", 5000, 3)
        .unwrap();
    let newest = disk.files("store/snapshots").into_iter().max().unwrap();
    disk.flip_bit(format!("store/snapshots/{newest}"), 60, 1)
        .unwrap();
    assert!(!options(disk).verify("store").unwrap().is_sound());
}
