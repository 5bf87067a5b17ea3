//! Steps of scripts: each from an opening of the store of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use dalsegno::script::{self, Ask, Asked, Ended, Permit};
use dalsegno::{Effect, Failure};
use dalsegno_store::{LocalStore, NewPayload, Store};

fn ask<'a>(name: &'a str, effect: Effect) -> Ask<'a> {
    Ask {
        run: "nightly",
        agent: "shell",
        worker: "a test",
        name,
        effect,
        input: NewPayload::json("1"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// One opening of the store, handed over at its end.
fn with_store<T>(dir: &std::path::Path, work: impl AsyncFnOnce(&Arc<dyn Store>) -> T) -> T {
    block_on(async {
        let local = LocalStore::open(dir).unwrap();
        let store: Arc<dyn Store> = Arc::new(local.clone());
        let done = work(&store).await;
        local.hand_over().unwrap();
        done
    })
}

fn permit(asked: Asked) -> Permit {
    match asked {
        Asked::Execute(permit) => permit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_permit_is_good_in_another_opening() {
    let dir = std::env::temp_dir().join(format!("dalsegno-scripts-{}-1", std::process::id()));
    let begun = with_store(&dir, async |store| {
        script::ask(store, &ask("pay", Effect::Once)).await.unwrap()
    });
    let permit = permit(begun);
    let output = Some(NewPayload::json("\"paid\""));
    with_store(&dir, async |store| {
        let done = permit.finish(store, Ended::Done, output).await.unwrap();
        assert!(done.is_none());
    });
    let again = with_store(&dir, async |store| {
        script::ask(store, &ask("pay", Effect::Once)).await.unwrap()
    });
    match again {
        Asked::Recorded(came) => assert_eq!(came.output.unwrap(), b"\"paid\""),
        other => panic!("{other:?}"),
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn who_has_lost_the_run_records_nothing() {
    let dir = std::env::temp_dir().join(format!("dalsegno-scripts-{}-2", std::process::id()));
    let asked = ask("load", Effect::Idempotent);
    let first = with_store(&dir, async |store| {
        script::ask(store, &asked).await.unwrap()
    });
    let first = permit(first);
    let second = with_store(&dir, async |store| {
        script::ask(store, &asked).await.unwrap()
    });
    let second = permit(second);
    assert_eq!((first.key(), second.attempt()), (second.key(), 2));
    with_store(&dir, async |store| {
        let late = first.finish(store, Ended::Done, None).await;
        assert!(late.is_err(), "{late:?}");
        let failed = Ended::FailedForNow(Failure::new("no"));
        second.finish(store, failed, None).await.unwrap();
        let third = script::ask(store, &asked).await.unwrap();
        assert_eq!(permit(third).attempt(), 3);
    });
    std::fs::remove_dir_all(dir).unwrap();
}
