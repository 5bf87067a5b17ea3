//! Workers: one run has one writer, and a run that does not move says why.

use std::sync::Arc;
use std::time::Duration;

use dalsegno::testkit::SimRuntime;
use dalsegno::{Builder, Ctx, Effect, Error, Runtime};
use dalsegno_store::{Kind, Store, StreamId};

use super::machine::{Machine, Outside, agent, tool};

const SECOND: Duration = Duration::from_secs(1);

fn steps(outside: &Outside) -> Builder {
    let code = |ctx: Ctx, outside: Outside, text: String| async move {
        tool(&ctx, &outside, Effect::Idempotent, "first", &text).await?;
        tool(&ctx, &outside, Effect::Idempotent, "second", &text).await?;
        tool(&ctx, &outside, Effect::Once, "third", &text).await
    };
    agent(Builder::new(), "steps", outside, code)
}

/// Two processes replayed one run at the same time and gave the same ordinal to different steps; 130
/// runs were corrupted. Here the second worker is held off while the first is alive, and the first
/// is refused at its next append once the second has taken over.
#[test]
fn vercel_2737_two_workers_on_one_run() {
    let (one, outside) = (Machine::new(), Outside::default());
    // Two workers on one store, each with a time of its own, so that one can stand still.
    let mut two = one.clone();
    two.runtime = SimRuntime::new(2);
    let store: Arc<dyn Store> = Arc::new(one.open_store());
    let first = one.start_on(steps(&outside), Arc::clone(&store), "worker one");
    outside.falls_silent("first");
    first.begin("steps", "s", "x");
    assert_eq!(outside.count("first"), 1);

    // The second worker is told who has it, and does nothing.
    let second = two.start_on(steps(&outside), Arc::clone(&store), "worker two");
    second.settle();
    let app = second.app.clone();
    let held = second.now(async move { app.find("s").await?.result::<String>().await });
    let held = held.unwrap_err().to_string();
    assert!(held.contains("worker one"), "{held}");
    assert_eq!(outside.total(), 1);

    // The first worker stands still, until long after its lease has run out.
    let now_us = one.runtime.now_us();
    one.runtime.set_now_us(now_us + 3_600_000_000);
    two.runtime.set_now_us(now_us + 3_600_000_000);
    outside.answers();
    let app = second.app.clone();
    second
        .now(async move { app.signal("s", "wake up", &()).await })
        .unwrap();
    assert_eq!(second.end::<String>("s").unwrap(), "x");

    // It wakes up, and can do nothing any more.
    first.pass(60 * SECOND);
    assert_eq!(first.end::<String>("s").unwrap(), "x");
    assert_eq!((outside.count("second"), outside.count("third")), (1, 1));
    assert_eq!(outside.keys("first").len(), 1);

    // One history: each step has one outcome, and after the second worker came only it has written.
    let run = StreamId::run("s").unwrap();
    let events = second
        .now(async move { store.read(&run, 1, 1000).await })
        .unwrap();
    let kinds: Vec<_> = events.iter().map(|r| r.event.kind.clone()).collect();
    let count = |kind: Kind| kinds.iter().filter(|k| **k == kind).count();
    assert_eq!(
        (count(Kind::StepSucceeded), count(Kind::RunCompleted)),
        (3, 1)
    );
}

/// The same with a first worker that is in the middle of a step when it is overtaken: its outcome is
/// refused, and it begins nothing more.
#[test]
fn vercel_2737_the_outcome_of_an_overtaken_worker_is_refused() {
    let (one, outside) = (Machine::new(), Outside::default());
    let mut two = one.clone();
    two.runtime = SimRuntime::new(2);
    let store: Arc<dyn Store> = Arc::new(one.open_store());
    // Its tool takes a minute, in which the worker is not scheduled at all.
    let slow = one.runtime.clone();
    let agents = {
        let outside = outside.clone();
        Builder::new().agent("steps", move |ctx: Ctx, text: String| {
            let (outside, slow) = (outside.clone(), slow.clone());
            async move {
                let step = ctx.tool("first").idempotent().input(&text);
                let first: String = step
                    .call(|call| {
                        let (outside, slow) = (outside.clone(), slow.clone());
                        async move {
                            outside.ask("first", call.key(), "").await;
                            slow.sleep_until(slow.now_us() + 60_000_000).await;
                            Ok("by one".to_owned())
                        }
                    })
                    .await?;
                tool(&ctx, &outside, Effect::Once, "third", &first).await
            }
        })
    };
    let first = one.start_on(agents, Arc::clone(&store), "worker one");
    first.begin("steps", "s", "x");
    let now_us = one.runtime.now_us();
    one.runtime.set_now_us(now_us + 3_600_000_000);
    two.runtime.set_now_us(now_us + 3_600_000_000);
    let agents = agent(
        Builder::new(),
        "steps",
        &outside,
        |ctx, outside, text| async move {
            tool(&ctx, &outside, Effect::Idempotent, "first", &text).await?;
            ctx.sleep(1000 * SECOND).await?;
            tool(&ctx, &outside, Effect::Once, "third", "by two").await
        },
    );
    let second = two.start_on(agents, Arc::clone(&store), "worker two");
    second.settle();
    assert_eq!(
        (outside.count("first"), outside.keys("first").len()),
        (2, 1)
    );
    // The first one's tool answers now.
    first.pass(61 * SECOND);
    assert_eq!(
        outside.count("third"),
        0,
        "it was refused, and went no further"
    );
    assert_eq!(second.end::<String>("s").unwrap(), "by two");
    assert_eq!(outside.count("third"), 1);
}

/// Recovery passed over a run without a word. Here whoever asks is told why it does not move, its
/// history does not grow meanwhile, and the other runs go on.
#[test]
fn dbos_go_174_recovery_says_why_a_run_does_not_move() {
    let (machine, outside) = (Machine::new(), Outside::default());
    outside.falls_silent("first");
    let both = |builder: Builder| {
        agent(
            builder,
            "other",
            &outside,
            |ctx, outside, text| async move {
                ctx.sleep(60 * SECOND).await?;
                tool(&ctx, &outside, Effect::Once, "other", &text).await
            },
        )
    };
    let process = machine.start(both(steps(&outside)));
    process.begin("steps", "s", "x");
    process.begin("other", "o", "y");
    process.power_cut();
    outside.answers();
    // The next version of the program has lost an agent.
    let process = machine.start(both(Builder::new()));
    process.settle();
    let app = process.app.clone();
    let why = process.now(async move { app.find("s").await?.result::<String>().await });
    let why = why.unwrap_err();
    assert!(matches!(why, Error::NeedsAttention { .. }), "{why}");
    assert!(
        why.to_string().contains("\"steps\" is not registered"),
        "{why}"
    );
    assert_eq!(process.end::<String>("o").unwrap(), "y");
    let head = process.head("s");
    process.power_cut();
    for _ in 0..5 {
        let process = machine.start(both(Builder::new()));
        process.settle();
        assert_eq!(process.head("s"), head, "a restart adds nothing");
        process.power_cut();
    }
    // It is back, and the run goes on where it was.
    let process = machine.start(both(steps(&outside)));
    assert_eq!(process.end::<String>("s").unwrap(), "x");
    assert_eq!(
        (outside.count("first"), outside.keys("first").len()),
        (2, 1)
    );
    assert_eq!((outside.count("second"), outside.count("third")), (1, 1));
}
