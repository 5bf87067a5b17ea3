//! What a run depends on outside is noted with a checkpoint and looked at before it goes on.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod holding;
mod lives;

use std::path::Path;
use std::sync::{Arc, Mutex};

use common::TempDir;
use dalsegno::{
    AttentionKind, Builder, Ctx, Dalsegno, Failure, IfChanged, Resource, ResourceKind, Standing,
    record, views,
};
use dalsegno_store::{Kind, StreamId};
use holding::{changed_while_waiting, holder, result, write};
use lives::{life, stands, until};

/// How the changes of resources were accepted, in order.
async fn accepted(app: &Dalsegno) -> Vec<u64> {
    let run = StreamId::run("h").unwrap();
    let events = app.store().read(&run, 1, 1000).await.unwrap();
    let noted = events
        .iter()
        .filter(|r| r.event.kind == Kind::ResourceNoted);
    noted
        .filter_map(|r| r.event.fields.number(record::resource::ACCEPTED))
        .collect()
}

#[test]
fn a_file_that_has_changed_is_shown_to_a_person_who_accepts_exactly_that() {
    let (dir, files) = (TempDir::new("res"), TempDir::new("res-files"));
    let path = files.path().join("report.md");
    write(&path, "one");
    let held = path.clone();
    life(async {
        let app = holder(move || vec![Resource::file(&held)]);
        let app = app.open(dir.path()).await.unwrap();
        changed_while_waiting(&app, || write(&path, "two")).await;

        let why = stands(&app, "h", Standing::NeedsPerson).await;
        let attention = app.journal("h").await.unwrap().attention.unwrap();
        assert_eq!(attention.kind, AttentionKind::Resource);
        let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
        for part in [
            path.to_str().unwrap(),
            "3 bytes",
            &hash("one"),
            &hash("two"),
        ] {
            assert!(
                attention.reason.contains(part),
                "{part}: {}",
                attention.reason
            );
        }
        assert!(why.to_do.contains("clear the attention"), "{why}");
        assert!(
            result(&app)
                .await
                .unwrap_err()
                .to_string()
                .contains("has changed")
        );

        // It changes again before it is accepted: what nobody has seen is not accepted.
        write(&path, "three");
        app.clear_attention("h").await.unwrap();
        until("asked again", || async {
            let attention = app.journal("h").await.unwrap().attention;
            attention.is_some_and(|a| a.reason.contains(&hash("three")))
        })
        .await;
        // Something else that is said does not accept it either.
        app.set_budget("h", dalsegno::Budget::default())
            .await
            .unwrap();
        let events = || async { app.journal("h").await.unwrap().last };
        let before = events().await;
        until("asked once more", || async { events().await > before }).await;
        stands(&app, "h", Standing::NeedsPerson).await;

        app.clear_attention("h").await.unwrap();
        until("accepted", || async { result(&app).await.is_ok() }).await;
        assert_eq!(result(&app).await.unwrap(), 7);
        assert_eq!(accepted(&app).await, [1]);
        app.close().await.unwrap();
    });
}

#[test]
fn a_file_that_is_brought_back_is_as_it_was() {
    let (dir, files) = (TempDir::new("res-back"), TempDir::new("res-files"));
    let path = files.path().join("a");
    write(&path, "one");
    let held = path.clone();
    life(async {
        let app = holder(move || vec![Resource::file(&held)]);
        let app = app.open(dir.path()).await.unwrap();
        changed_while_waiting(&app, || std::fs::remove_file(&path).unwrap()).await;
        let why = stands(&app, "h", Standing::NeedsPerson).await;
        assert!(why.because.contains("is gone"), "{why}");
        write(&path, "one");
        app.clear_attention("h").await.unwrap();
        until("gone on", || async { result(&app).await.is_ok() }).await;
        assert_eq!(accepted(&app).await, [0_u64; 0]);
        app.close().await.unwrap();
    });
}

#[test]
fn the_policy_says_what_a_change_leads_to() {
    for (policy, accepts) in [(IfChanged::Fail, vec![]), (IfChanged::GoOn, vec![2])] {
        let (dir, files) = (TempDir::new("res-policy"), TempDir::new("res-files"));
        let path = files.path().join("a");
        write(&path, "one");
        let held = path.clone();
        life(async {
            let app = holder(move || vec![Resource::file(&held).if_changed(policy)]);
            let app = app.open(dir.path()).await.unwrap();
            changed_while_waiting(&app, || write(&path, "two")).await;
            let ended = result(&app).await;
            match policy {
                IfChanged::Fail => {
                    let said = ended.unwrap_err().to_string();
                    assert!(
                        said.contains("file") && said.contains("has changed"),
                        "{said}"
                    );
                }
                _ => assert_eq!(ended.unwrap(), 7),
            }
            assert_eq!(accepted(&app).await, accepts);
            app.close().await.unwrap();
        });
    }
}

