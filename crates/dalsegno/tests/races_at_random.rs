//! Races of everything that can race, with crashes at random: whoever has won, has won.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;
#[path = "common/slow.rs"]
mod slow;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dalsegno::memory::{NewDocument, Query, RankingConfig};
use dalsegno::testkit::SimRuntime;
use dalsegno::{
    AttentionKind, Builder, Call, Ctx, Durability, Effect, Granularity, Result, Runtime,
};
use dalsegno_store::{Store, StreamId};
use machine::{Machine, Outside, Process, agent, tool};
use slow::{Dice, Slow};

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

/// Whoever can race.
fn racer(ctx: &Ctx, clock: &SimRuntime, dice: &mut Dice, name: String, kinds: u64) -> Racer {
    let time = Duration::from_millis(10 * (1 + dice.below(20)));
    let kind = dice.below(kinds);
    let name = format!("{name}.{kind}");
    let memory = ctx.memory("kitchen");
    let future: Pin<Box<dyn Future<Output = Result<()>> + Send>> = match kind {
        0 => Box::pin(ctx.sleep(time)),
        1 => {
            let child = ctx.child::<(), _>("child", &time.as_millis().to_string());
            Box::pin(child.into_future())
        }
        2 => {
            let signal = ctx.signal::<()>("go").timeout(time);
            Box::pin(async move { signal.await.map(drop) })
        }
        3 | 4 => {
            let clock = clock.clone();
            let effect = match dice.below(2) {
                0 => Effect::ReadOnly,
                _ => Effect::Idempotent,
            };
            let step = ctx.tool("act").effect(effect);
            Box::pin(step.call(move |_| {
                let until_us = clock.now_us() + time.as_micros() as u64;
                let busy = clock.sleep_until(until_us);
                async move {
                    busy.await;
                    Ok(())
                }
            }))
        }
        5 | 6 => {
            let added = memory.add(NewDocument::fact(format!("{name} heats the oven")));
            Box::pin(async move { added.await.map(drop) })
        }
        _ => {
            let found = memory.search(&Query::words("oven"), &RankingConfig::default());
            Box::pin(async move { found.await.map(drop) })
        }
    };
    (name, future)
}

/// Steps one after the other, of which there are none before somebody looks.
fn chain(ctx: &Ctx, clock: &SimRuntime, dice: &mut Dice, name: String) -> Racer {
    let (ctx, clock) = (ctx.clone(), clock.clone());
    let name = format!("{name}.chain");
    let mut links = Vec::new();
    for link in 0..3 {
        let time = Duration::from_millis(10 * dice.below(10));
        let effect = match dice.below(2) {
            0 => Effect::ReadOnly,
            _ => Effect::Idempotent,
        };
        links.push((format!("{name}.{link}"), effect, time));
    }
    let steps = async move {
        for (step, effect, time) in links {
            let clock = clock.clone();
            let step = ctx.tool(&step).effect(effect).call(move |_| {
                let busy = clock.sleep_until(clock.now_us() + time.as_micros() as u64);
                async move {
                    busy.await;
                    Ok(())
                }
            });
            step.await?;
        }
        Ok(())
    };
    (name, Box::pin(steps))
}

