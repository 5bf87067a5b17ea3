//! A wait as a future, and a thread that sleeps until one is ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use crate::commit::{Poll, Shared, Wait};
use crate::error::SyncError;
use crate::sync::{Arc, thread};

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Sleeps in this thread until the wait is over.
pub(crate) fn block_on(shared: &Shared, mut wait: Wait) -> Result<(), SyncError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match shared.poll(&mut wait, &waker) {
            Poll::Done(result) => return result,
            Poll::Wait => thread::park(),
            Poll::YourTurn => take_turn(shared),
        }
    }
}

fn take_turn(shared: &Shared) {
    // The answer, also if it is an error, comes with the next poll.
    drop(shared.use_turn(Shared::write_next_group));
}

/// Resolves when the log is durable up to an LSN. Made by [`crate::Log::durable`].
///
/// Belongs to no runtime. Dropping it is fine at any time and changes nothing about the records.
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct Durable {
    shared: Arc<Shared>,
    wait: Result<Wait, SyncError>,
}

impl Durable {
    pub(crate) fn new(shared: Arc<Shared>, wait: Result<Wait, SyncError>) -> Durable {
        Durable { shared, wait }
    }
}

impl Future for Durable {
    type Output = Result<(), SyncError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> std::task::Poll<Self::Output> {
        let Durable { shared, wait } = &mut *self;
        let wait = match wait {
            Ok(wait) => wait,
            Err(error) => return std::task::Poll::Ready(Err(error.clone())),
        };
        loop {
            match shared.poll(wait, cx.waker()) {
                Poll::Done(result) => return std::task::Poll::Ready(result),
                Poll::Wait => return std::task::Poll::Pending,
                Poll::YourTurn => take_turn(shared),
            }
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Ok(wait) = &mut self.wait {
            self.shared.forget(wait);
        }
    }
}