/// After a crash in the middle of a step nothing is executed before the file was looked at, and the
/// recovery log says so.
#[test]
fn a_crashed_run_is_validated_before_it_goes_on() {
    let (dir, files) = (TempDir::new("res-crash"), TempDir::new("res-files"));
    let path = files.path().join("a");
    write(&path, "one");
    let calls = Arc::new(Mutex::new(0));
    let agent = |hangs: bool| {
        let (path, calls) = (path.clone(), Arc::clone(&calls));
        Dalsegno::builder().agent("a", move |ctx: Ctx, (): ()| {
            let (path, calls) = (path.clone(), Arc::clone(&calls));
            async move {
                ctx.checkpoint("c", &1)
                    .holding(Resource::file(&path))
                    .await?;
                ctx.tool("work")
                    .read_only()
                    .call(|_| {
                        *calls.lock().unwrap() += 1;
                        async move {
                            if hangs {
                                std::future::pending::<()>().await;
                            }
                            Ok(1)
                        }
                    })
                    .await
            }
        })
    };
    life(async {
        let app = agent(true).open(dir.path()).await.unwrap();
        app.start("a", "h", &()).await.unwrap();
        until("called", || async { *calls.lock().unwrap() == 1 }).await;
    });
    write(&path, "two");
    life(async {
        let app = agent(false).open(dir.path()).await.unwrap();
        stands(&app, "h", Standing::NeedsPerson).await;
        assert_eq!(*calls.lock().unwrap(), 1);
        let log = views::recovery_log(&**app.store()).await.unwrap();
        assert_eq!(log.len(), 1);
        assert_eq!(
            log[0].recovered.action,
            dalsegno::RecoveryAction::NeedsPerson
        );
        assert_eq!(log[0].report["checked"][0]["verdict"], "changed");
        app.clear_attention("h").await.unwrap();
        until("done", || async { result(&app).await.is_ok() }).await;
        app.close().await.unwrap();
    });
}

#[test]
fn later_notes_replace_earlier_ones_and_released_resources_may_change() {
    let (dir, files) = (TempDir::new("res-later"), TempDir::new("res-files"));
    let [a, b, c] = ["a", "b", "c"].map(|name| files.path().join(name));
    for path in [&a, &b, &c] {
        write(path, "one");
    }
    let held = [a.clone(), b.clone(), c.clone()];
    let agent = move |ctx: Ctx, (): ()| {
        let [a, b, c] = held.clone().map(Resource::file);
        async move {
            let first = ctx.checkpoint("first", &1).holding(a.clone());
            first.holding(b.clone()).holding(c.clone()).await?;
            ctx.signal::<u64>("on").await?;
            ctx.release_resource(c).await?;
            ctx.checkpoint("second", &2).holding(a).releasing(b).await?;
            ctx.signal::<u64>("go").await
        }
    };
    life(async {
        let app = Dalsegno::builder()
            .agent("a", agent)
            .open(dir.path())
            .await
            .unwrap();
        app.start("a", "h", &()).await.unwrap();
        stands(&app, "h", Standing::WaitsForSignal).await;
        app.signal("h", "on", &1).await.unwrap();
        until("noted anew", || async {
            app.journal("h").await.unwrap().resources.len() == 1
        })
        .await;
        until("waits", || async {
            app.why("h").await.unwrap().because.contains("go")
        })
        .await;
        let noted = app.journal("h").await.unwrap().resources;
        let noted: Vec<_> = noted
            .values()
            .map(|noted| (noted.kind, noted.name.as_str()))
            .collect();
        assert_eq!(noted, [(ResourceKind::File, a.to_str().unwrap())]);
        write(&b, "two");
        std::fs::remove_file(&c).unwrap();
        app.signal("h", "go", &7).await.unwrap();
        assert_eq!(result(&app).await.unwrap(), 7);
        app.close().await.unwrap();
    });
}

/// The notes of a loop outlive its turns.
#[test]
fn a_loop_holds_its_resources_over_its_turns() {
    let (dir, files) = (TempDir::new("res-loop"), TempDir::new("res-files"));
    let path = files.path().join("a");
    write(&path, "one");
    let held = path.clone();
    let turn = move |ctx: Ctx, n: u64| {
        let held = held.clone();
        async move {
            if n == 0 {
                ctx.checkpoint("holding", &n)
                    .holding(Resource::file(&held))
                    .await?;
            }
            Ok(match n {
                100 => dalsegno::Turn::Done(ctx.signal::<u64>("go").await?),
                _ => dalsegno::Turn::Continue(n + 1),
            })
        }
    };
    life(async {
        let app = Dalsegno::builder().loop_agent("l", |(): ()| 0, turn);
        let app = app.open(dir.path()).await.unwrap();
        app.start("l", "h", &()).await.unwrap();
        stands(&app, "h", Standing::WaitsForSignal).await;
        assert_eq!(app.journal("h").await.unwrap().resources.len(), 1);
        write(&path, "two");
        app.signal("h", "go", &7).await.unwrap();
        let why = stands(&app, "h", Standing::NeedsPerson).await;
        assert!(why.because.contains("has changed"), "{why}");
        app.close().await.unwrap();
    });
}

