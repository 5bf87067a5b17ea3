//! The way up of a step: its outcome is recorded, and durable where the rule says so.
//!
//! Invariant: an outcome that must be durable is, before the code sees it. Any other is recorded
//! before anything that could depend on it is, in the same append (see `kept_back.rs`).

use std::sync::Arc;
#[cfg(feature = "memory")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "memory")]
use dalsegno_store::{Append, StoreError};
use dalsegno_store::{Fields, Kind, NewEvent, NewPayload};
use serde_json::json;

use super::append::NotRecorded;
use super::begin::{retry_timer, shown};
use super::{Begun, Doubt, Run, Step, Stopped, Ticket};
use crate::attention::{Attention, AttentionKind};
use crate::budget::Usage;
use crate::effect::{self, Effect, Moment};
use crate::failure::{Certainty, Failure, FailureKind};
use crate::journal::{Outcome, Verdict};
use crate::record;
use crate::rules::Rule;
use crate::step::StepKind;

/// What a step that was executed came to.
#[derive(Clone, Debug)]
pub enum Done {
    /// It was done.
    Succeeded {
        /// The result.
        output: Option<NewPayload>,
        /// What it used.
        usage: Usage,
    },
    /// It failed, for good.
    Failed(Failure),
    /// It failed, and is tried again at a time in microseconds since 1970.
    FailedForNow(Failure, u64),
}

/// What became of a step that writes to another stream.
#[cfg(feature = "memory")]
#[derive(Debug)]
pub(crate) enum Together {
    /// Both are recorded.
    Done,
    /// The other stream is not where it was expected to be: neither is recorded.
    Moved(Ticket),
    /// It is larger than it may be: neither is recorded.
    Refused(Ticket, String),
}

impl Run {
    /// Records what a step came to. An error inside says that it could not be recorded as it is, and
    /// what was recorded instead: a result that is too large is a failure.
    ///
    /// # Errors
    /// The run does not go on here. Whether the outcome is recorded is not known.
    pub async fn finish(
        self: &Arc<Self>,
        mut ticket: Ticket,
        done: Done,
    ) -> Result<Result<(), Failure>, Stopped> {
        let step = &ticket.step.clone();
        let was_done = matches!(done, Done::Succeeded { .. });
        let mut events = self.events_of(&ticket, done);
        let finished = if self.is_kept_back(&ticket, &events) {
            let mut state = self.state();
            let mut tell_syncer = false;
            for event in events.drain(..) {
                state.note_usage(&event);
                let id = step.id.clone();
                match ticket.kept_back {
                    true => state.kept_back.keep(id, event),
                    false => tell_syncer |= state.kept_back.keep_for_soon(id, event),
                }
            }
            state.overtakes(&step.id);
            drop(state);
            if tell_syncer {
                self.syncer.late(self);
            }
            drop(ticket.counted.take());
            Ok(())
        } else {
            let showing = self.showing(&step.id, step.kind);
            let finished = self.record_outcome(&mut ticket, events, was_done).await?;
            showing.seen();
            finished
        };
        if let Some(active) = ticket.active.take() {
            active.end();
        }
        Ok(finished)
    }

    /// The same, for who shows it to the code itself.
    #[cfg(feature = "memory")]
    pub(crate) async fn finish_unseen(
        self: &Arc<Self>,
        mut ticket: Ticket,
        done: Done,
    ) -> Result<Result<(), Failure>, Stopped> {
        let was_done = matches!(done, Done::Succeeded { .. });
        let events = self.events_of(&ticket, done);
        self.record_outcome(&mut ticket, events, was_done).await
    }

