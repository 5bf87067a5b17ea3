//! The journal as running code comes to it again: which recorded steps it has reached.
//!
//! Invariant: `remaining` counts the recorded steps and waits that the code still has to come to
//! before it may do anything new, each of which is `due`. Code that does something new instead has changed.

use std::collections::HashSet;

use super::order::is_from_outside;
use super::{Journal, Order, StepRecord};
use crate::attention::AttentionKind;
use crate::step::{StepId, StepKind};

impl Journal {
    /// From here on running code comes to the steps again: counts those that it has to come to.
    pub(crate) fn begin_replay(&mut self) {
        let done = self.done_plan_steps();
        let is_outside = |id: &StepId| done.is_empty() || !is_inside(id.as_str(), &done);
        let counted = |(id, step): &(&StepId, &StepRecord)| step.is_proof() && is_outside(id);
        let steps = || self.steps.iter().filter(counted);
        let awaited = self.awaited.iter().filter(|(id, _)| is_outside(id));
        let awaited: Vec<(StepId, u64)> = awaited.map(|(id, w)| (id.clone(), w.first)).collect();
        let count = steps().count();
        let waits = self.steps.values().any(is_from_outside);
        let order = Order::of(steps(), &awaited, waits);
        let ids: Vec<StepId> = match count == self.steps.len() {
            true => Vec::new(),
            false => steps().map(|(id, _)| id.clone()).collect(),
        };
        let all = count == self.steps.len();
        self.unseen = 0;
        for step in self.steps.values_mut() {
            step.due = all;
            step.held = all && step.outcome.is_some();
            self.unseen += usize::from(step.held);
        }
        for id in ids {
            if let Some(step) = self.steps.get_mut(&id) {
                step.due = true;
                step.held = step.outcome.is_some();
                self.unseen += usize::from(step.held);
            }
        }
        self.awaited.values_mut().for_each(|wait| wait.due = false);
        (self.remaining, self.order) = (count + awaited.len(), order);
        for (id, _) in awaited {
            if let Some(wait) = self.awaited.get_mut(&id) {
                wait.due = true;
            }
        }
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
        let inside = format!("@{turn}/");
        !self.due().any(|(id, ..)| id.as_str().starts_with(&inside))
    }

    /// What the running code has to come to, and has not: its event, and what it is.
    fn due(&self) -> impl Iterator<Item = (&StepId, u64, String)> {
        let steps = self.steps.iter().filter(|(_, step)| step.due);
        let steps = steps.map(|(id, step)| (id, step.first, format!("{} {id}", step.kind)));
        let waits = self.awaited.iter().filter(|(_, wait)| wait.due);
        steps.chain(waits.map(|(id, wait)| (id, wait.first, wait.what.clone())))
    }

    /// The running code has come to a step. Whether it has to be looked at again who waits for all
    /// to be called.
    pub(crate) fn call(&mut self, id: &StepId) -> bool {
        if self.remaining == 0 {
            return false;
        }
        let due = match self.steps.get_mut(id) {
            Some(step) => Some(&mut step.due),
            None => self.awaited.get_mut(id).map(|wait| &mut wait.due),
        };
        if !due.is_some_and(std::mem::take) {
            return false;
        }
        self.remaining -= 1;
        self.remaining == 0 || self.is_come_to()
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

    /// What is recorded and the running code has not come to, the first first, in words.
    pub(crate) fn not_called(&self) -> Vec<String> {
        let mut due: Vec<_> = self.due().collect();
        due.sort_by_key(|(_, event, _)| *event);
        let words = due.into_iter();
        words
            .map(|(_, event, what)| format!("{what} (event {event})"))
            .collect()
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
