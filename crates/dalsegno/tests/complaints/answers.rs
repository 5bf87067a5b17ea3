//! Answers of people: single-use, after a restart, in children, late.

use std::sync::Arc;
use std::time::Duration;

use dalsegno::{Answer, Builder, Ctx, Dalsegno, Effect, Error, FailureKind, Gate, Result};

use super::machine::{Machine, Outside, agent, tool};

const HOUR: Duration = Duration::from_secs(3600);

/// Two reads, a write, then a person, then something that is sent once.
async fn publish(ctx: Ctx, outside: Outside, text: String) -> Result<String> {
    let read = tool(&ctx, &outside, Effect::ReadOnly, "read", &text).await?;
    tool(&ctx, &outside, Effect::Idempotent, "draft", &read).await?;
    let answer = ctx.approval("publish").of(&text).await?;
    if !answer.is_approved() {
        return Ok(format!("{answer:?}"));
    }
    tool(&ctx, &outside, Effect::Once, "print", &text).await
}

fn publisher(outside: &Outside) -> Builder {
    agent(Builder::new(), "publisher", outside, publish)
}

/// One interrupt got two different answers, and both were acted on. Here an answer is single-use:
/// whoever comes second is told who was first, also after a restart.
#[test]
fn langgraph_7361_two_answers_to_one_interrupt() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(publisher(&outside));
    process.begin("publisher", "p", "a text");
    outside.falls_silent("print");
    process.approve("p", "publish#1").unwrap();
    // It dies while it acts on it.
    process.power_cut();
    let process = machine.start(publisher(&outside));
    let app = process.app.clone();
    let second = process.now(async move { app.reject("p", "publish#1", "bob", "no").await });
    let second = second.unwrap_err().to_string();
    assert!(second.contains("ann"), "{second}");
    let app = process.app.clone();
    process
        .now(async move { app.resolve_happened("p", "print#1", "a text", "ann").await })
        .unwrap();
    assert_eq!(process.end::<String>("p").unwrap(), "a text");
    assert_eq!(outside.count("print"), 1);
    // The request itself was made once.
    assert_eq!(process.journal("p").approvals.len(), 1);
}

/// The same with two people who answer in the same moment, on real threads: exactly one of them is
/// told that it counts, and the run does what that one said.
#[test]
fn langgraph_7361_two_answers_in_the_same_moment() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let outside = Outside::default();
        let dir = std::env::temp_dir().join(format!("dalsegno-7361-{}", std::process::id()));
        let app = publisher(&outside).open(&dir).await.unwrap();
        for number in 0..60 {
            let run = format!("p{number}");
            let handle = app.start("publisher", &run, "a text").await.unwrap();
            until_asked(&app, &run).await;
            let together = Arc::new(tokio::sync::Barrier::new(8));
            let answers: Vec<_> = (0..8)
                .map(|person| {
                    let (app, run, together) = (app.clone(), run.clone(), Arc::clone(&together));
                    tokio::spawn(async move {
                        together.wait().await;
                        let by = format!("person {person}");
                        match person % 2 == 0 {
                            true => app.approve(&run, "publish#1", &by).await,
                            false => app.reject(&run, "publish#1", &by, "no").await,
                        }
                    })
                })
                .collect();
            let mut counted = Vec::new();
            for (person, answer) in answers.into_iter().enumerate() {
                if answer.await.unwrap().is_ok() {
                    counted.push(person);
                }
            }
            assert_eq!(counted.len(), 1, "{run}: {counted:?}");
            let result: String = handle.result().await.unwrap();
            assert_eq!(result == "a text", counted[0] % 2 == 0, "{run}: {result}");
        }
        app.close().await.unwrap();
        drop(std::fs::remove_dir_all(&dir));
    });
}

async fn until_asked(app: &Dalsegno, run: &str) {
    while app.journal(run).await.unwrap().approvals.is_empty() {
        tokio::task::yield_now().await;
    }
}

