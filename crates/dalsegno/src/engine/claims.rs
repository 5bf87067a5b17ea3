//! Many processes on one store: which runs this one takes, and for how long.
//!
//! A shared store knows when each run may go on ([`Store::claim`](dalsegno_store::Store::claim)): when
//! it is new, when something has come for it, when its next timer is due, and when its worker has not
//! been heard of for the time of a lease. A process takes as many as it has room for.
//!
//! Invariants: nothing is driven that was not claimed, and only while its lease is renewed. Timers
//! are fired by who holds the run, so that each is fired once. A process that has no room leaves runs
//! to others. One that closes begins no claim, and waits for the answer to the one under way: what
//! was given to it would be nobody's until its lease ends.

use std::collections::BTreeMap;
use std::time::Duration;

use dalsegno_store::{Append, Claim, Lease, StoreError, StreamId};

use super::{Engine, Resident};
use crate::record;

/// Claimed at once at most, so that others that start at the same time get some.
const AT_ONCE: usize = 16;
/// How often it is looked for runs that may go on, if nobody tells of any.
const EVERY: Duration = Duration::from_millis(250);
/// The same while the store does not answer.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

/// A run that does not know its last event has read it so much later.
const SOON: Duration = Duration::from_millis(2);

/// Which runs this process takes.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Only from these queues; from all if empty.
    pub queues: Vec<String>,
    /// How many runs of an agent may be in memory at a time, if that is limited.
    pub limits: BTreeMap<String, usize>,
}

/// A claim is under way, until this is dropped, however that comes.
struct Claiming<'a>(&'a Engine);

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        let closing = {
            let mut hub = self.0.hub();
            hub.claiming = false;
            hub.closing
        };
        if closing {
            // Who closes waits for this.
            self.0.dispatch.ring();
        }
    }
}

impl Engine {
    /// Claims what there is room for, unless it is closing; when to look again.
    pub(super) async fn claim(&self, claims: &Claims, now_us: u64) -> u64 {
        {
            let mut hub = self.hub();
            if hub.closing {
                return u64::MAX;
            }
            hub.claiming = true;
        }
        let _claiming = Claiming(self);
        self.ask_for_runs(claims, now_us).await
    }

    async fn ask_for_runs(&self, claims: &Claims, now_us: u64) -> u64 {
        // A little apart from other processes, that all have heard the same.
        let jitter_us = self.runtime.random() % (EVERY.as_micros() as u64 / 4);
        let again_us = now_us + EVERY.as_micros() as u64 + jitter_us;
        self.hub().claim_now = false;
        let (mut room, wanted) = self.room(claims);
        for (agents, limit) in wanted {
            let limit = limit.min(room).min(AT_ONCE);
            if limit == 0 || agents.is_empty() || self.is_closing() {
                continue;
            }
            let claim = Claim {
                owner: self.session.clone(),
                for_us: self.limits.lease_us(),
                limit,
                agents,
                queues: claims.queues.clone(),
            };
            let asked_us = self.runtime.now_us();
            let Ok(taken) = self.store.claim(&claim).await else {
                return now_us + AFTER_TROUBLE.as_micros() as u64;
            };
            room -= taken.len();
            if taken.len() == limit && room > 0 {
                // There may be more.
                self.hub().claim_now = true;
                self.dispatch.ring();
            }
            let agent = (claim.agents.len() == 1).then(|| claim.agents[0].clone());
            for (run, lease) in taken {
                self.drive_claimed(run, (lease, asked_us), agent.clone());
            }
        }
        again_us
    }

    /// How many runs there is room for; and which agents' runs to ask for together, with how many of
    /// them there is room for.
    fn room(&self, claims: &Claims) -> (usize, Vec<(Vec<String>, usize)>) {
        let hub = self.hub();
        let room = self.limits.running.saturating_sub(hub.resident.len());
        let mut unlimited = Vec::new();
        let mut wanted = Vec::new();
        for agent in self.agents.keys() {
            let Some(limit) = claims.limits.get(agent) else {
                unlimited.push(agent.clone());
                continue;
            };
            let has = |resident: &&Resident| resident.agent.as_ref() == Some(agent);
            let running = hub.resident.values().filter(has).count();
            wanted.push((vec![agent.clone()], limit.saturating_sub(running)));
        }
        unlimited.sort_unstable();
        wanted.push((unlimited, room));
        (room, wanted)
    }

    fn drive_claimed(&self, run: StreamId, claimed: (Lease, u64), agent: Option<String>) {
        let mut hub = self.hub();
        let claimed = Resident {
            claimed: Some(claimed),
            agent,
            ..Resident::default()
        };
        hub.resident.insert(run.clone(), claimed);
        drop(hub);
        self.spawn_drive(run);
    }

    /// Fires the timers that are due of runs that this process has; when to look again.
    pub(super) async fn fire_timers_of_residents(&self, now_us: u64) -> u64 {
        let mut next_us = u64::MAX;
        let mut due = Vec::new();
        let runs: Vec<_> = {
            let hub = self.hub();
            let runs = hub.resident.values().filter_map(|r| r.run.clone());
            runs.collect()
        };
        for run in runs {
            let state = run.state();
            for (timer, at_us) in &state.journal.timers {
                match *at_us <= now_us {
                    true => due.push((run.id.clone(), state.applied(), timer.clone())),
                    false => next_us = next_us.min(*at_us),
                }
            }
        }
        for (run, known, timer) in due {
            let fired = vec![record::timer_fired(&timer)];
            // Not if the run does not know of something yet: it may be that the timer has fired.
            let append = Append::to(run.clone(), fired).expecting(known);
            match self.store.append(vec![append]).await {
                Ok(appended) => {
                    self.syncer.appended(appended.position);
                    self.launch(&run);
                }
                Err(StoreError::Conflict { .. }) => {
                    next_us = next_us.min(now_us + SOON.as_micros() as u64);
                }
                Err(StoreError::Ended { .. } | StoreError::Refused { .. }) => {}
                Err(_) => next_us = next_us.min(now_us + AFTER_TROUBLE.as_micros() as u64),
            }
        }
        next_us
    }
}
