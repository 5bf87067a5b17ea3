//! When a store is opened, every unfinished run is taken up or says why not; and a run whose worker
//! died has a report of what it was doing.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod lives;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{TempDir, World};
use dalsegno::{Builder, Ctx, Dalsegno, RecoveryAction, Standing, Turn, record, views};
use dalsegno_store::{Append, Fields, Kind, LocalStore, NewEvent, Store, StreamId, Value};
use lives::{life, stands, until};

/// Reads, then sends something, which hangs as long as it is told to.
fn sender(world: &World, hangs: &Arc<AtomicBool>) -> Builder {
    let (world, hangs) = (world.clone(), Arc::clone(hangs));
    Dalsegno::builder()
        .session("second")
        .agent("sender", move |ctx: Ctx, to: String| {
            let (world, hangs) = (world.clone(), Arc::clone(&hangs));
            async move {
                let text: String = ctx
                    .tool("read")
                    .read_only()
                    .call(|_| async { Ok("a text".to_owned()) })
                    .await?;
                ctx.checkpoint("before sending", &text).step(1, 2).await?;
                ctx.tool("send")
                    .idempotent()
                    .input(&to)
                    .call(|_| {
                        world.did("send");
                        let hangs = hangs.load(Ordering::SeqCst);
                        async move {
                            if hangs {
                                std::future::pending::<()>().await;
                            }
                            Ok(true)
                        }
                    })
                    .await
            }
        })
}

#[test]
fn a_run_whose_worker_died_is_resumed_and_its_report_says_what_it_was_doing() {
    let (dir, world) = (TempDir::new("report"), World::default());
    let hangs = Arc::new(AtomicBool::new(true));
    for crash in 1..=2 {
        life(async {
            let builder = sender(&world, &hangs).session(&format!("life-{crash}"));
            let app = builder.open(dir.path()).await.unwrap();
            app.start("sender", "one", "ada").await.unwrap();
            until("sent", || async { world.count("send") == crash }).await;
        });
    }
    hangs.store(false, Ordering::SeqCst);
    life(async {
        let app = sender(&world, &hangs).open(dir.path()).await.unwrap();
        let recovered = app.recovered().await;
        assert_eq!(recovered.len(), 1);
        assert_eq!(recovered[0].action, RecoveryAction::Resumed);
        let said = recovered[0].to_string();
        assert!(
            said.starts_with("one of sender: resumed: its worker"),
            "{said}"
        );
        let done: bool = app.find("one").await.unwrap().result().await.unwrap();
        assert!(done);

        let log = views::recovery_log(&**app.store()).await.unwrap();
        let sessions: Vec<_> = log.iter().map(|entry| entry.session.as_str()).collect();
        assert_eq!(sessions, ["life-2", "second"]);
        let entry = &log[1];
        assert_eq!(entry.recovered.action, RecoveryAction::Resumed);
        assert!(entry.recovered.why.contains("session life-2"), "{entry:?}");
        assert!(entry.recovered.why.contains("during send#1"), "{entry:?}");
        let report = &entry.report;
        assert_eq!(report["doing"]["open"][0]["step"], "send#1");
        assert_eq!(report["doing"]["open"][0]["input"], "\"ada\"");
        assert_eq!(report["doing"]["last"][0]["step"], "read#1");
        assert_eq!(report["knew"]["checkpoint"]["state"], "\"a text\"");
        assert_eq!(report["knew"]["checkpoint"]["of"], 2);
        assert_eq!(report["next"][0]["what"], "execute");
        assert_eq!(report["next"][0]["attempt"], 3);
        let changed = report["changed"].as_array().unwrap();
        let last = changed.last().unwrap()["what"].as_str().unwrap();
        assert_eq!(last, "step-intended send#1");
        app.close().await.unwrap();
    });
}

