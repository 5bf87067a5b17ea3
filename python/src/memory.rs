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
    Analyser, AsOf, DocId, DocKind, Filter, Language, Memory, MemoryError, NewDocument, Query,
    RankingConfig, Scope, Vector,
};
use dalsegno_store::{StreamId, Version};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::failures;
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

/// Which version is meant.
#[derive(Clone, Copy)]
enum When {
    At(AsOf),
    /// The one at a time, in microseconds since 1970.
    Time(u64),
}

/// A vector as Python gives it: numbers, or bytes that are quantised.
#[derive(FromPyObject)]
pub enum Numbers {
    Quantised(PyBackedBytes),
    Floats(Vec<f32>),
}

/// A document as Python gives it.
#[derive(FromPyObject)]
pub struct Given {
    kind: String,
    text: String,
    title: Option<String>,
    sources: Vec<String>,
    tags: Vec<String>,
    confidence: u16,
    scope: String,
    valid_from: Option<i64>,
    valid_until: Option<i64>,
    key: Option<String>,
    vector: Option<Numbers>,
    model: Option<String>,
}

/// Which documents are wanted, as Python gives it.
#[derive(FromPyObject)]
pub struct Wanted {
    kinds: Vec<String>,
    all_tags: Vec<String>,
    any_tags: Vec<String>,
    scopes: Vec<String>,
    confidence_from: u16,
    recorded_from: Option<u64>,
    recorded_until: Option<u64>,
    valid_at: Option<i64>,
}

/// What is looked for, as Python gives it.
#[derive(FromPyObject)]
pub struct Asked {
    words: Option<String>,
    vector: Option<Numbers>,
    filter: Wanted,
    limit: usize,
    context_bytes: Option<u64>,
    explain: bool,
}

/// How hits are ranked, as Python gives it; what is not said is as the library has it.
#[derive(FromPyObject)]
pub struct Ranked {
    language: Option<String>,
    stop_words: Option<bool>,
    k1: Option<u32>,
    b: Option<u32>,
    fusion_k: Option<u32>,
    depth: Option<u32>,
    words_weight: Option<u32>,
    vectors_weight: Option<u32>,
    model: Option<String>,
}

/// A version as Python gives it: a sequence and a hash; a sequence alone; or a time in a tuple of its own.
#[derive(FromPyObject)]
pub enum Then {
    Version(u64, String),
    Sequence(u64),
    Time((u64,)),
}

/// Why something that was given cannot be meant.
type Refused = String;

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

fn when(then: Option<Then>) -> std::result::Result<When, Refused> {
    Ok(match then {
        None => When::At(AsOf::Now),
        Some(Then::Sequence(sequence)) => When::At(AsOf::Sequence(sequence)),
        Some(Then::Time((us,))) => When::Time(us),
        Some(Then::Version(sequence, hash)) => {
            let hash = hash.parse();
            let hash = hash.map_err(|_| "the hash of the version is none".to_owned())?;
            When::At(AsOf::Version(Version { sequence, hash }))
        }
    })
}

impl Numbers {
    /// Numbers are given the length one; bytes are taken as they are.
    pub fn read(self) -> std::result::Result<Vector, Refused> {
        let quantised = match self {
            Numbers::Quantised(bytes) => bytes.iter().map(|byte| *byte as i8).collect(),
            Numbers::Floats(floats) => {
                if let Some(at) = floats.iter().position(|number| !number.is_finite()) {
                    let found = floats[at];
                    return Err(MemoryError::NotFinite { at, found }.to_string());
                }
                let vector = dalsegno_embed::Vector::from_f32(&floats);
                vector.map_err(|e| e.to_string())?.into_vec()
            }
        };
        Vector::from_i8(quantised).map_err(|e| e.to_string())
    }
}

