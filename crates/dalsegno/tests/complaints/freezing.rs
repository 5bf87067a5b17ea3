//! When a run must stop: it freezes, says why, and appends nothing more.

use std::time::Duration;

use dalsegno::{AttentionKind, Builder, Ctx, Effect, Error, FailureKind, Granularity, Retry};
use dalsegno_store::{Limits, Options};

use super::machine::{Machine, Outside, agent, tool};

/// A result that was too large for the history was tried again for ever. Here it ends the step: it
/// was executed once, and the failure names the step, the size and the limit.
#[test]
fn pydantic_ai_7157_an_oversized_result_is_terminal_and_names_the_step() {
    let limits = Limits {
        payload_bytes: 1 << 20,
        ..Limits::default()
    };
    let machine = Machine::new().with_options(Options::new().limits(limits));
    let outside = Outside::default();
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let step = ctx.tool("export").read_only().retry(Retry::times(50));
        step.call(|call| {
            let outside = outside.clone();
            async move {
                outside.ask("export", call.key(), "").await;
                Ok("x".repeat(2 << 20))
            }
        })
        .await
    };
    let agents = || agent(Builder::new(), "exporter", &outside, code);
    for _ in 0..3 {
        let process = machine.start(agents());
        process.begin("exporter", "e", "");
        let failed = process.end::<String>("e").unwrap_err();
        let Error::RunFailed { failure, .. } = &failed else {
            panic!("{failed}");
        };
        assert_eq!(failure.kind(), FailureKind::TooLarge);
        assert_eq!(failure.step(), Some("export#1"));
        assert!(failed.to_string().contains("1048576"), "{failed}");
        assert_eq!(outside.count("export"), 1);
        process.power_cut();
    }
}

/// Reads, waits for a signal or a time, reads again.
fn reader(outside: &Outside, first: &'static str, second: &'static str) -> Builder {
    agent(
        Builder::new(),
        "reader",
        outside,
        move |ctx, outside, text| async move {
            tool(&ctx, &outside, Effect::ReadOnly, first, &text).await?;
            let waits = ctx
                .signal::<String>("go")
                .timeout(Duration::from_secs(3600));
            waits.await?;
            tool(&ctx, &outside, Effect::ReadOnly, second, &text).await
        },
    )
}

/// Code that did not fit its history raised the error again at every restart and appended to the
/// history each time. Here the run freezes: one event says so, and no restart, signal or timer adds
/// to what the run did.
#[test]
fn azure_3119_a_mismatch_appends_nothing_at_restarts() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(reader(&outside, "old", "last"));
    process.begin("reader", "r", "x");
    process.power_cut();
    let changed = || reader(&outside, "new", "last");
    let process = machine.start(changed());
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", "on").await })
        .unwrap();
    let mismatch = process.end::<String>("r").unwrap_err();
    assert!(
        matches!(mismatch, Error::NeedsAttention { .. }),
        "{mismatch}"
    );
    // That the lease was given back need not be on disk.
    process.kill();
    let process = machine.start(changed());
    let head = process.head("r");
    process.power_cut();
    for _ in 0..5 {
        let process = machine.start(changed());
        process.settle();
        assert_eq!(process.head("r"), head);
        process.power_cut();
    }
    // What others say to it is kept, and is all that is added.
    let process = machine.start(changed());
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", "on").await })
        .unwrap();
    process.pass(Duration::from_secs(2 * 3600));
    process.power_cut();
    let process = machine.start(changed());
    process.settle();
    let head = process.head("r");
    process.power_cut();
    for _ in 0..5 {
        let process = machine.start(changed());
        process.settle();
        assert_eq!(process.head("r"), head, "a restart adds nothing");
        process.power_cut();
    }
    assert_eq!(outside.total(), 1, "nothing was executed");
    // The old code comes back, and the run goes on.
    let process = machine.start(reader(&outside, "old", "last"));
    let app = process.app.clone();
    process
        .now(async move { app.clear_attention("r").await })
        .unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), "x");
    assert_eq!((outside.count("old"), outside.count("last")), (1, 1));
}

