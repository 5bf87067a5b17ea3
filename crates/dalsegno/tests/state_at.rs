//! What a run had done at any of its events: the fold over those up to it.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/history.rs"]
mod history;

use std::sync::Arc;
use std::time::Duration;

use common::TempDir;
use dalsegno::{Budget, Ctx, Dalsegno, Error, Journal, Start, Turn, record};
use dalsegno_store::{Append, Event, Fields, Kind, NewEvent, NewPayload, StreamId};
use history::{until_journal, until_waiting};
use tokio::sync::Notify;

async fn events(app: &Dalsegno, run: &str) -> Vec<Event> {
    let id = StreamId::run(run).unwrap();
    let read = app.store().read(&id, 1, 100_000).await.unwrap();
    read.into_iter().map(|recorded| recorded.event).collect()
}

/// All that anybody can see of a journal.
fn same(at: u64, left: &Journal, right: &Journal) {
    assert_eq!(left.created, right.created, "{at}");
    assert_eq!(left.forked, right.forked, "{at}");
    assert_eq!(left.steps, right.steps, "{at}");
    assert_eq!(left.approvals, right.approvals, "{at}");
    assert_eq!(
        (left.usage, left.budget),
        (right.usage, right.budget),
        "{at}"
    );
    assert_eq!(
        (left.saved_calls, left.saved),
        (right.saved_calls, right.saved)
    );
    assert_eq!(left.cancel, right.cancel, "{at}");
    assert_eq!(left.attention, right.attention, "{at}");
    assert_eq!(left.checkpoint, right.checkpoint, "{at}");
    assert_eq!(left.turn, right.turn, "{at}");
    assert_eq!((left.status, &left.end), (right.status, &right.end), "{at}");
    assert_eq!(
        (left.last, left.last_us),
        (right.last, right.last_us),
        "{at}"
    );
    assert_eq!(
        (&left.waits, &left.session),
        (&right.waits, &right.session),
        "{at}"
    );
}

async fn check_every_event(app: &Dalsegno, run: &str) -> Vec<Journal> {
    let events = events(app, run).await;
    let mut all = Vec::new();
    for at in 1..=events.len() {
        let fold = Journal::fold(events[..at].iter().cloned());
        let journal = app.journal_at(run, at as u64).await.unwrap();
        same(at as u64, &journal, &fold);
        all.push(journal);
    }
    for sequence in [0, events.len() as u64 + 1] {
        let none = app.journal_at(run, sequence).await.unwrap_err();
        assert!(matches!(none, Error::NoSuchEvent { .. }), "{none}");
    }
    let none = app.journal_at("nobody", 1).await.unwrap_err();
    assert!(matches!(none, Error::RunNotFound(_)), "{none}");
    all
}

#[tokio::test]
async fn the_state_at_every_event_of_a_run() {
    let dir = TempDir::new("state-at");
    let agent = |ctx: Ctx, n: u64| async move {
        let a: u64 = ctx.model("a").input(&n).call(|_| async { Ok(1) }).await?;
        let b: u64 = ctx.tool("b").input(&n).call(|_| async { Ok(2) }).await?;
        ctx.decide("big", a + b > 2).await?;
        ctx.sleep(Duration::from_millis(1)).await?;
        let c: u64 = ctx.signal("c").await?;
        ctx.approval("ask").of(&c).await?;
        Ok(a + b + c)
    };
    let app = Dalsegno::builder()
        .agent("a", agent)
        .stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    let run = app.start("a", "r", &1).await.unwrap();
    app.signal("r", "c", &3).await.unwrap();
    until_journal(&app, "r", |journal| journal.approvals.contains_key("ask#1")).await;
    app.approve("r", "ask#1", "ann").await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 6);
    let all = check_every_event(&app, "r").await;
    // Steps only ever come, and get their outcomes once.
    let done = |journal: &Journal| {
        let steps = journal.steps.values();
        steps.filter(|step| step.outcome.is_some()).count()
    };
    assert!(all.windows(2).all(|pair| done(&pair[0]) <= done(&pair[1])));
    assert_eq!((done(&all[0]), done(all.last().unwrap())), (0, 6));
}

