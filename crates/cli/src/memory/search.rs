//! `dalsegno memory search`.

use std::io::{self, Read};

use dalsegno_memory::{
    AsOf, Explanation, HITS_LIMIT, Hit, Hits, QUERY_LIMIT_BYTES, Query, RankingConfig,
};
use serde::Serialize;

use super::shape::{self, ContentShape, VersionShape};
use super::{model, opening, when};
use crate::args::Global;
use crate::args::memory::look::Search;
use crate::exit::{Error, Exit, Result};
use crate::output::style::Style;
use crate::output::text::{fit, shown, shown_lines};
use crate::output::{Out, size};

/// So many columns of a text are shown, unless it is to be shown whole.
const SHORT_COLUMNS: usize = 300;

/// `dalsegno.memory-search/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    memory: &'a str,
    version: VersionShape,
    /// The hash of the ranking configuration.
    config: String,
    /// Over version, configuration, ids and scores.
    digest: String,
    model: Option<&'a str>,
    words: &'a [String],
    words_left_out: u64,
    forgotten_since: u64,
    hits: Vec<HitShape<'a>>,
    left_out: Vec<LeftOutShape>,
}

#[derive(Serialize)]
struct HitShape<'a> {
    rank: u32,
    id: u64,
    score: i64,
    kind: &'static str,
    recorded_us: u64,
    #[serde(flatten)]
    content: ContentShape<'a>,
    explanation: Option<ExplanationShape<'a>>,
}

#[derive(Serialize)]
struct LeftOutShape {
    rank: u32,
    id: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct ExplanationShape<'a> {
    words: Option<WordsShape<'a>>,
    vector: Option<VectorShape>,
}

#[derive(Serialize)]
struct WordsShape<'a> {
    score: i64,
    rank: u32,
    fused: i64,
    documents: u64,
    total_words: u64,
    length: u32,
    norm: u64,
    terms: Vec<TermShape<'a>>,
}

#[derive(Serialize)]
struct TermShape<'a> {
    word: &'a str,
    asked: u32,
    tf: u32,
    df: u64,
    idf: u64,
    score: i64,
}

#[derive(Serialize)]
struct VectorShape {
    dot: i64,
    rank: u32,
    fused: i64,
}

/// Searches.
///
/// # Errors
/// There is no such memory or version, there is nothing to look for, the model is another one, or
/// the store cannot be read.
pub fn run(args: &Search, global: &Global, out: &mut Out) -> Result<Exit> {
    let text = question(args)?;
    if text.trim().is_empty() {
        return Err(Error::usage("the query is empty").hint("name the words to look for"));
    }
    opening::read(global, &args.memory, async |memory| {
        let version = when::find(args.as_of.as_of, &memory).await?;
        let model = model::to_search(&memory, &args.model).await?;
        let mut query = Query::words(text)
            .filter(args.wanted.filter())
            .as_of(AsOf::Version(version))
            .limit(match args.limit {
                0 => HITS_LIMIT,
                limit => limit,
            });
        query.context_bytes = args.context_bytes;
        query.explain = args.explain;
        let mut ranking = RankingConfig::default().language(args.language);
        if let Some(model) = &model {
            let words = query.text.as_deref().unwrap_or_default();
            query.vector = Some(model.vector(None, words)?);
            ranking = ranking.model(model.name());
        }
        let hits = memory.search(&query, &ranking).await?;
        let model = model.as_ref().map(model::Model::name);
        match out.is_json() {
            true => out.json(&document(args, &hits, model))?,
            false => print(args, &hits, model, out)?,
        }
        Ok(Exit::Done)
    })
}

/// What is asked, from the command line or from standard input.
fn question(args: &Search) -> Result<String> {
    if args.query.iter().map(String::as_str).ne(["-"]) {
        return Ok(args.query.join(" "));
    }
    let mut bytes = Vec::new();
    // One byte more than is taken, so that what is too long is said and not cut.
    let read = io::stdin().lock().take(QUERY_LIMIT_BYTES as u64 + 1);
    { read }
        .read_to_end(&mut bytes)
        .map_err(|e| Error::failed(format!("cannot read standard input: {e}")))?;
    if bytes.len() > QUERY_LIMIT_BYTES {
        return Err(Error::usage(format!(
            "the query on standard input is too long: the limit is {QUERY_LIMIT_BYTES} bytes"
        )));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::usage(format!("the query is no text: byte {at} is not UTF-8"))
    })
}

fn document<'a>(args: &'a Search, hits: &'a Hits, model: Option<&'a str>) -> Document<'a> {
    let left_out = hits.left_out.iter().map(|left| LeftOutShape {
        rank: left.rank,
        id: left.id.0,
        bytes: left.bytes,
    });
    Document {
        schema: "dalsegno.memory-search/1",
        memory: &args.memory,
        version: hits.version.into(),
        config: hits.config.to_string(),
        digest: hits.digest().to_string(),
        model,
        words: &hits.words,
        words_left_out: hits.words_left_out,
        forgotten_since: hits.forgotten_since,
        hits: hits.hits.iter().map(hit).collect(),
        left_out: left_out.collect(),
    }
}

fn hit(hit: &Hit) -> HitShape<'_> {
    HitShape {
        rank: hit.rank,
        id: hit.id.0,
        score: hit.score,
        kind: hit.kind.word(),
        recorded_us: hit.recorded_us,
        content: (&hit.content).into(),
        explanation: hit.explanation.as_ref().map(explanation),
    }
}

