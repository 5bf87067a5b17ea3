//! Starting runs, and taking up those that a process before has left.

use std::sync::Weak;
use std::task::Poll;

use dalsegno_store::{
    Append, Event, Fields, Kind, NewEvent, NewPayload, RunInfo, RunQuery, Status, StoreError,
    StreamId,
};

use super::Engine;
use crate::budget::Budget;
use crate::error::Error;
use crate::journal::Journal;
use crate::record;
use crate::recovery::{Recovered, RecoveryAction};

/// Runs looked at before others get their turn.
const AT_ONCE: usize = 32;

impl Engine {
    /// Starts a run, or finds the one of this name.
    pub(super) async fn start(
        &self,
        agent: &str,
        name: &str,
        input: NewPayload,
        budget: Option<Budget>,
    ) -> Result<StreamId, Error> {
        if self.is_closing() {
            return Err(Error::Closed);
        }
        let id = StreamId::run(name)?;
        let Some(found) = self.agents.get(agent) else {
            return Err(self.no_agent(agent));
        };
        let mut fields = Fields::new().with(record::created::AGENT, agent);
        if found.is_loop() {
            fields = fields.with(record::created::LOOP, 1);
        }
        for (key, limit) in budget.iter().flat_map(budget_fields) {
            fields = fields.with(key, limit);
        }
        let event = NewEvent::new(Kind::RunCreated).with_fields(fields);
        let append = Append::to(id.clone(), vec![event.with_input(input.clone())]).expecting(0);
        match self.store.append(vec![append]).await {
            Ok(appended) => {
                // Who is told that a run was started can rely on it.
                self.store.durable(appended.position).await?;
                self.launch(&id);
                Ok(id)
            }
            Err(e) => match self.store.head(&id).await? {
                None => Err(e.into()),
                Some(_) => {
                    self.check_same(&id, agent, &input).await?;
                    // Who has started it may still be waiting for the disk.
                    let position = self.store.position().await?;
                    self.store.durable(position).await?;
                    Ok(id)
                }
            },
        }
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

    /// Whether a run that exists is the one that was meant.
    async fn check_same(
        &self,
        id: &StreamId,
        agent: &str,
        input: &NewPayload,
    ) -> Result<(), Error> {
        let first = self.store.events(id, 1, 1).await?;
        let Some(created) = first.first() else {
            return Ok(());
        };
        let run = id.name().to_owned();
        if created.fields.text(record::created::AGENT) != Some(agent) {
            return Err(Error::AlreadyStarted { run, what: "agent" });
        }
        let same = created.input.as_ref();
        if !same.is_some_and(|then| crate::run::same_payload(then, input)) {
            return Err(Error::AlreadyStarted { run, what: "input" });
        }
        Ok(())
    }

    /// Takes up every run that has not ended and can go on, and says of each what was done with it
    /// and why. Runs that are written down are looked at in the background, so that ten thousand
    /// that wait do not hold up the opening.
    pub(super) async fn take_up(&self) -> Result<(), Error> {
        let query = RunQuery {
            status: vec![Status::Pending, Status::Running, Status::Checkpointed],
            ..RunQuery::default()
        };
        let mut written_down = Vec::new();
        for info in self.store.runs(&query).await? {
            match self.find_out(&info) {
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

    /// What to do with a run that has not ended; `None` if its last events have to be read.
    fn find_out(&self, info: &RunInfo) -> Option<Found> {
        let agent = info.agent.as_deref().unwrap_or_default();
        Some(match (info.status, &info.attention) {
            (Status::Pending | Status::Running, Some(reason)) => Found::broken(reason),
            _ if !self.agents.contains_key(agent) => {
                let known = self.known_agents();
                let why = format!(
                    "its agent {agent:?} is not registered in this process, only {known}: register \
                     it before the store is opened"
                );
                Found::stays(RecoveryAction::NotRegistered, why)
            }
            (Status::Pending, None) => {
                Found::goes_on(RecoveryAction::Started, "nobody had begun it")
            }
            (Status::Running, None) => Found::goes_on(
                RecoveryAction::Resumed,
                "its worker ended while it had it: its own report says what it was doing",
            ),
            _ => return None,
        })
    }

    /// What has come for a run since it was written down.
    async fn news(&self, info: &RunInfo) -> Result<Found, StoreError> {
        // Giving back the lease follows the writing down.
        let from = info.head.sequence.saturating_sub(2).max(1);
        let last = self.store.events(&info.run, from, 3).await?;
        let mut events = last
            .iter()
            .rev()
            .filter(|event| event.kind != Kind::LeaseReleased);
        let Some(event) = events.next() else {
            return Ok(Found::goes_on(RecoveryAction::Resumed, "it can go on"));
        };
        Ok(match (&event.kind, &info.attention) {
            (Kind::AttentionRaised, Some(reason)) => {
                Found::stays(RecoveryAction::NeedsPerson, reason.clone())
            }
            // The run did not raise it: that would follow in the same append.
            (Kind::RunCheckpointed, Some(reason)) => Found::broken(reason),
            (Kind::RunCheckpointed, None) => waits(event),
            // Whether that is enough, the run finds out.
            (kind, Some(reason)) => {
                let answer = matches!(
                    kind,
                    Kind::StepResolved | Kind::BudgetSet | Kind::CancelRequested
                );
                match answer {
                    true => Found::goes_on(RecoveryAction::Resumed, came(kind)),
                    false => Found::goes_on(RecoveryAction::NeedsPerson, reason.as_str()),
                }
            }
            (kind, None) => Found::goes_on(RecoveryAction::Resumed, came(kind)),
        })
    }
}

/// Looks at runs that are written down, one after the other: has something come for them?
async fn look_for_news(engine: Weak<Engine>, runs: Vec<RunInfo>) {
    for (count, info) in runs.into_iter().enumerate() {
        let Some(engine) = engine.upgrade().filter(|engine| !engine.is_closing()) else {
            return;
        };
        let found = engine.news(&info).await;
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

fn came(kind: &Kind) -> String {
    format!("something came for it while no process had it: {kind}")
}

/// What is to be done with a run that is written down, and for which nothing has come.
fn waits(checkpointed: &Event) -> Found {
    let mut journal = Journal::default();
    journal.apply(checkpointed.clone());
    let waits = journal.waits;
    // A process that closed has interrupted it.
    if waits.iter().any(|wait| wait == "the next process") {
        let why = "the process before closed while it had it";
        return Found::goes_on(RecoveryAction::Resumed, why);
    }
    let why = format!("it waits for {}", waits.join(", "));
    Found::stays(RecoveryAction::StillWaiting, why)
}

/// What was found of a run.
struct Found {
    action: RecoveryAction,
    why: String,
    /// It is taken up.
    go_on: bool,
}

impl Found {
    fn goes_on(action: RecoveryAction, why: impl Into<String>) -> Found {
        Found {
            action,
            why: why.into(),
            go_on: true,
        }
    }

    fn stays(action: RecoveryAction, why: String) -> Found {
        Found {
            action,
            why,
            go_on: false,
        }
    }

    fn broken(reason: &str) -> Found {
        let why = format!("{reason}: see all damage with verify, then restore a copy or repair");
        Found::stays(RecoveryAction::Broken, why)
    }
}

fn budget_fields(budget: &Budget) -> Vec<(u64, u64)> {
    let limits = [
        (record::created::STEPS, budget.steps),
        (record::created::TOKENS, budget.tokens),
        (record::created::COST, budget.cost_micros),
        (record::created::WALL, budget.wall_us()),
    ];
    let limits = limits.into_iter();
    limits
        .filter_map(|(key, limit)| Some((key, limit?)))
        .collect()
}