#[test]
fn a_folder_is_known_by_the_names_and_contents_in_it() {
    type Change = fn(&Path);
    let changes: [(&str, Change, bool); 6] = [
        ("nothing", |_| {}, false),
        (
            "the same again",
            |dir| write(&dir.join("sub/b"), "b"),
            false,
        ),
        (
            "git's own",
            |dir| write(&dir.join(".git/index"), "x"),
            false,
        ),
        ("a content", |dir| write(&dir.join("sub/b"), "B"), true),
        ("a new file", |dir| write(&dir.join("sub/c"), ""), true),
        (
            "a name",
            |dir| std::fs::rename(dir.join("a"), dir.join("c")).unwrap(),
            true,
        ),
    ];
    for (what, change, changes_it) in changes {
        let (dir, files) = (TempDir::new("res-tree"), TempDir::new("res-files"));
        let root = files.path().join("root");
        write(&root.join("a"), "a");
        write(&root.join("sub/b"), "b");
        let held = root.clone();
        life(async {
            let app = holder(move || vec![Resource::folder(&held)]);
            let app = app.open(dir.path()).await.unwrap();
            changed_while_waiting(&app, || change(&root)).await;
            let ended = result(&app).await;
            assert_eq!(ended.is_err(), changes_it, "{what}: {ended:?}");
            if let Err(e) = ended {
                assert!(e.to_string().contains("2 files, 2 bytes"), "{e}");
            }
            app.close().await.unwrap();
        });
    }
}

#[test]
fn the_users_own_resources_are_asked_of_their_validators() {
    let dir = TempDir::new("res-own");
    let world = Arc::new(Mutex::new(Some("etag-1".to_owned())));
    let make = || {
        vec![
            Resource::url("http://x/"),
            Resource::custom("table", "orders"),
        ]
    };
    let validated = |world: &Arc<Mutex<Option<String>>>| {
        let world = Arc::clone(world);
        holder(make)
            .resource("url", move |url| {
                let found = world.lock().unwrap().clone();
                async move {
                    assert_eq!(url, "http://x/");
                    match found.as_deref() {
                        Some("down") => Err(Failure::new("connection refused")),
                        Some("panic") => panic!("ouch"),
                        _ => Ok(found),
                    }
                }
            })
            .resource("table", |name| async move { Ok(Some(format!("{name} 1"))) })
    };
    let say = |found: Option<&str>| *world.lock().unwrap() = found.map(str::to_owned);
    life(async {
        let app = validated(&world).open(dir.path()).await.unwrap();
        changed_while_waiting(&app, || say(Some("etag-2"))).await;
        let seen = |part: &'static str| {
            let app = app.clone();
            until(part, move || {
                let app = app.clone();
                async move {
                    let attention = app.journal("h").await.unwrap().attention;
                    attention.is_some_and(|a| a.reason.contains(part))
                }
            })
        };
        seen("url http://x/ was etag-1 and is etag-2").await;
        for (found, part) in [
            (None, "url http://x/ is gone, it was etag-1"),
            (
                Some("down"),
                "the validator \"url\" failed: connection refused",
            ),
            (Some("panic"), "the validator \"url\" panicked: ouch"),
        ] {
            say(found);
            app.clear_attention("h").await.unwrap();
            seen(part).await;
        }
        app.close().await.unwrap();
    });
    // In a process that cannot look, a person is asked, and told what is missing.
    life(async {
        let app = holder(make).open(dir.path()).await.unwrap();
        app.clear_attention("h").await.unwrap();
        until("said", || async {
            let attention = app.journal("h").await.unwrap().attention;
            attention.is_some_and(|a| a.reason.contains("no validator \"table\" in this process"))
        })
        .await;
        app.close().await.unwrap();
    });
    say(Some("etag-1"));
    life(async {
        let app = validated(&world).open(dir.path()).await.unwrap();
        app.clear_attention("h").await.unwrap();
        until("done", || async { result(&app).await.is_ok() }).await;
        app.close().await.unwrap();
    });
}

