//! What is asked of a memory, by a run or from outside: read from Python once, and handed to the library.
//!
//! | what | in a run | outside |
//! |---|---|---|
//! | add, correct, retract, forget, search, get, version | a step: `ctx.memory` | `app.memory` |
//! | history, changes, list; explanations; as of a time | refused | `app.memory` |
//!
//! Invariant: nothing is decided here. An order is the arguments of one call of the library, and its
//! answer is that call's (`memory_said.rs`).

use dalsegno::{BoxFuture, Ctx, Dalsegno, Error, Result};
use dalsegno_memory::{
    AsOf, DocId, Filter, Memory, MemoryError, NewDocument, Query, RankingConfig,
};
use dalsegno_store::StreamId;
use pyo3::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::failures;
use crate::memory_given::{Asked, Given, Ranked, Refused, Then, Wanted, When, when};
use crate::memory_said as said;

/// A call of a memory that is to be made.
#[pyclass(frozen)]
pub struct Order(What);

#[derive(Clone)]
enum What {
    Add(NewDocument),
    Correct(DocId, NewDocument),
    Retract(DocId, String),
    Forget(Vec<DocId>, String),
    Search(Box<(Query, RankingConfig)>, When),
    Get(DocId),
    Version(When),
    History(DocId),
    Changes(When, When),
    List(Box<Filter>, When, Option<DocId>, usize),
}

#[pymethods]
impl Order {
    #[staticmethod]
    fn add(py: Python<'_>, document: Given) -> PyResult<Order> {
        Order::of(py, document.read().map(What::Add))
    }

    #[staticmethod]
    fn correct(py: Python<'_>, id: u64, document: Given) -> PyResult<Order> {
        let document = document.read();
        Order::of(py, document.map(|new| What::Correct(DocId(id), new)))
    }

    #[staticmethod]
    fn retract(id: u64, reason: String) -> Order {
        Order(What::Retract(DocId(id), reason))
    }

    #[staticmethod]
    fn forget(ids: Vec<u64>, reason: String) -> Order {
        Order(What::Forget(ids.into_iter().map(DocId).collect(), reason))
    }

    #[staticmethod]
    fn search(
        py: Python<'_>,
        asked: Asked,
        ranked: Ranked,
        as_of: Option<Then>,
    ) -> PyResult<Order> {
        let read = || {
            let both = Box::new((asked.read()?, ranked.read()?));
            Ok(What::Search(both, when(as_of)?))
        };
        Order::of(py, read())
    }

    #[staticmethod]
    fn get(id: u64) -> Order {
        Order(What::Get(DocId(id)))
    }

    #[staticmethod]
    fn version(py: Python<'_>, as_of: Option<Then>) -> PyResult<Order> {
        Order::of(py, when(as_of).map(What::Version))
    }

    #[staticmethod]
    fn history(id: u64) -> Order {
        Order(What::History(DocId(id)))
    }

    #[staticmethod]
    fn changes(py: Python<'_>, after: Option<Then>, until: Option<Then>) -> PyResult<Order> {
        let read = || {
            // What is not said is the beginning, and the end.
            let after = match after {
                None => When::At(AsOf::Sequence(0)),
                after => when(after)?,
            };
            Ok(What::Changes(after, when(until)?))
        };
        Order::of(py, read())
    }

    #[staticmethod]
    fn list(
        py: Python<'_>,
        filter: Wanted,
        as_of: Option<Then>,
        after: Option<u64>,
        limit: usize,
    ) -> PyResult<Order> {
        let read = || {
            let filter = Box::new(filter.read()?);
            Ok(What::List(filter, when(as_of)?, after.map(DocId), limit))
        };
        Order::of(py, read())
    }
}

impl Order {
    fn of(py: Python<'_>, what: std::result::Result<What, Refused>) -> PyResult<Order> {
        what.map(Order).map_err(|why| refuse(py, &why))
    }

