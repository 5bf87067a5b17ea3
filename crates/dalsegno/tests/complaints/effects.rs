//! Effects: nothing is paid, sent or refunded twice, and what was meant twice is done twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dalsegno::testkit::{CrashEverywhere, World};
use dalsegno::{
    AttentionKind, Builder, Ctx, Effect, Error, Failure, Granularity, Result, Retry, Turn,
};
use dalsegno_simdisk::Fault;
use serde_json::{Value, json};

use super::machine::{Machine, Outside, agent, tool};

/// A task was tried again as a whole and paid again; a guard by arguments would have swallowed an
/// intended second payment. Here a retry repeats only what failed, and a second call is another step.
#[test]
fn crewai_5802_a_retry_pays_once_and_an_intended_second_payment_is_made() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, amount: String| async move {
        let task = |ctx: Ctx, outside: Outside, amount: String| async move {
            let paid = tool(&ctx, &outside, Effect::Once, "pay", &amount).await?;
            let step = ctx.tool("invoice").read_only();
            let step = step.retry(Retry::times(4).first(Duration::from_secs(60)));
            step.call(|call| {
                let outside = outside.clone();
                async move {
                    outside.ask("invoice", call.key(), "").await;
                    match call.attempt() {
                        1..=3 => Err(Failure::new("the printer is on fire")),
                        _ => Ok(()),
                    }
                }
            })
            .await?;
            Ok(paid)
        };
        let (again, same) = (outside.clone(), amount.clone());
        ctx.plan_step("first month", |ctx| task(ctx, outside, amount))
            .await?;
        ctx.plan_step("second month", |ctx| task(ctx, again, same))
            .await
    };
    let agents = || agent(Builder::new(), "payer", &outside, code);
    let process = machine.start(agents());
    process.begin("payer", "p", "10 euros");
    process.pass(Duration::from_secs(30));
    process.power_cut();
    let process = machine.start(agents());
    assert_eq!(process.end::<String>("p").unwrap(), "10 euros");
    assert_eq!(outside.about("pay"), ["10 euros", "10 euros"]);
    assert_eq!(outside.keys("pay").len(), 2, "each payment has its own key");
}

type Transcript = Vec<Value>;

/// A conversation as a loop: the model asks for a tool, the result is put behind the call.
fn conversation(builder: Builder, outside: &Outside, effect: Effect, machine: &Machine) -> Builder {
    let (outside, disk) = (outside.clone(), machine.disk.clone());
    let turn = move |ctx: Ctx, mut transcript: Transcript| {
        let (outside, disk) = (outside.clone(), disk.clone());
        async move {
            let turns = transcript.len() / 2;
            if turns == 3 {
                return Ok(Turn::Done(transcript));
            }
            let step = ctx.tool("send").effect(effect).input(&turns);
            let sent: usize = step
                .call(|call| {
                    let (outside, disk) = (outside.clone(), disk.clone());
                    async move {
                        outside.ask("send", call.key(), "").await;
                        // The tool ran; what it came to cannot be written down.
                        if outside.count("send") == 2 {
                            disk.fail_from(disk.ops(), Fault::Full);
                        }
                        Ok(turns)
                    }
                })
                .await?;
            transcript.push(json!({ "call": turns }));
            transcript.push(json!({ "result": sent }));
            Ok(Turn::Continue(transcript))
        }
    };
    builder.loop_agent("chat", |_: String| Transcript::new(), turn)
}

fn no_orphans(transcript: &Transcript) {
    let calls: Vec<_> = transcript.iter().filter_map(|m| m.get("call")).collect();
    let results: Vec<_> = transcript.iter().filter_map(|m| m.get("result")).collect();
    assert_eq!(calls, results);
    assert_eq!(calls.len(), 3);
}

