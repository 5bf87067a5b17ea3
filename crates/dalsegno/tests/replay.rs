//! Replay: the same path or the first divergence; nothing is executed, nothing is appended.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/divergence.rs"]
mod divergence;
#[path = "common/history.rs"]
mod history;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{
    Builder, Ctx, Dalsegno, DivergenceKind, Failure, Gate, ReplayVerdict, Result, Retry, Turn,
    shadow_replay,
};
use dalsegno_store::{
    Append, Body, Event, Kind, NewEvent, NewPayload, Options, Payload, RunQuery, Status, Store,
    StreamId,
};
use divergence::{diverges, head, step};
use history::{until_journal, until_waiting};

/// Has everything that a run can do.
async fn everything(ctx: Ctx, world: World, n: u64) -> Result<u64> {
    let doubled: u64 = ctx
        .model("double")
        .input(&n)
        .call(|call| {
            world.did("double");
            call.tokens(3, 4);
            async move { Ok(n * 2) }
        })
        .await?;
    let big = ctx.decide("is big", doubled > 10).await?;
    let retry = Retry::times(3).first(Duration::from_millis(1));
    let flaky: u64 = ctx
        .tool("flaky")
        .read_only()
        .retry(retry)
        .call(|call| {
            world.did("flaky");
            async move {
                match call.attempt() {
                    1 => Err(Failure::new("not yet")),
                    attempt => Ok(attempt),
                }
            }
        })
        .await?;
    let inside = world.clone();
    let planned: u64 = ctx
        .plan_step("plan", |ctx| async move {
            ctx.tool("look")
                .read_only()
                .call(|_| {
                    inside.did("look");
                    async { Ok(5) }
                })
                .await
        })
        .await?;
    ctx.sleep(Duration::from_millis(2)).await?;
    let signal: u64 = ctx.signal("number").await?;
    let none: Option<u64> = ctx
        .signal("never")
        .timeout(Duration::from_millis(2))
        .await?;
    let answer = ctx.approval("publish").of(&n).await?;
    let paid: u64 = ctx
        .tool("pay")
        .input(&doubled)
        .approval(Gate::new())
        .call(|_| {
            world.did("pay");
            async { Ok(1) }
        })
        .await?;
    let (a, b) = (ctx.child::<u64, _>("child", &1), ctx.child("child", &2));
    let (a, b): (Result<u64>, Result<u64>) = tokio::join!(a.into_future(), b.into_future());
    let branches = ctx.each("fetch", [30_u64, 1, 15], |ctx, wait| {
        let world = world.clone();
        async move {
            // In the record the last is first.
            let get = ctx.tool("get").read_only().input(&wait).call(|_| {
                world.did("get");
                async move {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    Ok(wait)
                }
            });
            let got: u64 = get.await?;
            ctx.tool("put")
                .idempotent()
                .input(&got)
                .call(|_| {
                    world.did("put");
                    async move { Ok(got) }
                })
                .await
        }
    });
    let fetched: u64 = branches.await?.into_iter().sum();
    ctx.event("noted", &fetched).await?;
    ctx.checkpoint("mark", &fetched).await?;
    let (_, _, _) = (ctx.now().await?, ctx.random().await?, ctx.uuid().await?);
    let failed = ctx
        .tool("fails")
        .call(|_| async { Err::<u64, _>(Failure::terminal("no")) })
        .await
        .unwrap_err();
    assert_eq!(
        (answer.is_approved(), none, failed.message()),
        (true, None, "no")
    );
    Ok(u64::from(big) + flaky + planned + signal + paid + a? + b? + fetched)
}

fn everything_agents(world: &World) -> Builder {
    let world = world.clone();
    Dalsegno::builder()
        .agent("everything", move |ctx, n| {
            everything(ctx, world.clone(), n)
        })
        .agent("child", |ctx: Ctx, n: u64| async move {
            ctx.sleep(Duration::from_millis(1)).await?;
            Ok(n * 10)
        })
}

