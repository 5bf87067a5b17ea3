//! The library's lines in the README compile, and do what they say.

#![allow(clippy::unwrap_used)]

mod common;

use common::TempDir;
use dalsegno::{Ctx, Dalsegno, Probe, Result, Start, Worker};

async fn ask_model(topic: &str) -> Result<String> {
    Ok(format!("all about {topic}"))
}

async fn was_it_sent(_key: &str) -> Result<Probe<()>> {
    Ok(Probe::DidNotHappen)
}

async fn send(text: &str, key: &str) -> Result<()> {
    assert!(!text.is_empty() && key.len() == 32);
    Ok(())
}

async fn report(ctx: Ctx, topic: String) -> Result<String> {
    let text: String = ctx
        .model("write")
        .input(&topic)
        .call(|_| ask_model(&topic))
        .await?;
    let answer = ctx.approval("publish").of(&text).await?;
    if answer.is_approved() {
        let text = &text;
        ctx.tool("send")
            .once()
            .input(text)
            .probe(|call| async move { was_it_sent(call.key()).await })
            .call(|call| async move { send(text, call.key()).await })
            .await?;
    }
    Ok(text)
}

#[tokio::test]
async fn a_report_is_sent_when_a_person_has_approved_it() {
    let dir = TempDir::new("readme");
    let app = Dalsegno::builder().agent("report", report);
    let app = app.open(dir.path()).await.unwrap();
    let run = app
        .start("report", "report on whales", "whales")
        .await
        .unwrap();
    // The request is recorded before anybody can answer it.
    while app
        .approve("report on whales", "publish#1", "ann")
        .await
        .is_err()
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(run.result::<String>().await.unwrap(), "all about whales");
    let journal = app.journal("report on whales").await.unwrap();
    assert_eq!(journal.steps.len(), 3);
}

async fn cook(ctx: Ctx, (): ()) -> Result<usize> {
    use dalsegno::memory::{NewDocument, Query, RankingConfig};
    let kitchen = ctx.memory("kitchen");
    let oven = kitchen
        .add(NewDocument::fact("The oven heats up in 12 minutes.").source("manual"))
        .await?;
    let found = kitchen
        .search(&Query::words("heating the oven"), &RankingConfig::default())
        .await?;
    kitchen
        .correct(
            oven,
            NewDocument::fact("The new oven heats up in 7 minutes."),
        )
        .await?;
    Ok(found.hits.len())
}

#[tokio::test]
async fn what_agents_know() {
    let dir = TempDir::new("readme-memory");
    let app = Dalsegno::builder().agent("cook", cook);
    let app = app.open(dir.path()).await.unwrap();
    assert_eq!(app.run::<_, usize>("cook", "monday", &()).await.unwrap(), 1);
}

/// What a program for many machines is made of. It runs in the story's tests.
#[allow(dead_code)]
async fn many_machines() -> std::result::Result<(), dalsegno::Error> {
    let app = Dalsegno::builder()
        .agent("report", report)
        .max_running(64)
        .open("postgres://agents@db.example/agents")
        .await?;
    let slow = Start::new().queue("slow").priority(5);
    app.start_with("report", "on whales", "whales", slow)
        .await?;
    Worker::new(app).run().await
}
