//! The fold of what the code waits for: times, and people.

use dalsegno_store::{Event, Kind, Value, field};

use super::step_of;
use crate::journal::{ApprovalAnswer, ApprovalRecord, Awaited, Journal, Outcome, StepRecord};
use crate::record;
use crate::step::{StepId, StepKind};

impl Journal {
    pub(super) fn apply_timer(&mut self, event: &Event) {
        let Some(id) = event.fields.text(field::TIMER) else {
            return;
        };
        match event.kind {
            Kind::TimerSet => {
                let due = event.fields.number(field::DUE).unwrap_or(0);
                if !self.fired.contains(id) {
                    self.timers.insert(id.to_owned(), due);
                }
                if is_sleep(id) {
                    let new = || StepRecord::new(StepKind::Sleep, event);
                    let step = self.steps.get_or_insert_with(&StepId::new(id), new);
                    step.beside |= is_beside(event);
                } else if let Some(id) = id.strip_suffix("!timeout") {
                    self.awaits(StepId::new(id), format!("signal {id}"), event);
                }
            }
            Kind::TimerFired => {
                self.timers.remove(id);
                let slept = StepId::new(id);
                match self.steps.get(&slept) {
                    Some(step) if step.outcome.is_none() => {
                        self.end_step(&slept, event, Outcome::Succeeded(None));
                    }
                    Some(_) => {}
                    None => drop(self.fired.insert(id.to_owned())),
                }
            }
            _ => drop(self.timers.remove(id)),
        }
    }

    pub(super) fn apply_approval(&mut self, event: Event) {
        let fields = &event.fields;
        let Some(id) = step_of(fields) else { return };
        let Some(Value::Bytes(hash)) = fields.get(record::approval::HASH) else {
            return;
        };
        if event.kind == Kind::ApprovalRequested {
            let asked = ApprovalRecord {
                hash: hash.clone(),
                expires_us: fields.number(record::approval::EXPIRES),
                asked_us: event.time_us,
                payload: event.input.clone(),
                answer: None,
                used: false,
            };
            self.awaits(id.clone(), format!("approval {id}"), &event);
            self.approvals.entry(id).or_insert(asked);
            return;
        }
        let Some(asked) = self.approvals.get_mut(&id) else {
            return;
        };
        // The first answer to exactly this question, in time, is the answer.
        let late = asked.expires_us.is_some_and(|until| event.time_us > until);
        if asked.answer.is_some() || asked.hash != *hash || late {
            return;
        }
        let text = |key| fields.text(key).unwrap_or_default().to_owned();
        asked.answer = Some(ApprovalAnswer {
            approved: fields.number(record::approval::VERDICT) == Some(1),
            by: text(record::approval::BY),
            note: text(record::approval::NOTE),
            sequence: event.sequence,
        });
    }

    /// An event says that the code waits in a step.
    pub(super) fn awaits(&mut self, id: StepId, what: String, event: &Event) {
        if self.steps.contains_key(&id) || is_beside(event) {
            return;
        }
        let (first, due) = (event.sequence, false);
        self.awaited
            .entry(id)
            .or_insert(Awaited { what, first, due });
    }
}

/// Whether it was recorded while the code had not seen what another step came to.
pub(super) fn is_beside(event: &Event) -> bool {
    event.fields.number(record::step::BESIDE) == Some(1)
}

/// Timers of the library's own have a `!` in them; the others are sleeps, by their identity.
fn is_sleep(timer: &str) -> bool {
    !timer.contains('!')
}
