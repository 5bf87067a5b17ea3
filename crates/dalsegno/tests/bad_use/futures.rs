//! Futures that are dropped, never awaited, spawned, or take too long.

use std::future::IntoFuture;
use std::time::Duration;

use dalsegno::{AttentionKind, Builder, Ctx, Effect, Error, Failure, FailureKind, Retry, Runtime};

use super::machine::{Machine, Outside, agent, tool};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_once_step_that_is_dropped_under_way_is_in_doubt_and_not_lost() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let pay = tool(&ctx, &outside, Effect::Once, "pay", "7");
        tokio::select! {
            biased;
            paid = pay => paid,
            _ = ctx.sleep(10 * SECOND) => Ok("too slow".to_owned()),
        }
    };
    let builder = || agent(Builder::new(), "a", &outside, code);
    outside.falls_silent("pay");
    let process = machine.start(builder());
    process.begin("a", "r", "");
    let doubt = process.end::<String>("r").unwrap_err();
    assert!(matches!(doubt, Error::NeedsAttention { .. }), "{doubt}");
    let (kind, reason) = process.attention("r");
    assert_eq!(kind, AttentionKind::InDoubt, "{reason}");
    assert!(
        reason.contains("pay#1") && reason.contains("dropped"),
        "{reason}"
    );
    process.power_cut();
    outside.answers();
    let process = machine.start(builder());
    process.settle();
    assert_eq!(outside.count("pay"), 1);
    let app = process.app.clone();
    process
        .now(async move { app.resolve_happened("r", "pay#1", "paid", "ann").await })
        .unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), "paid");
    assert_eq!(outside.count("pay"), 1);
}

#[test]
fn a_read_that_is_dropped_under_way_may_be_forgotten() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let read = tool(&ctx, &outside, Effect::ReadOnly, "read", "7");
        let read = tokio::select! {
            biased;
            read = read => read?,
            _ = ctx.sleep(10 * SECOND) => "too slow".to_owned(),
        };
        tool(&ctx, &outside, Effect::Once, "note", &read).await?;
        ctx.signal::<()>("go").await?;
        Ok(read)
    };
    let builder = || agent(Builder::new(), "a", &outside, code);
    outside.falls_silent("read");
    let process = machine.start(builder());
    process.begin("a", "r", "");
    process.pass(20 * SECOND);
    assert_eq!(outside.about("note"), ["too slow"]);
    // Now it would answer at once; but the run has gone the other way.
    outside.answers();
    process.power_cut();
    let process = machine.start(builder());
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", &()).await })
        .unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), "too slow");
    assert_eq!((outside.count("note"), outside.count("read")), (1, 1));
}

#[test]
fn step_futures_that_are_never_awaited_do_nothing_and_confuse_nothing() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        drop(tool(&ctx, &outside, Effect::Once, "pay", "never"));
        drop(ctx.sleep(SECOND));
        drop(ctx.signal::<()>("go"));
        drop(ctx.child::<String, _>("a", "x"));
        drop(ctx.approval("sure"));
        drop(ctx.now());
        let paid = tool(&ctx, &outside, Effect::Once, "pay", "yes").await?;
        ctx.signal::<()>("go").await?;
        let after = tool(&ctx, &outside, Effect::Once, "pay", "again").await?;
        Ok(paid + " " + &after)
    };
    let builder = || agent(Builder::new(), "a", &outside, code);
    let process = machine.start(builder());
    process.begin("a", "r", "");
    process.power_cut();
    let process = machine.start(builder());
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", &()).await })
        .unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), "yes again");
    assert_eq!(outside.about("pay"), ["yes", "again"]);
    assert!(process.journal("r").approvals.is_empty());
}

