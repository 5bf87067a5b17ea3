//! Writes the shared past down as the beginning of the fork's stream.
//!
//! Invariant: numbers of events inside events (the signal that a step took, those that a turn carries
//! over) are those of the fork's own stream.

use std::collections::{HashMap, HashSet};

use dalsegno_store::{
    Event, EventRef, Fields, Kind, NewEvent, NewPayload, Payload, Store, StoreError, Value, field,
};

use super::Fork;
use super::past::{Fate, Past};
use crate::budget::Usage;
use crate::failure::Failure;
use crate::journal::{Carry, NOT_SEEN, StepRecord, bytes_of};
use crate::record;
use crate::start::Start;
use crate::step::{StepId, StepKind};

/// The events that a fork begins with.
pub(super) async fn events(
    store: &dyn Store,
    past: &Past,
    fork: &Fork,
) -> Result<Vec<NewEvent>, StoreError> {
    let mut copy = Copy {
        store,
        past,
        fork,
        events: Vec::new(),
        places: HashMap::new(),
        changed: HashSet::new(),
        replaced: replaced(past, fork),
    };
    copy.created().await?;
    copy.forked();
    for message in &past.messages {
        copy.take(message, message.fields.clone()).await?;
    }
    for event in past.carried.iter().chain(&past.events) {
        copy.event(event).await?;
    }
    copy.later().await?;
    Ok(copy.events)
}

struct Copy<'a> {
    store: &'a dyn Store,
    past: &'a Past,
    fork: &'a Fork,
    events: Vec<NewEvent>,
    /// Where events of the origin are in the fork.
    places: HashMap<u64, u64>,
    /// Steps that have their changed outcome.
    changed: HashSet<StepId>,
    /// Signals that were taken by them: something else came instead.
    replaced: HashSet<u64>,
}

