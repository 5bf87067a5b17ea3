//! What the library needs of an async runtime: tasks and time.
//!
//! There are two: tokio, and the test kit's, whose time jumps and which decides the order in which
//! tasks run. Nothing else in the library names a runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod clock;
use clock::Clock;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tasks and time.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// Runs a task beside the others.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Microseconds since 1970.
    fn now_us(&self) -> u64;

    /// Waits until a time.
    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()>;

    /// A random number.
    fn random(&self) -> u64;

    /// Runs a task at a time, also if who asks keeps its thread busy until then.
    fn spawn_at(&self, us: u64, task: BoxFuture<'static, ()>) {
        let sleep = self.sleep_until(us);
        self.spawn(Box::pin(async move {
            sleep.await;
            task.await;
        }));
    }

    /// Does something that keeps its thread busy for long, as reading a large file does. Unless a
    /// runtime has a better place for it, that is here and now.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        work();
        Box::pin(std::future::ready(()))
    }
}

/// The tokio runtime that it was made in.
#[derive(Clone, Debug)]
pub struct Tokio {
    runtime: tokio::runtime::Handle,
    clock: Clock,
}

impl Tokio {
    /// The runtime that runs this code; `None` outside of one.
    pub fn current() -> Option<Tokio> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let clock = Clock::default();
        Some(Tokio { runtime, clock })
    }
}

impl Runtime for Tokio {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(self.runtime.spawn(task));
    }

    fn now_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A clock before 1970 is no reason to stop.
        since.map_or(0, |since| since.as_micros() as u64)
    }

    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()> {
        let wait = Duration::from_micros(us.saturating_sub(self.now_us()));
        Box::pin(tokio::time::sleep(wait))
    }

    fn spawn_at(&self, us: u64, task: BoxFuture<'static, ()>) {
        let wait = Duration::from_micros(us.saturating_sub(self.now_us()));
        if let Err(task) = self.clock.start_after(&self.runtime, wait, task) {
            drop(self.runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                task.await;
            }));
        }
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The standard library seeds each of these from the operating system. Good enough for
        // names and samples; nothing here is a secret.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        RandomState::new().hash_one((count, self.now_us()))
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let working = self.runtime.spawn_blocking(work);
        // Who wants its result sees that there is none if it panicked.
        Box::pin(async move { drop(working.await) })
    }
}
