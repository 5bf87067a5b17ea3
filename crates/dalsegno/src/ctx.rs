//! What an agent's code has in its hand.
//!
//! Every method that does something is a step: recorded once, handed back from the record ever
//! after. A step's identity is fixed when the method is called, before anything is awaited.
//!
//! Invariant: if the run stops here (a doubt, a mismatch, another worker, a closing process), the
//! code never hears of it. Its future stays pending and is dropped, so that no `match` on an error
//! can lead it on.

use std::fmt;
use std::sync::Arc;

use dalsegno_store::{NewPayload, Payload, StreamId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attention::{Attention, AttentionKind};
use crate::effect::Effect;
use crate::failure::{Certainty, Failure, FailureKind, Result};
use crate::journal::{Outcome, bytes_of};
use crate::resource::Validators;
use crate::run::{Active, NotRecorded, Run, Step, Stopped};
use crate::step::StepId;

mod approval;
mod call;
mod catch;
mod checkpoint;
mod child;
mod conversation;
#[cfg(feature = "memory")]
mod embed;
#[cfg(feature = "memory")]
mod memory;
mod plan;
mod retry;
mod values;
mod waits;

pub use approval::{Answer, ApprovalWait, Gate};
pub use call::{Call, Probe, StepCall};
pub use checkpoint::CheckpointCall;
pub use child::ChildRun;
pub use conversation::Conversation;
pub(crate) use conversation::Said;
#[cfg(feature = "memory")]
pub use embed::{EMBED_LIMIT_BYTES, EMBED_LIMIT_TEXTS};
#[cfg(feature = "memory")]
pub use memory::{Found, FoundDocument, FoundHit, RunMemory};
pub use retry::Retry;
pub use waits::{SignalWait, SignalWaitFor};

pub(crate) use catch::{CatchPanic, words as panic_words};

/// What a run needs of the process that it is in.
pub(crate) trait Host: Send + Sync {
    /// A timer was set.
    fn timer_set(&self, due_us: u64);
    /// Something was recorded for another run.
    fn recorded_for(&self, run: &StreamId);
    /// Whether an agent is a loop; `None` if there is no such agent.
    fn is_loop(&self, agent: &str) -> Option<bool>;
    /// How resources of the user's own are looked at.
    fn validators(&self) -> Validators {
        Validators::default()
    }
}

/// A run as its agent sees it.
///
/// Cheap to clone; all clones are of the same run, and each scope counts its own steps. Tasks that the
/// code spawns get a [`Ctx::branch`] each, and have to be awaited by it: a run that waits leaves
/// memory with its code, and what a task does alone after that is neither executed nor recorded.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) run: Arc<Run>,
    pub(crate) host: Arc<dyn Host>,
    scope: Arc<str>,
    in_plan: bool,
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ctx({} {})", self.run.id(), self.scope)
    }
}

impl Ctx {
    pub(crate) fn new(run: Arc<Run>, host: Arc<dyn Host>) -> Ctx {
        Ctx {
            run,
            host,
            scope: "".into(),
            in_plan: false,
        }
    }

    /// The run's name.
    pub fn run_id(&self) -> &str {
        self.run.id().name()
    }

    /// The same run, in another scope.
    fn scoped(&self, scope: impl Into<Arc<str>>) -> Ctx {
        Ctx {
            scope: scope.into(),
            ..self.clone()
        }
    }

    /// Fixes an identity.
    fn identify(&self, name: &str) -> Result<StepId> {
        self.run.call(&self.scope, name).map_err(misuse)
    }

    /// The run stops here: the code that asked never hears of it.
    async fn frozen<T>(&self, why: Stopped) -> T {
        self.run.stop(why);
        std::future::pending().await
    }

    /// What something recorded is, as the type that the code wants.
    async fn read<T: DeserializeOwned>(&self, id: &StepId, payload: Option<&Payload>) -> T {
        let bytes = match payload {
            None => b"null".to_vec(),
            Some(payload) => {
                let _active = Active::new(&self.run);
                match bytes_of(&*self.run.store, payload).await {
                    Ok(bytes) => bytes,
                    Err(e) => return self.frozen(Stopped::Store(e.to_string())).await,
                }
            }
        };
        self.decode(id, &bytes).await
    }

