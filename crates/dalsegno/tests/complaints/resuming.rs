//! Resuming: what is finished is not done again, wherever in the plan the process died.

use std::time::Duration;

use dalsegno::{Builder, Ctx, Effect, Turn};

use super::machine::{Machine, Outside, agent, tool};

/// Resuming inside a sub-graph began at its first node again. Here a plan step goes on at its first
/// step that has no outcome, and nothing before it is repeated.
#[test]
fn langgraph_6792_resuming_inside_a_plan_step_repeats_nothing() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, text: String| async move {
        tool(&ctx, &outside, Effect::ReadOnly, "fetch", &text).await?;
        let inside = outside.clone();
        let done = ctx.plan_step("sub-graph", |ctx| async move {
            tool(&ctx, &inside, Effect::ReadOnly, "search", &text).await?;
            tool(&ctx, &inside, Effect::Once, "post", &text).await?;
            let inner = inside.clone();
            ctx.plan_step("review", |ctx| async move {
                tool(&ctx, &inner, Effect::ReadOnly, "reread", "it").await?;
                ctx.approval("fine").await?;
                tool(&ctx, &inner, Effect::Idempotent, "stamp", "it").await
            })
            .await?;
            tool(&ctx, &inside, Effect::Once, "announce", &text).await
        });
        let done: String = done.await?;
        tool(&ctx, &outside, Effect::Once, "close", &done).await
    };
    let agents = || agent(Builder::new(), "graph", &outside, code);
    let process = machine.start(agents());
    process.begin("graph", "g", "x");
    process.power_cut();
    let process = machine.start(agents());
    outside.falls_silent("stamp");
    process.approve("g", "sub-graph#1/review#1/fine#1").unwrap();
    assert_eq!(outside.count("stamp"), 1);
    process.power_cut();
    outside.answers();
    let process = machine.start(agents());
    assert_eq!(process.end::<String>("g").unwrap(), "x");
    for name in ["fetch", "search", "post", "reread", "announce", "close"] {
        assert_eq!(outside.count(name), 1, "{name}");
    }
    assert_eq!(
        (outside.count("stamp"), outside.keys("stamp").len()),
        (2, 1)
    );
}

/// Being left and resumed often is no crash: a plan step with many waits in it comes to its end.
#[test]
fn langgraph_6792_a_plan_step_is_left_and_resumed_thirty_times() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        ctx.plan_step("month", |ctx| async move {
            for day in 0..30 {
                tool(&ctx, &outside, Effect::Once, "report", &day.to_string()).await?;
                ctx.sleep(Duration::from_secs(86_400)).await?;
            }
            Ok("a month".to_owned())
        })
        .await
    };
    let process = machine.start(agent(Builder::new(), "daily", &outside, code));
    process.begin("daily", "d", "");
    assert_eq!(process.end::<String>("d").unwrap(), "a month");
    assert_eq!(outside.count("report"), 30);
}

/// The same when the process really dies in each of the waits: dying is not the step's fault if it
/// has made progress in between.
#[test]
fn langgraph_6792_a_plan_step_that_makes_progress_survives_thirty_deaths() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        ctx.plan_step("month", |ctx| async move {
            for day in 0..30 {
                let name = format!("report {day}");
                tool(&ctx, &outside, Effect::Idempotent, &name, "").await?;
            }
            Ok("a month".to_owned())
        })
        .await
    };
    let agents = || agent(Builder::new(), "daily", &outside, code);
    for day in 0..30 {
        outside.answers();
        outside.falls_silent(&format!("report {day}"));
        let process = machine.start(agents());
        process.begin("daily", "d", "");
        assert_eq!(outside.count(&format!("report {day}")), 1);
        process.power_cut();
    }
    outside.answers();
    let process = machine.start(agents());
    assert_eq!(process.end::<String>("d").unwrap(), "a month");
}

