//! Several processes on one store: each run is one process's at a time, what comes for it reaches
//! it wherever it is, and what a process leaves behind another takes over.
//!
//! A process here is an engine with a handle of its own on a database; real processes, which are
//! killed and stopped, are in the story's tests.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dalsegno::memory::NewDocument;
use dalsegno::{Builder, Ctx, Dalsegno, Error, Probe, Start};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::{Answer, Claim, Kind, Lease, Over, Status, Store, StreamId};
use tokio::sync::Semaphore;

mod common;
use common::World;

const LEASE: Duration = Duration::from_secs(2);

fn builder() -> Builder {
    Dalsegno::builder().lease(LEASE)
}

async fn event_kinds(app: &Dalsegno, run: &str) -> Vec<Kind> {
    let run = StreamId::run(run).unwrap();
    let events = app.store().events(&run, 1, 1000).await.unwrap();
    events.into_iter().map(|event| event.kind).collect()
}

/// An agent of some steps, which counts them under the name of its process.
fn counting(name: &'static str, world: &World) -> Builder {
    let world = world.clone();
    builder().agent("count", move |ctx: Ctx, steps: u64| {
        let world = world.clone();
        async move {
            for _ in 0..steps {
                let seen = world.clone();
                let run = ctx.run_id().to_owned();
                ctx.tool("count")
                    .idempotent()
                    .call(move |call| {
                        let (world, run, key) = (seen.clone(), run.clone(), call.key().to_owned());
                        async move {
                            world.did(name);
                            world.did(&format!("{run} {key}"));
                            tokio::time::sleep(Duration::from_millis(2)).await;
                            Ok(())
                        }
                    })
                    .await?;
            }
            Ok(steps)
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_shared_out_and_done_once() {
    let (server, world) = (Server::shared(), World::default());
    let url = server.url();
    let one = counting("one", &world)
        .max_running(8)
        .open(&url)
        .await
        .unwrap();
    let two = counting("two", &world)
        .max_running(8)
        .open(&url)
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..40 {
        runs.push(one.start("count", &format!("r{number}"), &5).await.unwrap());
    }
    for run in runs {
        assert_eq!(run.result::<u64>().await.unwrap(), 5);
    }
    let steps: Vec<_> = world
        .all()
        .into_iter()
        .filter(|w| w.contains(' '))
        .collect();
    assert_eq!(steps.len(), 200);
    for step in steps {
        assert_eq!(world.count(&step), 1, "{step}");
    }
    assert!(
        world.count("one") > 0 && world.count("two") > 0,
        "{world:?}"
    );
    one.close().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_for_a_run_reaches_it_in_another_process() {
    let server = Server::shared();
    let url = server.url();
    let agent = |ctx: Ctx, (): ()| async move {
        let first: u64 = ctx.signal("first").await?;
        ctx.sleep(Duration::from_millis(200)).await?;
        let answer = ctx.approval("publish").of(&first).await?;
        let second: u64 = ctx.signal("second").await?;
        Ok((first, answer.is_approved(), second))
    };
    for stay in [Duration::ZERO, Duration::from_secs(60)] {
        let worker = builder().agent("wait", agent).stay_in_memory(stay);
        let worker = worker.open(&url).await.unwrap();
        // It has the agent's name, and no room to execute it.
        let client = builder().agent("wait", agent).max_running_of("wait", 0);
        let client = client.open(&url).await.unwrap();
        let name = format!("waits-{}", stay.as_secs());
        let run = client.start("wait", &name, &()).await.unwrap();
        client.signal(&name, "first", &7_u64).await.unwrap();
        until(&client, &name, |why| why.contains("publish")).await;
        client.approve(&name, "publish", "ann").await.unwrap();
        client.signal(&name, "second", &8_u64).await.unwrap();
        let result: (u64, bool, u64) = run.result().await.unwrap();
        assert_eq!(result, (7, true, 8));
        worker.close().await.unwrap();
        client.close().await.unwrap();
    }
}

/// Waits until what a run waits for is so.
async fn until(app: &Dalsegno, run: &str, is_so: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let why = app.why(run).await.unwrap().to_string();
        if is_so(&why) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{why}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_may_be_in_another_process() {
    let server = Server::shared();
    let url = server.url();
    let parent = |ctx: Ctx, (): ()| async move {
        let doubled: u64 = ctx.child("double", &21_u64).named("c").await?;
        Ok(doubled)
    };
    let double = |_: Ctx, n: u64| async move { Ok(2 * n) };
    let above = builder().agent("parent", parent).agent("double", double);
    let above = above.max_running_of("double", 0).open(&url).await.unwrap();
    let below = builder().agent("double", double).open(&url).await.unwrap();
    let start = Start::new().queue("q").priority(3);
    let run = above.start_with("parent", "p", &(), start).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 42);
    let child = below.journal("c").await.unwrap();
    assert_eq!(
        (child.created.queue.as_str(), child.created.priority),
        ("q", 3)
    );
    above.close().await.unwrap();
    below.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_closes_hands_over_at_once() {
    let (server, world) = (Server::shared(), World::default());
    let url = server.url();
    let long = Duration::from_secs(600);
    let one = counting("one", &world)
        .lease(long)
        .open(&url)
        .await
        .unwrap();
    let run = one.start("count", "r", &300).await.unwrap();
    drop(run);
    let begun = Instant::now();
    while world.count("one") < 5 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    one.close().await.unwrap();
    let begun = Instant::now();
    let before = world.count("one");
    let two = counting("two", &world)
        .lease(long)
        .open(&url)
        .await
        .unwrap();
    while world.count("two") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let run = two.find("r").await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 300);
    assert_eq!(before + world.count("two"), 300, "each step once");
    two.close().await.unwrap();
}

/// A store whose answers to claims are late: they come when the gate is opened.
#[derive(Debug)]
struct LateClaims {
    store: Arc<dyn Store>,
    taken: Semaphore,
    gate: Semaphore,
}

impl Over for LateClaims {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Vec<(StreamId, Lease)>> {
        Box::pin(async move {
            let taken = self.store.claim(claim).await?;
            if !taken.is_empty() {
                self.taken.add_permits(1);
                drop(self.gate.acquire().await);
            }
            Ok(taken)
        })
    }
}

/// What the store has given to a process that closes was its own for the time of a lease, and nobody
/// drove it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_closes_gives_back_what_it_was_just_given() {
    let (server, world) = (Server::shared(), World::default());
    let url = server.url();
    let long = Duration::from_secs(600);
    let late = Arc::new(LateClaims {
        store: Arc::new(PostgresStore::open(&url).unwrap()),
        taken: Semaphore::new(0),
        gate: Semaphore::new(0),
    });
    let one = counting("one", &world).lease(long);
    let one = one.open_store(late.clone()).await.unwrap();
    drop(one.start("count", "r", &3).await.unwrap());
    late.taken.acquire().await.unwrap().forget();
    let mut closing = tokio::spawn(one.close());
    let closed = tokio::time::timeout(Duration::from_millis(300), &mut closing).await;
    assert!(closed.is_err(), "closed, and was given a run");
    late.gate.add_permits(1);
    closing.await.unwrap().unwrap();

    let two = counting("two", &world).lease(long);
    let two = two.open(&url).await.unwrap();
    let run = two.find("r").await.unwrap();
    let result = run.result::<u64>();
    let result = tokio::time::timeout(Duration::from_secs(60), result).await;
    assert_eq!(result.unwrap().unwrap(), 3, "somebody has it");
    two.close().await.unwrap();
}

#[test]
fn a_process_that_is_gone_is_replaced_when_its_lease_ends() {
    let (server, world) = (Server::shared(), World::default());
    let url = server.url();
    let doomed = tokio::runtime::Builder::new_multi_thread();
    let doomed = { doomed }.worker_threads(2).enable_all().build().unwrap();
    let app = doomed.block_on(counting("one", &world).open(&url)).unwrap();
    doomed.block_on(app.start("count", "r", &300)).unwrap();
    while world.count("one") < 5 {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Nothing of it runs any more, and nothing was given back.
    doomed.shutdown_background();
    std::mem::forget(app);
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let gone = Instant::now();
    runtime.block_on(async {
        let two = counting("two", &world).open(&url).await.unwrap();
        while world.count("two") == 0 {
            assert!(gone.elapsed() < 2 * LEASE, "nobody took it over");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let run = two.find("r").await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 300);
        let kinds = event_kinds(&two, "r").await;
        assert!(kinds.contains(&Kind::RunRecovered), "{kinds:?}");
        two.close().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_priorities_and_limits_are_kept() {
    let server = Server::shared();
    let url = server.url();
    let order: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&order);
    let agent = move |ctx: Ctx, (): ()| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(ctx.run_id().to_owned());
            Ok(())
        }
    };
    let client = builder().agent("a", agent.clone()).max_running_of("a", 0);
    let client = client.open(&url).await.unwrap();
    for (name, queue, priority) in [
        ("low", "q", 0),
        ("other", "not this one", 9),
        ("high", "q", 5),
        ("highest", "q", 7),
    ] {
        let start = Start::new().queue(queue).priority(priority);
        client.start_with("a", name, &(), start).await.unwrap();
    }
    // One at a time.
    let worker = builder().agent("a", agent).queues(["q"]).max_running(1);
    let worker = worker.open(&url).await.unwrap();
    for name in ["low", "high", "highest"] {
        let run = client.find(name).await.unwrap();
        run.result::<()>().await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), ["highest", "high", "low"]);
    let left = client.journal("other").await.unwrap();
    assert_eq!(left.status, Status::Pending);
    worker.close().await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_none_is_said_to_be() {
    let refused = builder().open("postgres://nobody@127.0.0.1:1/none").await;
    let Err(Error::Store(e)) = refused else {
        panic!("{refused:?}");
    };
    assert!(e.to_string().contains("127.0.0.1:1"), "{e}");
}

/// The first process is stopped for longer than its lease, right before its first effect.
#[test]
fn who_was_overtaken_begins_no_effect() {
    let (server, world) = (Server::shared(), World::default());
    let url = server.url();
    let lease = Duration::from_millis(500);
    let build = |name: &'static str, frozen: Option<Arc<std::sync::Barrier>>| {
        let world = world.clone();
        let agent = move |ctx: Ctx, (): ()| {
            let (world, frozen) = (world.clone(), frozen.clone());
            async move {
                if let Some(barrier) = frozen {
                    // Nothing of this process runs meanwhile: it has one thread.
                    barrier.wait();
                    barrier.wait();
                }
                let pay = ctx
                    .tool("pay")
                    .once()
                    .probe(|_| async { Ok(Probe::<bool>::DidNotHappen) });
                pay.call(|call| {
                    world.did(name);
                    world.did(&format!("token {}", call.token()));
                    let held = call.is_held();
                    async move { Ok(held) }
                })
                .await
            }
        };
        Dalsegno::builder().lease(lease).agent("a", agent)
    };
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let doomed = {
        let (url, builder) = (url.clone(), build("first", Some(Arc::clone(&barrier))));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let app = builder.open(&url).await.unwrap();
                let run = app.start("a", "r", &()).await.unwrap();
                let result = run.result::<bool>().await;
                app.close().await.unwrap();
                result
            })
        })
    };
    barrier.wait();
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let held: bool = runtime.block_on(async {
        let second = build("second", None).open(&url).await.unwrap();
        let held = second.find("r").await.unwrap().result().await.unwrap();
        second.close().await.unwrap();
        held
    });
    assert!(held);
    barrier.wait();
    // It hears of the end that the other one has brought about.
    assert!(doomed.join().unwrap().unwrap());
    assert_eq!(world.all(), ["second", "token 2"]);
}

/// Dropping a handle cannot wait for a database, so closing does: who opens the memory next has little to
/// read.
#[tokio::test]
async fn indexes_of_memories_are_kept_when_it_is_closed() {
    let server = Server::shared();
    let url = server.url();
    let kept = "SELECT count(*) FROM helper WHERE name <> ''";
    for (documents, indexes) in [(100, 0), (600, 2)] {
        let app = builder().open(&url).await.unwrap();
        let memory = app.memory("life").await.unwrap();
        let new = (0..documents).map(|n| NewDocument::fact(format!("fact {n}")));
        memory.add_many(new.collect()).await.unwrap();
        assert_eq!(server.number(&url, kept), 0);
        app.close().await.unwrap();
        assert_eq!(server.number(&url, kept), indexes);
    }
}
