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
        // The driver may be polled on another thread before this returns, and counts the clones.
        drop(self);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts the clones when it is woken, as a driver on another thread may.
    struct Counts(Weak<CodeWaker>, AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.strong_count(), Ordering::SeqCst);
        }
    }

    #[test]
    fn who_is_woken_does_not_find_the_clone_that_woke_it() {
        let code_waker: Arc<CodeWaker> = Arc::default();
        let driver = Arc::new(Counts(Arc::downgrade(&code_waker), AtomicUsize::new(0)));
        code_waker.drives(&Waker::from(Arc::clone(&driver)));
        Waker::from(Arc::clone(&code_waker)).wake();
        assert_eq!(driver.1.load(Ordering::SeqCst), 1);
    }
}
