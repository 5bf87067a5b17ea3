//! A wait as a future, and a thread that sleeps until one is ready.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::commit::{Poll, Shared, Wait};
use crate::error::SyncError;
use crate::sync::{Arc, thread, thread_local};

thread_local! {
    /// How long a future that is polled on this thread may keep it; `None` if not at all.
    static MAY_BLOCK: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Lets futures that are polled inside of `poll` keep this thread for a sync, if one is likely to take
/// no longer than `limit` and nobody else is about to make it.
///
/// For who has a thread to itself and waits for nothing else: it saves waking another thread and being
/// woken by it, which takes about as long as a quick disk does.
///
/// ```
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}, time::Duration};
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-park-{}", std::process::id()));
/// let log = dalsegno_log::Log::open(&dir)?;
/// let lsn = log.append(b"record")?;
/// let mut durable = pin!(log.durable(lsn));
/// let mut context = Context::from_waker(Waker::noop());
/// let polled = dalsegno_log::may_block(Duration::MAX, || durable.as_mut().poll(&mut context));
/// assert!(matches!(polled, Poll::Ready(Ok(()))));
/// # drop(log);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn may_block<T>(limit: Duration, poll: impl FnOnce() -> T) -> T {
    struct Before(Option<Duration>);
    impl Drop for Before {
        fn drop(&mut self) {
            MAY_BLOCK.with(|may_block| may_block.set(self.0));
        }
    }
    let _before = Before(MAY_BLOCK.with(|may_block| may_block.replace(Some(limit))));
    poll()
}

/// How long whoever is polled here may keep the thread.
pub(crate) fn may_block_for() -> Option<Duration> {
    MAY_BLOCK.with(Cell::get)
}

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
