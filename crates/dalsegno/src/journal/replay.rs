//! The journal as running code comes to it again: which recorded steps it has reached.
//!
//! Invariant: `remaining` counts the recorded steps that the code still has to come to before it
//! may do anything new. Code that does something new instead has changed.

use std::collections::HashSet;

use super::order::is_from_outside;
use super::{Journal, Order, StepRecord};
use crate::attention::AttentionKind;
use crate::step::{StepId, StepKind};

impl Journal {
    /// From here on running code comes to the steps again: counts those that it has to come to.
    pub(crate) fn begin_replay(&mut self) {
        let done = self.done_plan_steps();
        let counted = |(id, step): &(&StepId, &StepRecord)| {
            step.is_proof() && (done.is_empty() || !is_inside(id.as_str(), &done))
        };
        let steps = || self.steps.iter().filter(counted);
        let remaining = steps().count();
        let waits = self.steps.values().any(is_from_outside);
        let order = Order::of(steps(), waits);
        let ids: Vec<StepId> = match remaining == self.steps.len() {
            true => Vec::new(),
            false => steps().map(|(id, _)| id.clone()).collect(),
        };
        let all = ids.is_empty();
        self.unseen = 0;
        for step in self.steps.values_mut() {
            step.called = false;
            step.held = all && step.outcome.is_some();
            self.unseen += usize::from(step.held);
        }
        for id in ids {
            if let Some(step) = self.steps.get_mut(&id) {
                step.held = step.outcome.is_some();
                self.unseen += usize::from(step.held);
            }
        }
        (self.remaining, self.order) = (remaining, order);
    }

    /// Plan steps that have their result: nothing inside of them is looked at again.
    fn done_plan_steps(&self) -> HashSet<&str> {
        self.steps
            .iter()
            .filter(|(_, step)| step.kind == StepKind::PlanStep && step.outcome.is_some())
            .map(|(id, _)| id.as_str())
            .collect()
    }

    /// Whether the running code has come to everything that is recorded of a loop's turn.
    pub(crate) fn has_called_turn(&self, turn: u64) -> bool {
        let (inside, done) = (format!("@{turn}/"), self.done_plan_steps());
        self.steps.iter().all(|(id, step)| {
            let id = id.as_str();
            !id.starts_with(&inside) || step.called || !step.is_proof() || is_inside(id, &done)
        })
    }

    /// The running code has come to a step. Whether it has to be looked at again who waits for all
    /// to be called.
    pub(crate) fn call(&mut self, id: &StepId) -> bool {
        match self.steps.get_mut(id) {
            Some(step) if !step.called => {
                step.called = true;
                if step.is_proof() && self.remaining > 0 {
                    self.remaining -= 1;
                    return self.remaining == 0 || std::mem::take(&mut self.order.wants_more);
                }
                false
            }
            _ => false,
        }
    }

    /// The key that a step was sent with, if a fork took it over.
    pub(crate) fn inherited_key(&self, id: &StepId) -> Option<String> {
        self.forked.as_ref()?;
        self.steps.get(id).and_then(|step| step.key.clone())
    }

    /// The key that a step is sent with.
    pub(crate) fn key_of(&self, id: &StepId) -> String {
        let own = || crate::step::idempotency_key(&self.created.lineage, id.as_str());
        self.inherited_key(id).unwrap_or_else(own)
    }

    /// Recorded steps that the running code has not come to, the first first.
    pub fn not_called(&self) -> Vec<(&StepId, &StepRecord)> {
        let steps = self.steps.iter();
        let mut steps: Vec<_> = steps.filter(|(_, s)| !s.called && s.is_proof()).collect();
        steps.sort_by_key(|(_, step)| step.first);
        steps
    }

    /// Steps that were begun and whose outcome nobody knows, in order.
    pub fn open_steps(&self) -> Vec<(&StepId, &StepRecord)> {
        let steps = self.steps.iter();
        let mut steps: Vec<_> = steps.filter(|(_, step)| step.is_open()).collect();
        steps.sort_by_key(|(_, step)| step.first);
        steps
    }

    /// All its steps in the order in which they were begun.
    pub fn steps_in_order(&self) -> Vec<(&StepId, &StepRecord)> {
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|(_, step)| step.first);
        steps
    }

    /// Whether it was in attention, and a person has said since what may move it on: whoever takes it
    /// up next finds out.
    pub fn is_answered(&self) -> bool {
        self.attention.is_some() && self.answered
    }

    /// The attention it is in because of a step in doubt.
    pub fn in_doubt(&self) -> Option<&StepId> {
        let attention = self.attention.as_ref()?;
        (attention.kind == AttentionKind::InDoubt)
            .then_some(attention.step.as_ref())
            .flatten()
    }
}

fn is_inside(path: &str, plan_steps: &HashSet<&str>) -> bool {
    path.match_indices('/')
        .any(|(at, _)| plan_steps.contains(&path[..at]))
}
