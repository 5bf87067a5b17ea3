//! The fold: what each event does to the journal.
//!
//! Invariant: it is pure, never fails, and may be given an event twice. What it does not understand
//! it passes over; whether that is allowed the store has decided before.

use dalsegno_store::{Body, Event, Fields, Kind, Payload, Status, Value};

use super::order::NOT_SEEN;
use super::{Checkpoint, Created, Forked, Journal, Outcome, Signal, StepRecord, Verdict};
use crate::attention::Attention;
use crate::budget::{Budget, Usage};
use crate::effect::Effect;
use crate::failure::{Certainty, Failure, FailureKind};
use crate::record;
use crate::resource::NotedResource;
use crate::start::Start;
use crate::step::{StepId, StepKind};

mod waits;

use waits::is_beside;

fn step_of(fields: &Fields) -> Option<StepId> {
    fields.text(record::step::STEP).map(StepId::new)
}

/// Reads a failure as it was written.
pub(crate) fn read_failure(fields: &Fields) -> Failure {
    let kind = fields.number(record::failure::KIND);
    let certainty = fields.number(record::failure::CERTAINTY);
    let failure = Failure::of(
        kind.and_then(FailureKind::from_number)
            .unwrap_or(FailureKind::Failed),
        certainty
            .and_then(Certainty::from_number)
            .unwrap_or(Certainty::Unknown),
        fields.text(record::failure::MESSAGE).unwrap_or_default(),
    );
    let inner = fields.text(record::failure::STEP);
    match inner.or(fields.text(record::step::STEP)) {
        Some(step) => failure.at(step),
        None => failure,
    }
}

pub(crate) fn read_usage(fields: &Fields) -> Usage {
    let number = |key| fields.number(key).unwrap_or(0);
    Usage {
        steps: number(record::step::STEPS),
        tokens_in: number(record::step::TOKENS_IN),
        tokens_out: number(record::step::TOKENS_OUT),
        cost_micros: number(record::step::COST),
    }
}

