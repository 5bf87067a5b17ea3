//! Values and names that cannot be recorded.

use std::collections::HashMap;

use dalsegno::{Builder, Ctx, Effect, Error, Failure, FailureKind, Result, Retry};
use serde::Serialize;

use super::machine::{Machine, Outside, agent, tool};

/// A builder with one agent that ignores its input.
fn one<F, Fut, O>(outside: &Outside, code: F) -> Builder
where
    F: Fn(Ctx, Outside, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
    O: Serialize + 'static,
{
    agent(Builder::new(), "a", outside, code)
}

fn failure(ended: Result<String, Error>) -> Failure {
    match ended {
        Err(Error::RunFailed { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_result_of_70_mb_fails_its_step_for_good() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let step = ctx.tool("dump").idempotent().retry(Retry::times(9));
        let dumped = step.call(|call| {
            let outside = outside.clone();
            async move {
                outside.ask("dump", call.key(), "").await;
                Ok("x".repeat(70 << 20))
            }
        });
        let failure = dumped.await.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::TooLarge);
        // The agent may go on, and finds the same when it is replayed.
        ctx.signal::<()>("go on").await?;
        Ok(failure.to_string())
    };
    let process = machine.start(one(&outside, code));
    process.begin("a", "r", "");
    process.power_cut();
    let process = machine.start(one(&outside, code));
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go on", &()).await })
        .unwrap();
    let said = process.end::<String>("r").unwrap();
    for part in ["dump#1", "it was done", "67108864"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(outside.count("dump"), 1);
}

#[test]
fn an_input_over_the_limit_fails_the_step_before_it_is_done() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let large = "x".repeat(70 << 20);
        tool(&ctx, &outside, Effect::Once, "upload", &large).await
    };
    let process = machine.start(one(&outside, code));
    process.begin("a", "r", "");
    let failure = failure(process.end("r"));
    assert_eq!(failure.kind(), FailureKind::TooLarge);
    assert_eq!(failure.step(), Some("upload#1"));
    assert!(failure.message().contains("it was not done"), "{failure}");
    assert_eq!(outside.count("upload"), 0);
}

#[test]
fn a_run_input_or_result_over_the_limit_says_so() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |_: Ctx, _: Outside, _: String| async move { Ok("x".repeat(70 << 20)) };
    let process = machine.start(one(&outside, code));
    let app = process.app.clone();
    let large = "x".repeat(70 << 20);
    let refused = process.now(async move { app.start("a", "large", &large).await.map(drop) });
    assert!(refused.unwrap_err().to_string().contains("67108864"));
    process.begin("a", "r", "");
    let failure = failure(process.end("r"));
    assert_eq!(failure.kind(), FailureKind::TooLarge);
    assert!(failure.message().contains("result"), "{failure}");
}

#[test]
fn the_same_name_with_another_input_or_agent_is_an_error() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        let code = |ctx: Ctx, outside: Outside, text: String| async move {
            tool(&ctx, &outside, Effect::Once, "do", &text).await
        };
        agent(one(&outside, code), "b", &outside, code)
    };
    let process = machine.start(builder());
    process.begin("a", "r", "x");
    for (agent, input, what) in [("a", "y", "input"), ("b", "x", "agent")] {
        let app = process.app.clone();
        let other = process.now(async move { app.start(agent, "r", input).await.map(drop) });
        let other = other.unwrap_err();
        assert!(
            matches!(other, Error::AlreadyStarted { what: found, .. } if found == what),
            "{other}"
        );
        assert!(other.to_string().contains("\"r\""), "{other}");
    }
    process.begin("a", "r", "x");
    assert_eq!(outside.count("do"), 1);
}

#[test]
fn an_agent_that_is_not_registered() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, _: String| async move {
        let missing = ctx.child::<String, _>("missing", "x").await.unwrap_err();
        assert_eq!(missing.kind(), FailureKind::Misuse);
        ctx.signal::<()>("go on").await?;
        Ok(missing.to_string())
    };
    let process = machine.start(one(&outside, code));
    let app = process.app.clone();
    let missing = process.now(async move { app.start("missing", "m", "x").await.map(drop) });
    let missing = missing.unwrap_err().to_string();
    assert!(
        missing.contains("\"missing\"") && missing.contains("only a"),
        "{missing}"
    );
    process.begin("a", "r", "");
    process.power_cut();
    // The next process knows it. What the run was told stays as it was.
    let builder = agent(
        one(&outside, code),
        "missing",
        &outside,
        |_, _, text| async move { Ok(text) },
    );
    let process = machine.start(builder);
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go on", &()).await })
        .unwrap();
    let said = process.end::<String>("r").unwrap();
    assert!(
        said.contains("\"missing\"") && said.contains("register"),
        "{said}"
    );
}

#[test]
fn names_of_steps_that_cannot_be_names() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, name: String| async move {
        tool(&ctx, &outside, Effect::ReadOnly, &name, "x").await
    };
    let process = machine.start(one(&outside, code));
    let long = "n".repeat(101);
    for (number, name) in ["", "a/b", "a#1", "a!", "a@b", "a\nb", "a\0b", &long]
        .into_iter()
        .enumerate()
    {
        let run = format!("bad {number}");
        process.begin("a", &run, name);
        let failure = failure(process.end(&run));
        assert_eq!(failure.kind(), FailureKind::Misuse, "{name:?}: {failure}");
        assert!(failure.message().contains("name"), "{failure}");
    }
    assert_eq!(outside.total(), 0);
    let long = "n".repeat(100);
    for name in ["x y", "🙂", "naïve.step-1:2", "  ", &long] {
        let run = format!("good {name}");
        process.begin("a", &run, name);
        assert_eq!(process.end::<String>(&run).unwrap(), "x", "{name}");
    }
}

