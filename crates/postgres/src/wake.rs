//! Hearing of what others did: notifications, and looking from time to time behind them.
//!
//! A notification inside a transaction makes all commits wait for each other, so none is sent there:
//! one task says at most every few milliseconds that something has happened which concerns others.
//! What a worker does to its own runs is not said; who follows such a run sees it when looking.
//!
//! Invariant: whatever is missed is seen by looking, which compares what the database calls its
//! snapshot: it changes with every commit of anybody.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::AsyncMessage;

use crate::error::Trouble;
use crate::inner::{Inner, jittered};

/// At least so long passes between two notifications.
const BETWEEN: Duration = Duration::from_millis(5);
/// After so long a server that cannot do something is asked again.
const CANNOT: Duration = Duration::from_secs(60);
/// Who opens a store looks by itself first, and has the server's attention for that.
const AFTER_OPENING: Duration = Duration::from_millis(25);
const SNAPSHOT: &str = "SELECT pg_current_snapshot()::text";

fn channel(inner: &Inner) -> String {
    format!("dalsegno_{}", inner.pool.address.schema)
}

/// Says to others that something has happened, until the store is closed.
pub(crate) async fn notify(inner: Arc<Inner>) {
    loop {
        inner.news.notified().await;
        if inner.memory().closed {
            return;
        }
        notify_once(&inner).await;
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Says it once. Who does not hear it looks.
pub(crate) async fn notify_once(inner: &Inner) {
    let sql = format!("NOTIFY {}, '{}'", channel(inner), inner.handle);
    if let Ok(lent) = inner.pool.lend().await
        && lent.conn.say(&sql).await.is_ok()
    {
        inner.pool.give_back(lent);
    }
}

/// Hears what others say, and connects again when the connection is lost.
pub(crate) async fn listen(inner: Arc<Inner>) {
    let mut backoff = inner.backoff();
    tokio::time::sleep(AFTER_OPENING).await;
    while !inner.memory().closed {
        match listen_once(&inner).await {
            Ok(()) => {
                backoff = inner.backoff();
                // Something may have been missed.
                inner.others_changed();
            }
            // A relative of PostgreSQL that cannot do it will not learn it soon.
            Err(Trouble::Store(_)) => tokio::time::sleep(jittered(CANNOT)).await,
            Err(_) => {}
        }
        backoff.wait_for_ever().await;
    }
}

async fn listen_once(inner: &Arc<Inner>) -> Result<(), Trouble> {
    let (client, mut connection) = inner.pool.address.connect().await?;
    let sql = format!("LISTEN {}", channel(inner));
    let said = Arc::clone(inner);
    let driver = tokio::spawn(async move {
        loop {
            let message = std::future::poll_fn(|context| connection.poll_message(context)).await;
            match message {
                Some(Ok(AsyncMessage::Notification(n))) if n.payload() != said.handle => {
                    said.others_changed();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    client.batch_execute(&sql).await?;
    inner.listens.store(true, Ordering::Relaxed);
    // Ends when the connection does.
    drop(driver.await);
    drop(client);
    inner.listens.store(false, Ordering::Relaxed);
    Ok(())
}

/// Looks from time to time, if somebody waits.
pub(crate) async fn poll(inner: Arc<Inner>) {
    let mut seen: Option<String> = None;
    loop {
        tokio::time::sleep(jittered(inner.options.poll_every)).await;
        if inner.memory().closed {
            return;
        }
        if inner.waiting.load(Ordering::Relaxed) == 0 {
            seen = None;
            continue;
        }
        let Ok(mut lent) = inner.pool.lend().await else {
            continue;
        };
        let now = match lent.conn.query(SNAPSHOT, &[]).await {
            Ok(rows) => rows.first().map(|row| row.get::<_, String>(0)),
            // A relative of PostgreSQL may not know it: then every look is a change.
            Err(_) => None,
        };
        inner.pool.give_back(lent);
        if now.is_none() || now != seen {
            seen = now;
            inner.others_changed();
        }
    }
}
