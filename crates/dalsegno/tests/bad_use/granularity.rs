//! Corners of the granularities: large outcomes, failures, mixtures and changes of it.

use std::time::Duration;

use dalsegno::testkit::{CrashEverywhere, World};
use dalsegno::{Builder, Ctx, Effect, Failure, Granularity, Result};

use super::machine::{Machine, Outside, agent, tool};

const ALL: [Granularity; 3] = [
    Granularity::ToolCall,
    Granularity::PlanStep,
    Granularity::Decision,
];

/// A plan step with large outcomes, failures, values, waits and another plan step in it.
async fn corners(ctx: Ctx, world: World) -> Result<String> {
    let outer = world.clone();
    let inside = ctx.plan_step("plan", move |ctx| async move {
        let read = |ctx: &Ctx, name: &'static str, bytes: usize| {
            let world = outer.clone();
            ctx.tool(name).read_only().call(move |_| {
                let world = world.clone();
                async move {
                    world.read(name).await;
                    match bytes {
                        0 => Err(Failure::terminal("there is nothing")),
                        bytes => Ok("x".repeat(bytes)),
                    }
                }
            })
        };
        let large = read(&ctx, "large", 100_000).await?;
        let failed = read(&ctx, "nothing", 0).await.unwrap_err();
        let id = ctx.random().await?;
        ctx.sleep(Duration::from_secs(60)).await?;
        let small = read(&ctx, "small", 3).await?;
        let again = outer.clone();
        ctx.plan_step("inner", move |ctx| async move {
            let step = ctx.tool("write").idempotent().input(&id);
            step.call(|call| {
                let world = again.clone();
                async move {
                    world.idempotent_given("write", call.key(), &id).await;
                    Ok(())
                }
            })
            .await
        })
        .await?;
        let caught: Result<()> = ctx
            .plan_step("fails", |ctx| async move {
                let nothing: Result<()> = ctx
                    .tool("fails")
                    .read_only()
                    .call(|_| async { Err(Failure::terminal("no")) })
                    .await;
                nothing
            })
            .await;
        Ok(format!(
            "{} {} {small} {}",
            large.len(),
            failed.message(),
            caught.is_err()
        ))
    });
    let inside = inside.await?;
    let chosen = ctx.decide("choice", inside.len()).await?;
    let step = ctx.tool("send").input(&chosen);
    step.call(|call| {
        let (world, inside) = (world.clone(), inside.clone());
        async move {
            world.once_giving("send", call.key(), &inside).await;
            Ok(inside)
        }
    })
    .await
}

#[test]
fn corners_killed_at_every_moment() {
    for granularity in ALL {
        let register = |builder: Builder, world: World| {
            builder.agent("a", move |ctx: Ctx, (): ()| {
                let world = world.clone();
                async move { corners(ctx, world).await }
            })
        };
        let test = CrashEverywhere::new("a", &(), register).granularity(granularity);
        let report = test.run_to("100000 there is nothing xxx true");
        println!("{granularity:?}: {}", report.unwrap());
    }
}

/// A run that was begun with one granularity goes on with another.
#[test]
fn changing_the_granularity_between_processes() {
    for first in ALL {
        for second in ALL {
            let (machine, outside) = (Machine::new(), Outside::default());
            let builder = |granularity| {
                let code = |ctx: Ctx, outside: Outside, _: String| async move {
                    tool(&ctx, &outside, Effect::ReadOnly, "read", "1").await?;
                    let inside = outside.clone();
                    ctx.plan_step("plan", |ctx| async move {
                        tool(&ctx, &inside, Effect::ReadOnly, "look", "2").await?;
                        tool(&ctx, &inside, Effect::Once, "send", "3").await?;
                        tool(&ctx, &inside, Effect::ReadOnly, "slow", "4").await?;
                        tool(&ctx, &inside, Effect::Once, "send", "5").await
                    })
                    .await
                };
                agent(Builder::new(), "a", &outside, code).granularity(granularity)
            };
            outside.falls_silent("slow");
            let process = machine.start(builder(first));
            process.begin("a", "r", "");
            assert_eq!(outside.about("send"), ["3"]);
            process.kill();
            outside.answers();
            let process = machine.start(builder(second));
            assert_eq!(
                process.end::<String>("r").unwrap(),
                "5",
                "{first:?} {second:?}"
            );
            assert_eq!(outside.about("send"), ["3", "5"], "{first:?} {second:?}");
        }
    }
}

/// What is kept back is on disk at the latest when the run waits, ends or is closed.
#[test]
fn a_run_that_waits_has_kept_nothing_back() {
    for granularity in ALL {
        let (machine, outside) = (Machine::new(), Outside::default());
        let builder = || {
            let code = |ctx: Ctx, outside: Outside, _: String| async move {
                tool(&ctx, &outside, Effect::ReadOnly, "read", "1").await?;
                ctx.signal::<()>("go").await?;
                tool(&ctx, &outside, Effect::ReadOnly, "read", "2").await
            };
            agent(Builder::new(), "a", &outside, code).granularity(granularity)
        };
        let process = machine.start(builder());
        process.begin("a", "r", "");
        process.power_cut();
        let process = machine.start(builder());
        let app = process.app.clone();
        process
            .now(async move { app.signal("r", "go", &()).await })
            .unwrap();
        assert_eq!(process.end::<String>("r").unwrap(), "2");
        assert_eq!(outside.count("read"), 2, "{granularity:?}");
    }
}