/// Records a run of everything.
async fn record_everything(dir: &TempDir, world: &World, stay: Duration) {
    let app = everything_agents(world).stay_in_memory(stay);
    let app = app.open(dir.path()).await.unwrap();
    let run = app.start("everything", "r", &20).await.unwrap();
    app.signal("r", "number", &7).await.unwrap();
    for approval in ["publish#1", "pay#1"] {
        until_journal(&app, "r", |journal| {
            journal.approvals.contains_key(approval)
        })
        .await;
        app.approve("r", approval, "ann").await.unwrap();
    }
    let result: u64 = run.result().await.unwrap();
    assert_eq!(result, 1 + 2 + 5 + 7 + 1 + 30 + 46);
    app.close().await.unwrap();
}

#[tokio::test]
async fn unchanged_code_replays_the_same_and_does_nothing() {
    for stay in [Duration::from_secs(1), Duration::ZERO] {
        let (dir, world) = (TempDir::new("same"), World::default());
        record_everything(&dir, &world, stay).await;
        world.reset();
        let app = everything_agents(&world).open(dir.path()).await.unwrap();
        let before = (head(&app, "r").await, app.store().position().await.unwrap());
        let replayed = app.replay("r").await.unwrap();
        assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
        assert!(replayed.steps >= 22, "{replayed}");
        let after = (head(&app, "r").await, app.store().position().await.unwrap());
        assert_eq!(before, after);
        assert!(world.is_empty());
        app.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_open_for_reading_is_enough() {
    let (dir, world) = (TempDir::new("reading"), World::default());
    record_everything(&dir, &world, Duration::from_secs(1)).await;
    world.reset();
    let store = Options::new().open_read_only(dir.path()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let replayed = everything_agents(&world).replay_store(&store, "r").await;
    assert_eq!(replayed.unwrap().verdict, ReplayVerdict::SameEnd);
    let none = everything_agents(&world).replay_store(&store, "x").await;
    assert!(none.unwrap_err().to_string().contains("no run"));
    assert!(world.is_empty());
}

/// At every event of the record: what is there is replayed, and then it ends.
#[tokio::test]
async fn a_record_that_ends_in_the_middle_is_replayed_up_to_there() {
    let (dir, world) = (TempDir::new("middle"), World::default());
    record_everything(&dir, &world, Duration::from_secs(1)).await;
    let origin = Options::new().open_read_only(dir.path()).unwrap();
    let run = StreamId::run("r").unwrap();
    let events = origin.read(&run, 1, 10_000).await.unwrap();
    world.reset();
    let copies: Vec<NewEvent> = events.iter().map(|r| copy_of(&r.event)).collect();
    let part = TempDir::new("part");
    let store: Arc<dyn Store> = Arc::new(Options::new().open(part.path()).unwrap());
    for count in 1..=events.len() {
        let name = format!("r-{count}");
        let run = StreamId::run(&name).unwrap();
        let append = Append::to(run, copies[..count].to_vec());
        store.append(vec![append]).await.unwrap();
        let replayed = everything_agents(&world).replay_store(&store, &name).await;
        let replayed = replayed.unwrap();
        assert!(replayed.is_same(), "after event {count}: {replayed}");
        let ended = count == events.len();
        assert_eq!(
            replayed.verdict == ReplayVerdict::SameEnd,
            ended,
            "{replayed}"
        );
    }
    assert!(world.is_empty());
}

/// The same event for a run of another name. Its keys, and so what was approved, stay those of `r`.
fn copy_of(event: &Event) -> NewEvent {
    let payload = |payload: &Option<Payload>| {
        payload.as_ref().map(|payload| {
            let Body::Inline(bytes) = &payload.body else {
                panic!("large");
            };
            NewPayload::new(payload.content_type.clone(), bytes.clone())
        })
    };
    let mut copy = NewEvent::new(event.kind.clone()).with_fields(event.fields.clone());
    if event.kind == Kind::RunCreated {
        copy.fields = copy.fields.with(dalsegno::record::created::LINEAGE, "r");
    }
    (copy.input, copy.output) = (payload(&event.input), payload(&event.output));
    copy
}

/// A loop that does one step a turn.
fn counting(world: &World, step_by: u64, turns: u64) -> Builder {
    let world = world.clone();
    let turn = move |ctx: Ctx, state: u64| {
        let world = world.clone();
        async move {
            let more: u64 = ctx
                .tool("count")
                .input(&state)
                .call(|_| {
                    world.did("count");
                    async { Ok(1) }
                })
                .await?;
            ctx.checkpoint("counted", &(state + more)).await?;
            match state + more >= turns {
                true => Ok(Turn::Done(state + more)),
                false => Ok(Turn::Continue(state + more * step_by)),
            }
        }
    };
    Dalsegno::builder().loop_agent("loop", |n: u64| n, turn)
}

#[tokio::test]
async fn a_loop_is_replayed_from_its_first_turn_with_every_state() {
    let (dir, world) = (TempDir::new("loop"), World::default());
    let app = counting(&world, 1, 5).open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, u64>("loop", "r", &0).await.unwrap(), 5);
    world.reset();
    let replayed = app.replay("r").await.unwrap();
    assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
    assert_eq!((replayed.steps, replayed.turns), (10, 4));
    let last = app.replay_last_turn("r").await.unwrap();
    assert_eq!(last.verdict, ReplayVerdict::SameEnd, "{last}");
    assert_eq!((last.steps, last.turns), (2, 0));
    app.close().await.unwrap();

    let app = counting(&world, 2, 5).open(dir.path()).await.unwrap();
    let replayed = app.replay("r").await.unwrap();
    let (then, now) = ("ends turn 1 with 1", "ends turn 1 with 2");
    diverges(&replayed, DivergenceKind::Turn, then, now);
    app.close().await.unwrap();
    let app = counting(&world, 1, 3).open(dir.path()).await.unwrap();
    let replayed = app.replay("r").await.unwrap();
    diverges(
        &replayed,
        DivergenceKind::Turn,
        "ends turn 3 with 3",
        "ends with 3",
    );
    app.close().await.unwrap();
    let app = counting(&world, 1, 9).open(dir.path()).await.unwrap();
    let replayed = app.replay("r").await.unwrap();
    diverges(
        &replayed,
        DivergenceKind::Beyond,
        "ends with 5",
        "ends turn 5 with 5",
    );
    assert!(world.is_empty());
}

#[tokio::test]
async fn runs_that_wait_or_are_in_doubt_or_were_cancelled_are_the_same_as_far_as_they_go() {
    let dir = TempDir::new("unfinished");
    let agent = |ctx: Ctx, what: String| async move {
        let one: u64 = ctx.tool("one").call(|_| async { Ok(1) }).await?;
        match what.as_str() {
            "signal" => ctx.signal::<u64>("never").await,
            "doubt" => {
                ctx.tool("doubt")
                    .call(|_| async { Err(Failure::new("?")) })
                    .await
            }
            "asks" => {
                ctx.approval("ask").await?;
                Ok(1)
            }
            "fails" => Err(Failure::terminal("as always")),
            "panics" => panic!("as always"),
            _ => Ok(one),
        }
    };
    let builder = || Dalsegno::builder().agent("a", agent);
    let app = builder()
        .stay_in_memory(Duration::ZERO)
        .open(dir.path())
        .await
        .unwrap();
    let whats = ["signal", "doubt", "asks", "panics", "fails", "ends"];
    for what in whats {
        app.start("a", what, &what).await.unwrap();
    }
    app.start("a", "cancelled", "signal").await.unwrap();
    // Each is written down when it can do nothing more.
    for what in ["signal", "doubt", "asks", "panics", "cancelled"] {
        until_journal(&app, what, |journal| journal.status == Status::Checkpointed).await;
    }
    app.cancel("cancelled", "enough").await.unwrap();
    until_journal(&app, "cancelled", |journal| journal.status.is_final()).await;
    for (run, next) in [
        ("signal", "signal never#1"),
        ("cancelled", "signal never#1"),
        ("doubt", "tool doubt#1"),
        ("asks", "approval ask#1"),
        ("panics", "it panics, as recorded: as always"),
    ] {
        let replayed = app.replay(run).await.unwrap();
        let ReplayVerdict::RecordEnds { next: found } = &replayed.verdict else {
            panic!("{replayed}");
        };
        assert_eq!(
            (found.as_slice(), replayed.steps),
            (&[next.to_owned()][..], 1)
        );
    }
    for run in ["fails", "ends"] {
        let replayed = app.replay(run).await.unwrap();
        assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
    }
    // Open steps that the code does not come to any more.
    app.close().await.unwrap();
    let changed = |ctx: Ctx, _: String| async move {
        let one: u64 = ctx.tool("one").call(|_| async { Ok(1) }).await?;
        Ok(one)
    };
    let app = Dalsegno::builder().agent("a", changed).session("other");
    let store: Arc<dyn Store> = Arc::new(Options::new().open_read_only(dir.path()).unwrap());
    for (run, step) in [("doubt", "doubt#1"), ("asks", "ask#1")] {
        let replayed = app.replay_store(&store, run).await.unwrap();
        diverges(&replayed, DivergenceKind::Step, step, "ends with 1");
    }
}

/// Branches without scopes of their own, a step that loses a race, and a timer that fires for
/// nobody: the record has them in an order that only this code makes.
#[tokio::test]
async fn what_was_done_beside_each_other_is_handed_out_in_its_order() {
    let dir = TempDir::new("beside");
    let wait = |ctx: Ctx, name: &'static str, ms: u64| async move {
        ctx.tool(name)
            .read_only()
            .call(move |_| async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(ms)
            })
            .await
    };
    let agent = move |ctx: Ctx, (): ()| async move {
        let slow = async {
            wait(ctx.clone(), "a", 20).await?;
            wait(ctx.clone(), "b", 1).await
        };
        let fast = async {
            wait(ctx.clone(), "c", 1).await?;
            wait(ctx.clone(), "d", 1).await
        };
        let (b, d) = tokio::join!(slow, fast);
        let sleep = ctx.sleep(Duration::from_millis(10));
        let first = tokio::select! {
            biased;
            got = wait(ctx.clone(), "quick", 1) => got?,
            _ = sleep => 0,
        };
        // The timer of the sleep fires meanwhile.
        let long = wait(ctx.clone(), "long", 40).await?;
        tokio::task::yield_now().await;
        let last = wait(ctx.clone(), "last", 1).await?;
        Ok(b? + d? + first + long + last)
    };
    let app = Dalsegno::builder()
        .agent("a", agent)
        .open(dir.path())
        .await
        .unwrap();
    app.run::<_, u64>("a", "r", &()).await.unwrap();
    let replayed = app.replay("r").await.unwrap();
    assert_eq!(replayed.verdict, ReplayVerdict::SameEnd, "{replayed}");
}

