//! The way up of a step: its outcome is recorded, and durable where the rule says so.
//!
//! Invariant: an outcome is recorded before the code sees it, except where granularity keeps it
//! back; and then before anything that could depend on it can be seen from outside.

use std::sync::Arc;

use dalsegno_store::{Fields, Kind, NewEvent, NewPayload};
use serde_json::json;

use super::append::NotRecorded;
use super::begin::{retry_timer, shown};
use super::{Begun, Doubt, Run, Step, Stopped, Ticket};
use crate::attention::{Attention, AttentionKind};
use crate::budget::Usage;
use crate::effect::{Effect, Moment};
use crate::failure::{Certainty, Failure, FailureKind};
use crate::journal::{Outcome, Verdict};
use crate::record;
use crate::step::StepId;

/// So many outcomes are kept back at most: they are in memory, and go into one append. The next one
/// is recorded, and takes them along.
const KEPT_BACK_LIMIT: usize = 256;
/// Larger outcomes are not kept back in memory.
const KEPT_BACK_LIMIT_BYTES: usize = 64 << 10;

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
        let events = outcome_events(step, done, &ticket.used);
        let room = self.state().kept_back.len() < KEPT_BACK_LIMIT;
        let finished = if ticket.kept_back && room && small(&events) {
            let mut state = self.state();
            for event in events {
                state.note_usage(&event);
                state.kept_back.push((step.id.clone(), event));
            }
            drop(state);
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
                state.kept_back.push((step.id.clone(), seen));
            }
            finished
        };
        self.state().sights += 1;
        if let Some(active) = ticket.active.take() {
            active.end();
        }
        Ok(finished)
    }

    /// Forgets outcomes that were kept back inside a plan step, which has its own now. What they
    /// used.
    pub(crate) fn forget_kept_back(&self, plan_step: &StepId) -> Usage {
        let inside = format!("{plan_step}/");
        let mut used = Usage::default();
        let mut state = self.state();
        state.kept_back.retain(|(id, event)| {
            let forget = id.as_str().starts_with(&inside);
            if let (true, Some(usage)) = (forget, super::append::used(event)) {
                used.add(&usage);
            }
            !forget
        });
        // It counts with the plan step.
        state.journal.usage.subtract(&used);
        used
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

fn small(events: &[NewEvent]) -> bool {
    let bytes = |event: &NewEvent| event.output.as_ref().map_or(0, |output| output.bytes.len());
    events.iter().map(bytes).sum::<usize>() <= KEPT_BACK_LIMIT_BYTES
}
