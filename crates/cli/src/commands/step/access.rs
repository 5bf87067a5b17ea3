//! How a script gets at the store: for a moment at a time in a folder, all the time in a database, and
//! not at all if a worker has started it.
//!
//! | | folder | database | worker |
//! |---|---|---|---|
//! | the store | opened as its owner, let go of while a command runs | open as long as the step | the worker's |
//! | one process a run | the run's lock, of the kernel | the run's lease, kept by a heartbeat | the worker's lease; it lets one step through at a time |
//! | a process that was killed | is seen at once | is seen when its lease ends | is seen at once |
//!
//! Invariant: a lease is kept by the handle that took it, until what was done under it is recorded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dalsegno::script::{self, Ask, Ended, KEEP_EVERY};
use dalsegno_store::{NewPayload, Options, Store, StoreError};

use super::of_worker;
use super::turn::{Asks, By, Right, Turn};
use crate::address::Place;
use crate::args::Global;
use crate::exit::{Error, Result};
use crate::open;
use crate::output::text::shown;

/// Segments of a store that a step makes: small, because each opening reads the newest.
const SEGMENT_BYTES: u64 = 1 << 20;
/// How often it is looked again whether a run is free.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The store of a script.
#[derive(Debug)]
pub struct Access<'a> {
    global: &'a Global,
    wait: Duration,
    /// The store in a database.
    database: Option<open::Opened>,
    /// The socket of the worker that has the run.
    worker: Option<PathBuf>,
}

