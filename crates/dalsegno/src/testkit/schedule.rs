//! At which moments a process dies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the moments at which a process could die, and says at which it does.
#[derive(Clone, Debug, Default)]
pub struct Schedule(Arc<Mutex<Moments>>);

#[derive(Debug, Default)]
struct Moments {
    /// How many have passed since the process was started.
    count: u64,
    /// How many have passed in all lives.
    total: u64,
    /// At which moment of its life this process dies.
    dies_at: Option<u64>,
    dead: bool,
    names: Vec<String>,
}

impl Schedule {
    /// A process is started. It dies at its nth moment from 0, or not at all.
    pub fn begin_life(&self, dies_at: Option<u64>) {
        let mut moments = self.moments();
        moments.count = 0;
        moments.dead = false;
        moments.dies_at = dies_at;
        let will = dies_at.map_or("does not die".into(), |at| format!("dies at moment {at}"));
        moments
            .names
            .push(format!("— a process starts, and {will}"));
    }

    fn moments(&self) -> MutexGuard<'_, Moments> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment passes. The process may die here: then this never returns.
    pub async fn moment(&self, name: impl FnOnce() -> String) {
        if self.passes(name) {
            std::future::pending().await
        }
    }

    /// A moment passes. Whether the process is dead now.
    pub fn passes(&self, name: impl FnOnce() -> String) -> bool {
        let mut moments = self.moments();
        if moments.dead {
            return true;
        }
        let at = moments.count;
        moments.count += 1;
        moments.total += 1;
        moments.dead = moments.dies_at == Some(at);
        let mark = if moments.dead { "✗" } else { " " };
        let name = name();
        moments.names.push(format!("{mark}{at:>4} {name}"));
        moments.dead
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.moments().dead
    }

    /// How many moments this process has lived through.
    pub fn count(&self) -> u64 {
        self.moments().count
    }

    /// All moments of all lives, in words.
    pub fn names(&self) -> Vec<String> {
        self.moments().names.clone()
    }
}
