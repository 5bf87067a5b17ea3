//! A store and what a test can do to it from outside.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_store::{
    Append, Appended, Fields, Kind, NewEvent, Recorded, Store, StoreError, StreamId, Version, field,
};

/// Where time begins in these tests, in microseconds.
pub const BEGINNING_US: u64 = 1_700_000_000_000_000;

/// One store of some implementation.
pub trait Implementation: Send + Sync {
    /// The store, opened.
    fn store(&self) -> Arc<dyn Store>;

    /// Lets go of the store, and opens it again.
    fn reopen(&mut self);

    /// Moves what there is to where old history is kept.
    fn settle(&self);

    /// What the store takes on its disk, its own files for speed aside.
    fn stored_bytes(&self) -> u64;
}

/// The clock that a store was given.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn new() -> TestClock {
        TestClock(Arc::new(AtomicU64::new(BEGINNING_US)))
    }

    pub fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn pass_us(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }
}

/// A store under test, and time.
pub struct World {
    pub clock: TestClock,
    store: Arc<dyn Store>,
    implementation: Box<dyn Implementation>,
}

impl World {
    pub fn new(make: impl FnOnce(TestClock) -> Box<dyn Implementation>) -> World {
        let clock = TestClock::new();
        let implementation = make(clock.clone());
        World {
            clock,
            store: implementation.store(),
            implementation,
        }
    }

    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    pub fn reopen(&mut self) {
        self.implementation.reopen();
        self.store = self.implementation.store();
    }

    pub fn settle(&self) {
        self.implementation.settle();
    }

    pub fn stored_bytes(&self) -> u64 {
        self.implementation.stored_bytes()
    }
}

impl Deref for World {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        self.store.as_ref()
    }
}

/// Runs a test's future.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

pub fn run(name: &str) -> StreamId {
    StreamId::run(name).unwrap()
}

pub fn memory(name: &str) -> StreamId {
    StreamId::memory(name).unwrap()
}

pub fn event(kind: Kind) -> NewEvent {
    NewEvent::new(kind)
}

/// The first event of a run of some agent.
pub fn created(agent: &str) -> NewEvent {
    event(Kind::RunCreated).with_fields(Fields::new().with(field::AGENT, agent))
}

/// An event of the user's own, with a number.
pub fn noted(number: u64) -> NewEvent {
    event(Kind::User("noted".into())).with_fields(Fields::new().with(1, number))
}

/// Appends events of these kinds to one stream, wherever it is.
pub async fn append(store: &dyn Store, stream: &StreamId, events: Vec<NewEvent>) -> Appended {
    let batch = vec![Append::to(stream.clone(), events)];
    store.append(batch).await.unwrap()
}

/// Makes a run.
pub async fn create(store: &dyn Store, name: &str) -> StreamId {
    let run = run(name);
    append(store, &run, vec![created("cook")]).await;
    run
}

/// What an append came to that must not succeed.
pub async fn refused(store: &dyn Store, batch: Vec<Append>) -> StoreError {
    let before = store.position().await.unwrap();
    let error = store.append(batch).await.unwrap_err();
    let after = store.position().await.unwrap();
    assert_eq!(before, after, "something was written: {error}");
    error
}

/// All events of a stream; that they are a chain is checked.
pub async fn all(store: &dyn Store, stream: &StreamId) -> Vec<Recorded> {
    let events = store.read(stream, 1, usize::MAX).await.unwrap();
    check_chain(stream, &events);
    let last = events.last().map(|last| Version {
        sequence: last.event.sequence,
        hash: last.hash,
    });
    assert_eq!(store.head(stream).await.unwrap(), last, "{stream}");
    events
}

/// Events from the first on have every sequence and hash that follows from their bytes.
pub fn check_chain(stream: &StreamId, events: &[Recorded]) {
    let mut version = Version::START;
    for recorded in events {
        version = version.after(&recorded.event.encode());
        assert_eq!(recorded.event.stream, *stream);
        assert_eq!(recorded.event.sequence, version.sequence, "{stream}");
        assert_eq!(recorded.hash, version.hash, "{stream}");
    }
}
