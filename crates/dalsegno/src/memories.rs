//! The memories that this process has open, by name.
//!
//! Opening a memory reads its stream, so runs share what is open.
//!
//! Invariant: so many are open at most. One that is let go of stays open for who uses it, and is
//! opened again by who asks next.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dalsegno_memory::{Memory, MemoryError};
use dalsegno_store::Store;

/// So many are kept open: each has its indexes in memory.
const OPEN_LIMIT: usize = 64;

pub(crate) struct Memories {
    store: Arc<dyn Store>,
    /// The one that was asked for last is the last.
    open: Mutex<VecDeque<(String, Memory)>>,
}

impl fmt::Debug for Memories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} open memories", self.open().len())
    }
}

impl Memories {
    pub fn new(store: Arc<dyn Store>) -> Arc<Memories> {
        let open = Mutex::default();
        Arc::new(Memories { store, open })
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<(String, Memory)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A memory, which is opened if it is not.
    pub async fn get(&self, name: &str) -> Result<Memory, MemoryError> {
        if let Some(memory) = self.find(name) {
            return Ok(memory);
        }
        let opened = Memory::open(Arc::clone(&self.store), name).await?;
        // Somebody else may have opened it meanwhile: all use one.
        if let Some(memory) = self.find(name) {
            return Ok(memory);
        }
        let dropped = {
            let mut open = self.open();
            open.push_back((name.to_owned(), opened.clone()));
            (open.len() > OPEN_LIMIT).then(|| open.pop_front())
        };
        // Not under the lock: its indexes may be kept beside the store now.
        drop(dropped);
        Ok(opened)
    }

    fn find(&self, name: &str) -> Option<Memory> {
        let mut open = self.open();
        let place = open.iter().position(|(at, _)| at == name)?;
        let found = open.remove(place)?;
        let memory = found.1.clone();
        open.push_back(found);
        Some(memory)
    }

    /// Lets go of all of them: the store is about to be closed.
    pub fn let_go(&self) {
        let all = std::mem::take(&mut *self.open());
        drop(all);
    }
}