/// A child that would be given something else than what is recorded, also in recovery.
#[tokio::test]
async fn a_child_with_another_input_is_found() {
    let dir = TempDir::new("child-input");
    let builder = |input: u64| {
        Dalsegno::builder()
            .agent("child", |_: Ctx, n: u64| async move { Ok(n) })
            .agent("p", move |ctx: Ctx, (): ()| async move {
                let got: u64 = ctx.child("child", &input).await?;
                let _: u64 = ctx.signal("go on").await?;
                Ok(got)
            })
    };
    let app = builder(1)
        .stay_in_memory(Duration::ZERO)
        .open(dir.path())
        .await
        .unwrap();
    app.start("p", "r", &()).await.unwrap();
    until_waiting(&app, "r", "signal go on").await;
    app.close().await.unwrap();
    let app = builder(2).open(dir.path()).await.unwrap();
    let replayed = app.replay("r").await.unwrap();
    diverges(&replayed, DivergenceKind::Input, "child#1", "child#1");
    app.signal("r", "go on", &1).await.unwrap();
    let run = app.find("r").await.unwrap();
    let stopped = run.result::<u64>().await.unwrap_err();
    assert!(stopped.to_string().contains("child#1"), "{stopped}");
}

#[tokio::test]
async fn a_shadow_replay_sums_up_what_it_finds() {
    let (dir, world) = (TempDir::new("shadow"), World::default());
    let agent = |add: u64, world: &World| {
        let world = world.clone();
        Dalsegno::builder().agent("a", move |ctx: Ctx, n: u64| {
            let world = world.clone();
            async move {
                let a = step(&ctx, &world, "first", n).await?;
                // Only some runs come here.
                match n % 3 {
                    0 => step(&ctx, &world, "second", a + add).await,
                    _ => Ok(a),
                }
            }
        })
    };
    let app = agent(0, &world).agent("other", |_: Ctx, (): ()| async { Ok(()) });
    let app = app.open(dir.path()).await.unwrap();
    for n in 0..12_u64 {
        app.run::<_, u64>("a", &format!("run-{n:02}"), &n)
            .await
            .unwrap();
    }
    app.run::<_, ()>("other", "another", &()).await.unwrap();
    app.close().await.unwrap();
    world.reset();

    let store: Arc<dyn Store> = Arc::new(Options::new().open_read_only(dir.path()).unwrap());
    let query = RunQuery {
        agent: Some("a".to_owned()),
        ..RunQuery::default()
    };
    let clean = shadow_replay(&agent(0, &world), &store, &query)
        .await
        .unwrap();
    assert_eq!((clean.same, clean.steps, clean.runs()), (12, 16, 12));
    clean.assert_clean();

    let all = RunQuery::default();
    let report = shadow_replay(&agent(7, &world), &store, &all)
        .await
        .unwrap();
    assert_eq!((report.same, report.diverged, report.runs()), (8, 4, 13));
    assert_eq!(report.not_registered.get("other"), Some(&1));
    assert_eq!(report.groups.len(), 1);
    assert_eq!(
        report.groups[0].runs,
        ["run-00", "run-03", "run-06", "run-09"]
    );
    assert!(!report.is_clean());
    let text = report.to_string();
    assert!(
        text.contains("13 runs") && text.contains("second#1"),
        "{text}"
    );
    assert!(
        text.contains("run-03") && text.contains("\"other\""),
        "{text}"
    );
    assert!(world.is_empty());
}

/// What the code wants is known only while there is the code.
#[tokio::test]
async fn recovery_says_what_the_code_does_instead() {
    let dir = TempDir::new("instead");
    let builder = |name: &'static str| {
        let agent = move |ctx: Ctx, (): ()| async move {
            let n: u64 = ctx.tool(name).call(|_| async { Ok(1) }).await?;
            ctx.signal::<u64>("go on").await.map(|more| n + more)
        };
        let builder = Dalsegno::builder().agent("a", agent);
        builder.stay_in_memory(Duration::ZERO)
    };
    let app = builder("old").open(dir.path()).await.unwrap();
    app.start("a", "r", &()).await.unwrap();
    until_waiting(&app, "r", "signal go on").await;
    app.close().await.unwrap();
    let app = builder("new").open(dir.path()).await.unwrap();
    app.signal("r", "go on", &1).await.unwrap();
    let run = app.find("r").await.unwrap();
    let stopped = run.result::<u64>().await.unwrap_err().to_string();
    assert!(stopped.contains("recorded tool old#1"), "{stopped}");
    assert!(stopped.contains("now it wants tool new#1"), "{stopped}");
}
