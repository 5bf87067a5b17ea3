//! The flusher: sends what is queued for runs that this handle holds, many runs in one statement.
//!
//! It sends when somebody waits for it to be durable, when much is queued, or after a few
//! milliseconds; while one statement commits, the next one gathers. Who waits while nobody sends does
//! the flusher's work at once (`here.rs`): each change of threads is a good part of what a commit takes.
//!
//! Invariants: nothing counts as durable before its statement is committed. A stream that the
//! statement did not find where it was thought to be was either written by the same statement before,
//! whose answer was lost: then its last event has our hash; or somebody else has written it: then
//! this handle has lost it, for good, and the other streams are not disturbed.

use std::collections::HashSet;
use std::sync::Arc;

use dalsegno_store::{Position, StoreError};

use crate::error::Trouble;
use crate::here::SENDS_HERE;
use crate::inner::Inner;
use crate::memory::Batch;
use crate::pool::Conn;
use crate::save::{SAVES, StreamSave, Writing, numbers};

const LOOK: &str = "SELECT s.token, e.hash FROM stream s
     LEFT JOIN event e ON e.stream = s.no AND e.sequence = $2 WHERE s.no = $1";

/// Runs until the store is closed and everything is sent.
pub(crate) async fn flush(inner: Arc<Inner>) {
    loop {
        let queued = inner.work.notified();
        let asked = {
            let mut memory = inner.memory();
            let unsent = memory.is_unsent();
            if memory.closed && !unsent {
                return;
            }
            memory.flusher_waits = unsent;
            (unsent, memory.is_urgent(inner.options.queue_bytes / 2))
        };
        match asked {
            (false, _) => {
                inner.wait_for_work(queued).await;
                continue;
            }
            (true, true) => {}
            // More may come; who needs it sooner says so.
            (true, false) => {
                if !waits_in_vain(&inner).await {
                    continue;
                }
            }
        }
        let line = inner.line();
        let Ok(mut line) = tokio::time::timeout(SENDS_HERE, line.lock()).await else {
            inner.take_from_waiter();
            continue;
        };
        let orphans = std::mem::take(&mut inner.memory().orphans);
        let any = !orphans.is_empty();
        for batch in orphans {
            inner.send_batch(batch, true, &mut line).await;
        }
        let batch = inner.memory().take_batch();
        if !batch.saves.is_empty() {
            inner.send_batch(batch, false, &mut line).await;
        } else if !any && inner.memory().is_unsent() {
            drop(line);
            inner.memory().flusher_waits = false;
            // A transaction has them, and says when it is done.
            queued.await;
            continue;
        }
        inner.moved.notify_waiters();
    }
}

/// Waits as long as may be waited; whether nobody has asked for anything meanwhile.
async fn waits_in_vain(inner: &Inner) -> bool {
    let deadline = tokio::time::Instant::now() + inner.options.flush_after;
    loop {
        let queued = inner.work.notified();
        if tokio::time::timeout_at(deadline, queued).await.is_err() {
            return true;
        }
        if inner.memory().is_urgent(inner.options.queue_bytes / 2) {
            return false;
        }
    }
}

impl Inner {
    /// Sends a batch, again and again until the database has answered for each of its streams.
    async fn send_batch(&self, mut batch: Batch, mut in_doubt: bool, conn: &mut Option<Conn>) {
        let mut backoff = self.backoff();
        // From the second try on, a stream may have been written by the first.
        while !batch.saves.is_empty() {
            match self.try_send(&mut batch, conn, in_doubt).await {
                Ok(()) => self.memory().refused = None,
                Err(Trouble::Again) => {
                    in_doubt = true;
                    backoff.wait_for_ever().await;
                }
                Err(Trouble::Gone(_)) => {
                    *conn = None;
                    in_doubt = true;
                    backoff.wait_for_ever().await;
                }
                Err(Trouble::Store(error)) => {
                    // The disk of the server is full, or the like: nothing is lost, and it is tried
                    // again. Who waits is told.
                    self.memory().refused = Some(error.to_string());
                    *conn = None;
                    in_doubt = true;
                    backoff.wait_for_ever().await;
                }
            }
            self.moved.notify_waiters();
        }
    }

