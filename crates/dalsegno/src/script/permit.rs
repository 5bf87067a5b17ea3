//! The right to execute one step of a script, and what is recorded of how that ended.
//!
//! Invariant: all of it is written under the lease that the permit was given with. When it is, the run
//! waits for its next step, or for a person; a run that somebody holds all the time
//! ([`super::ScriptRun`]) stays with its holder instead.

use std::sync::Arc;

use dalsegno_store::{Append, Fields, Kind, NewEvent, NewPayload, Store, StoreError, StreamId};
use serde_json::json;

use super::held::Busy;
use super::{Ended, stopped_by_store};
use crate::attention::{Attention, AttentionKind};
use crate::effect::Effect;
use crate::error::Error;
use crate::failure::{Certainty, Failure, FailureKind};
use crate::journal::Verdict;
use crate::record;
use crate::run::NotRecorded;
use crate::step::{StepId, StepKind};

/// The right to execute a step of a script, once, over any number of openings of the store.
#[derive(Clone, Debug)]
#[must_use = "a step that is not finished is in doubt"]
pub struct Permit {
    pub(super) run: StreamId,
    pub(super) step: StepId,
    pub(super) effect: Effect,
    pub(super) attempt: u64,
    pub(super) key: String,
    pub(super) token: u64,
    pub(super) input: String,
    pub(super) begun_us: u64,
    /// The run in the hands of who holds it all the time, and that it is busy.
    pub(super) held: Option<Arc<Busy>>,
}

/// Why events were not recorded.
enum NotWritten {
    TooLarge(String),
    Failed(Error),
}

impl From<NotWritten> for Error {
    fn from(why: NotWritten) -> Error {
        match why {
            NotWritten::TooLarge(why) => Error::Stopped(why),
            NotWritten::Failed(error) => error,
        }
    }
}

/// What a run between two steps waits for.
pub(super) const NEXT_STEP: &str = "the next step of its script";
pub(super) const A_PERSON: &str = "a person";

/// Records events, that the run waits, and that nobody holds it.
pub(super) async fn let_go(
    store: &Arc<dyn Store>,
    run: &StreamId,
    token: u64,
    after: Vec<NewEvent>,
    waits: &str,
) -> Result<(), StoreError> {
    let waits = record::run_checkpointed(&[waits.to_owned()]);
    let events = [waits].into_iter().chain(after).collect();
    let append = Append::to(run.clone(), events).under(token);
    store.append(vec![append]).await?;
    store.release_lease(run, token).await?;
    let position = store.position().await?;
    store.durable(position).await
}

impl Permit {
    /// The step.
    pub fn step(&self) -> &StepId {
        &self.step
    }

    /// What it does to the world, as it was asked for.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Which attempt, from 1.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The same on every attempt, process and machine.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Goes on holding the run while the effect is under way. To be called every
    /// [`super::KEEP_EVERY`] where processes share the store; elsewhere there is nothing to do.
    ///
    /// # Errors
    /// The store, or somebody else has the run.
    pub async fn keep(&self, store: &Arc<dyn Store>) -> Result<(), Error> {
        // Who holds the run all the time renews its lease.
        if store.is_shared() && self.held.is_none() {
            let for_us = super::lease_us(&**store);
            store.renew_lease(&self.run, self.token, for_us).await?;
        }
        Ok(())
    }

    /// Records what it came to; the run waits for the next step. Says so if the result was too large
    /// to be recorded: that is its outcome then.
    ///
    /// # Errors
    /// The store, or somebody else has the run.
    pub async fn finish(
        self,
        store: &Arc<dyn Store>,
        ended: Ended,
        output: Option<NewPayload>,
    ) -> Result<Option<Failure>, Error> {
        let event = self.outcome(ended, output);
        let too_large = match self.write(store, vec![event]).await {
            Ok(()) => None,
            Err(NotWritten::TooLarge(why)) => {
                let why = format!("it was done, but its output cannot be recorded: {why}");
                let failure = Failure::of(FailureKind::TooLarge, Certainty::Terminal, why);
                let event = self.outcome(Ended::Failed(failure.clone()), None);
                self.write(store, vec![event]).await?;
                Some(failure)
            }
            Err(NotWritten::Failed(error)) => return Err(error),
        };
        self.wait_for_next(store).await?;
        Ok(too_large)
    }

