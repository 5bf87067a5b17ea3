//! Starting runs, and taking up those that a process before has left.

use std::sync::Weak;
use std::task::Poll;

use dalsegno_store::{NewPayload, RunInfo, StreamId};

use super::Engine;
use crate::error::Error;
use crate::recovery::plan::{self, Found};
use crate::recovery::{Recovered, RecoveryAction};
use crate::start::{self, Start};

/// Runs looked at before others get their turn.
const AT_ONCE: usize = 32;

impl Engine {
    /// Starts a run, or finds the one of this name.
    pub(super) async fn start(
        &self,
        agent: &str,
        name: &str,
        input: NewPayload,
        start: &Start,
    ) -> Result<StreamId, Error> {
        if self.is_closing() {
            return Err(Error::Closed);
        }
        let id = StreamId::run(name)?;
        let Some(found) = self.agents.get(agent) else {
            return Err(self.no_agent(agent));
        };
        let agent = (agent, found.is_loop());
        if start::create(&*self.store, &id, agent, input, start).await? {
            self.launch(&id);
        }
        Ok(id)
    }

    pub(crate) fn no_agent(&self, agent: &str) -> Error {
        Error::AgentNotFound {
            agent: agent.to_owned(),
            known: self.known_agents(),
        }
    }

    /// The agents that are registered, in words.
    pub(super) fn known_agents(&self) -> String {
        let mut known: Vec<_> = self.agents.keys().map(String::as_str).collect();
        known.sort_unstable();
        match known.is_empty() {
            true => "none".to_owned(),
            false => known.join(", "),
        }
    }

    /// Takes up every run that has not ended and can go on, and says of each what was done with it
    /// and why. Runs that are written down are looked at in the background, so that ten thousand
    /// that wait do not hold up the opening.
    ///
    /// Of a store that others use, too, runs are claimed one by one instead.
    pub(super) async fn take_up(&self) -> Result<(), Error> {
        if self.claims.is_some() {
            self.recovered.complete();
            return Ok(());
        }
        let mut written_down = Vec::new();
        for info in plan::unfinished(&*self.store).await? {
            let agent = info.agent.as_deref().unwrap_or_default();
            match plan::at_first_sight(&info, self.not_registered(agent)) {
                Some(found) => self.act_on(&info, found),
                None => written_down.push(info),
            }
        }
        match written_down.is_empty() {
            true => self.recovered.complete(),
            false => {
                let looking = look_for_news(self.me.clone(), written_down);
                self.runtime.spawn(Box::pin(looking));
            }
        }
        Ok(())
    }

    fn act_on(&self, info: &RunInfo, found: Found) {
        let Found { action, why, go_on } = found;
        match go_on {
            true => self.launch(&info.run),
            false if action.is_stuck() => self.does_not_move(&info.run, why.clone()),
            false => {}
        }
        self.recovered.push(Recovered {
            run: info.run.name().to_owned(),
            agent: info.agent.clone().unwrap_or_default(),
            action,
            why,
        });
    }

    /// Why this process cannot execute an agent; `None` if it can.
    fn not_registered(&self, agent: &str) -> Option<String> {
        (!self.agents.contains_key(agent)).then(|| {
            let known = self.known_agents();
            format!(
                "its agent {agent:?} is not registered in this process, only {known}: register \
                 it before the store is opened"
            )
        })
    }
}

/// Looks at runs that are written down, one after the other: has something come for them?
async fn look_for_news(engine: Weak<Engine>, runs: Vec<RunInfo>) {
    for (count, info) in runs.into_iter().enumerate() {
        let Some(engine) = engine.upgrade().filter(|engine| !engine.is_closing()) else {
            return;
        };
        let found = plan::news(&*engine.store, &info).await;
        // What cannot be read stops this run and no other.
        let found = found.unwrap_or_else(|e| Found::stays(RecoveryAction::Broken, e.to_string()));
        engine.act_on(&info, found);
        drop(engine);
        if count % AT_ONCE == AT_ONCE - 1 {
            let_others().await;
        }
    }
    if let Some(engine) = engine.upgrade() {
        engine.recovered.complete();
    }
}

/// Lets other tasks of this thread run.
async fn let_others() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
