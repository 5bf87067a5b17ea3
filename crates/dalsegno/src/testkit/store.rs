//! A store at whose every append and sync the process may die.

use dalsegno_store::{
    Answer, Append, Appended, Lease, LocalStore, Over, Position, Store, StreamId,
};

use super::Schedule;

/// A store of a process that may die.
#[derive(Debug)]
pub struct MortalStore {
    /// What it is without that.
    pub store: LocalStore,
    /// When it dies.
    pub schedule: Schedule,
}

/// What an append is about, in words.
fn about(batch: &[Append]) -> String {
    let kinds = batch.iter().flat_map(|append| &append.events);
    let kinds: Vec<String> = kinds.map(|event| event.kind.to_string()).collect();
    kinds.join(", ")
}

impl Over for MortalStore {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move {
            let what = about(&batch);
            self.schedule.moment(|| format!("before {what}")).await;
            let appended = self.store.append(batch).await;
            self.schedule.moment(|| format!("after {what}")).await;
            appended
        })
    }

    fn durable(&self, position: Position) -> Answer<'_, ()> {
        Box::pin(async move {
            let durable = self.store.durable(position).await;
            self.schedule
                .moment(|| format!("durable up to {position}"))
                .await;
            durable
        })
    }

    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        Box::pin(async move {
            let lease = self.store.take_lease(run, owner, for_us).await;
            self.schedule.moment(|| format!("took {run}")).await;
            lease
        })
    }

    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        Box::pin(async move {
            let released = self.store.release_lease(run, token).await;
            self.schedule.moment(|| format!("gave back {run}")).await;
            released
        })
    }
}