#[test]
fn scopes_that_are_nested_too_deep_are_refused() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let mut inside = ctx;
        for _ in 0..20 {
            inside = inside.branch(&"b".repeat(99));
        }
        tool(&inside, &outside, Effect::Once, "deep", "x").await
    };
    let process = machine.start(one(&outside, code));
    process.begin("a", "r", "");
    let failure = failure(process.end("r"));
    assert!(failure.message().contains("nested too deep"), "{failure}");
    assert_eq!(outside.total(), 0);
}

#[test]
fn names_of_runs() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, text: String| async move {
        let child: String = ctx.child("b", &text).await?;
        tool(&ctx, &outside, Effect::Idempotent, "do", &child).await
    };
    let builder = || {
        agent(
            one(&outside, code),
            "b",
            &outside,
            |_, _, text| async move { Ok(text) },
        )
    };
    let process = machine.start(builder());
    let longest = "é".repeat(100);
    for name in [
        "🙂 two words",
        " ",
        "a/b#1",
        "..",
        "run/x",
        "%2e",
        longest.as_str(),
    ] {
        process.begin("a", name, "x");
        assert_eq!(process.end::<String>(name).unwrap(), "x", "{name:?}");
    }
    assert_eq!(outside.keys("do").len(), 7);
    for name in [
        String::new(),
        "a\nb".into(),
        "x".repeat(201),
        "x".repeat(10 << 20),
    ] {
        let app = process.app.clone();
        let bytes = name.len();
        let refused = process.now(async move { app.start("a", &name, "x").await.map(drop) });
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, Error::Name(_)),
            "{bytes} bytes: {refused}"
        );
        assert!(refused.to_string().len() < 200, "the error is short");
    }
    process.power_cut();
    let process = machine.start(builder());
    assert_eq!(process.end::<String>("🙂 two words").unwrap(), "x");
}

#[test]
fn results_that_are_no_json() {
    #[derive(Serialize, serde::Deserialize)]
    struct Bad(HashMap<(u8, u8), u8>);
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, which: String| async move {
        let step = ctx.tool("made").retry(Retry::times(5));
        let asked = |call: dalsegno::Call| {
            let outside = outside.clone();
            async move { outside.ask("made", call.key(), "").await }
        };
        let failed = match which.as_str() {
            "map" => step
                .call(|call| {
                    let asked = asked(call);
                    async move {
                        asked.await;
                        Ok(Bad(HashMap::from([((1, 2), 3)])))
                    }
                })
                .await
                .map(drop),
            // JSON has no such number: it would be written as null, which is no number.
            _ => step
                .call(|call| {
                    let asked = asked(call);
                    async move {
                        asked.await;
                        Ok(f64::NAN)
                    }
                })
                .await
                .map(drop),
        };
        let failure = failed.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Encoding);
        ctx.signal::<()>("go").await?;
        Ok(failure.to_string())
    };
    for which in ["map", "nan"] {
        let process = machine.start(one(&outside, code));
        process.begin("a", which, which);
        process.power_cut();
        let process = machine.start(one(&outside, code));
        let app = process.app.clone();
        process
            .now(async move { app.signal(which, "go", &()).await })
            .unwrap();
        let said = process.end::<String>(which).unwrap();
        assert!(said.contains("made#1") && said.contains("JSON"), "{said}");
        process.power_cut();
    }
    assert_eq!(outside.count("made"), 2, "they are not tried again");
}

/// What a value loses on its way through JSON it has lost from the beginning, and not only after a
/// crash: code that branches on it takes the same way in every life.
#[test]
fn the_code_sees_what_is_recorded() {
    #[derive(Clone, Default, Serialize, serde::Deserialize)]
    struct Lossy {
        kept: u8,
        #[serde(skip)]
        lost: u8,
    }
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, _: String| async move {
        let full = Lossy { kept: 1, lost: 2 };
        let made = full.clone();
        let step = ctx.tool("make").read_only();
        let made = step.call(|_| {
            let made = made.clone();
            async move { Ok((made, Some(f64::NAN))) }
        });
        let (made, number) = made.await?;
        let inside = full.clone();
        let planned = ctx.plan_step("plan", |_| async move { Ok(inside) }).await?;
        let decided = ctx.decide("decide", full).await?;
        let lost = [made.lost, planned.lost, decided.lost];
        assert_eq!([made.kept, planned.kept, decided.kept], [1, 1, 1]);
        // It would be a mismatch if it were something else in the next life.
        tool(
            &ctx,
            &Outside::default(),
            Effect::ReadOnly,
            "use",
            &format!("{lost:?} {number:?}"),
        )
        .await?;
        ctx.signal::<()>("go").await?;
        Ok(format!("{lost:?} {number:?}"))
    };
    let process = machine.start(one(&outside, code));
    process.begin("a", "r", "");
    process.power_cut();
    let process = machine.start(one(&outside, code));
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", &()).await })
        .unwrap();
    assert_eq!(process.end::<String>("r").unwrap(), "[0, 0, 0] None");
}
