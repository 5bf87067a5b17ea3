//! Stores that fail, are opened twice, or are closed under way.

use std::sync::Arc;
use std::time::Duration;

use dalsegno::testkit::SimRuntime;
use dalsegno::{Builder, Ctx, Effect, Error, Runtime};
use dalsegno_simdisk::Fault;

use super::machine::{Machine, Outside, agent, tool};

fn ten_steps(outside: &Outside) -> Builder {
    agent(Builder::new(), "a", outside, |ctx, outside, _| async move {
        let mut results = Vec::new();
        for number in 0..10 {
            let effect = match number % 3 {
                0 => Effect::ReadOnly,
                1 => Effect::Idempotent,
                _ => Effect::Once,
            };
            let name = format!("step {number}");
            results.push(tool(&ctx, &outside, effect, &name, &name).await?);
        }
        Ok(results.join(","))
    })
}

/// At each of its operations the disk is full or broken from then on: the run stops there, begins
/// nothing more, and goes on when the store is opened again on a disk that works.
#[test]
fn a_disk_that_fails_in_the_middle() {
    for fault in [Fault::Full, Fault::Broken] {
        let (machine, outside) = (Machine::new(), Outside::default());
        let process = machine.start(ten_steps(&outside));
        let begin = machine.disk.ops();
        process.begin("a", "r", "");
        let expected = process.end::<String>("r").unwrap();
        let operations = machine.disk.ops() - begin;
        assert!(operations > 10);
        for at in 0..operations {
            let (machine, outside) = (Machine::new(), Outside::default());
            let process = machine.start(ten_steps(&outside));
            machine.disk.fail_from(machine.disk.ops() + at, fault);
            let app = process.app.clone();
            let started = process.now(async move { app.start("a", "r", "").await.map(drop) });
            process.settle();
            let then = outside.total();
            process.pass(Duration::from_secs(10));
            assert_eq!(
                outside.total(),
                then,
                "nothing is begun on a store that fails"
            );
            let mut told = None;
            if started.is_ok() {
                let app = process.app.clone();
                let find = async move { app.find("r").await?.result::<String>().await };
                told = process.now(find).ok();
            }
            process.power_cut();
            machine.disk.heal();
            let process = machine.start(ten_steps(&outside));
            process.begin("a", "r", "");
            // Who was told the result before the disk failed, was told the truth.
            assert!(
                told.is_none() || outside.total() == then,
                "{fault:?} at {at}"
            );
            let mut ended = process.end::<String>("r");
            if let Err(Error::NeedsAttention { .. }) = &ended {
                let step = process.journal("r").in_doubt().unwrap().to_string();
                let result = step.trim_end_matches("#1").to_owned();
                let app = process.app.clone();
                process
                    .now(async move { app.resolve_happened("r", &step, &result, "ann").await })
                    .unwrap();
                ended = process.end("r");
            }
            assert_eq!(ended.unwrap(), expected, "{fault:?} at {at}");
            for number in 0..10 {
                let name = format!("step {number}");
                let (times, keys) = (outside.count(&name), outside.keys(&name).len());
                assert_eq!(keys, 1, "{fault:?} at {at}: {name}");
                assert!(
                    times <= if number % 3 == 2 { 1 } else { 2 },
                    "{fault:?} at {at}: {name}"
                );
            }
        }
    }
}

/// Starting a run whose first start failed on the disk is no success either.
#[test]
fn a_run_that_may_not_be_on_disk_is_not_said_to_be_started() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(ten_steps(&outside));
    machine.disk.fail_from(machine.disk.ops(), Fault::Broken);
    for _ in 0..2 {
        let app = process.app.clone();
        let started = process.now(async move { app.start("a", "r", "").await.map(drop) });
        assert!(started.is_err(), "{started:?}");
    }
}

#[tokio::test]
async fn a_store_that_is_open_elsewhere_names_its_owner() {
    let dir = std::env::temp_dir().join(format!("dalsegno-twice-{}", std::process::id()));
    let outside = Outside::default();
    let app = ten_steps(&outside).open(&dir).await.unwrap();
    let second = ten_steps(&outside).open(&dir).await.unwrap_err();
    let pid = std::process::id().to_string();
    assert!(second.to_string().contains(&pid), "{second}");
    // The first is not disturbed, and the second can come when it is gone.
    let result: String = app.run("a", "r", "").await.unwrap();
    app.close().await.unwrap();
    let app = ten_steps(&outside).open(&dir).await.unwrap();
    assert_eq!(app.run::<_, String>("a", "r", "").await.unwrap(), result);
    assert_eq!(outside.total(), 10);
    app.close().await.unwrap();
    drop(std::fs::remove_dir_all(&dir));
}

