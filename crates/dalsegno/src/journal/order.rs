//! In which order running code sees again what is recorded.
//!
//! What a step came to is recorded before the code sees it, and mostly it sees it at once. But a time
//! that has come and the end of a child are recorded by others, at any moment; and while an outcome
//! is on its way to the disk, the code may see another. For those an event of their own says that the
//! code has seen them, or has not (`record::step::SEEN`), in front of whatever is recorded next.
//!
//! Invariant: the code sees outcomes again in the order in which it saw them: what lost a race in one
//! life cannot win it in the next. An outcome that it had not seen when something was last recorded is
//! seen after everything else. Each is seen when the code has come to all that was begun before it saw
//! that one: code that lets go of a loser may not come to it again. Branches that run beside each
//! other are not ordered against each other, only against what is outside of branches: a thousand of
//! them are one look at each. Nothing is held back for ever: code that can do nothing else is shown the next one.

use std::collections::HashMap;

use super::{Journal, Outcome, StepRecord};
use crate::step::{StepId, StepKind};

/// Never seen, as far as is recorded.
pub(crate) const NOT_SEEN: u64 = u64::MAX;

/// Empty if the order cannot make a difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Order {
    /// Steps that the code has to come to, by their first events.
    calls: List,
    /// All outcomes, by when the code saw them.
    all: List,
    /// Those of each branch, and, under no name, those outside of branches.
    branches: HashMap<Box<str>, List>,
    /// Somebody has asked for an outcome that is held back.
    pub wants_more: bool,
    /// Somebody waits until the code has come to all that was begun before this event.
    waits_for_calls: Option<u64>,
}

/// Steps by a time and an event.
#[derive(Clone, Debug, Default, PartialEq)]
struct List {
    steps: Vec<(u64, u64, StepId)>,
    /// What was looked for is so of all in front of this one.
    next: usize,
}

impl List {
    /// The first one that is not as it should be, if it is before a time and event.
    fn first(&mut self, before: (u64, u64), is_so: impl Fn(&StepId) -> bool) -> Option<&StepId> {
        while let Some((at, event, id)) = self.steps.get(self.next) {
            if (*at, *event) >= before {
                return None;
            }
            if !is_so(id) {
                break;
            }
            self.next += 1;
        }
        self.steps.get(self.next).map(|(_, _, id)| id)
    }
}

impl Order {
    /// Of the steps that running code has to come to, which may be waiting for others.
    pub fn of<'a>(
        steps: impl Iterator<Item = (&'a StepId, &'a StepRecord)> + Clone,
        awaited: &[(StepId, u64)],
        waits: bool,
    ) -> Order {
        let mut order = Order::default();
        let records = steps.clone().map(|(_, step)| step);
        if !waits && !makes_a_difference(records, awaited) {
            return order;
        }
        for (id, first) in awaited {
            order.calls.steps.push((*first, 0, id.clone()));
        }
        for (id, step) in steps {
            order.calls.steps.push((step.first, 0, id.clone()));
            if step.outcome.is_some() {
                let (at, event) = seen(step);
                order.all.steps.push((at, event, id.clone()));
                let branch = branch_of(id.as_str());
                let branch = match order.branches.get_mut(branch) {
                    Some(list) => list,
                    None => order.branches.entry(branch.into()).or_default(),
                };
                branch.steps.push((at, event, id.clone()));
            }
        }
        let branches = order.branches.values_mut();
        for list in branches.chain([&mut order.calls, &mut order.all]) {
            list.steps.sort_unstable();
        }
        order
    }

    pub fn is_empty(&self) -> bool {
        self.calls.steps.is_empty()
    }
}

/// When the code saw what a step came to, and the event of that.
pub(crate) fn seen(step: &StepRecord) -> (u64, u64) {
    let seen = match (step.seen, is_from_outside(step)) {
        // Who let go of it may have noted that before it was recorded.
        (Some(seen), _) => seen.max(step.last),
        (None, true) => NOT_SEEN,
        (None, false) => step.last,
    };
    (seen, step.last)
}

