//! For every run the library can say what it was doing, what it knew, what changed last, what is in
//! doubt and what comes next; and for one that is not moving, why not and what to do.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod lives;

use std::sync::Arc;
use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{Builder, Ctx, Dalsegno, Failure, Next, RecoveryAction, Retry, Standing, Why, why};
use dalsegno_store::{Append, Kind, LocalStore, NewEvent, Options, Store, StreamId, Version};
use lives::{life, stands, until};

const DAY: Duration = Duration::from_secs(86_400);

/// One agent that does what its input says.
fn agents(world: &World) -> Builder {
    let world = world.clone();
    let agent = move |ctx: Ctx, what: String| {
        let world = world.clone();
        async move {
            match what.as_str() {
                "approval" => {
                    let asked = ctx.approval("publish").of("the text").expires_in(DAY);
                    asked.await.map(|answer| u64::from(answer.is_approved()))
                }
                "gated" => {
                    let gate = dalsegno::Gate::new().wait_at_most(DAY);
                    let tool = ctx.tool("refund").input(&4200).approval(gate);
                    tool.call(|_| async { Ok(1) }).await
                }
                "signal" => ctx.signal::<u64>("paid").await,
                "signal for a day" => {
                    let paid = ctx
                        .branch("left")
                        .signal::<u64>("paid")
                        .timeout(DAY)
                        .await?;
                    Ok(paid.unwrap_or_default())
                }
                "child" => ctx.child("worker", "signal").await,
                "sleep" => ctx.sleep(DAY).await.map(|()| 1),
                "retry" => {
                    let retry = Retry::times(3).first(DAY).at_most(DAY);
                    let tool = ctx.tool("flaky").read_only().retry(retry);
                    tool.call(|_| async { Err(Failure::new("busy")) }).await
                }
                "doubt" => {
                    ctx.model("think")
                        .call(|call| async move {
                            call.tokens(10, 20);
                            Ok("pay ada".to_owned())
                        })
                        .await?;
                    let tool = ctx.tool("pay").input(&"ada");
                    tool.call(|_| async { Err(Failure::new("connection reset")) })
                        .await
                }
                "hang" => {
                    ctx.tool("slow")
                        .read_only()
                        .call(|_| {
                            world.did("slow");
                            std::future::pending()
                        })
                        .await
                }
                "fail" => Err(Failure::terminal("no such thing")),
                _ => Ok(1),
            }
        }
    };
    Dalsegno::builder().session("here").agent("worker", agent)
}

/// A word for each, so that a table can be compared with.
fn words(why: &Why) -> Vec<&'static str> {
    why.next.iter().map(Next::word).collect()
}

#[test]
fn every_run_that_does_not_move_says_why_and_what_to_do() {
    let (dir, world) = (TempDir::new("why"), World::default());
    let cases: [(&str, Standing, &[&str], &str, &str); 10] = [
        (
            "approval",
            Standing::WaitsForApproval,
            &["approval"],
            "publish#1",
            "approve or reject publish#1 of approval",
        ),
        (
            "gated",
            Standing::WaitsForApproval,
            &["approval"],
            "refund#1",
            "refund#1",
        ),
        (
            "signal",
            Standing::WaitsForSignal,
            &["signal"],
            "paid",
            "send paid to signal",
        ),
        (
            "signal for a day",
            Standing::WaitsForSignal,
            &["signal"],
            "paid",
            "send paid",
        ),
        (
            "child",
            Standing::WaitsForChild,
            &["child"],
            "child.worker-1",
            "child.worker-1",
        ),
        ("sleep", Standing::WaitsForTime, &["time"], "UTC", ""),
        ("retry", Standing::WaitsForRetry, &["retry"], "flaky#1", ""),
        (
            "doubt",
            Standing::NeedsPerson,
            &["person", "settle"],
            "connection reset",
            "resolve doubt pay#1",
        ),
        (
            "fail",
            Standing::Ended,
            &[],
            "it failed: no such thing",
            "start another run",
        ),
        ("done", Standing::Ended, &[], "it is done", ""),
    ];
    let pages = |all: &[Why]| -> Vec<String> { all.iter().map(Why::to_string).collect() };
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        let mut all = Vec::new();
        for (run, standing, next, because, to_do) in &cases {
            app.start("worker", run, run).await.unwrap();
            let why = stands(&app, run, *standing).await;
            assert_eq!(words(&why), *next, "{why}");
            assert!(why.because.contains(because), "{why}");
            assert!(why.to_do.contains(to_do), "{why}");
            assert_eq!(to_do.is_empty(), why.to_do.is_empty(), "{why}");
            all.push(why);
        }
        // Who reads beside the owner is told the same.
        let reader = Options::new().open_read_only(dir.path()).unwrap();
        for (mut here, (run, ..)) in all.into_iter().zip(&cases) {
            let mut beside = why(&reader, run).await.unwrap();
            (here.asked_us, beside.asked_us) = (0, 0);
            assert_eq!(pages(&[here]), pages(&[beside]), "{run}");
        }
        let unknown = app.why("nobody").await.unwrap_err().to_string();
        assert!(unknown.contains("there is no run \"nobody\""), "{unknown}");
        app.cancel("signal", "not wanted").await.unwrap();
        let why = stands(&app, "signal", Standing::Ended).await;
        assert_eq!(why.because, "it was cancelled: not wanted");
        app.close().await.unwrap();
    });
}