/// A run must not stay behind because what is to be said of it is too long.
#[test]
fn a_store_that_takes_no_long_reports_still_recovers() {
    let (dir, world) = (TempDir::new("short"), World::default());
    let hangs = Arc::new(AtomicBool::new(true));
    let limits = dalsegno_store::Limits {
        payload_bytes: 100,
        ..dalsegno_store::Limits::default()
    };
    let options = dalsegno_store::Options::new().limits(limits);
    life(async {
        let app = sender(&world, &hangs).store_options(options.clone());
        let app = app.open(dir.path()).await.unwrap();
        app.start("sender", "one", "ada").await.unwrap();
        until("sent", || async { world.count("send") == 1 }).await;
    });
    hangs.store(false, Ordering::SeqCst);
    life(async {
        let app = sender(&world, &hangs).store_options(options);
        let app = app.open(dir.path()).await.unwrap();
        let done: bool = app.find("one").await.unwrap().result().await.unwrap();
        assert!(done);
        let log = views::recovery_log(&**app.store()).await.unwrap();
        assert!(log[0].recovered.why.contains("during send#1"), "{log:?}");
        assert!(log[0].report.is_null());
        app.close().await.unwrap();
    });
}

/// However many steps were under way, the report has an end.
#[test]
fn a_report_of_very_many_steps_is_cut() {
    let (dir, world) = (TempDir::new("cut"), World::default());
    let agent = |hangs: bool| {
        let world = world.clone();
        Dalsegno::builder().agent("wide", move |ctx: Ctx, (): ()| {
            let world = world.clone();
            async move {
                let got = ctx.each("branch", 0..200_u64, |ctx, n| {
                    let world = world.clone();
                    async move {
                        let tool = ctx.tool("look").read_only();
                        let looked = tool.call(|_| {
                            world.did("look");
                            async move {
                                if hangs {
                                    std::future::pending::<()>().await;
                                }
                                Ok(n)
                            }
                        });
                        looked.await
                    }
                });
                Ok(got.await?.len())
            }
        })
    };
    life(async {
        let app = agent(true).open(dir.path()).await.unwrap();
        app.start("wide", "w", &()).await.unwrap();
        until("all", || async { world.count("look") == 200 }).await;
    });
    life(async {
        let app = agent(false).open(dir.path()).await.unwrap();
        let count: usize = app.find("w").await.unwrap().result().await.unwrap();
        assert_eq!(count, 200);
        let log = views::recovery_log(&**app.store()).await.unwrap();
        let open = log[0].report["doing"]["open"].as_array().unwrap();
        assert_eq!(
            (open.len(), &open[50]["left_off"]),
            (51, &serde_json::json!(150))
        );
        app.close().await.unwrap();
    });
}

#[test]
fn recovery_passes_over_no_run_without_saying_why() {
    let dir = TempDir::new("actions");
    let waits = |ctx: Ctx, (): ()| async move { ctx.signal::<u64>("go").await };
    let doubts = |ctx: Ctx, (): ()| async move {
        ctx.tool("pay")
            .call(|_| async { Err::<u64, _>(dalsegno::Failure::new("no answer")) })
            .await
    };
    life(async {
        let app = Dalsegno::builder()
            .agent("waits", waits)
            .agent("doubts", doubts)
            .agent("gone", waits)
            .open(dir.path())
            .await
            .unwrap();
        for (agent, run) in [
            ("waits", "a"),
            ("doubts", "b"),
            ("gone", "c"),
            ("waits", "d"),
        ] {
            app.start(agent, run, &()).await.unwrap();
        }
        stands(&app, "a", Standing::WaitsForSignal).await;
        stands(&app, "b", Standing::NeedsPerson).await;
        stands(&app, "c", Standing::WaitsForSignal).await;
        stands(&app, "d", Standing::WaitsForSignal).await;
        app.close().await.unwrap();
    });
    // Something comes for one of them while nobody is there, and another is only created.
    life(async {
        let store = LocalStore::open(dir.path()).unwrap();
        let fields = Fields::new().with(record::signal::NAME, "go");
        let signal = NewEvent::new(Kind::SignalReceived).with_fields(fields);
        let signal = signal.with_input(dalsegno_store::NewPayload::json("7"));
        let fields = Fields::new().with(record::created::AGENT, "waits");
        let created = NewEvent::new(Kind::RunCreated).with_fields(fields);
        let to = |run, event| Append::to(StreamId::run(run).unwrap(), vec![event]);
        let batch = vec![to("d", signal), to("e", created)];
        store.append(batch).await.unwrap();
        store.close().unwrap();
    });
    life(async {
        let app = Dalsegno::builder()
            .agent("waits", waits)
            .agent("doubts", doubts)
            .open(dir.path())
            .await
            .unwrap();
        let recovered = app.recovered().await;
        let said: Vec<_> = recovered
            .iter()
            .map(|one| (one.run.as_str(), one.action, one.why.as_str()))
            .collect();
        let actions: Vec<_> = said
            .iter()
            .map(|(run, action, _)| (*run, *action))
            .collect();
        assert_eq!(
            actions,
            [
                ("a", RecoveryAction::StillWaiting),
                ("b", RecoveryAction::NeedsPerson),
                ("c", RecoveryAction::NotRegistered),
                ("d", RecoveryAction::Resumed),
                ("e", RecoveryAction::Started),
            ]
        );
        assert_eq!(said[0].2, "it waits for signal go");
        assert!(
            said[1]
                .2
                .contains("nobody knows whether tool pay#1 happened"),
            "{said:?}"
        );
        assert!(said[2].2.contains("only doubts, waits"), "{said:?}");
        assert!(said[3].2.contains("signal-received"), "{said:?}");
        let seven: u64 = app.find("d").await.unwrap().result().await.unwrap();
        assert_eq!(seven, 7);
        let refused = app
            .find("c")
            .await
            .unwrap()
            .result::<u64>()
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("not registered"), "{refused}");
        app.close().await.unwrap();
    });
}

