//! Asking runs to end: alone, with children, waiting, under way, in attention, ended.

use std::time::Duration;

use dalsegno::{Builder, Ctx, Effect, Error, FailureKind, Runtime};
use dalsegno_store::Status;

use super::machine::{Machine, Outside, Process, agent, tool};

fn cancel(process: &Process, run: &'static str) -> Result<(), Error> {
    let app = process.app.clone();
    let cancelled = process.now(async move { app.cancel(run, "enough").await });
    process.settle();
    cancelled
}

fn family(outside: &Outside) -> Builder {
    let builder = agent(
        Builder::new(),
        "parent",
        outside,
        |ctx, outside, _| async move {
            let child = ctx.child::<String, _>("child", "x").await;
            if let Err(failure) = &child {
                assert_eq!(failure.kind(), FailureKind::ChildFailed);
                return Ok(failure.to_string());
            }
            tool(&ctx, &outside, Effect::Once, "parent", "x").await
        },
    );
    let builder = agent(
        builder,
        "child",
        outside,
        |ctx: Ctx, outside: Outside, _: String| async move {
            ctx.child::<String, _>("grandchild", "x").await?;
            tool(&ctx, &outside, Effect::Once, "child", "x").await
        },
    );
    agent(
        builder,
        "grandchild",
        outside,
        |ctx: Ctx, outside: Outside, _: String| async move {
            ctx.sleep(Duration::from_secs(86_400)).await?;
            tool(&ctx, &outside, Effect::Once, "grandchild", "x").await
        },
    )
}

const FAMILY: [&str; 3] = ["p", "p.child-1", "p.child-1.grandchild-1"];

#[test]
fn a_run_with_children_takes_them_along() {
    for crash in [false, true] {
        let (machine, outside) = (Machine::new(), Outside::default());
        let mut process = machine.start(family(&outside));
        process.begin("parent", "p", "");
        if crash {
            // The wish is on disk when it is acknowledged; who fulfils it does not matter.
            let app = process.app.clone();
            process
                .now(async move { app.cancel("p", "enough").await })
                .unwrap();
            process.power_cut();
            process = machine.start(family(&outside));
            process.settle();
        } else {
            cancel(&process, "p").unwrap();
        }
        for run in FAMILY {
            assert_eq!(process.journal(run).status, Status::Cancelled, "{run}");
        }
        process.pass(Duration::from_secs(2 * 86_400));
        assert_eq!(outside.total(), 0);
        let app = process.app.clone();
        let ended = process.now(async move { app.find("p").await?.result::<String>().await });
        assert!(matches!(ended, Err(Error::RunCancelled(_))), "{ended:?}");
    }
}

#[test]
fn a_child_that_is_cancelled_is_a_failure_to_its_parent() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(family(&outside));
    process.begin("parent", "p", "");
    cancel(&process, "p.child-1").unwrap();
    let said = process.end::<String>("p").unwrap();
    assert!(said.contains("cancelled: enough"), "{said}");
    let grandchild = process.journal(FAMILY[2]);
    assert_eq!(grandchild.status, Status::Cancelled);
}

#[test]
fn runs_that_wait_and_runs_in_attention() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = agent(Builder::new(), "a", &outside, |ctx, _, which| async move {
        match which.as_str() {
            "signal" => ctx.signal::<String>("never").await,
            "approval" => ctx.approval("sure").await.map(|_| String::new()),
            _ => panic!("a bug"),
        }
    });
    let process = machine.start(builder);
    for run in ["signal", "approval", "panic"] {
        process.begin("a", run, run);
        assert_eq!(process.journal(run).status, Status::Checkpointed);
        cancel(&process, run).unwrap();
        assert_eq!(process.journal(run).status, Status::Cancelled, "{run}");
        let again = cancel(&process, run).unwrap_err();
        assert!(matches!(again, Error::RunEnded { .. }), "{again}");
    }
    let unknown = cancel(&process, "nobody").unwrap_err();
    assert!(matches!(unknown, Error::RunNotFound(_)), "{unknown}");
}

#[test]
fn a_run_whose_agent_is_gone() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(family(&outside));
    process.begin("parent", "p", "");
    process.power_cut();
    let process = machine.start(Builder::new());
    cancel(&process, "p").unwrap();
    for run in FAMILY {
        assert_eq!(process.journal(run).status, Status::Cancelled, "{run}");
    }
}

#[test]
fn a_once_step_under_way_is_finished_first() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let (time, asked) = (machine.runtime.clone(), outside.clone());
    let builder = Builder::new().agent("a", move |ctx: Ctx, _: String| {
        let (outside, time) = (asked.clone(), time.clone());
        async move {
            let step = ctx.tool("slow");
            let slow = step.call(|call| {
                let (outside, time) = (outside.clone(), time.clone());
                async move {
                    outside.ask("slow", call.key(), "").await;
                    time.sleep_until(time.now_us() + 60_000_000).await;
                    Ok(())
                }
            });
            slow.await?;
            tool(&ctx, &outside, Effect::Once, "after", "").await
        }
    });
    let process = machine.start(builder);
    process.begin("a", "r", "");
    cancel(&process, "r").unwrap();
    assert_eq!(process.journal("r").status, Status::Running);
    process.pass(Duration::from_secs(61));
    let journal = process.journal("r");
    assert_eq!(journal.status, Status::Cancelled);
    assert!(
        journal.steps.values().all(|step| step.outcome.is_some()),
        "its outcome is known"
    );
    assert_eq!((outside.count("slow"), outside.count("after")), (1, 0));
}
