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
        let events = events(&process, &store, n);
        let count = |kind: Kind| {
            let of_kind = events.iter().filter(|event| event.kind == kind);
            of_kind
                .filter(|event| event.fields.get(SEEN).is_none())
                .count()
        };
        let intended = count(Kind::StepIntended);
        let (succeeded, failed) = (count(Kind::StepSucceeded), count(Kind::StepFailed));
        assert_eq!(succeeded + failed, intended, "r{n}: {events:#?}");
        begun += intended;
        added += succeeded as u64;
    }
    assert!(begun > 60, "{begun} were begun");
    let app = process.app.clone();
    let version = process.now(async move {
        let kitchen = app.memory("kitchen").await.unwrap();
        kitchen.version().await.unwrap()
    });
    assert_eq!(version.sequence, added);
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
