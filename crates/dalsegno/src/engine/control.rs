//! What people and other programs say to runs of this process: checked (`orders.rs`), recorded
//! durably, and told to the run.

use dalsegno_store::{Append, NewPayload, StreamId};

use super::Engine;
use crate::budget::Budget;
use crate::error::Error;
use crate::journal::{Journal, Verdict};
use crate::orders::{self, Order, Said};

impl Engine {
    /// The journal of a run.
    pub(super) async fn journal(&self, name: &str) -> Result<(StreamId, Journal), Error> {
        orders::journal(&*self.store, name).await
    }

    /// Records something for a run, durably, and tells it.
    async fn say(&self, (run, event): Order) -> Result<(), Error> {
        let append = Append::to(run.clone(), vec![event]);
        let appended = self.store.append(vec![append]).await?;
        self.store.durable(appended.position).await?;
        self.launch(&run);
        Ok(())
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
        let now_us = self.runtime.now_us();
        let order = orders::answer(&*self.store, run, approval, &said, now_us).await?;
        self.say(order).await
    }

    pub(super) async fn resolve(
        &self,
        run: &str,
        step: &str,
        verdict: Verdict,
        result: Option<NewPayload>,
        by: &str,
    ) -> Result<(), Error> {
        let order = orders::resolve(&*self.store, run, step, verdict, result, by).await?;
        self.say(order).await
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
