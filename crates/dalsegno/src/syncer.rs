//! Holds the bound of [`Durability::Bounded`](crate::Durability): whatever was recorded is on disk
//! that much later at the latest.
//!
//! Invariant: when a step is finished and nobody has waited for it, its outcome is recorded and a
//! sync begins within half of the bound, which leaves the other half for the disk.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dalsegno_store::{Position, Store};

use crate::run::Run;
use crate::runtime::Runtime;

/// Syncs what nobody waits for.
#[derive(Debug)]
pub struct Syncer {
    /// `None`: everybody waits for what they record.
    bound: Option<Duration>,
    appended: AtomicU64,
    durable: AtomicU64,
    /// Runs with outcomes that are not recorded yet.
    late: Mutex<Vec<Weak<Run>>>,
    /// A task is on its way.
    pending: AtomicBool,
    parts: Option<(Arc<dyn Store>, Arc<dyn Runtime>)>,
    me: Weak<Syncer>,
}

impl Syncer {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        bound: Option<Duration>,
    ) -> Arc<Syncer> {
        Arc::new_cyclic(|me| Syncer {
            bound,
            appended: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            late: Mutex::default(),
            pending: AtomicBool::new(false),
            parts: bound.map(|_| (store, runtime)),
            me: me.clone(),
        })
    }

    /// Something was recorded, up to a position.
    pub(crate) fn appended(&self, position: Position) {
        self.appended.fetch_max(position, Ordering::SeqCst);
        self.sync_soon();
    }

    /// A run has an outcome that is not recorded yet. To be told once, until it is asked for it.
    pub(crate) fn late(&self, run: &Arc<Run>) {
        self.late_runs().push(Arc::downgrade(run));
        self.sync_soon();
    }

    fn late_runs(&self) -> MutexGuard<'_, Vec<Weak<Run>>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_soon(&self) {
        let Some(bound) = self.bound else { return };
        if self.pending.swap(true, Ordering::SeqCst) {
            return;
        }
        let Some((_, runtime)) = &self.parts else {
            return;
        };
        // The store is let go of when everybody else does.
        let me = self.me.clone();
        let at = runtime.now_us() + bound.as_micros() as u64 / 2;
        let sync = async move {
            if let Some(me) = me.upgrade() {
                me.sync().await;
            }
        };
        runtime.spawn_at(at, Box::pin(sync));
    }

    /// Somebody has waited for a position.
    pub(crate) fn durable(&self, position: Position) {
        self.durable.fetch_max(position, Ordering::SeqCst);
    }

    async fn sync(&self) {
        // What is recorded from here on gets a task of its own.
        self.pending.store(false, Ordering::SeqCst);
        let late = std::mem::take(&mut *self.late_runs());
        for run in late.iter().filter_map(Weak::upgrade) {
            run.record_what_nobody_waits_for().await;
        }
        let appended = self.appended.load(Ordering::SeqCst);
        if self.durable.load(Ordering::SeqCst) >= appended {
            return;
        }
        if let Some((store, _)) = &self.parts {
            // A store that fails says so to whoever uses it next.
            if store.durable(appended).await.is_ok() {
                self.durable(appended);
            }
        }
    }
}