/// Races as the seed has them. It notes who won, each time.
async fn races(
    ctx: Ctx,
    clock: SimRuntime,
    outside: Outside,
    seed: u64,
    recorded: Recorded,
) -> Result<String> {
    let mut dice = Dice(seed);
    let mut racers: Vec<Racer> = Vec::new();
    let mut won = Vec::new();
    for round in 0..6 {
        for _ in 0..2 + dice.below(2) {
            let at = dice.below(racers.len() as u64 + 1) as usize;
            let name = format!("{round}.{}", racers.len());
            let racer = match recorded.chains && dice.below(2) == 0 {
                true => chain(&ctx, &clock, &mut dice, name),
                false => racer(&ctx, &clock, &mut dice, name, recorded.kinds),
            };
            racers.insert(at, racer);
        }
        won.push(first_of(&mut racers).await?);
        // A replay does not know how long code is busy with something of its own.
        if seed % 2 == 1 && dice.below(2) == 0 {
            let until_us = clock.now_us() + 1000 * dice.below(90);
            clock.sleep_until(until_us).await;
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

/// How the runs of a test are recorded.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// So many kinds of racers.
    kinds: u64,
    /// Whether steps one after the other race, too.
    chains: bool,
    durability: Durability,
    granularity: Granularity,
    /// An answer of the store takes less than so long.
    answer_ms: u64,
}

/// What something comes to that takes time, if it comes to anything.
fn later<T: Send + 'static>(
    machine: &Machine,
    process: &Process,
    what: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let result: Arc<Mutex<Option<T>>> = Arc::default();
    let told = Arc::clone(&result);
    machine.runtime.spawn(Box::pin(async move {
        *told.lock().unwrap() = Some(what.await);
    }));
    process.pass(Duration::from_secs(20));
    result.lock().unwrap().take()
}

/// What is recorded of the run, for people.
fn shown(process: &Process, store: &Arc<Slow>) -> String {
    let store = Arc::clone(store);
    store.takes(0);
    let run = StreamId::run("r").unwrap();
    let events = process.now(async move { store.events(&run, 1, 1000).await });
    let lines = events.unwrap().into_iter().map(|event| {
        let (at, kind) = (event.sequence, event.kind);
        format!("{at} {kind:?} {:?}", event.fields)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn check(seed: u64, recorded: Recorded) {
    let machine = Machine::new().shuffled(seed);
    let outside = Outside::default();
    let start = |life: u64| {
        let clock = machine.runtime.clone();
        let code = move |ctx: Ctx, outside: Outside, _: String| {
            races(ctx, clock.clone(), outside, seed, recorded)
        };
        let builder = Builder::new()
            .durability(recorded.durability)
            .granularity(recorded.granularity);
        let builder = agent(builder, "a", &outside, code);
        let builder = agent(builder, "child", &outside, |ctx, _, time| async move {
            let time = time.parse().unwrap_or_default();
            ctx.sleep(Duration::from_millis(time)).await
        });
        let clock = &machine.runtime;
        clock.set_now_us(clock.now_us() + 1000);
        let store = Slow::new(Arc::new(machine.open_store()), clock, seed ^ (life << 32));
        let process = machine.start_on(builder, store.clone(), "a process");
        (process, store)
    };
    let mut dice = Dice(!seed);
    let (mut process, mut store) = start(0);
    process.begin("a", "r", "");
    for life in 1..9 {
        store.takes(recorded.answer_ms);
        process.pass(Duration::from_millis(dice.below(200)));
        match dice.below(2) {
            0 => process.power_cut(),
            _ => process.kill(),
        }
        (process, store) = start(life);
    }
    store.takes(recorded.answer_ms);
    let app = process.app.clone();
    let ended = later(&machine, &process, async move {
        app.find("r").await?.result::<String>().await
    });
    let won = match ended {
        Some(Ok(won)) => won,
        other => {
            let record = shown(&process, &store);
            panic!("seed {seed} {recorded:?}: {other:?}\n{record}");
        }
    };
    // Whoever won at any time has won.
    for told in outside.about("note") {
        assert!(
            won.starts_with(&told),
            "seed {seed} {recorded:?}: {told:?}, then {won:?}"
        );
    }
    let app = process.app.clone();
    let replayed = later(&machine, &process, async move { app.replay("r").await });
    let replayed = replayed.unwrap().unwrap();
    let is_same = replayed.is_same() || seed % 2 == 1;
    if !is_same {
        let record = shown(&process, &store);
        panic!("seed {seed} {recorded:?}: {replayed:?}\n{record}");
    }
}

const BOUNDED: Durability = Durability::Bounded(Duration::from_millis(20));

#[test]
fn whatever_races_and_whenever_the_process_dies_the_same_ones_win() {
    for seed in 0..seeds() {
        check(
            seed,
            Recorded {
                kinds: 5,
                chains: false,
                durability: BOUNDED,
                granularity: Granularity::ToolCall,
                answer_ms: 0,
            },
        );
    }
}

#[test]
fn on_a_store_that_answers_late() {
    for seed in 0..seeds() {
        for durability in [BOUNDED, Durability::Strict] {
            check(
                seed,
                Recorded {
                    kinds: 5,
                    chains: false,
                    durability,
                    granularity: Granularity::ToolCall,
                    answer_ms: 40,
                },
            );
        }
    }
}

#[test]
fn with_what_is_asked_of_a_memory_and_given_to_it() {
    for seed in 0..seeds() {
        for (durability, answer_ms) in [
            (BOUNDED, 0),
            (Durability::Strict, 0),
            (BOUNDED, 40),
            (Durability::Strict, 40),
        ] {
            check(
                seed,
                Recorded {
                    kinds: 9,
                    chains: false,
                    durability,
                    granularity: Granularity::ToolCall,
                    answer_ms,
                },
            );
        }
    }
}

#[test]
fn with_outcomes_that_are_kept_back() {
    for seed in 0..seeds() {
        for answer_ms in [0, 40] {
            check(
                seed,
                Recorded {
                    kinds: 9,
                    chains: false,
                    durability: BOUNDED,
                    granularity: Granularity::Decision,
                    answer_ms,
                },
            );
        }
    }
}

#[test]
fn with_steps_that_there_are_only_when_somebody_looks() {
    for seed in 0..seeds() {
        for (durability, granularity, answer_ms) in [
            (BOUNDED, Granularity::ToolCall, 0),
            (BOUNDED, Granularity::Decision, 0),
            (Durability::Strict, Granularity::ToolCall, 0),
            (BOUNDED, Granularity::ToolCall, 40),
            (Durability::Strict, Granularity::ToolCall, 40),
        ] {
            check(
                seed,
                Recorded {
                    kinds: 5,
                    chains: true,
                    durability,
                    granularity,
                    answer_ms,
                },
            );
        }
    }
}

/// What has won is on its way to the code when a step of who loses is begun: it is not come to again.
#[test]
fn with_a_loser_that_begins_something_while_it_loses() {
    let mut begun = 0;
    for seed in 0..seeds() {
        let (machine, outside) = (Machine::new(), Outside::default());
        outside.falls_silent("begun");
        let start = |life: u64| {
            let clock = machine.runtime.clone();
            let code = move |ctx: Ctx, outside: Outside, _: String| {
                let busy = |ms: u64| clock.sleep_until(clock.now_us() + 1000 * ms);
                let (wins, looks) = (busy(100), busy(100 + seed % 60));
                async move {
                    let won = ctx.tool("wins").once().call(once(wins));
                    let won = async { won.await.map(|()| "the first".to_owned()) };
                    let lost = async {
                        looks.await;
                        tool(&ctx, &outside, Effect::Idempotent, "begun", "").await
                    };
                    let won = tokio::select! {
                        biased;
                        won = won => won?,
                        lost = lost => lost?,
                    };
                    tool(&ctx, &outside, Effect::Idempotent, "note", &won).await
                }
            };
            let builder = agent(Builder::new().durability(BOUNDED), "a", &outside, code);
            let clock = &machine.runtime;
            clock.set_now_us(clock.now_us() + 1000);
            let store = Slow::new(Arc::new(machine.open_store()), clock, seed ^ (life << 32));
            (machine.start_on(builder, store.clone(), "a process"), store)
        };
        let (process, store) = start(0);
        process.begin("a", "r", "");
        store.takes(40);
        // It dies when it has noted what won, or before.
        process.pass(Duration::from_millis(100 + 7 * (seed % 30)));
        process.kill();
        let (process, _) = start(1);
        begun += u64::from(outside.count("begun") == 1);
        process.pass(Duration::from_secs(1));
        match process.journal("r").attention {
            Some(attention) => assert_eq!(attention.kind, AttentionKind::InDoubt, "seed {seed}"),
            None => assert_eq!(
                process.end::<String>("r").unwrap(),
                "the first",
                "seed {seed}"
            ),
        }
    }
    assert!(begun > 0, "it never began");
}

/// A step's code that takes some time, the first time.
fn once(
    time: dalsegno::BoxFuture<'static, ()>,
) -> impl FnMut(Call) -> dalsegno::BoxFuture<'static, Result<()>> + Send {
    let mut time = Some(time);
    move |_| {
        let time = time.take();
        Box::pin(async move {
            if let Some(time) = time {
                time.await;
            }
            Ok(())
        })
    }
}

/// More of them, for who looks for more: `RACES=1000`.
fn seeds() -> u64 {
    let more = std::env::var("RACES").ok().and_then(|n| n.parse().ok());
    more.unwrap_or(60)
}