impl Journal {
    /// Takes an event in.
    pub(crate) fn apply(&mut self, event: Event) {
        if event.sequence > self.last {
            self.last = event.sequence;
            self.last_us = self.last_us.max(event.time_us);
        }
        self.memory = event.memory.or(self.memory);
        let fields = &event.fields;
        self.answered |= matches!(
            event.kind,
            Kind::StepResolved | Kind::BudgetSet | Kind::CancelRequested
        );
        match &event.kind {
            Kind::RunCreated => self.apply_created(event),
            Kind::RunForked => self.apply_forked(fields),
            Kind::RunStarted => {
                let died = self.status == Status::Running;
                if died {
                    // The process before has not written the run down.
                    let open = self.steps.values_mut().filter(|step| step.is_open());
                    open.for_each(|step| step.crashes += 1);
                }
                self.status = Status::Running;
                self.raised = false;
                self.waits.clear();
                // What they are about was never recorded: it comes to something else, at another time.
                self.early_sights.clear();
                let open = self.steps.values_mut();
                let open = open.filter(|step| step.outcome.is_none());
                open.for_each(|step| step.seen = None);
                // What was accepted has been noted anew, in the same append.
                self.resources
                    .values_mut()
                    .for_each(|noted| noted.accepted = None);
                let number = |key| fields.number(key).unwrap_or(0);
                self.session = fields.text(record::started::SESSION).map(str::to_owned);
                self.saved_calls += number(record::started::SAVED_CALLS);
                self.saved.tokens_out += number(record::started::SAVED_TOKENS);
                self.saved.cost_micros += number(record::started::SAVED_COST);
                let stood_still = self.progress == self.progress_at_start;
                self.deaths = if died && stood_still {
                    self.deaths + 1
                } else {
                    0
                };
                self.progress_at_start = self.progress;
            }
            Kind::RunCheckpointed => {
                self.status = Status::Checkpointed;
                self.progress += 1;
                let list = |key| match fields.get(key) {
                    Some(Value::List(list)) => list.iter().filter_map(text_of).collect(),
                    _ => Vec::new(),
                };
                self.waits = list(record::checkpointed::WAITS);
                for (at, id) in list(record::checkpointed::STEPS).into_iter().enumerate() {
                    let what = self.waits.get(at).cloned().unwrap_or_default();
                    self.awaits(StepId::new(id), what, &event);
                }
            }
            Kind::RunCompleted => {
                self.status = Status::Completed;
                self.end = Some(Outcome::Succeeded(event.output));
            }
            Kind::RunFailed => {
                self.status = Status::Failed;
                self.end = Some(Outcome::Failed(read_failure(fields)));
            }
            Kind::RunCancelled => self.status = Status::Cancelled,
            Kind::CancelRequested => {
                let reason = fields.text(record::cancel::REASON).unwrap_or("");
                self.cancel.get_or_insert_with(|| reason.to_owned());
            }
            Kind::AttentionRaised => {
                self.attention = Some(Attention::of(&event));
                self.answered = false;
            }
            Kind::AttentionCleared => {
                if let Some(attention) = self.attention.take() {
                    crate::resource::accept(&mut self.resources, &attention);
                }
                self.steps.values_mut().for_each(|step| step.crashes = 0);
                self.deaths = 0;
            }
            Kind::StepIntended
            | Kind::StepSucceeded
            | Kind::StepFailed
            | Kind::StepResolved
            | Kind::DecisionCommitted
            | Kind::RetrievalPerformed
            | Kind::User(_) => self.apply_step(event),
            Kind::TimerSet | Kind::TimerFired | Kind::TimerCancelled => self.apply_timer(&event),
            Kind::SignalReceived => {
                let name = fields.text(record::signal::NAME).unwrap_or_default();
                let name = name.to_owned();
                let payload = event.input;
                self.signals
                    .insert(event.sequence, Signal { name, payload });
            }
            Kind::ApprovalRequested | Kind::ApprovalAnswered => self.apply_approval(event),
            Kind::CheckpointWritten => self.apply_checkpoint(event),
            Kind::ResourceNoted => NotedResource::apply(&mut self.resources, &event),
            Kind::RunRecovered => self.recovered = Some(event.sequence),
            Kind::BudgetSet => {
                let number = |key| fields.number(key);
                self.raised = true;
                self.budget.update(&Budget {
                    steps: number(record::budget::STEPS),
                    tokens: number(record::budget::TOKENS),
                    cost_micros: number(record::budget::COST),
                    wall: number(record::budget::WALL).map(std::time::Duration::from_micros),
                });
            }
            _ => {}
        }
    }

    fn apply_created(&mut self, event: Event) {
        let fields = &event.fields;
        let text = |key| fields.text(key).unwrap_or_default();
        let parent = text(record::created::PARENT).parse().ok();
        let start = Start::of(fields);
        self.budget = start.budget;
        let lineage = fields.text(record::created::LINEAGE);
        self.created = Created {
            agent: text(record::created::AGENT).to_owned(),
            parent: parent.map(|run| (run, StepId::new(text(record::created::PARENT_STEP)))),
            lineage: lineage.unwrap_or(event.stream.name()).to_owned(),
            time_us: event.time_us,
            is_loop: fields.number(record::created::LOOP) == Some(1),
            queue: start.queue,
            priority: start.priority,
            input: event.input,
        };
        self.told_us = event.time_us;
    }

    fn apply_forked(&mut self, fields: &Fields) {
        let origin = fields.text(record::forked::ORIGIN).unwrap_or_default();
        let changed = match fields.get(record::forked::CHANGED) {
            Some(Value::List(steps)) => steps.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        };
        self.forked = origin.parse().ok().map(|origin| Forked {
            origin,
            sequence: fields.number(record::forked::SEQUENCE).unwrap_or(0),
            hash: match fields.get(record::forked::HASH) {
                Some(Value::Bytes(hash)) => hash.clone(),
                _ => Vec::new(),
            },
            changed: changed.into_iter().map(StepId::new).collect(),
            turn: fields.number(record::forked::TURN),
        });
        if let Some(Value::List(used)) = fields.get(record::forked::USED) {
            let number = |at: usize| match used.get(at) {
                Some(Value::Number(number)) => *number,
                _ => 0,
            };
            self.usage = Usage {
                steps: number(0),
                tokens_in: number(1),
                tokens_out: number(2),
                cost_micros: number(3),
            };
        }
    }

