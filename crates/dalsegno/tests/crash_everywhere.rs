//! The 12-step agent, killed at every moment, in all granularities and durabilities.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use dalsegno::testkit::{CrashEverywhere, World};
use dalsegno::{Builder, Ctx, Durability, Gate, Granularity, Probe, Result};

/// What the agents under test share: each tool asks the world.
#[derive(Clone)]
struct Tools {
    ctx: Ctx,
    world: World,
}

impl Tools {
    async fn read(&self, ctx: &Ctx, name: &'static str) -> Result<String> {
        let world = self.world.clone();
        ctx.tool(name)
            .read_only()
            .call(move |_| {
                let world = world.clone();
                async move {
                    world.read(name).await;
                    Ok(format!("{name} says so"))
                }
            })
            .await
    }

    async fn model(&self, ctx: &Ctx, name: &'static str, prompt: String) -> Result<String> {
        let world = self.world.clone();
        ctx.model(name)
            .input(&prompt)
            .call(move |call| {
                let (world, prompt) = (world.clone(), prompt.clone());
                async move {
                    world.read(name).await;
                    call.tokens(prompt.len() as u64, 7);
                    Ok(format!("{name}({prompt})"))
                }
            })
            .await
    }

    async fn write(&self, ctx: &Ctx, name: &'static str, content: &str) -> Result<()> {
        let world = self.world.clone();
        ctx.tool(name)
            .idempotent()
            .input(content)
            .call(move |call| {
                let world = world.clone();
                async move {
                    world.idempotent(name, call.key()).await;
                    Ok(())
                }
            })
            .await
    }

    async fn notify(&self, ctx: &Ctx, probe: bool) -> Result<u64> {
        let world = self.world.clone();
        let mut step = ctx.tool("notify").once().input("it is done");
        if probe {
            let asked = world.clone();
            step = step.probe(move |call| {
                let happened = asked.happened("notify", call.key());
                async move {
                    Ok(match happened {
                        Some(result) => Probe::Happened(result),
                        None => Probe::DidNotHappen,
                    })
                }
            });
        }
        step.call(move |call| {
            let world = world.clone();
            async move {
                world.once_giving("notify", call.key(), &200).await;
                Ok(200)
            }
        })
        .await
    }
}

async fn twelve_steps(ctx: Ctx, world: World, probe: bool) -> Result<String> {
    let tools = Tools {
        ctx: ctx.clone(),
        world,
    };
    let weather = tools.read(&ctx, "weather").await?;
    let plan = tools.model(&ctx, "plan", weather).await?;
    let route = ctx.decide("route", plan.len() % 2 == 0).await?;
    let research = {
        let tools = tools.clone();
        ctx.plan_step("research", move |ctx| async move {
            let stock = tools.read(&ctx, "stock").await?;
            let thought = tools.model(&ctx, "think", stock).await?;
            tools.write(&ctx, "write notes", &thought).await?;
            let news = tools.read(&ctx, "news").await?;
            tools
                .model(&ctx, "conclude", format!("{thought} {news}"))
                .await
        })
        .await?
    };
    tools.write(&ctx, "write report", &research).await?;
    let answer = ctx.approval("publish").of(&research).await?;
    ctx.sleep(Duration::from_secs(2 * 86_400)).await?;
    let status = tools.notify(&ctx, probe).await?;
    let last = tools.model(&tools.ctx, "summary", research).await?;
    Ok(format!("{route} {} {status} {last}", answer.is_approved()))
}

fn register(probe: bool) -> impl Fn(Builder, World) -> Builder + Send + Sync + 'static {
    move |builder, world| {
        builder.agent("twelve", move |ctx, (): ()| {
            twelve_steps(ctx, world.clone(), probe)
        })
    }
}

fn durabilities() -> [Durability; 2] {
    let bound = Duration::from_millis(20);
    [Durability::Strict, Durability::Bounded(bound)]
}

fn everywhere(granularity: Granularity) {
    for durability in durabilities() {
        for probe in [true, false] {
            let test = CrashEverywhere::new("twelve", &(), register(probe));
            let test = test.granularity(granularity).durability(durability);
            match test.run() {
                Ok(report) => println!("{granularity:?} {durability:?} probe {probe}: {report}"),
                Err(broken) => panic!("{granularity:?} {durability:?} probe {probe}: {broken}"),
            }
        }
    }
}

