//! How a store is opened together with its agents.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dalsegno_store::{NewPayload, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::claims::Claims;
use super::{Dalsegno, Engine, EngineLimits, Hub, Opened, dispatch};
use crate::agent::{Agent, Function, Loop, Turn};
use crate::bell::Bell;
use crate::ctx::Ctx;
use crate::effect::{Durability, Granularity};
use crate::error::Error;
use crate::failure::Result as StepResult;
use crate::ledger::Ledger;
use crate::recovery::Recoveries;
use crate::resource::Validators;
use crate::run::Settings;
use crate::runtime::{BoxFuture, Runtime, Tokio};
use crate::script::{Script, ScriptRun};
use crate::syncer::Syncer;

/// Agents and settings, before the store is opened.
#[must_use = "nothing happens before `open`"]
pub struct Builder {
    pub(crate) agents: HashMap<String, Arc<dyn Agent>>,
    pub(crate) settings: Settings,
    limits: EngineLimits,
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
    options: dalsegno_store::Options,
    session: Option<String>,
    claims: Claims,
    validators: Validators,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// No agents, and the defaults: outcomes of reads and model calls are on disk after at most
    /// 20 ms, each tool call is recorded.
    pub fn new() -> Builder {
        Builder {
            agents: HashMap::new(),
            settings: Settings::default(),
            limits: EngineLimits::default(),
            runtime: None,
            options: dalsegno_store::Options::new(),
            session: None,
            claims: Claims::default(),
            validators: Validators::default(),
        }
    }

    /// An agent that is an async function of a [`Ctx`] and its input.
    pub fn agent<F, I, O, Fut>(mut self, name: &str, code: F) -> Builder
    where
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = StepResult<O>> + Send + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
    {
        let agent: Arc<dyn Agent> = Arc::new(Function::new(code));
        self.agents.insert(name.to_owned(), agent);
        self
    }

