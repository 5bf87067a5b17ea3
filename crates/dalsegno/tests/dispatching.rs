//! Timers fire in time, whatever other runs do; and runs that wait for a place wait once.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;

use std::sync::Arc;
use std::time::Duration;

use dalsegno::testkit::SimRuntime;
use dalsegno::{Builder, Ctx, Effect, Runtime};
use dalsegno_store::{
    Answer, Append, Appended, Kind, LocalStore, Over, Store, StoreError, StreamId,
};
use machine::{Machine, Outside, Process, agent, tool};

const SECOND: Duration = Duration::from_secs(1);

/// A store with a run that takes nothing, as one that has lost events.
#[derive(Debug)]
struct Odd {
    store: LocalStore,
    clock: SimRuntime,
}

impl Over for Odd {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move {
            let mut events = batch.iter().flat_map(|append| &append.events);
            let fires = events.any(|event| event.kind == Kind::TimerFired);
            match batch.first() {
                Some(append) if fires && append.stream.name() == "broken" => {
                    Err(StoreError::Refused {
                        stream: append.stream.clone(),
                        kind: Kind::TimerFired,
                        why: "events of it were lost".into(),
                    })
                }
                _ => self.store.append(batch).await,
            }
        })
    }

    /// Whoever asks gets the answer a little later, when it may no longer be true.
    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        Box::pin(async move {
            let next = self.store.next_timer_us().await;
            let later_us = self.clock.now_us() + 5_000;
            self.clock.sleep_until(later_us).await;
            next
        })
    }
}

fn start(machine: &Machine, builder: Builder) -> Process {
    let clock = machine.runtime.clone();
    let store = machine.open_store();
    machine.start_on(builder, Arc::new(Odd { store, clock }), "a process")
}

fn sleeper(outside: &Outside) -> Builder {
    agent(Builder::new(), "a", outside, |ctx, _, _| async move {
        ctx.sleep(SECOND).await?;
        Ok("slept".to_owned())
    })
}

#[test]
fn a_timer_that_is_set_while_the_next_one_is_looked_for_fires_in_time() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = start(&machine, sleeper(&outside));
    process.begin("a", "r", "");
    process.pass(2 * SECOND);
    assert!(process.journal("r").status.is_final());
}

#[test]
fn a_run_that_takes_nothing_does_not_hold_up_the_timers_of_others() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = start(&machine, sleeper(&outside));
    process.begin("a", "broken", "");
    process.pass(SECOND / 2);
    process.begin("a", "r", "");
    process.pass(5 * SECOND);
    assert!(!process.journal("broken").status.is_final());
    assert!(process.journal("r").status.is_final());
}

#[test]
fn a_run_that_waits_for_a_place_is_taken_up_once() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let clock = machine.runtime.clone();
    let builder = agent(
        Builder::new().max_running(1),
        "waits",
        &outside,
        |ctx, _, _| async move { ctx.signal::<String>("go").await },
    );
    let builder = agent(builder, "works", &outside, move |ctx: Ctx, outside, _| {
        let clock = clock.clone();
        async move {
            let look = ctx.tool("look").read_only().call(|_| {
                let work = clock.sleep_until(clock.now_us() + 10_000_000);
                async move {
                    work.await;
                    Ok(())
                }
            });
            look.await?;
            tool(&ctx, &outside, Effect::Once, "done", "").await
        }
    });
    let process = machine.start(builder);
    process.begin("waits", "r", "");
    process.begin("works", "other", "");
    for _ in 0..50 {
        let app = process.app.clone();
        let said = process.now(async move { app.signal("r", "other", "").await });
        said.unwrap();
    }
    process.pass(20 * SECOND);
    assert_eq!(outside.count("done"), 1);
    let store = Arc::clone(process.app.store());
    let run = StreamId::run("r").unwrap();
    let events = process.now(async move { store.events(&run, 1, 999).await });
    let events = events.unwrap();
    let taken = events.iter().filter(|e| e.kind == Kind::LeaseTaken).count();
    assert_eq!(taken, 2, "first, and when it had its place");
}
