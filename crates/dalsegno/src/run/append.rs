//! How a run's worker records, and how it hears of what others recorded.
//!
//! Invariants: outcomes that were kept back are recorded in front of whatever is recorded next, in
//! the same append, so that nothing recorded ever depends on something that is not. What the worker
//! recorded itself is taken into the journal once.

use std::sync::Arc;

use dalsegno_store::{Append, Event, Fields, Kind, NewEvent, StoreError, StreamId};

use super::kept_back::{Taken, bytes_of};
use super::unbroken::Unbroken;
use super::{Active, Heads, Run, RunState, Stopped};
use crate::budget::Usage;
use crate::effect::{Effect, Moment};
use crate::journal::{Carry, read_usage};
use crate::record;
use crate::rules::Rule;
use crate::step::StepKind;

/// Events of others read at once.
const PAGE: usize = 256;

/// Why something was not recorded.
#[derive(Debug)]
pub(crate) enum NotRecorded {
    /// It is larger than it may be, or another run did not take its part; nothing was recorded, and
    /// the run can go on.
    Refused(String),
    /// The run does not go on.
    Stopped(Stopped),
}

impl From<Stopped> for NotRecorded {
    fn from(stopped: Stopped) -> NotRecorded {
        NotRecorded::Stopped(stopped)
    }
}

impl Run {
    /// Records events, behind those that were kept back. The sequence of the last one.
    pub(crate) async fn record(
        self: &Arc<Self>,
        events: Vec<NewEvent>,
    ) -> Result<u64, NotRecorded> {
        let recorded = self.record_unless(events, Vec::new(), None, |_| false);
        Ok(recorded.await?.own)
    }

    /// The same, if this run knows of everything that was recorded for it. Whether it does.
    pub(crate) async fn record_if_all_known(
        self: &Arc<Self>,
        events: Vec<NewEvent>,
    ) -> Result<bool, NotRecorded> {
        let known = self.state().applied;
        let overtaken = StoreError::is_conflict;
        let recorded = self
            .record_unless(events, Vec::new(), Some(known), overtaken)
            .await;
        match recorded {
            Ok(_) => Ok(true),
            Err(NotRecorded::Refused(why)) => match self.store.head(&self.id).await {
                Ok(Some(head)) if head.sequence > known => Ok(false),
                _ => Err(NotRecorded::Refused(why)),
            },
            Err(stopped) => Err(stopped),
        }
    }

    /// The same; errors that are `expected` do not stop the run.
    pub(super) async fn record_unless(
        self: &Arc<Self>,
        mut events: Vec<NewEvent>,
        others: Vec<Append>,
        last: Option<u64>,
        expected: impl Fn(&StoreError) -> bool + Send + 'static,
    ) -> Result<Heads, NotRecorded> {
        if self.is_replay() {
            return Err(self.stop(Stopped::EndOfRecord).into());
        }
        let mut active = Active::new(self);
        let kept = match self.settings.mutant.breaks(Rule::RecordWhatItDependsOn) {
            true => None,
            false => Some(self.take_kept_back().await),
        };
        let is_nothing_kept = kept.as_ref().is_none_or(|kept| kept.list.is_empty());
        if is_nothing_kept && events.is_empty() {
            let own = self.state().applied;
            let others = Vec::new();
            return Ok(Heads { own, others });
        }
        let noted: Vec<(Noted, u64)> = {
            let mut state = self.state();
            active.is_unbroken(&mut state);
            events.iter_mut().for_each(|event| state.stamp(event));
            // With how far each is from the last of them.
            let behind = (0..events.len() as u64).rev();
            let noted = events.iter().zip(behind);
            noted
                .filter_map(|(event, behind)| Some((state.noted(event)?, behind)))
                .collect()
        };
        let run = Arc::clone(self);
        Unbroken::new(&self.runtime, async move {
            let _active = active;
            let appended = run.append_behind(kept, events, others, last, noted).await;
            appended.map_err(|e| match expected(&e) {
                true => NotRecorded::Refused(e.to_string()),
                false => run.not_recorded(e),
            })
        })
        .await
    }

