//! How a script gets at the store: for a moment at a time in a folder, all the time in a database.
//!
//! | | folder | database |
//! |---|---|---|
//! | the store | opened as its owner, let go of while a command runs | open as long as the step |
//! | one process a run | the run's lock, of the kernel | the run's lease, kept by a heartbeat |
//! | a process that was killed | is seen at once | is seen when its lease ends |
//!
//! Invariant: a lease is kept by the handle that took it, until what was done under it is recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dalsegno::script::{KEEP_EVERY, Permit};
use dalsegno_store::{Options, Store, StoreError};

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
}

impl<'a> Access<'a> {
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
        })
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

    /// Waits for something to be done under a permit, and keeps the run meanwhile.
    pub async fn keeping<T>(&self, permit: &Permit, done: impl Future<Output = T>) -> T {
        let Some(opened) = &self.database else {
            return done.await;
        };
        let store = opened.store();
        let mut done = std::pin::pin!(done);
        let mut beat = tokio::time::interval(KEEP_EVERY);
        loop {
            tokio::select! {
                done = &mut done => return done,
                // Whoever has taken it over is told of when what was done is to be recorded.
                _ = beat.tick() => drop(permit.keep(&store).await),
            }
        }
    }
}
