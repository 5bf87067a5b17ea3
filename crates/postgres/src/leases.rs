//! Leases: who may write to a run, and until when.
//!
//! That a run was taken, and under which token, is an event, as in every store. How long it is held
//! is in the row that says when it may go on (`claimable`): a heartbeat changes nothing else. The
//! time is the database's, so that a machine whose clock is wrong cannot take what is held.
//!
//! Invariant: a lease is given under the lock of the stream's row, to one at a time; what was
//! committed before the lock is seen.

use dalsegno_store::engine::{self, lease_released, lease_taken};
use dalsegno_store::{Append, Lease, Status, StoreError, StreamId};
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::{Inner, trying};
use crate::locked::read_state;
use crate::memory::Held;
use crate::save::{ClaimChange, NEVER_US, db_us, kind_number, us_of};
use crate::tx::{Committed, Tx};

const RENEW: &str = "UPDATE claimable c
     SET ready_us = n.now_us + LEAST($4::bigint, 9223372036854775807 - n.now_us)
     FROM unnest($1::text[], $2::bigint[]) AS w (name, token)
     CROSS JOIN LATERAL (
         SELECT no, name, state FROM stream WHERE kind = 1 AND name = w.name OFFSET 0
     ) s,
     (SELECT COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now_us) n
     WHERE c.stream = ANY(ARRAY(
             SELECT h.no FROM unnest($1::text[]) AS v (name)
             CROSS JOIN LATERAL (SELECT no FROM stream WHERE kind = 1 AND name = v.name OFFSET 0) h
         ))
         AND c.stream = s.no AND c.token = w.token
     RETURNING s.name, c.token, c.ready_us, s.state";
const ROW: &str = "SELECT token, state FROM stream WHERE kind = $1 AND name = $2";
/// What a handle that closes gives up may go on at once.
const GIVE_UP: &str = "UPDATE claimable
     SET token = NULL, holder = NULL,
         ready_us = COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
     WHERE stream = ANY($1) AND holder = $2";

impl Inner {
    /// Takes a run that nobody holds.
    pub async fn take_lease(
        &self,
        run: &StreamId,
        owner: &str,
        for_us: u64,
    ) -> Result<Lease, StoreError> {
        engine::check_name(owner)?;
        let streams = [run.clone()];
        let _ours = self.take_ours(&streams).await?;
        trying!(self, {
            let mut tx = self.begin(&streams).await?;
            match lease_in(&mut tx, &self.handle, run, owner, for_us) {
                Ok(lease) => {
                    self.commit_leases(tx, &[(run.clone(), lease.clone())])
                        .await?;
                    Ok(lease)
                }
                Err(e) => {
                    tx.leave().await?;
                    Err(e.into())
                }
            }
        })
    }

    /// Commits a transaction in which leases were taken, and holds them.
    pub async fn commit_leases(
        &self,
        tx: Tx<'_>,
        leases: &[(StreamId, Lease)],
    ) -> Result<(), Trouble> {
        let Committed { saves, .. } = self.commit(tx).await?.1;
        let mut memory = self.memory();
        for (run, lease) in leases {
            let Some(save) = saves.iter().find(|save| save.stream == *run) else {
                continue;
            };
            let held = Held {
                no: save.no,
                token: lease.token,
                state: save.after.clone(),
                saved: save.after.clone(),
                clock: save.clock,
                queue: crate::memory::Queue::default(),
                sending: false,
                news: false,
            };
            memory.held.insert(run.clone(), held);
        }
        Ok(())
    }

    /// Goes on holding runs.
    pub async fn renew_leases(
        &self,
        held: &[(StreamId, u64)],
        for_us: u64,
    ) -> Result<Vec<Result<Lease, StoreError>>, StoreError> {
        let names: Vec<&str> = held.iter().map(|(run, _)| run.name()).collect();
        let tokens: Vec<i64> = held.iter().map(|(_, token)| *token as i64).collect();
        let (clock, for_us) = (self.options.lease_now_us(), db_us(for_us));
        let params: [&(dyn ToSql + Sync); 4] = [&names, &tokens, &clock, &for_us];
        let rows = self.rows(RENEW, &params).await?;
        let mut answers = Vec::with_capacity(held.len());
        for (run, token) in held {
            let row = rows.iter().find(|row| {
                row.get::<_, &str>(0) == run.name() && row.get::<_, i64>(1) == *token as i64
            });
            let in_vain = self.cannot_hold(run, *token);
            answers.push(match (row, in_vain) {
                (_, Some(error)) => Err(error),
                (Some(row), None) => read_state(run, row.get(3)).map(|state| Lease {
                    owner: state
                        .lease
                        .map_or_else(|| "".into(), |lease| lease.owner.clone()),
                    token: *token,
                    until_us: us_of(row.get(2)),
                }),
                (None, None) => {
                    let error = self.why_not_held(run, *token).await?;
                    self.has_lost(run, *token, &error);
                    Err(error)
                }
            });
        }
        Ok(answers)
    }

