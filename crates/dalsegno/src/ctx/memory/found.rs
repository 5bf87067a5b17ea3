//! What a run found in a memory, and how that is recorded: as JSON, so that people and programs can
//! read it in the event.
//!
//! ```text
//! asked   memory, query (words, vector in hex, filters, limits), ranking as the code gave it
//! found   version and hash; ranking: all that decides the order, as bytes in hex, and their hash;
//!         for each hit rank, id, score, kind, when it was recorded, sources
//! ```
//!
//! Invariant: what is read is what was written. What documents say is not in it.

use dalsegno_memory::{
    AsOf, Content, DocId, DocKind, Document, Ended, Filter, Hits, HowEnded, LeftOut, Query,
    RankingConfig, Scope, Vector,
};
use dalsegno_store::{Hash, Version};
use serde_json::{Value, json};

/// So many hits are named to people.
const SHOWN_HITS: usize = 5;
/// So much of a query is.
const SHOWN_CHARS: usize = 80;

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The version that was searched.
    pub version: Version,
    /// The hash of the ranking configuration.
    pub ranking: Hash,
    /// The best first.
    pub hits: Vec<FoundHit>,
    /// What would have come next, but did not fit into the context.
    pub left_out: Vec<LeftOut>,
    /// How many documents of that version were forgotten when it was searched.
    pub forgotten_since: u64,
    /// The words that were looked for, as the analyser made them.
    pub words: Vec<String>,
    /// Different words of the query that were too many and not looked for.
    pub words_left_out: u64,
}

/// A document that a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundHit {
    /// Its place among the hits, from 1.
    pub rank: u32,
    /// Which document.
    pub id: DocId,
    /// How well it fits; see [`dalsegno_memory::Hit::score`].
    pub score: i64,
    /// What it is.
    pub kind: DocKind,
    /// When it was recorded, in microseconds since 1970.
    pub recorded_us: u64,
    /// Where it was taken from.
    pub sources: Vec<String>,
    /// What it says; or, if it was forgotten since it was found, by whom, when and why.
    pub content: Result<Content, Ended>,
}

impl FoundHit {
    /// What it says; nothing if it was forgotten since it was found.
    pub fn text(&self) -> &str {
        self.content.as_ref().map_or("", |content| &content.text)
    }

    /// Whether it was forgotten since it was found.
    pub fn is_forgotten(&self) -> bool {
        self.content.is_err()
    }
}

/// A document that a run read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundDocument {
    /// The version of the memory that was read.
    pub version: Version,
    /// Which document.
    pub id: DocId,
    /// What it is.
    pub kind: DocKind,
    /// Who recorded it.
    pub by: Option<String>,
    /// When, in microseconds since 1970.
    pub recorded_us: u64,
    /// What it corrects.
    pub corrects: Option<DocId>,
    /// What had become of it when it was read.
    pub ended: Option<HowEnded>,
    /// What it says; or, if it was forgotten since it was read, by whom, when and why.
    pub content: Result<Content, Ended>,
}

impl Found {
    /// From a search that was just made.
    pub(super) fn of(hits: Hits) -> Found {
        let found = hits.hits.into_iter().map(|hit| FoundHit {
            rank: hit.rank,
            id: hit.id,
            score: hit.score,
            kind: hit.kind,
            recorded_us: hit.recorded_us,
            sources: hit.content.sources.clone(),
            content: Ok(hit.content),
        });
        Found {
            version: hits.version,
            ranking: hits.config,
            hits: found.collect(),
            left_out: hits.left_out,
            forgotten_since: hits.forgotten_since,
            words: hits.words,
            words_left_out: hits.words_left_out,
        }
    }

    /// For people: what was found where.
    pub(super) fn words(&self, memory: &str) -> String {
        let hits = self.hits.iter().take(SHOWN_HITS);
        let mut hits: Vec<String> = hits
            .map(|hit| format!("document {} (score {})", hit.id, hit.score))
            .collect();
        match self.hits.len() {
            0 => hits.push("nothing".to_owned()),
            all if all > SHOWN_HITS => hits.push(format!("and {} more", all - SHOWN_HITS)),
            _ => {}
        }
        let Version { sequence, hash } = self.version;
        let hits = hits.join(", ");
        format!("finds {hits} in memory/{memory} at version {sequence} {hash}")
    }