/// An approval that was asked for inside a sub-agent could not be given any more after a restart.
/// Here a child is a run of its own: it is answered by its name, and its parent gets the result.
#[test]
fn openai_agents_5142_approval_inside_a_child_after_a_restart() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let agents = || {
        let builder = agent(
            Builder::new(),
            "parent",
            &outside,
            |ctx, outside, text| async move {
                tool(&ctx, &outside, Effect::Once, "prepare", &text).await?;
                let refund: String = ctx.child("refunds", &text).await?;
                tool(&ctx, &outside, Effect::Once, "report", &refund).await
            },
        );
        agent(
            builder,
            "refunds",
            &outside,
            |ctx: Ctx, outside: Outside, text: String| async move {
                tool(&ctx, &outside, Effect::Once, "look up", &text).await?;
                let step = ctx.tool("refund").input(&text).approval(Gate::new());
                step.call(|call| {
                    let (outside, text) = (outside.clone(), text.clone());
                    async move {
                        outside.ask("refund", call.key(), &text).await;
                        Ok(format!("{text} refunded"))
                    }
                })
                .await
            },
        )
    };
    let mut process = machine.start(agents());
    process.begin("parent", "p", "order 7");
    for _ in 0..3 {
        process.power_cut();
        process = machine.start(agents());
        process.settle();
        assert_eq!(outside.count("refund"), 0);
    }
    let child = "p.refunds-1";
    process.approve(child, "refund#1").unwrap();
    assert_eq!(process.end::<String>("p").unwrap(), "order 7 refunded");
    for name in ["prepare", "look up", "refund", "report"] {
        assert_eq!(outside.count(name), 1, "{name}");
    }
}

/// Approving executed everything before it again, and did not work at all after a restart. Here it
/// works after any number of restarts, and what is recorded is not executed again.
#[test]
fn opencompany_846_approving_after_a_restart_executes_nothing_upstream() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(publisher(&outside));
    process.begin("publisher", "p", "a text");
    assert_eq!((outside.count("read"), outside.count("draft")), (1, 1));
    process.power_cut();
    let process = machine.start(publisher(&outside));
    process.settle();
    process.kill();
    let process = machine.start(publisher(&outside));
    process.approve("p", "publish#1").unwrap();
    assert_eq!(process.end::<String>("p").unwrap(), "a text");
    assert_eq!((outside.count("read"), outside.count("draft")), (1, 1));
    assert_eq!(outside.count("print"), 1);
}

/// Approving a run that there is not was said to have worked. Here it is an error that says what
/// there is, and nothing is recorded.
#[test]
fn opencompany_846_approving_an_unknown_run_is_an_error() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(publisher(&outside));
    process.begin("publisher", "p", "a text");
    let head = process.head("p");
    let unknown = process.approve("q", "publish#1").unwrap_err();
    assert!(
        matches!(unknown, Error::RunNotFound(ref run) if run == "q"),
        "{unknown}"
    );
    let unknown = process.approve("p", "delete#1").unwrap_err();
    assert!(unknown.to_string().contains("publish#1"), "{unknown}");
    assert_eq!(process.head("p"), head);
    process.approve("p", "publish#1").unwrap();
    process.end::<String>("p").unwrap();
    let ended = process.approve("p", "publish#1").unwrap_err();
    assert!(matches!(ended, Error::RunEnded { .. }), "{ended}");
}

/// Asks with an expiry and with a limit to its own patience.
async fn patient(ctx: Ctx, _: Outside, patience: String) -> Result<String> {
    let request = ctx.approval("go").of("go?").expires_in(2 * HOUR);
    let answer = match patience.as_str() {
        "impatient" => request.wait_at_most(HOUR).await?,
        _ => request.await?,
    };
    let answer = match answer {
        Answer::Approved { by, .. } => format!("approved by {by}"),
        Answer::Rejected { by, note } => format!("rejected by {by}: {note}"),
        Answer::Expired => "expired".to_owned(),
        Answer::NoAnswer => "no answer".to_owned(),
    };
    Ok(answer)
}