/// A loop is read from its last turn before the event; what is known there is the same.
#[tokio::test]
async fn the_state_at_every_event_of_a_loop() {
    let dir = TempDir::new("state-at-loop");
    let turn = |ctx: Ctx, n: u64| async move {
        let more: u64 = ctx.tool("add").input(&n).call(|_| async { Ok(1) }).await?;
        ctx.checkpoint("added", &(n + more)).await?;
        match n + more {
            // A signal that comes early is taken three turns later.
            4 => Ok(Turn::Continue(4 + ctx.signal::<u64>("add").await?)),
            n if n >= 8 => Ok(Turn::Done(n)),
            n => Ok(Turn::Continue(n)),
        }
    };
    let app = Dalsegno::builder().loop_agent("l", |n: u64| n, turn);
    let app = app.open(dir.path()).await.unwrap();
    let budget = Budget::default().steps(100);
    let run = app
        .start_with("l", "r", &0, Start::new().budget(budget))
        .await
        .unwrap();
    app.set_budget("r", Budget::default().steps(50))
        .await
        .unwrap();
    app.signal("r", "add", &2).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 8);
    let all = check_every_event(&app, "r").await;
    let turns: Vec<_> = all.iter().filter_map(|j| j.turn.as_ref()?.turn).collect();
    assert_eq!(turns.last(), Some(&5));
    assert!(turns.is_sorted());
}

/// A mark inside a turn must not hide where the loop is.
#[tokio::test]
async fn a_loop_with_a_mark_inside_its_turn_is_recovered_at_that_turn() {
    let dir = TempDir::new("mark-in-turn");
    let begun = common::World::default();
    let seen = begun.clone();
    let builder = move || {
        let seen = seen.clone();
        let turn = move |ctx: Ctx, n: u64| {
            seen.did(&format!("turn from {n}"));
            async move {
                ctx.checkpoint("here", &n).await?;
                match n {
                    2 => Ok(Turn::Done(ctx.signal::<u64>("go on").await?)),
                    n => Ok(Turn::Continue(n + 1)),
                }
            }
        };
        let builder = Dalsegno::builder().loop_agent("l", |n: u64| n, turn);
        builder.stay_in_memory(Duration::ZERO)
    };
    let app = builder().open(dir.path()).await.unwrap();
    app.start("l", "r", &0).await.unwrap();
    until_waiting(&app, "r", "signal go on").await;
    app.close().await.unwrap();
    begun.reset();
    let app = builder().open(dir.path()).await.unwrap();
    app.signal("r", "go on", &7).await.unwrap();
    let run = app.find("r").await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 7);
    assert_eq!(
        (begun.count("turn from 0"), begun.count("turn from 2")),
        (0, 1)
    );
}

/// What others say while a turn ends, and its worker has not heard of, is known after it.
#[tokio::test]
async fn what_is_said_while_a_turn_ends_is_not_forgotten() {
    let dir = TempDir::new("said-meanwhile");
    let said = Arc::new(Notify::new());
    let builder = || {
        let said = Arc::clone(&said);
        let turn = move |ctx: Ctx, n: u64| {
            let said = Arc::clone(&said);
            async move {
                if n > 0 {
                    return Ok(Turn::Done(ctx.signal::<u64>("number").await?));
                }
                let wait = ctx.tool("wait").read_only();
                let heard = || async {
                    said.notified().await;
                    Ok(())
                };
                let () = wait.call(|_| heard()).await?;
                Ok(Turn::Continue(1))
            }
        };
        let builder = Dalsegno::builder().loop_agent("l", |n: u64| n, turn);
        builder.stay_in_memory(Duration::ZERO)
    };
    let app = builder().open(dir.path()).await.unwrap();
    app.start("l", "r", &0).await.unwrap();
    app.start("l", "cancelled", &0).await.unwrap();
    for run in ["r", "cancelled"] {
        until_journal(&app, run, |journal| !journal.steps.is_empty()).await;
    }
    // Nobody tells the worker.
    let fields = Fields::new().with(record::signal::NAME, "number");
    let signal = NewEvent::new(Kind::SignalReceived).with_fields(fields);
    let signal = signal.with_input(NewPayload::json("7"));
    let run = |name| StreamId::run(name).unwrap();
    let signal = Append::to(run("r"), vec![signal]);
    let fields = Fields::new().with(record::cancel::REASON, "enough");
    let cancel = NewEvent::new(Kind::CancelRequested).with_fields(fields);
    let cancel = Append::to(run("cancelled"), vec![cancel]);
    app.store().append(vec![signal, cancel]).await.unwrap();
    said.notify_waiters();
    // Both are read again from the turn that ended.
    let limit = Duration::from_secs(20);
    let run = app.find("r").await.unwrap();
    let result = tokio::time::timeout(limit, run.result::<u64>()).await;
    assert_eq!(result.unwrap().unwrap(), 7);
    let run = app.find("cancelled").await.unwrap();
    let result = tokio::time::timeout(limit, run.result::<u64>()).await;
    assert!(matches!(result.unwrap(), Err(Error::RunCancelled(_))));
}
