//! What is asked of a memory, and what it answers.

use dalsegno_store::{Fields, Hash, Value, Version};

use crate::content::{unzigzag, zigzag};
use crate::document::{Content, DocId, DocKind, Scope};
use crate::error::MemoryError;
use crate::vector::Vector;

/// The longest query, in bytes.
pub const QUERY_LIMIT_BYTES: usize = 1 << 20;
/// So many different words of a query are looked up: those that come first.
pub const QUERY_LIMIT_WORDS: usize = 256;
/// The most hits of a search.
pub const HITS_LIMIT: usize = 10_000;

/// Which version of a memory is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsOf {
    /// The newest.
    #[default]
    Now,
    /// As it was after the event with this sequence.
    Sequence(u64),
    /// The same; and its history must be this one.
    Version(Version),
}

impl From<Version> for AsOf {
    fn from(version: Version) -> AsOf {
        AsOf::Version(version)
    }
}

/// Which documents are wanted. What says nothing wants all.
///
/// Filters choose among hits. They do not change how words are weighed: a score depends on all
/// documents of the version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// One of these kinds.
    pub kinds: Vec<DocKind>,
    /// All of these tags.
    pub all_tags: Vec<String>,
    /// One of these tags.
    pub any_tags: Vec<String>,
    /// One of these scopes.
    pub scopes: Vec<Scope>,
    /// At least so sure, in thousandths.
    pub confidence_from: u16,
    /// Recorded at this time or later, in microseconds since 1970.
    pub recorded_from_us: Option<u64>,
    /// Recorded before this time.
    pub recorded_until_us: Option<u64>,
    /// Holding at this time.
    pub valid_at_us: Option<i64>,
}

/// What is asked.
///
/// A query is words, a vector, or both; there is no syntax. With both, the two lists of hits are
/// fused by rank.
///
/// ```
/// use dalsegno_memory::{DocKind, Query};
///
/// let query = Query::words("how long does the oven take")
///     .kind(DocKind::Fact)
///     .tag("kitchen")
///     .limit(5)
///     .context_bytes(4000);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Words to look for; no syntax, everything but words separates them.
    pub text: Option<String>,
    /// What the query means, by the embedder of the memory.
    pub vector: Option<Vector>,
    /// Which documents are wanted.
    pub filter: Filter,
    /// Which version is asked.
    pub as_of: AsOf,
    /// How many hits; 10 unless it is said.
    pub limit: Option<usize>,
    /// How many bytes of text all hits may have together. Documents are taken whole, in their order,
    /// up to the first that does not fit.
    pub context_bytes: Option<u64>,
    /// Say how each score came to be.
    pub explain: bool,
}

impl Query {
    /// By words.
    pub fn words(text: impl Into<String>) -> Query {
        Query {
            text: Some(text.into()),
            ..Query::default()
        }
    }

    /// By meaning.
    pub fn vector(vector: Vector) -> Query {
        Query {
            vector: Some(vector),
            ..Query::default()
        }
    }

    /// By words and meaning.
    pub fn hybrid(text: impl Into<String>, vector: Vector) -> Query {
        Query {
            text: Some(text.into()),
            vector: Some(vector),
            ..Query::default()
        }
    }

    /// Only documents that a filter wants.
    pub fn filter(mut self, filter: Filter) -> Query {
        self.filter = filter;
        self
    }

    /// Also this kind, and no other that was not named.
    pub fn kind(mut self, kind: DocKind) -> Query {
        self.filter.kinds.push(kind);
        self
    }

    /// Only documents that have this tag, too.
    pub fn tag(mut self, tag: impl Into<String>) -> Query {
        self.filter.all_tags.push(tag.into());
        self
    }

    /// Also this scope, and no other that was not named.
    pub fn scope(mut self, scope: Scope) -> Query {
        self.filter.scopes.push(scope);
        self
    }

    /// Only documents that are at least so sure, in thousandths.
    pub fn confidence_from(mut self, per_mille: u16) -> Query {
        self.filter.confidence_from = per_mille;
        self
    }

    /// Only documents that hold at a time, in microseconds since 1970.
    pub fn valid_at_us(mut self, us: i64) -> Query {
        self.filter.valid_at_us = Some(us);
        self
    }

    /// The memory as it was.
    pub fn as_of(mut self, as_of: impl Into<AsOf>) -> Query {
        self.as_of = as_of.into();
        self
    }

    /// At most so many hits.
    pub fn limit(mut self, limit: usize) -> Query {
        self.limit = Some(limit);
        self
    }

    /// At most so many bytes of text.
    pub fn context_bytes(mut self, bytes: u64) -> Query {
        self.context_bytes = Some(bytes);
        self
    }