    /// Records events under the lease.
    async fn write(&self, store: &Arc<dyn Store>, events: Vec<NewEvent>) -> Result<(), NotWritten> {
        if let Some(held) = &self.held {
            return match held.run.record(events).await {
                Ok(_) => Ok(()),
                Err(NotRecorded::Refused(why)) => Err(NotWritten::TooLarge(why)),
                Err(NotRecorded::Stopped(stopped)) => {
                    Err(NotWritten::Failed(stopped_by_store(stopped)))
                }
            };
        }
        let append = Append::to(self.run.clone(), events).under(self.token);
        match store.append(vec![append]).await {
            Ok(_) => Ok(()),
            Err(e @ StoreError::TooLarge { .. }) => Err(NotWritten::TooLarge(e.to_string())),
            Err(e) => Err(NotWritten::Failed(e.into())),
        }
    }

    /// What was recorded is durable, and the run waits for its next step.
    async fn wait_for_next(&self, store: &Arc<dyn Store>) -> Result<(), Error> {
        match &self.held {
            Some(held) => held.run.durable().await.map_err(stopped_by_store),
            None => Ok(let_go(store, &self.run, self.token, Vec::new(), NEXT_STEP).await?),
        }
    }

    fn outcome(&self, ended: Ended, output: Option<NewPayload>) -> NewEvent {
        let (id, kind) = (&self.step, StepKind::Tool);
        let mut event = match &ended {
            Ended::Done => record::succeeded(id, kind, None),
            // The time for another attempt is when it is asked for.
            Ended::FailedForNow(failure) => record::failed(id, kind, failure, Some(self.begun_us)),
            Ended::Failed(failure) => record::failed(id, kind, failure, None),
        };
        event.output = output;
        event
    }

    async fn intend(mut self, store: &Arc<dyn Store>, before: NewEvent) -> Result<Permit, Error> {
        self.attempt += 1;
        let intent = record::intended(&self.step, StepKind::Tool, self.effect, self.attempt, None);
        self.write(store, vec![before, intent]).await?;
        match &self.held {
            Some(held) => held.may_begin().await?,
            None => {
                let position = store.position().await?;
                store.durable(position).await?;
            }
        }
        Ok(self)
    }

    /// Records that a step in doubt happened, with this result.
    ///
    /// # Errors
    /// As [`Permit::finish`].
    pub async fn happened(
        self,
        store: &Arc<dyn Store>,
        output: Option<NewPayload>,
    ) -> Result<(), Error> {
        let event = self.verdict(Verdict::Happened, output);
        self.write(store, vec![event]).await?;
        self.wait_for_next(store).await
    }

    /// Records that a step in doubt did not happen, and begins it again if that is wanted.
    ///
    /// # Errors
    /// As [`Permit::finish`].
    pub async fn did_not_happen(
        self,
        store: &Arc<dyn Store>,
        again: bool,
    ) -> Result<Option<Permit>, Error> {
        let event = self.verdict(Verdict::DidNotHappen, None);
        if again {
            return Ok(Some(self.intend(store, event).await?));
        }
        self.write(store, vec![event]).await?;
        self.wait_for_next(store).await?;
        Ok(None)
    }

    fn verdict(&self, verdict: Verdict, output: Option<NewPayload>) -> NewEvent {
        let fields = Fields::new()
            .with(record::step::STEP, self.step.as_str())
            .with(record::resolved::VERDICT, verdict.number())
            .with(record::resolved::BY, "probe");
        let mut event = NewEvent::new(Kind::StepResolved).with_fields(fields);
        event.input = output;
        event
    }

    /// Hands a step in doubt to a person.
    ///
    /// # Errors
    /// As [`Permit::finish`].
    pub async fn escalate(self, store: &Arc<dyn Store>, why: &str) -> Result<Attention, Error> {
        let reason = format!(
            "nobody knows whether {} {} happened ({why}): look, then say happened, did not happen, \
             or fail the run",
            StepKind::Tool,
            self.step
        );
        let evidence = json!({
            "step": self.step.as_str(),
            "idempotency_key": self.key,
            "attempt": self.attempt,
            "begun_us": self.begun_us,
            "why": why,
            "input": self.input,
        });
        let attention = Attention::new(AttentionKind::InDoubt, reason);
        let attention = attention.at(&self.step).with_evidence(&evidence);
        match &self.held {
            // Who holds it writes that down, and lets go of it.
            Some(held) => held.stop_for(&attention),
            None => {
                let events = vec![attention.event()];
                let_go(store, &self.run, self.token, events, A_PERSON).await?;
            }
        }
        Ok(attention)
    }
}
