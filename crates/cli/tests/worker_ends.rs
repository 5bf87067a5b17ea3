//! How a worker ends, and what becomes of its runs: told to end, killed, frozen, cut off.

#![allow(clippy::unwrap_used)]

mod common;
mod workers;

use std::time::{Duration, Instant};

use common::places::Place;
use rustix::process::Signal;
use workers::{EFFECT, Worker, Workers, is_alive, until};

/// A step that hangs in its first attempt, and has said which process it is.
const HANGS: &str = "[ $DALSEGNO_ATTEMPT -gt 1 ] || { echo $$ > \"$OUT/pid-$DALSEGNO_RUN\"; \
                     while :; do sleep 0.02; done; }";

fn told_twice(worker: &mut Worker) {
    worker.signal(Signal::TERM);
    worker.until("draining", None);
    worker.signal(Signal::TERM);
}

#[test]
fn a_killed_worker_is_followed_by_another_within_two_leases_and_nothing_happens_twice() {
    let workers = Workers::new();
    let lease = Duration::from_secs(3);
    let before = format!("dalsegno step --name before -- sh -c '{EFFECT}'");
    let agents = [
        workers.agent(
            "repeated",
            &format!("{before}\ndalsegno step --name s --effect idempotent -- sh -c '{HANGS}; {EFFECT}'"),
        ),
        workers.agent(
            "probed",
            &format!(
                "{before}\ndalsegno step --name s --probe 'echo it happened' -- sh -c '{HANGS}; {EFFECT}'"
            ),
        ),
        workers.agent(
            "doubtful",
            &format!("{before}\ndalsegno step --name s -- sh -c '{HANGS}; {EFFECT}'"),
        ),
    ];
    let mut args = vec!["--lease", "3s"];
    args.extend(agents.iter().flat_map(|agent| ["--agent", agent.as_str()]));
    let runs = ["repeated", "probed", "doubtful"];
    for run in runs {
        workers.start(run, run);
    }
    let mut first = workers.worker(&args);
    let pids = runs.map(|run| workers.until_left(&format!("pid-{run}")));
    let second = workers.worker(&args);
    let killed = Instant::now();
    first.kill();
    for pid in &pids {
        until("the end of its commands", || !is_alive(pid));
    }
    assert!(killed.elapsed() < lease, "its commands outlive it");
    for run in runs {
        second.until("claimed", Some(run));
    }
    let took = killed.elapsed();
    assert!(took < 2 * lease, "{took:?}");
    workers.until_is("repeated", "completed");
    let shown = workers.until_is("probed", "completed");
    assert_eq!(shown["result"], "it happened");
    workers.until_needs_person("doubtful");
    let args = ["resolve", "doubtful", "s#1", "--did-not-happen"];
    workers.run(&args).ok();
    workers.until_is("doubtful", "completed");
    // Three before, and two that were found not to have happened.
    let effects = workers.effects();
    assert_eq!(effects.len(), 5);
    assert!(effects.iter().all(|(_, times)| *times == 1), "{effects:?}");
    workers.run(&["verify"]).ok();
}

#[test]
fn a_script_that_is_between_steps_dies_with_its_worker() {
    let workers = Workers::new();
    let agent = workers.agent("a", "echo $$ > \"$OUT/pid\"; while :; do sleep 0.02; done");
    let mut worker = workers.worker(&["--agent", &agent]);
    workers.start("a", "r");
    let pid = workers.until_left("pid");
    worker.kill();
    until("the end of its script", || !is_alive(&pid));
}