    /// With how each score came to be.
    pub fn explain(mut self) -> Query {
        self.explain = true;
        self
    }
}

const TEXT: u64 = 1;
const VECTOR: u64 = 2;
const KINDS: u64 = 3;
const ALL_TAGS: u64 = 4;
const ANY_TAGS: u64 = 5;
const SCOPES: u64 = 6;
const CONFIDENCE: u64 = 7;
const RECORDED_FROM: u64 = 8;
const RECORDED_UNTIL: u64 = 9;
const VALID_AT: u64 = 10;
const LIMIT: u64 = 11;
const CONTEXT: u64 = 12;

impl Query {
    /// What decides the hits, but for the version and the ranking: the same bytes for the same
    /// question. For recording it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let filter = &self.filter;
        let mut fields = Fields::new();
        let mut list = |key, values: Vec<Value>| {
            if !values.is_empty() {
                fields = std::mem::take(&mut fields).with(key, Value::List(values));
            }
        };
        let texts = |texts: &[String]| texts.iter().map(|t| Value::Text(t.clone())).collect();
        let kinds = filter.kinds.iter();
        list(KINDS, kinds.map(|kind| kind.word().into()).collect());
        list(ALL_TAGS, texts(&filter.all_tags));
        list(ANY_TAGS, texts(&filter.any_tags));
        let scopes = filter.scopes.iter().map(|scope| match scope {
            Scope::Shared => Value::List(Vec::new()),
            Scope::Agent(name) => Value::List(vec![1.into(), name.as_str().into()]),
            Scope::Run(name) => Value::List(vec![2.into(), name.as_str().into()]),
        });
        list(SCOPES, scopes.collect());
        if let Some(text) = &self.text {
            fields = fields.with(TEXT, text.as_str());
        }
        if let Some(vector) = &self.vector {
            fields = fields.with(VECTOR, vector.to_bytes());
        }
        for (key, number) in [
            (CONFIDENCE, Some(u64::from(filter.confidence_from))),
            (RECORDED_FROM, filter.recorded_from_us),
            (RECORDED_UNTIL, filter.recorded_until_us),
            (VALID_AT, filter.valid_at_us.map(zigzag)),
            (LIMIT, Some(self.hits() as u64)),
            (CONTEXT, self.context_bytes),
        ] {
            if let Some(number) = number {
                fields = fields.with(key, number);
            }
        }
        fields.encode()
    }

    /// From bytes, as of now and without an explanation.
    ///
    /// # Errors
    /// They are no query.
    pub fn from_bytes(bytes: &[u8]) -> Result<Query, MemoryError> {
        let fields = Fields::decode(bytes).ok();
        let query = fields.and_then(|fields| query_of(&fields));
        let query = query.filter(|query| query.to_bytes() == bytes);
        query.ok_or_else(|| MemoryError::Config {
            why: "the bytes are no query".into(),
        })
    }

    /// How many hits are wanted.
    pub(crate) fn hits(&self) -> usize {
        self.limit.unwrap_or(10)
    }
}

