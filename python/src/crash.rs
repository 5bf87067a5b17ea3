//! A process that dies, for tests: when it does, on which disk, and a time that nobody waits for.
//!
//! | | on a disk in memory | in a folder |
//! |---|---|---|
//! | dies | its store never answers again | Python kills the process |
//! | is lost | what was not synced | nothing that was written |
//!
//! Invariant: nothing of a process that is dead touches the disk.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use dalsegno::testkit::{Ask, MortalStore, Schedule};
use dalsegno::{BoxFuture, Builder, Dalsegno, Error, Runtime, Tokio, testkit};
use dalsegno_simdisk::{LoseAll, SimDisk};
use dalsegno_store::{Options, RunQuery, Status};
use pyo3::prelude::*;
use serde_json::{Value, json};

const SEGMENT_BYTES: u64 = 256 << 10;

/// Where processes live and die, one after the other.
#[pyclass(frozen)]
pub struct Crash {
    /// `None`: in a folder.
    disk: Option<SimDisk>,
    schedule: Schedule,
    time: Arc<Time>,
}

#[pymethods]
impl Crash {
    #[new]
    fn new(in_memory: bool) -> Crash {
        Crash {
            disk: in_memory.then(|| SimDisk::new(1)),
            schedule: Schedule::default(),
            time: Arc::default(),
        }
    }

    /// A process starts. It dies at its nth moment from 0, or not at all.
    fn begin_life(&self, dies_at: Option<u64>) {
        self.schedule.begin_life(dies_at);
    }

    /// The process is gone, and what was not synced with it.
    fn end_life(&self, py: Python<'_>) {
        if let Some(disk) = &self.disk {
            py.detach(|| {
                disk.power_off_now();
                disk.reboot(&mut LoseAll);
            });
        }
    }

    /// Nothing touches the disk from now on.
    fn power_off(&self) {
        if let Some(disk) = &self.disk {
            disk.power_off_now();
        }
    }

    /// A moment passes. Whether the process is dead.
    fn moment(&self, name: String) -> bool {
        self.schedule.passes(|| name)
    }

    #[getter]
    pub fn is_dead(&self) -> bool {
        self.schedule.is_dead()
    }

    /// How many moments this process has lived through.
    #[getter]
    fn count(&self) -> u64 {
        self.schedule.count()
    }

    /// All moments of all lives.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.schedule.names()
    }

    /// Lets it be a time (microseconds since 1970), if it is earlier.
    fn skip_to(&self, us: u64) {
        self.time.skip_to(us);
    }
}

impl Crash {
    /// Opens the store, in a folder or on the disk.
    pub async fn open(
        builder: Builder,
        place: &str,
        parts: (Option<SimDisk>, Schedule, Arc<Time>),
    ) -> Result<Dalsegno, Error> {
        let (disk, schedule, time) = parts;
        let tokio = Tokio::current().ok_or(Error::NoRuntime)?;
        let runtime = Arc::new(Skipping { tokio, time });
        let clock = Arc::clone(&runtime);
        let mut options = Options::new()
            .segment_bytes(SEGMENT_BYTES)
            .clock(move || clock.now_us());
        if let Some(disk) = disk {
            options = options.fs(Arc::new(disk)).without_threads();
        }
        let store = options.open(Path::new(place))?;
        let store = MortalStore { store, schedule };
        let builder = builder.without_mailbox().session("test").runtime(runtime);
        builder.open_store(Arc::new(store)).await
    }

    pub fn parts(&self) -> (Option<SimDisk>, Schedule, Arc<Time>) {
        let time = Arc::clone(&self.time);
        (self.disk.clone(), self.schedule.clone(), time)
    }
}

/// What the runs that wait ask a person, as JSON.
pub async fn asks(app: Dalsegno) -> Result<Option<String>, Error> {
    let query = RunQuery {
        status: vec![Status::Checkpointed],
        ..RunQuery::default()
    };
    let mut all: Vec<Value> = Vec::new();
    for info in app.runs(&query).await? {
        let run = info.run.name();
        let journal = app.journal(run).await?;
        all.extend(
            testkit::asks(run, &journal)
                .into_iter()
                .map(|ask| match ask {
                    Ask::Approval {
                        run,
                        approval,
                        shown,
                    } => json!(["approval", run, approval, shown]),
                    Ask::Doubt { run, step, key } => json!(["doubt", run, step, key]),
                    Ask::Signal { run, name } => json!(["signal", run, name, null]),
                }),
        );
    }
    Ok(Some(json!(all).to_string()))
}

/// How far the time is ahead, and who sleeps.
#[derive(Debug, Default)]
pub struct Time {
    ahead_us: AtomicU64,
    next: AtomicU64,
    asleep: Mutex<HashMap<u64, Waker>>,
}

impl Time {
    fn asleep(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn skip_to(&self, us: u64) {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_us = since.map_or(0, |since| since.as_micros() as u64);
        let ahead_us = us.saturating_sub(now_us);
        self.ahead_us.fetch_max(ahead_us, Ordering::SeqCst);
        let asleep: Vec<Waker> = self.asleep().drain().map(|(_, waker)| waker).collect();
        asleep.into_iter().for_each(Waker::wake);
    }
}

/// Tokio's runtime, with a time that can be moved on.
#[derive(Clone, Debug)]
struct Skipping {
    tokio: Tokio,
    time: Arc<Time>,
}

impl Runtime for Skipping {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tokio.spawn(task);
    }

    fn now_us(&self) -> u64 {
        self.tokio.now_us() + self.time.ahead_us.load(Ordering::SeqCst)
    }

    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()> {
        let ahead_us = self.time.ahead_us.load(Ordering::SeqCst);
        Box::pin(Sleep {
            number: self.time.next.fetch_add(1, Ordering::SeqCst),
            until_us: us,
            really: self.tokio.sleep_until(us.saturating_sub(ahead_us)),
            runtime: self.clone(),
        })
    }

    fn random(&self) -> u64 {
        self.tokio.random()
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.tokio.blocking(work)
    }
}

struct Sleep {
    number: u64,
    until_us: u64,
    really: BoxFuture<'static, ()>,
    runtime: Skipping,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (number, waker) = (self.number, context.waker().clone());
        // First: the time may be moved on from here on.
        self.runtime.time.asleep().insert(number, waker);
        if self.runtime.now_us() >= self.until_us {
            return Poll::Ready(());
        }
        self.really.as_mut().poll(context)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.runtime.time.asleep().remove(&self.number);
    }
}
