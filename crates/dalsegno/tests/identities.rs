//! Parallel branches keep their identities and keys, whatever the order in which they are scheduled
//! and wherever the process dies.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use dalsegno::testkit::{CrashEverywhere, SimRuntime, World};
use dalsegno::{Builder, Ctx, Granularity, Result, Runtime};
use machine::{Machine, Outside};

/// A tool that takes a random time.
async fn slow(
    ctx: &Ctx,
    outside: &Outside,
    time: &SimRuntime,
    name: &str,
    at: &str,
) -> Result<u64> {
    let step = ctx.tool(name).idempotent().input(at);
    step.call(|call| {
        let (outside, time) = (outside.clone(), time.clone());
        async move {
            time.sleep_until(time.now_us() + time.random() % 1000).await;
            outside.ask(name, call.key(), at).await;
            Ok(at.len() as u64)
        }
    })
    .await
}

/// Branches in branches, the same names everywhere, and children in them.
async fn nested(ctx: Ctx, outside: Outside, time: SimRuntime) -> Result<u64> {
    let cities = ctx.each("city", ["Oslo", "Rome", "Oslo"], |ctx, city| {
        let (outside, time) = (outside.clone(), time.clone());
        async move {
            slow(&ctx, &outside, &time, "look", city).await?;
            let pages = ctx.each("page", [1, 2, 3], |ctx, page| {
                let (outside, time) = (outside.clone(), time.clone());
                async move {
                    let at = format!("{city} {page}");
                    let (a, b) = (ctx.branch("half"), ctx.branch("half"));
                    let (a, b) = tokio::join!(
                        slow(&a, &outside, &time, "look", &at),
                        slow(&b, &outside, &time, "look", &at),
                    );
                    Ok(a? + b?)
                }
            });
            let pages: u64 = pages.await?.into_iter().sum();
            let child: u64 = ctx.child("child", &city.to_owned()).await?;
            ctx.plan_step("sum", |ctx| async move {
                let sum = slow(&ctx, &outside, &time, "look", city).await?;
                Ok(sum + pages + child)
            })
            .await
        }
    });
    let (left, right) = (ctx.branch("left"), ctx.branch("right"));
    let (cities, left, right) = tokio::join!(
        cities,
        slow(&left, &outside, &time, "look", "left"),
        slow(&right, &outside, &time, "look", "right"),
    );
    Ok(cities?.into_iter().sum::<u64>() + left? + right?)
}

fn agents(outside: &Outside, time: &SimRuntime) -> Builder {
    let (seen, clock) = (outside.clone(), time.clone());
    let builder = Builder::new().agent("nested", move |ctx: Ctx, _: String| {
        nested(ctx, seen.clone(), clock.clone())
    });
    let (seen, clock) = (outside.clone(), time.clone());
    builder.agent("child", move |ctx: Ctx, city: String| {
        let (outside, time) = (seen.clone(), clock.clone());
        async move {
            let (a, b) = (ctx.branch("a"), ctx.branch("b"));
            let (a, b) = tokio::join!(
                slow(&a, &outside, &time, "look", &city),
                slow(&b, &outside, &time, "look", &city),
            );
            Ok(a? + b?)
        }
    })
}

/// What was seen of a run: its steps with what went in, and what the world was asked under which key.
#[derive(Debug, PartialEq)]
struct Trace {
    result: u64,
    steps: BTreeMap<String, BTreeSet<String>>,
    keys: BTreeSet<String>,
}

/// Plays a run in an order of its own; the process dies after so many polls, again and again.
fn play(seed: u64, granularity: Granularity, dies_after: &[u64]) -> Trace {
    let (machine, outside) = (Machine::new().shuffled(seed), Outside::default());
    let builder = || agents(&outside, &machine.runtime).granularity(granularity);
    for polls in dies_after {
        let process = machine.start(builder());
        let app = process.app.clone();
        process
            .now(async move { app.start("nested", "n", "").await.map(drop) })
            .unwrap();
        let left = Cell::new(*polls);
        while left.get() > 0 {
            machine.runtime.run(&|| {
                left.set(left.get().saturating_sub(1));
                left.get() == 0
            });
            if !machine.runtime.advance() {
                break;
            }
        }
        process.power_cut();
    }
    let process = machine.start(builder());
    let app = process.app.clone();
    process
        .now(async move { app.start("nested", "n", "").await.map(drop) })
        .unwrap();
    let result = process.end("n").unwrap();
    let mut steps = BTreeMap::new();
    let children = ["city-1", "city-2", "city-3"].map(|city| format!("n.{city}.child-1"));
    for run in children.into_iter().chain(["n".to_owned()]) {
        let journal = process.journal(&run);
        let ids = journal.steps.iter().map(|(id, _)| format!("{id}"));
        steps.insert(run, ids.collect());
    }
    let keys = outside.keys("look");
    Trace {
        result,
        steps,
        keys,
    }
}