impl Copy<'_> {
    async fn created(&mut self) -> Result<(), StoreError> {
        let (created, budget) = (&self.past.shared.created, &self.past.shared.budget);
        let mut fields = Fields::new().with(record::created::AGENT, created.agent.as_str());
        if created.is_loop {
            fields = fields.with(record::created::LOOP, 1);
        }
        let start = Start::of_child(&created.queue, created.priority).budget(*budget);
        let fields = start.add_to(fields);
        let mut event = NewEvent::new(Kind::RunCreated).with_fields(fields);
        event.input = match &self.fork.input {
            Some(input) => Some(input.clone()),
            None => self.payload(created.input.as_ref()).await?,
        };
        event.cause = Some(self.at(1));
        self.events.push(event);
        Ok(())
    }

    fn forked(&mut self) {
        let past = self.past;
        let mut fields = Fields::new()
            .with(record::forked::ORIGIN, past.origin.to_string())
            .with(record::forked::SEQUENCE, past.cut)
            .with(record::forked::HASH, past.hash.clone());
        if let Some(turn) = past.shared.turn.as_ref().and_then(|turn| turn.turn) {
            let used = past.before;
            let used = [
                used.steps,
                used.tokens_in,
                used.tokens_out,
                used.cost_micros,
            ];
            let used = used.into_iter().map(Value::from).collect();
            fields = fields.with(record::forked::TURN, turn);
            fields = fields.with(record::forked::USED, Value::List(used));
        }
        // Those that the origin has changed itself are changed here, too.
        let before = past.shared.forked.iter().flat_map(|f| &f.changed);
        let before = before.filter(|id| past.shared.steps.contains_key(*id));
        let mut changed: Vec<_> = self.fork.outcomes.keys().chain(before).collect();
        changed.sort();
        changed.dedup();
        if !changed.is_empty() {
            let changed = changed.into_iter().map(|id| Value::from(id.as_str()));
            fields = fields.with(record::forked::CHANGED, Value::List(changed.collect()));
        }
        let mut event = NewEvent::new(Kind::RunForked).with_fields(fields);
        event.cause = Some(self.at(past.cut));
        self.events.push(event);
    }

    fn at(&self, sequence: u64) -> EventRef {
        EventRef {
            stream: self.past.origin.clone(),
            sequence,
        }
    }

    async fn payload(&self, payload: Option<&Payload>) -> Result<Option<NewPayload>, StoreError> {
        let Some(payload) = payload else {
            return Ok(None);
        };
        let bytes = bytes_of(self.store, payload).await?;
        Ok(Some(NewPayload::new(payload.content_type.clone(), bytes)))
    }

    /// Copies an event, with these fields.
    async fn take(&mut self, event: &Event, fields: Fields) -> Result<(), StoreError> {
        let mut new = NewEvent::new(event.kind.clone()).with_fields(fields);
        new.memory = event.memory;
        new.sources.clone_from(&event.sources);
        new.input = self.payload(event.input.as_ref()).await?;
        new.output = self.payload(event.output.as_ref()).await?;
        new.cause = Some(self.at(event.sequence));
        self.events.push(new);
        let place = self.events.len() as u64;
        self.places.insert(event.sequence, place);
        Ok(())
    }

    /// Copies an event of the shared past, if the fork needs it.
    async fn event(&mut self, event: &Event) -> Result<(), StoreError> {
        let fields = event.fields.clone();
        match &event.kind {
            Kind::StepIntended
            | Kind::StepSucceeded
            | Kind::StepFailed
            | Kind::StepResolved
            | Kind::DecisionCommitted
            | Kind::RetrievalPerformed
            | Kind::User(_) => self.step(event).await,
            Kind::TimerSet | Kind::TimerFired | Kind::TimerCancelled => {
                match self.wants_timer(&event.fields) {
                    true => self.take(event, fields).await,
                    false => Ok(()),
                }
            }
            Kind::CheckpointWritten if event.fields.number(record::checkpoint::TURN).is_some() => {
                self.turn(event).await
            }
            Kind::SignalReceived if self.replaced.contains(&event.sequence) => Ok(()),
            Kind::SignalReceived
            | Kind::CheckpointWritten
            | Kind::ResourceNoted
            | Kind::TaskStarted
            | Kind::TaskCompleted
            | Kind::ConstraintAdded
            | Kind::FactConfirmed
            | Kind::PlanUpdated
            | Kind::MemoryUpdated => self.take(event, fields).await,
            // Of the origin's own life: who had it, who was asked, who wanted it to end.
            _ => Ok(()),
        }
    }

    async fn step(&mut self, event: &Event) -> Result<(), StoreError> {
        let Some(id) = event.fields.text(record::step::STEP).map(StepId::new) else {
            return Ok(());
        };
        let Some(step) = self.past.shared.steps.get(&id) else {
            return Ok(());
        };
        if is_void_note(event, step) {
            return Ok(());
        }
        let is_intent = event.kind == Kind::StepIntended;
        if self.fork.outcomes.contains_key(&id) {
            if is_intent {
                return self.take(event, without_approval(&event.fields)).await;
            }
            if step.outcome.is_some() && event.sequence == step.last {
                self.change(&id, step.kind, event.sequence);
            }
            return Ok(());
        }
        let mut fields = without_approval(&event.fields);
        match self.past.fate(&id) {
            Fate::Anew => return Ok(()),
            Fate::Unknown(key) if is_intent => {
                fields = fields.with(record::step::KEY, key.as_str());
            }
            Fate::Shared | Fate::Later(_) | Fate::Unknown(_) => {}
        }
        if event.kind == Kind::StepSucceeded
            && let Some(source) = event.fields.number(record::step::SOURCE)
        {
            let source = self.places.get(&source).copied().unwrap_or(0);
            fields = fields.with(record::step::SOURCE, source);
        }
        self.take(event, fields).await
    }

    /// What a step came to in the fork only.
    fn change(&mut self, id: &StepId, kind: StepKind, original: u64) {
        let Some(outcome) = self.fork.outcomes.get(id) else {
            return;
        };
        let mut event = match outcome {
            Ok(output) if kind == StepKind::Decision => {
                let fields = Fields::new()
                    .with(record::step::STEP, id.as_str())
                    .with(record::step::KIND, kind.number());
                let event = NewEvent::new(Kind::DecisionCommitted).with_fields(fields);
                event.with_output(output.clone())
            }
            Ok(output) => record::succeeded(id, kind, Some(output.clone())),
            Err(failure) => failed(id, kind, failure),
        };
        event.cause = Some(self.at(original));
        self.events.push(event);
        self.changed.insert(id.clone());
    }

    /// The end of a turn, with the events that it carries over where they are now.
    async fn turn(&mut self, event: &Event) -> Result<(), StoreError> {
        let carried = self.payload(event.input.as_ref()).await?;
        let mut carry = Carry::from_json(carried.as_ref().map_or(b"", |c| &c.bytes));
        let carried = self.past.carried.iter();
        let places = carried.filter_map(|event| self.places.get(&event.sequence));
        carry.open = places.copied().collect();
        carry.seen = u64::MAX;
        carry.budget = self.past.shared.budget;
        (carry.saved_calls, carry.saved) = (0, Usage::default());
        (carry.pinned, carry.recovered) = (Vec::new(), None);
        carry.cancel = None;
        carry.answered = false;
        self.take(event, event.fields.clone()).await?;
        if let Some(copied) = self.events.last_mut() {
            copied.input = Some(NewPayload::json(carry.to_json()));
        }
        Ok(())
    }

    /// Sleeps, time limits of waits for signals, and times of next attempts that are still to come.
    fn wants_timer(&self, fields: &Fields) -> bool {
        let Some(timer) = fields.text(field::TIMER) else {
            return false;
        };
        let (id, what) = match timer.split_once('!') {
            None => (timer, ""),
            Some((id, what)) => (id, what),
        };
        let id = StepId::new(id);
        let step = self.past.shared.steps.get(&id);
        let has_outcome = step.is_some_and(|step| step.outcome.is_some());
        match what {
            "" => step.is_some_and(|step| step.kind == StepKind::Sleep),
            "timeout" => !has_outcome,
            "retry" => {
                let waits = step.is_some_and(|step| step.retry.is_some());
                waits && matches!(self.past.fate(&id), Fate::Unknown(_))
            }
            _ => false,
        }
    }

    /// Outcomes from behind the fork, and changed ones of steps that had none.
    async fn later(&mut self) -> Result<(), StoreError> {
        let past = self.past;
        let mut later: Vec<(u64, &StepId, &Event)> = Vec::new();
        for (id, fate) in &past.fates {
            if let (Fate::Later(event), false) = (fate, self.fork.outcomes.contains_key(id)) {
                later.push((event.sequence, id, event));
            }
        }
        later.sort_by_key(|(sequence, ..)| *sequence);
        for (_, _, event) in later {
            self.take(event, event.fields.clone()).await?;
        }
        let mut changed: Vec<_> = self.fork.outcomes.keys().collect();
        changed.sort();
        for id in changed {
            if let (Some(step), false) = (past.shared.steps.get(id), self.changed.contains(id)) {
                let (kind, first) = (step.kind, step.first);
                self.change(id, kind, first);
            }
        }
        Ok(())
    }
}

