//! Written states: where the code says so, and at the end of each turn of a loop.
//!
//! Invariant: a checkpoint and the resources that are noted with it are one append, and on disk
//! before the code goes on.

use std::future::IntoFuture;

use dalsegno_store::{Fields, Kind, NewEvent, NewPayload, Value};
use serde::Serialize;

use super::{Ctx, encode};
use crate::failure::{Certainty, Failure, FailureKind, Result};
use crate::record;
use crate::resource::Resource;
use crate::run::{Active, NotRecorded, Stopped};
use crate::runtime::BoxFuture;
use crate::step::{StepId, StepKind};

/// So many of the steps under way are named in a checkpoint.
const PENDING_LIMIT: usize = 64;

/// A checkpoint in the making; [`Ctx::checkpoint`] makes it.
#[must_use = "nothing is written before it is awaited"]
pub struct CheckpointCall {
    ctx: Ctx,
    id: Result<StepId>,
    state: Result<NewPayload>,
    progress: Option<(u64, u64)>,
    pinned: bool,
    noted: Vec<Resource>,
    released: Vec<Resource>,
}

impl Ctx {
    /// Marks a place, with whatever state shows what the run knows here: for people, for
    /// forks, and before something dangerous. It is on disk when this returns.
    ///
    /// Resources that are noted are looked at again before the run is resumed:
    ///
    /// ```no_run
    /// use dalsegno::Resource;
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// ctx.checkpoint("written", &"three chapters")
    ///     .step(3, 12)
    ///     .holding(Resource::file("book.md"))
    ///     .holding(Resource::git("."))
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn checkpoint<T>(&self, name: &str, state: &T) -> CheckpointCall
    where
        T: Serialize + ?Sized,
    {
        CheckpointCall {
            ctx: self.clone(),
            id: self.identify(name),
            state: encode(state),
            progress: None,
            pinned: false,
            noted: Vec::new(),
            released: Vec::new(),
        }
    }

    /// The run does not depend on a resource any more.
    pub fn release_resource(
        &self,
        resource: Resource,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let (ctx, id) = (self.clone(), self.identify("release"));
        async move {
            let id = id?;
            ctx.expect_kind(&id, StepKind::Checkpoint).await;
            if ctx.outcome(&id).await.is_some() {
                return Ok(());
            }
            ctx.run.replayed(|| format!("checkpoint {id}")).await;
            let done = record::succeeded(&id, StepKind::Checkpoint, None);
            let events = vec![resource.released(), done];
            ctx.settle(&id, StepKind::Checkpoint, events).await
        }
    }

    /// The scope of a loop's turn, from 1.
    pub(crate) fn turn(&self, turn: u64) -> Ctx {
        self.run.new_turn();
        self.scoped(format!("@{turn}"))
    }

    /// Writes the state after a turn: from here on nothing before it is needed.
    pub(crate) async fn end_turn(&self, turn: u64, state: NewPayload) -> Result<()> {
        if self.run.is_replay() {
            self.run.at_turn_end(turn, state).await;
            return Ok(());
        }
        if self.is_redone(turn) {
            return Ok(());
        }
        self.run.replayed(|| format!("end of turn {turn}")).await;
        let is_settled = self.run.settled().await;
        if let Some(stopped) = self.run.stopped().filter(|_| !is_settled) {
            return self.frozen(stopped).await;
        }
        let carry = self.run.carry().to_json();
        let session = self.run.state().journal.session.clone();
        let mut fields = Fields::new().with(record::checkpoint::TURN, turn);
        if let Some(session) = session {
            fields = fields.with(record::checkpoint::SESSION, session);
        }
        let event = NewEvent::new(Kind::CheckpointWritten).with_fields(fields);
        let event = event.with_input(NewPayload::json(carry)).with_output(state);
        match self.run.record(vec![event]).await {
            Ok(_) => {}
            Err(NotRecorded::Stopped(stopped)) => return self.frozen(stopped).await,
            Err(NotRecorded::Refused(why)) => {
                let why = format!("the state after turn {turn} cannot be recorded: {why}");
                return Err(super::misuse(why));
            }
        }
        self.committed().await;
        Ok(())
    }

