//! The process that executes runs: which are in memory, which wait, and who is told of what.
//!
//! ```text
//! start, signal, approve … ─► recorded ─► launch ─► drive (engine/drive.rs)
//! dispatcher: timers due, letters   ─► recorded ─► launch            (engine/dispatch.rs)
//! drive: lease ─► journal ─► the agent's code ─► ended, waiting or in attention
//! ```
//!
//! If other processes execute runs of the same store, `launch` does not drive: it lets the dispatcher
//! claim (`engine/claims.rs`), and what was claimed is driven.
//!
//! Invariants: a run is driven by at most one task; what comes for a run while it is being driven
//! reaches it, or it is driven again; a run that waits has no task and nothing in memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dalsegno_store::{Lease, LocalStore, Store, StreamId};

use crate::agent::Agent;
use crate::bell::Bell;
use crate::ctx::Host;
use crate::ledger::Ledger;
use crate::recovery::Recoveries;
use crate::resource::Validators;
use crate::run::{Run, Settings, Stopped};
use crate::runtime::Runtime;
use crate::syncer::Syncer;

mod builder;
mod claims;
mod control;
mod dispatch;
mod drive;
mod ending;
mod handle;
mod notes;
mod resume;
mod start;
mod waker;

pub use builder::Builder;
use claims::Claims;
pub use handle::{Dalsegno, RunHandle};

pub(crate) struct Engine {
    pub store: Arc<dyn Store>,
    /// To be closed, if this process has opened it.
    pub opened: Opened,
    pub runtime: Arc<dyn Runtime>,
    pub settings: Settings,
    pub syncer: Arc<Syncer>,
    pub ledger: Arc<Ledger>,
    #[cfg(feature = "memory")]
    pub memories: Arc<crate::memories::Memories>,
    pub agents: HashMap<String, Arc<dyn Agent>>,
    /// This opening of the store.
    pub session: String,
    /// When that was, in microseconds since 1970.
    pub opened_us: u64,
    pub limits: EngineLimits,
    /// Which runs this process takes, if others take runs of the same store.
    pub claims: Option<Claims>,
    /// How resources of the user's own are looked at.
    pub validators: Validators,
    /// What was found when the store was opened.
    pub recovered: Recoveries,
    hub: Mutex<Hub>,
    /// Rung when the dispatcher has something to look at.
    dispatch: Bell,
    me: Weak<Engine>,
}

/// How many, how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineLimits {
    /// Runs in memory at a time; others wait their turn.
    pub running: usize,
    /// How often other processes' letters are looked for; never if `None`.
    pub mailbox_every: Option<Duration>,
    /// A run that waits for less than this stays in memory.
    pub stay: Duration,
    /// How long a lease is held without being renewed.
    pub lease: Duration,
}

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits {
            running: 1024,
            mailbox_every: Some(Duration::from_millis(50)),
            stay: Duration::from_secs(1),
            lease: Duration::from_secs(30),
        }
    }
}

impl EngineLimits {
    pub fn lease_us(&self) -> u64 {
        self.lease.as_micros() as u64
    }
}

/// Who is where.
#[derive(Default)]
struct Hub {
    /// Runs that have a task.
    resident: HashMap<StreamId, Resident>,
    /// Runs that wait for a place, each once.
    queue: VecDeque<StreamId>,
    queued: HashSet<StreamId>,
    /// Who waits for a run to end.
    ends: HashMap<StreamId, Arc<Bell>>,
    /// Why a run that could go on does not.
    not_moving: HashMap<StreamId, String>,
    /// Runs whose end is recorded, and not yet known to survive a crash: nobody is told of it.
    ending: HashSet<StreamId>,
    /// Something may have become claimable.
    claim_now: bool,
    /// The store is being asked for runs, and may have given some that are not resident yet.
    claiming: bool,
    /// The next time at which the dispatcher looks at timers anyway.
    looks_at_us: u64,
    closing: bool,
}

/// A run that has a task.
#[derive(Default)]
struct Resident {
    run: Option<Arc<Run>>,
    /// What it was claimed with, and when that was asked for, until its task has it.
    claimed: Option<(Lease, u64)>,
    /// Of which agent, if that is counted.
    agent: Option<String>,
    /// Something has come since it was loaded.
    again: bool,
}

