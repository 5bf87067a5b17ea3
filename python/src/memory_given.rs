//! What Python gives to a memory: documents, queries, rankings and versions, read as the library has them.
//!
//! Invariant: what is not said is as the library has it, and what cannot be meant is refused in words.

use dalsegno_memory::{
    Analyser, AsOf, DocKind, Filter, Language, MemoryError, NewDocument, Query, RankingConfig,
    Scope, Vector,
};
use dalsegno_store::Version;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// Why something that was given cannot be meant.
pub type Refused = String;

/// Which version is meant.
#[derive(Clone, Copy)]
pub enum When {
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

pub fn when(then: Option<Then>) -> Result<When, Refused> {
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
    pub fn read(self) -> Result<Vector, Refused> {
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
    pub fn read(self) -> Result<NewDocument, Refused> {
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
    pub fn read(self) -> Result<Filter, Refused> {
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
    pub fn read(self) -> Result<Query, Refused> {
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
    pub fn read(self) -> Result<RankingConfig, Refused> {
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

fn kind(word: &str) -> Result<DocKind, Refused> {
    let known = || DocKind::ALL.map(DocKind::word).join(", ");
    DocKind::from_word(word).ok_or_else(|| format!("the kind {word:?} is none of {}", known()))
}

/// As it is shown: `shared`, `agent/NAME`, `run/NAME`.
fn scope(words: &str) -> Result<Scope, Refused> {
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
    read: impl Fn(&str) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    words.iter().map(|word| read(word)).collect()
}
