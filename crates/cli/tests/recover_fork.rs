//! `dalsegno recover` says what the program will do, and `dalsegno fork` begins another run.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::places::Place;
use common::trouble::{flip, segment, without_rights, without_snapshots};
use common::{TempDir, dalsegno, stores};
use dalsegno::{Ctx, Dalsegno, Failure};
use dalsegno_store::Options;
use serde_json::{Value, json};

in_both! {
    each_unfinished_run_has_its_future_told,
    a_fork_is_recorded_and_the_program_starts_it,
    a_fork_that_makes_no_sense_is_refused_with_what_was_meant,
}

fn row<'a>(document: &'a Value, run: &str) -> &'a Value {
    let runs = document["runs"].as_array().unwrap();
    runs.iter().find(|row| row["run"] == run).unwrap()
}

/// A store whose owner was killed while it paid, as a copy of what was on its disk then.
fn killed(place: &TempDir) -> std::path::PathBuf {
    let (store, copy) = (place.join("store"), place.join("copy"));
    common::block_on(async {
        let pays = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&pays);
        let builder = Dalsegno::builder().session("killed");
        let app = builder.agent("payer", move |ctx: Ctx, _: ()| {
            let pays = Arc::clone(&flag);
            async move {
                ctx.tool("pay")
                    .once()
                    .call(|_| async {
                        pays.store(true, Ordering::SeqCst);
                        std::future::pending::<Result<bool, Failure>>().await
                    })
                    .await
            }
        });
        let app = app.open(&store).await.unwrap();
        app.start("payer", "order", &()).await.unwrap();
        while !pays.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let dry = dalsegno(&store, ["recover", "--dry-run"]).ok().stdout;
        let owner = format!("process {} owns the store now", std::process::id());
        assert!(dry.contains(&owner), "{dry}");
        let ran = dalsegno(&store, ["recover"]).ends(1);
        assert!(ran.stderr.contains("in use by process"), "{}", ran.stderr);
        Options::new().copy(&store, &copy).unwrap();
    });
    copy
}

fn each_unfinished_run_has_its_future_told(dir: &Place) {
    stores::every_state(dir.path());
    let before = dir.everything();
    let ran = dalsegno(dir.path(), ["recover", "--dry-run", "--json"]).ends(3);
    let document = ran.json();
    assert_eq!(document["schema"], "dalsegno.recover/1");
    assert_eq!(document["runs"].as_array().unwrap().len(), 4);
    assert_eq!(row(&document, "doubt")["action"], "needs-person");
    assert_eq!(row(&document, "sleep")["action"], "still-waiting");
    let waits = row(&document, "approval")["why"].as_str().unwrap();
    assert!(waits.contains("approval publish#1"), "{waits}");
    let text = dalsegno(dir.path(), ["recover", "--dry-run"])
        .ends(3)
        .stdout;
    assert!(text.contains("doubt of writer needs a person"), "{text}");
    assert!(
        text.contains("to do: look whether send#1 happened"),
        "{text}"
    );
    assert!(
        text.contains("does this by itself when it opens the store"),
        "{text}"
    );
    assert_eq!(before, dir.everything());
}

#[test]
fn after_a_crash_the_store_is_recovered_and_letters_are_taken() {
    let place = TempDir::new();
    let copy = killed(&place);
    let document = dalsegno(&copy, ["recover", "--dry-run", "--json"])
        .ok()
        .json();
    let order = row(&document, "order");
    assert_eq!(order["action"], "resumed");
    assert_eq!(order["in_doubt"], json!(["pay#1"]));
    common::block_on(async {
        let remote = dalsegno::Remote::open(&copy).unwrap();
        remote.signal("order", "hello", &1).await.unwrap();
    });
    let text = dalsegno(&copy, ["recover", "--dry-run"]).ok().stdout;
    assert!(text.contains("1 letter in the mailbox"), "{text}");
    assert!(text.contains("find out whether pay#1 happened"), "{text}");
    let done = dalsegno(&copy, ["recover", "--json"]).ok().json();
    assert_eq!(done["store"]["clean"], false);
    assert_eq!(done["letters"]["taken"], 1);
    assert_eq!(
        row(&done, "order")["action"],
        "resumed",
        "no agent was here"
    );
    let again = dalsegno(&copy, ["recover", "--json"]).ok().json();
    assert_eq!(again["store"]["clean"], true);
    assert_eq!(again["letters"]["taken"], 0);
    dalsegno(&copy, ["verify"]).ok();
}

