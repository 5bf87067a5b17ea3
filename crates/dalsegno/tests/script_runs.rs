//! Runs whose code is a script, in the hands of an engine: names stand for steps, whatever life asks.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::TempDir;
use dalsegno::script::{Asked, Ended, Permit, ScriptRun};
use dalsegno::{AttentionKind, Dalsegno, Effect, Error, Failure, Start, create_in};
use dalsegno_store::{LocalStore, NewPayload, Store};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

/// An engine with one agent that is a script.
async fn open<F, Fut>(dir: &TempDir, code: F) -> Dalsegno
where
    F: Fn(Arc<dyn Store>, ScriptRun) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = dalsegno::Result<NewPayload>> + Send + 'static,
{
    let local = LocalStore::open(dir.path()).unwrap();
    let store: Arc<dyn Store> = Arc::new(local);
    let of_code = Arc::clone(&store);
    let builder = Dalsegno::builder();
    let builder = builder.script("script", move |run, _| code(Arc::clone(&of_code), run));
    builder.open_store(store).await.unwrap()
}

async fn ask(run: &ScriptRun, name: &str, effect: Effect) -> Asked {
    let input = NewPayload::json("1");
    run.ask(name, effect, input).await.unwrap()
}

fn permit(asked: Asked) -> Permit {
    match asked {
        Asked::Execute(permit) => permit,
        other => panic!("{other:?}"),
    }
}

fn recorded(asked: Asked) -> String {
    match asked {
        Asked::Recorded(came) => String::from_utf8(came.output.unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_stands_for_one_step_also_in_the_same_life() {
    let dir = TempDir::new("script-runs");
    block_on(async {
        let app = open(&dir, |store, run| async move {
            let once = Effect::Once;
            let pay = permit(ask(&run, "pay", once).await);
            let paid = Some(NewPayload::json("\"paid\""));
            pay.finish(&store, Ended::Done, paid).await.unwrap();
            assert_eq!(recorded(ask(&run, "pay", once).await), "\"paid\"");
            let other = run.ask("pay", once, NewPayload::json("2")).await.unwrap();
            assert!(matches!(other, Asked::Mismatch(..)), "{other:?}");
            // It failed, and is tried again when it is asked for again.
            let load = permit(ask(&run, "load", Effect::Idempotent).await);
            let (key, failed) = (load.key().to_owned(), Failure::new("no"));
            let failed = Ended::FailedForNow(failed);
            load.finish(&store, failed, None).await.unwrap();
            let load = permit(ask(&run, "load", Effect::Idempotent).await);
            assert_eq!((load.key(), load.attempt()), (key.as_str(), 2));
            // Whoever was to do it has vanished.
            drop(load);
            assert_eq!(run.unfinished().await.unwrap().unwrap().as_str(), "load#1");
            let load = permit(ask(&run, "load", Effect::Idempotent).await);
            load.finish(&store, Ended::Done, None).await.unwrap();
            drop(permit(ask(&run, "mail", once).await));
            let Asked::InDoubt(mail, _) = ask(&run, "mail", once).await else {
                panic!("it is in doubt");
            };
            let again = mail.did_not_happen(&store, true).await.unwrap().unwrap();
            assert_eq!(again.attempt(), 2);
            drop(again);
            let Asked::InDoubt(mail, _) = ask(&run, "mail", once).await else {
                panic!("it is in doubt again");
            };
            mail.happened(&store, None).await.unwrap();
            assert!(run.unfinished().await.unwrap().is_none());
            Ok(NewPayload::json("17"))
        })
        .await;
        let result: u64 = app.run("script", "r", &()).await.unwrap();
        assert_eq!(result, 17);
        app.close().await.unwrap();
    });
}

#[test]
fn a_person_is_asked_and_the_next_life_goes_on() {
    let dir = TempDir::new("script-runs");
    let lives = Arc::new(AtomicUsize::new(0));
    block_on(async {
        let counted = Arc::clone(&lives);
        let app = open(&dir, move |_, run| {
            let life = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                if life == 0 {
                    drop(permit(ask(&run, "pay", Effect::Once).await));
                    return run.hand_to_person(AttentionKind::Other, "not this").await;
                }
                assert_eq!(recorded(ask(&run, "pay", Effect::Once).await), "7");
                match life {
                    1 => run.hand_to_person(AttentionKind::CrashLoop, "again").await,
                    _ => Ok(NewPayload::json("null")),
                }
            }
        })
        .await;
        let run = app.start("script", "r", &()).await.unwrap();
        // A step in doubt comes before any other reason.
        let asked = run.result::<()>().await.unwrap_err().to_string();
        assert!(asked.contains("nobody knows whether tool pay#1"), "{asked}");
        app.resolve_happened("r", "pay#1", &7, "ada").await.unwrap();
        while lives.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let asked = loop {
            match run.result::<()>().await {
                Err(Error::NeedsAttention { reason, .. }) if reason == "again" => break reason,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(asked, "again");
        app.clear_attention("r").await.unwrap();
        while lives.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        run.result::<()>().await.unwrap();
        app.close().await.unwrap();
    });
}

#[test]
fn who_closes_lets_a_step_finish_and_begins_no_other() {
    let dir = TempDir::new("script-runs");
    let (begun, finish) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    block_on(async {
        let notify = (Arc::clone(&begun), Arc::clone(&finish));
        let app = open(&dir, move |store, run| {
            let (begun, finish) = notify.clone();
            async move {
                let pay = permit(ask(&run, "pay", Effect::Once).await);
                begun.notify_one();
                finish.notified().await;
                let busy = run.busy();
                let paid = Some(NewPayload::json("7"));
                pay.finish(&store, Ended::Done, paid).await.unwrap();
                let next = ask(&run, "mail", Effect::Once).await;
                assert!(matches!(next, Asked::Stopping), "{next:?}");
                drop(busy);
                std::future::pending().await
            }
        })
        .await;
        app.start("script", "r", &()).await.unwrap();
        begun.notified().await;
        let closing = tokio::spawn(app.close_within(Duration::from_secs(60)));
        tokio::task::yield_now().await;
        finish.notify_one();
        closing.await.unwrap().unwrap();
    });
    block_on(async {
        let app = open(&dir, |_, run| async move {
            let paid = recorded(ask(&run, "pay", Effect::Once).await);
            Ok(NewPayload::json(paid))
        })
        .await;
        let run = app.find("r").await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 7);
        app.close().await.unwrap();
    });
}

#[test]
fn a_run_that_was_created_elsewhere_is_taken_up() {
    let dir = TempDir::new("script-runs");
    block_on(async {
        let local = LocalStore::open(dir.path()).unwrap();
        let create = async |agent: &str, input: u64| {
            create_in(&local, agent, "r", &input, &Start::new().priority(3)).await
        };
        assert!(create("script", 5).await.unwrap());
        assert!(!create("script", 5).await.unwrap());
        for other in [create("script", 6).await, create("other", 5).await] {
            assert!(
                matches!(other, Err(Error::AlreadyStarted { .. })),
                "{other:?}"
            );
        }
        assert!(matches!(
            create_in(&local, "script", "", &5, &Start::new()).await,
            Err(Error::Name(_))
        ));
        local.close().unwrap();
        drop(local);
        let local = LocalStore::open(dir.path()).unwrap();
        let builder = Dalsegno::builder();
        let builder = builder.script("script", |_, input| async move {
            Ok(NewPayload::new("application/json", input))
        });
        let app = builder.open_store(Arc::new(local)).await.unwrap();
        // Starting it is the same as having created it.
        let run = app.start("script", "r", &5_u64).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 5);
        app.close().await.unwrap();
    });
}