/// The tool ran, the session could not be written, and the call stood without a result for ever.
/// Here a call, its result and the transcript come from one record: whatever could not be written
/// is done again with the same key, or is in doubt and settled, and no call is left alone.
#[test]
fn openai_agents_4615_the_tool_ran_and_the_session_write_failed() {
    for effect in [Effect::Idempotent, Effect::Once] {
        let (machine, outside) = (Machine::new(), Outside::default());
        let agents = || conversation(Builder::new(), &outside, effect, &machine);
        let process = machine.start(agents());
        process.begin("chat", "c", "");
        assert_eq!(
            outside.count("send"),
            2,
            "nothing is begun on a store that fails"
        );
        process.kill();
        machine.disk.heal();
        let process = machine.start(agents());
        let ended = process.end::<Transcript>("c");
        if effect == Effect::Once {
            let doubt = ended.unwrap_err();
            assert!(doubt.to_string().contains("send#1"), "{doubt}");
            assert_eq!(outside.count("send"), 2);
            let app = process.app.clone();
            process
                .now(async move { app.resolve_happened("c", "@2/send#1", &1, "ann").await })
                .unwrap();
            no_orphans(&process.end("c").unwrap());
            assert_eq!(outside.count("send"), 3);
        } else {
            no_orphans(&ended.unwrap());
            assert_eq!(outside.count("send"), 4);
        }
        assert_eq!(outside.keys("send").len(), 3);
    }
}

/// A restart while a call was in flight left a history that could not be gone on with. Here each
/// sort of call in flight has one way on: read again, asked again with its key, or put to a person.
#[test]
fn openhands_4487_a_restart_with_calls_in_flight() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, text: String| async move {
        let (a, b, c) = (ctx.branch("a"), ctx.branch("b"), ctx.branch("c"));
        let (a, b, c) = tokio::join!(
            tool(&a, &outside, Effect::ReadOnly, "read", &text),
            tool(&b, &outside, Effect::Idempotent, "write", &text),
            tool(&c, &outside, Effect::Once, "mail", &text),
        );
        let all = [a?, b?, c?].join(" ");
        tool(&ctx, &outside, Effect::Once, "sum up", &all).await
    };
    let agents = || agent(Builder::new(), "three", &outside, code);
    for name in ["read", "write", "mail"] {
        outside.falls_silent(name);
    }
    let process = machine.start(agents());
    process.begin("three", "t", "x");
    assert_eq!(outside.total(), 3);
    process.power_cut();
    outside.answers();
    let process = machine.start(agents());
    let doubt = process.end::<String>("t").unwrap_err();
    assert!(matches!(doubt, Error::NeedsAttention { .. }), "{doubt}");
    assert_eq!(process.attention("t").0, AttentionKind::InDoubt);
    assert_eq!(outside.count("mail"), 1);
    // Waiting for the person survives restarts, too.
    process.power_cut();
    let process = machine.start(agents());
    let app = process.app.clone();
    process
        .now(async move { app.resolve_happened("t", "c#1/mail#1", "x", "ann").await })
        .unwrap();
    assert_eq!(process.end::<String>("t").unwrap(), "x x x");
    assert_eq!(outside.keys("write").len(), 1);
    assert_eq!((outside.count("mail"), outside.count("sum up")), (1, 1));
}

/// A provider gave two calls the same id, and the second got the result of the first. Here a call is
/// known by where it stands in the run; the provider's id is data.
#[test]
fn multica_3635_the_provider_repeats_a_call_id() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let mut results = Vec::new();
        for city in ["Paris", "Rome"] {
            let asked = ctx.model("ask").input(city).call(move |_| async move {
                Ok(json!({ "id": "call_0", "name": "weather", "city": city }))
            });
            let asked: Value = asked.await?;
            let about = format!("{} {}", asked["id"], asked["city"]);
            results.push(tool(&ctx, &outside, Effect::Once, "weather", &about).await?);
            // Where it may die.
            ctx.signal::<()>("next").await?;
        }
        Ok(results)
    };
    let agents = || agent(Builder::new(), "traveller", &outside, code);
    let mut process = machine.start(agents());
    process.begin("traveller", "t", "");
    for _ in 0..2 {
        process.power_cut();
        process = machine.start(agents());
        let app = process.app.clone();
        process
            .now(async move { app.signal("t", "next", &()).await })
            .unwrap();
        process.settle();
    }
    let results: Vec<String> = process.end("t").unwrap();
    assert_eq!(results, ["\"call_0\" \"Paris\"", "\"call_0\" \"Rome\""]);
    assert_eq!(
        (outside.count("weather"), outside.keys("weather").len()),
        (2, 2)
    );
}

