//! What is different every time it is asked, and must not be on replay: time, randomness, ids,
//! decisions, and whether code was changed; and events of the user's own.

use dalsegno_store::{Fields, Kind, NewEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, encode, encode_and_read};
use crate::effect::{Effect, Moment};
use crate::failure::Result;
use crate::record;
use crate::run::{Done, Step};
use crate::step::{StepId, StepKind};

impl Ctx {
    /// The time, in microseconds since 1970. Recorded, and never before a time that this run was
    /// told earlier, whatever the machine's clock does.
    pub fn now(&self) -> impl Future<Output = Result<u64>> + Send + use<> {
        let (ctx, id) = (self.clone(), self.identify("now"));
        async move {
            let make = |ctx: &Ctx| {
                let now_us = ctx.run.runtime.now_us();
                now_us.max(ctx.run.state().journal.told_us)
            };
            let now_us = ctx.value(id?, make).await?;
            // Whether it was made now or is recorded: what the run was told counts.
            let mut state = ctx.run.state();
            state.journal.told_us = state.journal.told_us.max(now_us);
            Ok(now_us)
        }
    }

    /// A random number. Recorded.
    pub fn random(&self) -> impl Future<Output = Result<u64>> + Send + use<> {
        let (ctx, id) = (self.clone(), self.identify("random"));
        async move { ctx.value(id?, |ctx| ctx.run.runtime.random()).await }
    }

    /// A random id, as in `f81d4fae-7dec-41d0-a765-00a0c91e6bf6`. Recorded.
    pub fn uuid(&self) -> impl Future<Output = Result<String>> + Send + use<> {
        let (ctx, id) = (self.clone(), self.identify("uuid"));
        async move {
            let make = |ctx: &Ctx| uuid(ctx.run.runtime.random(), ctx.run.runtime.random());
            ctx.value(id?, make).await
        }
    }

    /// A decision: recorded, so that the run takes the same branch ever after.
    ///
    /// What is recorded wins: if the code comes to another value on replay, it gets the old one.
    pub fn decide<T>(&self, name: &str, value: T) -> impl Future<Output = Result<T>> + Send + use<T>
    where
        T: Serialize + DeserializeOwned + Send,
    {
        let (ctx, id) = (self.clone(), self.identify(name));
        async move {
            let id = id?;
            ctx.expect_kind(&id, StepKind::Decision).await;
            if let Some(outcome) = ctx.outcome(&id).await {
                ctx.same_decision(&id, &outcome, encode(&value)).await;
                return ctx.recorded(&id, outcome).await;
            }
            ctx.run.replayed(|| format!("decision {id}")).await;
            let written = encode_and_read(&value).map_err(|failure| failure.at(id.as_str()));
            let (output, value) = written?;
            let event = step_event(Kind::DecisionCommitted, &id, StepKind::Decision);
            let events = vec![event.with_output(output)];
            ctx.settle(&id, StepKind::Decision, events).await?;
            Ok(value)
        }
    }

    /// An event of the user's own kind, recorded once.
    pub fn event<T>(
        &self,
        kind: &str,
        value: &T,
    ) -> impl Future<Output = Result<()>> + Send + use<T>
    where
        T: Serialize + ?Sized,
    {
        let (ctx, id) = (self.clone(), self.identify(kind));
        let (kind, value) = (kind.to_owned(), encode(value));
        async move {
            let id = id?;
            ctx.expect_kind(&id, StepKind::Event).await;
            if ctx.outcome(&id).await.is_some() {
                ctx.same_content(&id, value.as_ref().ok()).await;
                return Ok(());
            }
            ctx.run.replayed(|| format!("event {id}")).await;
            let value = value.map_err(|failure| failure.at(id.as_str()))?;
            let event = step_event(Kind::User(kind), &id, StepKind::Event);
            let events = vec![event.with_input(value)];
            ctx.settle(&id, StepKind::Event, events).await?;
            Ok(())
        }
    }

    /// Whether code that was changed on purpose is to be used: yes in runs that come here for the
    /// first time, no in those that were here before the change.
    ///
    /// ```no_run
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// if ctx.patched("two searches").await? {
    ///     // the new way
    /// } else {
    ///     // the old way, for runs that took it
    /// }
    /// # Ok(()) }
    /// ```
    pub fn patched(&self, change: &str) -> impl Future<Output = Result<bool>> + Send + use<> {
        let id = crate::step::check_name(change).map_err(super::misuse);
        let id = id.map(|()| StepId::new(format!("{}@{change}", self.scope)));
        let ctx = self.clone();
        async move {
            let id = id?;
            if let Some(outcome) = ctx.outcome(&id).await {
                return ctx.recorded(&id, outcome).await;
            }
            // What is recorded behind this place was recorded by the code before the change. (A
            // replay counts the end of the run, too.)
            let patched = ctx.run.state().journal.remaining == 0;
            if ctx.run.is_replay() {
                return Ok(patched);
            }
            let output = encode(&patched)?;
            let event = record::succeeded(&id, StepKind::Patched, Some(output));
            ctx.record(&id, vec![event]).await?;
            Ok(patched)
        }
    }

    /// A value that is made now or was recorded.
    async fn value<T>(&self, id: StepId, make: impl FnOnce(&Ctx) -> T) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        self.expect_kind(&id, StepKind::Value).await;
        if let Some(outcome) = self.outcome(&id).await {
            return self.recorded(&id, outcome).await;
        }
        self.run.replayed(|| format!("value {id}")).await;
        let value = make(self);
        let output = encode(&value)?;
        let mut step = Step::new(id.clone(), StepKind::Value, Effect::ReadOnly);
        step.in_plan = self.in_plan;
        // No intent: there is no time between it and the outcome.
        let ticket = match self.run.begin_now(step) {
            Ok(ticket) => ticket,
            Err(stopped) => return self.frozen(stopped).await,
        };
        let (output, usage) = (Some(output), Default::default());
        match self
            .run
            .finish(ticket, Done::Succeeded { output, usage })
            .await
        {
            Ok(Ok(())) => Ok(value),
            Ok(Err(failure)) => Err(failure),
            Err(stopped) => self.frozen(stopped).await,
        }
    }

    /// Waits after an outcome that was recorded, if the rule says so.
    pub(super) async fn committed(&self) {
        let committed = self.run.commit(Effect::ReadOnly, Moment::AfterOutcome);
        if let Err(stopped) = committed.await {
            self.frozen(stopped).await
        }
    }
}

/// An event of some kind that is the outcome of a step.
fn step_event(kind: Kind, id: &StepId, step: StepKind) -> NewEvent {
    let fields = Fields::new()
        .with(record::step::STEP, id.as_str())
        .with(record::step::KIND, step.number());
    NewEvent::new(kind).with_fields(fields)
}

fn uuid(high: u64, low: u64) -> String {
    // Version 4, variant 1, as RFC 9562 has it.
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
