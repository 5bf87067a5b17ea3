//! A thread that starts tasks at their time, for a runtime whose threads may all be busy with what
//! its tasks do.
//!
//! A task that a worker's thread spawns or wakes may wait until that thread is free, and no other can
//! take it. What a thread of nobody's spawns, any worker takes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::BoxFuture;

/// How long the thread sleeps if there is nothing to do.
const LONGEST: Duration = Duration::from_secs(3600);

type Task = (Instant, BoxFuture<'static, ()>);

/// The thread, which begins with its first task and ends with the last clone of this.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Arc<Mutex<Option<Sender<Task>>>>);

impl Clock {
    /// Starts a task after some time. Gives it back if there are no threads.
    pub fn start_after(
        &self,
        runtime: &tokio::runtime::Handle,
        wait: Duration,
        task: BoxFuture<'static, ()>,
    ) -> Result<(), BoxFuture<'static, ()>> {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, tasks) = channel();
            let runtime = runtime.clone();
            let clock = std::thread::Builder::new().name("dalsegno-clock".into());
            if clock.spawn(move || run(&runtime, &tasks)).is_ok() {
                *thread = Some(sender);
            }
        }
        match &*thread {
            None => Err(task),
            Some(sender) => sender
                .send((Instant::now() + wait, task))
                .map_err(|unsent| unsent.0.1),
        }
    }
}

fn run(runtime: &tokio::runtime::Handle, tasks: &Receiver<Task>) {
    let mut waiting: Vec<Task> = Vec::new();
    loop {
        let now = Instant::now();
        for (_, task) in waiting.extract_if(.., |(due, _)| *due <= now) {
            drop(runtime.spawn(task));
        }
        let next = waiting.iter().map(|(due, _)| *due).min();
        let wait = next.map_or(LONGEST, |due| due.saturating_duration_since(now));
        match tasks.recv_timeout(wait) {
            Ok(task) => waiting.push(task),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
