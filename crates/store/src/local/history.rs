//! The events of all streams, in the order in which they happened: for who follows a whole store.

use super::disk::Records;
use super::indexes::decode;
use super::record::{self, Record};
use super::{Inner, LocalStore, lock};
use crate::error::StoreError;
use crate::event::Event;
use crate::store::Position;

impl LocalStore {
    /// At most `limit` events of any stream that stand behind a position and are on disk, each with its
    /// own position; fewer only at the end. Runs that were retired are left out.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-ea-{}", std::process::id()));
    /// use dalsegno_store::{Append, Kind, LocalStore, NewEvent, Store, StreamId};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let store = LocalStore::open(&dir)?;
    /// let before = store.position().await?;
    /// for name in ["b", "a"] {
    ///     let created = vec![NewEvent::new(Kind::RunCreated)];
    ///     let done = store.append(vec![Append::to(StreamId::run(name)?, created)]).await?;
    ///     store.durable(done.position).await?;
    /// }
    /// let events = store.events_after(before, 10)?;
    /// let names: Vec<_> = events.iter().map(|(_, event)| event.stream.name()).collect();
    /// assert_eq!(names, ["b", "a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The log could not be read.
    pub fn events_after(
        &self,
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Position, Event)>, StoreError> {
        self.inner
            .looking_again(|| self.inner.events_after(after, limit))
    }
}

impl Inner {
    fn events_after(
        &self,
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Position, Event)>, StoreError> {
        self.refresh()?;
        let (last, retiring) = {
            let core = lock(&self.core);
            (core.applied, core.state.retiring.clone())
        };
        let mut found = Vec::new();
        if after >= last {
            return Ok(found);
        }
        let start = after.saturating_add(1).max(self.disk.first_lsn());
        let mut reader = self.disk.read_from(start)?;
        while found.len() < limit {
            let Some(read) = reader.next_record()? else {
                break;
            };
            let lsn = read.lsn;
            if lsn > last {
                break;
            }
            let Record::Event(bytes) = Record::read(lsn, read.payload)? else {
                continue;
            };
            if !retiring.is_empty() && retiring.contains(&record::peek(lsn, bytes)?.stream) {
                continue;
            }
            found.push((lsn, decode(lsn, bytes)?));
        }
        Ok(found)
    }
}