/// What cannot be read stops its run, and neither the opening nor any other run.
#[test]
fn a_waiting_run_whose_events_are_damaged_does_not_stop_the_others() {
    let dir = TempDir::new("one-bad");
    let waits = |ctx: Ctx, (): ()| async move { ctx.signal::<u64>("go").await };
    let builder = || Dalsegno::builder().agent("waits", waits);
    life(async {
        let app = builder().open(dir.path()).await.unwrap();
        for run in ["bad", "good"] {
            app.start("waits", run, &()).await.unwrap();
            stands(&app, run, Standing::WaitsForSignal).await;
        }
        app.close().await.unwrap();
    });
    life(async {
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(dir.path()).unwrap());
        let bad = StreamId::run("bad").unwrap();
        let store: Arc<dyn Store> = Arc::new(lives::Rotten::losing(&store, bad));
        let app = builder().open_store(Arc::clone(&store)).await.unwrap();
        let recovered = app.recovered().await;
        assert_eq!(recovered[0].action, RecoveryAction::Broken);
        assert!(
            recovered[0].why.contains("an event is damaged"),
            "{recovered:?}"
        );
        assert_eq!(recovered[1].action, RecoveryAction::StillWaiting);
        app.signal("good", "go", &7).await.unwrap();
        let seven: u64 = app.find("good").await.unwrap().result().await.unwrap();
        assert_eq!(seven, 7);
        // The views show what can be read, and say what cannot.
        let tasks = views::tasks(&*store).await.unwrap();
        assert!(tasks[0].damage.is_some() && tasks[1].damage.is_none());
        assert!(views::recovery_log(&*store).await.unwrap().is_empty());
    });
}

/// Runs that wait are looked at behind the opening, and only at their last events.
#[test]
fn ten_thousand_waiting_runs_do_not_hold_up_the_opening() {
    const RUNS: usize = 10_000;
    let dir = TempDir::new("many");
    // So small that most runs are in sealed segments, as they are after days.
    let options = dalsegno_store::Options::new().segment_bytes(256 << 10);
    life(async {
        let store = options.open(dir.path()).unwrap();
        let event = |kind, fields| NewEvent::new(kind).with_fields(fields);
        let wait = Value::List(vec![Value::Text("signal go".into())]);
        for some in (0..RUNS).collect::<Vec<_>>().chunks(100) {
            let batch = some.iter().map(|n| {
                let agent = Fields::new().with(record::created::AGENT, "waits");
                let waits = Fields::new().with(record::checkpointed::WAITS, wait.clone());
                let events = vec![
                    event(Kind::RunCreated, agent),
                    event(Kind::RunStarted, Fields::new()),
                    event(Kind::RunCheckpointed, waits),
                ];
                Append::to(StreamId::run(&format!("run-{n}")).unwrap(), events)
            });
            store.append(batch.collect()).await.unwrap();
        }
        store.close().unwrap();
    });
    life(async {
        let waits = |ctx: Ctx, (): ()| async move { ctx.signal::<u64>("go").await };
        let began = Instant::now();
        let app = Dalsegno::builder()
            .agent("waits", waits)
            .store_options(options)
            .open(dir.path())
            .await
            .unwrap();
        let took = began.elapsed();
        let recovered = app.recovered().await;
        let looked = began.elapsed();
        println!("{RUNS} waiting runs: opened in {took:?}, all looked at after {looked:?}");
        assert_eq!(recovered.len(), RUNS);
        let waiting = |one: &dalsegno::Recovered| one.action == RecoveryAction::StillWaiting;
        assert!(recovered.iter().all(waiting));
        assert!(took < Duration::from_secs(1), "{took:?}");
        app.close().await.unwrap();
    });
}

