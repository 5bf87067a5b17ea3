//! Stores with runs in every state, made by the real library and closed.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use dalsegno::{Ctx, Dalsegno, Failure, Result};

/// Does what its input says.
pub async fn agent(ctx: Ctx, what: String) -> Result<String> {
    let text: String = ctx
        .model("write")
        .input(&what)
        .call(|_| async { Ok::<_, Failure>(format!("on {what}")) })
        .await?;
    match what.as_str() {
        "approval" => drop(ctx.approval("publish").of(&text).await?),
        "signal" => drop(ctx.signal::<String>("go").await?),
        "sleep" => ctx.sleep(Duration::from_secs(3600)).await?,
        "fail" => return Err(Failure::terminal("the printer is on fire\x1b[31m")),
        "doubt" => {
            let failed = || async { Err::<String, _>(Failure::new("the line went dead")) };
            drop(
                ctx.tool("send")
                    .once()
                    .input(&text)
                    .call(|_| failed())
                    .await?,
            );
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

/// Waits until all of these runs have ended or wait.
pub async fn settled(app: &Dalsegno, runs: &[&str]) {
    loop {
        let position = app.store().position().await.unwrap();
        let all = dalsegno::views::tasks(&**app.store()).await.unwrap();
        let named = all.iter().filter(|t| runs.contains(&t.info.run.name()));
        let moving = named.filter(|t| t.info.lease.is_some() || t.info.head.sequence < 3);
        if moving.count() == 0 {
            return;
        }
        app.store().changed(position).await.unwrap();
    }
}
