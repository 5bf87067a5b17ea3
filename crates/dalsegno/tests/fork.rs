//! Forks: a new run with the past of another one. What the past did is never done again.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/history.rs"]
mod history;

use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{Ctx, Dalsegno, Error, Failure, Fork, ReplayVerdict, Start, StepId, Turn};
use dalsegno_store::{Event, Kind, Limits, Options, StreamId};
use history::{add, event_of, events, until_waiting};

fn adding(world: &World) -> dalsegno::Builder {
    let world = world.clone();
    Dalsegno::builder().agent("add", move |ctx: Ctx, n: u64| {
        let world = world.clone();
        async move {
            let a = add(&ctx, &world, "a", n).await?;
            let b: u64 = ctx
                .model("b")
                .input(&a)
                .call(|_| {
                    world.did("b");
                    async move { Ok(a * 10) }
                })
                .await?;
            let way = ctx.decide("way", b).await?;
            let c = ctx
                .tool("c")
                .idempotent()
                .input(&way)
                .call(|_| {
                    world.did("c");
                    async move { Ok(way + 1) }
                })
                .await?;
            add(&ctx, &world, "d", c).await
        }
    })
}

#[tokio::test]
async fn a_fork_at_every_event_ends_the_same_and_repeats_nothing() {
    let (dir, world) = (TempDir::new("fork-every"), World::default());
    let app = adding(&world).open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, u64>("add", "r", &1).await.unwrap(), 22);
    let origin = events(&app, "r").await;
    for cut in 1..=origin.len() {
        world.reset();
        let name = format!("fork-{cut}");
        let fork = Fork::at(cut as u64).named(&name);
        let run = app.fork("r", fork).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 22, "at {cut}");
        let past = &origin[..cut];
        let has = |kind: Kind, step: &str| {
            let about = |e: &Event| e.kind == kind && e.fields.text(1) == Some(step);
            past.iter().any(about)
        };
        for (name, step) in [("a", "a#1"), ("c", "c#1"), ("d", "d#1")] {
            // What was begun in the shared past has its outcome from the origin.
            let again = u64::from(!has(Kind::StepIntended, step));
            assert_eq!(world.count(name), again, "{name} at {cut}");
        }
        let again = u64::from(!has(Kind::StepSucceeded, "b#1"));
        assert_eq!(world.count("b"), again, "b at {cut}");
        let journal = app.journal(&name).await.unwrap();
        let forked = journal.forked.unwrap();
        assert_eq!((forked.sequence, forked.origin.name()), (cut as u64, "r"));
        let replayed = app.replay(&name).await.unwrap();
        assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
    }
    assert_eq!(events(&app, "r").await, origin);
    for (at, forked) in [(0, false), (origin.len() as u64 + 1, false)] {
        let refused = app.fork("r", Fork::at(at)).await;
        assert_eq!(refused.is_ok(), forked);
    }
}

#[tokio::test]
async fn copies_name_their_originals_and_the_fork_its_origin() {
    let (dir, world) = (TempDir::new("fork-cause"), World::default());
    let app = adding(&world).open(dir.path()).await.unwrap();
    app.run::<_, u64>("add", "r", &1).await.unwrap();
    let at = event_of(&app, "r", Kind::DecisionCommitted, "way#1").await;
    let run = app.fork("r", Fork::at(at)).await.unwrap();
    assert_eq!(run.id(), format!("r@{at}"));
    run.result::<u64>().await.unwrap();
    let (origin, fork) = (events(&app, "r").await, events(&app, run.id()).await);
    assert_eq!(fork[0].kind, Kind::RunCreated);
    assert_eq!(fork[1].kind, Kind::RunForked);
    let id = StreamId::run("r").unwrap();
    let read = app.store().read(&id, at, 1).await.unwrap();
    let journal = app.journal(run.id()).await.unwrap();
    assert_eq!(journal.forked.unwrap().hash, read[0].hash.as_bytes());
    for copy in fork
        .iter()
        .take_while(|e| e.kind != Kind::LeaseTaken)
        .skip(2)
    {
        let cause = copy.cause.as_ref().unwrap();
        let original = &origin[cause.sequence as usize - 1];
        assert_eq!((&cause.stream, &original.kind), (&id, &copy.kind));
        assert_eq!(
            (&original.input, &original.output),
            (&copy.input, &copy.output)
        );
    }
}

