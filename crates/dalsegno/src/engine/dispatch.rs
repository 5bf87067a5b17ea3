//! The dispatcher: fires timers, takes up letters, renews leases.
//!
//! Invariant: a timer is fired by recording that it has; who waits for it hears of that like of any
//! other event. Leases are renewed here, so that no step can be too long for one.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dalsegno_store::{Append, StoreError, StreamId};

use super::Engine;
use crate::bell::first_of;
use crate::record;
use crate::run::{Run, Stopped};

/// Timers fired at once.
const AT_ONCE: usize = 256;
/// After a failure it looks again after so long.
const AGAIN_US: u64 = 1_000_000;
/// Without any timer the dispatcher looks again after so long.
const LONGEST: Duration = Duration::from_secs(3600);

/// Runs until the engine is gone or closes.
pub(crate) async fn dispatch(engine: Weak<Engine>) {
    let mut renewed_us = None;
    loop {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let closing = engine.is_closing();
        // Others take over what this process does not go on holding until it has let go of it.
        if closing && (engine.claims.is_none() || !engine.has_residents()) {
            return;
        }
        let rung = engine.dispatch.count();
        // A timer that is set while this looks is not seen by it: it has to ring.
        engine.hub().looks_at_us = u64::MAX;
        let now_us = engine.runtime.now_us();
        let next_us = match &engine.claims {
            None => engine.fire_timers(now_us).await,
            Some(_) if closing => u64::MAX,
            Some(_) => engine.fire_timers_of_residents(now_us).await,
        };
        let mut until_us = next_us.min(now_us + LONGEST.as_micros() as u64);
        if let (Some(claims), false) = (&engine.claims, closing) {
            until_us = until_us.min(engine.claim(claims, now_us).await);
        }
        engine.take_letters().await;
        // What is held was taken since this began.
        let renewed_us = renewed_us.get_or_insert(now_us);
        let renew_every = engine.limits.lease_us() / 3;
        if now_us >= *renewed_us + renew_every {
            *renewed_us = now_us;
            engine.renew_leases().await;
        }
        if let Some(every) = engine.limits.mailbox_every {
            until_us = until_us.min(now_us + every.as_micros() as u64);
        }
        if engine.has_residents() {
            until_us = until_us.min(*renewed_us + renew_every);
        }
        let until_us = until_us.max(now_us + 1);
        engine.hub().looks_at_us = until_us;
        let mut sleep = engine.runtime.sleep_until(until_us);
        first_of(engine.dispatch.after(rung), sleep.as_mut()).await;
    }
}

impl Engine {
    /// Fires all timers that are due; when to look again.
    async fn fire_timers(&self, now_us: u64) -> u64 {
        let again_us = now_us + AGAIN_US;
        // Of runs that take nothing, as those with lost events do. They must not be in the way of
        // others.
        let mut refused = HashSet::new();
        loop {
            let limit = AT_ONCE + refused.len();
            let Ok(due) = self.store.timers_due(now_us, limit).await else {
                return again_us;
            };
            let full = due.len() == limit;
            for timer in due {
                if refused.contains(&(timer.run.clone(), timer.id.clone())) {
                    continue;
                }
                let fired = vec![record::timer_fired(&timer.id)];
                let append = Append::to(timer.run.clone(), fired);
                match self.store.append(vec![append]).await {
                    Ok(appended) => {
                        self.syncer.appended(appended.position);
                        self.launch(&timer.run);
                    }
                    Err(StoreError::Ended { .. } | StoreError::Refused { .. }) => {
                        refused.insert((timer.run, timer.id));
                    }
                    // Nothing can be recorded: whoever has a run hears of it.
                    Err(_) => return again_us,
                }
            }
            if !full {
                let next = self.store.next_timer_us().await;
                // A timer that is due and was refused is no reason to look again at once.
                let next_us = next.ok().flatten().unwrap_or(u64::MAX);
                return match next_us <= now_us {
                    true => again_us,
                    false => next_us,
                };
            }
        }
    }

    /// Takes up what other processes said.
    async fn take_letters(&self) {
        if self.limits.mailbox_every.is_none() {
            return;
        }
        // If it fails, letters stay where they are.
        if let Ok(taken) = self.store.take_letters().await {
            for (_, event) in taken.taken {
                self.launch(&event.stream);
            }
        }
    }

    fn has_residents(&self) -> bool {
        !self.hub().resident.is_empty()
    }

    async fn renew_leases(&self) {
        let held: Vec<(StreamId, u64)> = {
            let hub = self.hub();
            let runs = hub
                .resident
                .values()
                .filter_map(|resident| resident.run.as_ref());
            runs.filter_map(|run| Some((run.id.clone(), run.token?)))
                .collect()
        };
        let (for_us, asked_us) = (self.limits.lease_us(), self.runtime.now_us());
        let Ok(renewed) = self.store.renew_leases(&held, for_us).await else {
            // Who has lost one meanwhile is told at the next append.
            return;
        };
        for ((run, _), renewed) in held.iter().zip(renewed) {
            let Some(run) = self.resident(run) else {
                continue;
            };
            match renewed {
                Ok(_) => run.hold.renewed(asked_us),
                Err(e @ (StoreError::Fenced { .. } | StoreError::Ended { .. })) => {
                    run.stop(Stopped::Fenced(e.to_string()));
                }
                Err(_) => {}
            }
        }
    }

    fn resident(&self, run: &StreamId) -> Option<Arc<Run>> {
        self.hub().resident.get(run)?.run.clone()
    }
}
