//! Code that was changed under runs: nothing is executed, the run freezes, and says what differs.

use dalsegno::{AttentionKind, Builder, Ctx, Effect, Error};

use super::machine::{Machine, Outside, agent, tool};

type Code = fn(Ctx, Outside) -> dalsegno::BoxFuture<'static, dalsegno::Result<String>>;

fn with(outside: &Outside, code: Code) -> Builder {
    agent(
        Builder::new(),
        "a",
        outside,
        move |ctx, outside, _: String| code(ctx, outside),
    )
}

/// What all changes are changes of: two steps, a decision, a wait, a step.
fn old(ctx: Ctx, outside: Outside) -> dalsegno::BoxFuture<'static, dalsegno::Result<String>> {
    Box::pin(async move {
        tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await?;
        tool(&ctx, &outside, Effect::Once, "second", "2").await?;
        ctx.decide("branch", true).await?;
        ctx.signal::<()>("go").await?;
        tool(&ctx, &outside, Effect::Once, "last", "3").await
    })
}

fn go(machine: &Machine, builder: Builder) -> super::machine::Process {
    let process = machine.start(builder);
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", &()).await })
        .unwrap();
    process.settle();
    process
}

/// Each way to change the code, and a word that the reason must have.
fn changes() -> Vec<(&'static str, Code)> {
    vec![
        ("first#1", |ctx, outside| {
            Box::pin(async move {
                tool(&ctx, &outside, Effect::ReadOnly, "renamed", "1").await?;
                tool(&ctx, &outside, Effect::Once, "second", "2").await
            })
        }),
        ("tool inserted#1", |ctx, outside| {
            Box::pin(async move {
                tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await?;
                tool(&ctx, &outside, Effect::Once, "inserted", "1").await?;
                tool(&ctx, &outside, Effect::Once, "second", "2").await
            })
        }),
        ("second#1", |ctx, outside| {
            Box::pin(async move {
                tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await?;
                ctx.decide("branch", true).await?;
                ctx.signal::<()>("go").await?;
                tool(&ctx, &outside, Effect::Once, "last", "3").await
            })
        }),
        ("2, changed", |ctx, outside| {
            Box::pin(async move {
                tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await?;
                tool(&ctx, &outside, Effect::Once, "second", "2, changed").await
            })
        }),
        ("model", |ctx, outside| {
            Box::pin(async move {
                let made = ctx.model("first").input("1");
                made.call(|_| {
                    let outside = outside.clone();
                    async move {
                        outside.ask("first", "", "").await;
                        Ok("1".to_owned())
                    }
                })
                .await
            })
        }),
        ("cannot be read as u64", |ctx, outside| {
            Box::pin(async move {
                let made = ctx.tool("first").read_only().input("1");
                let number: u64 = made
                    .call(|_| {
                        let outside = outside.clone();
                        async move {
                            outside.ask("first", "", "").await;
                            Ok(1)
                        }
                    })
                    .await?;
                tool(&ctx, &outside, Effect::Once, "second", &number.to_string()).await
            })
        }),
        ("sleep", |ctx, outside| {
            Box::pin(async move {
                tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await?;
                ctx.sleep(std::time::Duration::from_secs(1)).await?;
                tool(&ctx, &outside, Effect::Once, "second", "2").await
            })
        }),
        ("now it has ended", |ctx, outside| {
            Box::pin(async move { tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await })
        }),
    ]
}

#[test]
fn nothing_is_executed_and_one_event_is_added() {
    for (word, changed) in changes() {
        let (machine, outside) = (Machine::new(), Outside::default());
        let process = machine.start(with(&outside, old));
        process.begin("a", "r", "");
        assert_eq!(outside.total(), 2);
        process.power_cut();

        let process = go(&machine, with(&outside, changed));
        let (kind, reason) = process.attention("r");
        assert_eq!(kind, AttentionKind::Mismatch, "{word}: {reason}");
        assert!(reason.contains(word), "{word} in {reason}");
        assert!(reason.contains("old"), "what to do: {reason}");
        // That the lease was given back need not be on disk.
        process.power_cut();
        let process = machine.start(with(&outside, changed));
        let head = process.head("r");
        process.kill();
        for _ in 0..5 {
            let process = machine.start(with(&outside, changed));
            process.settle();
            assert_eq!(process.head("r"), head, "{word}");
            let app = process.app.clone();
            let why = process.now(async move { app.find("r").await?.result::<String>().await });
            assert!(
                matches!(why, Err(Error::NeedsAttention { .. })),
                "{word}: {why:?}"
            );
            process.kill();
        }
        assert_eq!(outside.total(), 2, "{word}: nothing was executed");

        // The old code comes back.
        let process = machine.start(with(&outside, old));
        let app = process.app.clone();
        process
            .now(async move { app.clear_attention("r").await })
            .unwrap();
        assert_eq!(process.end::<String>("r").unwrap(), "3", "{word}");
        assert_eq!(outside.total(), 3, "{word}");
    }
}

#[test]
fn changing_on_purpose_with_patched() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(with(&outside, old));
    process.begin("a", "r", "");
    process.power_cut();
    let new: Code = |ctx, outside| {
        Box::pin(async move {
            tool(&ctx, &outside, Effect::ReadOnly, "first", "1").await?;
            if ctx.patched("no second").await? {
                tool(&ctx, &outside, Effect::Once, "instead", "2").await?;
            } else {
                tool(&ctx, &outside, Effect::Once, "second", "2").await?;
            }
            ctx.decide("branch", true).await?;
            ctx.signal::<()>("go").await?;
            tool(&ctx, &outside, Effect::Once, "last", "3").await
        })
    };
    // Runs from before take the old way, also after more restarts; new ones the new way.
    let process = machine.start(with(&outside, new));
    process.begin("a", "new", "");
    process.power_cut();
    let process = go(&machine, with(&outside, new));
    let app = process.app.clone();
    process
        .now(async move { app.signal("new", "go", &()).await })
        .unwrap();
    for run in ["r", "new"] {
        assert_eq!(process.end::<String>(run).unwrap(), "3", "{run}");
    }
    for (name, times) in [("first", 2), ("second", 1), ("instead", 1), ("last", 2)] {
        assert_eq!(outside.count(name), times, "{name}");
    }
}

/// In parallel branches the code of one may have changed while a step of another is under way: also
/// that step is not executed.
#[test]
fn a_step_under_way_waits_for_the_other_branches() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let before: Code = |ctx, outside| {
        Box::pin(async move {
            let (a, b) = (ctx.branch("a"), ctx.branch("b"));
            let (a, b) = tokio::join!(
                tool(&a, &outside, Effect::Idempotent, "slow", "1"),
                tool(&b, &outside, Effect::Once, "fast", "2"),
            );
            Ok(a? + &b?)
        })
    };
    let after: Code = |ctx, outside| {
        Box::pin(async move {
            let (a, _b) = (ctx.branch("a"), ctx.branch("b"));
            tool(&a, &outside, Effect::Idempotent, "slow", "1").await
        })
    };
    outside.falls_silent("slow");
    let process = machine.start(with(&outside, before));
    process.begin("a", "r", "");
    assert_eq!(outside.total(), 2);
    process.power_cut();
    outside.answers();
    let process = machine.start(with(&outside, after));
    process.settle();
    let (kind, reason) = process.attention("r");
    assert_eq!(kind, AttentionKind::Mismatch, "{reason}");
    assert!(reason.contains("b#1/fast#1"), "{reason}");
    assert_eq!(outside.total(), 2, "nothing was executed");
}