#[test]
fn who_is_told_to_end_lets_the_step_finish_and_others_go_on_at_once() {
    let workers = Workers::new();
    // The lease is no help: nobody waits for it.
    let lease = ["--lease", "10m"];
    let script = format!(
        "trap '' TERM\n\
         dalsegno step --name one -- sh -c 'touch \"$OUT/begun\"; \
             while [ ! -e \"$OUT/go\" ]; do sleep 0.01; done; {EFFECT}; echo one'\n\
         dalsegno step --name two -- sh -c '{EFFECT}; echo two' || {{ echo $? >> \"$OUT/code\"; exit 75; }}"
    );
    let agent = workers.agent("a", &script);
    let args = [&lease[..], &["--agent", &agent]].concat();
    let mut first = workers.worker(&args);
    workers.start("a", "r");
    until("the step", || workers.dir.join("begun").exists());
    first.signal(Signal::TERM);
    first.until("draining", None);
    // It claims nothing more, and the step is still under way.
    workers.start("a", "later");
    let second = workers.worker(&args);
    second.until("claimed", Some("later"));
    assert_eq!(first.said("handed-over", None).len(), 0);
    let told = Instant::now();
    workers.make("go");
    let shown = workers.until_is("r", "completed");
    assert_eq!(shown["result"], "one\ntwo");
    assert!(
        told.elapsed() < Duration::from_secs(20),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(first.ended(), Some(0));
    first.until("handed-over", Some("r"));
    first.until("stopped", None);
    // The script that ignores SIGTERM was told by its next step.
    assert_eq!(workers.left("code"), "75\n", "{}", workers.logs());
    workers.until_is("later", "completed");
    let effects = workers.effects();
    assert_eq!(effects.len(), 4);
    assert!(effects.iter().all(|(_, times)| *times == 1), "{effects:?}");
    let lives = shown["lives"].as_array().unwrap();
    assert_eq!(lives.len(), 2);
    assert_eq!(lives[1]["recovered"], false, "it was written down");
}

#[test]
fn a_step_that_does_not_finish_in_time_is_killed_and_taken_over_at_once() {
    let workers = Workers::new();
    let script = format!("dalsegno step --name s --effect idempotent -- sh -c '{HANGS}; {EFFECT}'");
    let agent = workers.agent("a", &script);
    let args = ["--agent", &agent, "--lease", "10m", "--grace", "300ms"];
    let mut first = workers.worker(&args);
    workers.start("a", "r");
    let pid = workers.until_left("pid-r");
    first.signal(Signal::INT);
    assert_eq!(first.ended(), Some(0));
    first.until("killing", None);
    until("the end of the command", || !is_alive(&pid));
    let _second = workers.worker(&args);
    workers.until_is("r", "completed");
    assert_eq!(workers.effects().len(), 1);
}

#[test]
fn told_twice_it_kills_at_once() {
    let workers = Workers::new();
    let script = format!("dalsegno step --name s --effect idempotent -- sh -c '{HANGS}; {EFFECT}'");
    let agent = workers.agent("a", &script);
    let args = ["--agent", &agent, "--lease", "10m", "--grace", "10m"];
    let mut first = workers.worker(&args);
    workers.start("a", "r");
    let pid = workers.until_left("pid-r");
    told_twice(&mut first);
    assert_eq!(first.ended(), Some(130));
    until("the end of the command", || !is_alive(&pid));
    let _second = workers.worker(&args);
    workers.until_is("r", "completed");
}

#[test]
fn a_worker_that_was_frozen_kills_what_is_not_its_own_any_more() {
    let workers = Workers::new();
    let script = format!(
        "trap 'echo told >> \"$OUT/told\"; exit 1' TERM\n\
         dalsegno step --name s --effect idempotent -- sh -c '{HANGS}; {EFFECT}'"
    );
    let agent = workers.agent("a", &script);
    let args = ["--agent", &agent, "--lease", "1s"];
    let first = workers.worker(&args);
    workers.start("a", "r");
    let pid = workers.until_left("pid-r");
    first.signal(Signal::STOP);
    let second = workers.worker(&args);
    second.until("claimed", Some("r"));
    workers.until_is("r", "completed");
    assert!(is_alive(&pid), "nobody could tell its command");
    let head = workers.show("r")["at"].clone();
    first.signal(Signal::CONT);
    first.until("lost", Some("r"));
    until("the end of the command", || !is_alive(&pid));
    assert_eq!(workers.show("r")["at"], head, "it has written something");
    assert_eq!(workers.effects().len(), 1);
    // It goes on with others.
    drop(second);
    workers.start("a", "other");
    let pid = workers.until_left("pid-other");
    assert!(is_alive(&pid));
}

#[test]
fn a_database_that_goes_away_holds_steps_up_and_no_more() {
    let workers = Workers::at(Place::server_of_its_own());
    let steps: String = (0..4)
        .map(|n| {
            format!("dalsegno step --name s{n} -- sh -c 'sleep 0.1; {EFFECT}; echo $DALSEGNO_RUN >> \"$OUT/done\"'\n")
        })
        .collect();
    let agent = workers.agent("a", &steps);
    let worker = workers.worker(&["--agent", &agent]);
    let runs = ["a", "b", "c"];
    for run in runs {
        workers.start("a", run);
    }
    for steps in [2, 6] {
        until("steps", || workers.left("done").lines().count() >= steps);
        workers.place.server().stop_at_once();
        workers.place.server().start_again();
    }
    for run in runs {
        until("its end", || !worker.said("ended", Some(run)).is_empty());
        workers.until_is(run, "completed");
    }
    let effects = workers.effects();
    assert_eq!(effects.len(), 12);
    assert!(effects.iter().all(|(_, times)| *times == 1), "{effects:?}");
}
