//! Ten thousand runs that wait cost next to nothing, and all can be answered and finish.
//!
//! This is the only test of its binary: the memory of its process is measured.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::TempDir;
use dalsegno::{BoxFuture, Builder, Ctx, Dalsegno, Error, Runtime, Tokio};
use dalsegno_store::{RunQuery, Status};

const RUNS: usize = 10_000;
const LIMIT_BYTES: u64 = 50 << 20;
const DAY: Duration = Duration::from_secs(86_400);

/// Tokio, with a clock that can be set forward.
#[derive(Debug)]
struct Ahead {
    tokio: Tokio,
    ahead_us: Arc<AtomicU64>,
}

impl Runtime for Ahead {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tokio.spawn(task);
    }

    fn now_us(&self) -> u64 {
        self.tokio.now_us() + self.ahead_us.load(Ordering::SeqCst)
    }

    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()> {
        let ahead_us = self.ahead_us.load(Ordering::SeqCst);
        self.tokio.sleep_until(us.saturating_sub(ahead_us))
    }

    fn random(&self) -> u64 {
        self.tokio.random()
    }
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Half of them wait for a person, half for a time.
async fn waits(ctx: Ctx, number: usize) -> dalsegno::Result<usize> {
    match number.is_multiple_of(2) {
        true => {
            let answer = ctx.approval("go").of(&number).await?;
            assert!(answer.is_approved());
        }
        false => ctx.sleep(DAY).await?,
    }
    Ok(number)
}

async fn count(app: &Dalsegno, status: Status) -> usize {
    let query = RunQuery {
        status: vec![status],
        ..RunQuery::default()
    };
    app.runs(&query).await.unwrap().len()
}

async fn until_all_are(app: &Dalsegno, status: Status) {
    while count(app, status).await < RUNS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Does something for each of many runs, 512 at a time.
async fn for_each<F, Fut>(app: &Dalsegno, runs: impl Iterator<Item = usize>, what: F)
where
    F: Fn(Dalsegno, usize) -> Fut,
    Fut: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut tasks = Vec::new();
    for number in runs {
        tasks.push(tokio::spawn(what(app.clone(), number)));
        if tasks.len() == 512 {
            for task in tasks.drain(..) {
                task.await.unwrap().unwrap();
            }
        }
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

fn open(dir: &Path, ahead_us: &Arc<AtomicU64>) -> BoxFuture<'static, Result<Dalsegno, Error>> {
    let runtime = Ahead {
        tokio: Tokio::current().unwrap(),
        ahead_us: Arc::clone(ahead_us),
    };
    let (clock, system) = (Arc::clone(ahead_us), Tokio::current().unwrap());
    let options = dalsegno_store::Options::new();
    let options = options.clock(move || system.now_us() + clock.load(Ordering::SeqCst));
    let builder = Builder::new().agent("waits", waits);
    let builder = builder.runtime(Arc::new(runtime)).store_options(options);
    let dir = dir.to_owned();
    Box::pin(async move { builder.open(dir).await })
}

/// Where a second process finds the runs of the first.
const FOUND: &str = "DALSEGNO_TEST_FOUND_IN";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_runs_wait_in_little_memory_and_all_finish() {
    let empty = resident_bytes();
    let check = |what: &str| {
        let above = resident_bytes().saturating_sub(empty);
        let mib = above as f64 / f64::from(1 << 20);
        println!("{RUNS} {what}: {mib:.1} MiB above an empty process");
        assert!(above < LIMIT_BYTES, "{what}: {mib:.1} MiB");
    };
    if let Some(dir) = std::env::var_os(FOUND) {
        return find_and_finish(Path::new(&dir), check).await;
    }
    let dir = TempDir::new("many");
    let app = open(dir.path(), &Arc::default()).await.unwrap();
    for_each(&app, 0..RUNS, |app, number| async move {
        let run = format!("r{number}");
        app.start("waits", &run, &number).await.map(drop)
    })
    .await;
    until_all_are(&app, Status::Checkpointed).await;
    check("started");
    app.close().await.unwrap();

    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("ten_thousand_runs_wait_in_little_memory_and_all_finish")
        .env(FOUND, dir.path())
        .status();
    assert!(again.unwrap().success());
}

/// A process that finds them, and in which they are answered.
async fn find_and_finish(dir: &Path, check: impl Fn(&str)) {
    let ahead_us: Arc<AtomicU64> = Arc::default();
    let app = open(dir, &ahead_us).await.unwrap();
    check("found");
    assert_eq!(
        count(&app, Status::Checkpointed).await,
        RUNS,
        "none was woken"
    );
    for_each(&app, (0..RUNS).step_by(2), |app, number| async move {
        app.approve(&format!("r{number}"), "go#1", "ann").await
    })
    .await;
    ahead_us.store(DAY.as_micros() as u64 + 1, Ordering::SeqCst);
    until_all_are(&app, Status::Completed).await;
    for number in [0, 1, 4999, 5000, 9999] {
        let handle = app.find(&format!("r{number}")).await.unwrap();
        assert_eq!(handle.result::<usize>().await.unwrap(), number);
    }
    app.close().await.unwrap();
}