impl Given {
    fn read(self) -> std::result::Result<NewDocument, Refused> {
        let mut new = NewDocument::new(kind(&self.kind)?, self.text)
            .confidence(self.confidence)
            .scope(scope(&self.scope)?);
        if let Some(title) = self.title {
            new = new.title(title);
        }
        new = self.sources.into_iter().fold(new, NewDocument::source);
        new = self.tags.into_iter().fold(new, NewDocument::tag);
        if let Some(us) = self.valid_from {
            new = new.valid_from_us(us);
        }
        if let Some(us) = self.valid_until {
            new = new.valid_until_us(us);
        }
        if let Some(key) = self.key {
            new = new.key(key);
        }
        if let Some(vector) = self.vector {
            new = new.vector(vector.read()?);
        }
        if let Some(model) = self.model {
            new = new.model(model);
        }
        Ok(new)
    }
}

impl Wanted {
    fn read(self) -> std::result::Result<Filter, Refused> {
        let mut filter = Filter::default();
        filter.kinds = read_all(&self.kinds, kind)?;
        filter.all_tags = self.all_tags;
        filter.any_tags = self.any_tags;
        filter.scopes = read_all(&self.scopes, scope)?;
        filter.confidence_from = self.confidence_from;
        filter.recorded_from_us = self.recorded_from;
        filter.recorded_until_us = self.recorded_until;
        filter.valid_at_us = self.valid_at;
        Ok(filter)
    }
}

impl Asked {
    fn read(self) -> std::result::Result<Query, Refused> {
        let mut query = Query::default()
            .filter(self.filter.read()?)
            .limit(self.limit);
        query.text = self.words;
        query.vector = self.vector.map(Numbers::read).transpose()?;
        query.context_bytes = self.context_bytes;
        query.explain = self.explain;
        Ok(query)
    }
}

impl Ranked {
    fn read(self) -> std::result::Result<RankingConfig, Refused> {
        let mut ranking = RankingConfig::default();
        if let Some(word) = self.language {
            let language = Language::from_word(&word);
            let all = || Language::ALL.iter().map(|language| language.word());
            let known = || all().collect::<Vec<_>>().join(", ");
            ranking.analyser = Analyser::of(
                language.ok_or_else(|| format!("the language {word:?} is none of {}", known()))?,
            );
        }
        let set = |number: &mut u32, given: Option<u32>| *number = given.unwrap_or(*number);
        set(&mut ranking.k1_per_mille, self.k1);
        set(&mut ranking.b_per_mille, self.b);
        set(&mut ranking.fusion_k, self.fusion_k);
        set(&mut ranking.depth, self.depth);
        set(&mut ranking.words_weight, self.words_weight);
        set(&mut ranking.vectors_weight, self.vectors_weight);
        if let Some(stop_words) = self.stop_words {
            ranking.analyser.english_stop_words = stop_words;
        }
        ranking.model = self.model;
        Ok(ranking)
    }
}

fn kind(word: &str) -> std::result::Result<DocKind, Refused> {
    let known = || DocKind::ALL.map(DocKind::word).join(", ");
    DocKind::from_word(word).ok_or_else(|| format!("the kind {word:?} is none of {}", known()))
}

/// As it is shown: `shared`, `agent/NAME`, `run/NAME`.
fn scope(words: &str) -> std::result::Result<Scope, Refused> {
    match words.split_once('/') {
        None if words == "shared" => Ok(Scope::Shared),
        Some(("agent", name)) if !name.is_empty() => Ok(Scope::Agent(name.to_owned())),
        Some(("run", name)) if !name.is_empty() => Ok(Scope::Run(name.to_owned())),
        _ => Err(format!(
            "the scope {words:?} is none of \"shared\", \"agent/NAME\", \"run/NAME\""
        )),
    }
}

fn read_all<T>(
    words: &[String],
    read: impl Fn(&str) -> std::result::Result<T, Refused>,
) -> std::result::Result<Vec<T>, Refused> {
    words.iter().map(|word| read(word)).collect()
}

/// What a memory cannot do, before it was asked.
pub fn refuse(py: Python<'_>, why: &str) -> PyErr {
    failures::raise(py, "MemoryFailure", why)
}

pub fn raw(value: &Value) -> Result<Box<RawValue>> {
    Ok(to_raw_value(value)?)
}
