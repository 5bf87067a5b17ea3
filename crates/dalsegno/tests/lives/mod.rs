//! Processes that end in the middle of what they do.

#![allow(dead_code, clippy::unwrap_used)]

use std::future::Future;
use std::sync::Arc;

use dalsegno_store::{Answer, LocalStore, Payload, Store, StoreError, StreamId};

/// A process, as far as a store can tell: all of its tasks end at once when it is dropped, and none
/// of them hears of it.
pub struct Life(tokio::runtime::Runtime);

impl Life {
    pub fn new() -> Life {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        Life(builder.enable_time().build().unwrap())
    }

    pub fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.0.block_on(what)
    }
}

/// What a test says in one life.
pub fn life<T>(what: impl Future<Output = T>) -> T {
    Life::new().block_on(what)
}

/// Waits until something is so, or gives up.
pub async fn until<F, Fut>(what: &str, mut is_so: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    for _ in 0..2000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(is_so().await, "never: {what}");
}

/// Waits until a run stands like this.
pub async fn stands(
    app: &dalsegno::Dalsegno,
    run: &str,
    standing: dalsegno::Standing,
) -> dalsegno::Why {
    for _ in 0..2000 {
        let why = app.why(run).await.unwrap();
        if why.standing == standing {
            return why;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let why = app.why(run).await.unwrap();
    assert_eq!(why.standing, standing, "{why}");
    why
}

/// A store in which some payloads, or events of a run, cannot be read.
#[derive(Debug)]
pub struct Rotten {
    store: Arc<dyn Store>,
    bad: Vec<Payload>,
    lost: Option<StreamId>,
    frozen: Option<StreamId>,
}

impl Rotten {
    pub fn new(store: LocalStore, bad: Vec<Payload>) -> Rotten {
        Rotten {
            store: Arc::new(store),
            bad,
            lost: None,
            frozen: None,
        }
    }

    pub fn losing(store: &Arc<dyn Store>, run: StreamId) -> Rotten {
        Rotten {
            store: Arc::clone(store),
            bad: Vec::new(),
            lost: Some(run),
            frozen: None,
        }
    }

    /// Events in the middle of a run are missing, and the store has noticed.
    pub fn frozen(store: LocalStore, run: StreamId) -> Rotten {
        Rotten {
            frozen: Some(run),
            ..Rotten::new(store, Vec::new())
        }
    }
}

fn damaged<T: Send + 'static>(what: &str) -> Answer<'static, T> {
    let damaged = StoreError::Damaged {
        what: what.into(),
        expected: "what was written".into(),
        found: "rot".into(),
        advice: "see all of it with verify, then restore a copy or repair",
    };
    Box::pin(std::future::ready(Err(damaged)))
}

mod rotten {
    use dalsegno_store::mailbox::NewLetter;
    use dalsegno_store::*;

    impl Store for super::Rotten {
        fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
            if self.bad.contains(payload) {
                return super::damaged("a payload");
            }
            self.store.payload(payload)
        }
        fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
            self.store.append(batch)
        }
        fn durable(&self, position: Position) -> Answer<'_, ()> {
            self.store.durable(position)
        }
        fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
            self.store.head(stream)
        }
        fn read<'a>(
            &'a self,
            stream: &'a StreamId,
            from: u64,
            limit: usize,
        ) -> Answer<'a, Vec<Recorded>> {
            if self.lost.as_ref() == Some(stream) {
                return super::damaged("an event");
            }
            self.store.read(stream, from, limit)
        }
        fn streams<'a>(
            &'a self,
            kind: StreamKind,
            after: Option<&'a StreamId>,
            limit: usize,
        ) -> Answer<'a, Vec<(StreamId, Version)>> {
            self.store.streams(kind, after, limit)
        }
        fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
            Box::pin(async move {
                let mut runs = self.store.runs(query).await?;
                for info in &mut runs {
                    if self.frozen.as_ref() == Some(&info.run) {
                        info.attention = Some("events 3 to 4 are missing".into());
                    }
                }
                Ok(runs)
            })
        }
        fn take_lease<'a>(
            &'a self,
            run: &'a StreamId,
            owner: &'a str,
            for_us: u64,
        ) -> Answer<'a, Lease> {
            self.store.take_lease(run, owner, for_us)
        }
        fn renew_lease<'a>(
            &'a self,
            run: &'a StreamId,
            token: u64,
            for_us: u64,
        ) -> Answer<'a, Lease> {
            self.store.renew_lease(run, token, for_us)
        }
        fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
            self.store.release_lease(run, token)
        }
        fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
            self.store.timers_due(now_us, limit)
        }
        fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
            self.store.next_timer_us()
        }
        fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef> {
            self.store.send(letter)
        }
        fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
            self.store.is_taken(letter)
        }
        fn take_letters(&self) -> Answer<'_, LettersTaken> {
            self.store.take_letters()
        }
        fn position(&self) -> Answer<'_, Position> {
            self.store.position()
        }
        fn changed(&self, after: Position) -> Answer<'_, Position> {
            self.store.changed(after)
        }
    }
}
