//! Following a stream: what is there, and then what comes.
//!
//! Invariant: every event from the first one on is given once and in order. It uses nothing but
//! the [`Store`] trait, so it is the same for all stores.

use crate::error::StoreError;
use crate::name::StreamId;
use crate::store::{Recorded, Store};

/// So many events are given at once, so that a long history is not in memory as a whole.
const AT_ONCE: usize = 256;

/// A place in a stream that moves on as events are added.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-fo-{}", std::process::id()));
/// use dalsegno_store::{Append, Follow, Kind, LocalStore, NewEvent, Store, StreamId};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let store = LocalStore::open(&dir)?;
/// let run = StreamId::run("order-42")?;
/// let mut follow = Follow::new(&store, run.clone(), 1);
/// let created = vec![NewEvent::new(Kind::RunCreated)];
/// store.append(vec![Append::to(run, created)]).await?;
/// for recorded in follow.next().await? {
///     println!("{}: {}", recorded.event.sequence, recorded.event.kind);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Follow<'a> {
    store: &'a dyn Store,
    stream: StreamId,
    next: u64,
}

impl<'a> Follow<'a> {
    /// Begins with the event that has this sequence; the stream need not exist yet.
    pub fn new(store: &'a dyn Store, stream: StreamId, from: u64) -> Follow<'a> {
        let next = from.max(1);
        Follow {
            store,
            stream,
            next,
        }
    }

    /// The next events, at least one; waits until there is one. Nothing is lost if the future is
    /// dropped before it is ready.
    ///
    /// An event is given when it is visible. Whether it would survive a crash already, only
    /// [`Store::durable`] says.
    ///
    /// # Errors
    /// The stream could not be read, or the store was closed.
    pub async fn next(&mut self) -> Result<Vec<Recorded>, StoreError> {
        loop {
            // First this, then the reading: what is added in between ends the wait.
            let position = self.store.position().await?;
            let head = self.store.head(&self.stream).await?;
            if head.is_some_and(|head| head.sequence >= self.next) {
                let events = self.store.read(&self.stream, self.next, AT_ONCE).await?;
                if let Some(last) = events.last() {
                    self.next = last.event.sequence.saturating_add(1);
                    return Ok(events);
                }
            }
            self.store.changed(position).await?;
        }
    }
}