    /// What says what a step came to.
    fn events_of(&self, ticket: &Ticket, done: Done) -> Vec<NewEvent> {
        let was_done = matches!(done, Done::Succeeded { .. });
        let mut events = outcome_events(&ticket.step, done, &ticket.used);
        if let (true, [event]) = (was_done, &mut events[..]) {
            *event = record::with_summary(event.clone(), ticket.summary.as_deref());
        }
        let mut state = self.state();
        state.journal.memory = ticket.seen.or(state.journal.memory);
        // What is kept back must not be given a version that comes later.
        events.iter_mut().for_each(|event| state.stamp(event));
        events
    }

    async fn record_outcome(
        self: &Arc<Self>,
        ticket: &mut Ticket,
        events: Vec<NewEvent>,
        was_done: bool,
    ) -> Result<Result<(), Failure>, Stopped> {
        let step = ticket.step.clone();
        let finished = match self.record(events).await {
            Ok(_) => Ok(()),
            Err(NotRecorded::Stopped(stopped)) => return Err(stopped),
            Err(NotRecorded::Refused(why)) => {
                let why = match was_done {
                    true => format!("it was done, but its result cannot be recorded: {why}"),
                    false => format!("its failure cannot be recorded: {why}"),
                };
                let failure = Failure::of(FailureKind::TooLarge, Certainty::Terminal, why);
                let failure = failure.at(step.id.as_str());
                let done = Done::Failed(failure.clone());
                let events = outcome_events(&step, done, &ticket.used);
                match self.record(events).await {
                    Ok(_) => Err(failure),
                    Err(NotRecorded::Stopped(stopped)) => return Err(stopped),
                    Err(NotRecorded::Refused(why)) => {
                        return Err(self.stop(Stopped::Store(why)));
                    }
                }
            }
        };
        drop(ticket.counted.take());
        self.commit(step.effect, Moment::AfterOutcome).await?;
        Ok(finished)
    }