    /// Makes the call in a run: it has its identity when this returns.
    pub fn in_run(
        &self,
        py: Python<'_>,
        ctx: &Ctx,
        name: &str,
        by: Option<&str>,
    ) -> PyResult<BoxFuture<'static, Result<Box<RawValue>>>> {
        let mut memory = ctx.memory(name);
        if let Some(by) = by {
            memory = memory.by(by);
        }
        let outside = |what: &str| {
            let why = format!("{what} is not recorded: ask app.memory({name:?}), outside of runs");
            Err(refuse(py, &why))
        };
        Ok(match self.0.clone() {
            What::Add(document) => {
                let added = memory.add(document);
                Box::pin(async move { raw(&json!(added.await?.0)) })
            }
            What::Correct(id, document) => {
                let corrected = memory.correct(id, document);
                Box::pin(async move { raw(&json!(corrected.await?.0)) })
            }
            What::Retract(id, reason) => {
                let retracted = memory.retract(id, &reason);
                Box::pin(async move { raw(&json!(retracted.await?)) })
            }
            What::Forget(ids, reason) => {
                let forgotten = memory.forget(&ids, &reason);
                Box::pin(async move { raw(&json!(forgotten.await?)) })
            }
            What::Search(asked, When::At(as_of)) => {
                let (query, ranking) = *asked;
                let found = memory.search(&query.as_of(as_of), &ranking);
                Box::pin(async move { raw(&said::found(&found.await?)) })
            }
            What::Get(id) => {
                let found = memory.get(id);
                Box::pin(async move { raw(&said::found_document(&found.await?)) })
            }
            What::Version(When::At(AsOf::Now)) => {
                let version = memory.version();
                Box::pin(async move { raw(&said::version(version.await?)) })
            }
            What::Search(..) => {
                return outside("which version there was at a time");
            }
            What::Version(_) => return outside("which version there was"),
            What::History(_) => return outside("the history of a document"),
            What::Changes(..) => return outside("what changed"),
            What::List(..) => return outside("a list of documents"),
        })
    }

    /// Makes the call outside of runs.
    pub fn outside(
        &self,
        py: Python<'_>,
        name: String,
        by: Option<String>,
    ) -> PyResult<impl FnOnce(Dalsegno) -> BoxFuture<'static, AnswerOutside> + use<>> {
        // A name that cannot be one is the caller's mistake, not the store's.
        StreamId::memory(&name).map_err(|e| refuse(py, &e.to_string()))?;
        let what = self.0.clone();
        Ok(move |app: Dalsegno| -> BoxFuture<'static, AnswerOutside> {
            Box::pin(async move {
                let memory = app.memory(&name).await?;
                let memory = match by {
                    Some(by) => memory.by(&by),
                    None => memory,
                };
                Ok(Some(what.ask(&memory).await?.to_string()))
            })
        })
    }
}

pub type AnswerOutside = std::result::Result<Option<String>, Error>;

impl What {
    async fn ask(self, memory: &Memory) -> std::result::Result<Value, MemoryError> {
        Ok(match self {
            What::Add(document) => json!(memory.add(document).await?.0),
            What::Correct(id, document) => json!(memory.correct(id, document).await?.0),
            What::Retract(id, reason) => json!(memory.retract(id, &reason).await?.sequence),
            What::Forget(ids, reason) => {
                json!(memory.forget(&ids, &reason).await?.version.sequence)
            }
            What::Search(asked, when) => {
                let (query, ranking) = *asked;
                let query = query.as_of(when.of(memory).await?);
                said::hits(&memory.search(&query, &ranking).await?)
            }
            What::Get(id) => {
                let version = memory.version().await?;
                said::document(&memory.get(id).await?, Some(version))
            }
            What::Version(when) => {
                said::version(memory.version_as_of(when.of(memory).await?).await?)
            }
            What::History(id) => said::history(&memory.history(id).await?),
            What::Changes(after, until) => {
                let (after, until) = (after.of(memory).await?, until.of(memory).await?);
                said::changes(&memory.changes(after, until).await?)
            }
            What::List(filter, when, after, limit) => {
                let at = when.of(memory).await?;
                let found = memory.list(&filter, at, after, limit).await?;
                let found = found.iter().map(|document| said::document(document, None));
                Value::Array(found.collect())
            }
        })
    }
}

impl When {
    async fn of(self, memory: &Memory) -> std::result::Result<AsOf, MemoryError> {
        match self {
            When::At(as_of) => Ok(as_of),
            When::Time(us) => Ok(AsOf::Version(memory.version_at_us(us).await?)),
        }
    }
}

/// What a memory cannot do, before it was asked.
pub fn refuse(py: Python<'_>, why: &str) -> PyErr {
    failures::raise(py, "MemoryFailure", why)
}

pub fn raw(value: &Value) -> Result<Box<RawValue>> {
    Ok(to_raw_value(value)?)
}