/// Each turn's state is long, so that it is stored apart from its event.
fn counter(hangs_at: u64, world: &World) -> Builder {
    let world = world.clone();
    let turn = move |ctx: Ctx, state: Vec<u64>| {
        let world = world.clone();
        async move {
            let n = state.len() as u64 + 1;
            // Of every kind one, so that a turn is made again of all of them.
            ctx.random().await?;
            let got: u64 = ctx
                .plan_step("part", |ctx| async move {
                    let tool = ctx.tool("count").input(&n);
                    let counted = tool.call(|_| {
                        world.did(&format!("count {n}"));
                        async move { Ok(n * 1_000_000_007) }
                    });
                    counted.await
                })
                .await?;
            let got = ctx.decide("keep", got).await?;
            ctx.sleep(Duration::ZERO).await?;
            if n == hangs_at {
                std::future::pending::<()>().await;
            }
            let mut state = state;
            state.push(got);
            Ok(match state.len() {
                300 => Turn::Done(state.iter().sum::<u64>()),
                _ => Turn::Continue(state),
            })
        }
    };
    Dalsegno::builder().loop_agent("counter", |(): ()| Vec::<u64>::new(), turn)
}

#[test]
fn a_state_that_cannot_be_read_falls_back_to_the_one_before() {
    for lost in [1, 3] {
        let (dir, world) = (TempDir::new("fallback"), World::default());
        life(async {
            let app = counter(200, &world).open(dir.path()).await.unwrap();
            app.start("counter", "c", &()).await.unwrap();
            until("turn 200", || async { world.count("count 200") == 1 }).await;
        });
        life(async {
            // The states of the last turns are not what they were.
            let store = LocalStore::open(dir.path()).unwrap();
            let run = StreamId::run("c").unwrap();
            let head = store.head(&run).await.unwrap().unwrap().sequence;
            let events = store.read(&run, head - 60, 61).await.unwrap();
            let states = events.into_iter().map(|recorded| recorded.event);
            let states = states.filter(|event| event.kind == Kind::CheckpointWritten);
            let mut states: Vec<_> = states.filter_map(|event| event.output).collect();
            let bad = states.split_off(states.len() - lost);
            let store: Arc<dyn Store> = Arc::new(lives::Rotten::new(store, bad));
            let app = counter(0, &world)
                .open_store(Arc::clone(&store))
                .await
                .unwrap();
            let sum: u64 = app.find("c").await.unwrap().result().await.unwrap();
            assert_eq!(sum, (1..=300).map(|n| n * 1_000_000_007).sum::<u64>());
            for n in 1..=300 {
                assert_eq!(world.count(&format!("count {n}")), 1, "{n}");
            }
            let log = views::recovery_log(&*store).await.unwrap();
            assert_eq!(log.len(), 1);
            let why = &log[0].recovered.why;
            assert!(why.contains("the state after turn"), "{why}");
            assert!(why.contains("after turn 199"), "{why}");
            let good = format!("going on from the state after turn {}", 199 - lost);
            assert!(why.contains(&good), "{why}");
            app.close().await.unwrap();
        });
    }
}

#[test]
fn a_report_that_cannot_be_read_does_not_hide_the_log() {
    let (dir, world) = (TempDir::new("rotten-report"), World::default());
    life(async {
        let app = counter(20, &world).open(dir.path()).await.unwrap();
        app.start("counter", "c", &()).await.unwrap();
        until("turn 20", || async { world.count("count 20") == 1 }).await;
    });
    life(async {
        let app = counter(0, &world).open(dir.path()).await.unwrap();
        app.find("c").await.unwrap().result::<u64>().await.unwrap();
        app.close().await.unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let run = StreamId::run("c").unwrap();
        let events = store.read(&run, 1, 10_000).await.unwrap();
        let events = events.into_iter().map(|recorded| recorded.event);
        let mut reports = events.filter(|event| event.kind == Kind::RunRecovered);
        let report = reports.next().unwrap().input.unwrap();
        let store = lives::Rotten::new(store, vec![report]);
        let log = views::recovery_log(&store).await.unwrap();
        assert_eq!(log.len(), 1);
        assert_eq!(log[0].recovered.action, RecoveryAction::Resumed);
        assert!(log[0].report["damage"].is_string(), "{}", log[0].report);
    });
}

