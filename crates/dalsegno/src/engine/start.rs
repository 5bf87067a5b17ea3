//! Starting runs, and taking up those that a process before has left.

use dalsegno_store::{Append, Fields, Kind, NewEvent, NewPayload, RunQuery, Status, StreamId};

use super::Engine;
use crate::budget::Budget;
use crate::error::Error;
use crate::record;

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
                    Ok(id)
                }
            },
        }
    }

    fn no_agent(&self, agent: &str) -> Error {
        let mut known: Vec<_> = self.agents.keys().map(String::as_str).collect();
        known.sort_unstable();
        Error::AgentNotFound {
            agent: agent.to_owned(),
            known: match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            },
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

    /// Takes up every run that has not ended and can go on. How many there were.
    pub(super) async fn take_up(&self) -> Result<usize, Error> {
        let query = RunQuery {
            status: vec![Status::Pending, Status::Running, Status::Checkpointed],
            ..RunQuery::default()
        };
        let mut count = 0;
        for info in self.store.runs(&query).await? {
            if info.status != Status::Checkpointed
                || self.has_news(&info.run, info.head.sequence).await?
            {
                count += 1;
                self.launch(&info.run);
            }
        }
        Ok(count)
    }

    /// Whether something has come for a run since it was written down.
    async fn has_news(&self, id: &StreamId, head: u64) -> Result<bool, Error> {
        // Giving back the lease follows the writing down.
        let from = head.saturating_sub(1).max(1);
        let last = self.store.events(id, from, 2).await?;
        let mut quiet = last.iter().rev();
        let quiet = quiet.find(|event| event.kind != Kind::LeaseReleased);
        Ok(match quiet {
            Some(event) if event.kind == Kind::RunCheckpointed => {
                // A process that closed has interrupted it.
                let waits = event.fields.get(record::checkpointed::WAITS);
                waits
                    == Some(&dalsegno_store::Value::List(vec![
                        "the next process".into(),
                    ]))
            }
            Some(event) => event.kind != Kind::AttentionRaised,
            None => true,
        })
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