#[test]
fn steps_that_take_too_long() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let time = machine.runtime.clone();
    let builder = Builder::new().agent("a", {
        let outside = outside.clone();
        move |ctx: Ctx, which: String| {
            let (outside, time) = (outside.clone(), time.clone());
            async move {
                let effect = match which.as_str() {
                    "once" => Effect::Once,
                    _ => Effect::ReadOnly,
                };
                let retry = Retry::times(3).first(SECOND);
                let step = ctx
                    .tool(&which)
                    .effect(effect)
                    .timeout(5 * SECOND)
                    .retry(retry);
                step.call(|call| {
                    let (outside, time, which) = (outside.clone(), time.clone(), which.clone());
                    async move {
                        outside.ask(&which, call.key(), "").await;
                        let slow = which != "read" || call.attempt() < 3;
                        if slow {
                            time.sleep_until(time.now_us() + 60_000_000).await;
                        }
                        Ok(call.attempt())
                    }
                })
                .await
            }
        }
    });
    let process = machine.start(builder);
    for which in ["read", "always", "once"] {
        process.begin("a", which, which);
    }
    assert_eq!(process.end::<u64>("read").unwrap(), 3);
    let failed = process.end::<u64>("always").unwrap_err();
    let Error::RunFailed { failure, .. } = failed else {
        panic!("{failed}");
    };
    assert_eq!(failure.kind(), FailureKind::TimedOut);
    assert_eq!(failure.step(), Some("always#1"));
    assert_eq!(outside.count("always"), 3);
    let doubt = process.end::<u64>("once").unwrap_err();
    assert!(matches!(doubt, Error::NeedsAttention { .. }), "{doubt}");
    assert!(doubt.to_string().contains("longer than 5s"), "{doubt}");
    assert_eq!(outside.count("once"), 1);
}

/// Tasks of the user's own, each with a branch of the run: identities follow from the branch, so it
/// does not matter which task comes first, in the first life and in all others.
#[test]
fn tasks_that_the_users_code_spawns() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(4).enable_all().build().unwrap();
    let dir = std::env::temp_dir().join(format!("dalsegno-spawn-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    let outside = Outside::default();
    let builder = || {
        agent(
            Builder::new(),
            "a",
            &outside,
            |ctx, outside, _| async move {
                let tasks: Vec<_> = (0..8)
                    .map(|number| {
                        let (ctx, outside) = (ctx.branch("task"), outside.clone());
                        tokio::spawn(async move {
                            let about = number.to_string();
                            tool(&ctx, &outside, Effect::Once, "one", &about).await?;
                            let signal = format!("go {number}");
                            ctx.signal::<()>(&signal).await?;
                            tool(&ctx, &outside, Effect::Once, "two", &about).await
                        })
                    })
                    .collect();
                let mut all = Vec::new();
                for task in tasks {
                    all.push(task.await??);
                }
                Ok(all.join(" "))
            },
        )
    };
    runtime.block_on(async {
        for round in 0..10 {
            let run = format!("r{round}");
            let app = builder().open(&dir).await.unwrap();
            app.start("a", &run, "").await.unwrap();
            while outside.count("one") < 8 * (round + 1) {
                tokio::task::yield_now().await;
            }
            app.close().await.unwrap();
            let app = builder().open(&dir).await.unwrap();
            for number in (0..8).rev() {
                app.signal(&run, &format!("go {number}"), &())
                    .await
                    .unwrap();
            }
            let handle = app.find(&run).await.unwrap();
            let result: String = handle.result().await.unwrap();
            assert_eq!(result, "0 1 2 3 4 5 6 7", "{run}");
            app.close().await.unwrap();
        }
    });
    drop(std::fs::remove_dir_all(&dir));
    for name in ["one", "two"] {
        assert_eq!(
            (outside.count(name), outside.keys(name).len()),
            (80, 80),
            "{name}"
        );
    }
}

/// A task that outlives its run can do nothing any more.
#[test]
fn a_task_that_outlives_the_run_executes_nothing() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let time = machine.runtime.clone();
    let spawning = outside.clone();
    let builder = Builder::new().agent("a", move |ctx: Ctx, _: String| {
        let (outside, time) = (spawning.clone(), time.clone());
        async move {
            let (late, later) = (ctx.branch("late"), time.clone());
            time.spawn(Box::pin(async move {
                later.sleep_until(later.now_us() + 60_000_000).await;
                drop(tool(&late, &outside, Effect::Once, "late", "x").await);
            }));
            Ok("done".to_owned())
        }
    });
    let process = machine.start(builder);
    process.begin("a", "r", "");
    assert_eq!(process.end::<String>("r").unwrap(), "done");
    let head = process.head("r");
    process.pass(120 * SECOND);
    assert_eq!((outside.count("late"), process.head("r")), (0, head));
}