    /// Why a run cannot be held any more, as far as this handle knows without asking.
    fn cannot_hold(&self, run: &StreamId, token: u64) -> Option<StoreError> {
        let memory = self.memory();
        if let Some(fence) = memory.fence(run, Some(token)) {
            return Some(fence.error());
        }
        let status = memory.held.get(run)?.state.status?;
        status.is_final().then(|| StoreError::Ended {
            stream: run.clone(),
            status,
        })
    }

    /// What was queued under a lease that is no more is never written, and what is read of the run is
    /// what others have made of it.
    fn has_lost(&self, run: &StreamId, token: u64, error: &StoreError) {
        let current = match error {
            StoreError::Fenced { current, .. } => *current,
            _ => token,
        };
        self.memory().lose(run, token, &[], current);
        self.moved.notify_waiters();
    }

    async fn why_not_held(&self, run: &StreamId, token: u64) -> Result<StoreError, StoreError> {
        let kind = kind_number(run.kind());
        let rows = self.rows(ROW, &[&kind, &run.name()]).await?;
        let stream = run.clone();
        let Some(row) = rows.first() else {
            return Ok(StoreError::NotFound { stream });
        };
        let state = read_state(run, row.get(1))?;
        Ok(match state.status.filter(|status| status.is_final()) {
            Some(status) => StoreError::Ended { stream, status },
            None => StoreError::Fenced {
                stream,
                token,
                current: state.last_token,
            },
        })
    }

    /// Gives a run back: to go on at once, or when something comes for it.
    pub async fn release_lease(
        &self,
        run: &StreamId,
        token: u64,
        at_once: bool,
    ) -> Result<(), StoreError> {
        let streams = [run.clone()];
        let _ours = self.take_ours(&streams).await?;
        trying!(self, {
            let mut tx = self.begin(&streams).await?;
            let news = tx.streams.get(run).is_some_and(|locked| locked.news);
            let event = lease_released(token);
            let append = Append::to(run.clone(), vec![event]).under(token);
            if let Err(e) = tx.append(append, Vec::new()) {
                tx.leave().await?;
                return Err(e.into());
            }
            let now_us = tx.now_us;
            let machine_us = self.options.now_us();
            if let Some(locked) = tx.streams.get_mut(run) {
                let next_timer = locked.draft.timers.values().min();
                let ready_us = match locked.draft.status {
                    // Only a person can move it on: what one says comes as news.
                    _ if locked.draft.attention.is_some() && !news => NEVER_US,
                    // It waits for something that has not come, or for its next timer.
                    Some(Status::Checkpointed) if !at_once && !news => {
                        // So long from now, by whatever clock: whoever takes it before its timer is
                        // due there would only give it back, again and again.
                        next_timer.map_or(NEVER_US, |due| {
                            now_us.saturating_add(db_us(due.saturating_sub(machine_us)))
                        })
                    }
                    _ => now_us,
                };
                locked.claim = ClaimChange::Set {
                    ready_us,
                    token: None,
                    holder: None,
                };
            }
            self.commit(tx).await?;
            Ok(())
        })
    }

    /// Gives up what this handle holds, so that others can go on with it at once.
    pub async fn give_up_leases(&self) -> Result<(), Trouble> {
        let held: Vec<i64> = self.memory().held.values().map(|held| held.no).collect();
        if held.is_empty() {
            return Ok(());
        }
        let mut lent = self.pool.lend().await?;
        let clock = self.options.lease_now_us();
        let params: [&(dyn ToSql + Sync); 3] = [&held, &self.handle, &clock];
        lent.conn.execute(GIVE_UP, &params).await?;
        self.pool.give_back(lent);
        let mut memory = self.memory();
        memory.held.clear();
        memory.unsent.clear();
        drop(memory);
        self.tell_others();
        Ok(())
    }
}

/// Takes a run that is locked.
pub(crate) fn lease_in(
    tx: &mut Tx<'_>,
    handle: &str,
    run: &StreamId,
    owner: &str,
    for_us: u64,
) -> Result<Lease, StoreError> {
    let now_us = us_of(tx.now_us);
    let stream = run.clone();
    let Some(locked) = tx.streams.get(run).filter(|locked| locked.exists()) else {
        return Err(StoreError::NotFound { stream });
    };
    if let Some(status) = locked.draft.status.filter(|status| status.is_final()) {
        return Err(StoreError::Ended { stream, status });
    }
    if let Some((lease, _)) = &locked.holder {
        let lease = lease.clone();
        return Err(StoreError::Held { stream, lease });
    }
    let lease = Lease {
        owner: owner.into(),
        token: locked.draft.last_token + 1,
        until_us: now_us.saturating_add(for_us),
    };
    let append = Append::to(run.clone(), vec![lease_taken(&lease)]);
    tx.append(append, Vec::new())?;
    if let Some(locked) = tx.streams.get_mut(run) {
        locked.claim = ClaimChange::Set {
            ready_us: db_us(lease.until_us),
            token: Some(lease.token as i64),
            holder: Some(handle.to_owned()),
        };
    }
    Ok(lease)
}