    /// Appends what was kept back, and events behind it.
    async fn append_behind(
        &self,
        mut kept: Option<Taken>,
        events: Vec<NewEvent>,
        others: Vec<Append>,
        mut last: Option<u64>,
        noted: Vec<(Noted, u64)>,
    ) -> Result<Heads, StoreError> {
        let now_us = self.runtime.now_us();
        // What is noted of many that overtake each other may be more than an append can take.
        while let Some(part) = kept.as_ref().and_then(Taken::first_part) {
            let count = part.len();
            match self.append_with(part, Vec::new(), last).await {
                Ok(heads) => last = last.map(|_| heads.own),
                Err(e) => {
                    kept.into_iter().for_each(Taken::not_recorded);
                    return Err(e);
                }
            }
            kept.iter_mut().for_each(|kept| kept.recorded_first(count));
        }
        let kept_events = kept.iter().flat_map(|kept| &kept.list);
        let mut all: Vec<NewEvent> = kept_events.map(|kept| kept.event.clone()).collect();
        let bytes = events.iter().map(bytes_of).sum();
        let appended = if !all.is_empty() && !self.state().kept_back.fit_with(bytes) {
            // One after the other: together they may be more than an append can take.
            match self.append_with(all, Vec::new(), last).await {
                Err(e) => Err(e),
                Ok(heads) => {
                    kept.take().into_iter().for_each(Taken::recorded);
                    self.append_with(events, others, last.map(|_| heads.own))
                        .await
                }
            }
        } else {
            all.extend(events);
            self.append_with(all, others, last).await
        };
        match appended {
            Ok(heads) => {
                kept.into_iter().for_each(Taken::recorded);
                let mut state = self.state();
                for (noted, behind) in noted {
                    state.note(&self.id, noted, heads.own - behind, now_us);
                }
                Ok(heads)
            }
            Err(e) => {
                kept.into_iter().for_each(Taken::not_recorded);
                Err(e)
            }
        }
    }

    /// Records events together with those of another run. If that run does not take them, nothing is
    /// recorded, and this run can go on.
    pub(crate) async fn send(
        self: &Arc<Self>,
        events: Vec<NewEvent>,
        other: Append,
    ) -> Result<(), NotRecorded> {
        let to = other.stream.clone();
        let refusals = move |error: &StoreError| match error {
            StoreError::Ended { stream, .. }
            | StoreError::Refused { stream, .. }
            | StoreError::Conflict { stream, .. }
            | StoreError::NotFound { stream } => *stream == to,
            _ => false,
        };
        self.record_unless(events, vec![other], None, refusals)
            .await
            .map(drop)
    }

    fn not_recorded(&self, error: StoreError) -> NotRecorded {
        match error {
            StoreError::TooLarge { .. } | StoreError::Name(_) => {
                NotRecorded::Refused(error.to_string())
            }
            error => self.stop_for(&error).into(),
        }
    }

    /// Stops the run because of what the store says.
    pub(crate) fn stop_for(&self, error: &StoreError) -> Stopped {
        let why = error.to_string();
        self.stop(match error {
            StoreError::Fenced { .. } | StoreError::Ended { .. } => Stopped::Fenced(why),
            _ => Stopped::Store(why),
        })
    }

    /// Waits until all that this run recorded survives a crash, if the rule says so.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        effect: Effect,
        moment: Moment,
    ) -> Result<(), Stopped> {
        let hasty =
            moment == Moment::BeforeEffect && self.settings.mutant.breaks(Rule::IntentBeforeEffect);
        if crate::effect::waits(effect, self.settings.durability, moment) && !hasty {
            self.durable().await?;
        }
        Ok(())
    }

    /// Waits until all that this run recorded survives a crash.
    pub(crate) async fn durable(self: &Arc<Self>) -> Result<(), Stopped> {
        let _active = Active::new(self);
        let position = self.state().position;
        match self.store.durable(position).await {
            Ok(()) => {
                self.syncer.durable(position);
                Ok(())
            }
            Err(e) => Err(self.stop_for(&e)),
        }
    }

    /// Somebody else has recorded something for this run.
    pub(crate) fn arrived(&self) {
        let mut state = self.state();
        state.arrived = true;
        state.wake();
    }

    /// What the end of a turn carries over.
    pub(crate) fn carry(&self) -> Carry {
        let state = self.state();
        Carry::of(&state.journal, state.applied)
    }

    /// Whether something has come that [`Run::catch_up`] would find.
    pub(crate) fn has_arrived(&self) -> bool {
        self.state().arrived
    }

    /// Takes in what others recorded.
    pub(crate) async fn catch_up(&self) -> Result<(), Stopped> {
        loop {
            let from = {
                let mut state = self.state();
                state.arrived = false;
                state.applied + 1
            };
            let page = self.store.events(&self.id, from, PAGE).await;
            let page = page.map_err(|e| self.stop_for(&e))?;
            let full = page.len() == PAGE;
            let mut state = self.state();
            for event in page {
                state.take(event);
            }
            let (cancel, fail) = (state.journal.cancel.clone(), state.journal.fail.clone());
            state.wake();
            drop(state);
            if let Some(why) = fail {
                return Err(self.stop(Stopped::Failed(why)));
            }
            if let Some(why) = cancel {
                return Err(self.stop(Stopped::Cancelled(why)));
            }
            if !full {
                return Ok(());
            }
        }
    }
}

