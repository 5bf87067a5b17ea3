//! Budgets: used up before a step and never by losing one, raised, and shared with children.

use std::time::Duration;

use dalsegno::{AttentionKind, Budget, Builder, Ctx, Effect, Failure, Granularity, Retry, Start};

use super::machine::{Machine, Outside, Process, agent, tool};

/// Five model calls of 10 tokens and 100 millionths, with a day in between.
fn models(outside: &Outside) -> Builder {
    agent(
        Builder::new(),
        "models",
        outside,
        |ctx, outside, _| async move {
            for _ in 0..5 {
                let step = ctx.model("ask");
                step.call(|call| {
                    let outside = outside.clone();
                    async move {
                        outside.ask("ask", call.key(), "").await;
                        call.tokens(6, 4);
                        call.cost_micros(100);
                        Ok(())
                    }
                })
                .await?;
                ctx.sleep(Duration::from_secs(86_400)).await?;
            }
            Ok("done".to_owned())
        },
    )
}

fn start(process: &Process, agent: &'static str, run: &'static str, budget: Budget) {
    let app = process.app.clone();
    process
        .now(async move {
            app.start_with(agent, run, "", Start::new().budget(budget))
                .await
                .map(drop)
        })
        .unwrap();
}

fn raise(process: &Process, run: &'static str, budget: Budget) {
    let app = process.app.clone();
    process
        .now(async move { app.set_budget(run, budget).await })
        .unwrap();
}

#[test]
fn each_limit_pauses_the_run_and_raising_it_goes_on() {
    let day = Duration::from_secs(86_400);
    let cases = [
        (
            "steps",
            Budget::default().steps(2),
            Budget::default().steps(9),
        ),
        (
            "tokens",
            Budget::default().tokens(20),
            Budget::default().tokens(99),
        ),
        (
            "cost",
            Budget::default().cost_micros(200),
            Budget::default().cost_micros(999),
        ),
        (
            "time",
            Budget::default().wall(2 * day),
            Budget::default().wall(9 * day),
        ),
    ];
    for granularity in [Granularity::ToolCall, Granularity::Decision] {
        for (word, small, large) in cases {
            let (machine, outside) = (Machine::new(), Outside::default());
            let builder = || models(&outside).granularity(granularity);
            let process = machine.start(builder());
            start(&process, "models", "r", small);
            process.end::<String>("r").unwrap_err();
            let (kind, reason) = process.attention("r");
            assert_eq!(kind, AttentionKind::Budget, "{reason}");
            assert!(
                reason.contains(word) && reason.contains("raise it"),
                "{word}: {reason}"
            );
            assert_eq!(outside.count("ask"), 2, "{word}");
            process.power_cut();
            // Used up stays used up, and clearing it alone does not help.
            let process = machine.start(builder());
            let app = process.app.clone();
            process
                .now(async move { app.clear_attention("r").await })
                .unwrap();
            process.end::<String>("r").unwrap_err();
            assert_eq!(outside.count("ask"), 2, "{word}");
            raise(&process, "r", large);
            assert_eq!(process.end::<String>("r").unwrap(), "done", "{word}");
            assert_eq!(outside.count("ask"), 5, "{word}");
            let usage = process.journal("r").usage;
            let used = (
                usage.steps,
                usage.tokens_in,
                usage.tokens_out,
                usage.cost_micros,
            );
            assert_eq!(used, (5, 30, 20, 500), "{word}");
        }
    }
}

#[test]
fn what_children_use_counts() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        agent(
            models(&outside),
            "parent",
            &outside,
            |ctx: Ctx, outside: Outside, _: String| async move {
                tool(&ctx, &outside, Effect::Once, "own", "1").await?;
                ctx.child::<String, _>("models", "").await?;
                tool(&ctx, &outside, Effect::Once, "own", "2").await
            },
        )
    };
    let process = machine.start(builder());
    start(&process, "parent", "p", Budget::default().steps(4));
    let child = "p.models-1";
    process.end::<String>(child).unwrap_err();
    let (kind, reason) = process.attention(child);
    assert_eq!(kind, AttentionKind::Budget);
    assert!(reason.contains("the budget of p"), "{reason}");
    assert_eq!(outside.count("ask"), 3, "1 of 4 was used before it began");
    process.power_cut();
    let process = machine.start(builder());
    // A budget of its own does not help it.
    raise(&process, child, Budget::default().steps(9));
    process.end::<String>(child).unwrap_err();
    assert_eq!(outside.count("ask"), 3);
    // Whose budget it is, is raised; that reaches the child.
    raise(&process, "p", Budget::default().steps(6));
    process.pass(9 * Duration::from_secs(86_400));
    assert_eq!(process.end::<String>(child).unwrap(), "done");
    process.end::<String>("p").unwrap_err();
    let (kind, reason) = process.attention("p");
    assert_eq!(kind, AttentionKind::Budget);
    assert!(reason.contains("6 of 6 steps"), "{reason}");
    assert_eq!(outside.count("own"), 1);
    raise(&process, "p", Budget::default().steps(7));
    assert_eq!(process.end::<String>("p").unwrap(), "2");
}

