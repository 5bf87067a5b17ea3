//! Stores with runs in every state, made by the real library and closed.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use dalsegno::{Call, Ctx, Dalsegno, Failure, Result};
use dalsegno_store::Status;

/// Does what its input says.
pub async fn agent(ctx: Ctx, what: String) -> Result<String> {
    let text: String = ctx
        .model("write")
        .input(&what)
        .call(|call| {
            call.tokens(10, 20);
            call.cost_micros(1500);
            let text = format!("on {what}");
            async move { Ok(text) }
        })
        .await?;
    match what.split('-').next().unwrap() {
        "approval" => {
            let answer = ctx.approval("publish").of(&text).await?;
            return Ok(format!("approved: {}", answer.is_approved()));
        }
        "two" => {
            let (one, two) = (ctx.approval("one").of(&text), ctx.approval("two").of(&text));
            let (one, two) = tokio::join!(one, two);
            drop((one?, two?));
        }
        "signal" => {
            let value: serde_json::Value = ctx.signal("go").await?;
            return Ok(value.to_string());
        }
        "sleep" => ctx.sleep(Duration::from_secs(3600)).await?,
        "fail" => return Err(Failure::terminal("the printer is on fire\x1b[31m")),
        // A process that is killed here leaves a doubt.
        "hang" => {
            let hang = |_| std::future::pending();
            return ctx.tool("send").once().input(&text).call(hang).await;
        }
        "doubt" => {
            let dead = |call: Call| async move {
                match call.attempt() {
                    1 => Err(Failure::new("the line went dead")),
                    _ => Ok("sent".to_owned()),
                }
            };
            return ctx.tool("send").once().input(&text).call(dead).await;
        }
        _ => {}
    }
    Ok(text)
}

/// What [`agent`] can be told, which is also the name of the run in [`every_state`].
pub const KINDS: [&str; 6] = ["done", "approval", "signal", "sleep", "fail", "doubt"];

/// An engine with the agent.
pub async fn app(store: &Path) -> Dalsegno {
    let builder = Dalsegno::builder()
        .session("worker-1")
        .agent("writer", agent);
    builder.open(store).await.unwrap()
}

/// One run for each of [`KINDS`], each as far as it comes.
pub fn every_state(store: &Path) {
    super::block_on(async {
        let app = app(store).await;
        for kind in KINDS {
            app.start("writer", kind, &kind).await.unwrap();
        }
        settled(&app, &KINDS).await;
        app.close().await.unwrap();
    });
}

/// Waits until all of these runs have ended, wait, or hang.
pub async fn settled(app: &Dalsegno, runs: &[&str]) {
    loop {
        let position = app.store().position().await.unwrap();
        let mut moving = 0;
        for run in runs {
            let journal = dalsegno::views::journal(&**app.store(), run).await.unwrap();
            let hangs = run.starts_with("hang") && !journal.open_steps().is_empty();
            let still = journal.status.is_final() || journal.status == Status::Checkpointed;
            moving += usize::from(!still && !hangs);
        }
        if moving == 0 {
            return;
        }
        app.store().changed(position).await.unwrap();
    }
}
