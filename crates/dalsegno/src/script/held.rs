//! A run whose code is a script, in the hands of a worker: the steps are asked for by processes that
//! the worker has started, and recorded under the lease that it holds all the time.
//!
//! The engine claims, renews, hands over and ends such a run as it does any other
//! ([`crate::Builder::script`]); only what the code is, is different. As of every script, a name stands
//! for one step, and nobody can tell whether the script has come to everything that is recorded.
//!
//! Invariant: the run is not left while a step of it is under way ([`Busy`]), unless it is not in the
//! worker's hands any more. What was begun since the run was read is read again before it is judged.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dalsegno_store::{NewPayload, Status};

use super::{Asked, Came, Permit, recorded, stopped_by_store};
use crate::agent::Agent;
use crate::attention::{Attention, AttentionKind};
use crate::ctx::Ctx;
use crate::effect::Effect;
use crate::error::Error;
use crate::failure::Result as StepResult;
use crate::journal::{self, Outcome};
use crate::run::{self, Active, Begun, Doubt, Run, Step, Stopped};
use crate::runtime::BoxFuture;
use crate::step::{StepId, StepKind};

/// A run whose code is a script, in the hands of this process.
#[derive(Clone)]
pub struct ScriptRun {
    run: Arc<Run>,
    /// Steps that were begun since the run was read: the journal in memory does not know what they
    /// came to.
    begun: Arc<Mutex<HashSet<StepId>>>,
}

impl fmt::Debug for ScriptRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptRun({})", self.run.id())
    }
}

/// While this is kept the run is not let go of, unless somebody else has it.
pub struct Busy {
    pub(super) run: Arc<Run>,
    _active: Active,
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Busy({})", self.run.id())
    }
}

impl Busy {
    /// With a `once` step also a run that is cancelled is not left before it is finished.
    fn new(run: &Arc<Run>, once: bool) -> Busy {
        let mut active = Active::new(run);
        if once {
            active.is_once();
        }
        Busy {
            run: Arc::clone(run),
            _active: active,
        }
    }

    /// An intent is recorded: whether it may be acted on.
    pub(super) async fn may_begin(&self) -> Result<(), Error> {
        self.run.durable().await.map_err(stopped_by_store)?;
        self.run.make_certain().await.map_err(stopped_by_store)
    }

    pub(super) fn stop_for(&self, attention: &Attention) {
        self.run.stop(Stopped::Attention(attention.clone()));
    }
}

impl ScriptRun {
    fn new(run: Arc<Run>) -> ScriptRun {
        {
            // Nobody can tell whether a script has come to everything: there is nothing to wait for.
            let journal = &mut run.state().journal;
            journal.remaining = 0;
            (journal.unseen, journal.order) = Default::default();
        }
        ScriptRun {
            run,
            begun: Arc::default(),
        }
    }

    /// The run's name.
    pub fn name(&self) -> &str {
        self.run.id().name()
    }

    /// Why the run does not go on here, if it does not.
    pub fn stopped(&self) -> Option<Stopped> {
        self.run.stopped()
    }

    /// Keeps the run from being let go of: for who has to answer first.
    pub fn busy(&self) -> Busy {
        Busy::new(&self.run, true)
    }

    /// Begins a step of the script. To be called for one step at a time. When this returns, all that
    /// has to be is durable.
    ///
    /// # Errors
    /// The store, somebody else has the run, or a name that cannot be one.
    pub async fn ask(&self, name: &str, effect: Effect, input: NewPayload) -> Result<Asked, Error> {
        let _busy = self.busy();
        let mut step = super::step(name, effect, input)?;
        if self.begun().contains(&step.id) {
            self.learn().await?;
        }
        let found = self.run.state().journal.steps.get(&step.id).cloned();
        let known = recorded(&*self.run.store, self.run.id(), found.as_ref(), &step).await?;
        if let Some(known) = known {
            return Ok(known);
        }
        if let Some(stopped) = self.run.stopped() {
            return answer(stopped);
        }
        // What was recorded decides what may be done, not what the script says now.
        if let Some(found) = found {
            step.effect = found.effect;
        }
        self.begun().insert(step.id.clone());
        self.begin(step).await
    }

