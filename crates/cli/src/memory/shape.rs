//! How documents look: as JSON for programs, as lines for people.

use std::io;

use dalsegno_memory::{Content, DocId, Document, Ended, HowEnded};
use dalsegno_store::Version;
use serde::Serialize;

use super::remains::{Part, Twin};
use crate::output::style::Style;
use crate::output::text::{fit, shown, shown_lines};
use crate::output::{Out, time};

/// A version.
#[derive(Serialize)]
pub struct VersionShape {
    /// Its last event.
    pub sequence: u64,
    /// The hash of all up to it.
    pub hash: String,
}

impl From<Version> for VersionShape {
    fn from(version: Version) -> VersionShape {
        VersionShape {
            sequence: version.sequence,
            hash: version.hash.to_string(),
        }
    }
}

/// `dalsegno.memory-change/1`
#[derive(Serialize)]
pub struct Changed<'a> {
    schema: &'static str,
    memory: &'a str,
    what: &'static str,
    ids: Vec<u64>,
    /// Of a correction: in whose place it is.
    pub corrects: Option<u64>,
    /// Of forgetting: what was forgotten by an earlier command.
    pub before: Vec<u64>,
    /// Of forgetting: what has a part of it.
    pub still_in: &'a [Part],
    /// Of forgetting: what else is the same.
    pub also_in: &'a [Twin],
    /// Nothing was changed: --yes is missing.
    pub dry_run: bool,
    version: VersionShape,
}

impl<'a> Changed<'a> {
    /// That documents of a memory were changed.
    pub fn new(
        memory: &'a str,
        what: &'static str,
        ids: &[DocId],
        version: Version,
    ) -> Changed<'a> {
        Changed {
            schema: "dalsegno.memory-change/1",
            memory,
            what,
            ids: ids.iter().map(|id| id.0).collect(),
            corrects: None,
            before: Vec::new(),
            still_in: &[],
            also_in: &[],
            dry_run: false,
            version: version.into(),
        }
    }
}

/// What a document says.
#[derive(Serialize)]
pub struct ContentShape<'a> {
    text: &'a str,
    title: Option<&'a str>,
    sources: &'a [String],
    tags: &'a [String],
    confidence: u16,
    scope: String,
    valid_from_us: Option<i64>,
    valid_until_us: Option<i64>,
    dimensions: Option<usize>,
}

impl<'a> From<&'a Content> for ContentShape<'a> {
    fn from(content: &'a Content) -> ContentShape<'a> {
        ContentShape {
            text: &content.text,
            title: content.title.as_deref(),
            sources: &content.sources,
            tags: &content.tags,
            confidence: content.confidence,
            scope: content.scope.to_string(),
            valid_from_us: content.valid_from_us,
            valid_until_us: content.valid_until_us,
            dimensions: content.vector.as_ref().map(|vector| vector.dimension()),
        }
    }
}

/// A document.
#[derive(Serialize)]
pub struct DocumentShape<'a> {
    id: u64,
    kind: &'static str,
    #[serde(flatten)]
    content: ContentShape<'a>,
    by: Option<&'a str>,
    recorded_us: u64,
    corrects: Option<u64>,
    ended: Option<EndedShape<'a>>,
}

impl<'a> From<&'a Document> for DocumentShape<'a> {
    fn from(document: &'a Document) -> DocumentShape<'a> {
        DocumentShape {
            id: document.id.0,
            kind: document.kind.word(),
            content: (&document.content).into(),
            by: document.by.as_deref(),
            recorded_us: document.recorded_us,
            corrects: document.corrects.map(|id| id.0),
            ended: document.ended.as_ref().map(EndedShape::from),
        }
    }
}

/// What became of a document.
#[derive(Serialize)]
pub struct EndedShape<'a> {
    how: &'static str,
    corrected_by: Option<u64>,
    sequence: u64,
    at_us: u64,
    by: Option<&'a str>,
    reason: Option<&'a str>,
}

impl<'a> From<&'a Ended> for EndedShape<'a> {
    fn from(ended: &'a Ended) -> EndedShape<'a> {
        let (how, corrected_by) = match ended.how {
            HowEnded::Corrected(by) => ("corrected", Some(by.0)),
            HowEnded::Retracted => ("retracted", None),
            HowEnded::Forgotten => ("forgotten", None),
        };
        EndedShape {
            how,
            corrected_by,
            sequence: ended.sequence,
            at_us: ended.at_us,
            by: ended.by.as_deref(),
            reason: ended.reason.as_deref(),
        }
    }
}

/// How it ended, in words.
pub fn ended_words(ended: &Ended) -> String {
    let by = ended.by.as_deref().unwrap_or("somebody without a name");
    let why = ended.reason.as_deref().filter(|why| !why.is_empty());
    let why = why.map_or(String::new(), |why| format!(": {}", shown(why)));
    let at = time::utc(ended.at_us);
    format!("{} at {at} by {}{why}", ended.how, shown(by))
}

/// The beginning of a text on one line: its title, and what it says.
pub fn in_short(content: &Content) -> String {
    let mut text = content.text.split_whitespace();
    let mut short = content
        .title
        .clone()
        .map_or(String::new(), |title| title + ": ");
    while short.len() < 400
        && let Some(word) = text.next()
    {
        short.push_str(word);
        short.push(' ');
    }
    fit(shown(short.trim_end()).as_str(), 160)
}

/// Where it is from, in a word; the first place if there are more.
pub fn source(content: &Content) -> &str {
    content.sources.first().map_or("-", String::as_str)
}

/// A document in full.
pub fn print(document: &Document, out: &mut Out) -> io::Result<()> {
    let content = &document.content;
    let mut line = |name: &str, value: String| {
        let name = out.paint(Style::Dim, &format!("{name:<11}"));
        out.line(format!("{name} {value}"))
    };
    line("document", format!("{}, {}", document.id, document.kind))?;
    if let Some(title) = &content.title {
        line("title", shown(title))?;
    }
    if !content.sources.is_empty() {
        line("sources", shown(&content.sources.join(", ")))?;
    }
    if !content.tags.is_empty() {
        line("tags", shown(&content.tags.join(", ")))?;
    }
    line("confidence", format!("{} of 1000", content.confidence))?;
    line("scope", shown(&content.scope.to_string()))?;
    let day = |us: i64| match u64::try_from(us) {
        Ok(us) => time::utc(us),
        Err(_) => format!("{us} µs before 1970"),
    };
    if let Some(from) = content.valid_from_us {
        line("holds from", day(from))?;
    }
    if let Some(until) = content.valid_until_us {
        line("until", day(until))?;
    }
    let by = document.by.as_deref().unwrap_or("somebody without a name");
    let at = time::utc(document.recorded_us);
    line("recorded", format!("{at} by {}", shown(by)))?;
    if let Some(corrects) = document.corrects {
        line("corrects", corrects.to_string())?;
    }
    if let Some(ended) = &document.ended {
        line("ended", ended_words(ended))?;
    }
    out.line(format!("\n{}", shown_lines(&content.text)))
}
