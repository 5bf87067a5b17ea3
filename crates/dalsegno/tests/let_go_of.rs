//! Code that lets go of a step, as `select!` does, on a store that answers late: what was begun is
//! brought to its end before the run, or the turn of a loop, is.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;
#[path = "common/slow.rs"]
mod slow;

use std::sync::Arc;
use std::time::Duration;

use dalsegno::memory::{DocId, NewDocument};
use dalsegno::{Builder, Ctx, Effect, Runtime, Turn};
use dalsegno_store::{Event, Kind, Store, StreamId};
use machine::{Machine, Outside, Process, agent, tool};
use slow::Slow;

/// That an event says only whether the code has seen what a step came to.
const SEEN: u64 = 10;

const RUNS: u64 = 90;

fn start(machine: &Machine, builder: Builder) -> (Process, Arc<Slow>) {
    let store = Slow::new(Arc::new(machine.open_store()), &machine.runtime, 1);
    let process = machine.start_on(builder, store.clone(), "a process");
    (process, store)
}

/// Starts runs at the same time. Each is told its number.
fn start_all(machine: &Machine, process: &Process, store: &Slow) {
    store.takes(40);
    for n in 0..RUNS {
        let app = process.app.clone();
        machine.runtime.spawn(Box::pin(async move {
            let input = n.to_string();
            app.start("a", &format!("r{n}"), &input).await.unwrap();
        }));
    }
}

fn events(process: &Process, store: &Arc<Slow>, n: u64) -> Vec<Event> {
    let (run, store) = (StreamId::run(&format!("r{n}")).unwrap(), store.clone());
    process.now(async move { store.events(&run, 1, 200).await.unwrap() })
}

/// How many steps of a run were begun, and how many succeeded; all that were begun have an outcome.
fn begun_and_succeeded(process: &Process, store: &Arc<Slow>, n: u64) -> (usize, usize) {
    let events = events(process, store, n);
    let count = |kind: Kind| {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        of_kind
            .filter(|event| event.fields.get(SEEN).is_none())
            .count()
    };
    let intended = count(Kind::StepIntended);
    let (succeeded, failed) = (count(Kind::StepSucceeded), count(Kind::StepFailed));
    assert_eq!(succeeded + failed, intended, "r{n}: {events:#?}");
    (intended, succeeded)
}

/// How many events a memory has.
fn version(process: &Process) -> u64 {
    let app = process.app.clone();
    let version = process.now(async move {
        let kitchen = app.memory("kitchen").await.unwrap();
        kitchen.version().await.unwrap()
    });
    version.sequence
}

/// The code returns at any moment of a write, without waiting for it.
#[test]
fn a_write_to_a_memory_is_there_and_its_outcome_is_recorded() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let clock = machine.runtime.clone();
    let code = move |ctx: Ctx, _: Outside, n: String| {
        let clock = clock.clone();
        async move {
            let n: u64 = n.parse().unwrap();
            let until_us = clock.now_us() + 5000 * n;
            let kitchen = ctx.memory("kitchen");
            let write = async {
                match n % 3 {
                    // There is no such document.
                    0 => kitchen.retract(DocId(9999), "asked").await,
                    _ => {
                        let added = kitchen.add(NewDocument::fact(n.to_string()));
                        added.await.map(|id| id.0)
                    }
                }
            };
            tokio::select! {
                _ = write => {}
                () = clock.sleep_until(until_us) => {}
            }
            Ok(())
        }
    };
    let (process, store) = start(&machine, agent(Builder::new(), "a", &outside, code));
    start_all(&machine, &process, &store);
    process.pass(Duration::from_secs(60));
    store.takes(0);
    let (mut begun, mut added) = (0, 0);
    for n in 0..RUNS {
        process.end::<()>(&format!("r{n}")).unwrap();
        let (intended, succeeded) = begun_and_succeeded(&process, &store, n);
        begun += intended;
        added += succeeded as u64;
    }
    assert!(begun > 60, "{begun} were begun");
    assert_eq!(version(&process), added);
}

