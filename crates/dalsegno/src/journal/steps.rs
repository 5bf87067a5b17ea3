//! The steps of a run, in the order in which the journal heard of them.
//!
//! A long run has hundreds of thousands: the records lie in one row, which grows without being
//! rebuilt, and only their places are hashed. Code comes to recorded steps in the order in which they
//! were recorded, mostly: who asks for one is likely to ask for it again, or for the next.
//!
//! Invariant: `places` has the place of each record in `row`, by its identity, and no other.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::StepRecord;
use crate::step::StepId;

/// The steps of a run.
#[derive(Debug, Default)]
pub struct Steps {
    row: Vec<(StepId, StepRecord)>,
    places: HashMap<StepId, usize>,
    /// Where the last one was that somebody asked for. Only where to look first.
    last: AtomicUsize,
}

impl Steps {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.row.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// One of them.
    pub fn get<Q>(&self, id: &Q) -> Option<&StepRecord>
    where
        StepId: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.place(id).map(|place| &self.row[place].1)
    }

    /// Whether there is such a one.
    pub fn contains_key<Q>(&self, id: &Q) -> bool
    where
        StepId: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.place(id).is_some()
    }

    /// Each with its identity, in the order in which the journal heard of them.
    pub fn iter(&self) -> impl Iterator<Item = (&StepId, &StepRecord)> + Clone {
        self.row.iter().map(|(id, step)| (id, step))
    }

    /// The same without identities.
    pub fn values(&self) -> impl Iterator<Item = &StepRecord> {
        self.row.iter().map(|(_, step)| step)
    }

    pub(super) fn get_mut<Q>(&mut self, id: &Q) -> Option<&mut StepRecord>
    where
        StepId: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.place(id).map(|place| &mut self.row[place].1)
    }

    /// So many more are likely to come.
    pub(super) fn expect_more(&mut self, steps: usize) {
        self.row.reserve(steps);
        self.places.reserve(steps);
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut StepRecord> {
        self.row.iter_mut().map(|(_, step)| step)
    }

    /// The record of a step, which is made if there is none.
    pub(super) fn get_or_insert_with(
        &mut self,
        id: &StepId,
        make: impl FnOnce() -> StepRecord,
    ) -> &mut StepRecord {
        let place = self.place(id).unwrap_or_else(|| {
            let place = self.row.len();
            self.places.insert(id.clone(), place);
            self.row.push((id.clone(), make()));
            self.last.store(place, Ordering::Relaxed);
            place
        });
        &mut self.row[place].1
    }

    fn place<Q>(&self, id: &Q) -> Option<usize>
    where
        StepId: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let last = self.last.load(Ordering::Relaxed);
        let is_at = |place: usize| self.row.get(place).is_some_and(|(at, _)| at.borrow() == id);
        let place = match is_at(last) {
            true => return Some(last),
            false if is_at(last + 1) => last + 1,
            false => *self.places.get(id)?,
        };
        self.last.store(place, Ordering::Relaxed);
        Some(place)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&StepId) -> bool) {
        let before = self.row.len();
        self.row.retain(|(id, _)| keep(id));
        if self.row.len() != before {
            let ids = self.row.iter().map(|(id, _)| id.clone());
            self.places = ids.zip(0..).collect();
        }
    }

    pub(super) fn clear(&mut self) {
        self.row.clear();
        self.places.clear();
    }
}

impl Clone for Steps {
    fn clone(&self) -> Steps {
        Steps {
            row: self.row.clone(),
            places: self.places.clone(),
            last: AtomicUsize::default(),
        }
    }
}

/// Equal if the same steps came to the same, in whatever order.
impl PartialEq for Steps {
    fn eq(&self, other: &Steps) -> bool {
        self.len() == other.len() && self.iter().all(|(id, step)| other.get(id) == Some(step))
    }
}

impl Eq for Steps {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use dalsegno_store::{Event, Kind, StreamId};

    use super::*;
    use crate::step::StepKind;

    fn steps(ids: &[&str]) -> Steps {
        let mut steps = Steps::default();
        for (at, id) in ids.iter().enumerate() {
            let stream = StreamId::run("r").unwrap();
            let event = Event::new(stream, at as u64 + 1, 1, 1, Kind::StepIntended);
            let new = || StepRecord::new(StepKind::Tool, &event);
            steps.get_or_insert_with(&StepId::new(*id), new);
        }
        steps
    }

    fn first(steps: &Steps, id: &str) -> Option<u64> {
        steps.get(id).map(|step| step.first)
    }

    #[test]
    fn each_is_found_whoever_was_asked_for_before() {
        let ids = ["a#1", "b#1", "a#2", "c#1"];
        let steps = steps(&ids);
        for before in ids {
            for (at, id) in ids.iter().enumerate() {
                assert!(steps.contains_key(before));
                assert_eq!(
                    first(&steps, id),
                    Some(at as u64 + 1),
                    "{id} after {before}"
                );
            }
            assert_eq!(first(&steps, "d#1"), None, "after {before}");
        }
    }

    #[test]
    fn what_is_left_is_found_where_it_is_then() {
        let mut steps = steps(&["@1/a#1", "@2/a#1", "@1/b#1", "@2/b#1"]);
        assert_eq!(first(&steps, "@2/b#1"), Some(4));
        steps.retain(|id| !id.as_str().starts_with("@1/"));
        assert_eq!(first(&steps, "@1/a#1"), None);
        assert_eq!(first(&steps, "@2/b#1"), Some(4));
        assert_eq!(first(&steps, "@2/a#1"), Some(2));
        let ids: Vec<_> = steps.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["@2/a#1", "@2/b#1"]);
        steps.clear();
        assert_eq!((first(&steps, "@2/a#1"), steps.len()), (None, 0));
    }
}
