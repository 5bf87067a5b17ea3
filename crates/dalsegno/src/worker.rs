//! A process that executes runs of a shared store until it is told to stop.
//!
//! Invariant: who is told to stop claims nothing more, lets steps under way finish, writes every run
//! down and gives it back, so that another process goes on with it at once.

use std::future::Future;
use std::time::Duration;

use crate::engine::Dalsegno;
use crate::error::Error;

/// A process that executes runs until it is told to stop: on SIGTERM or SIGINT it hands over what it
/// has, and nothing waits for a lease to end.
///
/// ```no_run
/// # async fn example(store: std::sync::Arc<dyn dalsegno_store::Store>) -> Result<(), dalsegno::Error> {
/// use dalsegno::{Ctx, Dalsegno, Worker};
///
/// let app = Dalsegno::builder()
///     .agent("greet", |_: Ctx, name: String| async move { Ok(format!("hello {name}")) })
///     .max_running(64)
///     .open_store(store)
///     .await?;
/// Worker::new(app).run().await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it ends with `run`"]
pub struct Worker {
    app: Dalsegno,
    grace: Duration,
}

impl Worker {
    /// Executes runs of an open store. It has begun to.
    pub fn new(app: Dalsegno) -> Worker {
        Worker {
            app,
            grace: Duration::from_secs(30),
        }
    }

    /// How long steps under way may take when it is told to stop; half a minute if not said.
    pub fn grace(mut self, time: Duration) -> Worker {
        self.grace = time;
        self
    }

    /// Goes on until the process gets a SIGTERM or SIGINT.
    ///
    /// # Errors
    /// Signals cannot be waited for, or as [`Dalsegno::close`].
    pub async fn run(self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        // A runtime that was built without I/O panics here.
        let listen = |kind| match std::panic::catch_unwind(|| signal(kind)) {
            Ok(listening) => listening.map_err(|e| Error::Signals(e.to_string())),
            Err(_) => Err(Error::Signals(
                "the runtime was built without I/O, build it with enable_all".into(),
            )),
        };
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let told = std::future::poll_fn(|context| {
            let terminated = terminate.poll_recv(context).is_ready();
            match terminated || interrupt.poll_recv(context).is_ready() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        });
        self.run_until(told).await
    }

    /// Goes on until something is so.
    ///
    /// # Errors
    /// As [`Dalsegno::close`].
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        stop.await;
        self.app.close_within(self.grace).await
    }
}