    async fn begin(&self, step: Step) -> Result<Asked, Error> {
        let run = &self.run;
        let input = step.input.as_ref().map(run::shown_new).unwrap_or_default();
        let (id, effect) = (step.id.clone(), step.effect);
        let permit = |attempt, key, begun_us| Permit {
            run: run.id().clone(),
            step: id.clone(),
            effect,
            attempt,
            key,
            token: run.hold.token,
            input,
            begun_us,
            held: Some(Arc::new(Busy::new(run, effect == Effect::Once))),
        };
        match run.begin(step).await {
            Ok(Begun::Execute(mut ticket)) => {
                // Whoever was to do it may vanish: that is a matter for the next one who asks.
                if let Some(active) = ticket.active.take() {
                    active.end();
                }
                let now_us = run.runtime.now_us();
                let permit = permit(ticket.attempt, std::mem::take(&mut ticket.key), now_us);
                run.durable().await.map_err(stopped_by_store)?;
                Ok(Asked::Execute(permit))
            }
            Ok(Begun::InDoubt(doubt)) => {
                let permit = permit(doubt.attempt, doubt.key.clone(), doubt.begun_us);
                Ok(Asked::InDoubt(permit, doubt.why.clone()))
            }
            // What it was to do was too large to be recorded.
            Ok(Begun::Recorded(outcome)) => Ok(Asked::Recorded(Came {
                step: id,
                attempts: 0,
                failure: match outcome {
                    Outcome::Failed(failure) => Some(failure),
                    Outcome::Succeeded(_) => None,
                },
                output: None,
            })),
            Err(stopped) => answer(stopped),
        }
    }

    /// The first step that was begun and of which nobody knows how it ended.
    ///
    /// # Errors
    /// The store.
    pub async fn unfinished(&self) -> Result<Option<StepId>, Error> {
        let _busy = self.busy();
        self.learn().await?;
        let state = self.run.state();
        let open = state.journal.open_steps();
        Ok(open.first().map(|(id, _)| (*id).clone()))
    }

    /// Hands the run to a person: because of a `once` step of which nobody knows whether it happened,
    /// if there is one, else for the reason that is given. Does not come back.
    pub async fn hand_to_person<T>(&self, kind: AttentionKind, reason: &str) -> T {
        // If it cannot be read, the reason that is given is as good.
        drop(self.learn().await);
        let doubt = {
            let state = self.run.state();
            let mut open = state.journal.open_steps().into_iter();
            let once = open.find(|(_, step)| step.effect == Effect::Once);
            once.map(|(id, found)| Doubt {
                attempt: found.attempts,
                key: state.journal.key_of(id),
                begun_us: found.begun_us,
                why: run::PROCESS_ENDED.to_owned(),
                step: Step::new(id.clone(), StepKind::Tool, Effect::Once),
                _active: None,
            })
        };
        match doubt {
            Some(doubt) => self.run.escalate(&doubt),
            None => {
                let attention = Attention::new(kind, reason);
                self.run.stop(Stopped::Attention(attention))
            }
        };
        std::future::pending().await
    }

    /// Reads the run again.
    async fn learn(&self) -> Result<(), Error> {
        loop {
            let journal = journal::load(&*self.run.store, self.run.id(), None).await?;
            // Something may have come while it was read.
            if self.run.state().relearn(journal) {
                self.begun().clear();
                return Ok(());
            }
        }
    }

    fn begun(&self) -> MutexGuard<'_, HashSet<StepId>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a script is told that asks for a step of a run that does not go on here.
fn answer(stopped: Stopped) -> Result<Asked, Error> {
    match stopped {
        Stopped::Attention(attention) => Ok(Asked::NeedsPerson(attention)),
        Stopped::Cancelled(_) => Ok(Asked::Ended(Status::Cancelled)),
        Stopped::Failed(_) => Ok(Asked::Ended(Status::Failed)),
        Stopped::Closing => Ok(Asked::Stopping),
        stopped => Err(stopped_by_store(stopped)),
    }
}

/// An agent that is a script.
pub(crate) struct Script<F>(pub F);

impl<F, Fut> Agent for Script<F>
where
    F: Fn(ScriptRun, Vec<u8>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = StepResult<NewPayload>> + Send + 'static,
{
    fn run(&self, ctx: Ctx, input: Vec<u8>) -> BoxFuture<'static, StepResult<NewPayload>> {
        if ctx.run.is_replay() {
            // What a script would do cannot be seen without doing it.
            ctx.run.stop(Stopped::EndOfRecord);
            return Box::pin(std::future::pending());
        }
        Box::pin((self.0)(ScriptRun::new(ctx.run), input))
    }

    fn is_loop(&self) -> bool {
        false
    }
}
