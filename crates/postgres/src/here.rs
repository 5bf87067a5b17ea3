//! Sending from where somebody waits: the answer comes straight to who waits for it, without the
//! flusher's thread in between.
//!
//! Who waits is code of somebody else. It may be dropped, and it may be kept and not be polled again
//! for long, as the loser of a `select` is; even by code that waits for the very same.
//!
//! Invariant: what is sent here is in the memory meanwhile. If it does not come to an end in time, the
//! flusher takes it away and sends it again over another connection: what has been written already is
//! known by its hash.

use std::sync::Arc;
use std::time::Duration;

use dalsegno_store::Position;
use tokio::sync::futures::Notified;

use crate::inner::Inner;
use crate::save::{Writing, numbers};

/// So long somebody who waits may take to send.
pub(crate) const SENDS_HERE: Duration = Duration::from_secs(1);

/// What is being sent here. If that does not come to an end, the flusher sends it again.
struct Sending<'a> {
    inner: &'a Inner,
    number: u64,
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.inner.leave_to_flusher(self.number);
    }
}

impl Inner {
    /// Sends what is queued from here, if nobody sends and there is a connection.
    pub async fn send_from_here(&self, position: Position) {
        let line = self.line();
        let Ok(line) = line.try_lock() else {
            return;
        };
        let Some(conn) = line.as_ref().filter(|conn| !conn.client.is_closed()) else {
            return;
        };
        let (batch, number) = {
            let mut memory = self.memory();
            // What has failed before is for the flusher, which has patience.
            let cannot = memory.closed || memory.refused.is_some() || !memory.orphans.is_empty();
            if cannot || !matches!(memory.is_durable(position), Ok(false)) {
                return;
            }
            let batch = Arc::new(memory.take_batch());
            if batch.saves.is_empty() {
                return;
            }
            let number = memory.send_here(&batch);
            (batch, number)
        };
        let sending = Sending {
            inner: self,
            number,
        };
        let writing = Writing::new(&batch.saves, &batch.pieces, self.options.now_us());
        let Some(statement) = conn.known(writing.sql()) else {
            return;
        };
        let params = writing.params();
        let taken_away = self.wait_until(|memory| {
            let is_here = memory.number_here() == Some(number);
            Ok((!is_here).then_some(()))
        });
        let answer = tokio::select! {
            biased;
            answer = conn.client.query(statement, &params) => answer,
            _ = taken_away => return,
        };
        drop(params);
        drop(writing);
        drop(batch);
        let Ok(rows) = answer else {
            return;
        };
        let sent = self.memory().take_here(number);
        let Some(mut batch) = sent else {
            return;
        };
        self.written(&mut batch, &numbers(&rows));
        if !batch.saves.is_empty() {
            // Who was overtaken is found out by the flusher.
            self.memory().orphans.push(batch);
            self.work.notify_one();
        }
        drop(sending);
        drop(line);
        self.moved.notify_waiters();
        if self.memory().is_urgent(self.options.queue_bytes / 2) {
            self.work.notify_one();
        }
    }

    /// What is sent here is for the flusher, if it is still this.
    fn leave_to_flusher(&self, number: u64) {
        let mut memory = self.memory();
        let Some(batch) = memory.take_here(number) else {
            return;
        };
        memory.orphans.push(batch);
        drop(memory);
        self.work.notify_one();
        self.moved.notify_waiters();
    }

    /// Takes away what somebody sends who was given enough time, with the connection.
    pub fn take_from_waiter(&self) {
        let number = self.memory().number_here();
        if let Some(number) = number {
            self.change_line();
            self.leave_to_flusher(number);
        }
    }

    /// Waits until there is something to do for the flusher.
    pub async fn wait_for_work(&self, work: Notified<'_>) {
        let number = self.memory().number_here();
        let Some(number) = number else {
            return work.await;
        };
        let waited = tokio::time::timeout(SENDS_HERE, work).await;
        if waited.is_err() && self.memory().number_here() == Some(number) {
            self.take_from_waiter();
        }
    }
}
