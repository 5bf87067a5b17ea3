//! An outcome that nobody waits for is recorded with what comes next, when the code pauses, or
//! within the bound: whichever is first. Nothing that was done is forgotten.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dalsegno::{Ctx, Dalsegno, Durability, Granularity};
use dalsegno_store::{Answer, Append, Appended, Kind, LocalStore, Over, Store, StreamId};

mod common;
use common::TempDir;

/// A store that remembers what was appended to one run, append by append.
#[derive(Debug)]
struct Watched {
    store: LocalStore,
    appends: Mutex<Vec<Vec<Kind>>>,
    /// Told of each append.
    bell: tokio::sync::Notify,
}

impl Watched {
    fn open(dir: &TempDir) -> Arc<Watched> {
        Arc::new(Watched {
            store: LocalStore::open(dir.path()).unwrap(),
            appends: Mutex::default(),
            bell: tokio::sync::Notify::new(),
        })
    }

    fn appends(&self) -> Vec<Vec<Kind>> {
        self.appends.lock().unwrap().clone()
    }

    fn has_outcome(&self) -> bool {
        let appends = self.appends.lock().unwrap();
        appends.iter().flatten().any(|k| *k == Kind::StepSucceeded)
    }
}

impl Over for Watched {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move {
            let events = batch.iter().flat_map(|append| &append.events);
            let kinds = events.map(|event| event.kind.clone()).collect();
            let appended = self.store.append(batch).await?;
            self.appends.lock().unwrap().push(kinds);
            self.bell.notify_one();
            Ok(appended)
        })
    }
}

async fn send(ctx: &Ctx, done: &Arc<AtomicUsize>) -> dalsegno::Result<usize> {
    let done = Arc::clone(done);
    ctx.tool("send")
        .idempotent()
        .call(move |_| {
            let done = Arc::clone(&done);
            async move { Ok(done.fetch_add(1, Ordering::SeqCst)) }
        })
        .await
}

#[tokio::test]
async fn an_outcome_and_the_next_intent_are_one_append() {
    let dir = TempDir::new("late-one");
    let store = Watched::open(&dir);
    let agent = |ctx: Ctx, (): ()| async move {
        let done = Arc::default();
        for _ in 0..50 {
            send(&ctx, &done).await?;
        }
        Ok(())
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open_store(store.clone()).await.unwrap();
    app.run::<_, ()>("a", "r", &()).await.unwrap();
    let together = [Kind::StepSucceeded, Kind::StepIntended];
    let appends = store.appends();
    let count = appends.iter().filter(|kinds| **kinds == together).count();
    // The syncer may have been first now and then.
    assert!((40..50).contains(&count), "{appends:?}");
}

#[tokio::test]
async fn an_outcome_is_recorded_when_the_code_pauses() {
    let dir = TempDir::new("late-pause");
    let store = Watched::open(&dir);
    let watched = store.clone();
    let agent = move |ctx: Ctx, (): ()| {
        let store = watched.clone();
        async move {
            send(&ctx, &Arc::default()).await?;
            assert!(!store.has_outcome(), "it was in no hurry");
            // Something of its own.
            while !store.has_outcome() {
                store.bell.notified().await;
            }
            Ok(())
        }
    };
    // So that the syncer is too late.
    let app = Dalsegno::builder().durability(Durability::Bounded(Duration::from_secs(3600)));
    let app = app.agent("a", agent);
    let app = app.open_store(store.clone()).await.unwrap();
    app.run::<_, ()>("a", "r", &()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_does_not_pause_does_not_hold_an_outcome_up() {
    let dir = TempDir::new("late-busy");
    let store = Watched::open(&dir);
    let watched = store.clone();
    let agent = move |ctx: Ctx, (): ()| {
        let store = watched.clone();
        async move {
            let done = Arc::default();
            send(&ctx, &done).await?;
            while !store.has_outcome() {
                std::thread::yield_now();
            }
            send(&ctx, &done).await
        }
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open_store(store.clone()).await.unwrap();
    assert_eq!(app.run::<_, usize>("a", "r", &()).await.unwrap(), 1);
}

#[tokio::test]
async fn what_was_done_is_recorded_also_if_a_person_is_needed_next() {
    let dir = TempDir::new("late-attention");
    let store = Watched::open(&dir);
    let agent = |ctx: Ctx, (): ()| async move {
        let sent = send(&ctx, &Arc::default()).await?;
        assert!(sent > 0, "in the same breath");
        Ok(())
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open_store(store.clone()).await.unwrap();
    let run = app.start("a", "r", &()).await.unwrap();
    run.result::<()>().await.unwrap_err();
    let journal = app.journal("r").await.unwrap();
    let step = journal.steps.values().next().unwrap();
    assert!(step.outcome.is_some());
}

#[tokio::test]
async fn a_plan_step_forgets_reads_only() {
    let dir = TempDir::new("late-plan");
    let store = Watched::open(&dir);
    let agent = |ctx: Ctx, (): ()| async move {
        let plan = |ctx: Ctx| async move {
            let sent = send(&ctx, &Arc::default()).await?;
            ctx.tool("look")
                .read_only()
                .call(|_| async { Ok(1) })
                .await?;
            Ok(sent)
        };
        ctx.plan_step("plan", plan).await
    };
    let app = Dalsegno::builder().granularity(Granularity::PlanStep);
    let app = app.agent("a", agent);
    let app = app.open_store(store.clone()).await.unwrap();
    app.run::<_, usize>("a", "r", &()).await.unwrap();
    let run = StreamId::run("r").unwrap();
    let events = store.store.events(&run, 1, 100).await.unwrap();
    let done = events.iter().filter(|e| e.kind == Kind::StepSucceeded);
    let steps: Vec<_> = done.filter_map(|e| e.fields.text(1)).collect();
    assert_eq!(steps, ["plan#1/send#1", "plan#1"]);
}
