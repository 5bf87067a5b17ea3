//! Steps: recorded once, handed back ever after; tried again where they may be; in doubt where
//! nobody knows.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/history.rs"]
mod history;

use std::future::IntoFuture;
use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{Builder, Dalsegno, Error, Failure, FailureKind, Probe, Retry};

fn builder() -> Builder {
    Dalsegno::builder()
}

#[tokio::test]
async fn a_run_gives_its_result_and_its_steps_run_once() {
    let (dir, world) = (TempDir::new("steps"), World::default());
    let seen = world.clone();
    let agent = move |ctx: dalsegno::Ctx, n: u64| {
        let world = seen.clone();
        async move {
            let a: u64 = ctx
                .model("double")
                .input(&n)
                .call(|_| {
                    world.did("double");
                    async move { Ok(n * 2) }
                })
                .await?;
            let b: u64 = ctx
                .tool("add")
                .input(&a)
                .call(|call| {
                    world.did(call.key());
                    async move { Ok(a + 1) }
                })
                .await?;
            Ok(b)
        }
    };
    let app = builder()
        .agent("math", agent.clone())
        .open(dir.path())
        .await
        .unwrap();
    let result: u64 = app.run("math", "one", &20).await.unwrap();
    assert_eq!(result, 41);
    let again: u64 = app.run("math", "one", &20).await.unwrap();
    assert_eq!((again, world.count("double")), (41, 1));
    app.close().await.unwrap();

    let app = builder()
        .agent("math", agent)
        .open(dir.path())
        .await
        .unwrap();
    let again: u64 = app.run("math", "one", &20).await.unwrap();
    assert_eq!((again, world.count("double")), (41, 1));
    let other = app.run::<_, u64>("math", "one", &21).await.unwrap_err();
    assert!(
        matches!(other, Error::AlreadyStarted { what: "input", .. }),
        "{other}"
    );
    let none = app.run::<_, u64>("meth", "one", &21).await.unwrap_err();
    assert!(none.to_string().contains("math"), "{none}");
}

#[tokio::test]
async fn a_step_is_tried_again_and_then_fails() {
    let (dir, world) = (TempDir::new("retry"), World::default());
    let seen = world.clone();
    let agent = move |ctx: dalsegno::Ctx, times: u64| {
        let world = seen.clone();
        async move {
            let retry = Retry::times(3).first(Duration::from_millis(2));
            ctx.tool("flaky")
                .read_only()
                .retry(retry)
                .call(|call| {
                    world.did("flaky");
                    async move {
                        match call.attempt() >= times {
                            true => Ok(call.attempt()),
                            false => Err(Failure::new("not yet")),
                        }
                    }
                })
                .await
        }
    };
    let app = builder()
        .agent("flaky", agent)
        .open(dir.path())
        .await
        .unwrap();
    let done: u64 = app.run("flaky", "third", &3).await.unwrap();
    assert_eq!((done, world.count("flaky")), (3, 3));
    let failed = app.run::<_, u64>("flaky", "never", &9).await.unwrap_err();
    let Error::RunFailed { failure, .. } = &failed else {
        panic!("{failed}");
    };
    assert_eq!(failure.step(), Some("flaky#1"));
    assert_eq!(world.count("flaky"), 6);
}

#[tokio::test]
async fn a_panic_is_a_failure_of_its_step() {
    let dir = TempDir::new("panic");
    let agent = |ctx: dalsegno::Ctx, (): ()| async move {
        let panicked = ctx
            .tool("bad")
            .read_only()
            .call(|_| async {
                if true {
                    panic!("ouch");
                }
                Ok(1)
            })
            .await;
        let failure = panicked.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Panicked);
        Ok(failure.message().to_owned())
    };
    let app = builder().agent("a", agent).open(dir.path()).await.unwrap();
    let said: String = app.run("a", "r", &()).await.unwrap();
    assert!(said.contains("ouch"), "{said}");
}

#[tokio::test]
async fn a_once_step_of_which_nobody_knows_waits_for_a_person() {
    let (dir, world) = (TempDir::new("doubt"), World::default());
    let seen = world.clone();
    let agent = move |ctx: dalsegno::Ctx, (): ()| {
        let world = seen.clone();
        async move {
            ctx.tool("pay")
                .call(|_| {
                    let count = world.did("pay");
                    async move {
                        match count {
                            1 => Err(Failure::new("connection reset")),
                            _ => Ok(count),
                        }
                    }
                })
                .await
        }
    };
    let app = builder()
        .agent("pay", agent)
        .open(dir.path())
        .await
        .unwrap();
    for (run, resolve) in [("yes", true), ("no", false)] {
        let doubt = app.run::<_, u64>("pay", run, &()).await.unwrap_err();
        assert!(matches!(doubt, Error::NeedsAttention { .. }), "{doubt}");
        if resolve {
            assert!(
                app.resolve_happened("nobody", "pay#1", &7, "ann")
                    .await
                    .is_err()
            );
            assert!(app.resolve_happened(run, "pay#2", &7, "ann").await.is_err());
            app.resolve_happened(run, "pay#1", &7, "ann").await.unwrap();
        } else {
            app.resolve_not_happened(run, "pay#1", "ann").await.unwrap();
        }
        let result: u64 = app.find(run).await.unwrap().result().await.unwrap();
        assert_eq!(result, if resolve { 7 } else { 2 });
        // The next run begins with a world that has counted.
        if resolve {
            assert_eq!(world.count("pay"), 1);
            world.reset();
        }
    }
}

