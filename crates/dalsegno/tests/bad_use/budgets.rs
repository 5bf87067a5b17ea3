//! Budgets: used up before a step and never by losing one, raised, and shared with children.

use std::time::Duration;

use dalsegno::{AttentionKind, Budget, Builder, Ctx, Effect, Granularity};

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
            app.start_with_budget(agent, run, "", budget)
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
    assert_eq!(process.attention(child).0, AttentionKind::Budget);
    assert_eq!(outside.count("ask"), 3, "1 of 4 was used before it began");
    process.power_cut();
    let process = machine.start(builder());
    raise(&process, child, Budget::default().steps(9));
    assert_eq!(process.end::<String>(child).unwrap(), "done");
    // Now the parent has used 6 of 4.
    process.end::<String>("p").unwrap_err();
    let (kind, reason) = process.attention("p");
    assert_eq!(kind, AttentionKind::Budget);
    assert!(reason.contains("6 of 4 steps"), "{reason}");
    assert_eq!(outside.count("own"), 1);
    raise(&process, "p", Budget::default().steps(7));
    assert_eq!(process.end::<String>("p").unwrap(), "2");
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
