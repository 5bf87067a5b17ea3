//! Looking at what a run depends on is bounded, and holds nobody up.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod holding;
mod lives;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::TempDir;
use dalsegno::{BoxFuture, Resource, Runtime, Tokio};
use holding::{changed_while_waiting, holder, result, write};
use lives::life;

#[test]
fn what_is_too_large_to_be_looked_at_is_refused_before_it_is_read() {
    let (dir, files) = (TempDir::new("res-large"), TempDir::new("res-large-files"));
    let path = files.path().join("image");
    write(&path, "");
    let sparse = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // It takes no room on the disk, and hours to read.
    sparse.set_len(1 << 42).unwrap();
    let folder = files.path().to_owned();
    life(async {
        for (number, held) in [Resource::file(&path), Resource::folder(&folder)]
            .into_iter()
            .enumerate()
        {
            let app = holder(move || vec![held.clone()]);
            let app = app.open(dir.path()).await.unwrap();
            let run = app.start("holder", &number.to_string(), &()).await;
            let refused = run.unwrap().result::<u64>().await.unwrap_err();
            assert!(refused.to_string().contains("has more than"), "{refused}");
            app.close().await.unwrap();
        }
        let long = "x".repeat(5000);
        let app = holder(move || vec![Resource::url(&long)]);
        let app = app.open(dir.path()).await.unwrap();
        let run = app.start("holder", "long", &()).await.unwrap();
        let refused = run.result::<u64>().await.unwrap_err();
        assert!(refused.to_string().contains("the limit is"), "{refused}");
        app.close().await.unwrap();
    });
}

/// Tokio, and how often it was given something that blocks.
#[derive(Debug)]
struct Counting(Tokio, Arc<AtomicU64>);

impl Runtime for Counting {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
    fn now_us(&self) -> u64 {
        self.0.now_us()
    }
    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()> {
        self.0.sleep_until(us)
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.blocking(work)
    }
}

#[test]
fn files_are_read_where_that_holds_nobody_up() {
    let (dir, files) = (TempDir::new("res-aside"), TempDir::new("res-aside-files"));
    let path = files.path().join("a");
    write(&path, "one");
    let aside = Arc::new(AtomicU64::new(0));
    life(async {
        let runtime = Tokio::current().unwrap();
        let runtime = Arc::new(Counting(runtime, Arc::clone(&aside)));
        let app = holder(move || vec![Resource::file(&path)]).runtime(runtime);
        let app = app.stay_in_memory(Duration::ZERO);
        let app = app.open(dir.path()).await.unwrap();
        changed_while_waiting(&app, || {}).await;
        assert_eq!(result(&app).await.unwrap(), 7);
        app.close().await.unwrap();
    });
    // When it was noted, and before the run went on.
    assert_eq!(aside.load(Ordering::SeqCst), 2);
}