/// A mark in the middle of a turn is not the state that the loop goes on from.
#[test]
fn a_checkpoint_inside_a_turn_does_not_send_the_loop_back_to_its_beginning() {
    let (dir, world) = (TempDir::new("inside"), World::default());
    let turn = {
        let world = world.clone();
        move |ctx: Ctx, n: u64| {
            let world = world.clone();
            async move {
                world.did(&format!("turn {n}"));
                ctx.checkpoint("inside", &"a note").await?;
                if n == 2 {
                    ctx.signal::<u64>("go").await?;
                }
                Ok(match n {
                    3 => Turn::Done(n),
                    _ => Turn::Continue(n + 1),
                })
            }
        }
    };
    life(async {
        let app = Dalsegno::builder().loop_agent("l", |(): ()| 0_u64, turn);
        let app = app.open(dir.path()).await.unwrap();
        app.start("l", "r", &()).await.unwrap();
        stands(&app, "r", Standing::WaitsForSignal).await;
        app.signal("r", "go", &1).await.unwrap();
        let three: u64 = app.find("r").await.unwrap().result().await.unwrap();
        let turns = [0, 1, 2, 3].map(|n| world.count(&format!("turn {n}")));
        assert_eq!((three, turns), (3, [1, 1, 2, 1]));
        app.close().await.unwrap();
    });
}

/// The recoveries of a loop are found without reading all its turns.
#[test]
fn the_recoveries_of_a_loop_are_found_over_its_turns() {
    let (dir, world) = (TempDir::new("loop-log"), World::default());
    for hangs_at in [50, 100] {
        life(async {
            let app = counter(hangs_at, &world).open(dir.path()).await.unwrap();
            app.start("counter", "c", &()).await.unwrap();
            let what = format!("count {hangs_at}");
            until(&what, || async { world.count(&what) == 1 }).await;
        });
    }
    life(async {
        let app = counter(0, &world).open(dir.path()).await.unwrap();
        let _: u64 = app.find("c").await.unwrap().result().await.unwrap();
        let log = views::recovery_log(&**app.store()).await.unwrap();
        let places: Vec<_> = log
            .iter()
            .map(|entry| {
                entry.report["knew"]["checkpoint"]["place"]
                    .as_str()
                    .unwrap()
            })
            .collect();
        assert_eq!(places, ["turn 49", "turn 99"]);
        app.close().await.unwrap();
    });
}

/// Runs only as the child of the test below.
#[test]
#[ignore = "the process that the next test kills"]
fn a_process_that_is_killed() {
    let Some(dir) = std::env::var_os("DALSEGNO_TEST_DIR") else {
        return;
    };
    let (world, hangs) = (World::default(), Arc::new(AtomicBool::new(true)));
    life(async {
        let app = sender(&world, &hangs)
            .session("victim")
            .open(dir)
            .await
            .unwrap();
        app.start("sender", "one", "ada").await.unwrap();
        until("sent", || async { world.count("send") == 1 }).await;
        println!("ready");
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_killed_process_leaves_runs_that_the_next_one_takes_up_at_once() {
    use std::io::{BufRead, BufReader};
    let dir = TempDir::new("killed");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_process_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env("DALSEGNO_TEST_DIR", dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")));
    child.kill().unwrap();
    child.wait().unwrap();

    let (world, hangs) = (World::default(), Arc::new(AtomicBool::new(false)));
    life(async {
        let began = Instant::now();
        let app = sender(&world, &hangs).open(dir.path()).await.unwrap();
        let done: bool = app.find("one").await.unwrap().result().await.unwrap();
        assert!(done && world.count("send") == 1);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        let log = views::recovery_log(&**app.store()).await.unwrap();
        assert_eq!(log.len(), 1);
        assert!(log[0].recovered.why.contains("session victim"), "{log:?}");
        app.close().await.unwrap();
    });
}