    fn apply_step(&mut self, mut event: Event) {
        let Some(id) = step_of(&event.fields) else {
            return;
        };
        if let Some(seen) = event.fields.number(record::step::SEEN) {
            let at = match seen {
                0 => NOT_SEEN,
                _ => event.sequence,
            };
            match self.steps.get_mut(&id) {
                Some(step) => step.seen = Some(at),
                None => drop(self.early_sights.insert(id, at)),
            }
            return;
        }
        let resolved = event.kind == Kind::StepResolved;
        if resolved && !self.steps.contains_key(&id) {
            // Said of a step that there is not.
            return;
        }
        let kind = event.fields.number(record::step::KIND);
        let kind = kind.filter(|_| !resolved).and_then(StepKind::from_number);
        let is_plain = matches!(event.kind, Kind::User(_) | Kind::RetrievalPerformed);
        if is_plain && kind.is_none() {
            return;
        }
        let new = || StepRecord::new(kind.unwrap_or(StepKind::Tool), &event);
        let is_noted = !self.early_sights.is_empty();
        let early = is_noted.then(|| self.early_sights.remove(&id)).flatten();
        if !self.awaited.is_empty() {
            self.awaited.remove(&id);
        }
        let step = self.steps.get_or_insert_with(&id, new);
        step.seen = step.seen.or(early);
        if step.outcome.is_some() {
            return;
        }
        match event.kind {
            Kind::StepIntended => {
                if let Some(approval) = event.fields.number(record::step::APPROVAL) {
                    for asked in self.approvals.values_mut() {
                        let answer = asked.answer.as_ref();
                        asked.used |= answer.is_some_and(|a| a.sequence == approval);
                    }
                }
                let number = |key| event.fields.number(key);
                let effect = number(record::step::EFFECT).and_then(Effect::from_number);
                step.effect = effect.unwrap_or(Effect::Once);
                step.attempts = number(record::step::ATTEMPT).unwrap_or(1);
                let child = event.fields.text(record::step::CHILD);
                step.child = child.and_then(|child| child.parse().ok());
                self.children.extend(step.child.clone());
                if let Some(key) = event.fields.text(record::step::KEY) {
                    step.key = Some(key.to_owned());
                }
                step.beside |= is_beside(&event);
                // Only the first intent has the input.
                if event.input.is_some() {
                    step.input = event.input;
                }
                step.retry = None;
                step.not_done = false;
            }
            Kind::StepResolved => self.apply_resolved(id, event),
            Kind::StepFailed => {
                let failure = read_failure(&event.fields);
                match event.fields.number(record::failure::RETRY_AT) {
                    Some(at) => {
                        step.retry = Some(Box::new((failure, at)));
                        self.usage.add(&read_usage(&event.fields));
                        self.progress += 1;
                    }
                    None => self.end_step(&id, &event, Outcome::Failed(failure)),
                }
            }
            Kind::User(_) => {
                step.input = event.input.take();
                self.end_step(&id, &event, Outcome::Succeeded(None));
            }
            _ => {
                if event.kind == Kind::RetrievalPerformed {
                    step.input = event.input.take();
                }
                step.summary = event.fields.text(record::step::SUMMARY).map(Into::into);
                let output = match event.fields.number(record::step::SOURCE) {
                    Some(source) => Some(self.take_signal(source)),
                    None => event.output.take(),
                };
                self.end_step(&id, &event, Outcome::Succeeded(output));
            }
        }
    }

    /// The first signal of a name that nobody has taken.
    pub(crate) fn first_signal(&self, name: &str) -> Option<u64> {
        let mut signals = self.signals.iter();
        signals
            .find(|(_, signal)| signal.name == name)
            .map(|(sequence, _)| *sequence)
    }

    pub(crate) fn has_signal(&self, name: &str) -> bool {
        self.first_signal(name).is_some()
    }

    /// What a signal brought, which is taken now.
    pub(crate) fn take_signal(&mut self, sequence: u64) -> Payload {
        let signal = self.signals.remove(&sequence);
        let payload = signal.and_then(|signal| signal.payload);
        payload.unwrap_or_else(|| Payload {
            content_type: "application/json".into(),
            body: Body::Inline(b"null".to_vec()),
        })
    }

