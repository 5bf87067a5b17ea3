//! Panics: in tools, probes and the agent's own code. The process lives, and the record says so.

use dalsegno::{AttentionKind, Builder, Ctx, Effect, Error, FailureKind, Probe, Result, Retry};

use super::machine::{Machine, Outside, agent, tool};

/// A tool that panics, in its future or before it is one.
async fn panics(ctx: Ctx, outside: Outside, how: String) -> Result<String> {
    let (when, effect) = how.split_once(' ').unwrap();
    let effect = match effect {
        "once" => Effect::Once,
        _ => Effect::ReadOnly,
    };
    let at_once = when == "at-once";
    let step = ctx.tool("bad").effect(effect).retry(Retry::times(2));
    let panicked: Result<()> = step
        .call(|call| {
            let outside = outside.clone();
            if at_once {
                panic!("ouch before the first await");
            }
            async move {
                outside.ask("bad", call.key(), "").await;
                panic!("ouch");
            }
        })
        .await;
    let failure = panicked.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Panicked);
    Ok(failure.to_string())
}

#[test]
fn a_panic_in_a_tool_is_recorded_and_the_process_lives() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        let builder = agent(Builder::new(), "panics", &outside, panics);
        agent(builder, "calm", &outside, |ctx, outside, text| async move {
            tool(&ctx, &outside, Effect::Once, "calm", &text).await
        })
    };
    let process = machine.start(builder());
    for how in ["in-future read", "at-once read"] {
        process.begin("panics", how, how);
        let said = process.end::<String>(how).unwrap();
        assert!(
            said.contains("bad#1") && said.contains("ouch"),
            "{how}: {said}"
        );
        assert_eq!(process.journal(how).steps.len(), 1);
    }
    assert_eq!(outside.count("bad"), 2, "as often as it may be tried");
    // What a once tool did before it panicked, nobody knows.
    for how in ["in-future once", "at-once once"] {
        process.begin("panics", how, how);
        let doubt = process.end::<String>(how).unwrap_err();
        assert!(matches!(doubt, Error::NeedsAttention { .. }), "{doubt}");
        let (kind, reason) = process.attention(how);
        assert_eq!(kind, AttentionKind::InDoubt, "{reason}");
        assert!(reason.contains("ouch"), "{reason}");
    }
    process.begin("calm", "calm", "x");
    assert_eq!(process.end::<String>("calm").unwrap(), "x");
}

#[test]
fn a_panic_in_the_agents_own_code_waits_for_mended_code() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = |mended: bool, early: bool| {
        let code = move |ctx: Ctx, outside: Outside, text: String| {
            if early && !mended {
                panic!("before the first await");
            }
            async move {
                let done = tool(&ctx, &outside, Effect::Once, "work", &text).await?;
                assert!(mended, "the agent has a bug");
                Ok(done)
            }
        };
        agent(Builder::new(), "a", &outside, code)
    };
    for early in [false, true] {
        let run = format!("early {early}");
        let process = machine.start(builder(false, early));
        process.begin("a", &run, "x");
        let (kind, reason) = process.attention(&run);
        assert_eq!(kind, AttentionKind::Panic, "{reason}");
        assert!(reason.contains("mend it"), "{reason}");
        process.power_cut();
        // Opening it again tries nothing.
        let process = machine.start(builder(true, early));
        process.settle();
        assert_eq!(process.attention(&run).0, AttentionKind::Panic);
        let (app, cleared) = (process.app.clone(), run.clone());
        process
            .now(async move { app.clear_attention(&cleared).await })
            .unwrap();
        assert_eq!(process.end::<String>(&run).unwrap(), "x");
        process.power_cut();
    }
    assert_eq!(outside.count("work"), 2);
}

#[test]
fn a_panic_in_a_probe_leaves_the_doubt_to_a_person() {
    for at_once in [false, true] {
        let (machine, outside) = (Machine::new(), Outside::default());
        let builder = || {
            agent(
                Builder::new(),
                "a",
                &outside,
                move |ctx, outside, _| async move {
                    let step = ctx.tool("pay").probe(move |_| {
                        if at_once {
                            panic!("the probe has a bug");
                        }
                        async move {
                            if !at_once {
                                panic!("the probe has a bug");
                            }
                            Ok(Probe::<String>::Unknown)
                        }
                    });
                    step.call(|call| {
                        let outside = outside.clone();
                        async move {
                            outside.ask("pay", call.key(), "").await;
                            Ok("paid".to_owned())
                        }
                    })
                    .await
                },
            )
        };
        outside.falls_silent("pay");
        let process = machine.start(builder());
        process.begin("a", "r", "");
        process.power_cut();
        let process = machine.start(builder());
        process.settle();
        let (kind, reason) = process.attention("r");
        assert_eq!(kind, AttentionKind::InDoubt, "{reason}");
        assert!(reason.contains("the probe has a bug"), "{reason}");
        let app = process.app.clone();
        process
            .now(async move { app.resolve_happened("r", "pay#1", "seen", "ann").await })
            .unwrap();
        assert_eq!(process.end::<String>("r").unwrap(), "seen");
        assert_eq!(outside.count("pay"), 1);
    }
}