    pub(super) fn to_json(&self, ranking: &RankingConfig) -> Value {
        let hits = self.hits.iter().map(|hit| {
            json!({
                "rank": hit.rank, "id": hit.id.0, "score": hit.score, "kind": hit.kind.word(),
                "recorded_us": hit.recorded_us, "sources": hit.sources,
            })
        });
        let left_out = self.left_out.iter();
        let left_out =
            left_out.map(|left| json!({ "rank": left.rank, "id": left.id.0, "bytes": left.bytes }));
        json!({
            "version": version_json(self.version),
            "ranking": { "hash": self.ranking.to_string(), "bytes": hex(&ranking.to_bytes()) },
            "hits": hits.collect::<Vec<_>>(),
            "left_out": left_out.collect::<Vec<_>>(),
            "forgotten_since": self.forgotten_since,
            "words": self.words,
            "words_left_out": self.words_left_out,
        })
    }

    /// As it was written; what the documents say is not in it.
    pub(super) fn from_json(value: &Value) -> Option<Found> {
        let hits = value["hits"].as_array()?.iter().map(|hit| {
            Some(FoundHit {
                rank: u32::try_from(hit["rank"].as_u64()?).ok()?,
                id: DocId(hit["id"].as_u64()?),
                score: hit["score"].as_i64()?,
                kind: DocKind::from_word(hit["kind"].as_str()?)?,
                recorded_us: hit["recorded_us"].as_u64()?,
                sources: texts(&hit["sources"])?,
                content: Ok(Content::default()),
            })
        });
        let left_out = value["left_out"].as_array()?.iter().map(|left| {
            Some(LeftOut {
                rank: u32::try_from(left["rank"].as_u64()?).ok()?,
                id: DocId(left["id"].as_u64()?),
                bytes: left["bytes"].as_u64()?,
            })
        });
        Some(Found {
            version: version_of(&value["version"])?,
            ranking: value["ranking"]["hash"].as_str()?.parse().ok()?,
            hits: hits.collect::<Option<_>>()?,
            left_out: left_out.collect::<Option<_>>()?,
            forgotten_since: value["forgotten_since"].as_u64()?,
            words: texts(&value["words"])?,
            words_left_out: value["words_left_out"].as_u64()?,
        })
    }
}

