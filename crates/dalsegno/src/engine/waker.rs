//! The waker that a run's code is polled with, and what it tells about the code.
//!
//! Code that waits for something of its own (a task that it spawned, a channel, a time of the
//! runtime's) has left a clone of its waker there. Code that waits only for its run has not: those
//! clones are known. So it can be seen from outside whether the code may go on by itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use crate::run::Run;

/// Wakes the task that drives the run.
#[derive(Debug, Default)]
pub(super) struct CodeWaker(Mutex<Option<Waker>>);

impl CodeWaker {
    /// Whom to wake from now on.
    pub fn drives(&self, driver: &Waker) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(driver)) {
            *known = Some(driver.clone());
        }
    }

    /// Whether somebody beside the run keeps a clone. `handed_out` is the one the code was given.
    pub fn is_kept_elsewhere(self: &Arc<Self>, handed_out: &Waker, run: &Run) -> bool {
        let kept_by_run = run.state().kept(handed_out);
        // This one, and the one that was handed out.
        Arc::strong_count(self) > 2 + kept_by_run
    }
}

impl Wake for CodeWaker {
    fn wake(self: Arc<Self>) {
        let driver = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.clone()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}
