//! Tasks, sessions and checkpoints, as they are read from the events.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod lives;

use std::sync::Arc;

use common::{TempDir, World};
use dalsegno::{Builder, Ctx, Dalsegno, Resource, Standing, Turn, views};
use dalsegno_store::{LocalStore, Options, Status, Store};
use lives::{life, stands, until};
use serde_json::json;

/// Three checkpoints, the first of them pinned, with a step under way at the last.
fn writer(world: &World, file: &std::path::Path) -> Builder {
    let (world, file) = (world.clone(), file.to_owned());
    Dalsegno::builder().agent("writer", move |ctx: Ctx, (): ()| {
        let (world, file) = (world.clone(), Resource::file(&file));
        async move {
            ctx.checkpoint("outline", &"a").step(1, 3).pin().await?;
            ctx.checkpoint("draft", &"b").step(2, 3).await?;
            let publish = ctx.tool("publish").idempotent().call(|_| {
                world.did("publish");
                std::future::pending::<dalsegno::Result<()>>()
            });
            let marked = async {
                let marked = ctx.checkpoint("final", &json!({ "words": 3 })).step(3, 3);
                // Written while the other is under way.
                until("publishing", || async { world.count("publish") > 0 }).await;
                marked.holding(file.clone()).await
            };
            let (published, marked) = tokio::join!(publish, marked);
            published.and(marked)
        }
    })
}

#[test]
fn a_checkpoint_holds_task_progress_resources_pending_steps_time_and_session() {
    let (dir, files, world) = (TempDir::new("cp"), TempDir::new("cp-f"), World::default());
    let path = files.path().join("text");
    std::fs::create_dir_all(files.path()).unwrap();
    std::fs::write(&path, "text").unwrap();
    life(async {
        let app = writer(&world, &path).session("first");
        let app = app.open(dir.path()).await.unwrap();
        app.start("writer", "w", &()).await.unwrap();
        let store = &**app.store();
        until("written", || async {
            let all = views::checkpoints(store, "w").await.unwrap();
            all.current
                .is_some_and(|c| c.checkpoint.progress == Some((3, 3)))
        })
        .await;
        let all = views::checkpoints(store, "w").await.unwrap();
        let current = all.current.as_ref().unwrap();
        let created = app.journal("w").await.unwrap().created.time_us;
        assert_eq!(current.run, "w");
        assert_eq!(current.state, json!({ "words": 3 }));
        assert_eq!(current.pending, ["publish#1"]);
        assert_eq!(current.checkpoint.session.as_deref(), Some("first"));
        assert!(current.checkpoint.time_us >= created);
        assert_eq!(
            current.checkpoint.step.as_ref().unwrap().as_str(),
            "final#1"
        );
        assert_eq!(current.resources.len(), 1);
        assert_eq!(current.resources[0].name, path.to_str().unwrap());
        assert!(
            current.resources[0]
                .fingerprint
                .starts_with("4 bytes, blake3 ")
        );
        let previous = all.previous.as_ref().unwrap();
        assert_eq!(
            (&previous.state, previous.resources.len()),
            (&json!("b"), 0)
        );
        let pinned: Vec<_> = all.pinned.iter().map(|c| c.state.clone()).collect();
        assert_eq!(pinned, [json!("a")]);
    });
}