fn replaced(past: &Past, fork: &Fork) -> HashSet<u64> {
    let outcomes = past.events.iter().filter(|e| e.kind == Kind::StepSucceeded);
    outcomes
        .filter(|event| {
            let id = event.fields.text(record::step::STEP).map(StepId::new);
            id.is_some_and(|id| fork.outcomes.contains_key(&id))
        })
        .filter_map(|event| event.fields.number(record::step::SOURCE))
        .collect()
}

/// Answers of people are not inherited, so none is used up.
fn without_approval(fields: &Fields) -> Fields {
    let mut kept = Fields::new();
    let is_intent = fields.get(record::step::EFFECT).is_some();
    for (key, value) in fields.iter() {
        if !(is_intent && key == record::step::APPROVAL) {
            kept = kept.with(key, value.clone());
        }
    }
    kept
}

fn failed(id: &StepId, kind: StepKind, failure: &Failure) -> NewEvent {
    record::failed(id, kind, failure, None)
}

/// Whether an event notes what the code saw of an outcome that a crash took: it says nothing of the one that came later.
fn is_void_note(event: &Event, step: &StepRecord) -> bool {
    match event.fields.number(record::step::SEEN) {
        None => false,
        Some(0) => step.seen != Some(NOT_SEEN),
        Some(_) => step.seen != Some(event.sequence),
    }
}