    /// An agent that is a loop: `begin` makes the first state of the input, and `turn` is called
    /// with the state until it says [`Turn::Done`]. The state is written down after every turn, so
    /// that a run of a million turns is recovered from its last one.
    pub fn loop_agent<B, F, I, S, O, Fut>(mut self, name: &str, begin: B, turn: F) -> Builder
    where
        B: Fn(I) -> S + Send + Sync + 'static,
        F: Fn(Ctx, S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = StepResult<Turn<S, O>>> + Send + 'static,
        I: DeserializeOwned + 'static,
        S: Serialize + DeserializeOwned + Send + Sync + 'static,
        O: Serialize + Send + 'static,
    {
        let agent: Arc<dyn Agent> = Arc::new(Loop::new(begin, turn));
        self.agents.insert(name.to_owned(), agent);
        self
    }

    /// An agent whose steps are done by other processes: `code` is given the run and its input as
    /// JSON, has somebody ask for steps by their names ([`ScriptRun::ask`]), and ends the run with a
    /// result that is JSON. For stores that processes share. It is not replayed.
    pub fn script<F, Fut>(mut self, name: &str, code: F) -> Builder
    where
        F: Fn(ScriptRun, Vec<u8>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = StepResult<NewPayload>> + Send + 'static,
    {
        let agent: Arc<dyn Agent> = Arc::new(Script(code));
        self.agents.insert(name.to_owned(), agent);
        self
    }

    /// How to look at a resource of the user's own: given its name, says what it looks like, or
    /// `None` if it is not there. It must not have an effect. The one called `url` looks at
    /// [`crate::Resource::url`].
    ///
    /// ```
    /// # async fn etag(_: &str) -> dalsegno::Result<Option<String>> { Ok(None) }
    /// let builder = dalsegno::Dalsegno::builder()
    ///     .resource("url", |url| async move { etag(&url).await });
    /// ```
    pub fn resource<F, Fut>(mut self, validator: &str, look: F) -> Builder
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = StepResult<Option<String>>> + Send + 'static,
    {
        let look = Arc::new(move |name: String| Box::pin(look(name)) as BoxFuture<'static, _>);
        self.validators.insert(validator, look);
        self
    }

    /// How much a crash of the machine may take.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.settings.durability = durability;
        self
    }

    /// Which outcomes are written down, and when.
    pub fn granularity(mut self, granularity: Granularity) -> Builder {
        self.settings.granularity = granularity;
        self
    }

    /// How many runs may be in memory at a time.
    pub fn max_running(mut self, runs: usize) -> Builder {
        self.limits.running = runs.max(1);
        self
    }

    /// How many runs of one agent may be in memory at a time, of a store that processes share.
    pub fn max_running_of(mut self, agent: &str, runs: usize) -> Builder {
        self.claims.limits.insert(agent.to_owned(), runs);
        self
    }

    /// Only takes runs from these queues of a store that processes share; from all if there are
    /// none. Runs that were started without one are in the queue with the empty name.
    pub fn queues<Q: Into<String>>(mut self, queues: impl IntoIterator<Item = Q>) -> Builder {
        self.claims.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// For how long a run is this process's without being heard of. It is renewed three times as
    /// often; another process takes over what was not.
    pub fn lease(mut self, time: Duration) -> Builder {
        self.limits.lease = time;
        self
    }

    /// A run that waits for less than this stays in memory.
    pub fn stay_in_memory(mut self, time: Duration) -> Builder {
        self.limits.stay = time;
        self
    }

    /// How the local store is opened: limits, segment sizes, file system.
    pub fn store_options(mut self, options: dalsegno_store::Options) -> Builder {
        self.options = options;
        self
    }

    /// A name for this process, shown where its work is.
    pub fn session(mut self, name: &str) -> Builder {
        self.session = Some(name.to_owned());
        self
    }

    /// Another runtime than tokio's.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Builder {
        self.runtime = Some(runtime);
        self
    }

    /// Does not look for letters of other processes. For tests with a time of their own.
    pub fn without_mailbox(mut self) -> Builder {
        self.limits.mailbox_every = None;
        self
    }

    /// Switches one rule off, for showing that a test notices.
    #[cfg(feature = "mutants")]
    pub fn break_rule(mut self, rule: crate::rules::Rule) -> Builder {
        self.settings.mutant = crate::rules::Mutant(Some(rule));
        self
    }

    /// Opens the store in a folder, or makes it, and takes up every run that was not finished. With
    /// the feature `postgres` it may be the address of a database, as in
    /// `postgres://user@host/database`: then any number of processes share it, each takes runs that
    /// may go on as long as it has room, and takes over those of processes that are gone.
    ///
    /// # Errors
    /// The store cannot be opened, or there is no runtime.
    pub async fn open(self, place: impl AsRef<Path>) -> Result<Dalsegno, Error> {
        let place = place.as_ref();
        match place.to_str() {
            Some(url) if is_database(url) => self.open_database(url).await,
            _ => {
                let local = self.options.open(place)?;
                let store: Arc<dyn Store> = Arc::new(local.clone());
                self.open_with(store, Opened::Local(local)).await
            }
        }
    }

    #[cfg(feature = "postgres")]
    async fn open_database(self, url: &str) -> Result<Dalsegno, Error> {
        let postgres = dalsegno_postgres::PostgresStore::open(url)?;
        let store: Arc<dyn Store> = Arc::new(postgres.clone());
        self.open_with(store, Opened::Postgres(postgres)).await
    }

    #[cfg(not(feature = "postgres"))]
    async fn open_database(self, _url: &str) -> Result<Dalsegno, Error> {
        Err(Error::NoDatabases)
    }

    /// The same on a store that is open.
    ///
    /// # Errors
    /// There is no runtime, or the store cannot be read.
    pub async fn open_store(self, store: Arc<dyn Store>) -> Result<Dalsegno, Error> {
        self.open_with(store, Opened::Elsewhere).await
    }

    async fn open_with(self, store: Arc<dyn Store>, opened: Opened) -> Result<Dalsegno, Error> {
        let runtime: Arc<dyn Runtime> = match self.runtime {
            Some(runtime) => runtime,
            None => Arc::new(Tokio::current().ok_or(Error::NoRuntime)?),
        };
        let bound = match self.settings.durability {
            Durability::Strict => None,
            Durability::Bounded(bound) => Some(bound),
        };
        let ledger = Ledger::new(Arc::clone(&store));
        #[cfg(feature = "memory")]
        let memories = crate::memories::Memories::new(Arc::clone(&store));
        let syncer = Syncer::new(Arc::clone(&store), Arc::clone(&runtime), bound);
        let session = self
            .session
            .unwrap_or_else(|| format!("{}-{:08x}", std::process::id(), runtime.random() as u32));
        let opened_us = runtime.now_us();
        let claims = store.is_shared().then_some(self.claims);
        let engine = Arc::new_cyclic(|me| Engine {
            store,
            opened,
            runtime,
            settings: self.settings,
            syncer,
            ledger,
            #[cfg(feature = "memory")]
            memories,
            agents: self.agents,
            session,
            opened_us,
            limits: self.limits,
            claims,
            validators: self.validators,
            recovered: Recoveries::default(),
            hub: Mutex::new(Hub::default()),
            dispatch: Bell::default(),
            me: me.clone(),
        });
        engine.take_up().await?;
        let dispatcher = dispatch::dispatch(Arc::downgrade(&engine));
        engine.runtime.spawn(Box::pin(dispatcher));
        Ok(Dalsegno { engine })
    }
}

/// Whether a place is a database, not a folder.
fn is_database(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
}
