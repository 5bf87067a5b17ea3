//! `dalsegno top` on a real terminal: shows runs, answers them, resizes, and gives the terminal back.

#![cfg(feature = "top")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/pty.rs"]
mod pty;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use common::{TempDir, command, dalsegno, run, stores};
use dalsegno_store::{Follow, Kind, Options, StreamId};
use pty::Terminal;

const SIZE: (u16, u16) = (24, 80);
/// The terminal is as a shell leaves it: these print its code and its mode.
const THEN: &str = "; echo code $?; stty -a | grep -o '[-]*icanon'; stty -a | grep -o '[-]*echo '";

/// Runs `dalsegno top` as a shell would.
fn top(store: &Path, args: &str) -> Terminal {
    let script = format!("\"$0\" --store \"$1\" top {args}{THEN}");
    let store = store.to_str().unwrap();
    Terminal::run(&script, &[env!("CARGO_BIN_EXE_dalsegno"), store], SIZE)
}

#[track_caller]
fn is_given_back(terminal: Terminal, code: i32) {
    let (_, contents) = terminal.ends();
    assert!(contents.contains(&format!("code {code}")), "{contents}");
    assert!(contents.contains("\nicanon"), "{contents}");
    assert!(contents.contains("\necho"), "{contents}");
}

/// A process that owns the store (this one), until it is closed.
struct Owner {
    close: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Owner {
    /// With these runs, as far as they come by themselves.
    fn open(store: &Path, runs: &'static [&'static str]) -> Owner {
        let (close, closed) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let store = store.to_owned();
        let thread = std::thread::spawn(move || {
            common::block_on(async {
                let app = stores::app(&store).await;
                for kind in runs {
                    app.start("writer", kind, kind).await.unwrap();
                }
                stores::settled(&app, runs).await;
                ready.send(()).unwrap();
                drop(closed.await);
                app.close().await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        Owner {
            close: Some(close),
            thread: Some(thread),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.close.take());
        drop(self.thread.take().unwrap().join());
    }
}

#[test]
fn shows_runs_and_approves_one_beside_a_live_owner() {
    let dir = TempDir::new();
    let _owner = Owner::open(dir.path(), &["approval", "signal", "sleep"]);
    let mut terminal = top(dir.path(), "--by ada");
    terminal.sees("3 runs, 1 needs a person");
    terminal.sees("owned by process");
    // The one that needs a person is first, and selected.
    terminal.sees("┌ approval");
    terminal.sees("approval publish#1");
    // What is typed before it can be seen is no answer.
    terminal.press("ay");
    terminal.sees("Approve publish#1 of approval?");
    terminal.sees("\"on approval\"");
    terminal.sees("y approve");
    // Nothing but a yes is one.
    terminal.press("\r\rxn");
    terminal.sees_no_more("Approve publish#1");
    terminal.press("a");
    terminal.sees("y approve");
    terminal.press("y");
    terminal.sees("approval · approve publish#1: taken up as event");
    terminal.sees("completed");
    terminal.sees_no_more("needs a person");
    terminal.press("q");
    is_given_back(terminal, 0);

    let listed = dalsegno(dir.path(), ["ls", "--json", "--status", "completed"]);
    assert_eq!(listed.ok().json()["runs"][0]["run"], "approval");
}

#[test]
fn denies_resolves_signals_and_cancels() {
    let dir = TempDir::new();
    let runs = &["approval", "signal", "sleep", "doubt"];
    let _owner = Owner::open(dir.path(), runs);
    let mut terminal = top(dir.path(), "");
    terminal.sees("4 runs, 2 need a person");

    terminal.press("/approval\r");
    terminal.sees("┌ approval");
    terminal.press("d");
    terminal.sees("Deny publish#1 of approval?");
    terminal.sees("Enter deny");
    terminal.press("not good");
    terminal.sees("why: not good");
    terminal.press("\r\x1b");
    terminal.sees("approval · deny publish#1: taken up as event");

    terminal.press("/doubt\r");
    terminal.sees("┌ doubt");
    terminal.press("r");
    terminal.sees("Did send#1 of doubt happen?");
    terminal.sees("idempotency key");
    terminal.sees("h it happened");
    terminal.press("h");
    terminal.sees("What did it give?");
    terminal.press("a receipt");
    terminal.sees("sent as \"a receipt\"");
    terminal.press("\r\x1b");
    terminal.sees("doubt · send#1 happened: taken up as event");

    terminal.press("/signal\r");
    terminal.sees("┌ signal");
    terminal.press("s");
    terminal.sees("name: go");
    terminal.sees("Enter send");
    terminal.press("now");
    terminal.sees("sent as \"now\"");
    terminal.press("\r\x1b");
    terminal.sees("signal · signal go: taken up as event");

    terminal.press("/sleep\r");
    terminal.sees("┌ sleep");
    terminal.press("c");
    terminal.sees("Cancel sleep and its children?");
    terminal.sees("Enter cancel");
    terminal.press("enough\r\x1b");
    terminal.sees("sleep · cancel: taken up as event");
    terminal.sees("cancelled");
    terminal.press("\x03");
    is_given_back(terminal, 0);
}

/// What was said while nobody owned the store is taken up by the next one that does, and `top` sees
/// the owners come and go.
#[test]
fn survives_owners_and_waits_for_the_next_one() {
    let dir = TempDir::new();
    drop(Owner::open(dir.path(), &["approval"]));
    let mut terminal = top(dir.path(), "");
    terminal.sees("owned by nobody");
    terminal.press("a");
    terminal.sees("y approve");
    terminal.press("y");
    terminal.sees("no process owns the store now");
    let owner = Owner::open(dir.path(), &[]);
    terminal.sees("taken up as event");
    terminal.sees("completed");
    terminal.sees("owned by process");
    drop(owner);
    terminal.sees("owned by nobody");
    let _owner = Owner::open(dir.path(), &["signal"]);
    terminal.sees("2 runs");
    terminal.press("q");
    is_given_back(terminal, 0);
}

/// Of two answers the first one counts, and who was second is not told that all is well. Which of
/// two letters from different senders is taken up first is chance.
#[test]
fn who_was_second_is_told_so() {
    let was_second = (0..30).any(|_| is_second_and_told_so());
    assert!(was_second, "30 times first");
}

fn is_second_and_told_so() -> bool {
    let dir = TempDir::new();
    drop(Owner::open(dir.path(), &["approval"]));
    let mut terminal = top(dir.path(), "--by ada");
    terminal.sees("approval publish#1");
    common::block_on(async {
        let remote = dalsegno::Remote::open(dir.path()).unwrap();
        let sent = remote.reject("approval", "publish#1", "bob", "no").await;
        sent.unwrap();
    });
    terminal.press("a");
    terminal.sees("y approve");
    terminal.press("y");
    terminal.sees("no process owns the store now");
    let _owner = Owner::open(dir.path(), &[]);
    let first = common::block_on(first_answer(dir.path()));
    match first.as_str() {
        "ada" => terminal.sees("taken up as event"),
        _ => terminal.sees("approve publish#1: refused: "),
    }
    terminal.press("q");
    is_given_back(terminal, 0);
    first == "bob"
}

/// Who was first to answer the run `approval`.
async fn first_answer(store: &Path) -> String {
    let store = Options::new().open_read_only(store).unwrap();
    let mut follow = Follow::new(&store, StreamId::run("approval").unwrap(), 1);
    loop {
        for recorded in follow.next().await.unwrap() {
            let event = recorded.event;
            if event.kind == Kind::ApprovalAnswered {
                let by = event.fields.text(dalsegno::record::approval::BY);
                return by.unwrap().to_owned();
            }
        }
    }
}

/// The demo's workers own a store one after the other, and are killed with SIGKILL.
#[test]
fn survives_an_owner_that_is_killed() {
    let dir = TempDir::new();
    let keep = dir.join("kept");
    let mut demo = command()
        .args(["demo", "--json", "--kills", "6", "--seed", "1", "--keep"])
        .arg(&keep)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut watching, mut killed) = (None, 0);
    for line in BufReader::new(demo.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        killed += u32::from(line.contains("\"killed\""));
        if line.contains("run_started") && watching.is_none() {
            let mut terminal = top(&keep.join("store"), "");
            terminal.sees("trip-0000");
            watching = Some(terminal);
        }
    }
    assert_eq!(killed, 6);
    let mut terminal = watching.unwrap();
    assert!(demo.wait().unwrap().success());
    terminal.sees("owned by nobody");
    terminal.sees("completed");
    terminal.press("q");
    is_given_back(terminal, 0);
}

#[test]
fn text_from_the_store_cannot_draw() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let mut terminal = top(dir.path(), "--filter failed");
    terminal.sees("┌ fail");
    terminal.press("\t");
    terminal.sees("the printer is on fire\\u{1b}[31m");
    terminal.press("a");
    terminal.sees("fail has ended: failed");
    terminal.press("?");
    terminal.sees("any key goes back");
    terminal.press("?q");
    is_given_back(terminal, 0);
}

#[test]
fn works_at_any_size() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let mut terminal = top(dir.path(), "");
    terminal.sees("6 runs, 2 need a person");
    terminal.sees("q quit");
    terminal.resize((50, 132));
    // The last line is where it belongs.
    terminal.sees("q quit");
    let rows: Vec<_> = terminal.screen().rows(0, 132).collect();
    assert_eq!(rows.len(), 50);
    terminal.resize((5, 20));
    terminal.sees("too small");
    terminal.resize((12, 60));
    terminal.sees("6 runs");
    terminal.press("\r");
    terminal.sees_no_more("WAITS FOR");
    terminal.press("q");
    is_given_back(terminal, 0);
}

#[test]
fn signals_and_faults_give_the_terminal_back() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    for signal in ["TERM", "INT", "HUP"] {
        let pid = dir.join(&format!("pid-{signal}"));
        let script = format!(
            "sh -c 'echo $$ > \"$2\"; exec \"$0\" --store \"$1\" top' \"$0\" \"$1\" \"$2\"{THEN}"
        );
        let store = dir.path().to_str().unwrap();
        let args = [env!("CARGO_BIN_EXE_dalsegno"), store, pid.to_str().unwrap()];
        let mut terminal = Terminal::run(&script, &args, SIZE);
        terminal.sees("6 runs");
        let pid = std::fs::read_to_string(pid).unwrap();
        let kill = format!("kill -{signal} {pid}");
        let killed = std::process::Command::new("sh")
            .args(["-c", &kill])
            .status();
        assert!(killed.unwrap().success());
        is_given_back(terminal, 0);
    }
    let terminal = top(dir.path(), "--panic");
    is_given_back(terminal, 1);
}

#[test]
fn without_a_terminal_it_names_what_works() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let ran = dalsegno(dir.path(), ["top"]).ends(2);
    assert!(
        ran.stderr.contains("top needs a terminal"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("`dalsegno ls`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`dalsegno tail`"), "{}", ran.stderr);
    let ran = dalsegno(dir.path(), ["top", "--json"]).ends(2);
    let error = ran.json_error();
    assert!(error["hint"].as_str().unwrap().contains("tail --json"));

    let mut terminal = top(&dir.join("nothing"), "");
    terminal.sees("error: no store in");
    is_given_back(terminal, 1);
    let mut command = command();
    command.args(["top", "--help"]);
    run(command).ok();
}
