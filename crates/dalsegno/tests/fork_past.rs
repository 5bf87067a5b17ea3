//! What a fork inherits of what was not finished: effects, approvals, signals, children, timers.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/history.rs"]
mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{Ctx, Dalsegno, Error, Failure, Fork, Gate, Outcome, Probe, ReplayVerdict};
use dalsegno_store::{Event, Kind, Status};
use history::{event_of, events, until_journal, until_waiting};

#[tokio::test]
async fn approvals_are_not_inherited() {
    let (dir, world) = (TempDir::new("fork-approvals"), World::default());
    let seen = world.clone();
    let agent = move |ctx: Ctx, (): ()| {
        let world = seen.clone();
        async move {
            let first = ctx.approval("first").await?;
            ctx.tool("pay")
                .approval(Gate::new().expires_in(Duration::from_secs(3600)))
                .call(|_| {
                    let paid = world.did("pay");
                    async move { Ok(paid) }
                })
                .await?;
            Ok(first.is_approved())
        }
    };
    let builder = Dalsegno::builder().agent("a", agent);
    let builder = builder.stay_in_memory(Duration::ZERO);
    let app = builder.open(dir.path()).await.unwrap();
    let origin = app.start("a", "r", &()).await.unwrap();
    until_waiting(&app, "r", "approval first#1").await;
    // Open: the fork asks for itself, and the origin's answer is not its own.
    app.fork("r", Fork::at_end().named("open")).await.unwrap();
    until_waiting(&app, "open", "approval first#1").await;
    app.approve("r", "first#1", "ann").await.unwrap();
    until_waiting(&app, "r", "approval pay#1").await;
    let asked = app.journal("open").await.unwrap();
    assert_eq!(asked.approvals.len(), 1);
    assert!(asked.approvals.values().all(|asked| asked.answer.is_none()));
    // Answered and not used.
    app.approve("r", "pay#1", "ann").await.unwrap();
    assert!(origin.result::<bool>().await.unwrap());
    assert_eq!(world.count("pay"), 1);
    let answered = event_of(&app, "r", Kind::ApprovalAnswered, "pay#1").await;
    app.fork("r", Fork::at(answered).named("unused"))
        .await
        .unwrap();
    until_waiting(&app, "unused", "approval pay#1").await;
    // The answer that was used belongs to a step that has its outcome.
    let journal = app.journal("unused").await.unwrap();
    let first = journal
        .steps
        .iter()
        .find(|(id, _)| id.as_str() == "first#1");
    assert!(matches!(
        first.unwrap().1.outcome,
        Some(Outcome::Succeeded(_))
    ));
    app.reject("unused", "pay#1", "bob", "no").await.unwrap();
    let unused = app.find("unused").await.unwrap();
    assert!(unused.result::<bool>().await.is_err());
    assert_eq!(world.count("pay"), 1);
    // Used: it is not asked again, nor paid again.
    let used = event_of(&app, "r", Kind::StepIntended, "pay#1").await;
    let run = app.fork("r", Fork::at(used).named("used")).await.unwrap();
    assert!(run.result::<bool>().await.unwrap());
    assert_eq!(world.count("pay"), 1);
    // Nobody but people answers.
    let fork = Fork::at_end().with_outcome("first#1", &"yes").unwrap();
    assert!(app.fork("r", fork).await.is_err());
}

/// A step that hangs in the first run that comes to it, and asks a probe.
fn hanging(world: &World, effect: &'static str, hangs: &Arc<AtomicBool>) -> dalsegno::Builder {
    let (world, hangs) = (world.clone(), Arc::clone(hangs));
    let agent = move |ctx: Ctx, (): ()| {
        let (world, hangs) = (world.clone(), Arc::clone(&hangs));
        async move {
            let asked = world.clone();
            let step = match effect {
                "once" => ctx.tool("send").once(),
                _ => ctx.tool("send").idempotent(),
            };
            let step = step.probe(move |call| {
                asked.did(&format!("asked for {}", call.key()));
                async { Ok(Probe::<u64>::Unknown) }
            });
            step.call(|call| {
                world.did(&format!("sent {}", call.key()));
                let hangs = hangs.swap(false, Ordering::SeqCst);
                async move {
                    match hangs {
                        true => std::future::pending().await,
                        false => Ok(1),
                    }
                }
            })
            .await
        }
    };
    Dalsegno::builder().agent("a", agent)
}