    fn apply_resolved(&mut self, id: StepId, event: Event) {
        let verdict = event.fields.number(record::resolved::VERDICT);
        let Some(step) = self.steps.get_mut(&id) else {
            return;
        };
        let attempt = event.fields.number(record::resolved::ATTEMPT);
        if !step.is_open() || attempt.is_some_and(|meant| meant != step.attempts) {
            return;
        }
        match verdict.and_then(Verdict::from_number) {
            Some(Verdict::Happened) => {
                let output = event.input.clone();
                self.end_step(&id, &event, Outcome::Succeeded(output));
            }
            Some(Verdict::DidNotHappen) => step.not_done = true,
            Some(Verdict::FailRun) => {
                let by = event
                    .fields
                    .text(record::resolved::BY)
                    .unwrap_or("a person");
                self.fail = Some(format!("{by} said that the run fails at {id}"));
            }
            None => {}
        }
    }

    fn end_step(&mut self, id: &StepId, event: &Event, outcome: Outcome) {
        let Some(step) = self.steps.get_mut(id) else {
            return;
        };
        self.progress += 1;
        step.outcome = Some(outcome);
        step.retry = None;
        if let Some(child) = &step.child {
            self.children.remove(child);
        }
        // Whatever it asked for, nobody waits for it any more.
        if let Some(asked) = self.approvals.get_mut(id) {
            asked.used = true;
        }
        step.last = event.sequence;
        step.done_us = event.time_us;
        step.usage = read_usage(&event.fields);
        if matches!(step.kind, StepKind::Model | StepKind::Tool) {
            step.usage.steps += 1;
        }
        self.usage.add(&step.usage);
        if step.kind == StepKind::Value {
            self.told_us = self.told_us.max(event.time_us);
        }
        // Plan steps around it have got further: whatever ends the process is no loop in them.
        for (end, _) in id.as_str().match_indices('/') {
            if let Some(around) = self.steps.get_mut(&id.as_str()[..end]) {
                around.crashes = 0;
            }
        }
    }

    fn apply_checkpoint(&mut self, event: Event) {
        let turn = event.fields.number(record::checkpoint::TURN);
        if let Some(id) = event.fields.text(record::checkpoint::STEP).map(StepId::new) {
            let mut step = StepRecord::new(StepKind::Checkpoint, &event);
            step.input = event.output.clone();
            self.steps.get_or_insert_with(&id, || step);
            self.end_step(&id, &event, Outcome::Succeeded(None));
        }
        if turn.is_some() {
            self.forget_turn();
        }
        let cause = event.cause.as_ref();
        let is_copy = cause.is_some_and(|cause| cause.stream != event.stream);
        let checkpoint = Checkpoint::of(event);
        // Only who has the run writes one. A loop is read from here, not from where it started. (A
        // fork has copies of those of its origin before it is started.)
        if !is_copy {
            self.status = Status::Running;
            self.session = checkpoint.session.clone().or(self.session.take());
        }
        if checkpoint.pinned && !self.pinned.contains(&checkpoint.sequence) {
            self.pinned.push(checkpoint.sequence);
        }
        if turn.is_some() {
            self.turn = Some(checkpoint.clone());
        }
        self.checkpoint = Some(checkpoint);
    }

    /// A turn that was made again from what is recorded has ended: its steps never come again.
    pub(crate) fn forget_redone_turn(&mut self, turn: u64) {
        let inside = format!("@{turn}/");
        self.steps.retain(|id| !id.as_str().starts_with(&inside));
        self.awaited
            .retain(|id, _| !id.as_str().starts_with(&inside));
    }

    /// A turn has ended: its steps never come again, nor do answers to what it asked.
    fn forget_turn(&mut self) {
        self.steps.clear();
        self.awaited.clear();
        self.early_sights.clear();
        self.fired.clear();
        self.approvals.clear();
        self.children.clear();
        self.remaining = 0;
        (self.unseen, self.order) = Default::default();
        (self.progress, self.progress_at_start, self.deaths) = (0, 0, 0);
    }
}