#[tokio::test]
async fn a_changed_outcome_cuts_what_followed_it() {
    let (dir, world) = (TempDir::new("fork-outcome"), World::default());
    let app = adding(&world).open(dir.path()).await.unwrap();
    app.run::<_, u64>("add", "r", &1).await.unwrap();
    let run = |fork: Fork| app.fork("r", fork);
    // A once step, a model call, a decision, a failure.
    for (step, value, result, again) in [
        ("a#1", 5_u64, 52_u64, ["b", "c", "d"].as_slice()),
        ("b#1", 7, 9, &["c", "d"]),
        ("way#1", 100, 102, &["c", "d"]),
        ("c#1", 1000, 1001, &["d"]),
        ("d#1", 4, 4, &[]),
    ] {
        world.reset();
        let fork = Fork::at_end()
            .named(step)
            .with_outcome(step, &value)
            .unwrap();
        let forked = run(fork).await.unwrap();
        assert_eq!(forked.result::<u64>().await.unwrap(), result, "{step}");
        for name in ["a", "b", "c", "d"] {
            let expected = u64::from(again.contains(&name));
            assert_eq!(world.count(name), expected, "{name} after {step}");
        }
        let changed = app.journal(step).await.unwrap().forked.unwrap().changed;
        assert_eq!(changed.len(), 1);
        let again = format!("again {step}");
        let fork = Fork::at_end().named(&again);
        let forked = app.fork(step, fork).await.unwrap();
        assert_eq!(forked.result::<u64>().await.unwrap(), result, "{step}");
        for name in [step, &again] {
            let replayed = app.replay(name).await.unwrap();
            assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
        }
    }
    let fork = Fork::at_end()
        .named("fails")
        .with_failure("c#1", Failure::terminal("no"));
    let failed = run(fork).await.unwrap().result::<u64>().await.unwrap_err();
    assert!(matches!(failed, Error::RunFailed { .. }), "{failed}");
    let fork = Fork::at_end()
        .named("x")
        .with_outcome("nobody#1", &1)
        .unwrap();
    let refused = run(fork).await.unwrap_err().to_string();
    assert!(refused.contains("nobody#1"), "{refused}");
    // The second one comes after the first one's outcome, and so does not exist.
    let fork = Fork::at_end().named("x").with_outcome("a#1", &1).unwrap();
    let refused = run(fork.with_outcome("c#1", &1).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("c#1"));
}

#[tokio::test]
async fn a_changed_input_begins_anew_or_stops_where_it_does_not_fit() {
    let (dir, world) = (TempDir::new("fork-input"), World::default());
    let app = adding(&world).open(dir.path()).await.unwrap();
    app.run::<_, u64>("add", "r", &1).await.unwrap();
    world.reset();
    let fork = Fork::at(1).named("anew").with_input(&2).unwrap();
    let run = app.fork("r", fork).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 32);
    assert_eq!(world.count("a"), 1);
    let fork = Fork::at_end().named("no fit").with_input(&2).unwrap();
    let run = app.fork("r", fork).await.unwrap();
    let stopped = run.result::<u64>().await.unwrap_err();
    assert!(matches!(stopped, Error::NeedsAttention { .. }), "{stopped}");
    assert_eq!(world.count("a"), 1);
}

#[tokio::test]
async fn the_same_fork_twice_is_one_run_and_a_taken_name_is_refused() {
    let (dir, world) = (TempDir::new("fork-twice"), World::default());
    let app = adding(&world).open(dir.path()).await.unwrap();
    app.run::<_, u64>("add", "r", &1).await.unwrap();
    world.reset();
    for _ in 0..2 {
        let run = app.fork("r", Fork::at(4).named("f")).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 22);
    }
    assert_eq!(world.count("d"), 1);
    for (at, name) in [(3, "f"), (4, "r")] {
        let refused = app.fork("r", Fork::at(at).named(name)).await.unwrap_err();
        assert!(matches!(refused, Error::AlreadyStarted { .. }), "{refused}");
    }
    let none = app.fork("nobody", Fork::at_end()).await.unwrap_err();
    assert!(matches!(none, Error::RunNotFound(_)), "{none}");
}