fn sent(world: &World, what: &str) -> Vec<String> {
    let all = world.all();
    let found = all.into_iter().filter(|done| done.starts_with(what));
    found.map(|done| done[what.len()..].to_owned()).collect()
}

#[tokio::test]
async fn an_effect_of_which_nobody_knows_keeps_its_key_over_any_number_of_forks() {
    for effect in ["once", "idempotent"] {
        let (dir, world) = (TempDir::new("fork-unknown"), World::default());
        let hangs = Arc::new(AtomicBool::new(true));
        let app = hanging(&world, effect, &hangs);
        let mut app = app.open(dir.path()).await.unwrap();
        app.start("a", "r", &()).await.unwrap();
        while sent(&world, "sent ").is_empty() {
            tokio::task::yield_now().await;
        }
        let keys = sent(&world, "sent ");
        if effect == "once" {
            // It could happen at any moment, whatever a probe says now.
            let early = app.fork("r", Fork::at_end().named("one")).await;
            let early = early.unwrap_err().to_string();
            assert!(early.contains("send#1 is under way"), "{early}");
            drop(app.close_within(Duration::ZERO).await);
            let again = hanging(&world, effect, &hangs);
            app = again.open(dir.path()).await.unwrap();
            let origin = app.find("r").await.unwrap();
            assert!(origin.result::<u64>().await.is_err());
        }
        // The first fork hangs, too, if it comes to it.
        hangs.store(effect == "idempotent", Ordering::SeqCst);
        let fork = app.fork("r", Fork::at_end().named("one")).await.unwrap();
        if effect == "once" {
            let doubt = fork.result::<u64>().await.unwrap_err();
            assert!(matches!(doubt, Error::NeedsAttention { .. }), "{doubt}");
            let attention = app.journal("one").await.unwrap().attention.unwrap();
            assert!(attention.evidence.unwrap().contains(&keys[0]));
            let why = app.why("one").await.unwrap();
            assert_eq!(why.in_doubt[0].key, keys[0]);
        } else {
            while hangs.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        }
        let fork = app.fork("one", Fork::at_end().named("two")).await.unwrap();
        if effect == "once" {
            assert!(fork.result::<u64>().await.is_err());
            assert_eq!(sent(&world, "asked for "), keys);
            // By the origin, and by each of its forks.
            assert_eq!(world.count(&format!("asked for {}", keys[0])), 3);
            assert_eq!(world.count(&format!("sent {}", keys[0])), 1);
            app.resolve_not_happened("two", "send#1", "ann")
                .await
                .unwrap();
            // Known not to have happened in the shared past: that is a matter of the fork's own.
            let own = app.fork("two", Fork::at_end().named("three"));
            assert_eq!(own.await.unwrap().result::<u64>().await.unwrap(), 1);
        }
        let two = app.find("two").await.unwrap();
        assert_eq!(two.result::<u64>().await.unwrap(), 1);
        if effect == "idempotent" {
            assert_eq!(sent(&world, "sent "), keys);
            assert_eq!(world.count(&format!("sent {}", keys[0])), 3);
        }
        let replayed = app.replay("two").await.unwrap();
        assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
        drop(app.close_within(Duration::ZERO).await);
    }
}

#[tokio::test]
async fn what_is_known_not_to_have_happened_is_the_forks_own() {
    let (dir, world) = (TempDir::new("fork-not-done"), World::default());
    let seen = world.clone();
    let agent = move |ctx: Ctx, (): ()| {
        let world = seen.clone();
        async move {
            ctx.tool("send")
                .call(|call| {
                    let count = world.did("send");
                    world.did(&format!("sent {}", call.key()));
                    async move {
                        match count {
                            1 => Err(Failure::new("?")),
                            count => Ok(count),
                        }
                    }
                })
                .await
        }
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open(dir.path()).await.unwrap();
    assert!(app.run::<_, u64>("a", "r", &()).await.is_err());
    app.resolve_not_happened("r", "send#1", "ann")
        .await
        .unwrap();
    let origin = app.find("r").await.unwrap();
    assert_eq!(origin.result::<u64>().await.unwrap(), 2);
    // At its first intent: later somebody found out that it had not happened.
    let at = event_of(&app, "r", Kind::StepIntended, "send#1").await;
    let run = app.fork("r", Fork::at(at)).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 3);
    assert_eq!(sent(&world, "sent ").len(), 2);
}

