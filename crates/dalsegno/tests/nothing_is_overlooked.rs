//! What is said to a run is not overlooked, however close to it the run is written down and the
//! process dies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::TempDir;
use dalsegno::{Builder, Ctx, Dalsegno, Error, Failure, record};
use dalsegno_store::{
    Answer, Append, Appended, Fields, Kind, LocalStore, NewEvent, NewPayload, Over, Store,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Between the run's decision to wait and the writing down of it, something is recorded for the
/// run, as it is when a letter is taken up. When the run is written down, the process dies.
#[derive(Debug)]
struct Overtaken {
    store: LocalStore,
    said: Mutex<Option<NewEvent>>,
    dead: Mutex<Option<Sender<()>>>,
}

impl Over for Overtaken {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move {
            let run = batch[0].stream.clone();
            let kinds = batch.iter().flat_map(|append| &append.events);
            let last = kinds.into_iter().any(|e| e.kind == Kind::RunCheckpointed);
            let said = match last {
                true => self.said.lock().unwrap().take(),
                false => None,
            };
            if let Some(said) = said {
                self.store.append(vec![Append::to(run, vec![said])]).await?;
            }
            let appended = self.store.append(batch).await?;
            if last {
                self.store.durable(appended.position).await?;
                self.dead.lock().unwrap().take().unwrap().send(()).unwrap();
                std::future::pending::<()>().await;
            }
            Ok(appended)
        })
    }
}

fn builder() -> Builder {
    Dalsegno::builder()
        .agent("waits", |ctx: Ctx, (): ()| async move {
            ctx.signal::<u64>("go").await
        })
        .agent("doubts", |ctx: Ctx, (): ()| async move {
            let step = ctx.tool("pay");
            step.call(|_| async { Err::<u64, _>(Failure::new("connection reset")) })
                .await
        })
}

/// A first process that dies as [`Overtaken`] says, then a second one: what the run came to.
fn overtaken_by(agent: &str, said: NewEvent) -> Result<u64, Error> {
    let dir = TempDir::new("overlooked");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (sender, dead) = channel();
    let (store_dir, started) = (dir.path().to_owned(), agent.to_owned());
    runtime.block_on(async move {
        let store = Overtaken {
            store: LocalStore::open(&store_dir).unwrap(),
            said: Mutex::new(Some(said)),
            dead: Mutex::new(Some(sender)),
        };
        let app = builder().open_store(Arc::new(store)).await.unwrap();
        app.start(&started, "run", &()).await.unwrap();
    });
    dead.recv_timeout(PATIENCE).unwrap();
    drop(runtime);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let app = builder().open(dir.path()).await.unwrap();
        let run = app.find("run").await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, run.result::<u64>()).await;
        ended.expect("the second process overlooked it")
    })
}

#[test]
fn a_signal_that_comes_while_the_run_is_written_down() {
    let fields = Fields::new().with(record::signal::NAME, "go");
    let signal = NewEvent::new(Kind::SignalReceived).with_fields(fields);
    let signal = signal.with_input(NewPayload::json("42"));
    assert_eq!(overtaken_by("waits", signal).unwrap(), 42);
}

#[test]
fn a_wish_to_end_that_comes_while_a_doubt_is_written_down() {
    let cancel = NewEvent::new(Kind::CancelRequested);
    let ended = overtaken_by("doubts", cancel).unwrap_err();
    assert!(matches!(ended, Error::RunCancelled(_)), "{ended}");
}