#[test]
fn every_order_gives_the_same_identities_and_keys() {
    let first = play(0, Granularity::ToolCall, &[]);
    // 3 × (look, 3 × 2 halves, sum, 2 in the child) + 2 beside them.
    assert_eq!(first.keys.len(), 3 * (1 + 6 + 1 + 2) + 2);
    for seed in 1..150 {
        assert_eq!(play(seed, Granularity::ToolCall, &[]), first, "seed {seed}");
    }
}

#[test]
fn every_order_with_deaths_gives_the_same_identities_and_keys() {
    let first = play(0, Granularity::ToolCall, &[]);
    for seed in 1..200 {
        let deaths = [seed * 7 % 151, seed * 13 % 97, seed % 41];
        assert_eq!(
            play(seed, Granularity::ToolCall, &deaths),
            first,
            "seed {seed}"
        );
    }
}

#[test]
fn granularity_changes_what_is_recorded_and_not_what_it_is_called() {
    let first = play(0, Granularity::ToolCall, &[]);
    for granularity in [Granularity::PlanStep, Granularity::Decision] {
        for seed in 1..40 {
            let trace = play(seed, granularity, &[seed * 11 % 131]);
            assert_eq!(trace.keys, first.keys, "{granularity:?}, seed {seed}");
            assert_eq!(trace.result, first.result, "{granularity:?}, seed {seed}");
        }
    }
}

/// Branches killed at every moment, each process with another order.
#[test]
fn branches_killed_at_every_moment() {
    async fn branches(ctx: Ctx, world: World) -> Result<u64> {
        let touch = |ctx: Ctx, number: u64| {
            let world = world.clone();
            async move {
                for _ in 0..2 {
                    let step = ctx.tool("touch").idempotent().input(&number);
                    step.call(|call| {
                        let world = world.clone();
                        async move {
                            world.idempotent_given("touch", call.key(), &number).await;
                            Ok(())
                        }
                    })
                    .await?;
                }
                Ok(number)
            }
        };
        let (left, right) = (ctx.branch("side"), ctx.branch("side"));
        let inside = touch;
        let (left, right, many) = tokio::join!(
            touch(left, 1),
            right.each("part", [2, 3], touch),
            ctx.each("part", [4, 5], move |ctx, number| {
                let touch = inside;
                async move { ctx.plan_step("plan", |ctx| touch(ctx, number)).await }
            }),
        );
        Ok(left? + right?.len() as u64 + many?.len() as u64)
    }
    let register = |builder: Builder, world: World| {
        builder.agent("branches", move |ctx: Ctx, (): ()| {
            let world = world.clone();
            async move { branches(ctx, world).await }
        })
    };
    for granularity in [Granularity::ToolCall, Granularity::Decision] {
        let test = CrashEverywhere::new("branches", &(), register).granularity(granularity);
        let report = test.shuffled().and_again(3).run_to(&5);
        println!("{granularity:?}: {}", report.unwrap());
    }
}

/// A branch that waits for the others to be replayed goes on when they are, also if a third one
/// waits for something from outside: the run does not leave memory before that.
#[test]
fn a_branch_that_can_go_on_is_not_put_away() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        machine::agent(
            Builder::new(),
            "a",
            &outside,
            |ctx, outside, _| async move {
                use dalsegno::Effect::Once;
                let (a, b, c) = (ctx.branch("a"), ctx.branch("b"), ctx.branch("c"));
                let (a, b, c) = tokio::join!(
                    a.sleep(std::time::Duration::from_secs(1000)),
                    async {
                        b.signal::<()>("b").await?;
                        machine::tool(&b, &outside, Once, "b", "").await
                    },
                    async {
                        machine::tool(&c, &outside, Once, "c", "").await?;
                        machine::tool(&c, &outside, Once, "c", "").await
                    },
                );
                a?;
                Ok(b? + &c?)
            },
        )
    };
    let process = machine.start(builder());
    process.begin("a", "r", "");
    process.power_cut();
    let process = machine.start(builder());
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "b", &()).await })
        .unwrap();
    process.settle();
    assert_eq!(
        outside.count("b"),
        1,
        "it does not wait for the signal of another branch"
    );
}
