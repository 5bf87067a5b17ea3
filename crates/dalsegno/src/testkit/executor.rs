//! A runtime whose time jumps and which decides the order in which tasks run.
//!
//! Invariant: the same seed and the same tasks give the same order, whatever machine this is.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::runtime::{BoxFuture, Runtime};

/// Where virtual time begins: some day in 2026.
const BEGIN_US: u64 = 1_780_000_000_000_000;

/// Tasks in one thread, with virtual time.
#[derive(Clone)]
pub struct SimRuntime(Arc<Mutex<State>>, Arc<Mutex<VecDeque<u64>>>);

struct State {
    now_us: u64,
    random: u64,
    /// Tasks run in random order, not in the order in which they were woken.
    shuffled: bool,
    tasks: BTreeMap<u64, BoxFuture<'static, ()>>,
    next_task: u64,
    sleepers: BTreeMap<(u64, u64), Waker>,
    next_sleeper: u64,
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimRuntime")
    }
}

struct TaskWaker(u64, Arc<Mutex<VecDeque<u64>>>);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.contains(&self.0) {
            ready.push_back(self.0);
        }
    }
}

impl SimRuntime {
    /// Tasks run in the order in which they are woken.
    pub fn new(seed: u64) -> SimRuntime {
        let state = State {
            now_us: BEGIN_US,
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            shuffled: false,
            tasks: BTreeMap::new(),
            next_task: 0,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        };
        SimRuntime(Arc::new(Mutex::new(state)), Arc::default())
    }

    /// Tasks that are ready run in a random order.
    #[must_use]
    pub fn shuffled(self) -> SimRuntime {
        self.state().shuffled = true;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves time on to a moment; not back.
    pub fn set_now_us(&self, now_us: u64) {
        let mut state = self.state();
        state.now_us = state.now_us.max(now_us);
    }

    /// Runs tasks until none is ready, or `stop` says so.
    pub fn run(&self, stop: &dyn Fn() -> bool) {
        while !stop() {
            let Some(id) = self.next_ready() else { return };
            let Some(mut task) = self.state().tasks.remove(&id) else {
                continue;
            };
            let waker = Waker::from(Arc::new(TaskWaker(id, Arc::clone(&self.1))));
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                self.state().tasks.insert(id, task);
            }
        }
    }

    fn next_ready(&self) -> Option<u64> {
        let shuffled = self.state().shuffled;
        let mut ready = self.ready();
        let count = ready.len();
        if !shuffled || count < 2 {
            return ready.pop_front();
        }
        drop(ready);
        let at = (self.random() % count as u64) as usize;
        self.ready().remove(at)
    }

    /// Lets time jump to the next sleeper; whether there was one.
    pub fn advance(&self) -> bool {
        let mut state = self.state();
        let Some(((due_us, _), waker)) = state.sleepers.pop_first() else {
            return false;
        };
        state.now_us = state.now_us.max(due_us);
        drop(state);
        waker.wake();
        true
    }

    /// Runs tasks until this one is done, without letting time pass; `None` if `stop` said so, or
    /// if it waits for something that does not come.
    pub fn complete<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
        stop: &dyn Fn() -> bool,
    ) -> Option<T> {
        let result = Arc::new(Mutex::new(None));
        let to = Arc::clone(&result);
        self.spawn(Box::pin(async move {
            let done = task.await;
            *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }));
        let taken = Arc::clone(&result);
        let is_done = move || {
            let done = taken.lock().unwrap_or_else(PoisonError::into_inner);
            done.is_some()
        };
        self.run(&|| stop() || is_done());
        let mut done = result.lock().unwrap_or_else(PoisonError::into_inner);
        done.take()
    }

    /// Drops all tasks: the process is dead.
    pub fn kill(&self) {
        // They may wake others while they are dropped, and leave work to new ones.
        loop {
            let tasks = std::mem::take(&mut self.state().tasks);
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        self.ready().clear();
        self.state().sleepers.clear();
    }
}

impl Runtime for SimRuntime {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut state = self.state();
        let id = state.next_task;
        state.next_task += 1;
        state.tasks.insert(id, task);
        drop(state);
        self.ready().push_back(id);
    }

    fn now_us(&self) -> u64 {
        self.state().now_us
    }

    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            runtime: self.clone(),
            due_us: us,
            key: None,
        })
    }

    fn random(&self) -> u64 {
        // splitmix64
        let mut state = self.state();
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

struct Sleep {
    runtime: SimRuntime,
    due_us: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let due_us = self.due_us;
        let runtime = self.runtime.clone();
        let mut state = runtime.state();
        if let Some(key) = self.key.take() {
            state.sleepers.remove(&key);
        }
        if state.now_us >= due_us {
            return Poll::Ready(());
        }
        let key = (due_us, state.next_sleeper);
        state.next_sleeper += 1;
        state.sleepers.insert(key, context.waker().clone());
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.runtime.state().sleepers.remove(&key);
            drop(waker);
        }
    }
}