    /// Connects before there is something to send: who takes a run is about to write to it.
    pub async fn be_ready_to_send(&self) {
        let line = self.line();
        if let Ok(mut line) = line.try_lock()
            && line.is_none()
        {
            // If it fails, it is tried again when it is needed.
            *line = self.open_line().await.ok();
        }
    }

    async fn open_line(&self) -> Result<Conn, Trouble> {
        let mut opened = Conn::open(&self.pool.address).await?;
        // Who sends from elsewhere uses what is prepared.
        for sql in SAVES {
            opened.statement(sql).await?;
        }
        Ok(opened)
    }

    /// Sends a batch once. What is answered for leaves it.
    async fn try_send(
        &self,
        batch: &mut Batch,
        conn: &mut Option<Conn>,
        in_doubt: bool,
    ) -> Result<(), Trouble> {
        let connected = match conn.as_mut().filter(|conn| !conn.client.is_closed()) {
            Some(connected) => connected,
            None => conn.insert(self.open_line().await?),
        };
        let writing = Writing::new(&batch.saves, &batch.pieces, self.options.now_us());
        let rows = connected.query(writing.sql(), &writing.params()).await?;
        drop(writing);
        self.written(batch, &numbers(&rows));
        while let Some(save) = batch.saves.last() {
            let outcome = look(connected, save, in_doubt).await?;
            let positions = batch.positions.remove(&save.no).unwrap_or_default();
            let mut memory = self.memory();
            match outcome {
                Outcome::Written => memory.sent(save, &positions),
                Outcome::Lost(current) => {
                    memory.lose(&save.stream, save.token, &positions, current);
                }
            }
            drop(memory);
            batch.saves.pop();
        }
        Ok(())
    }

    /// A statement has written these streams of a batch: they leave it.
    pub fn written(&self, batch: &mut Batch, moved: &HashSet<i64>) {
        self.know(batch.pieces.iter().map(|piece| piece.hash));
        let mut memory = self.memory();
        batch.saves.retain(|save| {
            let done = moved.contains(&save.no);
            if done {
                let positions = batch.positions.remove(&save.no).unwrap_or_default();
                memory.sent(save, &positions);
            }
            !done
        });
    }

    /// Waits until everything up to a position is committed.
    pub async fn durable(&self, position: Position) -> Result<(), StoreError> {
        self.send_from_here(position).await;
        self.wait_until(|memory| {
            if memory.is_durable(position)? {
                return Ok(Some(()));
            }
            if memory.closed {
                return Err(StoreError::Closed);
            }
            if let Some(why) = &memory.refused {
                return Err(StoreError::Backend(why.clone()));
            }
            if memory.wanted < position {
                memory.wanted = position;
                self.work.notify_one();
            }
            Ok(None)
        })
        .await
    }

    /// Waits until what was queued so far is in the database, or is lost: for who reads there.
    pub async fn flushed(&self) -> Result<(), StoreError> {
        let position = {
            let memory = self.memory();
            if memory.closed {
                return Err(StoreError::Closed);
            }
            if memory.pending.is_empty() {
                return Ok(());
            }
            memory.position
        };
        match self.durable(position).await {
            // It is not there, and that is what is read.
            Err(StoreError::Fenced { .. }) | Ok(()) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

enum Outcome {
    Written,
    /// Under a newer token, or at another place.
    Lost(u64),
}

/// What became of a stream that was not where it was thought to be.
async fn look(conn: &mut Conn, save: &StreamSave, in_doubt: bool) -> Result<Outcome, Trouble> {
    let Some((no, sequence, hash)) = save.last() else {
        return Ok(Outcome::Written);
    };
    let rows = conn.query(LOOK, &[&no, &sequence]).await?;
    let Some(row) = rows.first() else {
        return Ok(Outcome::Lost(save.token));
    };
    let found: Option<Vec<u8>> = row.get(1);
    if in_doubt && found.is_some_and(|found| found == hash.as_bytes()) {
        return Ok(Outcome::Written);
    }
    Ok(Outcome::Lost(row.get::<_, i64>(0) as u64))
}
