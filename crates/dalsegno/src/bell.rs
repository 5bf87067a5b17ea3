//! A bell: tells any number of tasks that something has changed, on any runtime.
//!
//! Invariant: who looks at the count, then at the world, then waits for the count to change, misses
//! nothing that rang after it looked.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Rung>);

#[derive(Debug, Default)]
struct Rung {
    count: u64,
    wakers: Vec<Waker>,
}

impl Bell {
    pub fn ring(&self) {
        let mut rung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rung.count += 1;
        let wakers = std::mem::take(&mut rung.wakers);
        drop(rung);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How often it has rung.
    pub fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Waits until it has rung more often than this.
    pub fn after(&self, count: u64) -> After<'_> {
        After { bell: self, count }
    }
}

pub(crate) struct After<'a> {
    bell: &'a Bell,
    count: u64,
}

impl Future for After<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut rung = self.bell.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rung.count > self.count {
            return Poll::Ready(());
        }
        if !rung
            .wakers
            .iter()
            .any(|known| known.will_wake(context.waker()))
        {
            rung.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Waits for a bell or another thing, whichever is first. Whether it was the first.
pub(crate) async fn first_of(
    mut one: impl Future<Output = ()> + Unpin,
    mut other: impl Future<Output = ()> + Unpin,
) -> bool {
    std::future::poll_fn(|context| match Pin::new(&mut one).poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => Pin::new(&mut other).poll(context).map(|()| false),
    })
    .await
}