#[test]
fn per_tool_call() {
    everywhere(Granularity::ToolCall);
}

#[test]
fn per_plan_step() {
    everywhere(Granularity::PlanStep);
}

#[test]
fn per_decision() {
    everywhere(Granularity::Decision);
}

#[test]
fn and_again_while_it_recovers() {
    let test = CrashEverywhere::new("twelve", &(), register(false)).and_again(12);
    match test.run() {
        Ok(report) => println!("{report}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn tools_with_an_approval_of_their_own() {
    let register = |builder: Builder, world: World| {
        builder.agent("gated", move |ctx: Ctx, amount: u64| {
            let world = world.clone();
            async move {
                let gate = Gate::new().expires_in(Duration::from_secs(86_400));
                ctx.tool("pay")
                    .input(&amount)
                    .approval(gate)
                    .call(move |call| {
                        let world = world.clone();
                        async move {
                            world.once_giving("pay", call.key(), &amount).await;
                            Ok(amount)
                        }
                    })
                    .await
            }
        })
    };
    let report = CrashEverywhere::new("gated", &12, register);
    let report = report.run_to(&12);
    println!("{}", report.unwrap());
}

/// A loop whose turns have branches and a child.
fn with_children(builder: Builder, world: World) -> Builder {
    let in_child = world.clone();
    let child = move |ctx: Ctx, n: u64| {
        let tools = Tools {
            ctx: ctx.clone(),
            world: in_child.clone(),
        };
        async move {
            tools.write(&ctx, "child writes", &n.to_string()).await?;
            ctx.sleep(Duration::from_secs(60)).await?;
            Ok(n * 2)
        }
    };
    let turn = move |ctx: Ctx, (left, sum): (u64, u64)| {
        let tools = Tools {
            ctx: ctx.clone(),
            world: world.clone(),
        };
        async move {
            if left == 0 {
                return Ok(dalsegno::Turn::Done(sum));
            }
            let (one, two) = (ctx.branch("one"), ctx.branch("two"));
            let (a, b) = (tools.clone(), tools.clone());
            let (a, b) = tokio::join!(
                async move {
                    a.write(&one, "same", "a").await?;
                    a.read(&one, "again").await
                },
                async move {
                    b.write(&two, "same", "b").await?;
                    b.read(&two, "again").await
                }
            );
            let (a, b) = (a?, b?);
            let child: u64 = ctx.child("child", &left).await?;
            Ok(dalsegno::Turn::Continue((
                left - 1,
                sum + child + (a.len() + b.len()) as u64,
            )))
        }
    };
    builder
        .agent("child", child)
        .loop_agent("loop", |turns: u64| (turns, 0_u64), turn)
}

#[test]
fn loops_children_and_branches() {
    for durability in durabilities() {
        let test = CrashEverywhere::new("loop", &3, with_children).durability(durability);
        match test.shuffled().run() {
            Ok(report) => println!("{durability:?}: {report}"),
            Err(broken) => panic!("{durability:?}: {broken}"),
        }
    }
}

/// A model that never says the same twice: then nobody may have seen what it said before it is
/// recorded.
fn moody(builder: Builder, world: World) -> Builder {
    builder.agent("moody", move |ctx: Ctx, (): ()| {
        let world = world.clone();
        async move {
            let inside = world.clone();
            let said: u64 = ctx
                .plan_step("ask", move |ctx| async move {
                    let asked = inside.clone();
                    let said: u64 = ctx
                        .model("mood")
                        .call(move |_| {
                            let world = asked.clone();
                            async move {
                                world.read("mood").await;
                                Ok(world.arrived("mood"))
                            }
                        })
                        .await?;
                    for name in ["book", "note"] {
                        let world = inside.clone();
                        ctx.tool(name)
                            .idempotent()
                            .input(&said)
                            .call(move |call| {
                                let world = world.clone();
                                async move {
                                    world.idempotent_given(name, call.key(), &said).await;
                                    Ok(())
                                }
                            })
                            .await?;
                    }
                    Ok(said)
                })
                .await?;
            Ok(said)
        }
    })
}

#[test]
fn what_a_model_said_is_recorded_before_anybody_outside_can_see_it() {
    for granularity in [
        Granularity::ToolCall,
        Granularity::PlanStep,
        Granularity::Decision,
    ] {
        for durability in durabilities() {
            let test = CrashEverywhere::new("moody", &(), moody).any_result();
            let test = test.granularity(granularity).durability(durability);
            match test.run() {
                Ok(report) => println!("{granularity:?} {durability:?}: {report}"),
                Err(broken) => panic!("{granularity:?} {durability:?}: {broken}"),
            }
        }
    }
}

#[test]
fn every_broken_rule_is_found() {
    use dalsegno::Rule;
    for rule in Rule::ALL {
        let test = match rule {
            Rule::RecordWhatItDependsOn => CrashEverywhere::new("moody", &(), moody)
                .any_result()
                .granularity(Granularity::PlanStep),
            Rule::OneEnd => CrashEverywhere::new("loop", &2, with_children),
            Rule::OneWrite => CrashEverywhere::new("cook", &(), with_memory),
            _ => CrashEverywhere::new("twelve", &(), register(false)),
        };
        match test.break_rule(rule).run() {
            Ok(report) => panic!("{rule:?} was broken, and nothing was found: {report}"),
            Err(broken) => println!("{rule:?}: {} (died at {:?})", broken.what, broken.died_at),
        }
    }
}

/// Adds, searches, corrects, retracts and forgets, and tells the world what it found: whatever a process dies
/// at, the memory has each document once and the search found the same.
fn with_memory(builder: Builder, world: World) -> Builder {
    use dalsegno::memory::{NewDocument, Query, RankingConfig};
    builder.agent("cook", move |ctx: Ctx, (): ()| {
        let world = world.clone();
        async move {
            let kitchen = ctx.memory("kitchen");
            let ranking = RankingConfig::default();
            let oven = NewDocument::fact("The oven takes 12 minutes.").source("manual");
            let oven = kitchen.add(oven).await?;
            let wrong = kitchen.add(NewDocument::fact("The oven is cold.")).await?;
            let found = kitchen.search(&Query::words("oven"), &ranking).await?;
            let inside = world.clone();
            let seen = ctx
                .plan_step("tell", move |ctx| async move {
                    let kitchen = ctx.memory("kitchen");
                    let tools = Tools {
                        ctx: ctx.clone(),
                        world: inside.clone(),
                    };
                    let new = NewDocument::fact("The new oven takes 7 minutes.");
                    let new = kitchen.correct(oven, new).await?;
                    let seen = kitchen.get(new).await?;
                    let seen = seen.content.unwrap().text;
                    tools.write(&ctx, "tell", &seen).await?;
                    Ok(seen)
                })
                .await?;
            kitchen.retract(wrong, "it is hot").await?;
            let secret = kitchen.add(NewDocument::fact("The safe is open.")).await?;
            kitchen.forget(&[secret], "it is a secret").await?;
            let last = kitchen.search(&Query::words("oven"), &ranking).await?;
            let hits = |found: dalsegno::memory::Found| -> Vec<(u64, i64, String)> {
                let hits = found.hits.iter();
                let hits = hits.map(|hit| (hit.id.0, hit.score, hit.text().to_owned()));
                hits.collect()
            };
            let version = kitchen.version().await?;
            Ok((hits(found), hits(last), seen, version.sequence))
        }
    })
}

#[test]
fn memories() {
    for granularity in [
        Granularity::ToolCall,
        Granularity::PlanStep,
        Granularity::Decision,
    ] {
        for durability in durabilities() {
            let test = CrashEverywhere::new("cook", &(), with_memory).and_again(3);
            let test = test.granularity(granularity).durability(durability);
            match test.run() {
                Ok(report) => println!("{granularity:?} {durability:?}: {report}"),
                Err(broken) => panic!("{granularity:?} {durability:?}: {broken}"),
            }
        }
    }
}
