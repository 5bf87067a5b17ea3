//! What people and other programs say to runs of this process: checked (`orders.rs`), recorded
//! durably, and told to the run.
//!
//! Invariant: of two answers that come in the same moment one counts, and the other is an error.

use std::sync::Arc;
use std::time::Duration;

use dalsegno_store::{Append, NewPayload, StoreError, StreamId};

use super::Engine;
use crate::budget::Budget;
use crate::error::Error;
use crate::journal::{Journal, Verdict};
use crate::orders::{self, Order, Said};
use crate::remote::Remote;

/// A process that has a run says so soon whether it takes what was said to the run.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

impl Engine {
    /// The journal of a run.
    pub(super) async fn journal(&self, name: &str) -> Result<(StreamId, Journal), Error> {
        orders::journal(&*self.store, name).await
    }

    /// Records something for a run, durably, and tells it.
    async fn say(&self, (run, event): Order) -> Result<(), Error> {
        self.say_appended(&run, Append::to(run.clone(), vec![event]))
            .await
    }

    async fn say_appended(&self, run: &StreamId, append: Append) -> Result<(), Error> {
        let appended = self.store.append(vec![append]).await?;
        self.store.durable(appended.position).await?;
        self.launch(run);
        Ok(())
    }

    /// The last event of a run, to be known before an order is checked.
    async fn last_event(&self, run: &str) -> Result<u64, Error> {
        let head = self.store.head(&StreamId::run(run)?).await?;
        Ok(head.map_or(0, |head| head.sequence))
    }

    /// Says what was checked when `last` was the run's last event. `false` if something has come
    /// since: check again.
    async fn say_after(&self, last: u64, (run, event): Order) -> Result<bool, Error> {
        let append = Append::to(run.clone(), vec![event.clone()]).expecting(last);
        match self.say_appended(&run, append).await {
            Ok(()) => Ok(true),
            Err(Error::Store(e)) if e.is_conflict() => Ok(false),
            // Another process has the run, and gives the places in its stream: it is asked.
            Err(Error::Store(StoreError::Held { .. })) => {
                let (store, runtime) = (Arc::clone(&self.store), Arc::clone(&self.runtime));
                let sent = Remote { store, runtime }.send((run, event)).await?;
                sent.taken_within(ANSWER_LIMIT).await?;
                Ok(true)
            }
            Err(e) => Err(e),
        }
    }

    pub(super) async fn signal(
        &self,
        run: &str,
        name: &str,
        value: NewPayload,
    ) -> Result<(), Error> {
        let order = orders::signal(&*self.store, run, name, value).await?;
        self.say(order).await
    }

    pub(super) async fn answer(
        &self,
        run: &str,
        approval: &str,
        approved: bool,
        by: &str,
        note: &str,
    ) -> Result<(), Error> {
        let said = Said { approved, by, note };
        loop {
            let (last, now_us) = (self.last_event(run).await?, self.runtime.now_us());
            let order = orders::answer(&*self.store, run, approval, &said, now_us).await?;
            if self.say_after(last, order).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn resolve(
        &self,
        run: &str,
        step: &str,
        verdict: Verdict,
        result: Option<NewPayload>,
        by: &str,
    ) -> Result<(), Error> {
        loop {
            let (last, result) = (self.last_event(run).await?, result.clone());
            let order = orders::resolve(&*self.store, run, step, verdict, result, by).await?;
            if self.say_after(last, order).await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn cancel(&self, run: &str, reason: &str) -> Result<(), Error> {
        let order = orders::cancel(&*self.store, run, reason).await?;
        self.say(order).await
    }

    pub(super) async fn clear_attention(&self, run: &str) -> Result<(), Error> {
        let order = orders::clear_attention(&*self.store, run).await?;
        self.say(order).await
    }

    pub(super) async fn set_budget(&self, run: &str, budget: &Budget) -> Result<(), Error> {
        let order = orders::set_budget(&*self.store, run, budget).await?;
        self.say(order).await
    }
}