#[tokio::test]
async fn a_past_that_does_not_fit_into_one_append_is_refused() {
    let dir = TempDir::new("fork-large");
    let agent = |ctx: Ctx, n: u64| async move {
        for _ in 0..n {
            ctx.random().await?;
        }
        Ok(())
    };
    let limits = Limits {
        batch_events: 20,
        ..Limits::default()
    };
    let options = Options::new().limits(limits);
    let app = Dalsegno::builder().store_options(options).agent("a", agent);
    let app = app.open(dir.path()).await.unwrap();
    app.run::<_, ()>("a", "r", &30).await.unwrap();
    let refused = app.fork("r", Fork::at_end()).await.unwrap_err().to_string();
    assert!(
        refused.contains("one append") && refused.contains("20"),
        "{refused}"
    );
    let fits = app.fork("r", Fork::at(15)).await.unwrap();
    fits.result::<()>().await.unwrap();
}

#[tokio::test]
async fn a_fork_of_a_run_that_was_cancelled_or_is_in_attention_goes_its_own_way() {
    let dir = TempDir::new("fork-cancelled");
    let agent = |ctx: Ctx, (): ()| async move { ctx.signal::<u64>("n").await };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    let run = app.start("a", "r", &()).await.unwrap();
    until_waiting(&app, "r", "signal n").await;
    app.cancel("r", "enough").await.unwrap();
    assert!(run.result::<u64>().await.is_err());
    let run = app.fork("r", Fork::at_end().named("f")).await.unwrap();
    app.signal("f", "n", &3).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 3);
    let journal = app.journal("f").await.unwrap();
    assert_eq!(
        (journal.cancel, journal.created.lineage.as_str()),
        (None, "f")
    );
}

/// A loop that takes a signal in its sixth turn.
fn looping(world: &World) -> dalsegno::Builder {
    let world = world.clone();
    let turn = move |ctx: Ctx, n: u64| {
        let world = world.clone();
        async move {
            let n = add(&ctx, &world, &format!("add {n}"), n).await?;
            match n {
                6 => Ok(Turn::Continue(6 + ctx.signal::<u64>("more").await?)),
                n if n > 8 => Ok(Turn::Done(n)),
                n => Ok(Turn::Continue(n)),
            }
        }
    };
    Dalsegno::builder().loop_agent("loop", |n: u64| n, turn)
}

#[tokio::test]
async fn a_loop_is_forked_with_the_state_after_its_last_turn() {
    let (dir, world) = (TempDir::new("fork-loop"), World::default());
    let app = looping(&world).open(dir.path()).await.unwrap();
    let run = app.start("loop", "r", &0).await.unwrap();
    app.signal("r", "more", &2).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 9);
    let origin = events(&app, "r").await;
    for cut in 1..=origin.len() {
        world.reset();
        let past = &origin[..cut];
        let has_signal = past.iter().any(|e| e.kind == Kind::SignalReceived);
        let name = format!("f-{cut}");
        let run = app
            .fork("r", Fork::at(cut as u64).named(&name))
            .await
            .unwrap();
        if !has_signal {
            app.signal(&name, "more", &2).await.unwrap();
        }
        assert_eq!(run.result::<u64>().await.unwrap(), 9, "at {cut}");
        for n in 0..6 {
            let begun = past.iter().any(|e| {
                e.kind == Kind::StepIntended
                    && e.fields.text(1) == Some(&format!("@{}/add {n}#1", n + 1))
            });
            assert_eq!(
                world.count(&format!("add {n}")),
                u64::from(!begun),
                "add {n} at {cut}"
            );
        }
        let replayed = app.replay(&name).await.unwrap();
        assert_eq!(
            replayed.verdict,
            ReplayVerdict::SameEnd,
            "at {cut}: {replayed}"
        );
        // The fold from the beginning and from the last turn are the same here, too.
        let all = events(&app, &name).await;
        let fold = dalsegno::Journal::fold(all.clone());
        let journal = app.journal(&name).await.unwrap();
        assert_eq!((journal.usage, journal.forked), (fold.usage, fold.forked));
    }
    // A fork of a fork, and what cannot be.
    let fork = Fork::at_end()
        .named("again")
        .with_outcome("@7/add 8#1", &100);
    let last = format!("f-{}", origin.len());
    let run = app.fork(&last, fork.unwrap()).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 100);
    let refused = app.fork("r", Fork::at_end().with_input(&5).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("first turn"));
}

