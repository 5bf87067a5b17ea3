//! The way up of a step: its outcome is recorded, and durable where the rule says so.
//!
//! Invariant: an outcome that must be durable is, before the code sees it. Any other is recorded
//! before anything that could depend on it is, in the same append (see `kept_back.rs`).

use std::sync::Arc;

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
        let mut events = outcome_events(step, done, &ticket.used);
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
            drop(state);
            if tell_syncer {
                self.syncer.late(self);
            }
            drop(ticket.counted.take());
            Ok(())
        } else {
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
                    let events = outcome_events(step, done, &ticket.used);
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
            let sights = self.state().sights;
            self.commit(step.effect, Moment::AfterOutcome).await?;
            let mut state = self.state();
            if state.sights != sights {
                // While this was on its way to the disk, the code saw something else.
                let seen = record::seen(&step.id, step.kind);
                state.kept_back.keep(step.id.clone(), seen);
            }
            finished
        };
        self.state().sights += 1;
        if let Some(active) = ticket.active.take() {
            active.end();
        }
        Ok(finished)
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
            let event = record::succeeded(&step.id, step.kind, output);
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
