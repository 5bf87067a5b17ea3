//! What memories answer, as JSON for Python. `dalsegno/_memory_said.py` reads it.
//!
//! Invariant: scores and times are whole numbers, so that bits can be compared.

use dalsegno::memory::{Found, FoundDocument};
use dalsegno_memory::{
    Change, Changed, Content, DocId, Document, Ended, Explanation, Hits, HowEnded, LeftOut,
    Revision, Vector,
};
use dalsegno_store::Version;
use serde_json::{Value, json};

pub fn version(version: Version) -> Value {
    json!([version.sequence, version.hash.to_string()])
}

/// What a run found.
pub fn found(found: &Found) -> Value {
    let hits = found.hits.iter().map(|hit| {
        let (content, forgotten) = match &hit.content {
            Ok(content) => (content_json(content), Value::Null),
            Err(ended) => (Value::Null, ended_json(ended)),
        };
        json!({
            "rank": hit.rank, "id": hit.id.0, "score": hit.score, "kind": hit.kind.word(),
            "recorded_us": hit.recorded_us, "sources": hit.sources, "content": content,
            "forgotten": forgotten, "explanation": null,
        })
    });
    json!({
        "version": version(found.version),
        "ranking": found.ranking.to_string(),
        "hits": hits.collect::<Vec<_>>(),
        "left_out": left_out(&found.left_out),
        "forgotten_since": found.forgotten_since,
        "words": found.words,
        "words_left_out": found.words_left_out,
        "digest": null,
    })
}

/// What was found outside of runs.
pub fn hits(found: &Hits) -> Value {
    let hits = found.hits.iter().map(|hit| {
        json!({
            "rank": hit.rank, "id": hit.id.0, "score": hit.score, "kind": hit.kind.word(),
            "recorded_us": hit.recorded_us, "sources": hit.content.sources,
            "content": content_json(&hit.content), "forgotten": null,
            "explanation": hit.explanation.as_ref().map(explanation),
        })
    });
    json!({
        "version": version(found.version),
        "ranking": found.config.to_string(),
        "hits": hits.collect::<Vec<_>>(),
        "left_out": left_out(&found.left_out),
        "forgotten_since": found.forgotten_since,
        "words": found.words,
        "words_left_out": found.words_left_out,
        "digest": found.digest().to_string(),
    })
}

/// A document that a run read.
pub fn found_document(found: &FoundDocument) -> Value {
    let (content, ended) = match &found.content {
        Ok(content) => (content_json(content), found.ended.map(how)),
        Err(ended) => (Value::Null, Some(ended_json(ended))),
    };
    json!({
        "version": version(found.version), "id": found.id.0, "kind": found.kind.word(),
        "by": found.by, "recorded_us": found.recorded_us, "corrects": id(found.corrects),
        "content": content, "ended": ended,
    })
}

/// A document outside of runs.
pub fn document(document: &Document, at: Option<Version>) -> Value {
    json!({
        "version": at.map(version), "id": document.id.0, "kind": document.kind.word(),
        "by": document.by, "recorded_us": document.recorded_us, "corrects": id(document.corrects),
        "content": content_json(&document.content), "ended": document.ended.as_ref().map(ended_json),
    })
}

pub fn history(revisions: &[Revision]) -> Value {
    let revisions = revisions.iter().map(|revision| {
        json!({
            "id": revision.id.0, "kind": revision.kind.word(), "recorded_us": revision.recorded_us,
            "content": revision.content.as_ref().map(content_json),
            "ended": revision.ended.as_ref().map(ended_json),
        })
    });
    Value::Array(revisions.collect())
}

pub fn changes(changes: &[Change]) -> Value {
    let changes = changes.iter().map(|change| {
        let (what, of, new) = match &change.what {
            Changed::Added(id) => ("added", vec![id.0], None),
            Changed::Corrected { old, new } => ("corrected", vec![old.0], Some(new.0)),
            Changed::Retracted(id) => ("retracted", vec![id.0], None),
            Changed::Forgotten(ids) => ("forgotten", ids.iter().map(|id| id.0).collect(), None),
            // The library may learn of more.
            _ => ("other", Vec::new(), None),
        };
        json!([
            change.sequence,
            change.at_us,
            change.by,
            change.reason,
            what,
            of,
            new
        ])
    });
    Value::Array(changes.collect())
}

fn id(of: Option<DocId>) -> Option<u64> {
    of.map(|id| id.0)
}

fn left_out(all: &[LeftOut]) -> Value {
    let all = all.iter();
    Value::Array(
        all.map(|left| json!([left.id.0, left.rank, left.bytes]))
            .collect(),
    )
}

fn content_json(content: &Content) -> Value {
    json!({
        "text": content.text, "title": content.title, "sources": content.sources,
        "tags": content.tags, "confidence": content.confidence,
        "scope": content.scope.to_string(),
        "valid_from_us": content.valid_from_us, "valid_until_us": content.valid_until_us,
        "vector": content.vector.as_ref().map(hex),
    })
}

/// The components of a vector, two digits for each.
pub fn hex(vector: &Vector) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * vector.dimension());
    for component in vector.components() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:02x}", *component as u8);
    }
    text
}

/// How, by which document; the event that says so, when, by whom and why, as far as that is known.
fn ended_json(ended: &Ended) -> Value {
    let (how, by_document) = words(ended.how);
    json!([
        how,
        by_document,
        ended.sequence,
        ended.at_us,
        ended.by,
        ended.reason
    ])
}

fn how(how: HowEnded) -> Value {
    let (how, by_document) = words(how);
    json!([how, by_document, null, null, null, null])
}

fn words(how: HowEnded) -> (&'static str, Option<u64>) {
    match how {
        HowEnded::Corrected(by) => ("corrected", Some(by.0)),
        HowEnded::Retracted => ("retracted", None),
        HowEnded::Forgotten => ("forgotten", None),
    }
}

fn explanation(explained: &Explanation) -> Value {
    let words = explained.words.as_ref().map(|words| {
        let terms = words.terms.iter();
        let terms = terms.map(|t| json!([t.word, t.asked, t.tf, t.df, t.idf, t.score]));
        json!({
            "score": words.score, "rank": words.rank, "fused": words.fused,
            "documents": words.documents, "total_words": words.total_words,
            "length": words.length, "norm": words.norm, "terms": terms.collect::<Vec<_>>(),
        })
    });
    let vector = explained.vector.map(|v| json!([v.dot, v.rank, v.fused]));
    json!([words, vector])
}