/// The code goes on with the failure, so it stays the same when the cause is gone.
#[test]
fn a_resource_that_cannot_be_noted_is_a_recorded_failure() {
    let dir = TempDir::new("res-bad");
    let agent = |ctx: Ctx, (): ()| async move {
        let noted = ctx
            .checkpoint("c", &1)
            .holding(Resource::url("http://x/"))
            .await;
        let said = noted.unwrap_err().to_string();
        ctx.signal::<u64>("go").await?;
        Ok(said)
    };
    let builder = || Dalsegno::builder().agent("a", agent);
    life(async {
        let app = builder().open(dir.path()).await.unwrap();
        app.start("a", "h", &()).await.unwrap();
        stands(&app, "h", Standing::WaitsForSignal).await;
        app.close().await.unwrap();
    });
    life(async {
        let builder = builder().resource("url", |_| async { Ok(Some("there".to_owned())) });
        let app = builder.open(dir.path()).await.unwrap();
        app.signal("h", "go", &7).await.unwrap();
        let said: String = app.find("h").await.unwrap().result().await.unwrap();
        assert!(said.contains("url http://x/ cannot be noted"), "{said}");
        assert!(said.contains("Builder::resource"), "{said}");
        app.close().await.unwrap();
    });
}

/// To open a pipe would wait for ever.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_refused_as_one() {
    let (dir, files) = (TempDir::new("res-pipe"), TempDir::new("res-files"));
    let pipe = files.path().join("pipe");
    std::fs::create_dir_all(files.path()).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    for path in [pipe, files.path().to_owned()] {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        life(async {
            let app = holder(move || vec![Resource::file(&path)]);
            let app = app.open(dir.path()).await.unwrap();
            app.start("holder", &name, &()).await.unwrap();
            let failed = app.find(&name).await.unwrap().result::<u64>().await;
            let said = failed.unwrap_err().to_string();
            assert!(said.contains("it is no file"), "{said}");
            app.close().await.unwrap();
        });
    }
}

/// A loop that notes, depends on and releases resources, killed at every moment.
#[test]
fn killed_everywhere_while_it_holds_resources() {
    use dalsegno::testkit::{CrashEverywhere, World};
    use std::sync::atomic::{AtomicU64, Ordering};
    let register = |builder: Builder, world: World| {
        let turn = move |ctx: Ctx, left: u64| {
            let world = world.clone();
            async move {
                if left == 0 {
                    return Ok(dalsegno::Turn::Done("done".to_owned()));
                }
                let fixed = Resource::custom("fixed", &format!("part {left}"));
                let moves = Resource::custom("moves", "clock").if_changed(IfChanged::GoOn);
                let noted = ctx.checkpoint("before", &left).step(4 - left, 3);
                noted.holding(fixed.clone()).holding(moves).await?;
                ctx.tool("write")
                    .idempotent()
                    .input(&left)
                    .call(move |call| {
                        let world = world.clone();
                        async move {
                            world.idempotent("write", call.key()).await;
                            Ok(())
                        }
                    })
                    .await?;
                ctx.sleep(std::time::Duration::from_secs(60)).await?;
                ctx.release_resource(fixed).await?;
                Ok(dalsegno::Turn::Continue(left - 1))
            }
        };
        let looks = AtomicU64::new(0);
        builder
            .loop_agent("holder", |turns: u64| turns, turn)
            .resource("fixed", |name| async move { Ok(Some(name)) })
            .resource("moves", move |_| {
                let look = looks.fetch_add(1, Ordering::Relaxed);
                async move { Ok(Some(look.to_string())) }
            })
    };
    for durability in [
        dalsegno::Durability::Strict,
        dalsegno::Durability::default(),
    ] {
        let test = CrashEverywhere::new("holder", &3_u64, register).durability(durability);
        match test.run_to("done") {
            Ok(report) => println!("{durability:?}: {report}"),
            Err(broken) => panic!("{durability:?}: {broken}"),
        }
    }
}

#[test]
fn a_long_fingerprint_is_compared_to_its_end_and_can_be_accepted() {
    let dir = TempDir::new("res-long");
    let page = Arc::new(Mutex::new("x".repeat(20_000)));
    let seen = Arc::clone(&page);
    life(async {
        let app = holder(|| vec![Resource::url("http://page")]);
        let app = app.resource("url", move |_| {
            let page = seen.lock().unwrap().clone();
            async move { Ok(Some(page)) }
        });
        let app = app.open(dir.path()).await.unwrap();
        // The same length, and the same beginning.
        let change = || page.lock().unwrap().replace_range(19_999.., "y");
        changed_while_waiting(&app, change).await;
        let asked = result(&app).await.unwrap_err();
        assert!(asked.to_string().contains("http://page"), "{asked}");
        app.clear_attention("h").await.unwrap();
        until("accepted", || async { result(&app).await.is_ok() }).await;
        assert_eq!(accepted(&app).await, [1]);
        app.close().await.unwrap();
    });
}
