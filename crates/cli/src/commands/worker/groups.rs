//! The process groups of commands: each is ended as a whole, and none outlives the worker.
//!
//! ```text
//! live ─ its command has ended ─► what it has left behind is killed
//!   └─── the run is let go of ──► leaving: a moment, SIGTERM, a moment, SIGKILL
//! ```
//!
//! Invariant: a group is in the list from its start until all of it was killed or has ended.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::task::JoinSet;

/// A command that was asked to end is killed after so long.
const KILL_AFTER: Duration = Duration::from_secs(2);

/// How often it is looked whether all of a group has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// All groups of a worker.
#[derive(Debug, Default)]
pub struct Groups {
    live: Mutex<HashSet<u32>>,
    leaving: Mutex<JoinSet<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to a group; one that has ended needs none.
fn send(group: u32, signal: Signal) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ended = kill_process_group(group, signal);
    }
}

/// Whether any process of a group is there. Its command may have ended before others.
fn is_there(group: u32) -> bool {
    let group = i32::try_from(group).ok().and_then(Pid::from_raw);
    group.is_some_and(|group| test_kill_process_group(group).is_ok())
}

impl Groups {
    /// A group was started.
    pub fn started(&self, group: u32) {
        lock(&self.live).insert(group);
    }

    /// Its command has ended: what that has left behind ends, too.
    pub fn ended(&self, group: u32) {
        send(group, Signal::KILL);
        lock(&self.live).remove(&group);
    }

    /// Ends a group whose run is let go of, after a moment. What is done `beside` that ends with it.
    pub fn leave(
        self: &Arc<Self>,
        group: u32,
        mut child: Child,
        moment: Duration,
        beside: impl Future<Output = Infallible> + Send + 'static,
    ) {
        let groups = Arc::clone(self);
        let ending = async move {
            if tokio::time::timeout(moment, child.wait()).await.is_err() {
                send(group, Signal::TERM);
                // Who does not end in time is killed.
                let all = async {
                    drop(child.wait().await);
                    while is_there(group) {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                };
                drop(tokio::time::timeout(KILL_AFTER, all).await);
            }
            groups.ended(group);
            drop(child.wait().await);
        };
        lock(&self.leaving).spawn(async move {
            tokio::select! {
                () = ending => {}
                never = beside => match never {},
            }
        });
    }

    /// Kills all groups that are there.
    pub fn kill_all(&self) {
        for group in lock(&self.live).drain() {
            send(group, Signal::KILL);
        }
    }

    /// How many are there.
    pub fn count(&self) -> usize {
        lock(&self.live).len()
    }

    /// Waits for those that are leaving.
    pub async fn all_left(&self) {
        loop {
            let mut leaving = std::mem::take(&mut *lock(&self.leaving));
            if leaving.is_empty() {
                return;
            }
            while leaving.join_next().await.is_some() {}
        }
    }
}