    /// Records that a step was done in one append with what it did to another stream: both, or
    /// neither. They may still have to be made durable.
    ///
    /// # Errors
    /// The run does not go on here.
    #[cfg(feature = "memory")]
    pub(crate) async fn append_together(
        self: &Arc<Self>,
        ticket: Ticket,
        output: NewPayload,
        other: Append,
    ) -> Result<Together, Stopped> {
        let step = &ticket.step;
        let event = record::succeeded(&step.id, step.kind, Some(output));
        let mut event = record::with_summary(event, ticket.summary.as_deref());
        event.memory = ticket.seen;
        let stream = other.stream.clone();
        let moved = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&moved);
        let is_elsewhere = move |error: &StoreError| {
            let is_elsewhere =
                matches!(error, StoreError::Conflict { stream: at, .. } if *at == stream);
            told.store(is_elsewhere, Ordering::Relaxed);
            is_elsewhere
        };
        let mut others = vec![other];
        if self.settings.mutant.breaks(Rule::OneWrite) {
            // As who calls the memory from a tool: it is durable before the outcome is recorded.
            let appended = match self.store.append(std::mem::take(&mut others)).await {
                Err(e) if is_elsewhere(&e) => return Ok(Together::Moved(ticket)),
                Err(e) => return Err(self.stop_for(&e)),
                Ok(appended) => appended,
            };
            let durable = self.store.durable(appended.position).await;
            durable.map_err(|e| self.stop_for(&e))?;
        }
        let recorded = self.record_unless(vec![event], others, None, is_elsewhere);
        match recorded.await {
            Ok(heads) => {
                // From here on the run has seen what it wrote.
                let mut state = self.state();
                let seen = heads.others.first().copied().or(ticket.seen);
                state.journal.memory = seen.or(state.journal.memory);
                Ok(Together::Done)
            }
            Err(NotRecorded::Stopped(stopped)) => Err(stopped),
            Err(NotRecorded::Refused(_)) if moved.load(Ordering::Relaxed) => {
                Ok(Together::Moved(ticket))
            }
            Err(NotRecorded::Refused(why)) => Ok(Together::Refused(ticket, why)),
        }
    }

    /// Whether an outcome need not be recorded before the code sees it.
    fn is_kept_back(&self, ticket: &Ticket, events: &[NewEvent]) -> bool {
        let step = &ticket.step;
        let waits = effect::waits(step.effect, self.settings.durability, Moment::AfterOutcome);
        let hasty = self.settings.mutant.breaks(Rule::RecordWhatItDependsOn);
        let state = self.state();
        // What the journal knows of a step, it must also know the outcome of.
        let is_known = state.journal.steps.contains_key(&step.id);
        let may_be_late = !waits && !hasty && !is_known && !self.is_replay();
        match events {
            [outcome] => (ticket.kept_back || may_be_late) && state.kept_back.has_room_for(outcome),
            _ => false,
        }
    }

    /// Records that a step in doubt happened, or did not, and goes on with it.
    ///
    /// # Errors
    /// The run does not go on here.
    pub async fn resolve(
        self: &Arc<Self>,
        doubt: Doubt,
        verdict: Verdict,
        output: Option<NewPayload>,
        by: &str,
    ) -> Result<Begun, Stopped> {
        let fields = Fields::new()
            .with(record::step::STEP, doubt.step.id.as_str())
            .with(record::resolved::VERDICT, verdict.number())
            .with(record::resolved::BY, by);
        let mut event = NewEvent::new(Kind::StepResolved).with_fields(fields);
        event.input = output.clone();
        match self.record(vec![event]).await {
            Ok(_) => {}
            Err(NotRecorded::Stopped(stopped)) => return Err(stopped),
            Err(NotRecorded::Refused(why)) => {
                let doubt = Doubt { why, ..doubt };
                return Err(self.escalate(&doubt));
            }
        }
        self.commit(Effect::Once, Moment::AfterOutcome).await?;
        match verdict {
            Verdict::Happened => {
                let output = output.map(|new| dalsegno_store::Payload {
                    content_type: new.content_type,
                    body: dalsegno_store::Body::Inline(new.bytes),
                });
                Ok(Begun::Recorded(Outcome::Succeeded(output)))
            }
            Verdict::DidNotHappen => self.intend(doubt.step, doubt.attempt + 1).await,
            Verdict::FailRun => Err(self.stop(Stopped::Failed(doubt.why))),
        }
    }

    /// Hands a step in doubt to a person.
    pub fn escalate(&self, doubt: &Doubt) -> Stopped {
        let step = &doubt.step;
        let reason = format!(
            "nobody knows whether {} {} happened ({}): look, then say happened, did not happen, or \
             fail the run",
            step.kind, step.id, doubt.why
        );
        let input = {
            let state = self.state();
            let found = state.journal.steps.get(&step.id);
            found.and_then(|found| found.input.as_ref().map(shown))
        };
        let evidence = json!({
            "step": step.id.as_str(),
            "idempotency_key": doubt.key,
            "attempt": doubt.attempt,
            "begun_us": doubt.begun_us,
            "why": doubt.why,
            "input": input,
        });
        let attention = Attention::new(AttentionKind::InDoubt, reason);
        let attention = attention.at(&step.id).with_evidence(&evidence);
        self.stop(Stopped::Attention(attention))
    }
}

fn outcome_events(step: &Step, done: Done, used: &Usage) -> Vec<NewEvent> {
    match done {
        Done::Succeeded { output, mut usage } => {
            usage.add(used);
            let event = match step.kind {
                StepKind::Retrieval => record::retrieved(&step.id, step.input.clone(), output),
                kind => record::succeeded(&step.id, kind, output),
            };
            vec![record::with_usage(event, &usage)]
        }
        Done::Failed(failure) => {
            let event = record::failed(&step.id, step.kind, &failure, None);
            vec![record::with_usage(event, used)]
        }
        Done::FailedForNow(failure, at) => {
            let event = record::failed(&step.id, step.kind, &failure, Some(at));
            let timer = record::timer_set(&retry_timer(&step.id), at);
            vec![record::with_usage(event, used), timer]
        }
    }
}
