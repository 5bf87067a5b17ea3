//! Conversations: each turn records its own message, in functions and in loops, over crashes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::TempDir;
use dalsegno::testkit::{CrashEverywhere, World};
use dalsegno::{Builder, Conversation, Ctx, Dalsegno, Result, Turn};

async fn reply(ctx: &Ctx, chat: &Conversation, world: World) -> Result<String> {
    let said = chat.clone();
    ctx.model("reply")
        .conversation(chat)
        .call(move |_| {
            let (said, world) = (said.clone(), world.clone());
            async move {
                world.read("model").await;
                Ok(format!(
                    "{} messages, the last {}",
                    said.len(),
                    said.messages()[said.len() - 1]
                ))
            }
        })
        .await
}

fn agents(builder: Builder, world: World) -> Builder {
    let in_loop = world.clone();
    builder
        .agent("function", move |ctx: Ctx, turns: u64| {
            let world = world.clone();
            async move {
                let chat = ctx.conversation("chat").await?;
                for turn in 0..turns {
                    chat.push(&ctx, &format!("question {turn}")).await?;
                    let said = reply(&ctx, &chat, world.clone()).await?;
                    chat.push(&ctx, &said).await?;
                }
                Ok(chat
                    .messages()
                    .iter()
                    .map(|said| said.as_str().map(str::to_owned))
                    .collect::<Vec<_>>())
            }
        })
        .loop_agent(
            "loop",
            |turns: u64| (0, turns),
            move |ctx: Ctx, (turn, turns): (u64, u64)| {
                let world = in_loop.clone();
                async move {
                    let chat = ctx.conversation("chat").await?;
                    chat.push(&ctx, &format!("question {turn}")).await?;
                    let said = reply(&ctx, &chat, world).await?;
                    chat.push(&ctx, &said).await?;
                    Ok(match turn + 1 == turns {
                        true => Turn::Done(
                            chat.messages()
                                .iter()
                                .map(|said| said.as_str().map(str::to_owned))
                                .collect::<Vec<_>>(),
                        ),
                        false => Turn::Continue((turn + 1, turns)),
                    })
                }
            },
        )
}

#[test]
fn killed_at_every_moment_nothing_is_said_twice() {
    for agent in ["function", "loop"] {
        match CrashEverywhere::new(agent, &3, agents).run() {
            Ok(report) => println!("{agent}: {report}"),
            Err(broken) => panic!("{agent}: {broken}"),
        }
    }
}

#[tokio::test]
async fn a_function_and_a_loop_say_the_same() {
    let dir = TempDir::new("conversations");
    let app = agents(Dalsegno::builder(), World::default());
    let app = app.open(dir.path()).await.unwrap();
    let function: Vec<String> = app.run("function", "f", &5).await.unwrap();
    let a_loop: Vec<String> = app.run("loop", "l", &5).await.unwrap();
    assert_eq!(function, a_loop);
    assert_eq!(function.len(), 10);
    assert_eq!(function[9], "9 messages, the last \"question 4\"");
}

#[tokio::test]
async fn what_a_model_is_asked_with_does_not_grow() {
    let dir = TempDir::new("conversation-size");
    let app = agents(Dalsegno::builder(), World::default());
    let app = app.open(dir.path()).await.unwrap();
    let _: Vec<String> = app.run("function", "f", &50).await.unwrap();
    let run = dalsegno_store::StreamId::run("f").unwrap();
    let events = app.store().events(&run, 1, 10_000).await.unwrap();
    let asked = events
        .iter()
        .filter(|event| event.kind == dalsegno_store::Kind::StepIntended);
    let longest = asked.map(|event| event.encode().len()).max();
    assert!(longest < Some(400), "{longest:?}");
}