/// The process closes while writes wait for each other and the code lets go of them: what is under way
/// is finished, and a write is.
#[test]
fn a_process_that_closes_finishes_a_write_that_was_begun() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = || {
        let clock = machine.runtime.clone();
        let code = move |ctx: Ctx, _: Outside, n: String| {
            let clock = clock.clone();
            async move {
                let n: u64 = n.parse().unwrap();
                let now_us = clock.now_us();
                let long = ctx.tool("long").read_only().call(|_| {
                    let clock = clock.clone();
                    async move {
                        clock.sleep_until(now_us + 6_000_000).await;
                        Ok(())
                    }
                });
                let kitchen = ctx.memory("kitchen");
                let write = async {
                    tokio::select! {
                        _ = kitchen.add(NewDocument::fact(n.to_string())) => {}
                        () = clock.sleep_until(now_us + 20_000 * n) => {}
                    }
                };
                tokio::join!(long, write).0
            }
        };
        agent(Builder::new(), "a", &outside, code)
    };
    let (process, store) = start(&machine, builder());
    start_all(&machine, &process, &store);
    process.pass(Duration::from_secs(1));
    let app = process.app.clone();
    machine.runtime.spawn(Box::pin(async move {
        app.close_within(Duration::from_secs(30)).await.unwrap();
    }));
    process.pass(Duration::from_secs(60));
    drop((process, store));
    let (process, store) = start(&machine, builder());
    process.pass(Duration::from_secs(60));
    let mut written = 0;
    for n in 0..RUNS {
        process.end::<()>(&format!("r{n}")).unwrap();
        let (begun, _) = begun_and_succeeded(&process, &store, n);
        written += begun as u64 - 1;
    }
    assert!(written > 20, "{written} were written");
    assert_eq!(version(&process), written);
}

/// Nothing of a turn is recorded behind its end: nobody would come to it again.
#[test]
fn a_turn_of_a_loop_ends_behind_all_that_it_did() {
    for kill_ms in [60, 160, 260] {
        let (machine, outside) = (Machine::new(), Outside::default());
        let builder = || {
            let (clock, outside) = (machine.runtime.clone(), outside.clone());
            let turn = move |ctx: Ctx, (n, turn): (u64, u64)| {
                let (clock, outside) = (clock.clone(), outside.clone());
                async move {
                    let until_us = clock.now_us() + 1000 * n;
                    let look = tool(&ctx, &outside, Effect::ReadOnly, "look", "it");
                    let note = ctx.memory("kitchen").add(NewDocument::fact("It is hot."));
                    tokio::select! {
                        _ = look => {}
                        _ = note => {}
                        () = clock.sleep_until(until_us) => {}
                    }
                    Ok(match turn {
                        5 => Turn::Done(n),
                        _ => Turn::Continue((n, turn + 1)),
                    })
                }
            };
            let begin = |n: String| (n.parse::<u64>().unwrap(), 1_u64);
            Builder::new().loop_agent("a", begin, turn)
        };
        let (process, store) = start(&machine, builder());
        start_all(&machine, &process, &store);
        process.pass(Duration::from_millis(kill_ms));
        process.kill();
        let (process, store) = start(&machine, builder());
        store.takes(40);
        process.pass(Duration::from_secs(60));
        store.takes(0);
        for n in 0..RUNS {
            let found = process.end::<u64>(&format!("r{n}"));
            assert!(found.is_ok(), "killed after {kill_ms} ms: r{n}: {found:?}");
            let mut ended = 0;
            for event in events(&process, &store, n) {
                if event.kind == Kind::CheckpointWritten {
                    ended += 1;
                }
                let step = event.fields.text(1).filter(|step| step.starts_with('@'));
                let of = step.map(|step| &step[1..step.find('/').unwrap()]);
                let of: u64 = of.map_or(ended + 1, |of| of.parse().unwrap());
                assert_eq!(of, ended + 1, "r{n}: {event:#?}");
            }
        }
    }
}