/// Resuming in a loop began with its first round again. Here a loop goes on in the turn in which it
/// was, from the state after the turn before.
#[test]
fn langgraph_7780_resuming_in_a_loop_repeats_no_earlier_turn() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let agents = || {
        let outside = outside.clone();
        let turn = move |ctx: Ctx, done: Vec<String>| {
            let outside = outside.clone();
            async move {
                let turn = done.len() + 1;
                if turn > 6 {
                    return Ok(Turn::Done(done));
                }
                let name = format!("read {turn}");
                let read = tool(&ctx, &outside, Effect::ReadOnly, &name, &name).await?;
                let name = format!("write {turn}");
                tool(&ctx, &outside, Effect::Idempotent, &name, &read).await?;
                Ok(Turn::Continue([done, vec![read]].concat()))
            }
        };
        Builder::new().loop_agent("loop", |_: String| Vec::new(), turn)
    };
    outside.falls_silent("write 4");
    let process = machine.start(agents());
    process.begin("loop", "l", "");
    process.power_cut();
    outside.answers();
    let process = machine.start(agents());
    let done: Vec<String> = process.end("l").unwrap();
    assert_eq!(done.len(), 6);
    for turn in 1..=6 {
        assert_eq!(outside.count(&format!("read {turn}")), 1, "turn {turn}");
        let times = if turn == 4 { 2 } else { 1 };
        assert_eq!(
            outside.count(&format!("write {turn}")),
            times,
            "turn {turn}"
        );
        assert_eq!(outside.keys(&format!("write {turn}")).len(), 1);
    }
}

/// After a restart five finished commands were run again. Here a finished step is handed back from
/// the record, and only the one that was under way is looked at.
#[test]
fn cline_12975_finished_commands_are_not_run_again() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let mut outputs = Vec::new();
        for command in 1..=6 {
            let name = format!("command {command}");
            outputs.push(tool(&ctx, &outside, Effect::Once, &name, &name).await?);
        }
        Ok(outputs)
    };
    let agents = || agent(Builder::new(), "shell", &outside, code);
    outside.falls_silent("command 6");
    let process = machine.start(agents());
    process.begin("shell", "s", "");
    process.power_cut();
    outside.answers();
    let process = machine.start(agents());
    let doubt = process.end::<Vec<String>>("s").unwrap_err();
    assert!(doubt.to_string().contains("command 6"), "{doubt}");
    let app = process.app.clone();
    process
        .now(async move { app.resolve_happened("s", "command 6#1", "out", "ann").await })
        .unwrap();
    let outputs: Vec<String> = process.end("s").unwrap();
    assert_eq!((outputs.len(), outputs[5].as_str()), (6, "out"));
    for command in 1..=6 {
        assert_eq!(outside.count(&format!("command {command}")), 1);
    }
}

/// A batch of tools was recorded when the last one was done, so a crash lost all of them. Here each
/// is recorded when it is done.
#[test]
fn leviath_96_each_tool_of_a_batch_is_recorded_when_it_is_done() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let names = ["one", "two", "three", "four", "five"];
        let results = ctx.each("batch", names, |ctx, name| {
            let outside = outside.clone();
            async move { tool(&ctx, &outside, Effect::Once, name, name).await }
        });
        results.await
    };
    let agents = || agent(Builder::new(), "batch", &outside, code);
    outside.falls_silent("three");
    let process = machine.start(agents());
    process.begin("batch", "b", "");
    assert_eq!(outside.total(), 5);
    let journal = process.journal("b");
    let done = journal.steps.values().filter(|step| step.outcome.is_some());
    assert_eq!(done.count(), 4, "recorded while the batch is under way");
    process.power_cut();
    outside.answers();
    let process = machine.start(agents());
    let doubt = process.end::<Vec<String>>("b").unwrap_err();
    assert!(doubt.to_string().contains("batch#3/three#1"), "{doubt}");
    let app = process.app.clone();
    process
        .now(async move {
            app.resolve_not_happened("b", "batch#3/three#1", "ann")
                .await
        })
        .unwrap();
    let results: Vec<String> = process.end("b").unwrap();
    assert_eq!(results, ["one", "two", "three", "four", "five"]);
    for (name, times) in [
        ("one", 1),
        ("two", 1),
        ("three", 2),
        ("four", 1),
        ("five", 1),
    ] {
        assert_eq!(outside.count(name), times, "{name}");
    }
    assert_eq!(outside.keys("three").len(), 1);
}
