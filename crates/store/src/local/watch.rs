//! Waiting for a store to change.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::lock;

/// How far a store is, and who waits for it to get further.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    position: u64,
    closed: bool,
    waiting: Vec<Waker>,
}

impl Watch {
    pub fn new(position: u64) -> Watch {
        let watch = Watch::default();
        lock(&watch.0).position = position;
        watch
    }

    /// The store is this far now.
    pub fn reached(&self, position: u64) {
        let waiting = {
            let mut watched = lock(&self.0);
            watched.position = watched.position.max(position);
            std::mem::take(&mut watched.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Nothing will change any more.
    pub fn close(&self) {
        lock(&self.0).closed = true;
        self.reached(0);
    }

    pub fn has_watchers(&self) -> bool {
        !lock(&self.0).waiting.is_empty()
    }

    /// Ready when the store is further than `after`, or closed: then with `None`.
    pub fn beyond(&self, after: u64) -> Beyond {
        Beyond {
            watch: self.clone(),
            after,
        }
    }
}

/// See [`Watch::beyond`].
#[derive(Debug)]
pub(crate) struct Beyond {
    watch: Watch,
    after: u64,
}

impl Future for Beyond {
    type Output = Option<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        let mut watched = lock(&self.watch.0);
        if watched.position > self.after {
            return Poll::Ready(Some(watched.position));
        }
        if watched.closed {
            return Poll::Ready(None);
        }
        let waker = context.waker();
        if !watched.waiting.iter().any(|other| other.will_wake(waker)) {
            watched.waiting.push(waker.clone());
        }
        Poll::Pending
    }
}