/// Whether others record what it comes to.
pub(super) fn is_from_outside(step: &StepRecord) -> bool {
    match step.kind {
        StepKind::Sleep => true,
        // That it could not be started the code has recorded itself.
        StepKind::Child => step.attempts > 0,
        _ => false,
    }
}

/// Whether steps were under way beside each other. Of what has no intent nobody knows since when.
fn makes_a_difference<'a>(
    steps: impl Iterator<Item = &'a StepRecord> + Clone,
    awaited: &[(StepId, u64)],
) -> bool {
    let is_of_unknown_length = |step: &StepRecord| match step.kind {
        StepKind::Signal | StepKind::Approval | StepKind::Retrieval => true,
        StepKind::Tool | StepKind::Model => step.attempts == 0,
        _ => false,
    };
    let may_be_beside = |step: &StepRecord| is_of_unknown_length(step) || step.seen.is_some();
    if steps.clone().any(may_be_beside) {
        return true;
    }
    // What has no outcome may have been let go of at any time.
    let end = |step: &StepRecord| step.outcome.as_ref().map_or(u64::MAX, |_| step.last);
    let mut spans: Vec<_> = steps.map(|step| (step.first, end(step))).collect();
    spans.extend(awaited.iter().map(|(_, first)| (*first, u64::MAX)));
    spans.sort_unstable();
    let mut pairs = spans.iter().zip(spans.iter().skip(1));
    pairs.any(|(one, next)| next.0 < one.1)
}

/// Whether it matters which of two outcomes the code sees first.
pub(crate) fn are_ordered(one: &StepId, other: &StepId) -> bool {
    let (one, other) = (branch_of(one.as_str()), branch_of(other.as_str()));
    one.is_empty() || other.is_empty() || one == other
}

/// The outermost branch or plan step that a step is in; nothing if it is in none.
fn branch_of(path: &str) -> &str {
    let mut from = 0;
    if path.starts_with('@') {
        // All is in some turn.
        from = path.find('/').map_or(0, |end| end + 1);
    }
    path[from..].find('/').map_or("", |end| &path[..from + end])
}

impl Journal {
    /// Whether the running code may see what a step came to.
    pub(crate) fn is_its_turn(&mut self, id: &StepId) -> bool {
        if self.order.is_empty() {
            return true;
        }
        let Some(step) = self.steps.get(id) else {
            return true;
        };
        let is_from_outside = is_from_outside(step);
        let at = match (step.held, is_from_outside) {
            (true, _) => seen(step),
            // It came while the code was coming to what is recorded.
            (false, true) => (NOT_SEEN, u64::MAX),
            (false, false) => return true,
        };
        // What it raced with was there when it won, and has to be there when it wins again.
        let is_begun = self.begun_before(at).is_none();
        if !is_begun {
            let before = self.order.waits_for_calls.unwrap_or(at.0).min(at.0);
            self.order.waits_for_calls = Some(before);
        }
        let is_its_turn = is_begun && self.not_shown(id, at).is_none();
        self.order.wants_more |= !is_its_turn;
        is_its_turn
    }

    /// Whether somebody waits until the code has come to something, and it has.
    pub(super) fn is_come_to(&mut self) -> bool {
        let Some(before) = self.order.waits_for_calls else {
            return false;
        };
        let is_come_to = self.begun_before((before, 0)).is_none();
        if is_come_to {
            self.order.waits_for_calls = None;
        }
        is_come_to
    }

    /// The code sees an outcome of its own that it was said not to have seen: the kind of the step.
    pub(crate) fn seen_at_last(&mut self, id: &StepId) -> Option<StepKind> {
        let step = self.steps.get_mut(id)?;
        let is_late = step.seen == Some(NOT_SEEN) && !is_from_outside(step);
        if is_late {
            step.seen = Some(step.last);
        }
        is_late.then_some(step.kind)
    }

