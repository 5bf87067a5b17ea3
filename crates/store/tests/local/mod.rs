//! What tests of the local store share: a folder of their own, and short ways to append.

#![allow(dead_code)] // Not every test uses all of it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use dalsegno_store::{
    Append, Kind, LocalStore, NewEvent, NewPayload, Options, Store, StoreError, StreamId, Version,
};

/// A folder that goes with its value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dalsegno-{name}-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&dir));
        Folder(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The answer of a future that has no reason to wait for anybody.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// Small segments and no threads: many segments, and everything happens at once.
pub fn small() -> Options {
    Options::new().segment_bytes(32 << 10).without_threads()
}

pub fn run(name: &str) -> StreamId {
    StreamId::run(name).unwrap()
}

pub fn append(store: &LocalStore, stream: &StreamId, kind: Kind) -> Result<Version, StoreError> {
    append_with(store, stream, NewEvent::new(kind))
}

pub fn append_with(
    store: &LocalStore,
    stream: &StreamId,
    event: NewEvent,
) -> Result<Version, StoreError> {
    let batch = vec![Append::to(stream.clone(), vec![event])];
    let appended = now(store.append(batch))?;
    now(store.durable(appended.position))?;
    Ok(appended.heads[0])
}

/// A run with some steps, each with a payload of this many bytes.
pub fn steps(store: &LocalStore, stream: &StreamId, count: u64, bytes: usize) {
    append(store, stream, Kind::RunCreated).unwrap();
    append(store, stream, Kind::RunStarted).unwrap();
    for n in 0..count {
        let event = NewEvent::new(Kind::StepIntended).with_input(payload(n, bytes));
        append_with(store, stream, event).unwrap();
        append(store, stream, Kind::StepSucceeded).unwrap();
    }
}

/// Bytes that do not compress and differ by `seed`.
pub fn payload(seed: u64, bytes: usize) -> NewPayload {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let content = std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    });
    NewPayload::new(
        "application/octet-stream",
        content.take(bytes).collect::<Vec<u8>>(),
    )
}

/// The bytes of all files of a folder.
pub fn folder_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
