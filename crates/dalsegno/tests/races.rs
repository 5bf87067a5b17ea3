//! A run that raced things takes the same way again after a crash, whatever came to its end when.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use dalsegno::testkit::SimRuntime;
use dalsegno::{Builder, Ctx, Effect, Result, Runtime};
use machine::{Machine, Outside, agent, tool};

const SECOND: Duration = Duration::from_secs(1);

/// Time of the code's own, which its run knows nothing of.
fn busy(clock: &SimRuntime, time: Duration) -> impl Future<Output = ()> + Send + use<> {
    clock.sleep_until(clock.now_us() + time.as_micros() as u64)
}

/// A read that takes some time.
fn read(
    ctx: &Ctx,
    clock: &SimRuntime,
    time: Duration,
    text: &'static str,
) -> Pin<Box<dyn Future<Output = Result<String>> + Send>> {
    let clock = clock.clone();
    Box::pin(ctx.tool("read").read_only().call(move |_| {
        let busy = busy(&clock, time);
        async move {
            busy.await;
            Ok(text.to_owned())
        }
    }))
}

/// What the code of a test is given.
type Raced = Pin<Box<dyn Future<Output = Result<String>> + Send>>;

/// Runs the code, which tells how its race went; then the process dies, and the next one has to come
/// to the same end.
fn check(code: fn(Ctx, SimRuntime, Outside) -> Raced, told: &str) {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        let clock = machine.runtime.clone();
        let code = move |ctx: Ctx, outside: Outside, _: String| {
            let clock = clock.clone();
            async move {
                let told = code(ctx.clone(), clock, outside.clone()).await?;
                tool(&ctx, &outside, Effect::Once, "note", &told).await?;
                ctx.signal::<()>("go").await?;
                tool(&ctx, &outside, Effect::Once, "note", &told).await
            }
        };
        let builder = agent(Builder::new(), "a", &outside, code);
        agent(builder, "child", &outside, |ctx, _, _| async move {
            ctx.sleep(2 * SECOND).await?;
            Ok("the child".to_owned())
        })
    };
    let process = machine.start(builder());
    process.begin("a", "r", "");
    process.pass(100 * SECOND);
    assert_eq!(outside.about("note"), [told]);
    process.power_cut();
    let process = machine.start(builder());
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", &()).await })
        .unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), told);
    assert_eq!(outside.about("note"), [told, told]);
}

#[test]
fn a_time_that_comes_before_the_next_step_is_recorded_has_lost() {
    check(
        |ctx, clock, _| {
            Box::pin(async move {
                let won = tokio::select! {
                    biased;
                    _ = ctx.sleep(2 * SECOND) => "the sleep".to_owned(),
                    read = read(&ctx, &clock, SECOND, "the read") => read?,
                };
                // Nothing is recorded while the time comes.
                busy(&clock, 5 * SECOND).await;
                Ok(won)
            })
        },
        "the read",
    );
}

#[test]
fn a_child_that_ends_before_the_next_step_is_recorded_has_lost() {
    check(
        |ctx, clock, _| {
            Box::pin(async move {
                let won = tokio::select! {
                    biased;
                    child = ctx.child::<String, _>("child", "").into_future() => child?,
                    read = read(&ctx, &clock, SECOND, "the read") => read?,
                };
                busy(&clock, 5 * SECOND).await;
                Ok(won)
            })
        },
        "the read",
    );
}

#[test]
fn a_deadline_counts_the_same_rounds_again() {
    check(
        |ctx, clock, _| {
            Box::pin(async move {
                let mut deadline = Box::pin(ctx.sleep(5 * SECOND / 2));
                let mut rounds = 0;
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut deadline => break,
                        read = read(&ctx, &clock, SECOND, "the read") => drop(read?),
                    }
                    rounds += 1;
                    // In the second of these the deadline comes.
                    busy(&clock, SECOND).await;
                }
                Ok(format!("{rounds} rounds"))
            })
        },
        "1 rounds",
    );
}

