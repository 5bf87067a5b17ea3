//! The memories that this process has open, by name.
//!
//! Opening a memory reads its stream, so runs share what is open. And they take turns in writing: a
//! run says what its write came to in the same append, so it must know the version that it writes to.
//!
//! Invariants: a memory is opened once, however many ask at the same time. So many are open at most:
//! one that is let go of stays open for who uses it, and is opened again by who asks next.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dalsegno_memory::{Memory, MemoryError};
use dalsegno_store::Store;
use tokio::sync::OnceCell;

/// So many are kept open: each has its indexes in memory.
const OPEN_LIMIT: usize = 64;

pub(crate) struct Memories {
    store: Arc<dyn Store>,
    /// The one that was asked for last is the last.
    open: Mutex<VecDeque<(String, Shared)>>,
}

/// What those share who use a memory.
#[derive(Clone, Default)]
struct Shared {
    memory: Arc<OnceCell<Memory>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Who has it writes; the others of this process wait, in the order in which they came.
pub(crate) type Turn = tokio::sync::OwnedMutexGuard<()>;

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

    fn open(&self) -> MutexGuard<'_, VecDeque<(String, Shared)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A memory, which is opened if it is not. Others wait for who opens it: it must not be code that
    /// may stop looking.
    pub async fn get(&self, name: &str) -> Result<Memory, MemoryError> {
        let shared = self.shared(name);
        let opening = || Memory::open(Arc::clone(&self.store), name);
        shared.memory.get_or_try_init(opening).await.cloned()
    }

    /// Waits for the turn to write to a memory. The same is to be said of who has it.
    pub async fn turn(&self, name: &str) -> Turn {
        self.shared(name).turn.lock_owned().await
    }

    fn shared(&self, name: &str) -> Shared {
        let mut open = self.open();
        let place = open.iter().position(|(at, _)| at == name);
        let found = place.and_then(|place| open.remove(place));
        let (name, shared) = found.unwrap_or_else(|| (name.to_owned(), Shared::default()));
        open.push_back((name, shared.clone()));
        let dropped = (open.len() > OPEN_LIMIT).then(|| open.pop_front());
        drop(open);
        // Not under the lock: its indexes may be kept beside the store now.
        drop(dropped);
        shared
    }

    /// Lets go of all of them: the store is about to be closed. Their indexes are kept if that is worth
    /// it; a store of this process alone takes them when they are dropped.
    pub async fn let_go(&self) {
        let all = std::mem::take(&mut *self.open());
        let open = all.iter().filter_map(|(_, shared)| shared.memory.get());
        for memory in open.filter(|_| self.store.is_shared()) {
            // A database that takes none now takes the others no better.
            if memory.keep_if_due().await.is_err() {
                break;
            }
        }
        drop(all);
    }
}
