//! Leases: taking, renewing and giving back runs, rightly and wrongly.

use std::sync::Arc;

use dalsegno_store::{Fields, Kind, Lease, NewEvent, Store, StreamId, field};

use super::verdict::{Refusal, Wanted, Wish};
use super::{After, World, now};

impl World {
    pub(super) fn lease(&mut self) -> Result<After, String> {
        let run = self.any_run();
        self.history.names.insert(run.clone());
        match self.rng.below(10) {
            0..6 => self.take(run),
            6..8 => self.renew(&run),
            _ => self.release(run),
        }
    }

    /// The lease that is in the run's history, and that this process still holds.
    fn holds(&self, run: &StreamId) -> Option<(Lease, u64)> {
        let stream = self.history.state.streams.get(run)?;
        let lease = stream.lease.clone()?;
        let (token, until) = *self.held.get(run)?;
        (token == lease.token).then_some((lease, until))
    }

    fn take(&mut self, run: StreamId) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let for_us = self.rng.below(20_000_000);
        let taken = now(store.take_lease(&run, "a worker", for_us));
        let held = self.holds(&run).filter(|(_, until)| *until > self.time());
        let expected = match self.history.state.streams.get(&run) {
            None if self.history.ended.contains_key(&run) => Err(Refusal::Ended),
            None => Err(Refusal::NotFound),
            Some(_) if held.is_some() => Err(Refusal::Held),
            Some(stream) => Ok(stream.last_token + 1),
        };
        let lease = match (taken, expected) {
            (Ok(lease), Ok(token)) if lease.token == token => lease,
            (Err(e), Err(expected)) if Refusal::of(&e) == Some(expected) => {
                self.summary.refused += 1;
                return Ok(After::GoOn);
            }
            (Err(e), _) if Refusal::of(&e).is_none() => return self.failed("take_lease", &e),
            (found, expected) => {
                return Err(format!(
                    "a lease of {run}: {found:?}, expected {expected:?}"
                ));
            }
        };
        self.summary.leases += 1;
        let fields = Fields::new()
            .with(field::OWNER, "a worker")
            .with(field::TOKEN, lease.token)
            .with(field::UNTIL, self.time() + for_us);
        let until = (lease.token, lease.until_us);
        self.held.insert(run.clone(), until);
        self.happened(run, Kind::LeaseTaken, fields, None)
    }

    /// An event that the store made of a call.
    fn happened(
        &mut self,
        stream: StreamId,
        kind: Kind,
        fields: Fields,
        token: Option<u64>,
    ) -> Result<After, String> {
        let wish = Wish {
            stream,
            expected: None,
            token,
            events: vec![Wanted::new(NewEvent::new(kind).with_fields(fields))],
        };
        let entries = self.history.judge(&[wish], self.time(), self.sizes);
        for entry in entries.map_err(|r| format!("a lease that must be {r:?}"))? {
            self.history.push(Arc::new(entry));
        }
        Ok(After::GoOn)
    }

    /// A token for the run: most often the newest.
    fn token(&mut self, run: &StreamId) -> u64 {
        let last = self.history.state.streams.get(run);
        let last = last.map_or(0, |stream| stream.last_token);
        if self.rng.chance(800) {
            return last;
        }
        last.wrapping_add(self.rng.range(0, 2)).wrapping_sub(1)
    }

    fn renew(&mut self, run: &StreamId) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let (token, for_us) = (self.token(run), self.rng.below(20_000_000));
        let renewed = now(store.renew_lease(run, token, for_us));
        let until_us = self.time() + for_us;
        let held = self.holds(run).filter(|(lease, _)| lease.token == token);
        let expected = match self.history.state.streams.get(run) {
            None if self.history.ended.contains_key(run) => Err(Refusal::Ended),
            None => Err(Refusal::NotFound),
            Some(_) => held.map(|_| until_us).ok_or(Refusal::Fenced),
        };
        match (renewed, expected) {
            (Ok(lease), Ok(until_us)) if lease.until_us == until_us => {
                self.held.insert(run.clone(), (token, until_us));
                Ok(After::GoOn)
            }
            (Err(e), Err(expected)) if Refusal::of(&e) == Some(expected) => Ok(After::GoOn),
            (Err(e), _) if Refusal::of(&e).is_none() => self.failed("renew_lease", &e),
            (found, expected) => Err(format!(
                "renewing a lease of {run}: {found:?}, expected {expected:?}"
            )),
        }
    }

    fn release(&mut self, run: StreamId) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let token = self.token(&run);
        let stream = self.history.state.streams.get(&run);
        let current = stream.and_then(|stream| stream.lease.as_ref().map(|l| l.token));
        let expected = match stream {
            None if self.history.ended.contains_key(&run) => Err(Refusal::Ended),
            None if self.history.state.retiring.contains(&run) => Err(Refusal::Refused),
            _ if current == Some(token) => Ok(()),
            _ => Err(Refusal::Fenced),
        };
        match (now(store.release_lease(&run, token)), expected) {
            (Ok(()), Ok(())) => {
                self.held.remove(&run);
                let fields = Fields::new().with(field::TOKEN, token);
                self.happened(run, Kind::LeaseReleased, fields, Some(token))
            }
            (Err(e), Err(expected)) if Refusal::of(&e) == Some(expected) => {
                // The token of somebody who lost the run does nothing at all.
                self.summary.refused += 1;
                Ok(After::GoOn)
            }
            (Err(e), _) if Refusal::of(&e).is_none() => self.failed("release_lease", &e),
            (found, expected) => Err(format!(
                "giving {run} back: {found:?}, expected {expected:?}"
            )),
        }
    }
}
