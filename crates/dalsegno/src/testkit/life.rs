//! One process: from opening the store to its end or its death.

use std::path::Path;
use std::sync::Arc;

use dalsegno_simdisk::SimDisk;
use dalsegno_store::{LocalStore, Options, RunQuery, Status, Store};
use serde_json::Value;

use super::person::{self, Person};
use super::store::MortalStore;
use super::{SimRuntime, World};
use crate::engine::{Builder, Dalsegno};
use crate::error::Error;
use crate::runtime::Runtime;

const DIR: &str = "store";
const SEGMENT_BYTES: u64 = 256 << 10;
/// A case in which so much happens goes round in circles.
const ROUNDS_LIMIT: u64 = 2_000;

/// What came of a process.
#[derive(Debug)]
pub(crate) enum LifeEnd {
    /// All runs have ended; how the first one did.
    Done(Result<Value, String>),
    /// It died.
    Died,
    /// It stands still.
    Stuck(String),
}

/// What a process is started for.
pub(crate) struct Job<'a> {
    pub disk: &'a SimDisk,
    pub world: &'a World,
    pub runtime: &'a SimRuntime,
    pub person: &'a Person,
    pub agent: &'a str,
    pub input: &'a Value,
}

pub(crate) const RUN: &str = "run";

impl Job<'_> {
    /// Lives one life.
    pub fn live(&self, builder: Builder) -> LifeEnd {
        let runtime = self.runtime;
        let schedule = self.world.schedule.clone();
        let dead = move || schedule.is_dead();
        let ended = self.work(builder, &dead);
        let ended = match ended {
            _ if dead() => LifeEnd::Died,
            Ok(ended) => ended,
            Err(e) => LifeEnd::Stuck(e.to_string()),
        };
        // Nothing of a dead process touches the disk any more.
        self.disk.power_off_now();
        runtime.kill();
        ended
    }

    fn work(&self, builder: Builder, dead: &dyn Fn() -> bool) -> Result<LifeEnd, Error> {
        let runtime = self.runtime;
        let clock = runtime.clone();
        let options = Options::new()
            .fs(Arc::new(self.disk.clone()))
            .segment_bytes(SEGMENT_BYTES)
            .without_threads()
            .clock(move || clock.now_us());
        let store: LocalStore = options.open(Path::new(DIR))?;
        let store: Arc<dyn Store> = Arc::new(MortalStore {
            store,
            schedule: self.world.schedule.clone(),
        });
        let builder = builder
            .without_mailbox()
            .session("test")
            .runtime(Arc::new(runtime.clone()));
        let (agent, input) = (self.agent.to_owned(), self.input.clone());
        let opened = runtime.complete(
            async move {
                let app = builder.open_store(store).await?;
                app.start(&agent, RUN, &input).await?;
                Ok::<Dalsegno, Error>(app)
            },
            dead,
        );
        let Some(app) = opened else {
            return Ok(stuck("opening does not end"));
        };
        let app = app?;
        for _ in 0..ROUNDS_LIMIT {
            runtime.run(dead);
            if dead() {
                return Ok(LifeEnd::Died);
            }
            let look = all_ended(app.clone());
            match runtime.complete(look, dead) {
                None => return Ok(stuck("the store does not answer")),
                Some(Ok(Some(result))) => return Ok(LifeEnd::Done(result)),
                Some(Ok(None)) => {}
                Some(Err(e)) => return Err(e),
            }
            let look = person::look(app.clone(), Arc::clone(self.person), self.world.clone());
            match runtime.complete(look, dead) {
                None => return Ok(stuck("the person does not get through")),
                Some(answers) => {
                    if answers? == 0 && !runtime.advance() {
                        return Ok(stuck("nothing is left to wait for"));
                    }
                }
            }
        }
        Ok(stuck("it goes round in circles"))
    }
}

fn stuck(why: &str) -> LifeEnd {
    LifeEnd::Stuck(why.to_owned())
}

/// Whether all runs have ended; then how the first one did.
async fn all_ended(app: Dalsegno) -> Result<Option<Result<Value, String>>, Error> {
    let query = RunQuery {
        status: vec![Status::Pending, Status::Running, Status::Checkpointed],
        limit: 1,
        ..RunQuery::default()
    };
    if !app.runs(&query).await?.is_empty() {
        return Ok(None);
    }
    let ended = app.find(RUN).await?.result::<Value>().await;
    Ok(Some(ended.map_err(|e| e.to_string())))
}
