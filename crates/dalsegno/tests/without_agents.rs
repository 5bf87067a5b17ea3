//! What can be done with a store by a program that executes no agents: fork a run, and see what
//! recovery will do. The program that has the agents then does exactly that.

#![allow(clippy::unwrap_used)]

mod common;
mod lives;

use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{Builder, Ctx, Dalsegno, Error, Failure, Fork, fork_in, recovery_plan};
use dalsegno_store::{LocalStore, Options};
use lives::{life, until};

/// Does what its input says.
fn agents(world: &World) -> Builder {
    let world = world.clone();
    Dalsegno::builder().agent("does", move |ctx: Ctx, what: String| {
        let world = world.clone();
        async move {
            world.did(&what);
            match what.as_str() {
                "waits" => drop(ctx.signal::<bool>("go").await?),
                "sleeps" => ctx.sleep(Duration::from_secs(3600)).await?,
                "asks" => drop(ctx.approval("publish").await?),
                "doubts" => {
                    let lost = || async { Err::<(), _>(Failure::new("the line went dead")) };
                    ctx.tool("send").once().call(|_| lost()).await?;
                }
                "hangs" => {
                    let hang = std::future::pending::<dalsegno::Result<bool>>;
                    ctx.tool("pay").once().call(|_| hang()).await?;
                }
                _ => {}
            }
            let did = world.count("tool") + 1;
            let tool = ctx.tool("tool").input(&what);
            tool.call(|_| {
                world.did("tool");
                async move { Ok(did) }
            })
            .await
        }
    })
}

const STAYS: [&str; 5] = ["waits", "sleeps", "asks", "doubts", "hangs"];

#[test]
fn what_is_planned_is_what_is_done() {
    let (dir, world) = (TempDir::new("planned"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        for what in STAYS {
            app.start("does", what, what).await.unwrap();
        }
        until("all have come to rest", || async {
            let runs = dalsegno::views::tasks(&**app.store()).await.unwrap();
            let rest = runs.iter().filter(|run| !run.waits.is_empty()).count();
            let hangs = app.journal("hangs").await.unwrap();
            rest == 4 && hangs.open_steps().len() == 1
        })
        .await;
        let position = app.store().position().await.unwrap();
        app.store().durable(position).await.unwrap();
    });
    let planned = life(async {
        let store = Options::new().open_read_only(dir.path()).unwrap();
        recovery_plan(&store).await.unwrap()
    });
    assert_eq!(planned.len(), 5);
    let hangs = planned.iter().find(|p| p.recovered.run == "hangs").unwrap();
    assert_eq!(hangs.why.in_doubt.len(), 1, "{:?}", hangs.why);
    assert_eq!(hangs.why.next[0].word(), "settle");
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        let done = app.recovered().await;
        let planned: Vec<_> = planned.into_iter().map(|p| p.recovered).collect();
        assert_eq!(planned, done);
    });
}

#[test]
fn a_fork_that_was_only_recorded_is_started_by_the_next_program() {
    let (dir, world) = (TempDir::new("recorded-fork"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        let _: u64 = app.run("does", "origin", "ends").await.unwrap();
        app.close().await.unwrap();
    });
    world.reset();
    life(async {
        let store = LocalStore::open(dir.path()).unwrap();
        for _ in 0..2 {
            let fork = Fork::at(2).named("other");
            let name = fork_in(&store, "origin", fork).await.unwrap();
            assert_eq!(name, "other", "forking the same again is one run");
        }
        let taken = fork_in(&store, "origin", Fork::at(3).named("origin")).await;
        assert!(matches!(taken, Err(Error::AlreadyStarted { .. })));
        let missing = fork_in(&store, "nobody", Fork::at_end()).await;
        assert!(matches!(missing, Err(Error::RunNotFound(_))));
        store.close().unwrap();
    });
    assert!(world.is_empty(), "forking executes nothing");
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        let other = app.find("other").await.unwrap();
        let _: u64 = other.result().await.unwrap();
        assert_eq!(world.count("tool"), 1);
        app.close().await.unwrap();
    });
}