impl FoundDocument {
    /// One that was just read.
    pub(super) fn of(document: Document, version: Version) -> FoundDocument {
        FoundDocument {
            version,
            id: document.id,
            kind: document.kind,
            by: document.by,
            recorded_us: document.recorded_us,
            corrects: document.corrects,
            ended: document.ended.map(|ended| ended.how),
            content: Ok(document.content),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let ended = self.ended.map(|how| match how {
            HowEnded::Corrected(by) => json!({ "corrected": by.0 }),
            HowEnded::Retracted => json!("retracted"),
            HowEnded::Forgotten => json!("forgotten"),
        });
        json!({
            "version": version_json(self.version), "id": self.id.0, "kind": self.kind.word(),
            "by": self.by, "recorded_us": self.recorded_us,
            "corrects": self.corrects.map(|id| id.0), "ended": ended,
        })
    }

    /// As it was written; what the document says is not in it.
    pub(super) fn from_json(value: &Value) -> Option<FoundDocument> {
        let ended = match &value["ended"] {
            Value::Null => None,
            Value::String(word) if word == "retracted" => Some(HowEnded::Retracted),
            Value::String(word) if word == "forgotten" => Some(HowEnded::Forgotten),
            other => Some(HowEnded::Corrected(DocId(other["corrected"].as_u64()?))),
        };
        Some(FoundDocument {
            version: version_of(&value["version"])?,
            id: DocId(value["id"].as_u64()?),
            kind: DocKind::from_word(value["kind"].as_str()?)?,
            by: value["by"].as_str().map(str::to_owned),
            recorded_us: value["recorded_us"].as_u64()?,
            corrects: value["corrects"].as_u64().map(DocId),
            ended,
            content: Ok(Content::default()),
        })
    }
}

/// What is asked, as the code gave it. What the library adds to it, as tables and formulas, is in
/// the answer: a newer library must not be taken for other code.
pub(super) fn asked_json(memory: &str, query: &Query, ranking: &RankingConfig) -> Value {
    let as_of = match query.as_of {
        AsOf::Now => Value::Null,
        AsOf::Sequence(sequence) => json!({ "sequence": sequence }),
        AsOf::Version(version) => version_json(version),
    };
    json!({
        "memory": memory,
        "query": query.text,
        "vector": query.vector.as_ref().map(vector_hex),
        "filter": filter_json(&query.filter),
        "as_of": as_of,
        "limit": query.limit,
        "context_bytes": query.context_bytes,
        "ranking": {
            "language": ranking.analyser.language.word(),
            "english_stop_words": ranking.analyser.english_stop_words,
            "k1_per_mille": ranking.k1_per_mille,
            "b_per_mille": ranking.b_per_mille,
            "fusion_k": ranking.fusion_k,
            "depth": ranking.depth,
            "words_weight": ranking.words_weight,
            "vectors_weight": ranking.vectors_weight,
            "model": ranking.model,
        },
    })
}

fn filter_json(filter: &Filter) -> Value {
    let kinds = filter.kinds.iter().map(|kind| kind.word());
    let scopes = filter.scopes.iter().map(Scope::to_string);
    json!({
        "kinds": kinds.collect::<Vec<_>>(),
        "all_tags": filter.all_tags,
        "any_tags": filter.any_tags,
        "scopes": scopes.collect::<Vec<_>>(),
        "confidence_from": filter.confidence_from,
        "recorded_from_us": filter.recorded_from_us,
        "recorded_until_us": filter.recorded_until_us,
        "valid_at_us": filter.valid_at_us,
    })
}

pub(super) fn version_json(version: Version) -> Value {
    json!({ "sequence": version.sequence, "hash": version.hash.to_string() })
}

pub(super) fn version_of(value: &Value) -> Option<Version> {
    Some(Version {
        sequence: value["sequence"].as_u64()?,
        hash: value["hash"].as_str()?.parse().ok()?,
    })
}

/// What is asked, for people.
pub(super) fn query_words(query: &Query) -> String {
    let text = query.text.as_deref().map(|text| {
        let mut cut: String = text.chars().take(SHOWN_CHARS).collect();
        if cut.len() < text.len() {
            cut.push('…');
        }
        format!("{cut:?}")
    });
    let vector = query.vector.as_ref();
    let vector = vector.map(|vector| format!("a vector of {} dimensions", vector.dimension()));
    let parts: Vec<String> = text.into_iter().chain(vector).collect();
    match parts.is_empty() {
        true => "nothing".to_owned(),
        false => parts.join(" and "),
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let texts = value.as_array()?.iter();
    texts.map(|text| Some(text.as_str()?.to_owned())).collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A vector as hex: two digits for each component.
pub(in crate::ctx) fn vector_hex(vector: &Vector) -> String {
    let bytes: Vec<u8> = vector.components().iter().map(|c| *c as u8).collect();
    hex(&bytes)
}

pub(in crate::ctx) fn vector_of(hex: &str) -> Option<Vector> {
    let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some((high * 16 + low) as u8 as i8),
        _ => None,
    });
    Vector::from_i8(pairs.collect::<Option<_>>()?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_read_as_it_was_written() {
        let found = Found {
            version: Version {
                sequence: 7,
                hash: Hash::of(b"x"),
            },
            ranking: RankingConfig::default().hash(),
            hits: vec![FoundHit {
                rank: 1,
                id: DocId(3),
                score: -(1 << 40),
                kind: DocKind::Plan,
                recorded_us: u64::MAX,
                sources: vec!["a".into(), "b".into()],
                content: Ok(Content::default()),
            }],
            left_out: vec![LeftOut {
                id: DocId(4),
                rank: 2,
                bytes: 9,
            }],
            forgotten_since: 1,
            words: vec!["oven".into()],
            words_left_out: 2,
        };
        let json = found.to_json(&RankingConfig::default());
        assert_eq!(Found::from_json(&json).unwrap(), found);
        for missing in ["version", "ranking", "hits", "words"] {
            let mut json = json.clone();
            json.as_object_mut().unwrap().remove(missing);
            assert_eq!(Found::from_json(&json), None, "{missing}");
        }
    }

    #[test]
    fn a_vector_is_read_as_it_was_written() {
        let vector = Vector::from_i8(vec![0, 1, -1, 127, -128]).unwrap();
        assert_eq!(vector_hex(&vector), "0001ff7f80");
        assert_eq!(vector_of("0001ff7f80").unwrap(), vector);
        for bad in ["", "0", "zz", "000"] {
            assert!(vector_of(bad).is_none(), "{bad}");
        }
    }
}
