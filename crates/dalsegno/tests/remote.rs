//! What another process says to a run reaches it, exactly once; and what cannot be meant is an error
//! in that process, before anything is sent.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod lives;

use std::time::Duration;

use common::{TempDir, World};
use dalsegno::{Budget, Builder, Ctx, Dalsegno, Error, Failure, Remote, Standing, Start};
use dalsegno_store::{Kind, StreamId};
use lives::{life, stands, until};

const SOON: Duration = Duration::from_secs(10);

/// One agent that does what its input says.
fn agents(world: &World) -> Builder {
    let world = world.clone();
    Dalsegno::builder().agent("a", move |ctx: Ctx, what: String| {
        let world = world.clone();
        async move {
            match what.as_str() {
                "approval" => {
                    let answer = ctx.approval("publish").of("the text").await?;
                    Ok(format!("{answer:?}"))
                }
                "expires" => {
                    let asked = ctx.approval("publish").expires_in(Duration::from_millis(1));
                    let first = asked.await?;
                    let name = ctx.signal::<String>("name").await?;
                    Ok(format!("{first:?} {name}"))
                }
                "signal" => ctx.signal::<String>("name").await,
                "pay" => {
                    let pay = ctx.tool("pay");
                    pay.call(|_| {
                        let count = world.did("pay");
                        async move {
                            match count % 2 {
                                1 => Err(Failure::new("connection reset")),
                                _ => Ok("paid".to_owned()),
                            }
                        }
                    })
                    .await
                }
                "budget" => {
                    let step = |n: u64| {
                        ctx.tool("look")
                            .read_only()
                            .call(move |_| async move { Ok(n) })
                    };
                    let sum = step(1).await? + step(2).await?;
                    Ok(sum.to_string())
                }
                _ => Ok(what),
            }
        }
    })
}

async fn result(app: &Dalsegno, run: &str) -> Result<String, Error> {
    app.find(run).await.unwrap().result().await
}

async fn done(app: &Dalsegno, run: &str) -> String {
    until(run, || async { result(app, run).await.is_ok() }).await;
    result(app, run).await.unwrap()
}

#[test]
fn every_order_is_taken_up_by_the_owner() {
    let (dir, world) = (TempDir::new("remote"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        for (run, what) in [
            ("yes", "approval"),
            ("no", "approval"),
            ("signal", "signal"),
            ("stop", "signal"),
        ] {
            app.start("a", run, what).await.unwrap();
        }
        stands(&app, "yes", Standing::WaitsForApproval).await;
        stands(&app, "no", Standing::WaitsForApproval).await;
        stands(&app, "signal", Standing::WaitsForSignal).await;
        stands(&app, "stop", Standing::WaitsForSignal).await;
        let remote = Remote::open(dir.path()).unwrap();

        let sent = remote.approve("yes", "publish#1", "ada").await.unwrap();
        let taken = sent.taken_within(SOON).await.unwrap();
        assert!(sent.is_taken().await.unwrap());
        let run = StreamId::run("yes").unwrap();
        let event = remote
            .store()
            .read(&run, taken.sequence, 1)
            .await
            .unwrap()
            .remove(0)
            .event;
        assert_eq!(
            (event.kind, event.letter.as_ref()),
            (Kind::ApprovalAnswered, Some(sent.letter()))
        );
        assert_eq!(
            done(&app, "yes").await,
            "Approved { by: \"ada\", note: \"\" }"
        );

        let sent = remote
            .reject("no", "publish#1", "bob", "too long")
            .await
            .unwrap();
        sent.taken_within(SOON).await.unwrap();
        assert_eq!(
            done(&app, "no").await,
            "Rejected { by: \"bob\", note: \"too long\" }"
        );

        let sent = remote.signal("signal", "name", "eve").await.unwrap();
        sent.taken_within(SOON).await.unwrap();
        assert_eq!(done(&app, "signal").await, "eve");

        let sent = remote.cancel("stop", "not wanted").await.unwrap();
        sent.taken_within(SOON).await.unwrap();
        let why = stands(&app, "stop", Standing::Ended).await;
        assert_eq!(why.because, "it was cancelled: not wanted");
        app.close().await.unwrap();
    });
}

