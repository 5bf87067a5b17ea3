//! Outcomes that are kept back until the next decision do not pile up beyond what can be recorded.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TempDir, World};
use dalsegno::{Ctx, Dalsegno, Granularity};

#[tokio::test]
async fn many_outcomes_without_a_decision_are_recorded_in_time() {
    let (dir, world) = (TempDir::new("kept-back"), World::default());
    let seen = world.clone();
    let agent = move |ctx: Ctx, (): ()| {
        let world = seen.clone();
        async move {
            for number in 0..12_000_u64 {
                let read = ctx.tool("read").read_only();
                let found: u64 = read.call(|_| async move { Ok(number) }).await?;
                assert_eq!(found, number);
            }
            let done = ctx.tool("write").idempotent().input("all of it");
            done.call(|_| {
                world.did("write");
                async { Ok(()) }
            })
            .await
        }
    };
    let app = Dalsegno::builder().granularity(Granularity::Decision);
    let app = app.agent("reader", agent).open(dir.path()).await.unwrap();
    let () = app.run("reader", "run", &()).await.unwrap();
    assert_eq!(world.count("write"), 1);
}
