//! That a run is in the hands of this process, and until when that is certain.
//!
//! Invariant: the time is this machine's, and begins before the lease was asked for: while
//! [`Hold::is_certain`] says so, nobody else can have been given the run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Run, Stopped};
use crate::runtime::Runtime;

/// A run in the hands of this process.
pub(crate) struct Hold {
    /// The fencing token; 0 if the run is only read.
    pub token: u64,
    /// For how long it is asked for.
    for_us: u64,
    until_us: AtomicU64,
    runtime: Arc<dyn Runtime>,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({})", self.token)
    }
}

impl Hold {
    /// Under a token that was asked for at a time, for a time. Under 0 it is only read.
    pub fn new(token: u64, asked_us: u64, for_us: u64, runtime: &Arc<dyn Runtime>) -> Arc<Hold> {
        Arc::new(Hold {
            token,
            for_us,
            until_us: AtomicU64::new(asked_us.saturating_add(for_us)),
            runtime: Arc::clone(runtime),
        })
    }

    /// It was asked for again at a time, and given.
    pub fn renewed(&self, asked_us: u64) {
        let until_us = asked_us.saturating_add(self.for_us);
        self.until_us.fetch_max(until_us, Ordering::SeqCst);
    }

    /// Whether nobody else can have been given the run.
    pub fn is_certain(&self) -> bool {
        self.runtime.now_us() < self.until_us.load(Ordering::SeqCst)
    }
}

impl Run {
    /// Makes sure that the run is still in the hands of this process, right before something is done
    /// to the world: it may have been stopped for longer than its lease.
    pub(crate) async fn make_certain(&self) -> Result<(), Stopped> {
        if self.hold.is_certain() {
            return Ok(());
        }
        let (token, asked_us) = (self.hold.token, self.runtime.now_us());
        let renewed = self.store.renew_lease(&self.id, token, self.hold.for_us);
        match renewed.await {
            Ok(_) => {
                self.hold.renewed(asked_us);
                Ok(())
            }
            Err(e) => Err(self.stop(Stopped::Fenced(e.to_string()))),
        }
    }
}