/// Ten children at once, each with a child of its own that calls a model, twice.
fn families(outside: &Outside, granularity: Granularity) -> Builder {
    let builder = Builder::new().granularity(granularity);
    let builder = agent(builder, "root", outside, |ctx: Ctx, _, _| async move {
        let children = ctx.each("child", 0..10, |ctx, _| async move {
            ctx.child::<(), _>("middle", "").await
        });
        children.await.map(drop)
    });
    let builder = agent(builder, "middle", outside, |ctx: Ctx, _, _| async move {
        ctx.child::<(), _>("leaf", "").await
    });
    agent(
        builder,
        "leaf",
        outside,
        |ctx: Ctx, outside, _| async move {
            for _ in 0..2 {
                let outside = outside.clone();
                let step = ctx.model("ask").call(move |call| {
                    let outside = outside.clone();
                    async move {
                        outside.ask("ask", call.key(), "").await;
                        call.tokens(6, 4);
                        Ok(())
                    }
                });
                step.await?;
                ctx.sleep(Duration::from_secs(60)).await?;
            }
            Ok(())
        },
    )
}

#[test]
fn children_at_the_same_time_share_what_is_left() {
    for granularity in [Granularity::ToolCall, Granularity::Decision] {
        for dies in [false, true] {
            let (machine, outside) = (Machine::new().shuffled(7), Outside::default());
            let mut process = machine.start(families(&outside, granularity));
            start(&process, "root", "r", Budget::default().steps(13));
            process.pass(Duration::from_secs(30));
            if dies {
                process.power_cut();
                process = machine.start(families(&outside, granularity));
            }
            process.pass(Duration::from_secs(200));
            assert_eq!(outside.count("ask"), 13, "{granularity:?} {dies}");
            let paused = |process: &Process| {
                let child = |n| format!("r.child-{n}.middle-1.leaf-1");
                let waits = |n: &usize| process.journal(&child(*n)).attention.is_some();
                (1..=10).filter(waits).count()
            };
            assert_eq!(paused(&process), 7, "{granularity:?} {dies}");
            // Three more of seven.
            raise(&process, "r", Budget::default().steps(16));
            process.pass(Duration::from_secs(200));
            assert_eq!(outside.count("ask"), 16);
            raise(&process, "r", Budget::default().steps(99));
            process.end::<()>("r").unwrap();
            assert_eq!(process.journal("r").usage.steps, 20);
            assert_eq!(process.journal("r").usage.tokens(), 200);
        }
    }
}

/// Branches of one run at the same time go no further than children.
#[test]
fn branches_at_the_same_time_share_what_is_left() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let looks = ctx.each("look", 0..10, |ctx, _| {
            let look = tool(&ctx, &outside, Effect::Idempotent, "look", "it");
            async move {
                look.await?;
                ctx.sleep(Duration::from_secs(1)).await
            }
        });
        looks.await.map(drop)
    };
    let process = machine.start(agent(Builder::new(), "a", &outside, code));
    start(&process, "a", "r", Budget::default().steps(4));
    process.end::<()>("r").unwrap_err();
    assert_eq!(outside.count("look"), 4);
    raise(&process, "r", Budget::default().steps(10));
    process.end::<()>("r").unwrap();
    assert_eq!(outside.keys("look").len(), 10);
    // Nothing that was under way was lost when the others were too many.
    assert_eq!(outside.count("look"), 10);
}