fn a_fork_is_recorded_and_the_program_starts_it(dir: &Place) {
    stores::every_state(dir.path());
    let outcome = r#"write#1="on other things""#;
    let args = [
        "fork",
        "approval",
        "--as",
        "the other way 🐋",
        "--outcome",
        outcome,
        "--json",
    ];
    let document = dalsegno(dir.path(), args).ok().json();
    assert_eq!(document["schema"], "dalsegno.fork/1");
    assert_eq!(document["run"], "the other way 🐋");
    assert_eq!(document["inherited"]["outcomes"], json!(["write#1"]));
    let again = dalsegno(dir.path(), args).ok().json();
    assert_eq!(again, document, "the same fork is one run");
    let text = dalsegno(dir.path(), ["fork", "approval"]).ok().stdout;
    assert!(
        text.contains("not inherited: approval publish#1; the fork asks for itself"),
        "{text}"
    );
    assert!(
        text.contains("it starts when a program that has agent writer opens"),
        "{text}"
    );
    let listed = dalsegno(dir.path(), ["ls", "--agent", "writer", "--json"])
        .ok()
        .json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 8);
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        loop {
            let position = app.store().position().await.unwrap();
            let journal = app.journal("the other way 🐋").await.unwrap();
            if journal.waits == ["approval publish#1"] {
                break;
            }
            app.store().changed(position).await.unwrap();
        }
        app.approve("the other way 🐋", "publish#1", "ada")
            .await
            .unwrap();
        let run = app.find("the other way 🐋").await.unwrap();
        let text: String = run.result().await.unwrap();
        assert_eq!(text, "approved: true");
        app.close().await.unwrap();
    });
    let shown = dalsegno(dir.path(), ["show", "the other way 🐋", "--json"]);
    let steps = shown.ok().json()["steps"].clone();
    assert_eq!(steps[0]["step"], "write#1");
    assert_eq!(steps[0]["result"]["value"], "on other things");
    dalsegno(dir.path(), ["verify"]).ok();
}

fn a_fork_that_makes_no_sense_is_refused_with_what_was_meant(dir: &Place) {
    stores::every_state(dir.path());
    for (args, code, words) in [
        (&["fork", "approvel"][..], 1, "did you mean \"approval\"?"),
        (&["fork", "done", "--at", "999"], 1, "has no event 999"),
        (&["fork", "done", "--at", "0"], 2, "0"),
        (
            &["fork", "done", "--outcome", "wrte#1=1"],
            1,
            "did you mean \"write#1\"?",
        ),
        (&["fork", "done", "--outcome", "write#1"], 2, "has no ="),
        (
            &["fork", "done", "--outcome", "write#1=text"],
            2,
            "is no JSON",
        ),
        (&["fork", "done", "--input", "{"], 2, "is no JSON"),
        (&["fork", "done", "--as", "fail"], 1, "fail"),
        (
            &["fork", "approval", "--outcome", "publish#1=true"],
            1,
            "publish#1",
        ),
    ] {
        let ran = dalsegno(dir.path(), args).ends(code);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    }
    let listed = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 6);
}

fn said(store: &Path, args: &[&str], code: i32, words: &str) {
    let ran = dalsegno(store, args).ends(code);
    assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
}

#[test]
fn trouble_is_said() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let commands = [
        &["recover"][..],
        &["recover", "--dry-run"],
        &["fork", "done"],
    ];
    common::block_on(async {
        let app = stores::app(dir.path()).await;
        said(dir.path(), &["fork", "done"], 1, "in use by process");
        said(dir.path(), &["fork", "done"], 1, "Dalsegno::fork");
        app.close().await.unwrap();
    });
    for args in commands {
        let ran = without_rights(dir.path(), args).ends(1);
        assert!(ran.stderr.contains("ermission denied"), "{}", ran.stderr);
        let nothing = TempDir::new();
        said(nothing.path(), args, 1, "no store in");
    }
    flip(&segment(dir.path()), 4200);
    without_snapshots(dir.path());
    for args in commands {
        said(dir.path(), args, 4, "dalsegno verify");
    }
}
