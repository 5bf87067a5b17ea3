//! What this process knows of a run that is not in its record.

use dalsegno_store::StreamId;

use super::Engine;
use crate::why::{Here, Notes};

impl Engine {
    /// Whether this process is executing a `once` step of a run.
    pub(crate) fn is_busy_with_once(&self, run: &StreamId) -> bool {
        let resident = self.hub().resident.get(run).and_then(|r| r.run.clone());
        resident.is_some_and(|run| run.is_busy_with_once())
    }

    /// For [`crate::Dalsegno::why`].
    pub(crate) fn notes(&self, run: &StreamId, agent: &str) -> Notes {
        let hub = self.hub();
        let resident = hub.resident.get(run);
        let in_memory = resident.and_then(|resident| resident.run.clone());
        let is_resident = resident.is_some();
        let queued = hub.queue.iter().position(|queued| queued == run);
        let not_moving = hub.not_moving.get(run).cloned();
        drop(hub);
        Notes {
            here: Some(Here {
                session: self.session.clone(),
                only: (!self.agents.contains_key(agent)).then(|| self.known_agents()),
                resident: is_resident,
                busy: in_memory.as_ref().is_some_and(|run| run.is_busy()),
                waits: in_memory.map(|run| run.waits_for()).unwrap_or_default(),
                queued,
                max_running: self.limits.running,
                not_moving,
            }),
        }
    }
}