fn explanation(explanation: &Explanation) -> ExplanationShape<'_> {
    let words = explanation.words.as_ref().map(|words| WordsShape {
        score: words.score,
        rank: words.rank,
        fused: words.fused,
        documents: words.documents,
        total_words: words.total_words,
        length: words.length,
        norm: words.norm,
        terms: words
            .terms
            .iter()
            .map(|term| TermShape {
                word: &term.word,
                asked: term.asked,
                tf: term.tf,
                df: term.df,
                idf: term.idf,
                score: term.score,
            })
            .collect(),
    });
    let vector = explanation.vector.map(|vector| VectorShape {
        dot: vector.dot,
        rank: vector.rank,
        fused: vector.fused,
    });
    ExplanationShape { words, vector }
}

/// Scores in the units that people know: BM25 as such, fused ranks as fractions, vectors by their
/// cosine.
#[derive(Clone, Copy)]
enum Unit {
    Words,
    Fused,
    Vector,
}

impl Unit {
    fn of(hits: &Hits, model: Option<&str>) -> Unit {
        match (model, hits.words.is_empty()) {
            (None, _) => Unit::Words,
            (Some(_), false) => Unit::Fused,
            (Some(_), true) => Unit::Vector,
        }
    }

    fn show(self, score: i64) -> String {
        let score = score as f64;
        match self {
            Unit::Words => format!("{:.3}", score / 2f64.powi(32)),
            Unit::Fused => format!("{:.5}", score / 2f64.powi(40) / 1000.0),
            Unit::Vector => format!("{:.3}", score / f64::from(512 * 512)),
        }
    }
}

fn print(args: &Search, hits: &Hits, model: Option<&str>, out: &mut Out) -> Result<()> {
    let unit = Unit::of(hits, model);
    for hit in &hits.hits {
        let rank = out.paint(Style::Bold, &format!("{}.", hit.rank));
        let source = shown(shape::source(&hit.content));
        let source = out.paint(Style::Active, &source);
        let about = format!(
            "document {}, {}, score {}",
            hit.id,
            hit.kind,
            unit.show(hit.score)
        );
        let about = out.paint(Style::Dim, &about);
        out.line(format!("{rank} {source}  {about}"))?;
        if let Some(title) = &hit.content.title {
            let title = out.paint(Style::Bold, &shown(title));
            out.line(format!("   {title}"))?;
        }
        for line in text(&hit.content.text, args.full).lines() {
            out.line(format!("   {line}").trim_end())?;
        }
        if let Some(explanation) = &hit.explanation {
            explain(explanation, unit, out)?;
        }
    }
    notes(args, hits, model, out)
}

fn text(text: &str, full: bool) -> String {
    match full {
        true => shown_lines(text),
        false => {
            // Enough for what is shown, without copying a long text.
            let words = text.split_whitespace().take(SHORT_COLUMNS);
            fit(&shown(&words.collect::<Vec<_>>().join(" ")), SHORT_COLUMNS)
        }
    }
}

fn explain(explanation: &Explanation, unit: Unit, out: &mut Out) -> Result<()> {
    let mut line = |text: String| {
        let text = out.paint(Style::Dim, &text);
        out.line(format!("     {text}"))
    };
    let is_fused = matches!(unit, Unit::Fused);
    let added = |fused: i64| match is_fused {
        true => format!(", adds {}", Unit::Fused.show(fused)),
        false => String::new(),
    };
    if let Some(words) = &explanation.words {
        let score = Unit::Words.show(words.score);
        let added = added(words.fused);
        line(format!(
            "words: {score}, rank {}{added}; {} here, {} in all",
            words.rank,
            size::count(words.length.into(), "word"),
            size::count(words.documents, "document")
        ))?;
        for term in &words.terms {
            let idf = term.idf as f64 / 2f64.powi(24);
            line(format!(
                "  {}: {} × here, in {}, idf {idf:.3}, adds {}",
                shown(&term.word),
                term.tf,
                size::count(term.df, "document"),
                Unit::Words.show(term.score)
            ))?;
        }
    }
    if let Some(vector) = &explanation.vector {
        let (score, added) = (Unit::Vector.show(vector.dot), added(vector.fused));
        line(format!("vector: {score}, rank {}{added}", vector.rank))?;
    }
    Ok(())
}

/// What the hits alone do not say.
fn notes(args: &Search, hits: &Hits, model: Option<&str>, out: &mut Out) -> Result<()> {
    let memory = shown(&args.memory);
    let version = hits.version.sequence;
    if hits.words.is_empty() && model.is_none() {
        out.line("the query has no words to look for")?;
    } else if hits.hits.is_empty() && hits.left_out.is_empty() {
        out.line(format!("nothing found in {memory} at version {version}"))?;
    }
    if !hits.left_out.is_empty() {
        let count = size::count(hits.left_out.len() as u64, "hit");
        out.line(format!("{count} more did not fit into --context-bytes"))?;
    }
    if hits.words_left_out > 0 {
        let words = size::count(hits.words_left_out, "word");
        out.line(format!(
            "{words} of the query were too many, and not looked for"
        ))?;
    }
    if hits.forgotten_since > 0 {
        let count = size::count(hits.forgotten_since, "document");
        out.line(format!("{count} of version {version} forgotten since"))?;
    }
    if args.as_of.as_of.is_some() && !hits.hits.is_empty() {
        out.line(format!("as of version {version}"))?;
    }
    Ok(())
}
