//! What the code sees when something happens is what it sees at every replay after that: failures,
//! conversations, and what a probe found.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/history.rs"]
mod history;

use std::sync::Arc;
use std::time::Duration;

use common::TempDir;
use dalsegno::{Ctx, Dalsegno, Error, Failure, Probe, ReplayVerdict, Result, Turn};
use dalsegno_store::{Answer, Event, LocalStore, Over, Store, StreamId};
use history::until_waiting;

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

/// A store that reads from far away.
#[derive(Debug)]
struct Slow(LocalStore);

impl Over for Slow {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0.events(stream, from, limit).await
        })
    }
}

#[tokio::test]
async fn branches_that_ask_for_a_conversation_at_the_same_time_get_the_same_one() {
    let dir = TempDir::new("same-conversation");
    let turn = |ctx: Ctx, turn: u64| async move {
        if turn == 1 {
            let _: () = ctx.signal("go on").await?;
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
    };
    let store = Arc::new(Slow(LocalStore::open(dir.path()).unwrap()));
    let app = Dalsegno::builder().loop_agent("l", |(): ()| 0_u64, turn);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open_store(store).await.unwrap();
    let run = app.start("l", "r", &()).await.unwrap();
    // It leaves memory, and has to read what was said in the turn before.
    until_waiting(&app, "r", "signal go on").await;
    app.signal("r", "go on", &()).await.unwrap();
    assert_eq!(run.result::<usize>().await.unwrap(), 4);
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
