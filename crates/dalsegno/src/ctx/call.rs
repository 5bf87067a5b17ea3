//! Calls of models and tools.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dalsegno_store::NewPayload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CatchPanic, Ctx, Gate, Retry, encode, encode_and_read};
use crate::budget::Usage;
use crate::effect::Effect;
use crate::failure::{Certainty, Failure, FailureKind, Result};
use crate::journal::{Outcome, Verdict};
use crate::run::{Begun, Done, Doubt, Hold, Run, Step, Ticket};
use crate::runtime::BoxFuture;
use crate::step::{StepId, StepKind};

/// How long a probe may take if the step has no time limit of its own.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

impl Ctx {
    /// A call of a model: no effect outside, but an answer that is never the same twice, and costs.
    ///
    /// ```no_run
    /// # async fn ask(_: &str) -> dalsegno::Result<String> { Ok(String::new()) }
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let prompt = "What is the capital of France?";
    /// let answer: String = ctx.model("ask").input(&prompt).call(|call| async move {
    ///     call.tokens(12, 5);
    ///     ask(prompt).await
    /// }).await?;
    /// # Ok(()) }
    /// ```
    pub fn model(&self, name: &str) -> StepCall {
        StepCall::new(self, StepKind::Model, Effect::ReadOnly, name)
    }

    /// A call of a tool. Unless something else is said it is [`Effect::Once`]: never sent twice.
    ///
    /// ```no_run
    /// # async fn charge(_: u64, _key: &str) -> dalsegno::Result<String> { Ok(String::new()) }
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let receipt: String = ctx.tool("charge").idempotent().input(&4200)
    ///     .call(|call| async move { charge(4200, call.key()).await })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn tool(&self, name: &str) -> StepCall {
        StepCall::new(self, StepKind::Tool, Effect::Once, name)
    }
}

type ProbeFn = Box<dyn Fn(Call) -> BoxFuture<'static, Result<Probe<NewPayload>>> + Send + Sync>;

/// A step in the making. [`StepCall::call`] makes it.
#[must_use = "nothing happens before `call`"]
pub struct StepCall {
    ctx: Ctx,
    kind: StepKind,
    effect: Effect,
    name: String,
    pub(super) input: Result<Option<NewPayload>>,
    retry: Retry,
    timeout: Option<Duration>,
    probe: Option<ProbeFn>,
    gate: Option<Gate>,
}

/// Whether something happened, as found out by asking the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe<T> {
    /// It did, with this result.
    Happened(T),
    /// It did not, and will not: it may be sent.
    DidNotHappen,
    /// That cannot be said: a person has to look.
    Unknown,
}

/// One execution of a step.
#[derive(Clone, Debug)]
pub struct Call {
    key: Arc<str>,
    attempt: u64,
    hold: Arc<Hold>,
    usage: Arc<Mutex<Usage>>,
}

impl Call {
    fn new(run: &Run, key: &str, attempt: u64) -> Call {
        Call {
            key: key.into(),
            attempt,
            hold: Arc::clone(&run.hold),
            usage: Arc::default(),
        }
    }

    /// The idempotency key: the same on every attempt, process and machine. Give it to the other
    /// side.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The fencing token: rises whenever another worker takes the run over. What a worker has sent
    /// that was stopped for longer than its lease may still arrive; another side that remembers the
    /// highest token of a run, and refuses lower ones, cannot be told anything by who was overtaken.
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// Whether this worker surely still has the run. To be asked right before something is sent, if
    /// the other side knows no tokens: a worker that was stopped in between may have been overtaken.
    pub fn is_held(&self) -> bool {
        self.hold.is_certain()
    }

    /// Says how many tokens the model read and wrote.
    pub fn tokens(&self, read: u64, written: u64) {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.tokens_in = usage.tokens_in.saturating_add(read);
        usage.tokens_out = usage.tokens_out.saturating_add(written);
    }

    /// Says what it cost, in millionths.
    pub fn cost_micros(&self, micros: u64) {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.cost_micros = usage.cost_micros.saturating_add(micros);
    }