/// A store that is closed with the engine.
pub(crate) enum Opened {
    /// By somebody else, who closes it.
    Elsewhere,
    Local(LocalStore),
    #[cfg(feature = "postgres")]
    Postgres(dalsegno_postgres::PostgresStore),
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Engine {
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has come for a run: it is told if it is in memory, and driven if it is not.
    pub fn launch(&self, run: &StreamId) {
        let mut hub = self.hub();
        if hub.closing {
            return;
        }
        if let Some(resident) = hub.resident.get_mut(run) {
            resident.again = true;
            if let Some(run) = &resident.run {
                run.arrived();
            }
            return;
        }
        hub.not_moving.remove(run);
        self.ledger.forget(run);
        if self.claims.is_some() {
            // Its event has made it claimable, by whoever has room for it.
            hub.claim_now = true;
            drop(hub);
            self.dispatch.ring();
            return;
        }
        if hub.resident.len() >= self.limits.running {
            if hub.queued.insert(run.clone()) {
                hub.queue.push_back(run.clone());
            }
            return;
        }
        hub.resident.insert(run.clone(), Resident::default());
        drop(hub);
        self.spawn_drive(run.clone());
    }

    fn spawn_drive(&self, run: StreamId) {
        let Some(me) = self.me.upgrade() else { return };
        let runtime = Arc::clone(&self.runtime);
        runtime.spawn(Box::pin(async move { me.drive(run).await }));
    }

    /// A run's task is about to end. Whether it has to go on after all.
    fn leave(&self, run: &StreamId) -> bool {
        let mut hub = self.hub();
        if let Some(resident) = hub.resident.get_mut(run) {
            resident.run = None;
            if resident.again && self.claims.is_some() {
                // It was given back, and can be claimed again.
                hub.claim_now = true;
            } else if resident.again && !hub.closing {
                if let Some(resident) = hub.resident.get_mut(run) {
                    resident.again = false;
                }
                // Something has come since: that may no longer be so.
                hub.not_moving.remove(run);
                return true;
            }
        }
        hub.resident.remove(run);
        self.ledger.forget(run);
        let mut next = None;
        while hub.resident.len() < self.limits.running && !hub.closing {
            next = hub.queue.pop_front();
            if let Some(run) = &next {
                hub.queued.remove(run);
            }
            match &next {
                Some(waiting) if hub.resident.contains_key(waiting) => {}
                Some(waiting) => {
                    hub.resident.insert(waiting.clone(), Resident::default());
                    break;
                }
                None => break,
            }
        }
        // Whoever is waited for at the end is gone; or there is room to claim another one.
        let look = hub.resident.is_empty() || self.claims.is_some();
        drop(hub);
        if let Some(next) = next {
            self.spawn_drive(next);
        }
        if look {
            self.dispatch.ring();
        }
        false
    }

    /// Why a run that could go on does not.
    fn does_not_move(&self, run: &StreamId, why: String) {
        self.hub().not_moving.insert(run.clone(), why);
    }

    /// The end of a run is being recorded, or is no longer.
    fn is_ending(&self, run: &StreamId, ending: bool) {
        let mut hub = self.hub();
        match ending {
            true => drop(hub.ending.insert(run.clone())),
            false => drop(hub.ending.remove(run)),
        }
    }

    /// The bell that rings when a run ends or needs a person.
    fn end_bell(&self, run: &StreamId) -> Arc<Bell> {
        let mut hub = self.hub();
        Arc::clone(hub.ends.entry(run.clone()).or_default())
    }

    /// Nobody waits for a run any more who has this bell.
    fn forget_bell(&self, run: &StreamId, bell: Arc<Bell>) {
        let mut hub = self.hub();
        drop(bell);
        if hub
            .ends
            .get(run)
            .is_some_and(|bell| Arc::strong_count(bell) == 1)
        {
            hub.ends.remove(run);
        }
    }

    fn ring_end(&self, run: &StreamId) {
        let bell = self.hub().ends.remove(run);
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// No more runs are started, and those in memory stop at their next step.
    fn stop_all(&self) {
        let mut hub = self.hub();
        hub.closing = true;
        hub.queue.clear();
        hub.queued.clear();
        let runs: Vec<_> = hub
            .resident
            .values()
            .filter_map(|r| r.run.clone())
            .collect();
        let bells: Vec<_> = hub.ends.drain().map(|(_, bell)| bell).collect();
        drop(hub);
        for run in runs {
            run.stop(Stopped::Closing);
        }
        bells.iter().for_each(|bell| bell.ring());
        self.recovered.complete();
        self.dispatch.ring();
    }

    pub fn is_closing(&self) -> bool {
        self.hub().closing
    }
}

impl Host for Engine {
    fn timer_set(&self, due_us: u64) {
        let sooner = due_us < self.hub().looks_at_us;
        if sooner {
            self.dispatch.ring();
        }
    }

    fn recorded_for(&self, run: &StreamId) {
        self.launch(run);
    }

    fn is_loop(&self, agent: &str) -> Option<bool> {
        self.agents.get(agent).map(|agent| agent.is_loop())
    }

    fn validators(&self) -> Validators {
        self.validators.clone()
    }
}