impl<'a> Access<'a> {
    /// To the worker that has a run, if it has started this script; else to the store.
    ///
    /// # Errors
    /// As [`Access::new`].
    pub fn of_run(global: &'a Global, run: &str, wait: Duration) -> Result<Access<'a>> {
        match of_worker::socket_of(global, run) {
            None => Access::new(global, true, wait),
            worker => Ok(Access {
                global,
                wait,
                database: None,
                worker,
            }),
        }
    }

    /// To a store that is there, or is made if `create` says so. A folder is waited for so long.
    ///
    /// # Errors
    /// A database cannot be opened.
    pub fn new(global: &'a Global, create: bool, wait: Duration) -> Result<Access<'a>> {
        let database = match (Place::of(&global.store), create) {
            (Place::Folder(_), _) => None,
            (Place::Database(_), true) => Some(open::writer_or_new(&global.store)?),
            (Place::Database(_), false) => Some(open::writer(global)?),
        };
        Ok(Access {
            global,
            wait,
            database,
            worker: None,
        })
    }

    /// Whether a worker has the run.
    pub fn is_worker(&self) -> bool {
        self.worker.is_some()
    }

    /// Begins a step. `prepare` is called when it can be, right before it is.
    ///
    /// # Errors
    /// As [`Access::with_run`]; or the worker is gone.
    pub async fn ask<T>(&self, ask: &Ask<'_>, mut prepare: impl FnMut() -> T) -> Result<(Turn, T)> {
        if let Some(socket) = &self.worker {
            let line = of_worker::reach(socket, ask.run).await?;
            let prepared = prepare();
            return Ok((of_worker::ask(line, ask, self.wait).await?, prepared));
        }
        self.with_run(ask.run, async |store| {
            let prepared = prepare();
            Ok((script::ask(store, ask).await?.into(), prepared))
        })
        .await
    }

    /// Records what a step came to; what was recorded instead, if it is too large.
    ///
    /// # Errors
    /// It is not recorded.
    pub async fn finish(
        &self,
        right: Right,
        ended: Ended,
        output: Option<NewPayload>,
    ) -> Result<Option<String>> {
        match right.by {
            By::Worker(line, _) => of_worker::finish(line, &right.step, ended, output).await,
            By::Store(permit) => {
                let too_large = match &ended {
                    Ended::Failed(failure) if output.is_none() => Some(failure.clone()),
                    _ => None,
                };
                let refused = self
                    .with(false, async |store| {
                        permit.finish(store, ended, output).await
                    })
                    .await?;
                Ok(refused.or(too_large).map(|failure| failure.to_string()))
            }
        }
    }

    /// Records that a step in doubt happened.
    ///
    /// # Errors
    /// As [`Access::finish`].
    pub async fn happened(&self, right: Right, output: Option<NewPayload>) -> Result<()> {
        match right.by {
            By::Worker(line, _) => of_worker::happened(line, &right.step, output).await,
            By::Store(permit) => {
                self.with(false, async |store| permit.happened(store, output).await)
                    .await
            }
        }
    }

    /// Records that it did not; the right to do it again, if that is wanted.
    ///
    /// # Errors
    /// As [`Access::finish`].
    pub async fn did_not_happen(&self, right: Right, again: bool) -> Result<Option<Right>> {
        match right.by {
            By::Worker(line, _) => of_worker::did_not_happen(line, &right.step, again).await,
            By::Store(permit) => {
                let permit = self
                    .with(false, async |store| {
                        permit.did_not_happen(store, again).await
                    })
                    .await?;
                Ok(permit.map(Right::from))
            }
        }
    }

    /// Hands it to a person.
    ///
    /// # Errors
    /// As [`Access::finish`].
    pub async fn escalate(&self, right: Right, why: &str) -> Result<Asks> {
        match right.by {
            By::Worker(line, _) => of_worker::escalate(line, &right.step, why).await,
            By::Store(permit) => {
                let attention = self
                    .with(false, async |store| permit.escalate(store, why).await)
                    .await?;
                Ok(Asks::from(&attention))
            }
        }
    }

    /// Does something with the store; a folder is opened for it as its owner.
    ///
    /// # Errors
    /// It cannot be opened, used or let go of.
    pub async fn with<T, F>(&self, create: bool, work: F) -> Result<T>
    where
        F: AsyncFnOnce(&Arc<dyn Store>) -> Result<T, dalsegno::Error>,
    {
        if let Some(opened) = &self.database {
            return Ok(work(&opened.store()).await?);
        }
        let options = Options::new()
            .without_threads()
            .segment_bytes(SEGMENT_BYTES);
        let local = open::owner_within(self.global, options, create, self.wait).await?;
        let store: Arc<dyn Store> = Arc::new(local.clone());
        let done = work(&store).await;
        let handed_over = local.hand_over();
        let done = done?;
        handed_over?;
        Ok(done)
    }

    /// The same with a run that another process may hold in a database, which is waited for.
    ///
    /// # Errors
    /// As [`Access::with`]; or it was held all the time, by whom is said.
    pub async fn with_run<T, F>(&self, run: &str, mut work: F) -> Result<T>
    where
        F: AsyncFnMut(&Arc<dyn Store>) -> Result<T, dalsegno::Error>,
    {
        let Some(opened) = &self.database else {
            return self.with(false, async |store| work(store).await).await;
        };
        let until = Instant::now() + self.wait;
        loop {
            let lease = match work(&opened.store()).await {
                Err(dalsegno::Error::Store(StoreError::Held { lease, .. })) => lease,
                other => return Ok(other?),
            };
            if Instant::now() >= until {
                let (run, by, wait) = (shown(run), shown(&lease.owner), self.wait);
                let held = format!("run {run:?} is being worked on by {by}");
                return Err(Error::failed(held).hint(format!(
                    "it was waited for {wait:?}: wait longer with --wait, or stop it; one that was \
                     killed lets go when its lease ends"
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for something to be done by who has the right to, and keeps the run meanwhile.
    ///
    /// # Errors
    /// The worker that has it is gone: nothing is done any more.
    pub async fn keeping<T>(&self, right: &mut Right, done: impl Future<Output = T>) -> Result<T> {
        let permit = match &mut right.by {
            By::Worker(line, group) => {
                return of_worker::keeping(line, *group, &right.step, done).await;
            }
            By::Store(permit) => permit,
        };
        let Some(opened) = &self.database else {
            return Ok(done.await);
        };
        let store = opened.store();
        let mut done = std::pin::pin!(done);
        let mut beat = tokio::time::interval(KEEP_EVERY);
        loop {
            tokio::select! {
                done = &mut done => return Ok(done),
                // Whoever has taken it over is told of when what was done is to be recorded.
                _ = beat.tick() => drop(permit.keep(&store).await),
            }
        }
    }
}
