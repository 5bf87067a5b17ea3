//! Waiting for a time or a signal. A run that only waits leaves memory, and costs nothing.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use dalsegno_store::{Append, Fields, Kind, NewEvent, StreamId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, encode, misuse};
use crate::failure::Result;
use crate::journal::Outcome;
use crate::record;
use crate::run::{NotRecorded, Wait};
use crate::runtime::BoxFuture;
use crate::step::{StepId, StepKind};

impl Ctx {
    /// Waits for a time, also while no process is running.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        let (ctx, id) = (self.clone(), self.identify("sleep"));
        let sight = id.as_ref().ok().map(|id| self.run.sight(id));
        async move {
            let (id, _sight) = (id?, sight);
            ctx.expect_kind(&id, StepKind::Sleep).await;
            let known = {
                let state = ctx.run.state();
                state.journal.steps.contains_key(&id)
            };
            if !known {
                ctx.run.replayed(|| format!("sleep {id}")).await;
                ctx.set_timer(&id, id.as_str(), time).await?;
            }
            let due_us = ctx.run.state().journal.timers.get(id.as_str()).copied();
            let wait = Wait {
                step: id.clone(),
                what: format!("time {id}"),
                due_us,
            };
            ctx.run.until(wait, |state| state.see(&id).map(drop)).await;
            Ok(())
        }
    }

    /// Waits for a signal of this name, and takes it: each signal is taken once, in the order in
    /// which they came. Signals that come before anybody waits are kept.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let paid: u64 = ctx.signal("paid").await?;
    /// let more: Option<u64> = ctx.signal("paid").timeout(Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    pub fn signal<T: DeserializeOwned + Send>(&self, name: &str) -> SignalWait<T> {
        SignalWait {
            ctx: self.clone(),
            id: self.identify(name),
            name: name.to_owned(),
            result: PhantomData,
        }
    }

    /// Sends a signal to another run of this store, exactly once.
    pub fn send_signal<T>(
        &self,
        run: &str,
        name: &str,
        value: &T,
    ) -> impl Future<Output = Result<()>> + Send + use<T>
    where
        T: Serialize + ?Sized,
    {
        let (ctx, id) = (self.clone(), self.identify(name));
        let to = StreamId::run(run).map_err(|e| misuse(e.to_string()));
        let (name, value) = (name.to_owned(), encode(value));
        async move {
            let (id, to, value) = (id?, to?, value?);
            ctx.expect_kind(&id, StepKind::SendSignal).await;
            if let Some(outcome) = ctx.outcome(&id).await {
                return ctx.recorded(&id, outcome).await;
            }
            ctx.run.replayed(|| format!("send-signal {id}")).await;
            let fields = Fields::new()
                .with(record::signal::NAME, name)
                .with(record::signal::FROM, ctx.run.id().to_string());
            let signal = NewEvent::new(Kind::SignalReceived).with_fields(fields);
            let signal = Append::to(to.clone(), vec![signal.with_input(value)]);
            let sent = record::succeeded(&id, StepKind::SendSignal, None);
            let showing = ctx.run.showing(&id, StepKind::SendSignal);
            // Both or neither.
            match ctx.run.send(vec![sent], signal).await {
                Ok(()) => {}
                Err(NotRecorded::Stopped(stopped)) => return ctx.frozen(stopped).await,
                Err(NotRecorded::Refused(why)) => {
                    let why = format!("the signal to {to} was not sent: {why}");
                    let failure = misuse(why).at(id.as_str());
                    let event = record::failed(&id, StepKind::SendSignal, &failure, None);
                    showing.not_recorded();
                    ctx.settle(&id, StepKind::SendSignal, vec![event]).await?;
                    return Err(failure);
                }
            }
            ctx.committed().await;
            showing.seen();
            ctx.host.recorded_for(&to);
            Ok(())
        }
    }

    /// Records that a timer is set.
    pub(super) async fn set_timer(&self, id: &StepId, timer: &str, time: Duration) -> Result<u64> {
        let due_us = self.due_us(time);
        self.record(id, vec![record::timer_set(timer, due_us)])
            .await?;
        self.host.timer_set(due_us);
        Ok(due_us)
    }

    /// When a time from now will be.
    pub(super) fn due_us(&self, time: Duration) -> u64 {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let now_us = self.run.runtime.now_us();
        now_us.saturating_add(time_us)
    }
}

/// A wait for a signal; [`Ctx::signal`] makes it.
#[must_use = "nothing happens before it is awaited"]
pub struct SignalWait<T> {
    ctx: Ctx,
    id: Result<StepId>,
    name: String,
    result: PhantomData<fn() -> T>,
}

/// A wait for a signal that ends after a time.
#[must_use = "nothing happens before it is awaited"]
pub struct SignalWaitFor<T> {
    wait: SignalWait<T>,
    time: Duration,
}

impl<T: DeserializeOwned + Send> SignalWait<T> {
    /// Waits for so long at most; `None` if none has come by then.
    pub fn timeout(self, time: Duration) -> SignalWaitFor<T> {
        SignalWaitFor { wait: self, time }
    }

    async fn wait(self, time: Option<Duration>) -> Result<Option<T>> {
        let (ctx, id) = (self.ctx, self.id?);
        ctx.expect_kind(&id, StepKind::Signal).await;
        if let Some(outcome) = ctx.outcome(&id).await {
            return match outcome {
                Outcome::Succeeded(None) => Ok(None),
                outcome => ctx.recorded(&id, outcome).await.map(Some),
            };
        }
        ctx.run.replayed(|| format!("signal {id}")).await;
        let timer = format!("{id}!timeout");
        let mut due_us = None;
        if let Some(time) = time {
            let known = {
                let state = ctx.run.state();
                let journal = &state.journal;
                due_us = journal.timers.get(&timer).copied();
                due_us.is_some() || journal.fired.contains(&timer)
            };
            let there = ctx.run.state().journal.has_signal(&self.name);
            if !known && !there {
                due_us = Some(ctx.set_timer(&id, &timer, time).await?);
            }
        }
        let wait = Wait {
            step: id.clone(),
            what: format!("signal {}", self.name),
            due_us,
        };
        let name = self.name.clone();
        let came = ctx.run.until(wait, |state| {
            // Taken at once, so that no other wait can take it.
            let journal = &mut state.journal;
            match journal.first_signal(&name) {
                Some(sequence) => Some(Some((sequence, journal.take_signal(sequence)))),
                None => journal.fired.contains(&timer).then_some(None),
            }
        });
        let came = came.await;
        let mut events = Vec::new();
        let mut outcome = record::succeeded(&id, StepKind::Signal, None);
        if let Some((sequence, _)) = &came {
            outcome.fields = outcome.fields.with(record::step::SOURCE, *sequence);
            if due_us.is_some() {
                events.push(record::timer_cancelled(&timer));
            }
        }
        events.push(outcome);
        ctx.settle(&id, StepKind::Signal, events).await?;
        match came {
            Some((_, payload)) => Ok(Some(ctx.read(&id, Some(&payload)).await)),
            None => Ok(None),
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for SignalWait<T> {
    type Output = Result<T>;
    type IntoFuture = BoxFuture<'static, Result<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.wait(None).await? {
                Some(value) => Ok(value),
                // Without a time limit it ends with a signal.
                None => Err(misuse(
                    "a wait without a limit has ended without a signal".into(),
                )),
            }
        })
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for SignalWaitFor<T> {
    type Output = Result<Option<T>>;
    type IntoFuture = BoxFuture<'static, Result<Option<T>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait.wait(Some(self.time)))
    }
}