/// A caller's time-out counted as a rejection, and so did an expired request. Here a caller who
/// gives up changes nothing, and expired, rejected and not answered in time are three things.
#[test]
fn agent_os_1613_a_time_out_an_expiry_and_a_rejection_are_three_things() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let agents = || agent(Builder::new(), "patient", &outside, patient);
    let process = machine.start(agents());
    for (run, patience) in [
        ("polled", "patient"),
        ("rejected", "patient"),
        ("expired", "patient"),
        ("impatient", "impatient"),
    ] {
        process.begin("patient", run, patience);
    }
    // A caller polls for the result, gives up, and that is nobody's answer.
    let app = process.app.clone();
    let polled = machine.runtime.complete(
        async move { app.find("polled").await?.result::<String>().await },
        &|| false,
    );
    assert!(polled.is_none(), "it is not answered: {polled:?}");
    process.approve("polled", "go#1").unwrap();
    let app = process.app.clone();
    process
        .now(async move { app.reject("rejected", "go#1", "bob", "too dear").await })
        .unwrap();
    process.pass(HOUR + Duration::from_secs(1));
    assert_eq!(process.end::<String>("polled").unwrap(), "approved by ann");
    assert_eq!(
        process.end::<String>("rejected").unwrap(),
        "rejected by bob: too dear"
    );
    assert_eq!(process.end::<String>("impatient").unwrap(), "no answer");
    // The one that has only an expiry still waits, and expires also while no process is there.
    assert!(!process.journal("expired").status.is_final());
    process.power_cut();
    machine
        .runtime
        .set_now_us(dalsegno::Runtime::now_us(&machine.runtime) + 7_200_000_000);
    let process = machine.start(agents());
    let late = process.approve("expired", "go#1").unwrap_err();
    assert!(
        matches!(late, Error::ApprovalClosed { .. } | Error::RunEnded { .. }),
        "{late}"
    );
    assert_eq!(process.end::<String>("expired").unwrap(), "expired");
}

/// The same for a tool that needs an approval: three kinds of failure, and nothing was sent.
#[test]
fn agent_os_1613_a_gated_tool_says_which_of_the_three_it_was() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, which: String| async move {
        let gate = match which.as_str() {
            "no answer" => Gate::new().wait_at_most(HOUR),
            _ => Gate::new().expires_in(HOUR),
        };
        let step = ctx.tool("pay").input(&7).approval(gate);
        let paid = step.call(|call| {
            let outside = outside.clone();
            async move {
                outside.ask("pay", call.key(), "7").await;
                Ok(())
            }
        });
        Ok(match paid.await {
            Ok(()) => "paid".to_owned(),
            Err(failure) => match failure.kind() {
                FailureKind::Expired => "expired".to_owned(),
                FailureKind::Rejected => "rejected".to_owned(),
                FailureKind::NoAnswer => "no answer".to_owned(),
                other => format!("{other:?}"),
            },
        })
    };
    let process = machine.start(agent(Builder::new(), "payer", &outside, code));
    for which in ["expired", "rejected", "no answer"] {
        process.begin("payer", which, which);
    }
    let app = process.app.clone();
    process
        .now(async move { app.reject("rejected", "pay#1", "bob", "no").await })
        .unwrap();
    for which in ["expired", "rejected", "no answer"] {
        assert_eq!(process.end::<String>(which).unwrap(), which);
    }
    assert_eq!(outside.count("pay"), 0);
}

/// A request that the run no longer waits for cannot be answered: saying "approved" to somebody
/// whose approval changes nothing would be a lie.
#[test]
fn agent_os_1613_an_answer_after_the_run_went_on_is_an_error() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, _: String| async move {
        let first = ctx.approval("go").of("go?").wait_at_most(HOUR).await?;
        let second = ctx.approval("go").of("really?").await?;
        Ok(format!("{} {}", first.is_approved(), second.is_approved()))
    };
    let process = machine.start(agent(Builder::new(), "twice", &outside, code));
    process.begin("twice", "t", "");
    process.pass(2 * HOUR);
    let late = process.approve("t", "go#1").unwrap_err();
    assert!(matches!(late, Error::ApprovalClosed { .. }), "{late}");
    process.approve("t", "go#2").unwrap();
    assert_eq!(process.end::<String>("t").unwrap(), "false true");
}