    /// Whether a turn was recorded before, and only made again because its state cannot be read.
    /// What is recorded behind it must stay behind it, so nothing is written.
    fn is_redone(&self, turn: u64) -> bool {
        let mut state = self.run.state();
        let journal = &mut state.journal;
        // A step that the code has not come to is a mismatch, which is found as always.
        if turn > journal.redo_until || !journal.has_called_turn(turn) {
            return false;
        }
        journal.forget_redone_turn(turn);
        true
    }
}

impl CheckpointCall {
    /// Which step of the task this is, of how many.
    pub fn step(mut self, at: u64, of: u64) -> CheckpointCall {
        self.progress = Some((at, of));
        self
    }

    /// The run depends on this from here on, as it is now. It is looked at again before the run is
    /// resumed, until it is noted anew or released.
    pub fn holding(mut self, resource: Resource) -> CheckpointCall {
        self.noted.push(resource);
        self
    }

    /// The run does not depend on this any more.
    pub fn releasing(mut self, resource: Resource) -> CheckpointCall {
        self.released.push(resource);
        self
    }

    /// Keeps it in sight for looking at, however many follow.
    pub fn pin(mut self) -> CheckpointCall {
        self.pinned = true;
        self
    }

    async fn write(self) -> Result<()> {
        let (ctx, id) = (&self.ctx, self.id.clone()?);
        let state = self.state.clone().map_err(|f| f.at(id.as_str()))?;
        ctx.expect_kind(&id, StepKind::Checkpoint).await;
        if let Some(outcome) = ctx.outcome(&id).await {
            ctx.same_content(&id, Some(&state)).await;
            return ctx.recorded(&id, outcome).await;
        }
        ctx.run.replayed(|| format!("checkpoint {id}")).await;
        if ctx.run.is_replay() {
            return ctx.frozen(Stopped::EndOfRecord).await;
        }
        let mut events = match self.resources(&id).await {
            Ok(events) => events,
            Err(failure) => {
                // The code goes on with it, so it must be the same ever after.
                let failed = record::failed(&id, StepKind::Checkpoint, &failure, None);
                ctx.settle(&id, StepKind::Checkpoint, vec![failed]).await?;
                return Err(failure);
            }
        };
        let event = NewEvent::new(Kind::CheckpointWritten).with_fields(self.fields(&id));
        events.push(event.with_output(state));
        let showing = ctx.run.showing(&id, StepKind::Checkpoint);
        if let Err(refused) = ctx.record(&id, events).await {
            showing.not_recorded();
            return Err(refused);
        }
        match ctx.run.durable().await {
            Ok(()) => {
                showing.seen();
                Ok(())
            }
            Err(stopped) => ctx.frozen(stopped).await,
        }
    }

    /// The events that go with it.
    async fn resources(&self, id: &StepId) -> Result<Vec<NewEvent>> {
        let _active = Active::new(&self.ctx.run);
        let validators = self.ctx.host.validators();
        let mut events: Vec<_> = self.released.iter().map(Resource::released).collect();
        for resource in &self.noted {
            match resource.look(&validators, &*self.ctx.run.runtime).await {
                Ok(found) => events.push(resource.noted(&found)),
                Err(why) => {
                    let why = format!("{} cannot be noted: {why}", resource.key());
                    let failure = Failure::of(FailureKind::Misuse, Certainty::NotDone, why);
                    return Err(failure.at(id.as_str()));
                }
            }
        }
        Ok(events)
    }

    fn fields(&self, id: &StepId) -> Fields {
        let mut fields = Fields::new().with(record::checkpoint::STEP, id.as_str());
        if let Some((at, of)) = self.progress {
            fields = fields.with(record::checkpoint::AT, at);
            fields = fields.with(record::checkpoint::OF, of);
        }
        if self.pinned {
            fields = fields.with(record::checkpoint::PINNED, 1);
        }
        let state = self.ctx.run.state();
        let open = state.journal.open_steps().into_iter().take(PENDING_LIMIT);
        let open: Vec<Value> = open.map(|(id, _)| Value::Text(id.to_string())).collect();
        if !open.is_empty() {
            fields = fields.with(record::checkpoint::PENDING, Value::List(open));
        }
        if let Some(session) = &state.journal.session {
            fields = fields.with(record::checkpoint::SESSION, session.as_str());
        }
        fields
    }
}

impl IntoFuture for CheckpointCall {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'static, Result<()>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.write())
    }
}