#[tokio::test]
async fn a_probe_settles_a_doubt() {
    let dir = TempDir::new("probe");
    let agent = |ctx: dalsegno::Ctx, happened: bool| async move {
        ctx.tool("pay")
            .probe(move |_| async move {
                Ok(match happened {
                    true => Probe::Happened(1_u64),
                    false => Probe::DidNotHappen,
                })
            })
            .call(|call| async move {
                match call.attempt() {
                    1 => Err(Failure::new("connection reset")),
                    attempt => Ok(attempt),
                }
            })
            .await
    };
    let app = builder()
        .agent("pay", agent)
        .open(dir.path())
        .await
        .unwrap();
    assert_eq!(app.run::<_, u64>("pay", "yes", &true).await.unwrap(), 1);
    assert_eq!(app.run::<_, u64>("pay", "no", &false).await.unwrap(), 2);
}

#[tokio::test]
async fn sleeping_and_waiting_for_a_signal() {
    let dir = TempDir::new("waits");
    let agent = |ctx: dalsegno::Ctx, (): ()| async move {
        ctx.sleep(Duration::from_millis(30)).await?;
        let first: u64 = ctx.signal("number").await?;
        let none: Option<u64> = ctx
            .signal("number")
            .timeout(Duration::from_millis(20))
            .await?;
        assert_eq!(none, None);
        Ok(first)
    };
    for stay in [Duration::from_secs(1), Duration::ZERO] {
        let app = builder().stay_in_memory(stay).agent("a", agent);
        let app = app.open(dir.path()).await.unwrap();
        let name = format!("stay-{}", stay.as_secs());
        let run = app.start("a", &name, &()).await.unwrap();
        app.signal(&name, "other", &1).await.unwrap();
        app.signal(&name, "number", &42).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 42);
        app.close().await.unwrap();
    }
}

#[tokio::test]
async fn children_give_their_results_and_their_failures() {
    let dir = TempDir::new("children");
    let child = |ctx: dalsegno::Ctx, n: u64| async move {
        ctx.sleep(Duration::from_millis(5)).await?;
        match n {
            0 => Err(Failure::terminal("zero")),
            n => Ok(n * 10),
        }
    };
    let parent = |ctx: dalsegno::Ctx, (): ()| async move {
        let (a, b) = (
            ctx.child::<u64, _>("child", &1),
            ctx.child::<u64, _>("child", &2),
        );
        let (a, b) = tokio::join!(a.into_future(), b.into_future());
        let failed = ctx.child::<u64, _>("child", &0).await.unwrap_err();
        assert_eq!(failed.kind(), FailureKind::ChildFailed);
        Ok(a? + b?)
    };
    let app = builder().stay_in_memory(Duration::ZERO);
    let app = app.agent("child", child).agent("parent", parent);
    let app = app.open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, u64>("parent", "p", &()).await.unwrap(), 30);
    let journal = app.journal("p").await.unwrap();
    assert_eq!(journal.steps.len(), 3);
}

#[tokio::test]
async fn an_approval_can_be_answered_by_its_name_while_only_one_is_open() {
    let dir = TempDir::new("named");
    let agent = |ctx: dalsegno::Ctx, (): ()| async move {
        let (left, right) = (ctx.branch("left"), ctx.branch("right"));
        let (left, right) = (left.approval("buy"), right.approval("buy"));
        let (left, right) = tokio::join!(left.into_future(), right.into_future());
        Ok((left?.is_approved(), right?.is_approved()))
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    let run = app.start("a", "r", &()).await.unwrap();
    history::until_journal(&app, "r", |journal| journal.waits.len() == 2).await;
    let which = app.approve("r", "buy", "ann").await.unwrap_err();
    let which = which.to_string();
    assert!(which.contains("left#1/buy#1, right#1/buy#1"), "{which}");
    app.reject("r", "left#1/buy#1", "ann", "no").await.unwrap();
    app.approve("r", "buy", "ann").await.unwrap();
    assert_eq!(run.result::<(bool, bool)>().await.unwrap(), (false, true));
}
