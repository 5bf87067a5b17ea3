//! Leases: who may write to a run, and until when.
//!
//! That a run was taken, and under which token, is an event. How long the holder goes on holding
//! it is not: with the process that owns the store, all leases end.
//!
//! Invariants: tokens only rise, and a token that is not the newest cannot write. Events of leases
//! are appended under the lock of [`Leases`], which comes before that of the state: so what is
//! known here of a lease is of the newest one.

use std::collections::HashMap;

use super::disk::Disk;
use super::{Inner, lock};
use crate::engine::{lease_released, lease_taken};
use crate::error::StoreError;
use crate::name::StreamId;
use crate::state::{Lease, State};
use crate::store::{Append, RunInfo};

/// Until when each lease that was taken since the store was opened is held: token and time.
#[derive(Debug, Default)]
pub(crate) struct Leases(HashMap<StreamId, (u64, u64)>);

impl Leases {
    /// The lease of a run, if somebody holds it now.
    fn held(&self, run: &StreamId, lease: Option<&Lease>, now_us: u64) -> Option<Lease> {
        let lease = lease?;
        let (token, until_us) = *self.0.get(run)?;
        (token == lease.token && until_us > now_us).then(|| Lease {
            until_us,
            ..lease.clone()
        })
    }

    /// Forgets runs that have ended without giving their lease back.
    fn forget_ended(&mut self, state: &State) {
        if self.0.len() > 2 * state.streams.len() + 64 {
            self.0.retain(|run, _| state.streams.contains_key(run));
        }
    }
}

impl Inner {
    /// Shows for each run who holds it now. Who reads beside the owner sees who took it last: how
    /// long it is held, only the owner knows.
    pub fn show_holders(&self, runs: &mut [RunInfo]) {
        if let Disk::Owner(_) = self.disk {
            let leases = lock(&self.leases);
            let now_us = self.options.clock.now_us();
            for info in runs {
                info.lease = leases.held(&info.run, info.lease.as_ref(), now_us);
            }
        }
    }

    /// Takes a run that nobody holds.
    pub fn take_lease(
        &self,
        run: &StreamId,
        owner: &str,
        for_us: u64,
    ) -> Result<Lease, StoreError> {
        crate::name::check_name(owner)?;
        let mut leases = lock(&self.leases);
        loop {
            let now_us = self.options.clock.now_us();
            let (head, token) = {
                let core = lock(&self.core);
                let Some(stream) = core.state.streams.get(run) else {
                    return Err(self.not_live(&core, run));
                };
                leases.forget_ended(&core.state);
                let held = leases.held(run, stream.lease.as_ref(), now_us);
                if let Some(lease) = held {
                    let stream = run.clone();
                    return Err(StoreError::Held { stream, lease });
                }
                (stream.head.sequence, stream.last_token + 1)
            };
            let lease = Lease {
                owner: owner.into(),
                token,
                until_us: now_us.saturating_add(for_us),
            };
            let event = lease_taken(&lease);
            let append = Append::to(run.clone(), vec![event]).expecting(head);
            match self.append(vec![append]) {
                Ok(_) => {
                    let held = (token, lease.until_us);
                    leases.0.insert(run.clone(), held);
                    return Ok(lease);
                }
                // Somebody was faster: look again.
                Err(e) if e.is_conflict() => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Goes on holding a run.
    pub fn renew_lease(
        &self,
        run: &StreamId,
        token: u64,
        for_us: u64,
    ) -> Result<Lease, StoreError> {
        let mut leases = lock(&self.leases);
        let core = lock(&self.core);
        let Some(stream) = core.state.streams.get(run) else {
            return Err(self.not_live(&core, run));
        };
        let held = leases.0.get_mut(run).filter(|(held, _)| *held == token);
        match (&stream.lease, held) {
            (Some(lease), Some((_, until))) if lease.token == token => {
                let until_us = self.options.clock.now_us().saturating_add(for_us);
                *until = until_us;
                Ok(Lease {
                    until_us,
                    ..lease.clone()
                })
            }
            _ => Err(StoreError::Fenced {
                stream: run.clone(),
                token,
                current: stream.last_token,
            }),
        }
    }

    /// Gives a run back.
    pub fn release_lease(&self, run: &StreamId, token: u64) -> Result<(), StoreError> {
        let mut leases = lock(&self.leases);
        let event = lease_released(token);
        self.append(vec![Append::to(run.clone(), vec![event]).under(token)])?;
        leases.0.remove(run);
        Ok(())
    }

    /// Why a run that is not in the state cannot be held.
    fn not_live(&self, core: &super::Core, run: &StreamId) -> StoreError {
        let stream = run.clone();
        match self.ended(core, run) {
            Ok(Some(ended)) => StoreError::Ended {
                stream,
                status: ended.status,
            },
            Ok(None) => StoreError::NotFound { stream },
            Err(e) => e,
        }
    }
}
