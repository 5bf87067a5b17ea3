//! What a program has in its hand: the open store with its agents, and its runs.

use std::sync::Arc;
use std::time::Duration;

use dalsegno_store::{RunInfo, RunQuery, Store, StreamId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Builder, Engine, Opened};
use crate::bell::{Bell, first_of};
use crate::budget::Budget;
use crate::ctx::encode;
use crate::error::Error;
use crate::journal::{Journal, Outcome, Verdict, bytes_of};
use crate::start::Start;

/// How often a run that another process may have is looked at by who waits for its end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An open store, and the agents that execute its runs.
///
/// Cheap to clone. Runs go on in the background until [`Dalsegno::close`].
#[derive(Clone, Debug)]
pub struct Dalsegno {
    pub(crate) engine: Arc<Engine>,
}

/// A run that was started.
#[derive(Clone, Debug)]
pub struct RunHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: StreamId,
}

impl Dalsegno {
    /// Agents first, then the store.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Starts a run under a name of your choice. Starting the same name twice is one run.
    ///
    /// # Errors
    /// There is no such agent, or the name is taken by a run with another agent or input.
    pub async fn start<I>(&self, agent: &str, run: &str, input: &I) -> Result<RunHandle, Error>
    where
        I: Serialize + ?Sized,
    {
        self.start_with(agent, run, input, Start::new()).await
    }

    /// The same, with a budget, a queue or a priority. They are the first start's: a run that is
    /// there already keeps its own, see [`Dalsegno::set_budget`].
    ///
    /// # Errors
    /// As [`Dalsegno::start`].
    pub async fn start_with<I>(
        &self,
        agent: &str,
        run: &str,
        input: &I,
        start: Start,
    ) -> Result<RunHandle, Error>
    where
        I: Serialize + ?Sized,
    {
        let input = encode(input)?;
        let id = self.engine.start(agent, run, input, &start).await?;
        let engine = Arc::clone(&self.engine);
        Ok(RunHandle { engine, id })
    }

    /// Starts a run, or finds it, and waits for its result.
    ///
    /// # Errors
    /// As [`Dalsegno::start`] and [`RunHandle::result`].
    pub async fn run<I, T>(&self, agent: &str, run: &str, input: &I) -> Result<T, Error>
    where
        I: Serialize + ?Sized,
        T: DeserializeOwned,
    {
        self.start(agent, run, input).await?.result().await
    }

    /// A run that was started before.
    ///
    /// # Errors
    /// There is none of this name.
    pub async fn find(&self, run: &str) -> Result<RunHandle, Error> {
        let id = StreamId::run(run)?;
        match self.engine.store.head(&id).await? {
            None => Err(Error::RunNotFound(run.to_owned())),
            Some(_) => {
                let engine = Arc::clone(&self.engine);
                Ok(RunHandle { engine, id })
            }
        }
    }

    /// Runs in the order of their names.
    ///
    /// # Errors
    /// The store could not be read.
    pub async fn runs(&self, query: &RunQuery) -> Result<Vec<RunInfo>, Error> {
        Ok(self.engine.store.runs(query).await?)
    }

    /// What a run has done so far.
    ///
    /// # Errors
    /// There is no such run, or it could not be read.
    pub async fn journal(&self, run: &str) -> Result<Journal, Error> {
        Ok(self.engine.journal(run).await?.1)
    }

    /// Sends a signal to a run. It is on disk when this returns.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn signal<T>(&self, run: &str, name: &str, value: &T) -> Result<(), Error>
    where
        T: Serialize + ?Sized,
    {
        self.engine.signal(run, name, encode(value)?).await
    }

    /// Approves what a run asks for: `approval` is the name in the code if only one of that name is
    /// open, and its identity always, as in `publish#1`. [`Dalsegno::why`] says what is open.
    ///
    /// # Errors
    /// There is no such run or request, or it has its answer, or has expired.
    pub async fn approve(&self, run: &str, approval: &str, by: &str) -> Result<(), Error> {
        self.engine.answer(run, approval, true, by, "").await
    }