/// Both letters are sent while nobody takes them: neither sender can know of the other.
#[test]
fn of_two_answers_the_second_is_refused_and_its_sender_hears_why() {
    let (dir, world) = (TempDir::new("remote-two"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        app.start("a", "text", "approval").await.unwrap();
        stands(&app, "text", Standing::WaitsForApproval).await;
        for run in ["bill", "bill-2"] {
            if world.count("pay") % 2 == 1 {
                world.did("pay");
            }
            app.start("a", run, "pay").await.unwrap();
            stands(&app, run, Standing::NeedsPerson).await;
        }
        app.close().await.unwrap();

        let remote = Remote::open(dir.path()).unwrap();
        let yes = remote.approve("text", "publish#1", "ada").await.unwrap();
        let no = remote.reject("text", "publish#1", "bob", "").await;
        let (no, bill) = (no.unwrap(), "bill");
        let happened = remote.resolve_happened(bill, "pay#1", "r", "ada").await;
        let again = remote.resolve_not_happened(bill, "pay#1", "bob").await;
        let fails = remote.resolve_fail("bill-2", "pay#1", "ada").await;
        let but = remote.resolve_not_happened("bill-2", "pay#1", "bob").await;

        let paid = world.count("pay");
        let app = agents(&world).open(dir.path()).await.unwrap();
        for first in [yes, happened.unwrap(), fails.unwrap()] {
            first.taken_within(SOON).await.unwrap();
        }
        for (second, why) in [
            (no, "ada has approved it"),
            (again.unwrap(), "not in doubt any more"),
            (but.unwrap(), "not in doubt any more"),
        ] {
            let refused = second.taken_within(SOON).await.unwrap_err();
            assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let approved = "Approved { by: \"ada\", note: \"\" }";
        assert_eq!(done(&app, "text").await, approved);
        assert_eq!(done(&app, bill).await, "r");
        stands(&app, "bill-2", Standing::Ended).await;
        assert_eq!(world.count("pay"), paid, "nothing was sent again");
        app.close().await.unwrap();
    });
}

#[test]
fn a_step_in_doubt_is_resolved_and_a_budget_is_raised_from_another_process() {
    let (dir, world) = (TempDir::new("remote-doubt"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        let remote = Remote::open(dir.path()).unwrap();
        for run in ["happened", "again", "fails"] {
            // Every first of two payments is in doubt.
            if world.count("pay") % 2 == 1 {
                world.did("pay");
            }
            app.start("a", run, "pay").await.unwrap();
            stands(&app, run, Standing::NeedsPerson).await;
            let sent = match run {
                "happened" => {
                    remote
                        .resolve_happened(run, "pay#1", "receipt", "ada")
                        .await
                }
                "again" => remote.resolve_not_happened(run, "pay#1", "ada").await,
                _ => remote.resolve_fail(run, "pay#1", "ada").await,
            };
            sent.unwrap().taken_within(SOON).await.unwrap();
            let why = stands(&app, run, Standing::Ended).await;
            match run {
                "fails" => assert!(why.because.contains("ada said that the run fails"), "{why}"),
                "again" => assert_eq!(result(&app, run).await.unwrap(), "paid"),
                _ => assert_eq!(result(&app, run).await.unwrap(), "receipt"),
            }
        }
        let budget = Budget::default().steps(1);
        app.start_with("a", "poor", "budget", Start::new().budget(budget))
            .await
            .unwrap();
        stands(&app, "poor", Standing::NeedsPerson).await;
        // Clearing alone does not help: the cause is still there.
        let sent = remote.clear_attention("poor").await.unwrap();
        sent.taken_within(SOON).await.unwrap();
        stands(&app, "poor", Standing::NeedsPerson).await;
        let sent = remote
            .set_budget("poor", Budget::default().steps(5))
            .await
            .unwrap();
        sent.taken_within(SOON).await.unwrap();
        assert_eq!(done(&app, "poor").await, "3");
        app.close().await.unwrap();
    });
}

/// The same errors, word for word, as the owner gives.
#[test]
fn what_cannot_be_meant_is_an_error_and_nothing_is_sent() {
    let (dir, world) = (TempDir::new("remote-errors"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        for (run, what) in [("open", "approval"), ("over", "done"), ("late", "expires")] {
            app.start("a", run, what).await.unwrap();
        }
        stands(&app, "open", Standing::WaitsForApproval).await;
        stands(&app, "late", Standing::WaitsForSignal).await;
        done(&app, "over").await;
        let remote = Remote::open(dir.path()).unwrap();
        let mut pairs: Vec<(&str, Error, Error)> = Vec::new();
        macro_rules! both {
            ($part:literal, $method:ident($($arg:expr),*)) => {
                pairs.push((
                    $part,
                    app.$method($($arg),*).await.unwrap_err(),
                    remote.$method($($arg),*).await.unwrap_err(),
                ));
            };
        }
        both!(
            "there is no run \"nobody\"",
            approve("nobody", "publish#1", "ada")
        );
        both!("there is no run \"nobody\"", signal("nobody", "name", "x"));
        both!("there is no run \"nobody\"", cancel("nobody", "x"));
        both!("it asks for publish#1", approve("open", "refund#1", "ada"));
        both!(
            "it asks for publish#1",
            reject("open", "refund#1", "ada", "no")
        );
        both!("it has expired", approve("late", "publish#1", "ada"));
        both!(
            "no step of it is",
            resolve_not_happened("open", "pay#1", "ada")
        );
        both!("no step of it is", resolve_fail("open", "pay#1", "ada"));
        both!(
            "no step of it is",
            resolve_happened("open", "pay#1", "x", "ada")
        );
        both!("is completed", approve("over", "publish#1", "ada"));
        both!("is completed", signal("over", "name", "x"));
        both!("is completed", cancel("over", "x"));
        both!("is completed", clear_attention("over"));
        both!("is completed", set_budget("over", Budget::default()));
        app.approve("open", "publish#1", "ada").await.unwrap();
        both!("ada has approved it", approve("open", "publish#1", "bob"));
        for (part, here, there) in pairs {
            assert_eq!(here.to_string(), there.to_string());
            assert!(here.to_string().contains(part), "{part}: {here}");
        }
        // Nothing but what was meant has reached the run.
        let answered = app
            .store()
            .read(&StreamId::run("open").unwrap(), 1, 100)
            .await
            .unwrap();
        let letters = answered.iter().filter(|r| r.event.letter.is_some()).count();
        assert_eq!(letters, 0);
        app.close().await.unwrap();
    });
}

/// Two processes answer before the owner has looked: the first one counts.
#[test]
fn of_two_answers_that_cross_the_first_counts() {
    let (dir, world) = (TempDir::new("remote-two"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        app.start("a", "r", "approval").await.unwrap();
        stands(&app, "r", Standing::WaitsForApproval).await;
        app.close().await.unwrap();
        let remote = Remote::open(dir.path()).unwrap();
        let first = remote.approve("r", "publish#1", "ada").await.unwrap();
        let second = remote.reject("r", "publish#1", "ada", "no").await.unwrap();
        // Nobody owns the store: it is on disk, and waits.
        let waited = first
            .taken_within(Duration::from_millis(50))
            .await
            .unwrap_err();
        assert!(matches!(waited, Error::NotTaken { .. }), "{waited}");
        assert!(waited.to_string().contains("not lost"), "{waited}");

        let app = agents(&world).open(dir.path()).await.unwrap();
        assert_eq!(
            done(&app, "r").await,
            "Approved { by: \"ada\", note: \"\" }"
        );
        first.taken_within(SOON).await.unwrap();
        // The second came to a run with an answer, or to one that had ended.
        let refused = second.taken_within(SOON).await.unwrap_err().to_string();
        let has_answer = refused.contains("ada has approved it");
        assert!(has_answer || refused.contains("is completed"), "{refused}");
        app.close().await.unwrap();
    });
}

/// A letter to a run that has ended meanwhile is refused, and its sender hears why.
#[test]
fn a_letter_that_comes_too_late_says_so() {
    let (dir, world) = (TempDir::new("remote-late"), World::default());
    life(async {
        let app = agents(&world)
            .without_mailbox()
            .open(dir.path())
            .await
            .unwrap();
        app.start("a", "r", "signal").await.unwrap();
        stands(&app, "r", Standing::WaitsForSignal).await;
        let remote = Remote::open(dir.path()).unwrap();
        let sent = remote.signal("r", "name", "late").await.unwrap();
        app.signal("r", "name", "early").await.unwrap();
        assert_eq!(done(&app, "r").await, "early");
        app.store().take_letters().await.unwrap();
        let refused = sent.taken_within(SOON).await.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        assert!(
            refused.to_string().contains("run/r is completed"),
            "{refused}"
        );
        app.close().await.unwrap();
    });
}

/// Runs only as the child of the test below.
#[test]
#[ignore = "the process that sends, of the next test"]
fn a_process_that_approves() {
    let Some(dir) = std::env::var_os("DALSEGNO_TEST_DIR") else {
        return;
    };
    life(async {
        let remote = Remote::open(dir).unwrap();
        let sent = remote.approve("r", "publish#1", "ada").await.unwrap();
        sent.taken_within(SOON).await.unwrap();
        println!("{}", dalsegno::why(&**remote.store(), "r").await.unwrap());
    });
}

#[test]
fn a_process_of_its_own_approves() {
    let (dir, world) = (TempDir::new("remote-process"), World::default());
    life(async {
        let app = agents(&world).open(dir.path()).await.unwrap();
        app.start("a", "r", "approval").await.unwrap();
        stands(&app, "r", Standing::WaitsForApproval).await;
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_process_that_approves",
                "--ignored",
                "--nocapture",
            ])
            .env("DALSEGNO_TEST_DIR", dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(
            done(&app, "r").await,
            "Approved { by: \"ada\", note: \"\" }"
        );
        let ended = tokio::task::spawn_blocking(move || {
            let status = child.wait().unwrap();
            (
                status,
                std::io::read_to_string(child.stdout.take().unwrap()).unwrap(),
            )
        });
        let (status, said) = ended.await.unwrap();
        assert!(
            status.success() && said.contains("run r of agent a"),
            "{said}"
        );
        app.close().await.unwrap();
    });
}