#[test]
fn what_is_too_late_for_its_deadline_is_too_late_again() {
    check(
        |ctx, clock, outside| {
            Box::pin(async move {
                let mut read = read(&ctx, &clock, 5 * SECOND, "the read");
                let first = tokio::select! {
                    biased;
                    read = &mut read => read?,
                    _ = ctx.sleep(SECOND) => "the sleep".to_owned(),
                };
                tool(&ctx, &outside, Effect::Once, "tell", &first).await?;
                // It is not let go of, and comes to its end later.
                let second = read.await?;
                Ok(format!("{first}, then {second}"))
            })
        },
        "the sleep, then the read",
    );
}

/// A step of another service, which does not answer. There is none before somebody looks.
async fn silent(ctx: &Ctx, outside: &Outside) -> Result<String> {
    outside.falls_silent("silent");
    tool(ctx, outside, Effect::Idempotent, "silent", "").await
}

#[test]
fn work_that_was_under_way_at_its_deadline_is_let_go_of_again() {
    check(
        |ctx, clock, outside| {
            Box::pin(async move {
                let work = async {
                    read(&ctx, &clock, SECOND, "the read").await?;
                    silent(&ctx, &outside).await
                };
                tokio::select! {
                    biased;
                    _ = ctx.sleep(5 * SECOND) => Ok("the sleep".to_owned()),
                    worked = work => worked,
                }
            })
        },
        "the sleep",
    );
}

#[test]
fn what_has_won_wins_again_where_nobody_has_looked_at_the_others_yet() {
    check(
        |ctx, clock, outside| {
            Box::pin(async move {
                tokio::select! {
                    biased;
                    read = async { read(&ctx, &clock, SECOND, "the read").await } => read,
                    other = silent(&ctx, &outside) => other,
                    _ = async { ctx.sleep(5 * SECOND).await } => Ok("the sleep".to_owned()),
                    _ = async { ctx.approval("no").await } => Ok("a person".to_owned()),
                    _ = async { ctx.signal::<()>("no").timeout(5 * SECOND).await } => {
                        Ok("a signal".to_owned())
                    }
                }
            })
        },
        "the read",
    );
}

#[test]
fn a_child_that_cannot_be_started_is_seen_before_what_follows() {
    check(
        |ctx, _, outside| {
            Box::pin(async move {
                let missing = ctx.child::<String, _>("missing", "").await;
                let told = missing.unwrap_err().to_string();
                tool(&ctx, &outside, Effect::ReadOnly, "tell", &told).await?;
                Ok("no child".to_owned())
            })
        },
        "no child",
    );
}

#[test]
fn of_two_times_the_one_that_was_seen_first_is_first_again() {
    check(
        |ctx, clock, _| {
            Box::pin(async move {
                let won = tokio::select! {
                    biased;
                    _ = ctx.sleep(2 * SECOND) => "the long sleep",
                    _ = ctx.sleep(SECOND) => "the short sleep",
                };
                busy(&clock, 5 * SECOND).await;
                Ok(won.to_owned())
            })
        },
        "the short sleep",
    );
}

#[test]
fn of_two_times_that_came_while_the_code_was_busy_the_one_it_took_is_taken_again() {
    check(
        |ctx, clock, outside| {
            Box::pin(async move {
                let mut long = Box::pin(ctx.sleep(SECOND / 4));
                let mut short = Box::pin(ctx.sleep(SECOND / 5));
                tokio::select! {
                    biased;
                    _ = &mut long => {}
                    _ = &mut short => {}
                    read = read(&ctx, &clock, SECOND / 10, "the read") => drop(read?),
                }
                busy(&clock, SECOND / 2).await;
                let won = tokio::select! {
                    biased;
                    _ = &mut long => "the long sleep",
                    _ = &mut short => "the short sleep",
                };
                tool(&ctx, &outside, Effect::Once, "tell", won).await?;
                Ok(won.to_owned())
            })
        },
        "the long sleep",
    );
}
