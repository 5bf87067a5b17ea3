//! What a replay found, in short; and a step that the world counts.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use dalsegno::{Ctx, Dalsegno, DivergenceKind, Replayed, Result, Side};
use dalsegno_store::StreamId;

use super::common::World;

/// A step of the shape that the changes below are about.
pub async fn step(ctx: &Ctx, world: &World, name: &str, input: u64) -> Result<u64> {
    ctx.tool(name)
        .input(&input)
        .call(|_| {
            world.did(name);
            async move { Ok(input + 1) }
        })
        .await
}

pub async fn head(app: &Dalsegno, run: &str) -> u64 {
    let id = StreamId::run(run).unwrap();
    app.store().head(&id).await.unwrap().unwrap().sequence
}

/// The sort, the recorded step and the step of now.
pub fn seen(replayed: &Replayed) -> (DivergenceKind, String, String) {
    let divergence = replayed
        .divergence()
        .unwrap_or_else(|| panic!("{replayed}"));
    let name = |side: &Side| match (&side.step, &side.what) {
        (Some(step), _) => step.to_string(),
        (None, what) => what.clone().unwrap_or_default(),
    };
    let (then, now) = (name(&divergence.recorded), name(&divergence.now));
    (divergence.kind, then, now)
}

pub fn diverges(replayed: &Replayed, kind: DivergenceKind, then: &str, now: &str) {
    assert_eq!(
        seen(replayed),
        (kind, then.to_owned(), now.to_owned()),
        "{replayed}"
    );
}