/// One step is in doubt while another is under way: that one is finished, and no second doubt is made.
#[test]
fn a_once_step_beside_one_in_doubt_is_finished_first() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let clock = machine.runtime.clone();
    let code = move |ctx: Ctx, outside: Outside, _: String| {
        let clock = clock.clone();
        async move {
            let pay = ctx.tool("pay").call(|call| {
                let (outside, clock) = (outside.clone(), clock.clone());
                async move {
                    outside.ask("pay", call.key(), "").await;
                    clock.sleep_until(clock.now_us() + 5_000_000).await;
                    Ok("paid".to_owned())
                }
            });
            let send = ctx.tool("send").call(|_| {
                let sent = clock.sleep_until(clock.now_us() + 1_000_000);
                async move {
                    sent.await;
                    Err::<String, _>(Failure::new("connection reset"))
                }
            });
            let (paid, sent) = tokio::join!(pay, send);
            Ok(format!("{} {}", paid?, sent?))
        }
    };
    let process = machine.start(agent(Builder::new(), "a", &outside, code));
    process.begin("a", "r", "");
    process.end::<String>("r").unwrap_err();
    assert!(process.attention("r").1.contains("send#1"));
    let app = process.app.clone();
    let said = async move { app.resolve_happened("r", "send#1", "sent", "ann").await };
    process.now(said).unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), "paid sent");
    assert_eq!(outside.count("pay"), 1);
}

/// Two things race, and the one that lost comes to its end later, while the run goes on. At the next
/// replay both are there; the run must take the way that it took.
#[test]
fn who_lost_a_race_does_not_win_it_at_the_next_replay() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        let code = |ctx: Ctx, outside: Outside, which: String| async move {
            let won = match which.as_str() {
                "sleep" => tokio::select! {
                    biased;
                    _ = ctx.sleep(100 * SECOND) => "the sleep".to_owned(),
                    read = tool(&ctx, &outside, Effect::ReadOnly, "read", "the read") => read?,
                },
                _ => tokio::select! {
                    biased;
                    child = ctx.child::<String, _>("child", "the child").into_future() => child?,
                    _ = ctx.sleep(10 * SECOND) => "the sleep".to_owned(),
                },
            };
            tool(&ctx, &outside, Effect::Once, "note", &won).await?;
            ctx.signal::<()>("go").await?;
            tool(&ctx, &outside, Effect::Once, "note", &won).await
        };
        let builder = agent(Builder::new(), "a", &outside, code);
        agent(builder, "child", &outside, |ctx, _, text| async move {
            ctx.sleep(100 * SECOND).await?;
            Ok(text)
        })
    };
    for (run, won) in [("sleep", "the read"), ("child", "the sleep")] {
        let process = machine.start(builder());
        process.begin("a", run, run);
        process.pass(50 * SECOND);
        process.power_cut();
        let process = machine.start(builder());
        process.pass(100 * SECOND);
        process.power_cut();
        let process = machine.start(builder());
        let app = process.app.clone();
        process
            .now(async move { app.signal(run, "go", &()).await })
            .unwrap();
        assert_eq!(process.end::<String>(run).unwrap(), won);
        process.power_cut();
    }
    let won = ["the read", "the read", "the sleep", "the sleep"];
    assert_eq!(outside.about("note"), won);
}