#[test]
fn what_is_waited_for_has_its_times_and_what_is_in_doubt_its_key() {
    let (dir, world) = (TempDir::new("why-times"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        let day_us = DAY.as_micros() as u64;
        let near = |us: u64, from: u64| us.abs_diff(from + day_us) < 60_000_000;
        for run in [
            "approval",
            "gated",
            "signal for a day",
            "sleep",
            "retry",
            "doubt",
        ] {
            app.start("worker", run, run).await.unwrap();
        }
        let why = stands(&app, "approval", Standing::WaitsForApproval).await;
        let Next::Approval {
            expires_us: Some(at),
            asked_us,
            ..
        } = why.next[0]
        else {
            panic!("{why}");
        };
        assert!(near(at, asked_us), "{why}");
        let why = stands(&app, "gated", Standing::WaitsForApproval).await;
        let Next::Approval {
            expires_us: None,
            until_us: Some(at),
            asked_us,
            ..
        } = why.next[0]
        else {
            panic!("{why}");
        };
        assert!(near(at, asked_us), "{why}");
        let why = stands(&app, "signal for a day", Standing::WaitsForSignal).await;
        let Next::Signal {
            until_us: Some(at), ..
        } = why.next[0]
        else {
            panic!("{why}");
        };
        assert!(near(at, why.created_us), "{why}");
        let why = stands(&app, "sleep", Standing::WaitsForTime).await;
        let Next::Time { until_us, .. } = why.next[0] else {
            panic!("{why}")
        };
        assert!(near(until_us, why.created_us), "{why}");
        let why = stands(&app, "retry", Standing::WaitsForRetry).await;
        assert!(
            matches!(why.next[0], Next::Retry { attempt: 2, .. }),
            "{why}"
        );

        let why = stands(&app, "doubt", Standing::NeedsPerson).await;
        let doubt = &why.in_doubt[0];
        assert_eq!((doubt.step.as_str(), doubt.attempt), ("pay#1", 1));
        assert_eq!(doubt.input.as_deref(), Some("\"ada\""));
        assert_eq!(doubt.key.len(), 32);
        assert!(doubt.since_us >= why.created_us && doubt.since_us <= why.asked_us);
        assert_eq!(why.last[0].outcome, Some(Ok("\"pay ada\"".to_owned())));
        assert_eq!(why.knew.usage.tokens(), 30);
        let json = why.to_json();
        // Scripts rely on these.
        let names: Vec<_> = json
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            names.join(" "),
            "agent asked_us because changed created_us doing in_doubt knew next run session \
             standing status to_do updated_us"
        );
        assert_eq!(json["in_doubt"][0]["key"], doubt.key.as_str());
        assert_eq!(json["doing"]["last"][0]["result"], "\"pay ada\"");
        assert_eq!(json["standing"], "needs-person");
        assert_eq!(json["next"][0]["what"], "person");
        let last = why.changed.last().unwrap();
        assert!(last.what.starts_with("attention-raised"), "{why}");
        // Each line of the page begins with its name or with the same space.
        for line in why.to_string().lines().skip(1) {
            assert_eq!(
                line.chars().take(16).skip(14).collect::<String>(),
                "  ",
                "{line}"
            );
        }
        app.close().await.unwrap();
    });
}