/// Of 209 refunds that were retried after a crash, 209 were made twice. Here each comes again under
/// its key if the other side knows keys, and goes to a person if it does not.
#[test]
fn agent_framework_3938_two_hundred_and_nine_refunds() {
    for effect in [Effect::Idempotent, Effect::Once] {
        let (machine, outside) = (Machine::new(), Outside::default());
        let code = move |ctx: Ctx, outside: Outside, order: String| async move {
            tool(&ctx, &outside, effect, "refund", &order).await
        };
        let agents = || agent(Builder::new(), "refunds", &outside, code);
        outside.falls_silent("refund");
        let process = machine.start(agents());
        for order in 0..209 {
            process.begin("refunds", &format!("order {order}"), &format!("{order}"));
        }
        assert_eq!(outside.count("refund"), 209);
        // Everything was refunded, and nobody has heard of it.
        process.power_cut();
        outside.answers();
        let process = machine.start(agents());
        for order in 0..209 {
            let run = format!("order {order}");
            let ended = process.end::<String>(&run);
            if effect == Effect::Once {
                assert!(
                    matches!(ended, Err(Error::NeedsAttention { .. })),
                    "{ended:?}"
                );
                let (app, said) = (process.app.clone(), order.to_string());
                process
                    .now(async move { app.resolve_happened(&run, "refund#1", &said, "ann").await })
                    .unwrap();
                let run = format!("order {order}");
                assert_eq!(process.end::<String>(&run).unwrap(), format!("{order}"));
            } else {
                assert_eq!(ended.unwrap(), format!("{order}"));
            }
        }
        assert_eq!(outside.keys("refund").len(), 209, "0 of 209 twice");
        let arrived = if effect == Effect::Once { 209 } else { 418 };
        assert_eq!(outside.count("refund"), arrived);
    }
}

/// A model that never words a transfer the same way twice.
fn transfers(builder: Builder, outside: &Outside, said: &'static AtomicU64) -> Builder {
    agent(
        builder,
        "bank",
        outside,
        move |ctx, outside, to| async move {
            let words: String = ctx
                .model("plan")
                .call(|_| {
                    let number = said.fetch_add(1, Ordering::SeqCst);
                    async move { Ok(format!("transfer tx-{number}")) }
                })
                .await?;
            tool(
                &ctx,
                &outside,
                Effect::Idempotent,
                "transfer",
                &format!("{words} to {to}"),
            )
            .await
        },
    )
}

/// A restored agent asked its model again, which worded the same intent with a new id, and 10 of 10
/// transfers were made twice. Here the key comes from the run and the step, not from the arguments:
/// even a backup from before the model spoke leads to the same key.
#[test]
fn acrfence_2603_20625_a_restored_model_words_the_same_intent_anew() {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let outside = Outside::default();
    for number in 0..10 {
        let machine = Machine::new();
        let run = format!("t{number}");
        let waits = |builder: Builder| transfers(builder, &outside, &SAID);
        // The run is there, and its agent is not: the backup is older than the model's words.
        let process = machine.start(Builder::new().agent("bank", |_: Ctx, _: String| {
            std::future::pending::<Result<String>>()
        }));
        process.begin("bank", &run, "bob");
        process.power_cut();
        let backup = machine.disk.snapshot();
        for disk in [machine.disk.clone(), backup] {
            let process = Machine::on(disk).start(waits(Builder::new()));
            process.end::<String>(&run).unwrap();
        }
        assert_eq!(
            outside.keys("transfer").len(),
            number + 1,
            "one key for both lives"
        );
    }
    assert_eq!(
        SAID.load(Ordering::SeqCst),
        20,
        "the model was asked in both lives"
    );
    let about: std::collections::BTreeSet<_> = outside.about("transfer").into_iter().collect();
    assert_eq!(about.len(), 20, "and worded it differently");
}

/// The same with a crash at every moment: what was asked for under a key is always the same.
#[test]
fn acrfence_2603_20625_killed_at_every_moment() {
    for granularity in [Granularity::ToolCall, Granularity::Decision] {
        let register = |builder: Builder, world: World| {
            builder.agent("bank", move |ctx: Ctx, (): ()| {
                let world = world.clone();
                async move { transfer_once(ctx, world).await }
            })
        };
        let test = CrashEverywhere::new("bank", &(), register).granularity(granularity);
        test.any_result().and_again(6).run().unwrap();
    }
}

async fn transfer_once(ctx: Ctx, world: World) -> Result<u64> {
    let asked = world.clone();
    let words: u64 = ctx
        .model("plan")
        .call(|_| {
            let world = asked.clone();
            async move {
                world.read("plan").await;
                Ok(world.arrived("plan"))
            }
        })
        .await?;
    let step = ctx.tool("transfer").idempotent().input(&words);
    step.call(|call| {
        let world = world.clone();
        async move {
            world.idempotent_given("transfer", call.key(), &words).await;
            Ok(words)
        }
    })
    .await
}