    /// Rejects what a run asks for.
    ///
    /// # Errors
    /// As [`Dalsegno::approve`].
    pub async fn reject(
        &self,
        run: &str,
        approval: &str,
        by: &str,
        why: &str,
    ) -> Result<(), Error> {
        self.engine.answer(run, approval, false, by, why).await
    }

    /// Says that a step in doubt happened, with this result, which must be what the step's code
    /// would have given. `step` is its name, or its identity as in `send#1`.
    ///
    /// # Errors
    /// There is no such run, or the step is not in doubt.
    pub async fn resolve_happened<T>(
        &self,
        run: &str,
        step: &str,
        result: &T,
        by: &str,
    ) -> Result<(), Error>
    where
        T: Serialize + ?Sized,
    {
        let result = Some(encode(result)?);
        self.engine
            .resolve(run, step, Verdict::Happened, result, by)
            .await
    }

    /// Says that a step in doubt did not happen: it will be sent.
    ///
    /// # Errors
    /// As [`Dalsegno::resolve_happened`].
    pub async fn resolve_not_happened(&self, run: &str, step: &str, by: &str) -> Result<(), Error> {
        self.engine
            .resolve(run, step, Verdict::DidNotHappen, None, by)
            .await
    }

    /// Says that a run fails because of a step in doubt.
    ///
    /// # Errors
    /// As [`Dalsegno::resolve_happened`].
    pub async fn resolve_fail(&self, run: &str, step: &str, by: &str) -> Result<(), Error> {
        self.engine
            .resolve(run, step, Verdict::FailRun, None, by)
            .await
    }

    /// Asks a run and its children to end.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn cancel(&self, run: &str, reason: &str) -> Result<(), Error> {
        self.engine.cancel(run, reason).await
    }

    /// Lets a run in attention try again: its cause is gone.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn clear_attention(&self, run: &str) -> Result<(), Error> {
        self.engine.clear_attention(run).await
    }

    /// Changes what a run may use.
    ///
    /// # Errors
    /// There is no such run, or it has ended.
    pub async fn set_budget(&self, run: &str, budget: Budget) -> Result<(), Error> {
        self.engine.set_budget(run, &budget).await
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }

    /// Lets steps that are under way finish, begins no others, writes everything down and lets go
    /// of the store. Runs go on when it is opened again.
    ///
    /// # Errors
    /// It is not known whether the last events are on disk.
    pub async fn close(self) -> Result<(), Error> {
        self.close_within(Duration::from_secs(10)).await
    }

    /// The same, with another limit on how long steps under way may take.
    ///
    /// # Errors
    /// As [`Dalsegno::close`].
    pub async fn close_within(self, grace: Duration) -> Result<(), Error> {
        self.engine.close(grace).await
    }
}

impl Engine {
    async fn close(&self, grace: Duration) -> Result<(), Error> {
        self.stop_all();
        let grace_us = u64::try_from(grace.as_micros()).unwrap_or(u64::MAX);
        let until_us = self.runtime.now_us().saturating_add(grace_us);
        let mut sleep = self.runtime.sleep_until(until_us);
        loop {
            let rung = self.dispatch.count();
            let all_let_go = {
                let hub = self.hub();
                hub.resident.is_empty() && !hub.claiming
            };
            if all_let_go {
                break;
            }
            if !first_of(self.dispatch.after(rung), sleep.as_mut()).await {
                break;
            }
        }
        // Their indexes are kept beside the store while it is open. A database that does not take them in time
        // does without: leases are still to be given up.
        #[cfg(feature = "memory")]
        first_of(
            std::pin::pin!(self.memories.let_go()),
            self.runtime.sleep_until(until_us),
        )
        .await;
        match &self.opened {
            Opened::Local(local) => Ok(local.close()?),
            #[cfg(feature = "postgres")]
            Opened::Postgres(postgres) => Ok(postgres.close()?),
            Opened::Elsewhere => {
                let position = self.store.position().await?;
                Ok(self.store.durable(position).await?)
            }
        }
    }
}

impl RunHandle {
    /// The run's name.
    pub fn id(&self) -> &str {
        self.id.name()
    }