#[tokio::test]
async fn a_fork_inside_a_plan_step_goes_on_inside() {
    let (dir, world) = (TempDir::new("fork-plan"), World::default());
    let seen = world.clone();
    let agent = move |ctx: Ctx, n: u64| {
        let world = seen.clone();
        async move {
            ctx.plan_step("plan", |ctx| async move {
                let a = add(&ctx, &world, "a", n).await?;
                add(&ctx, &world, "b", a).await
            })
            .await
        }
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, u64>("a", "r", &1).await.unwrap(), 3);
    world.reset();
    let fork = Fork::at_end().with_outcome("plan#1/a#1", &10).unwrap();
    let run = app.fork("r", fork).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 11);
    assert_eq!((world.count("a"), world.count("b")), (0, 1));
    let fork = Fork::at_end()
        .named("whole")
        .with_outcome("plan#1", &7)
        .unwrap();
    let run = app.fork("r", fork).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 7);
    assert_eq!((world.count("a"), world.count("b")), (0, 1));
}

/// The usage of the shared past counts, and so does its budget.
#[tokio::test]
async fn what_the_past_used_counts_in_the_fork() {
    let (dir, world) = (TempDir::new("fork-budget"), World::default());
    let app = adding(&world).open(dir.path()).await.unwrap();
    let budget = dalsegno::Budget::default().steps(3);
    let run = app
        .start_with("add", "r", &1, Start::new().budget(budget))
        .await
        .unwrap();
    assert!(run.result::<u64>().await.is_err());
    let fork = app.fork("r", Fork::at_end().named("f")).await.unwrap();
    let over = fork.result::<u64>().await.unwrap_err();
    assert!(over.to_string().contains("3 of 3 steps"), "{over}");
    app.set_budget("f", dalsegno::Budget::default().steps(9))
        .await
        .unwrap();
    assert_eq!(fork.result::<u64>().await.unwrap(), 22);
}

/// Large values are stored by content, and shared by it.
#[tokio::test]
async fn large_values_are_shared() {
    let dir = TempDir::new("fork-large-value");
    let agent = |ctx: Ctx, (): ()| async move {
        let text: String = ctx
            .model("write")
            .call(|_| async { Ok("word ".repeat(50_000)) })
            .await?;
        ctx.decide("done", true).await?;
        Ok(text.len())
    };
    let app = Dalsegno::builder().agent("a", agent);
    let app = app.open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, usize>("a", "r", &()).await.unwrap(), 250_000);
    let run = app.fork("r", Fork::at_end()).await.unwrap();
    assert_eq!(run.result::<usize>().await.unwrap(), 250_000);
    let id = |id: &StepId| id.as_str() == "write#1";
    let (origin, fork) = (
        app.journal("r").await.unwrap(),
        app.journal(run.id()).await.unwrap(),
    );
    let outcome = |journal: &dalsegno::Journal| {
        let step = journal.steps.iter().find(|(step, _)| id(step)).unwrap();
        step.1.outcome.clone()
    };
    assert_eq!(outcome(&origin), outcome(&fork));
}

/// Conversations of a loop are read from its stream, so the fork's has to have them.
#[tokio::test]
async fn what_was_said_in_earlier_turns_is_known_in_the_fork() {
    let dir = TempDir::new("fork-said");
    let turn = |ctx: Ctx, n: u64| async move {
        let chat = ctx.conversation("chat").await?;
        chat.push(&ctx, &n).await?;
        // A mark is not the end of a turn.
        ctx.checkpoint("said", &n).await?;
        match n {
            3 => {
                let more: u64 = ctx.signal("more").await?;
                chat.push(&ctx, &more).await?;
                let said = chat.messages();
                let said: Vec<u64> = said.iter().filter_map(|said| said.as_u64()).collect();
                Ok(Turn::Done(said))
            }
            n => Ok(Turn::Continue(n + 1)),
        }
    };
    let app = Dalsegno::builder().loop_agent("l", |n: u64| n, turn);
    let app = app.stay_in_memory(Duration::ZERO);
    let app = app.open(dir.path()).await.unwrap();
    app.start("l", "r", &0).await.unwrap();
    until_waiting(&app, "r", "signal more").await;
    app.fork("r", Fork::at_end().named("one")).await.unwrap();
    until_waiting(&app, "one", "signal more").await;
    app.fork("one", Fork::at_end().named("two")).await.unwrap();
    for (run, more) in [("r", 10_u64), ("one", 11), ("two", 12)] {
        app.signal(run, "more", &more).await.unwrap();
        let handle = app.find(run).await.unwrap();
        let said: Vec<u64> = handle.result().await.unwrap();
        assert_eq!(said, [0, 1, 2, 3, more], "{run}");
        let replayed = app.replay(run).await.unwrap();
        assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
    }
}