    fn used(&self) -> Usage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StepCall {
    fn new(ctx: &Ctx, kind: StepKind, effect: Effect, name: &str) -> StepCall {
        StepCall {
            ctx: ctx.clone(),
            kind,
            effect,
            name: name.to_owned(),
            input: Ok(None),
            retry: Retry::NEVER,
            timeout: None,
            probe: None,
            gate: None,
        }
    }

    /// What it does to the world outside.
    pub fn effect(mut self, effect: Effect) -> StepCall {
        self.effect = effect;
        self
    }

    /// Nobody can notice it: it may run any number of times.
    pub fn read_only(self) -> StepCall {
        self.effect(Effect::ReadOnly)
    }

    /// The other side does it once for each [`Call::key`].
    pub fn idempotent(self) -> StepCall {
        self.effect(Effect::Idempotent)
    }

    /// It is never sent twice. If a crash leaves it in doubt, the [`StepCall::probe`] is asked, and
    /// else a person.
    pub fn once(self) -> StepCall {
        self.effect(Effect::Once)
    }

    /// What goes in: recorded, and compared when the step is replayed.
    pub fn input<I: Serialize + ?Sized>(mut self, input: &I) -> StepCall {
        self.input = encode(input).map(Some);
        self
    }

    /// How often it is tried. Only once unless this is said.
    pub fn retry(mut self, retry: Retry) -> StepCall {
        self.retry = retry;
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, limit: Duration) -> StepCall {
        self.timeout = Some(limit);
        self
    }

    /// How to find out whether it happened, by its key. It must not have an effect of its own. What
    /// it finds is of the same type as what the call gives.
    ///
    /// ```no_run
    /// use dalsegno::Probe;
    /// # async fn find(_key: &str) -> dalsegno::Result<Option<String>> { Ok(None) }
    /// # async fn send(_key: &str) -> dalsegno::Result<String> { Ok(String::new()) }
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let id: String = ctx.tool("send").once()
    ///     .probe(|call| async move {
    ///         Ok(match find(call.key()).await? {
    ///             Some(id) => Probe::Happened(id),
    ///             None => Probe::DidNotHappen,
    ///         })
    ///     })
    ///     .call(|call| async move { send(call.key()).await })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn probe<P, F, Fut>(mut self, probe: F) -> StepCall
    where
        P: Serialize,
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Probe<P>>> + Send + 'static,
    {
        self.probe = Some(Box::new(move |call| {
            let asked = probe(call);
            Box::pin(async move {
                Ok(match asked.await? {
                    Probe::Happened(result) => Probe::Happened(encode(&result)?),
                    Probe::DidNotHappen => Probe::DidNotHappen,
                    Probe::Unknown => Probe::Unknown,
                })
            })
        }));
        self
    }

    /// It is done only when a person has approved exactly this call.
    pub fn approval(mut self, gate: Gate) -> StepCall {
        self.gate = Some(gate);
        self
    }

    /// Makes the call. Its identity is fixed here, not when the future is polled.
    ///
    /// `code` runs only if the step has no outcome yet. It is called again if the step is tried
    /// again.
    pub fn call<T, F, Fut>(self, code: F) -> impl Future<Output = Result<T>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnMut(Call) -> Fut + Send,
        Fut: Future<Output = Result<T>> + Send,
    {
        let id = self.ctx.identify(&self.name);
        async move {
            let id = id?;
            self.drive(id, code).await
        }
    }

    // What is rare is in boxes of its own: the future of a step is allocated and written for each step, and
    // after a sync nothing of that is in a cache.
    async fn drive<T, F, Fut>(mut self, id: StepId, mut code: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnMut(Call) -> Fut + Send,
        Fut: Future<Output = Result<T>> + Send,
    {
        let ctx = self.ctx.clone();
        let input = match std::mem::replace(&mut self.input, Ok(None)) {
            Ok(input) => input,
            Err(failure) => return Err(failure.at(id.as_str())),
        };
        let mut approval = None;
        if let Some(gate) = &self.gate
            && (!ctx.run.is_begun(&id) || ctx.run.is_to_be_repeated_by_a_fork(&id))
        {
            let passed = Box::pin(ctx.pass(gate, &id, &self.name, input.as_ref()));
            approval = passed.await?;
        }
        let mut step = Step::new(id.clone(), self.kind, self.effect);
        step.input = input;
        step.approval = approval;
        step.in_plan = ctx.in_plan;
        let mut begun = ctx.run.begin(step).await;
        loop {
            begun = match begun {
                Err(stopped) => return ctx.frozen(stopped).await,
                Ok(Begun::Recorded(outcome)) => return ctx.recorded(&id, outcome).await,
                Ok(Begun::InDoubt(doubt)) => Box::pin(self.settle::<T>(doubt)).await,
                Ok(Begun::Execute(mut ticket)) => {
                    let call = Call::new(&self.ctx.run, &ticket.key, ticket.attempt);
                    // What the closure does before it gives its future may panic, too.
                    let executed = async { code(call.clone()).await };
                    let result = self.execute(executed).await;
                    ticket.used = call.used();
                    let value = match result {
                        Ok(value) => value,
                        Err(failure) => {
                            let failure = failure.at(id.as_str());
                            begun = Box::pin(self.failed::<T>(ticket, failure)).await?;
                            continue;
                        }
                    };
                    return self.succeeded(ticket, value).await;
                }
            };
        }
    }

    /// Runs the code, with its panics and its time under control.
    async fn execute<T>(&self, code: impl Future<Output = Result<T>>) -> Result<T> {
        let code = CatchPanic::new(code);
        let ended = match self.timeout {
            None => code.await,
            Some(limit) => {
                let runtime = &self.ctx.run.runtime;
                let until_us = self.ctx.due_us(limit);
                match race(code, runtime.sleep_until(until_us)).await {
                    Some(ended) => ended,
                    None => {
                        let why = format!("it took longer than {limit:?}");
                        let kind = FailureKind::TimedOut;
                        return Err(Failure::of(kind, Certainty::Unknown, why));
                    }
                }
            }
        };
        ended.unwrap_or_else(|panic| {
            let why = format!("its code panicked: {panic}");
            Err(Failure::of(FailureKind::Panicked, Certainty::Unknown, why))
        })
    }

    async fn succeeded<T>(&self, ticket: Ticket, value: T) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let (done, result) = match encode_and_read(&value) {
            Ok((output, read)) => {
                let (output, usage) = (Some(output), Usage::default());
                (Done::Succeeded { output, usage }, Ok(read))
            }
            Err(failure) => {
                let failure = failure.at(ticket.step.id.as_str());
                (Done::Failed(failure.clone()), Err(failure))
            }
        };
        match self.ctx.run.finish(ticket, done).await {
            Err(stopped) => self.ctx.frozen(stopped).await,
            Ok(Err(failure)) => Err(failure),
            Ok(Ok(())) => result,
        }
    }

    /// The code failed: what to do next, or the failure that the agent sees.
    async fn failed<T: DeserializeOwned>(
        &self,
        mut ticket: Ticket,
        failure: Failure,
    ) -> Result<std::result::Result<Begun, crate::run::Stopped>> {
        let run = &self.ctx.run;
        // What the other side did, nobody knows. A `once` step must not guess.
        if ticket.step.effect == Effect::Once && failure.certainty() == Certainty::Unknown {
            let mut active = ticket.active.take();
            if let Some(active) = active.take() {
                active.end();
            }
            let doubt = Doubt {
                attempt: ticket.attempt,
                key: ticket.key,
                begun_us: run.runtime.now_us(),
                why: failure.message().to_owned(),
                _active: Some(crate::run::Active::new(run)),
                step: ticket.step,
            };
            return Ok(self.settle::<T>(doubt).await);
        }
        let wait = match failure.certainty() {
            Certainty::Terminal => None,
            _ => self.retry.wait(ticket.attempt, &ticket.key),
        };
        let Some(wait) = wait else {
            return match run.finish(ticket, Done::Failed(failure.clone())).await {
                Err(stopped) => Ok(Err(stopped)),
                Ok(Err(failure)) => Err(failure),
                Ok(Ok(())) => Err(failure),
            };
        };
        let at_us = self.ctx.due_us(wait.max(Duration::from_micros(1)));
        let (step, attempt) = (ticket.step.clone(), ticket.attempt);
        match run.finish(ticket, Done::FailedForNow(failure, at_us)).await {
            Err(stopped) => return Ok(Err(stopped)),
            Ok(Err(failure)) => return Err(failure),
            Ok(Ok(())) => self.ctx.host.timer_set(at_us),
        }
        if let Err(stopped) = run.wait_for_retry(&step, at_us).await {
            return Ok(Err(stopped));
        }
        Ok(run.intend(step, attempt + 1).await)
    }

    /// Finds out whether a step in doubt happened: by its probe, or by a person.
    async fn settle<T: DeserializeOwned>(
        &self,
        mut doubt: Doubt,
    ) -> std::result::Result<Begun, crate::run::Stopped> {
        let run = &self.ctx.run;
        let Some(probe) = &self.probe else {
            return Err(run.escalate(&doubt));
        };
        let call = Call::new(run, &doubt.key, doubt.attempt);
        let until_us = self.ctx.due_us(self.timeout.unwrap_or(PROBE_LIMIT));
        let sleep = run.runtime.sleep_until(until_us);
        let asked = race(CatchPanic::new(async { probe(call).await }), sleep).await;
        let unclear = match asked {
            Some(Ok(Ok(Probe::Happened(result)))) => {
                // What could not be read back would stop the run for ever once it is recorded.
                match serde_json::from_slice::<T>(&result.bytes) {
                    Ok(_) => {
                        let (verdict, result) = (Verdict::Happened, Some(result));
                        return run.resolve(doubt, verdict, result, "probe").await;
                    }
                    Err(e) => {
                        let wanted = std::any::type_name::<T>();
                        format!("what the probe found cannot be read as {wanted}: {e}")
                    }
                }
            }
            Some(Ok(Ok(Probe::DidNotHappen))) => return self.not_happened(doubt).await,
            Some(Ok(Ok(Probe::Unknown))) => "the probe cannot tell".to_owned(),
            Some(Ok(Err(failure))) => format!("the probe failed: {}", failure.message()),
            Some(Err(panic)) => format!("the probe panicked: {panic}"),
            None => "the probe took too long".to_owned(),
        };
        doubt.why = format!("{}; {unclear}", doubt.why);
        Err(run.escalate(&doubt))
    }

    /// The probe says that it may be sent. In a fork a person has to approve that first, if one had
    /// to in the origin: answers are not inherited.
    async fn not_happened(
        &self,
        mut doubt: Doubt,
    ) -> std::result::Result<Begun, crate::run::Stopped> {
        let (ctx, run) = (&self.ctx, &self.ctx.run);
        if let Some(gate) = &self.gate
            && run.is_unapproved_in_a_fork(&doubt.step.id)
        {
            // The run only waits, and may leave memory; the probe is asked again then.
            doubt._active = None;
            let (step, name) = (&doubt.step, &self.name);
            match ctx.pass(gate, &step.id, name, step.input.as_ref()).await {
                Ok(approval) => doubt.step.approval = approval,
                Err(failure) => return Ok(Begun::Recorded(Outcome::Failed(failure))),
            }
        }
        run.resolve(doubt, Verdict::DidNotHappen, None, "probe")
            .await
    }
}

/// What the first one gives, unless the second is faster.
async fn race<T>(first: impl Future<Output = T>, mut second: BoxFuture<'static, ()>) -> Option<T> {
    let mut first = std::pin::pin!(first);
    std::future::poll_fn(|context| {
        use std::task::Poll;
        if let Poll::Ready(value) = first.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        second.as_mut().poll(context).map(|()| None)
    })
    .await
}