    async fn decode<T: DeserializeOwned>(&self, id: &StepId, bytes: &[u8]) -> T {
        match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(e) => {
                let wanted = std::any::type_name::<T>();
                self.unreadable(id, wanted, &e.to_string()).await
            }
        }
    }

    /// What is recorded is not what the code wants: the run stops here.
    async fn unreadable<T>(&self, id: &StepId, wanted: &str, why: &str) -> T {
        let reason = format!(
            "what is recorded for {id} cannot be read as {wanted}: {why}: bring the old type back, \
             or one that reads both"
        );
        let attention = Attention::new(AttentionKind::Mismatch, reason).at(id);
        self.frozen(Stopped::Attention(attention)).await
    }

    /// What is recorded of a step, as the code wants it.
    async fn recorded<T: DeserializeOwned>(&self, id: &StepId, outcome: Outcome) -> Result<T> {
        match outcome {
            Outcome::Succeeded(payload) => Ok(self.read(id, payload.as_ref()).await),
            Outcome::Failed(failure) => Err(failure),
        }
    }

    /// The outcome of a step, if it has one, when it is its turn to be seen.
    async fn outcome(&self, id: &StepId) -> Option<Outcome> {
        self.run.in_turn(id).await;
        let mut state = self.run.state();
        let outcome = state.journal.steps.get(id).and_then(|s| s.outcome.clone());
        if outcome.is_some() {
            state.replayed += 1;
            state.shown(id);
        }
        outcome
    }

    /// Records events of which the last is the outcome of a step without an intent, and waits by the
    /// rule.
    async fn settle(
        &self,
        id: &StepId,
        kind: crate::step::StepKind,
        events: Vec<dalsegno_store::NewEvent>,
    ) -> Result<()> {
        let showing = self.run.showing(id, kind);
        if let Err(refused) = self.record(id, events).await {
            showing.not_recorded();
            return Err(refused);
        }
        self.committed().await;
        showing.seen();
        Ok(())
    }

    /// Records events; what is too large is a failure of the step.
    async fn record(&self, id: &StepId, events: Vec<dalsegno_store::NewEvent>) -> Result<u64> {
        match self.run.record(events).await {
            Ok(head) => Ok(head),
            Err(NotRecorded::Stopped(stopped)) => self.frozen(stopped).await,
            Err(NotRecorded::Refused(why)) => Err(too_large(id, why)),
        }
    }

    /// Stops the run if what is recorded of a step is of another kind.
    async fn expect_kind(&self, id: &StepId, kind: crate::step::StepKind) {
        self.run.at_step(id, kind, None).await;
        let found = {
            let state = self.run.state();
            state
                .journal
                .steps
                .get(id)
                .map(|step| (step.kind, step.first))
        };
        let Some((then, first)) = found.filter(|(then, _)| *then != kind) else {
            return;
        };
        let reason = format!(
            "the code does something else than what is recorded at {id} (event {first}): recorded a \
             {then}, now a {kind}: nothing was executed; bring the old code back, or branch on \
             ctx.patched"
        );
        let attention = Attention::new(AttentionKind::Mismatch, reason).at(id);
        self.frozen(Stopped::Attention(attention)).await
    }
}

impl Ctx {
    /// Stops the run if what is recorded of a step went in with something else.
    async fn expect_input(
        &self,
        id: &StepId,
        kind: crate::step::StepKind,
        input: Option<&NewPayload>,
    ) {
        let mut step = Step::new(id.clone(), kind, Effect::ReadOnly);
        step.input = input.cloned();
        if let Some(attention) = self.run.mismatch(&step) {
            self.frozen(Stopped::Attention(attention)).await
        }
    }
}

/// A value as JSON.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<NewPayload> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(NewPayload::new("application/json", bytes)),
        Err(e) => {
            let what = std::any::type_name::<T>();
            let why = format!("a {what} cannot be written as JSON: {e}");
            Err(Failure::of(FailureKind::Encoding, Certainty::Terminal, why))
        }
    }
}

/// A value as JSON, and as it is read from there: what the code sees now is what it will see at every
/// replay, and what cannot be read back is found now and not after a crash.
pub(crate) fn encode_and_read<T>(value: &T) -> Result<(NewPayload, T)>
where
    T: Serialize + DeserializeOwned,
{
    let written = encode(value)?;
    match serde_json::from_slice(&written.bytes) {
        Ok(read) => Ok((written, read)),
        Err(e) => {
            let what = std::any::type_name::<T>();
            let why = format!("a {what} that was written as JSON cannot be read back: {e}");
            Err(Failure::of(FailureKind::Encoding, Certainty::Terminal, why))
        }
    }
}

fn misuse(why: String) -> Failure {
    Failure::of(FailureKind::Misuse, Certainty::Terminal, why)
}

fn too_large(id: &StepId, why: String) -> Failure {
    Failure::of(FailureKind::TooLarge, Certainty::Terminal, why).at(id.as_str())
}