impl Checkpoint {
    /// As it was written.
    pub(crate) fn of(event: Event) -> Checkpoint {
        let fields = &event.fields;
        let number = |key| fields.number(key);
        let pending = match fields.get(record::checkpoint::PENDING) {
            Some(Value::List(steps)) => steps.iter().filter_map(text_of).collect(),
            _ => Vec::new(),
        };
        let (at, of) = (record::checkpoint::AT, record::checkpoint::OF);
        let session = fields.text(record::checkpoint::SESSION);
        Checkpoint {
            sequence: event.sequence,
            turn: number(record::checkpoint::TURN),
            time_us: event.time_us,
            step: fields.text(record::checkpoint::STEP).map(StepId::new),
            progress: number(at).zip(number(of)),
            pending,
            session: session.map(str::to_owned),
            pinned: number(record::checkpoint::PINNED) == Some(1),
            state: event.output,
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dalsegno_store::{NewEvent, StreamId};

    /// The journal after these events, in this order.
    fn fold(events: Vec<NewEvent>) -> Journal {
        let mut journal = Journal::default();
        for (sequence, new) in (1..).zip(events) {
            let run = StreamId::store();
            let mut event = Event::new(run, sequence, 1, 0, new.kind);
            event.fields = new.fields;
            journal.apply(event);
        }
        journal
    }

    /// Twenty processes begin the plan step; what each does then, before it ends. How many deaths
    /// in the plan step that makes.
    fn deaths(then: impl Fn(u64) -> Option<NewEvent>) -> u64 {
        let plan = StepId::new("plan#1");
        let mut events = Vec::new();
        for number in 1..=20 {
            events.push(NewEvent::new(Kind::RunStarted));
            let (kind, effect) = (StepKind::PlanStep, Effect::ReadOnly);
            events.push(record::intended(&plan, kind, effect, number, None));
            events.extend(then(number));
        }
        fold(events).steps.get(&plan).map_or(0, |step| step.crashes)
    }

    #[test]
    fn a_process_that_dies_in_the_same_step_again_and_again_is_counted() {
        assert_eq!(deaths(|_| None), 19);
    }

    #[test]
    fn a_plan_step_that_gets_further_each_time_is_in_no_crash_loop() {
        let inside = |number| StepId::new(format!("plan#1/branch#1/read#{number}"));
        let further = |number| Some(record::succeeded(&inside(number), StepKind::Tool, None));
        assert_eq!(deaths(further), 0);
    }

    #[test]
    fn a_run_that_waits_inside_a_plan_step_is_in_no_crash_loop() {
        let wait = |_| Some(record::run_checkpointed(&["signal other".to_owned()]));
        assert_eq!(deaths(wait), 0);
    }

    #[test]
    fn what_was_noted_of_an_outcome_that_a_crash_took_is_not_said_of_the_next() {
        let step = StepId::new("read#1");
        let note = record::not_seen(&step, StepKind::Tool);
        let outcome = record::succeeded(&step, StepKind::Tool, None);
        let seen = |events| fold(events).steps.get(&step).and_then(|step| step.seen);
        let on_its_way = vec![note.clone(), outcome.clone()];
        assert_eq!(seen(on_its_way), Some(NOT_SEEN));
        let taken = vec![
            note.clone(),
            NewEvent::new(Kind::RunStarted),
            outcome.clone(),
        ];
        assert_eq!(seen(taken), None);
        // Also of a step whose intent is recorded.
        let (kind, effect) = (StepKind::Tool, Effect::Idempotent);
        let intent = |attempt| record::intended(&step, kind, effect, attempt, None);
        let again = vec![
            intent(1),
            note,
            NewEvent::new(Kind::RunStarted),
            intent(2),
            outcome,
        ];
        assert_eq!(seen(again), None);
    }

    #[test]
    fn a_death_behind_the_last_turn_of_a_loop_is_a_death() {
        let fields = Fields::new().with(record::checkpoint::TURN, 7);
        let turn = NewEvent::new(Kind::CheckpointWritten).with_fields(fields);
        let step = StepId::new("plan#1");
        let (kind, effect) = (StepKind::PlanStep, Effect::ReadOnly);
        let begun = record::intended(&step, kind, effect, 1, None);
        // Read from the last turn on, as a loop is.
        let journal = fold(vec![turn, begun, NewEvent::new(Kind::RunStarted)]);
        assert_eq!(journal.steps.get(&step).map(|s| s.crashes), Some(1));
    }
}