/// What the journal has to know of an event of ours while the run is in memory.
enum Noted {
    /// Only what was used: what the step came to, the code that asked has been told already.
    Used(Usage),
    /// The event, without its payloads, which are not asked for again.
    Event(Kind, Fields),
}

impl RunState {
    /// With the memory that the run saw last, and whether the code has seen all that was recorded
    /// when it begins something.
    pub(super) fn stamp(&self, event: &mut NewEvent) {
        event.memory = event.memory.or(self.journal.memory);
        let begins = match event.kind {
            Kind::StepIntended => event.fields.get(record::step::ATTEMPT).is_none(),
            Kind::ApprovalRequested | Kind::TimerSet => true,
            _ => false,
        };
        if begins && self.is_another_on_its_way(event.fields.text(record::step::STEP)) {
            let fields = std::mem::take(&mut event.fields);
            event.fields = fields.with(record::step::BESIDE, 1);
        }
    }

    fn noted(&self, event: &NewEvent) -> Option<Noted> {
        let fields = &event.fields;
        let known = || {
            let step = fields.text(record::step::STEP);
            step.is_some_and(|step| self.journal.steps.contains_key(step))
        };
        let light = || Noted::Event(event.kind.clone(), fields.clone());
        match event.kind {
            Kind::StepIntended => {
                let matters = fields.get(record::step::CHILD).is_some()
                    || fields.get(record::step::APPROVAL).is_some()
                    || fields.number(record::step::EFFECT) == Some(Effect::Once.number());
                matters.then(light)
            }
            Kind::StepSucceeded | Kind::StepFailed if !known() => used(event).map(Noted::Used),
            Kind::DecisionCommitted | Kind::RetrievalPerformed | Kind::User(_) => None,
            _ => Some(light()),
        }
    }

    /// Takes in an event of ours.
    fn note(&mut self, id: &StreamId, noted: Noted, sequence: u64, now_us: u64) {
        match noted {
            Noted::Used(usage) => self.journal.usage.add(&usage),
            Noted::Event(kind, fields) => {
                let mut event = Event::new(id.clone(), sequence, 0, now_us, kind);
                event.fields = fields;
                self.journal.apply(event);
            }
        }
    }

    /// What a step used whose outcome is recorded later or never.
    pub(super) fn note_usage(&mut self, event: &NewEvent) {
        if let Some(usage) = used(event) {
            self.journal.usage.add(&usage);
        }
    }

    /// Takes in an event that was read.
    fn take(&mut self, event: Event) {
        let sequence = event.sequence;
        let ours = self.ahead.remove(&sequence);
        if sequence <= self.applied {
            return;
        }
        self.applied = sequence;
        if !ours {
            self.journal.apply(event);
        }
    }
}

/// What a step used. One that is tried again counts when it is done.
pub(super) fn used(event: &NewEvent) -> Option<Usage> {
    let mut usage = read_usage(&event.fields);
    if event.fields.get(record::failure::RETRY_AT).is_some() {
        return Some(usage);
    }
    let kind = event.fields.number(record::step::KIND);
    let kind = kind.and_then(StepKind::from_number);
    if matches!(kind, Some(StepKind::Model | StepKind::Tool)) {
        usage.steps += 1;
    }
    Some(usage)
}
