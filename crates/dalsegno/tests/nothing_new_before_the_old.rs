//! Code that was changed in front of something that was begun and has not ended: it does not do
//! anything new before it comes there, and code that never comes there is found out.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;

use std::time::Duration;

use dalsegno::{
    AttentionKind, BoxFuture, Builder, Ctx, Durability, Effect, Failure, Gate, Result, Retry,
};
use machine::{Machine, Outside, Process, agent, tool};

const HOUR: Duration = Duration::from_secs(3600);

type Code = fn(Ctx, Outside) -> BoxFuture<'static, Result<String>>;

/// What a run can have begun when its process ends, and what is said of it then.
fn begun() -> Vec<(&'static str, Code)> {
    vec![
        ("approval ok#1", |ctx, _| {
            Box::pin(async move { ctx.approval("ok").of("it").await.map(|a| format!("{a:?}")) })
        }),
        ("approval gated#1", |ctx, outside| {
            Box::pin(async move {
                let gated = ctx.tool("gated").once().input("it").approval(Gate::new());
                gated
                    .call(|call| {
                        let outside = outside.clone();
                        async move {
                            outside.ask("gated", call.key(), "it").await;
                            Ok("it".to_owned())
                        }
                    })
                    .await
            })
        }),
        ("signal go", |ctx, _| {
            Box::pin(async move { ctx.signal("go").await })
        }),
        ("signal go#1", |ctx, _| {
            Box::pin(async move {
                let came: Option<String> = ctx.signal("go").timeout(24 * HOUR).await?;
                Ok(came.unwrap_or_default())
            })
        }),
        ("sleep sleep#1", |ctx, _| {
            Box::pin(async move { ctx.sleep(HOUR).await.map(|()| String::new()) })
        }),
        ("child child#1", |ctx, _| {
            Box::pin(async move { ctx.child("child", "").await })
        }),
        ("tool fails#1", |ctx, outside| {
            Box::pin(async move {
                let fails = ctx.tool("fails").read_only();
                let fails = fails.retry(Retry::times(3).first(HOUR));
                fails
                    .call(|call| {
                        let outside = outside.clone();
                        async move {
                            outside.ask("fails", call.key(), "").await;
                            match call.attempt() {
                                1 => Err(Failure::new("not now")),
                                _ => Ok("now".to_owned()),
                            }
                        }
                    })
                    .await
            })
        }),
        ("tool silent#1", |ctx, outside| {
            Box::pin(async move { tool(&ctx, &outside, Effect::ReadOnly, "silent", "it").await })
        }),
        ("tool silent#1", |ctx, outside| {
            Box::pin(async move { tool(&ctx, &outside, Effect::Idempotent, "silent", "it").await })
        }),
        ("tool plan#1/silent#1", |ctx, outside| {
            Box::pin(async move {
                let inside = |ctx: Ctx| async move {
                    tool(&ctx, &outside, Effect::Idempotent, "silent", "it").await
                };
                ctx.plan_step("plan", inside).await
            })
        }),
        ("tool a#1/silent#1", |ctx, outside| {
            Box::pin(async move {
                let (a, b) = (ctx.branch("a"), ctx.branch("b"));
                let (one, other) = tokio::join!(
                    tool(&a, &outside, Effect::Idempotent, "silent", "it"),
                    tool(&b, &outside, Effect::ReadOnly, "done", "it"),
                );
                Ok(one? + &other?)
            })
        }),
    ]
}

/// Where the code of a run has something that it had not.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Inserted {
    Nowhere,
    Before,
    Instead,
}

fn program(outside: &Outside, code: Code, inserted: Inserted) -> Builder {
    let durability = Durability::Bounded(Duration::from_millis(20));
    let builder = Builder::new().durability(durability);
    let builder = agent(
        builder,
        "a",
        outside,
        move |ctx, outside, _: String| async move {
            tool(&ctx, &outside, Effect::Idempotent, "first", "1").await?;
            if inserted != Inserted::Nowhere {
                tool(&ctx, &outside, Effect::Once, "inserted", "2").await?;
            }
            let came = match inserted {
                Inserted::Instead => String::new(),
                _ => code(ctx.clone(), outside.clone()).await?,
            };
            tool(&ctx, &outside, Effect::Once, "last", &came).await
        },
    );
    agent(builder, "child", outside, |ctx, _, _| async move {
        ctx.signal::<String>("go").await
    })
}

/// Lets the run end, whatever it waits for.
fn let_end(process: &Process) {
    process.settle();
    for approval in process.journal("r").approvals.into_keys() {
        drop(process.approve("r", approval.as_str()));
    }
    for run in ["r", "r.child-1"] {
        let app = process.app.clone();
        drop(process.now(async move { app.signal(run, "go", "gone").await }));
    }
    process.end::<String>("r").unwrap();
}

#[test]
fn what_was_begun_is_come_to_before_anything_new() {
    for (what, code) in begun() {
        for inserted in [Inserted::Before, Inserted::Instead] {
            let (machine, outside) = (Machine::new(), Outside::default());
            outside.falls_silent("silent");
            let process = machine.start(program(&outside, code, Inserted::Nowhere));
            process.begin("a", "r", "");
            // What is bounded is on disk by then.
            process.pass(Duration::from_secs(1));
            let before = outside.total();
            process.power_cut();
            outside.answers();

            let process = machine.start(program(&outside, code, inserted));
            process.settle();
            if process.journal("r").attention.is_none() {
                // It is not in memory, and is when something comes for it.
                let app = process.app.clone();
                process
                    .now(async move { app.signal("r", "other", &()).await })
                    .unwrap();
                process.settle();
            }
            let (kind, reason) = process.attention("r");
            assert_eq!(kind, AttentionKind::Mismatch, "{what}: {reason}");
            assert!(reason.contains(what), "{what} in {reason}");
            assert!(reason.contains("tool inserted#1"), "{what}: {reason}");
            assert_eq!(outside.total(), before, "{what}: nothing was executed");
            process.power_cut();

            // The old code comes back.
            let process = machine.start(program(&outside, code, Inserted::Nowhere));
            let app = process.app.clone();
            process
                .now(async move { app.clear_attention("r").await })
                .unwrap();
            let_end(&process);
            assert_eq!(outside.count("inserted"), 0, "{what}");
            assert_eq!(outside.count("first"), 1, "{what}");
            assert_eq!(outside.count("last"), 1, "{what}");
        }
    }
}

#[test]
fn very_many_waits_are_written_down() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = agent(Builder::new(), "many", &outside, |ctx, _, _| async move {
        let each = |ctx: Ctx, n: u32| async move { ctx.signal::<String>(&format!("s{n}")).await };
        let came = ctx.each("item", 0..2500, each).await?;
        Ok(came.concat())
    });
    let process = machine.start(builder);
    process.begin("many", "r", "");
    process.settle();
    let journal = process.journal("r");
    assert_eq!(journal.status, dalsegno_store::Status::Checkpointed);
    assert_eq!(journal.waits.len(), 2500);
}
