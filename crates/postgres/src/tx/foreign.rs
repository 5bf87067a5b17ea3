//! Events of another store, inside of a transaction.
//!
//! Invariant: a run that is taken over can be claimed by nobody before it is said that all of it is
//! here.

use dalsegno_store::{Foreign, StoreError, StreamKind, engine};

use super::Tx;
use crate::save::{ClaimChange, EventRow, NEVER_US, db_text};

impl Tx<'_> {
    /// Adds events of another store to a stream as they are.
    pub fn take_over(&mut self, foreign: &Foreign) -> Result<(), StoreError> {
        let stream = foreign.stream.clone();
        let Some(locked) = self.streams.get_mut(&stream) else {
            return Err(StoreError::NotFound { stream });
        };
        if let Some((lease, _)) = &locked.holder {
            let lease = lease.clone();
            return Err(StoreError::Held { stream, lease });
        }
        let found = locked.exists.then_some(&locked.draft);
        let (draft, placed) = engine::place_foreign(foreign, found)?;
        let Some(first) = placed.first().map(|placed| &placed.event) else {
            return Ok(());
        };
        if stream.kind() == StreamKind::Run && !locked.exists {
            let (queue, priority) = engine::queue_of(&first.fields);
            locked.claim = ClaimChange::New {
                queue: db_text(queue),
                priority: i32::try_from(priority).unwrap_or(i32::MAX),
                ready_us: NEVER_US,
            };
        } else if locked.has_claim {
            locked.claim = ClaimChange::Set {
                ready_us: NEVER_US,
                token: None,
                holder: None,
            };
        }
        let clocks = placed.iter().map(|placed| placed.event.clock);
        locked.clock = clocks.fold(locked.clock, u64::max);
        self.judge.clock = self.judge.clock.max(locked.clock);
        locked.draft = draft;
        locked.exists = true;
        locked.added.extend(placed.into_iter().map(EventRow::from));
        Ok(())
    }
}