/// A tool that takes a minute, between two others.
fn slow(outside: &Outside, time: &SimRuntime) -> Builder {
    let (outside, time) = (outside.clone(), time.clone());
    Builder::new().agent("a", move |ctx: Ctx, _: String| {
        let (outside, time) = (outside.clone(), time.clone());
        async move {
            tool(&ctx, &outside, Effect::Once, "before", "").await?;
            let step = ctx.tool("slow");
            let slow = step.call(|call| {
                let (outside, time) = (outside.clone(), time.clone());
                async move {
                    outside.ask("slow", call.key(), "").await;
                    time.sleep_until(time.now_us() + 60_000_000).await;
                    Ok("slow".to_owned())
                }
            });
            let slow: String = slow.await?;
            tool(&ctx, &outside, Effect::Once, "after", "").await?;
            Ok(slow)
        }
    })
}

/// Closes, and lets time pass until that is done.
fn close(machine: &Machine, process: &super::machine::Process, grace: Duration) {
    let (app, done) = (process.app.clone(), Arc::new(std::sync::Mutex::new(None)));
    let to = Arc::clone(&done);
    machine.runtime.spawn(Box::pin(async move {
        let closed = app.close_within(grace).await;
        *to.lock().unwrap() = Some(closed);
    }));
    for _ in 0..1000 {
        process.settle();
        if let Some(closed) = done.lock().unwrap().take() {
            return closed.unwrap();
        }
        machine.runtime.advance();
    }
    panic!("it does not close");
}

#[test]
fn closing_while_steps_are_under_way_lets_them_finish() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let process = machine.start(slow(&outside, &machine.runtime));
    process.begin("a", "r", "");
    assert_eq!(outside.count("slow"), 1);
    close(&machine, &process, Duration::from_secs(600));
    assert_eq!(outside.count("after"), 0, "nothing new is begun");
    let app = process.app.clone();
    let closed = process.now(async move { app.start("a", "x", "").await.map(drop) });
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    process.power_cut();
    let process = machine.start(slow(&outside, &machine.runtime));
    assert_eq!(process.end::<String>("r").unwrap(), "slow");
    for name in ["before", "slow", "after"] {
        assert_eq!(outside.count(name), 1, "{name}");
    }
}

/// Closing again and again while many runs are at work leaves no doubt: what was begun is finished.
#[test]
fn closing_while_many_runs_are_at_work_leaves_no_doubt() {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(4).enable_all().build().unwrap();
    let dir = std::env::temp_dir().join(format!("dalsegno-closing-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    let outside = Outside::default();
    let builder = || {
        agent(
            Builder::new(),
            "a",
            &outside,
            |ctx, outside, _| async move {
                for number in 0..40 {
                    tool(&ctx, &outside, Effect::Once, "once", &number.to_string()).await?;
                }
                Ok("done".to_owned())
            },
        )
    };
    runtime.block_on(async {
        for life in 0..1000 {
            let app = builder().open(&dir).await.unwrap();
            let mut ended = 0;
            for run in 0..8 {
                let run = format!("r{run}");
                app.start("a", &run, "").await.unwrap();
                let journal = app.journal(&run).await.unwrap();
                let doubt = journal.attention.map(|attention| attention.reason);
                assert_eq!(doubt, None, "life {life}, {run}");
                ended += usize::from(journal.status.is_final());
            }
            let then = outside.total();
            while ended < 8 && outside.total() < (then + 20).min(320) {
                tokio::task::yield_now().await;
            }
            app.close().await.unwrap();
            if ended == 8 {
                return;
            }
        }
        panic!("it never ends");
    });
    assert_eq!((outside.total(), outside.keys("once").len()), (320, 320));
    drop(std::fs::remove_dir_all(&dir));
}

#[test]
fn closing_does_not_wait_for_ever() {
    let (machine, outside) = (Machine::new(), Outside::default());
    outside.falls_silent("slow");
    let process = machine.start(slow(&outside, &machine.runtime));
    process.begin("a", "r", "");
    close(&machine, &process, Duration::from_secs(5));
    process.kill();
    // What was under way is in doubt, as after a crash.
    let process = machine.start(slow(&outside, &machine.runtime));
    let doubt = process.end::<String>("r").unwrap_err();
    assert!(doubt.to_string().contains("slow#1"), "{doubt}");
    assert_eq!(outside.count("slow"), 1);
}

#[test]
fn who_waits_for_a_result_is_told_that_the_store_was_closed() {
    let (machine, outside) = (Machine::new(), Outside::default());
    let builder = agent(Builder::new(), "a", &outside, |ctx, _, _| async move {
        ctx.signal::<String>("never").await
    });
    let process = machine.start(builder);
    process.begin("a", "r", "");
    let told = Arc::new(std::sync::Mutex::new(None));
    let (to, app) = (Arc::clone(&told), process.app.clone());
    machine.runtime.spawn(Box::pin(async move {
        let handle = app.find("r").await.unwrap();
        *to.lock().unwrap() = Some(handle.result::<String>().await);
    }));
    process.settle();
    assert!(told.lock().unwrap().is_none());
    close(&machine, &process, Duration::from_secs(5));
    process.settle();
    let told = told.lock().unwrap().take();
    assert!(matches!(told, Some(Err(Error::Closed))), "{told:?}");
}