#[tokio::test]
async fn signals_that_nobody_took_are_there_in_the_fork_and_taken_ones_are_not() {
    let dir = TempDir::new("fork-signals");
    let agent = |ctx: Ctx, (): ()| async move {
        let _: u64 = ctx.signal("begin").await?;
        let a: u64 = ctx.signal("n").await?;
        let b: u64 = ctx.signal("n").await?;
        let _: u64 = ctx.signal("go on").await?;
        let c: u64 = ctx.signal("n").await?;
        Ok([a, b, c])
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    app.start("a", "r", &()).await.unwrap();
    for n in [1, 2, 3] {
        app.signal("r", "n", &n).await.unwrap();
    }
    app.signal("r", "begin", &0).await.unwrap();
    until_waiting(&app, "r", "signal go on").await;
    let run = app.fork("r", Fork::at_end().named("f")).await.unwrap();
    app.signal("f", "go on", &0).await.unwrap();
    assert_eq!(run.result::<[u64; 3]>().await.unwrap(), [1, 2, 3]);
    let replayed = app.replay("f").await.unwrap();
    assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
    // What comes instead of a signal takes its place.
    let fork = Fork::at_end().named("g").with_outcome("n#1", &9).unwrap();
    let run = app.fork("r", fork).await.unwrap();
    app.signal("g", "go on", &0).await.unwrap();
    assert_eq!(run.result::<[u64; 3]>().await.unwrap(), [9, 2, 3]);
    app.signal("r", "go on", &0).await.unwrap();
    let origin = app.find("r").await.unwrap();
    assert_eq!(origin.result::<[u64; 3]>().await.unwrap(), [1, 2, 3]);
}

#[tokio::test]
async fn children_with_a_result_are_shared_and_others_are_started_anew() {
    let (dir, world) = (TempDir::new("fork-children"), World::default());
    let seen = world.clone();
    let child = move |ctx: Ctx, n: u64| {
        let world = seen.clone();
        async move {
            world.did(ctx.run_id());
            match n {
                0 => ctx.signal("n").await,
                n => Ok(n),
            }
        }
    };
    let parent = |ctx: Ctx, (): ()| async move {
        let a: u64 = ctx.child("child", &1).await?;
        let b: u64 = ctx.child("child", &0).await?;
        Ok(a + b)
    };
    let app = Dalsegno::builder()
        .agent("child", child)
        .agent("parent", parent);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    app.start("parent", "p", &()).await.unwrap();
    until_waiting(&app, "p", "child child#2").await;
    let forked = app.fork("p", Fork::at_end().named("f")).await.unwrap();
    until_waiting(&app, "f", "child child#2").await;
    app.signal("p.child-2", "n", &10).await.unwrap();
    app.signal("f.child-2", "n", &20).await.unwrap();
    assert_eq!(forked.result::<u64>().await.unwrap(), 21);
    let origin = app.find("p").await.unwrap();
    assert_eq!(origin.result::<u64>().await.unwrap(), 11);
    assert_eq!(world.count("f.child-1"), 0);
    // By now the origin's second child has its result: it is known at its start.
    let at = event_of(&app, "p", Kind::StepIntended, "child#2").await;
    let run = app.fork("p", Fork::at(at).named("later")).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 11);
    assert_eq!(world.count("later.child-2"), 0);
    // A fork of a child has no parent.
    let run = app.fork("p.child-2", Fork::at_end()).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 10);
    assert_eq!(app.journal(run.id()).await.unwrap().created.parent, None);
}