#[test]
fn a_run_that_moves_or_waits_for_its_process_says_so() {
    let (dir, world) = (TempDir::new("why-moves"), World::default());
    life(async {
        let app = agents(&world)
            .max_running(1)
            .open(dir.path())
            .await
            .unwrap();
        app.start("worker", "one", "hang").await.unwrap();
        until("slow", || async { world.count("slow") == 1 }).await;
        app.start("worker", "two", "signal").await.unwrap();
        let one = app.why("one").await.unwrap();
        assert_eq!(one.standing, Standing::Moving, "{one}");
        assert_eq!(one.open[0].step, "slow#1");
        assert_eq!(words(&one), ["outcome"], "{one}");
        let two = app.why("two").await.unwrap();
        assert_eq!(two.standing, Standing::Queued, "{two}");
        assert!(two.to_do.contains("max_running"), "{two}");

        // From outside it is seen who has it.
        let reader = Options::new().open_read_only(dir.path()).unwrap();
        let one = why(&reader, "one").await.unwrap();
        assert_eq!(one.standing, Standing::Moving, "{one}");
        assert!(one.because.contains("worker here"), "{one}");
        let two = why(&reader, "two").await.unwrap();
        assert_eq!(two.standing, Standing::WaitsForProcess, "{two}");
        assert!(two.to_do.contains("\"worker\""), "{two}");
    });
    // That process is gone; another one has other agents.
    life(async {
        let other = |_: Ctx, (): ()| async { Ok(()) };
        let app = Dalsegno::builder().agent("other", other);
        let app = app.open(dir.path()).await.unwrap();
        let one = app.why("one").await.unwrap();
        assert_eq!(one.standing, Standing::NotRegistered, "{one}");
        assert!(one.because.contains("only other"), "{one}");
        assert_eq!(words(&one), ["execute"], "{one}");
        app.close().await.unwrap();
    });
    // A worker that is not of this process holds it.
    life(async {
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(dir.path()).unwrap());
        let run = StreamId::run("one").unwrap();
        store
            .take_lease(&run, "elsewhere", 60_000_000)
            .await
            .unwrap();
        let app = agents(&world).open_store(store).await.unwrap();
        let one = stands(&app, "one", Standing::HeldElsewhere).await;
        assert!(one.because.contains("worker elsewhere"), "{one}");
        app.close().await.unwrap();
    });
}

#[test]
fn what_the_run_knew_is_shown() {
    let dir = TempDir::new("why-knew");
    let turn = |ctx: Ctx, n: u64| async move {
        if n == 3 {
            ctx.signal::<u64>("go").await?;
        }
        Ok(dalsegno::Turn::<u64, u64>::Continue(n + 1))
    };
    life(async {
        let app = Dalsegno::builder().loop_agent("l", |n: u64| n, turn);
        let app = app.open(dir.path()).await.unwrap();
        app.start("l", "loop", &0).await.unwrap();
        stands(&app, "loop", Standing::WaitsForSignal).await;
        app.signal("loop", "other", &5).await.unwrap();
        // What the memory library will write.
        let mut seen = NewEvent::new(Kind::RetrievalPerformed);
        let memory = Version {
            sequence: 12,
            hash: dalsegno_store::Hash::of(b"m"),
        };
        seen.memory = Some(memory);
        let run = StreamId::run("loop").unwrap();
        app.store()
            .append(vec![Append::to(run, vec![seen])])
            .await
            .unwrap();
        let why = stands(&app, "loop", Standing::WaitsForSignal).await;
        let state = why.knew.checkpoint.as_ref().unwrap();
        assert_eq!(
            (state.place.as_str(), state.state.as_deref()),
            ("turn 3", Some("3"))
        );
        assert_eq!(why.knew.input.as_deref(), Some("0"));
        assert_eq!(why.knew.signals, ["other"]);
        assert_eq!(why.knew.memory, Some(memory));
        let json = why.to_json();
        assert_eq!(json["knew"]["memory"]["sequence"], 12);
        assert!(why.to_string().contains("state at turn 3"), "{why}");
        app.close().await.unwrap();
    });
}

