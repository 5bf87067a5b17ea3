//! What the parts of an open store share.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dalsegno_store::{Hash, StoreError};
use tokio::sync::Notify;

use crate::error::Trouble;
use crate::memory::Memory;
use crate::options::PostgresOptions;
use crate::pool::{Conn, Lent, Pool};

/// A piece that was stored so long ago is stored again: retention removes what nothing refers to
/// only when it is far older.
const KNOWN_FOR: Duration = Duration::from_secs(30 * 60);
/// So many pieces are known at most.
const KNOWN_PIECES: usize = 100_000;
/// Between two tries, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Tries again and again what needs the database, as long as that is only not there. A macro,
/// because a function that takes such a piece of code cannot promise that it may change threads.
macro_rules! trying {
    ($inner:expr, $attempt:block) => {{
        let mut backoff = $inner.backoff();
        loop {
            $inner.check_open()?;
            let tried: Result<_, crate::error::Trouble> = async { $attempt }.await;
            match tried {
                Ok(value) => break Ok::<_, dalsegno_store::StoreError>(value),
                Err(trouble) => $inner.after(trouble, &mut backoff).await?,
            }
        }
    }};
}
pub(crate) use trying;

/// The connection over which what is queued is sent, by one at a time.
pub(crate) type Line = tokio::sync::Mutex<Option<Conn>>;

/// An open store.
#[derive(Debug)]
pub(crate) struct Inner {
    pub options: PostgresOptions,
    pub pool: Pool,
    /// The name of this handle among all that have the store open, and of its letters' sender.
    pub handle: String,
    memory: Mutex<Memory>,
    /// Something is committed, lost or free that somebody may wait for.
    pub moved: Notify,
    /// The position has changed.
    pub changed: Notify,
    line: Mutex<Arc<Line>>,
    /// The flusher has something to do.
    pub work: Notify,
    /// The notifier has something to say.
    pub news: Notify,
    /// How many wait for a change.
    pub waiting: AtomicUsize,
    /// Whether notifications are heard.
    pub listens: AtomicBool,
    letters: AtomicU64,
    /// When each was stored, by the clock that never goes back and by the one that does not stop
    /// while the machine sleeps.
    known: Mutex<HashMap<Hash, (Instant, u64)>>,
}

impl Inner {
    pub fn new(pool: Pool, options: PostgresOptions) -> Inner {
        Inner {
            options,
            pool,
            handle: format!("{:016x}", random()),
            memory: Mutex::default(),
            moved: Notify::new(),
            changed: Notify::new(),
            line: Mutex::default(),
            work: Notify::new(),
            news: Notify::new(),
            waiting: AtomicUsize::new(0),
            listens: AtomicBool::new(false),
            letters: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    /// What is kept in memory. Nobody waits for anything while it is locked.
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection over which what is queued is sent now.
    pub fn line(&self) -> Arc<Line> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&line)
    }

    /// From now on another one is used.
    pub fn change_line(&self) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    /// The number of this handle's next letter.
    pub fn next_letter(&self) -> u64 {
        self.letters.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Others have a reason to look.
    pub fn tell_others(&self) {
        self.news.notify_one();
    }

    /// How far the store is, one further: somebody else has changed it.
    pub fn others_changed(&self) {
        self.memory().next_position();
        self.changed.notify_waiters();
    }

    /// Fails if the store was closed.
    pub fn check_open(&self) -> Result<(), StoreError> {
        match self.memory().closed {
            true => Err(StoreError::Closed),
            false => Ok(()),
        }
    }

    /// Waits until something holds of what is committed, lost or free.
    pub async fn wait_until<T>(
        &self,
        holds: impl FnMut(&mut Memory) -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        self.wait_at(&self.moved, holds).await
    }

    /// Waits until something holds of the memory, which is looked at whenever it is told here.
    pub async fn wait_at<T>(
        &self,
        told: &Notify,
        mut holds: impl FnMut(&mut Memory) -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            let moved = told.notified();
            let mut moved = std::pin::pin!(moved);
            // From here on it is told, so that nothing is missed in between.
            moved.as_mut().enable();
            if let Some(value) = holds(&mut self.memory())? {
                return Ok(value);
            }
            moved.await;
        }
    }

    /// The rows that a statement finds.
    pub async fn rows(
        &self,
        sql: &'static str,
        params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        trying!(self, {
            let mut lent: Lent = self.pool.lend().await?;
            let rows = lent.conn.query(sql, params).await?;
            self.pool.give_back(lent);
            Ok(rows)
        })
    }

    /// Waits before something is tried again, if it is worth it.
    pub async fn after(&self, trouble: Trouble, backoff: &mut Backoff) -> Result<(), StoreError> {
        let why = match trouble {
            Trouble::Store(error) => return Err(error),
            _ if backoff.wait().await => return Ok(()),
            Trouble::Again => {
                "others write to the same streams all the time, or the server allows \
                               less time than it needs: try again"
                    .to_owned()
            }
            Trouble::Gone(why) => format!(
                "PostgreSQL at {} cannot be reached ({why}): start it, or check the network",
                self.pool.address.place
            ),
        };
        Err(StoreError::Backend(why))
    }

    /// For trying again.
    pub fn backoff(&self) -> Backoff {
        Backoff {
            until: Instant::now() + self.options.patience,
            wait: FIRST_WAIT,
        }
    }

    /// Whether a piece is stored, and everything below it, and will be for a while.
    pub fn is_known(&self, hash: &Hash) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, at_us)) = known.get(hash) else {
            return false;
        };
        let since_us = self.options.now_us().checked_sub(*at_us);
        let is_recent = |us: u64| Duration::from_micros(us) < KNOWN_FOR;
        at.elapsed() < KNOWN_FOR && since_us.is_some_and(is_recent)
    }

    /// Pieces were stored.
    pub fn know(&self, pieces: impl Iterator<Item = Hash>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > KNOWN_PIECES {
            known.clear();
        }
        let now = (Instant::now(), self.options.now_us());
        known.extend(pieces.map(|hash| (hash, now)));
    }

    /// Pieces are gone.
    pub fn know_no_more(&self, pieces: &[Hash]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for hash in pieces {
            known.remove(hash);
        }
    }
}

/// Waits longer each time, and not for ever.
#[derive(Debug)]
pub(crate) struct Backoff {
    until: Instant,
    wait: Duration,
}

impl Backoff {
    /// Waits; whether there is time for another try.
    pub async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(jittered(self.wait)).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        true
    }

    /// Waits, however long it has been.
    pub async fn wait_for_ever(&mut self) {
        tokio::time::sleep(jittered(self.wait)).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

/// Between half of a time and one and a half of it: so that not all come back at once.
pub(crate) fn jittered(time: Duration) -> Duration {
    time / 2 + time.mul_f64((random() % 1000) as f64 / 1000.0)
}

/// A number that nobody else has: the seeds of hash maps are random.
pub(crate) fn random() -> u64 {
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
