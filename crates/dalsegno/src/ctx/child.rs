//! Runs that a run starts.
//!
//! Invariants: the child and the step that started it are recorded in one append, and so are the
//! child's end and the step's outcome. So there is never a child without a parent that knows it,
//! nor a result that got lost on its way.

use std::future::IntoFuture;
use std::marker::PhantomData;

use dalsegno_store::{Append, Fields, Kind, NewEvent, NewPayload, StreamId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, encode, misuse};
use crate::effect::Effect;
use crate::failure::{Failure, Result};
use crate::record;
use crate::run::{NotRecorded, Sight, Wait};
use crate::runtime::BoxFuture;
use crate::start::Start;
use crate::step::{StepId, StepKind};

/// The longest name of a run, in bytes; the store's limit.
const NAME_LIMIT_BYTES: usize = dalsegno_store::NAME_LIMIT_BYTES;

/// A run to be started by this one; [`Ctx::child`] makes it.
#[must_use = "it is not started before it is awaited"]
pub struct ChildRun<T> {
    ctx: Ctx,
    id: Result<StepId>,
    sight: Option<Sight>,
    agent: String,
    name: Option<String>,
    input: Result<NewPayload>,
    result: PhantomData<fn() -> T>,
}

impl Ctx {
    /// Starts a run of another agent and waits for its result. While it waits, this run costs
    /// nothing.
    ///
    /// ```no_run
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let summary: String = ctx.child("summarise", &"a long text").await?;
    /// # Ok(()) }
    /// ```
    pub fn child<T, I>(&self, agent: &str, input: &I) -> ChildRun<T>
    where
        T: DeserializeOwned + Send,
        I: Serialize + ?Sized,
    {
        let id = self.identify(agent);
        ChildRun {
            ctx: self.clone(),
            sight: id.as_ref().ok().map(|id| self.run.sight(id)),
            id,
            agent: agent.to_owned(),
            name: None,
            input: encode(input),
            result: PhantomData,
        }
    }
}

impl<T: DeserializeOwned + Send> ChildRun<T> {
    /// Under a name of the caller's, instead of one made from this run's and the step's.
    pub fn named(mut self, name: &str) -> ChildRun<T> {
        self.name = Some(name.to_owned());
        self
    }

    async fn wait(mut self) -> Result<T> {
        // Until the result is read, nothing that came later is seen.
        let _sight = self.sight.take();
        let (ctx, id) = (self.ctx.clone(), self.id.clone()?);
        ctx.expect_kind(&id, StepKind::Child).await;
        ctx.expect_input(&id, StepKind::Child, self.input.as_ref().ok())
            .await;
        let known = ctx.run.state().journal.steps.contains_key(&id);
        if !known {
            ctx.run.replayed(|| format!("child {id}")).await;
            self.start(&ctx, &id).await?;
        }
        let wait = Wait {
            step: id.clone(),
            what: format!("child {id}"),
            due_us: None,
        };
        let outcome = ctx.run.until(wait, |state| state.see(&id)).await;
        ctx.recorded(&id, outcome).await
    }

    async fn start(&self, ctx: &Ctx, id: &StepId) -> Result<()> {
        let Some(is_loop) = ctx.host.is_loop(&self.agent) else {
            // Recorded: the next process may have it, and must not take another way.
            let why = format!("there is no agent {:?} here: register it", self.agent);
            return Err(self.not_started(ctx, id, misuse(why)).await);
        };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => child_name(ctx.run_id(), id),
        };
        let child = StreamId::run(&name).map_err(|e| misuse(e.to_string()))?;
        let mut fields = Fields::new()
            .with(record::created::AGENT, self.agent.as_str())
            .with(record::created::PARENT, ctx.run.id().to_string())
            .with(record::created::PARENT_STEP, id.as_str());
        if is_loop {
            fields = fields.with(record::created::LOOP, 1);
        }
        let start = {
            let parent = &ctx.run.state().journal.created;
            Start::of_child(&parent.queue, parent.priority)
        };
        let fields = start.add_to(fields);
        let input = self.input.clone()?;
        let created = NewEvent::new(Kind::RunCreated).with_fields(fields);
        let created = created.with_input(input.clone());
        let create = Append::to(child.clone(), vec![created]).expecting(0);
        let intent = record::intended(id, StepKind::Child, Effect::ReadOnly, 1, Some(input));
        let mut intent = intent;
        intent.fields = intent.fields.with(record::step::CHILD, child.to_string());
        match ctx.run.send(vec![intent], create).await {
            Ok(()) => {}
            Err(NotRecorded::Stopped(stopped)) => return ctx.frozen(stopped).await,
            Err(NotRecorded::Refused(why)) => {
                let failure = misuse(format!("{child} was not started: {why}"));
                return Err(self.not_started(ctx, id, failure).await);
            }
        }
        ctx.committed().await;
        ctx.host.recorded_for(&child);
        Ok(())
    }

    /// Records that it was not started, and why.
    async fn not_started(&self, ctx: &Ctx, id: &StepId, failure: Failure) -> Failure {
        let failure = failure.at(id.as_str());
        let event = record::failed(id, StepKind::Child, &failure, None);
        match ctx.record(id, vec![event]).await {
            Ok(_) => failure,
            Err(refused) => refused,
        }
    }
}

/// A child's name: the parent's and the step's, or a hash of them if that is too long.
fn child_name(parent: &str, id: &StepId) -> String {
    let path = id.as_str().replace('/', ".").replace('#', "-");
    let name = format!("{parent}.{path}");
    if name.len() <= NAME_LIMIT_BYTES {
        return name;
    }
    let hash = blake3::hash(name.as_bytes()).to_hex();
    let mut end = NAME_LIMIT_BYTES - 33;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}.{}", &name[..end], &hash.as_str()[..32])
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for ChildRun<T> {
    type Output = Result<T>;
    type IntoFuture = BoxFuture<'static, Result<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}
