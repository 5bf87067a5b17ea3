//! Replays of code that was changed: the first divergence with both sides, and nothing is done.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/divergence.rs"]
mod divergence;

use common::{TempDir, World};
use dalsegno::{Ctx, Dalsegno, DivergenceKind, Failure, ReplayVerdict, Replayed, Result};
use divergence::{diverges, head, seen, step};

async fn original(ctx: Ctx, world: World, n: u64) -> Result<u64> {
    let a = step(&ctx, &world, "a", n).await?;
    ctx.decide("way", "left".to_owned()).await?;
    let b = step(&ctx, &world, "b", n).await?;
    ctx.event("noted", &b).await?;
    Ok(a + b)
}

/// Records the original, and replays something else.
async fn replay_changed<F, Fut>(changed: F) -> Replayed
where
    F: Fn(Ctx, World, u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64>> + Send + 'static,
{
    let (dir, world) = (TempDir::new("changed"), World::default());
    let seen = world.clone();
    let builder = Dalsegno::builder().agent("a", move |ctx, n| original(ctx, seen.clone(), n));
    let app = builder.open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, u64>("a", "r", &1).await.unwrap(), 4);
    app.close().await.unwrap();
    world.reset();
    let seen = world.clone();
    let builder = Dalsegno::builder().agent("a", move |ctx, n| changed(ctx, seen.clone(), n));
    let app = builder.open(dir.path()).await.unwrap();
    let before = (head(&app, "r").await, app.store().position().await.unwrap());
    let replayed = app.replay("r").await.unwrap();
    let after = (head(&app, "r").await, app.store().position().await.unwrap());
    assert_eq!(before, after);
    assert!(world.is_empty(), "{world:?}");
    app.close().await.unwrap();
    replayed
}

#[tokio::test]
async fn another_input_is_found_with_both_sides() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "a", n).await?;
        ctx.decide("way", "left".to_owned()).await?;
        let b = step(&ctx, &world, "b", n + 5).await?;
        ctx.event("noted", &b).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Input, "b#1", "b#1");
    let divergence = replayed.divergence().unwrap();
    assert_eq!(divergence.recorded.input.as_deref(), Some("1"));
    assert_eq!(divergence.now.input.as_deref(), Some("6"));
    assert!(divergence.recorded.event.is_some_and(|event| event > 3));
    assert_eq!(replayed.steps, 2);
}

#[tokio::test]
async fn an_inserted_step_is_found() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "a", n).await?;
        ctx.decide("way", "left".to_owned()).await?;
        step(&ctx, &world, "new", n).await?;
        let b = step(&ctx, &world, "b", n).await?;
        ctx.event("noted", &b).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Step, "b#1", "new#1");
}

#[tokio::test]
async fn a_step_after_the_last_is_found() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let result = original(ctx.clone(), world.clone(), n).await?;
        step(&ctx, &world, "new", n).await?;
        Ok(result)
    })
    .await;
    diverges(&replayed, DivergenceKind::Beyond, "ends with 4", "new#1");
}

#[tokio::test]
async fn removed_steps_are_found() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "a", n).await?;
        let b = step(&ctx, &world, "b", n).await?;
        ctx.event("noted", &b).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Step, "way#1", "b#1");
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "a", n).await?;
        ctx.decide("way", "left".to_owned()).await?;
        let b = step(&ctx, &world, "b", n).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Step, "noted#1", "ends with 4");
}

#[tokio::test]
async fn another_order_is_found() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let b = step(&ctx, &world, "b", n).await?;
        ctx.decide("way", "left".to_owned()).await?;
        let a = step(&ctx, &world, "a", n).await?;
        ctx.event("noted", &b).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Step, "a#1", "b#1");
}

#[tokio::test]
async fn another_name_is_found() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "alpha", n).await?;
        ctx.decide("way", "left".to_owned()).await?;
        let b = step(&ctx, &world, "b", n).await?;
        ctx.event("noted", &b).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Step, "a#1", "alpha#1");
}

#[tokio::test]
async fn another_kind_is_found() {
    let replayed = replay_changed(|ctx, _, n| async move {
        let a: u64 = ctx.model("a").input(&n).call(|_| async { Ok(1) }).await?;
        Ok(a)
    })
    .await;
    diverges(&replayed, DivergenceKind::Kind, "a#1", "a#1");
}

#[tokio::test]
async fn another_decision_is_found_though_recovery_takes_the_old_one() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "a", n).await?;
        ctx.decide("way", "right".to_owned()).await?;
        let b = step(&ctx, &world, "b", n).await?;
        ctx.event("noted", &b).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Decision, "way#1", "way#1");
    let text = replayed.to_string();
    assert!(text.contains("left") && text.contains("right"), "{text}");
}

#[tokio::test]
async fn another_event_of_the_users_own_is_found() {
    let replayed = replay_changed(|ctx, world, n| async move {
        let a = step(&ctx, &world, "a", n).await?;
        ctx.decide("way", "left".to_owned()).await?;
        let b = step(&ctx, &world, "b", n).await?;
        ctx.event("noted", &(b + 1)).await?;
        Ok(a + b)
    })
    .await;
    diverges(&replayed, DivergenceKind::Input, "noted#1", "noted#1");
}

#[tokio::test]
async fn other_ends_are_found() {
    let replayed =
        replay_changed(|ctx, world, n| async move { Ok(original(ctx, world, n).await? + 1) });
    diverges(
        &replayed.await,
        DivergenceKind::Result,
        "ends with 4",
        "ends with 5",
    );
    let replayed = replay_changed(|ctx, world, n| async move {
        original(ctx, world, n).await?;
        Err(Failure::terminal("no"))
    });
    diverges(
        &replayed.await,
        DivergenceKind::Result,
        "ends with 4",
        "fails: no",
    );
    let replayed = replay_changed(|ctx, world, n| async move {
        step(&ctx, &world, "a", n).await?;
        panic!("ouch")
    });
    diverges(
        &replayed.await,
        DivergenceKind::Panic,
        "way#1",
        "panics: ouch",
    );
    let replayed = replay_changed(|ctx, _, n| async move {
        let a: String = ctx
            .tool("a")
            .input(&n)
            .call(|_| async { Ok(String::new()) })
            .await?;
        Ok(a.len() as u64)
    });
    let (kind, then, _) = seen(&replayed.await);
    assert_eq!((kind, then.as_str()), (DivergenceKind::Unreadable, "a#1"));
}

#[tokio::test]
async fn code_that_was_changed_on_purpose_is_the_same_for_old_runs() {
    for place in [0, 1] {
        let replayed = replay_changed(move |ctx, world, n| async move {
            if place == 0 && ctx.patched("first").await? {
                step(&ctx, &world, "new", n).await?;
            }
            let result = original(ctx.clone(), world.clone(), n).await?;
            if place == 1 && ctx.patched("last").await? {
                step(&ctx, &world, "new", n).await?;
            }
            Ok(result)
        })
        .await;
        assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
    }
}
