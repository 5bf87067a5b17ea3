//! Runs of one process that use a memory at the same time, on a store that answers late.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/machine.rs"]
mod machine;
#[path = "common/slow.rs"]
mod slow;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;

use dalsegno::memory::{DocId, Memory, NewDocument, Query, RankingConfig};
use dalsegno::{Builder, Ctx, Effect, Runtime};
use dalsegno_store::{Kind, Store, StreamId};
use machine::{Machine, Outside, Process, agent, tool};
use slow::Slow;

fn start(machine: &Machine, builder: Builder) -> (Process, Arc<Slow>) {
    let store = Slow::new(Arc::new(machine.open_store()), &machine.runtime, 1);
    let process = machine.start_on(builder, store.clone(), "a process");
    (process, store)
}

/// Starts runs at the same time, and lets them come to their ends.
fn start_eight(machine: &Machine, process: &Process) {
    for n in 0..8 {
        let (app, run) = (process.app.clone(), format!("r{n}"));
        machine.runtime.spawn(Box::pin(async move {
            app.start("a", &run, &run).await.unwrap();
        }));
    }
    process.pass(Duration::from_secs(60));
}

#[test]
fn they_take_turns_in_writing_and_nobody_writes_in_vain() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, name: String| async move {
        for n in 0..5 {
            let fact = NewDocument::fact(format!("{name} knows {n}"));
            ctx.memory("kitchen").add(fact).await?;
        }
        Ok(())
    };
    let (process, store) = start(&machine, agent(Builder::new(), "a", &outside, code));
    store.takes(40);
    start_eight(&machine, &process);
    store.takes(0);
    for n in 0..8 {
        process.end::<()>(&format!("r{n}")).unwrap();
    }
    assert_eq!(store.refused.load(Ordering::Relaxed), 0);
    let app = process.app.clone();
    let version = process.now(async move {
        let kitchen = app.memory("kitchen").await.unwrap();
        kitchen.version().await.unwrap()
    });
    assert_eq!(version.sequence, 40);
}

#[test]
fn they_open_it_once() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, _: String| async move {
        let found = ctx.memory("kitchen");
        let found = found.search(&Query::words("oven"), &RankingConfig::default());
        Ok(found.await?.hits.len())
    };
    let (process, _) = start(&machine, agent(Builder::new(), "a", &outside, code));
    let app = process.app.clone();
    process.now(async move {
        let fact = NewDocument::fact("The oven is hot.");
        app.memory("kitchen")
            .await
            .unwrap()
            .add(fact)
            .await
            .unwrap();
    });
    process.kill();
    let (process, store) = start(&machine, agent(Builder::new(), "a", &outside, code));
    store.takes(40);
    start_eight(&machine, &process);
    store.takes(0);
    for n in 0..8 {
        assert_eq!(process.end::<usize>(&format!("r{n}")).unwrap(), 1);
    }
    assert_eq!(store.begun.load(Ordering::Relaxed), 1);
}

/// As `select!` may, with what it keeps for later.
#[test]
fn they_open_it_also_while_somebody_who_began_to_does_not_look_any_more() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, _: String| async move {
        let fact = NewDocument::fact("The oven is hot.");
        Ok(ctx.memory("kitchen").add(fact).await?.0)
    };
    let (process, store) = start(&machine, agent(Builder::new(), "a", &outside, code));
    store.takes(40);
    let app = process.app.clone();
    let mut opening = Box::pin(async move { app.memory("kitchen").await.map(drop) });
    let mut context = Context::from_waker(Waker::noop());
    assert!(opening.as_mut().poll(&mut context).is_pending());
    start_eight(&machine, &process);
    store.takes(0);
    for n in 0..8 {
        process.end::<u64>(&format!("r{n}")).unwrap();
    }
    assert!(opening.as_mut().poll(&mut context).is_ready());
}

#[test]
fn after_a_write_of_its_own_a_run_has_seen_it() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, outside: Outside, _: String| async move {
        let fact = NewDocument::fact("The oven is hot.");
        ctx.memory("kitchen").add(fact).await?;
        tool(&ctx, &outside, Effect::Once, "bake", "bread").await
    };
    let (process, store) = start(&machine, agent(Builder::new(), "a", &outside, code));
    process.begin("a", "r", "");
    process.end::<String>("r").unwrap();
    let (run, memory) = (
        StreamId::run("r").unwrap(),
        StreamId::memory("kitchen").unwrap(),
    );
    let (events, head) = process.now(async move {
        let events = store.events(&run, 1, 100).await.unwrap();
        (events, store.head(&memory).await.unwrap())
    });
    assert_eq!(head.unwrap().sequence, 1);
    let at = events
        .iter()
        .position(|event| event.kind == Kind::StepSucceeded)
        .unwrap();
    let (written, later) = events[at..].split_first().unwrap();
    // What it wrote was not there yet when it decided to write it.
    assert_eq!(written.memory.unwrap().sequence, 0);
    let kinds = [Kind::StepIntended, Kind::StepSucceeded, Kind::RunCompleted];
    let later: Vec<_> = later
        .iter()
        .filter(|event| kinds.contains(&event.kind))
        .collect();
    assert_eq!(later.len(), 3);
    for event in later {
        assert_eq!(event.memory, head, "{event:?}");
    }
}

/// Others write so often that a run never sees the same version twice.
#[test]
fn a_document_is_read_while_others_write_all_the_time() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let code = |ctx: Ctx, _: Outside, _: String| async move {
        let found = ctx.memory("kitchen").get(DocId(1)).await?;
        Ok(found.version.sequence)
    };
    let local: Arc<dyn Store> = Arc::new(machine.open_store());
    let store = Slow::new(local.clone(), &machine.runtime, 1);
    let builder = agent(Builder::new(), "a", &outside, code);
    let process = machine.start_on(builder, store.clone(), "a process");
    let clock = machine.runtime.clone();
    machine.runtime.spawn(Box::pin(async move {
        let kitchen = Memory::open(local, "kitchen").await.unwrap();
        for _ in 0..2000 {
            kitchen.add(NewDocument::fact("It is hot.")).await.unwrap();
            clock.sleep_until(clock.now_us() + 2000).await;
        }
    }));
    store.takes(40);
    let app = process.app.clone();
    machine.runtime.spawn(Box::pin(async move {
        app.start("a", "r", &"").await.unwrap();
    }));
    process.pass(Duration::from_secs(60));
    store.takes(0);
    let seen = process.end::<u64>("r").unwrap();
    assert!(seen < 2000, "it waited for the others: {seen}");
}
