//! Work that is brought to its end, whatever the code does with what wanted it.
//!
//! A store over a network takes an append while nobody looks. Code may drop a step meanwhile, as
//! `select!` does, or hold it and look at something else. Neither must leave its run not knowing what
//! its record says, nor keep others waiting for what it has in its hands.
//!
//! Invariant: what is not done at once is done by a task of its own. A store that answers at once, as
//! one in a folder does, costs no task. A panic is that of who waits: else it would wait for ever.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::ctx::CatchPanic;
use crate::runtime::{BoxFuture, Runtime};

pub(crate) struct Unbroken<T: Send + 'static> {
    runtime: Arc<dyn Runtime>,
    /// What has not been looked at yet.
    work: Option<BoxFuture<'static, T>>,
    /// Made when a task does it: most of the time it is done at once.
    told: Option<Arc<Mutex<Told<T>>>>,
}

/// What the task says to who waits for it.
struct Told<T> {
    result: Option<Result<T, String>>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> Unbroken<T> {
    pub fn new(
        runtime: &Arc<dyn Runtime>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Unbroken<T> {
        Unbroken {
            runtime: Arc::clone(runtime),
            work: Some(Box::pin(work)),
            told: None,
        }
    }

    fn hand_over(&mut self, work: BoxFuture<'static, T>) {
        let told = Arc::new(Mutex::new(Told {
            result: None,
            waker: None,
        }));
        self.told = Some(Arc::clone(&told));
        self.runtime.spawn(Box::pin(async move {
            let result = CatchPanic::new(work).await;
            let waker = {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.result = Some(result);
                told.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }));
    }
}

impl<T: Send + 'static> Future for Unbroken<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(mut work) = self.work.take() {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(result);
            }
            self.hand_over(work);
        }
        let Some(told) = &self.told else {
            // It was done when it was first looked at, and nobody looks again.
            return Poll::Pending;
        };
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        match told.result.take() {
            Some(Ok(result)) => Poll::Ready(result),
            Some(Err(panic)) => {
                drop(told);
                std::panic::resume_unwind(Box::new(panic))
            }
            None => {
                told.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for Unbroken<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.hand_over(work);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;
    use crate::testkit::SimRuntime;

    #[test]
    fn who_waits_panics_with_the_task() {
        let sim = SimRuntime::new(1);
        let runtime: Arc<dyn Runtime> = Arc::new(sim.clone());
        let mut is_later = false;
        let work = std::future::poll_fn(move |_| match std::mem::replace(&mut is_later, true) {
            true => panic!("the store is broken"),
            false => Poll::<()>::Pending,
        });
        let waiting = CatchPanic::new(Unbroken::new(&runtime, work));
        let waited = sim.complete(waiting, &|| false);
        assert_eq!(waited, Some(Err("the store is broken".to_owned())));
    }
}