/// Words of the user's cannot break a page.
#[test]
fn control_characters_do_not_reach_the_page() {
    let dir = TempDir::new("why-control");
    let agent = |_: Ctx, (): ()| async { Err::<(), _>(Failure::terminal("a\nb\x1b[31m")) };
    life(async {
        let app = Dalsegno::builder()
            .agent("a", agent)
            .open(dir.path())
            .await
            .unwrap();
        app.start("a", "r", &()).await.unwrap();
        let why = stands(&app, "r", Standing::Ended).await;
        let page = why.to_string();
        assert!(!page.contains('\x1b'), "{page:?}");
        assert_eq!(
            page.lines()
                .filter(|line| line.contains("standing"))
                .count(),
            1
        );
        assert!(page.contains("a b [31m"), "{page}");
        app.close().await.unwrap();
    });
}

/// A run whose events cannot be read is named, and nobody touches it.
#[test]
fn a_run_whose_events_are_lost_says_so() {
    let (dir, world) = (TempDir::new("why-broken"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        app.start("worker", "one", "hang").await.unwrap();
        until("slow", || async { world.count("slow") == 1 }).await;
        let run = StreamId::run("one").unwrap();
        let store = lives::Rotten::losing(app.store(), run);
        let why = why(&store, "one").await.unwrap();
        assert_eq!(why.standing, Standing::Broken, "{why}");
        assert_eq!(why.agent, "worker");
        assert!(why.because.contains("its events cannot be read"), "{why}");
        assert!(why.to_do.contains("verify"), "{why}");
    });
    life(async {
        let store = LocalStore::open(dir.path()).unwrap();
        let run = StreamId::run("one").unwrap();
        let before = store.head(&run).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(lives::Rotten::frozen(store, run.clone()));
        let app = agents(&world).open_store(Arc::clone(&store)).await.unwrap();
        let recovered = app.recovered().await.remove(0);
        assert_eq!(recovered.action, RecoveryAction::Broken);
        assert!(
            recovered.why.contains("events 3 to 4 are missing"),
            "{recovered}"
        );
        let why = app.why("one").await.unwrap();
        assert_eq!(why.standing, Standing::Broken, "{why}");
        assert!(why.because.contains("events 3 to 4 are missing"), "{why}");
        assert_eq!(store.head(&run).await.unwrap(), before);
        assert_eq!(world.count("slow"), 1);
        app.close().await.unwrap();
    });
}

/// What a process could not read or write is what it says, with the reason.
#[test]
fn a_run_that_the_store_fails_says_so() {
    let (dir, world) = (TempDir::new("why-failing"), World::default());
    let long = "x".repeat(5000);
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        app.start("worker", "one", &long).await.unwrap();
        // Ended before it has begun.
    });
    life(async {
        let store = LocalStore::open(dir.path()).unwrap();
        let run = StreamId::run("one").unwrap();
        let created = store.read(&run, 1, 1).await.unwrap().remove(0).event;
        let store = lives::Rotten::new(store, vec![created.input.unwrap()]);
        let app = agents(&world).open_store(Arc::new(store)).await.unwrap();
        let why = stands(&app, "one", Standing::StoreFailing).await;
        assert!(why.because.contains("a payload is damaged"), "{why}");
        assert!(!why.to_do.is_empty(), "{why}");
        let result = app.find("one").await.unwrap().result::<u64>().await;
        assert!(result.unwrap_err().to_string().contains("is damaged"));
    });
}
