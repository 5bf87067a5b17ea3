//! What the code sees when something happens is what it sees at every replay after that: failures,
//! conversations, and what a probe found.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::TempDir;
use dalsegno::{Ctx, Dalsegno, Error, Failure, Probe, ReplayVerdict, Result, Turn};

/// Gives a failure's words to the next step, as agents do: "the tool said …".
async fn tell(ctx: &Ctx, failure: &Failure) -> Result<String> {
    let told = failure.to_string();
    let step = ctx.model("repair").input(&told);
    step.call(|_| async { Ok("repaired".to_owned()) }).await
}

#[tokio::test]
async fn a_failure_has_the_same_words_when_it_is_replayed() {
    let dir = TempDir::new("same-failure");
    let agent = |ctx: Ctx, (): ()| async move {
        // Longer than what is recorded of a message.
        let long = "ä".repeat(20_000);
        let step = ctx.tool("compile").read_only();
        let failed: Result<()> = step
            .call(|_| {
                let long = long.clone();
                async move { Err(Failure::terminal(long)) }
            })
            .await;
        tell(&ctx, &failed.unwrap_err()).await?;
        // Of the plan step itself, not of a step in it.
        let planned: Result<()> = ctx
            .plan_step("plan", |_| async { Err(Failure::terminal("no way")) })
            .await;
        tell(&ctx, &planned.unwrap_err()).await
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open(dir.path()).await.unwrap();
    let done: String = app.run("a", "r", &()).await.unwrap();
    assert_eq!(done, "repaired");
    let replayed = app.replay("r").await.unwrap();
    assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
}

#[tokio::test]
async fn branches_that_ask_for_a_conversation_at_the_same_time_get_the_same_one() {
    let dir = TempDir::new("same-conversation");
    let wait = Arc::new(AtomicBool::new(true));
    let waits = Arc::clone(&wait);
    let turn = move |ctx: Ctx, turn: u64| {
        let waits = waits.load(Ordering::SeqCst);
        async move {
            if turn == 1 && waits {
                let _: () = ctx.signal("never").await?;
            }
            let (a, b) = (ctx.branch("a"), ctx.branch("b"));
            let (a, b) = tokio::join!(a.conversation("chat"), b.conversation("chat"));
            let (a, b) = (a?, b?);
            a.push(&ctx, "one").await?;
            b.push(&ctx, "two").await?;
            assert_eq!(a.len(), b.len());
            Ok(match turn {
                0 => Turn::Continue(1),
                _ => Turn::Done(a.len()),
            })
        }
    };
    let open = || async {
        let builder = Dalsegno::builder().loop_agent("l", |(): ()| 0_u64, turn.clone());
        builder.open(dir.path()).await.unwrap()
    };
    let app = open().await;
    app.start("l", "r", &()).await.unwrap();
    while app.journal("r").await.unwrap().turn.is_none() {
        tokio::task::yield_now().await;
    }
    app.close().await.unwrap();
    // Another process has to read what was said in the turn before.
    wait.store(false, Ordering::SeqCst);
    let app = open().await;
    app.signal("r", "never", &()).await.unwrap();
    let said: usize = app.find("r").await.unwrap().result().await.unwrap();
    assert_eq!(said, 4);
}

#[tokio::test]
async fn what_a_probe_found_is_recorded_only_if_the_code_can_read_it() {
    let dir = TempDir::new("same-probe");
    let agent = |ctx: Ctx, (): ()| async move {
        let step = ctx.tool("send").once();
        // The code wants a number.
        let step = step.probe(|_| async { Ok(Probe::Happened("yes")) });
        step.call(|_| async { Err::<u64, _>(Failure::new("no answer")) })
            .await
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open(dir.path()).await.unwrap();
    let stopped = app.run::<_, u64>("a", "r", &()).await.unwrap_err();
    assert!(
        matches!(&stopped, Error::NeedsAttention { reason, .. }
            if reason.contains("cannot be read as u64") && reason.contains("say happened")),
        "{stopped}"
    );
    app.resolve_happened("r", "send#1", &7, "ann")
        .await
        .unwrap();
    let sent: u64 = app.find("r").await.unwrap().result().await.unwrap();
    assert_eq!(sent, 7);
}