/// "Non-deterministic", and no word about which call. Here the attention names the call and shows
/// what is recorded and what the code wants now.
#[test]
fn sdk_go_1693_a_mismatch_names_the_call_and_both_sides() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(reader(&outside, "fetch prices", "last"));
    process.begin("reader", "renamed", "x");
    process.begin("reader", "other input", "x");
    process.power_cut();
    let process = machine.start(reader(&outside, "fetch rates", "last"));
    let wake = |run: &'static str| {
        let app = process.app.clone();
        process
            .now(async move { app.signal(run, "go", "on").await })
            .unwrap();
        process.settle();
    };
    wake("renamed");
    let (kind, reason) = process.attention("renamed");
    assert_eq!(kind, AttentionKind::Mismatch);
    for part in ["fetch prices#1", "fetch rates#1", "event", "ctx.patched"] {
        assert!(reason.contains(part), "{part} in {reason}");
    }
    process.power_cut();
    let process = machine.start(agent(
        Builder::new(),
        "reader",
        &outside,
        |ctx, outside, text| async move {
            let text = format!("{text}, and more");
            tool(&ctx, &outside, Effect::ReadOnly, "fetch prices", &text).await
        },
    ));
    let app = process.app.clone();
    process
        .now(async move { app.signal("other input", "go", "on").await })
        .unwrap();
    process.settle();
    let attention = process.journal("other input").attention.unwrap();
    assert_eq!(attention.step.unwrap().as_str(), "fetch prices#1");
    for part in ["fetch prices#1", "\\\"x\\\"", "x, and more"] {
        assert!(
            attention.reason.contains(part),
            "{part} in {}",
            attention.reason
        );
    }
    let evidence: serde_json::Value = serde_json::from_str(&attention.evidence.unwrap()).unwrap();
    assert_eq!(evidence["recorded"]["input"], "\"x\"");
    assert_eq!(evidence["now"]["input"], "\"x, and more\"");
    assert_eq!(outside.count("fetch prices"), 2);
    assert_eq!(outside.count("fetch rates"), 0);
}

/// How many processes die before somebody is asked; `None` if nobody ever is.
fn deaths(
    granularity: Granularity,
    outside: &Outside,
    builder: impl Fn() -> Builder,
) -> Option<u64> {
    let machine = Machine::new();
    for died in 0..100 {
        let process = machine.start(builder().granularity(granularity));
        process.begin("killer", "k", "");
        if let Some(attention) = process.journal("k").attention {
            assert_eq!(
                attention.kind,
                AttentionKind::CrashLoop,
                "{}",
                attention.reason
            );
            // That the lease was given back need not be on disk.
            process.kill();
            let process = machine.start(builder().granularity(granularity));
            let (head, total) = (process.head("k"), outside.total());
            process.kill();
            // It stays there, and a person can let it try again.
            let process = machine.start(builder().granularity(granularity));
            process.settle();
            assert_eq!((process.head("k"), outside.total()), (head, total));
            let app = process.app.clone();
            process
                .now(async move { app.clear_attention("k").await })
                .unwrap();
            outside.answers();
            assert_eq!(process.end::<String>("k").unwrap(), "it lives");
            return Some(died);
        }
        process.kill();
    }
    None
}

/// A step inside an atomic region that killed its process was begun again for ever. Here a person is
/// asked after some deaths without progress, whatever is recorded in between.
#[test]
fn golem_1798_a_step_that_kills_its_process_ends_in_attention() {
    for granularity in [
        Granularity::ToolCall,
        Granularity::PlanStep,
        Granularity::Decision,
    ] {
        for inside in [false, true] {
            let outside = Outside::default();
            let agents = || {
                agent(
                    Builder::new(),
                    "killer",
                    &outside,
                    move |ctx, outside, _| async move {
                        let deadly = |ctx: Ctx, outside: Outside| async move {
                            tool(&ctx, &outside, Effect::ReadOnly, "deadly", "it lives").await
                        };
                        match inside {
                            true => ctx.plan_step("region", |ctx| deadly(ctx, outside)).await,
                            false => deadly(ctx, outside).await,
                        }
                    },
                )
            };
            // The process dies while it waits for an answer.
            outside.falls_silent("deadly");
            let died = deaths(granularity, &outside, agents);
            let died = died.unwrap_or_else(|| panic!("{granularity:?}, {inside}: for ever"));
            assert!(
                (3..=25).contains(&died),
                "{granularity:?}, {inside}: {died}"
            );
        }
    }
}