    /// Waits for the result of the run, however long it takes: a run that waits for an answer or a
    /// signal is not at its end.
    ///
    /// # Errors
    /// It failed, was cancelled, or needs a person; or the result is of another type.
    pub async fn result<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let name = || self.id.name().to_owned();
        match self.ended().await? {
            Outcome::Failed(failure) => Err(Error::RunFailed {
                run: name(),
                failure,
            }),
            Outcome::Succeeded(output) => {
                let bytes = match output {
                    Some(output) => bytes_of(&*self.engine.store, &output).await?,
                    None => b"null".to_vec(),
                };
                serde_json::from_slice(&bytes).map_err(|e| Error::Encoding {
                    what: "the run's result",
                    why: e.to_string(),
                })
            }
        }
    }

    /// Waits until the run has ended, or needs a person.
    async fn ended(&self) -> Result<Outcome, Error> {
        loop {
            let waiter = Waiter::new(self);
            let rung = waiter.bell.count();
            if let Some(ended) = self.look().await? {
                return Ok(ended);
            }
            if self.engine.is_closing() {
                return Err(Error::Closed);
            }
            let rings = waiter.bell.after(rung);
            match self.engine.claims {
                None => rings.await,
                Some(_) => {
                    // Another process may have it, and nobody here is told of its end.
                    let look_us = self.engine.runtime.now_us() + LOOK_EVERY.as_micros() as u64;
                    first_of(rings, self.engine.runtime.sleep_until(look_us)).await;
                }
            }
        }
    }

    async fn look(&self) -> Result<Option<Outcome>, Error> {
        let store = &self.engine.store;
        let name = || self.id.name().to_owned();
        let Some(head) = store.head(&self.id).await? else {
            return Err(Error::RunNotFound(name()));
        };
        let from = head.sequence.saturating_sub(1).max(1);
        let last = store.events(&self.id, from, 2).await?;
        let mut journal = Journal::default();
        for event in last {
            journal.apply(event);
        }
        // An end that a crash could still take is none.
        let ending = self.engine.hub().ending.contains(&self.id);
        match (journal.status, journal.end) {
            (_, Some(end)) if !ending => Ok(Some(end)),
            (dalsegno_store::Status::Cancelled, None) if !ending => {
                Err(Error::RunCancelled(name()))
            }
            _ => match journal.attention {
                Some(attention) => Err(Error::NeedsAttention {
                    run: name(),
                    reason: attention.reason,
                }),
                None => match self.engine.why_not_moving(&self.id) {
                    Some(reason) => Err(Error::NeedsAttention {
                        run: name(),
                        reason,
                    }),
                    None => Ok(None),
                },
            },
        }
    }
}

/// Somebody who waits for a run to end, until that is dropped.
struct Waiter<'a> {
    run: &'a RunHandle,
    bell: Arc<Bell>,
}

impl Waiter<'_> {
    fn new(run: &RunHandle) -> Waiter<'_> {
        let bell = run.engine.end_bell(&run.id);
        Waiter { run, bell }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let bell = std::mem::take(&mut self.bell);
        self.run.engine.forget_bell(&self.run.id, bell);
    }
}

impl Engine {
    fn why_not_moving(&self, run: &StreamId) -> Option<String> {
        self.hub().not_moving.get(run).cloned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use crate::testkit::SimRuntime;
    use crate::{Builder, Ctx};
    use dalsegno_simdisk::SimDisk;
    use dalsegno_store::Options;

    #[test]
    fn who_has_waited_for_a_run_leaves_nothing_behind() {
        let (runtime, disk) = (SimRuntime::new(1), SimDisk::new(1));
        let options = Options::new().fs(Arc::new(disk)).without_threads();
        let store = options.open(std::path::Path::new("store")).unwrap();
        let code = |_: Ctx, input: u64| async move { Ok(input) };
        let builder = Builder::new().agent("a", code).without_mailbox();
        let builder = builder.runtime(Arc::new(runtime.clone()));
        let left = runtime.complete(
            async move {
                let app = builder.open_store(Arc::new(store)).await.unwrap();
                for _ in 0..3 {
                    assert_eq!(app.run::<_, u64>("a", "r", &7).await.unwrap(), 7);
                }
                app.engine.hub().ends.len()
            },
            &|| false,
        );
        assert_eq!(left, Some(0));
    }
}
