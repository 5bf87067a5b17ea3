//! A run that raced things takes the same way again after a crash, whatever came to its end when.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
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

/// A number that looks random, from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // As in `splitmix64`.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

type Racer = (String, Pin<Box<dyn Future<Output = Result<()>> + Send>>);

/// The first in the list that is done; it leaves the list.
async fn first_of(racers: &mut Vec<Racer>) -> Result<String> {
    use std::task::Poll;
    std::future::poll_fn(|context| {
        for at in 0..racers.len() {
            if let Poll::Ready(done) = racers[at].1.as_mut().poll(context) {
                let (name, _) = racers.remove(at);
                return Poll::Ready(done.map(|()| name));
            }
        }
        Poll::Pending
    })
    .await
}

/// Races of everything that can race, as the seed has it. It notes who won, each time.
async fn races(ctx: Ctx, clock: SimRuntime, outside: Outside, seed: u64) -> Result<String> {
    let mut dice = Dice(seed);
    let mut racers: Vec<Racer> = Vec::new();
    let mut won = Vec::new();
    for round in 0..6 {
        for _ in 0..2 + dice.below(2) {
            let time = Duration::from_millis(10 * (1 + dice.below(20)));
            let at = dice.below(racers.len() as u64 + 1) as usize;
            let kind = dice.below(4);
            let name = format!("{round}.{}.{kind}", racers.len());
            let racer: Racer = match kind {
                0 => (name, Box::pin(ctx.sleep(time))),
                1 => {
                    let child = ctx.child::<(), _>("child", &time.as_millis().to_string());
                    (name, Box::pin(child.into_future()))
                }
                2 => {
                    let signal = ctx.signal::<()>("go").timeout(time);
                    let wait = async move { signal.await.map(drop) };
                    (name, Box::pin(wait))
                }
                _ => {
                    let clock = clock.clone();
                    let effect = match dice.below(2) {
                        0 => Effect::ReadOnly,
                        _ => Effect::Idempotent,
                    };
                    let step = ctx.tool("act").effect(effect);
                    let act = step.call(move |_| {
                        let busy = busy(&clock, time);
                        async move {
                            busy.await;
                            Ok(())
                        }
                    });
                    (name, Box::pin(act))
                }
            };
            racers.insert(at, racer);
        }
        won.push(first_of(&mut racers).await?);
        // A replay does not know how long code is busy with something of its own.
        if seed % 2 == 1 && dice.below(2) == 0 {
            busy(&clock, Duration::from_millis(dice.below(90))).await;
        }
        if dice.below(2) == 0 {
            racers.truncate(1);
        }
        if dice.below(3) > 0 {
            tool(&ctx, &outside, Effect::Idempotent, "note", &won.join(" ")).await?;
        }
    }
    Ok(won.join(" "))
}

#[test]
fn whatever_races_and_whenever_the_process_dies_the_same_ones_win() {
    for seed in 0..60 {
        let machine = Machine::new().shuffled(seed);
        let outside = Outside::default();
        let builder = || {
            let clock = machine.runtime.clone();
            let code = move |ctx: Ctx, outside: Outside, _: String| {
                races(ctx, clock.clone(), outside, seed)
            };
            let builder = agent(Builder::new(), "a", &outside, code);
            agent(builder, "child", &outside, |ctx, _, time| async move {
                let time = time.parse().unwrap_or_default();
                ctx.sleep(Duration::from_millis(time)).await
            })
        };
        let mut dice = Dice(!seed);
        let mut process = machine.start(builder());
        process.begin("a", "r", "");
        for _ in 0..8 {
            process.pass(Duration::from_millis(dice.below(200)));
            match dice.below(2) {
                0 => process.power_cut(),
                _ => process.kill(),
            }
            process = machine.start(builder());
        }
        let ended = process.end::<String>("r");
        let won = ended.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // Whoever won at any time has won.
        for told in outside.about("note") {
            assert!(
                won.starts_with(&told),
                "seed {seed}: {told:?}, then {won:?}"
            );
        }
        let app = process.app.clone();
        let replayed: Arc<Mutex<Option<_>>> = Arc::default();
        let result = Arc::clone(&replayed);
        machine.runtime.spawn(Box::pin(async move {
            *result.lock().unwrap() = Some(app.replay("r").await.unwrap());
        }));
        process.pass(20 * SECOND);
        let replayed = replayed.lock().unwrap().take().unwrap();
        let is_same = replayed.is_same() || seed % 2 == 1;
        assert!(is_same, "seed {seed}: {replayed:?}");
    }
}