#[test]
fn what_failed_attempts_used_counts() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        let code = |ctx: Ctx, outside: Outside, _: String| async move {
            let ask = ctx.model("ask").retry(Retry::times(100)).call(|call| {
                let outside = outside.clone();
                async move {
                    outside.ask("ask", call.key(), "").await;
                    call.tokens(6, 4);
                    Err::<(), _>(Failure::not_done("overloaded"))
                }
            });
            ask.await
        };
        agent(Builder::new(), "a", &outside, code)
    };
    let process = machine.start(builder());
    start(&process, "a", "r", Budget::default().tokens(50));
    process.end::<()>("r").unwrap_err();
    assert_eq!(process.attention("r").0, AttentionKind::Budget);
    assert_eq!(outside.count("ask"), 5);
    process.power_cut();
    let process = machine.start(builder());
    assert_eq!(process.journal("r").usage.tokens(), 50);
}

/// What is kept back inside a plan step counts once, in memory as in the record, and values count
/// for nothing.
#[test]
fn what_a_plan_step_holds_counts_once() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        for _ in 0..3 {
            let outside = outside.clone();
            let plan = ctx.plan_step("plan", |ctx| async move {
                ctx.now().await?;
                tool(&ctx, &outside, Effect::ReadOnly, "look", "it").await
            });
            plan.await?;
        }
        Ok("done".to_owned())
    };
    let builder = Builder::new().granularity(Granularity::PlanStep);
    let process = machine.start(agent(builder, "a", &outside, code));
    start(&process, "a", "r", Budget::default().steps(3));
    assert_eq!(process.end::<String>("r").unwrap(), "done");
    assert_eq!(process.journal("r").usage.steps, 3);
}

#[test]
fn a_budget_of_nothing_executes_nothing() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(models(&outside));
    start(&process, "models", "r", Budget::default().steps(0));
    process.end::<String>("r").unwrap_err();
    assert_eq!(outside.total(), 0);
    raise(&process, "r", Budget::default().steps(u64::MAX));
    assert_eq!(process.end::<String>("r").unwrap(), "done");
}

/// A model that fails twice, each time after 10 tokens, and once more in a plan step.
fn flaky(outside: &Outside) -> Builder {
    agent(
        Builder::new(),
        "flaky",
        outside,
        |ctx, outside, _| async move {
            let retry = Retry::times(3);
            let ask = |ctx: &Ctx| {
                let outside = outside.clone();
                ctx.model("ask").retry(retry).call(move |call| {
                    let outside = outside.clone();
                    async move {
                        outside.ask("ask", call.key(), "").await;
                        call.tokens(6, 4);
                        match call.attempt() {
                            3 => Ok(()),
                            _ => Err(Failure::new("overloaded")),
                        }
                    }
                })
            };
            ask(&ctx).await?;
            ctx.plan_step("plan", |ctx| async move { ask(&ctx).await })
                .await?;
            Ok("done".to_owned())
        },
    )
}

#[test]
fn what_a_failed_attempt_used_counts() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(flaky(&outside));
    start(&process, "flaky", "r", Budget::default());
    assert_eq!(process.end::<String>("r").unwrap(), "done");
    let journal = process.journal("r");
    assert_eq!((journal.usage.steps, journal.usage.tokens()), (2, 60));
    // And the one after it is not made.
    start(&process, "flaky", "s", Budget::default().tokens(20));
    assert!(process.end::<String>("s").is_err());
    assert_eq!(process.attention("s").0, AttentionKind::Budget);
    assert_eq!(outside.count("ask"), 6 + 2);
    process.power_cut();
    let process = machine.start(flaky(&outside));
    assert_eq!(process.journal("s").usage.tokens(), 20);
}

#[test]
fn what_is_kept_back_in_a_plan_step_counts_once() {
    let outside = Outside::default();
    let builder = || {
        agent(
            Builder::new().granularity(Granularity::PlanStep),
            "planner",
            &outside,
            |ctx, outside, _| async move {
                for _ in 0..2 {
                    let outside = outside.clone();
                    ctx.plan_step("plan", |ctx| async move {
                        ctx.now().await?;
                        let step = ctx.model("ask");
                        step.call(|call| {
                            let outside = outside.clone();
                            async move {
                                outside.ask("ask", call.key(), "").await;
                                call.tokens(6, 4);
                                Ok(())
                            }
                        })
                        .await
                    })
                    .await?;
                }
                Ok("done".to_owned())
            },
        )
    };
    let machine = Machine::new();
    let process = machine.start(builder());
    // Twenty tokens and two steps are all that it needs.
    start(
        &process,
        "planner",
        "r",
        Budget::default().tokens(20).steps(2),
    );
    assert_eq!(process.end::<String>("r").unwrap(), "done");
    let usage = process.journal("r").usage;
    assert_eq!((usage.steps, usage.tokens()), (2, 20));
}