#[tokio::test]
async fn open_sleeps_and_time_limits_go_on_until_the_same_time() {
    let dir = TempDir::new("fork-timers");
    let agent = |ctx: Ctx, (): ()| async move {
        let sleep = ctx.sleep(Duration::from_millis(150));
        let signal = ctx
            .signal::<u64>("never")
            .timeout(Duration::from_millis(100));
        let (slept, none) = tokio::join!(sleep, IntoFuture::into_future(signal));
        slept?;
        assert_eq!(none?, None);
        ctx.sleep(Duration::from_millis(1)).await
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    let origin = app.start("a", "r", &()).await.unwrap();
    let has_waited = |status: Status| status == Status::Checkpointed || status.is_final();
    until_journal(&app, "r", |journal| has_waited(journal.status)).await;
    // There, and not at its end: on a busy machine they may be over by now.
    let sleep = event_of(&app, "r", Kind::TimerSet, "sleep#1").await;
    let limit = event_of(&app, "r", Kind::TimerSet, "never#1!timeout").await;
    let both = Fork::at(sleep.max(limit));
    let run = app.fork("r", both.named("f")).await.unwrap();
    run.result::<()>().await.unwrap();
    origin.result::<()>().await.unwrap();
    let due = |events: Vec<Event>| {
        let set = events.into_iter().filter(|e| e.kind == Kind::TimerSet);
        let of = |e: Event| (e.fields.text(1).unwrap().to_owned(), e.fields.number(2));
        set.map(of)
            .filter(|(id, _)| id != "sleep#2")
            .collect::<Vec<_>>()
    };
    let (origin, fork) = (events(&app, "r").await, events(&app, "f").await);
    assert_eq!(due(origin), due(fork));
    // All of it is past, and so is nothing that would wait.
    let run = app.fork("r", Fork::at_end().named("g")).await.unwrap();
    run.result::<()>().await.unwrap();
}

/// A payment that a person has to approve. In the run `r` its answer never comes.
fn approved_payment(
    world: &World,
    effect: dalsegno::Effect,
    finds: Probe<u64>,
) -> dalsegno::Builder {
    let world = world.clone();
    let agent = move |ctx: Ctx, (): ()| {
        let (world, finds) = (world.clone(), finds.clone());
        async move {
            let step = ctx.tool("pay").effect(effect).approval(Gate::new());
            let step = step.probe(move |_| {
                let finds = finds.clone();
                async move { Ok(finds) }
            });
            step.call(|_| {
                let paid = world.did(&format!("pay {}", ctx.run_id()));
                let never = ctx.run_id() == "r";
                async move {
                    match never {
                        true => std::future::pending().await,
                        false => Ok(paid),
                    }
                }
            })
            .await
        }
    };
    Dalsegno::builder().agent("a", agent)
}

/// Its tasks end when it is dropped.
fn new_process() -> tokio::runtime::Runtime {
    let mut process = tokio::runtime::Builder::new_current_thread();
    process.enable_time().build().unwrap()
}

/// The approved payment is under way when its process ends.
fn paying_when_the_process_ends(dir: &TempDir, world: &World, effect: dalsegno::Effect) {
    new_process().block_on(async {
        let app = approved_payment(world, effect, Probe::Unknown);
        let app = app.stay_in_memory(Duration::ZERO);
        let app = app.open(dir.path()).await.unwrap();
        app.start("a", "r", &()).await.unwrap();
        until_waiting(&app, "r", "approval pay#1").await;
        app.approve("r", "pay#1", "ann").await.unwrap();
        while world.count("pay r") == 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_fork_asks_for_itself_before_it_repeats_what_was_approved_in_its_origin() {
    use dalsegno::Effect;
    for (effect, finds) in [
        (Effect::Idempotent, Probe::Unknown),
        (Effect::Once, Probe::DidNotHappen),
        (Effect::Once, Probe::Unknown),
    ] {
        let (dir, world) = (TempDir::new("fork-gate"), World::default());
        paying_when_the_process_ends(&dir, &world, effect);
        new_process().block_on(async {
            let app = approved_payment(&world, effect, finds.clone());
            let app = app.stay_in_memory(Duration::ZERO);
            let at = {
                let app = Dalsegno::builder().open(dir.path()).await.unwrap();
                let at = event_of(&app, "r", Kind::StepIntended, "pay#1").await;
                app.close().await.unwrap();
                at
            };
            let app = app.open(dir.path()).await.unwrap();
            let fork = Fork::at(at).named("f");
            let fork = app.fork("r", fork).await.unwrap();
            if finds == Probe::Unknown && effect == Effect::Once {
                assert!(fork.result::<u64>().await.is_err());
                let said = app.resolve_not_happened("f", "pay#1", "ann");
                said.await.unwrap();
            }
            until_waiting(&app, "f", "approval pay#1").await;
            let why = app.why("f").await.unwrap();
            let asks = |next: &dalsegno::Next| matches!(next, dalsegno::Next::Approval { .. });
            assert!(why.next.iter().any(asks), "{why}");
            assert_eq!(world.count("pay f"), 0);
            app.approve("f", "pay#1", "bob").await.unwrap();
            fork.result::<u64>().await.unwrap();
            assert_eq!(world.count("pay f"), 1);
            // Its own answer is used up.
            let journal = app.journal("f").await.unwrap();
            assert!(journal.approvals.values().all(|asked| asked.used));
            drop(app.close_within(Duration::ZERO).await);
        });
    }
}
