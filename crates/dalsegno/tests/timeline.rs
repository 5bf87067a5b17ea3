//! The whole history of a run step by step, and where two of them first differ.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::Path;

use common::TempDir;
use dalsegno::{
    Ctx, Dalsegno, DifferenceKind, Failure, Outcome, Result, Retry, StepKind, Timeline, Turn, diff,
    timeline,
};

/// Asks, waits, acts; `how` decides what comes of it.
async fn agent(ctx: Ctx, how: String) -> Result<String> {
    ctx.uuid().await?;
    let (a, b) = ("a".to_owned(), &how);
    let asked: String = ctx
        .model("ask")
        .input(&a)
        .call(|call| async move {
            call.tokens(3, 4);
            Ok(b.clone())
        })
        .await?;
    let go: String = ctx.signal("go").await?;
    if go == "other" {
        ctx.tool("other").call(|_| async { Ok(0) }).await?;
    }
    ctx.tool("act")
        .idempotent()
        .input(&go)
        .retry(Retry::times(2))
        .call(|call| async move {
            match call.attempt() {
                1 => Err(Failure::new("busy")),
                _ => Ok(1),
            }
        })
        .await?;
    Ok(format!("{asked} {go}"))
}

async fn open(dir: &Path) -> Dalsegno {
    let count = |ctx: Ctx, n: u64| async move {
        let n: u64 = ctx.tool("add").call(|_| async move { Ok(n + 1) }).await?;
        Ok(if n < 3 {
            Turn::Continue(n)
        } else {
            Turn::Done(n)
        })
    };
    let builder = Dalsegno::builder().agent("agent", agent);
    let builder = builder.loop_agent("count", |n: u64| n, count);
    builder.open(dir).await.unwrap()
}

async fn of(app: &Dalsegno, run: &str) -> Timeline {
    timeline(&**app.store(), run, None).await.unwrap()
}

/// Starts a run, lets the process go while it waits, and lets it come to its end in another one.
async fn two_lives(dir: &Path, run: &str, how: &str, go: &str) {
    let app = open(dir).await;
    let handle = app.start("agent", run, &how).await.unwrap();
    while of(&app, run).await.journal.waits.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(handle);
    app.close().await.unwrap();
    let app = open(dir).await;
    app.signal(run, "go", &go).await.unwrap();
    let done: String = app.run("agent", run, &how).await.unwrap();
    assert_eq!(done, format!("{how} {go}"));
    app.close().await.unwrap();
}

#[tokio::test]
async fn what_was_replayed_and_what_was_executed() {
    let dir = TempDir::new("timeline");
    two_lives(dir.path(), "r", "x", "on").await;
    let app = open(dir.path()).await;
    let line = of(&app, "r").await;
    assert!(line.lives.len() >= 2, "{:?}", line.lives);
    // Nobody died, so nothing was saved by recovery.
    assert!(
        line.lives
            .iter()
            .all(|life| !life.recovered && life.replayed == 0)
    );
    let step = |name: &str| line.steps.iter().find(|s| s.id.as_str().contains(name));
    let (ask, act) = (step("ask").unwrap(), step("act").unwrap());
    assert_eq!((ask.life, ask.record.kind), (1, StepKind::Model));
    assert!(ask.replayed >= 1);
    assert!(ask.duration_us().is_some());
    assert_eq!(ask.record.usage.tokens(), 7);
    assert_eq!((act.life, act.replayed), (line.lives.len(), 0));
    assert_eq!(act.record.attempts, 2);
    assert!(act.duration_us().unwrap() > 0);
    let begun: Vec<_> = line.steps.iter().map(|s| s.record.first).collect();
    assert!(begun.is_sorted());

    // At an event before, what came later is not there.
    let then = timeline(&**app.store(), "r", Some(ask.record.last))
        .await
        .unwrap();
    assert_eq!(then.journal.last, ask.record.last);
    assert!(then.steps.iter().all(|s| !s.id.as_str().contains("act")));
    assert!(timeline(&**app.store(), "r", Some(0)).await.is_err());
    assert!(
        timeline(&**app.store(), "r", Some(line.journal.last + 1))
            .await
            .is_err()
    );
    assert!(timeline(&**app.store(), "nobody", None).await.is_err());
}

#[tokio::test]
async fn a_loop_keeps_the_steps_of_all_its_turns() {
    let dir = TempDir::new("timeline");
    let app = open(dir.path()).await;
    let three: u64 = app.run("count", "r", &0u64).await.unwrap();
    assert_eq!(three, 3);
    let line = of(&app, "r").await;
    let adds = line.steps.iter().filter(|s| s.id.as_str().contains("add"));
    let turns: Vec<_> = adds.map(|s| s.id.as_str().to_owned()).collect();
    assert_eq!(turns.len(), 3, "{turns:?}");
    let done = line
        .steps
        .iter()
        .filter(|s| matches!(s.record.outcome, Some(Outcome::Succeeded(_))));
    assert!(done.count() >= 3);
}

#[tokio::test]
async fn two_runs_differ_first_where_they_do() {
    let dir = TempDir::new("timeline");
    for (run, how, go) in [
        ("a", "x", "on"),
        ("b", "x", "on"),
        ("c", "y", "on"),
        ("d", "x", "other"),
    ] {
        two_lives(dir.path(), run, how, go).await;
    }
    let app = open(dir.path()).await;
    let _: u64 = app.run("count", "n", &0u64).await.unwrap();
    let (a, b, c, d, n) = (
        of(&app, "a").await,
        of(&app, "b").await,
        of(&app, "c").await,
        of(&app, "d").await,
        of(&app, "n").await,
    );
    for line in [&a, &d, &n] {
        assert_eq!(diff(line, line).difference, None);
    }
    // Their ids differ, and that is no difference.
    assert_eq!(diff(&a, &b).difference, None);
    assert_eq!(diff(&a, &b).same_steps, a.steps.len());
    for (left, right, kind, in_left, in_right) in [
        (&a, &c, DifferenceKind::RunInput, "\"x\"", "\"y\""),
        (&a, &n, DifferenceKind::Agent, "agent", "count"),
        (&a, &d, DifferenceKind::Outcome, "\"on\"", "\"other\""),
    ] {
        let found = diff(left, right).difference.unwrap();
        assert_eq!(found.kind, kind);
        let (one, other) = (found.left.to_string(), found.right.to_string());
        assert!(
            one.contains(in_left) && other.contains(in_right),
            "{one} | {other}"
        );
        let turned = diff(right, left).difference.unwrap();
        assert_eq!((&turned.left, &turned.right), (&found.right, &found.left));
    }
}

/// One run goes on where the other one stopped.
#[tokio::test]
async fn a_run_that_came_further_differs_by_its_next_step() {
    let dir = TempDir::new("timeline");
    two_lives(dir.path(), "a", "x", "on").await;
    let app = open(dir.path()).await;
    let whole = of(&app, "a").await;
    let ask = whole
        .steps
        .iter()
        .find(|s| s.id.as_str().contains("ask"))
        .unwrap();
    let half = timeline(&**app.store(), "a", Some(ask.record.last))
        .await
        .unwrap();
    let found = diff(&half, &whole);
    let difference = found.difference.unwrap();
    assert_eq!(found.same_steps, half.steps.len());
    assert_eq!(difference.kind, DifferenceKind::Step);
    let left = difference.left.to_string();
    assert!(left.contains("has come no further"), "{left}");
}
