//! What is recorded of a run, and a step that the world counts.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use dalsegno::{Ctx, Dalsegno, Journal, Result};
use dalsegno_store::{Event, Kind, StreamId};

use super::common::World;

pub async fn events(app: &Dalsegno, run: &str) -> Vec<Event> {
    let id = StreamId::run(run).unwrap();
    let read = app.store().read(&id, 1, 100_000).await.unwrap();
    read.into_iter().map(|recorded| recorded.event).collect()
}

/// The first event of a kind about a step.
pub async fn event_of(app: &Dalsegno, run: &str, kind: Kind, step: &str) -> u64 {
    let events = events(app, run).await;
    let about = |e: &&Event| e.kind == kind && e.fields.text(1) == Some(step);
    events.iter().find(about).unwrap().sequence
}

/// So long something that is recorded may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until something that is recorded of a run is so: it is looked at after every append.
pub async fn until_journal(app: &Dalsegno, run: &str, is_so: impl Fn(&Journal) -> bool) {
    let store = app.store();
    loop {
        let position = store.position().await.unwrap();
        let journal = app.journal(run).await.unwrap();
        if is_so(&journal) {
            return;
        }
        let changed = tokio::time::timeout(PATIENCE, store.changed(position)).await;
        let Ok(changed) = changed else {
            panic!("{run} stands still and waits for {:?}", journal.waits);
        };
        changed.unwrap();
    }
}

/// Waits until a run waits for something.
pub async fn until_waiting(app: &Dalsegno, run: &str, what: &str) {
    until_journal(app, run, |journal| journal.waits == [what]).await;
}

/// `n` plus one, and the world counts.
pub async fn add(ctx: &Ctx, world: &World, name: &str, n: u64) -> Result<u64> {
    ctx.tool(name)
        .input(&n)
        .call(|call| {
            world.did(name);
            world.did(call.key());
            async move { Ok(n + 1) }
        })
        .await
}