fn query_of(fields: &Fields) -> Option<Query> {
    let list = |key| match fields.get(key) {
        None => Some(&[][..]),
        Some(Value::List(values)) => Some(values.as_slice()),
        Some(_) => None,
    };
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let texts = |key| list(key)?.iter().map(text).collect::<Option<Vec<_>>>();
    let kinds = texts(KINDS)?;
    let kinds = kinds.iter().map(|word| DocKind::from_word(word));
    let scopes = list(SCOPES)?.iter().map(|value| match value {
        Value::List(pair) => match pair.as_slice() {
            [] => Some(Scope::Shared),
            [Value::Number(1), Value::Text(name)] => Some(Scope::Agent(name.clone())),
            [Value::Number(2), Value::Text(name)] => Some(Scope::Run(name.clone())),
            _ => None,
        },
        _ => None,
    });
    Some(Query {
        text: fields.text(TEXT).map(str::to_owned),
        vector: match fields.bytes(VECTOR) {
            Some(bytes) => Some(Vector::from_bytes(bytes)?),
            None => None,
        },
        filter: Filter {
            kinds: kinds.collect::<Option<Vec<_>>>()?,
            all_tags: texts(ALL_TAGS)?,
            any_tags: texts(ANY_TAGS)?,
            scopes: scopes.collect::<Option<Vec<_>>>()?,
            confidence_from: u16::try_from(fields.number(CONFIDENCE)?).ok()?,
            recorded_from_us: fields.number(RECORDED_FROM),
            recorded_until_us: fields.number(RECORDED_UNTIL),
            valid_at_us: fields.number(VALID_AT).map(unzigzag),
        },
        as_of: AsOf::Now,
        limit: Some(usize::try_from(fields.number(LIMIT)?).ok()?),
        context_bytes: fields.number(CONTEXT),
        explain: false,
    })
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hits {
    /// The version that was searched.
    pub version: Version,
    /// The hash of the ranking configuration.
    pub config: Hash,
    /// The best first.
    pub hits: Vec<Hit>,
    /// What would have come next, but did not fit into the context.
    pub left_out: Vec<LeftOut>,
    /// How many documents of that version are forgotten since.
    pub forgotten_since: u64,
    /// The words that were looked for, as the analyser made them. If there are none and no vector,
    /// there is nothing to look for, and no hits.
    pub words: Vec<String>,
    /// Different words of the query that were too many and not looked for.
    pub words_left_out: u64,
}

impl Hits {
    /// A hash over what the search came to: version, configuration, and each hit with its score. The
    /// same bits have the same hash, on every machine.
    pub fn digest(&self) -> Hash {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.version.sequence.to_le_bytes());
        bytes.extend_from_slice(self.version.hash.as_bytes());
        bytes.extend_from_slice(self.config.as_bytes());
        for hit in &self.hits {
            bytes.extend_from_slice(&hit.id.0.to_le_bytes());
            bytes.extend_from_slice(&hit.score.to_le_bytes());
        }
        Hash::of(&bytes)
    }
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// Its place among the hits, from 1.
    pub rank: u32,
    /// Which document.
    pub id: DocId,
    /// Its place among all documents of the memory, from 0.
    pub number: u32,
    /// How well it fits. By words: in units of 2^-32. By vectors: their dot product. By both: the
    /// sum of fused ranks. Scores of different queries cannot be compared.
    pub score: i64,
    /// What it is.
    pub kind: DocKind,
    /// When it was recorded, in microseconds since 1970.
    pub recorded_us: u64,
    /// What it says, and where that is from.
    pub content: Content,
    /// How the score came to be, if that was asked for.
    pub explanation: Option<Explanation>,
}

/// A hit that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Which document.
    pub id: DocId,
    /// Its place among the hits.
    pub rank: u32,
    /// How long its text is.
    pub bytes: u64,
}

/// How a score came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// By words, if it was found by them.
    pub words: Option<ByWords>,
    /// By its vector, if it was found by it.
    pub vector: Option<ByVector>,
}

/// How well the words of a document fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByWords {
    /// The sum of all parts, in units of 2^-32.
    pub score: i64,
    /// Its place among the documents found by words, from 1.
    pub rank: u32,
    /// What that adds to the fused score, if legs were fused.
    pub fused: i64,
    /// How many documents the version had.
    pub documents: u64,
    /// How many words they had together.
    pub total_words: u64,
    /// How many words this document has.
    pub length: u32,
    /// How much its length holds it back: per mille, in units of 2^-8.
    pub norm: u64,
    /// Each word.
    pub terms: Vec<Term>,
}

/// What a word adds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Term {
    /// The word, as the analyser made it.
    pub word: String,
    /// How often the query has it.
    pub asked: u32,
    /// How often the document has it.
    pub tf: u32,
    /// How many documents have it.
    pub df: u64,
    /// How rare it is, in units of 2^-24.
    pub idf: u64,
    /// What it adds to the score, in units of 2^-32.
    pub score: i64,
}

/// How well the vector of a document fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByVector {
    /// The dot product.
    pub dot: i64,
    /// Its place among the documents found by vector, from 1.
    pub rank: u32,
    /// What that adds to the fused score, if legs were fused.
    pub fused: i64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_query_is_read_as_it_was_written() {
        let mut query = Query::hybrid("oven", Vector::from_i8(vec![1, -1]).unwrap())
            .kind(DocKind::Fact)
            .tag("kitchen")
            .scope(Scope::Shared)
            .scope(Scope::Agent("cook".into()))
            .confidence_from(5)
            .valid_at_us(-7)
            .limit(3)
            .context_bytes(100);
        query.filter.any_tags = vec!["x".into()];
        query.filter.recorded_from_us = Some(1);
        assert_eq!(Query::from_bytes(&query.to_bytes()).unwrap(), query);
        let plain = Query::words("x").limit(10);
        assert_eq!(Query::from_bytes(&plain.to_bytes()).unwrap(), plain);
        assert!(Query::from_bytes(b"").is_err());
        assert!(Query::from_bytes(&Fields::new().with(99, 1).encode()).is_err());
    }
}