    /// The outcome of a step, if it has one and it is its turn.
    pub(crate) fn outcome_in_order(&mut self, id: &StepId) -> Option<Outcome> {
        let outcome = self.steps.get(id)?.outcome.clone()?;
        self.is_its_turn(id).then_some(outcome)
    }

    /// The running code has seen what a step came to, or has let go of it. Whether somebody has to
    /// look again.
    pub(crate) fn shown(&mut self, id: &StepId) -> bool {
        if self.unseen == 0 {
            return false;
        }
        if let Some(step) = self.steps.get_mut(id).filter(|step| step.held) {
            step.held = false;
            self.unseen -= 1;
        }
        self.unseen == 0 || std::mem::take(&mut self.order.wants_more)
    }

    /// The code can do nothing, and an outcome is held back or was not looked at: lets the next one
    /// through. Which; if there is none, the code does not come to what is recorded.
    pub(crate) fn let_one_through(&mut self) -> Option<Vec<StepId>> {
        self.order.wants_more = false;
        if self.order.is_empty() {
            // They are the code's own, and it does not look at them.
            if self.remaining > 0 || self.unseen == 0 {
                self.unseen = 0;
                return None;
            }
            return Some(self.let_all_through());
        }
        let steps = &self.steps;
        let (last, shown) = ((NOT_SEEN, u64::MAX), |id: &StepId| !is_held(steps.get(id)));
        let Some(next) = self.order.all.first(last, shown).cloned() else {
            return (std::mem::take(&mut self.unseen) > 0).then(Vec::new);
        };
        let step = self.steps.get(&next)?;
        let (at, is_due, is_own) = (seen(step), step.due, !is_from_outside(step));
        // An outcome of its own that it has come to it may see: nothing new is done before all is come to, and
        // a record of another version may have one in front of what was begun.
        let is_there = !is_due && (is_own || self.begun_before(at).is_none());
        // Before it was noted what the code had seen, it may have seen it at any time.
        if at.0 != NOT_SEEN && !is_there {
            return None;
        }
        self.shown(&next);
        Some(vec![next])
    }

    fn let_all_through(&mut self) -> Vec<StepId> {
        let held = self.steps.iter().filter(|(_, step)| step.held);
        let held: Vec<StepId> = held.map(|(id, _)| id.clone()).collect();
        for id in &held {
            self.shown(id);
        }
        held
    }

    /// The code goes on although it has not seen an outcome of its own: the kind of the step, if that
    /// was not known.
    pub(crate) fn passed_over(&mut self, id: &StepId) -> Option<StepKind> {
        let step = self.steps.get_mut(id)?;
        let is_news = step.seen != Some(NOT_SEEN) && !is_from_outside(step);
        if is_news {
            step.seen = Some(NOT_SEEN);
        }
        is_news.then_some(step.kind)
    }

    /// A step that was begun before the code saw something, and that it has not come to.
    fn begun_before(&mut self, at: (u64, u64)) -> Option<&StepId> {
        if self.remaining == 0 {
            return None;
        }
        let (steps, awaited) = (&self.steps, &self.awaited);
        let is_due = |id: &StepId| match steps.get(id) {
            Some(step) => step.due,
            None => awaited.get(id).is_some_and(|wait| wait.due),
        };
        self.order.calls.first((at.0, 0), |id| !is_due(id))
    }

    /// An outcome that the code saw before something, and has not seen again.
    fn not_shown(&mut self, id: &StepId, at: (u64, u64)) -> Option<&StepId> {
        let steps = &self.steps;
        let shown = |id: &StepId| !is_held(steps.get(id));
        let order = &mut self.order;
        let branch = branch_of(id.as_str());
        if branch.is_empty() {
            return order.all.first(at, shown);
        }
        let mut branches = order.branches.get_disjoint_mut([branch, ""]).into_iter();
        branches.find_map(|list| list?.first(at, shown))
    }
}

fn is_held(step: Option<&StepRecord>) -> bool {
    step.is_some_and(|step| step.held)
}