#[test]
fn tasks_have_their_checkpoints_until_they_are_done_and_sessions_their_tasks() {
    let dir = TempDir::new("tasks");
    let agent = |ctx: Ctx, (): ()| async move {
        ctx.checkpoint("asked", &1).await?;
        ctx.signal::<u64>("go").await
    };
    let builder = |session: &str| Dalsegno::builder().agent("a", agent).session(session);
    life(async {
        let app = builder("monday").open(dir.path()).await.unwrap();
        for run in ["one", "two"] {
            app.start("a", run, &()).await.unwrap();
            stands(&app, run, Standing::WaitsForSignal).await;
        }
        app.close().await.unwrap();
    });
    life(async {
        let app = builder("tuesday").open(dir.path()).await.unwrap();
        app.signal("two", "go", &2).await.unwrap();
        let _: u64 = app.find("two").await.unwrap().result().await.unwrap();
        app.start("a", "three", &()).await.unwrap();
        stands(&app, "three", Standing::WaitsForSignal).await;

        // Also beside the owner.
        let reader = Options::new().open_read_only(dir.path()).unwrap();
        let tasks = views::tasks(&reader).await.unwrap();
        let shown: Vec<_> = tasks
            .iter()
            .map(|task| {
                let (name, status) = (task.info.run.name(), task.info.status);
                (
                    name,
                    status,
                    task.checkpoint.is_some(),
                    task.waits.join(", "),
                )
            })
            .collect();
        let waits = "signal go".to_owned();
        assert_eq!(
            shown,
            [
                ("one", Status::Checkpointed, true, waits.clone()),
                ("three", Status::Checkpointed, true, waits),
                ("two", Status::Completed, false, String::new()),
            ]
        );
        let sessions = views::sessions(&reader).await.unwrap();
        let names: Vec<_> = sessions
            .iter()
            .map(|session| {
                let tasks = session.tasks.iter().map(|task| task.info.run.name());
                (session.name.as_str(), tasks.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            names,
            [("monday", vec!["one"]), ("tuesday", vec!["three", "two"])]
        );
        let monday = views::session(&reader, "monday").await.unwrap().unwrap();
        assert_eq!(monday.tasks.len(), 1);
        assert_eq!(monday.earlier, ["two"]);
        assert!(views::session(&reader, "sunday").await.unwrap().is_none());
        app.close().await.unwrap();
    });
}

fn counter() -> Builder {
    let turn = |ctx: Ctx, n: u64| async move {
        if n == 2 {
            ctx.checkpoint("early", &n).pin().await?;
        }
        Ok(match n {
            40 => Turn::Done(ctx.signal::<u64>("go").await?),
            _ => Turn::Continue(n + 1),
        })
    };
    Dalsegno::builder()
        .session("s")
        .loop_agent("l", |(): ()| 0, turn)
}

#[test]
fn a_loops_turns_are_checkpoints_and_a_pinned_one_outlives_them() {
    let dir = TempDir::new("cp-loop");
    life(async {
        let app = counter().open(dir.path()).await.unwrap();
        app.start("l", "c", &()).await.unwrap();
        stands(&app, "c", Standing::WaitsForSignal).await;
        let all = views::checkpoints(&**app.store(), "c").await.unwrap();
        let current = all.current.unwrap();
        assert_eq!(
            (current.checkpoint.turn, current.state),
            (Some(40), json!(40))
        );
        assert_eq!(current.checkpoint.session.as_deref(), Some("s"));
        assert_eq!(all.previous.unwrap().checkpoint.turn, Some(39));
        assert_eq!(all.pinned.len(), 1);
        assert_eq!(all.pinned[0].state, json!(2));
        app.close().await.unwrap();
    });
    // A process that reads the run from its last turn still knows it.
    life(async {
        let store = LocalStore::open(dir.path()).unwrap();
        let all = views::checkpoints(&store, "c").await.unwrap();
        assert_eq!(all.pinned.len(), 1);
        store.close().unwrap();
    });
}

#[test]
fn a_current_checkpoint_that_cannot_be_read_leaves_the_previous_one() {
    let dir = TempDir::new("cp-bad");
    let long = "x".repeat(5000);
    let agent = {
        let long = long.clone();
        move |ctx: Ctx, (): ()| {
            let long = long.clone();
            async move {
                ctx.checkpoint("one", &format!("one {long}")).await?;
                ctx.checkpoint("two", &format!("two {long}")).await?;
                ctx.signal::<u64>("go").await
            }
        }
    };
    life(async {
        let app = Dalsegno::builder()
            .agent("a", agent)
            .open(dir.path())
            .await
            .unwrap();
        app.start("a", "c", &()).await.unwrap();
        stands(&app, "c", Standing::WaitsForSignal).await;
        app.close().await.unwrap();
    });
    life(async {
        let store = LocalStore::open(dir.path()).unwrap();
        let all = views::checkpoints(&store, "c").await.unwrap();
        let bad = all.current.unwrap().checkpoint.state.unwrap();
        let store: Arc<dyn Store> = Arc::new(lives::Rotten::new(store, vec![bad]));
        let all = views::checkpoints(&*store, "c").await.unwrap();
        let damage = all.current.as_ref().unwrap().damage.as_ref().unwrap();
        assert!(damage.contains("is damaged"), "{damage}");
        let good = all.good().unwrap();
        assert_eq!(good.state, json!(format!("one {long}")));
    });
}

#[test]
fn a_run_that_there_is_not_is_an_error() {
    let dir = TempDir::new("cp-none");
    life(async {
        let app = counter().open(dir.path()).await.unwrap();
        let none = views::checkpoints(&**app.store(), "nobody")
            .await
            .unwrap_err();
        assert!(none.to_string().contains("nobody"), "{none}");
        assert!(views::tasks(&**app.store()).await.unwrap().is_empty());
        assert!(
            views::recovery_log(&**app.store())
                .await
                .unwrap()
                .is_empty()
        );
        app.close().await.unwrap();
    });
}
