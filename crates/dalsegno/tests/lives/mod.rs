//! Processes that end in the middle of what they do.

#![allow(dead_code, clippy::unwrap_used)]

use std::future::Future;
use std::sync::Arc;

use dalsegno_store::{
    Answer, Event, LocalStore, Over, Payload, Recorded, RunInfo, RunQuery, Store, StoreError,
    StreamId,
};

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
    // What only the process knows changes without an append.
    let at_least = std::time::Duration::from_millis(20);
    for _ in 0..2000 {
        let position = app.store().position().await.unwrap();
        let why = app.why(run).await.unwrap();
        if why.standing == standing {
            // A reader beside this process sees it, too.
            let position = app.store().position().await.unwrap();
            app.store().durable(position).await.unwrap();
            return why;
        }
        drop(tokio::time::timeout(at_least, app.store().changed(position)).await);
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

impl Rotten {
    fn is_lost(&self, stream: &StreamId) -> bool {
        self.lost.as_ref() == Some(stream)
    }
}

impl Over for Rotten {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        match self.bad.contains(payload) {
            true => damaged("a payload"),
            false => self.store.payload(payload),
        }
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        match self.is_lost(stream) {
            true => damaged("an event"),
            false => self.store.read(stream, from, limit),
        }
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        match self.is_lost(stream) {
            true => damaged("an event"),
            false => self.store.events(stream, from, limit),
        }
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
}
