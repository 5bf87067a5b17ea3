//! `dalsegno memory history`: of a document, or of the whole memory.

use dalsegno_memory::{AsOf, Change, Changed, Content, DocId, Memory, MemoryError, Revision};
use serde::Serialize;

use super::shape::{self, ContentShape, EndedShape, VersionShape};
use super::{opening, when};
use crate::args::Global;
use crate::args::memory::look::History;
use crate::exit::{Error, Exit, Result};
use crate::output::style::Style;
use crate::output::text::{shown, shown_lines};
use crate::output::{Out, time};

/// `dalsegno.memory-history/1`
#[derive(Serialize)]
struct MemoryDocument<'a> {
    schema: &'static str,
    memory: &'a str,
    version: VersionShape,
    changes: Vec<ChangeShape<'a>>,
    /// There are earlier ones.
    more: bool,
}

/// `dalsegno.memory-revisions/1`
#[derive(Serialize)]
struct RevisionsDocument<'a> {
    schema: &'static str,
    memory: &'a str,
    id: u64,
    revisions: Vec<RevisionShape<'a>>,
}

#[derive(Serialize)]
struct ChangeShape<'a> {
    sequence: u64,
    at_us: u64,
    by: Option<&'a str>,
    what: &'static str,
    ids: Vec<u64>,
    corrects: Option<u64>,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct RevisionShape<'a> {
    id: u64,
    kind: &'static str,
    recorded_us: u64,
    content: Option<ContentShape<'a>>,
    ended: Option<EndedShape<'a>>,
}

/// Tells what happened.
///
/// # Errors
/// There is no such memory, document or version, or the store cannot be read.
pub fn run(args: &History, global: &Global, out: &mut Out) -> Result<Exit> {
    opening::read(global, &args.memory, async |memory| {
        match args.id {
            Some(id) => of_document(args, DocId(id), &memory, out).await?,
            None => of_memory(args, &memory, out).await?,
        }
        Ok(Exit::Done)
    })
}

async fn of_document(args: &History, id: DocId, memory: &Memory, out: &mut Out) -> Result<()> {
    let version = when::find(args.as_of.as_of, memory).await?;
    let mut revisions = memory.history(id).await?;
    revisions.retain(|revision| revision.id.0 <= version.sequence);
    for revision in &mut revisions {
        let ended = revision.ended.take();
        revision.ended = ended.filter(|ended| ended.sequence <= version.sequence);
    }
    if revisions.is_empty() {
        let what = format!("version {} has no document {id}", version.sequence);
        return Err(Error::failed(what).hint("it was added later"));
    }
    if out.is_json() {
        return Ok(out.json(&RevisionsDocument {
            schema: "dalsegno.memory-revisions/1",
            memory: &args.memory,
            id: id.0,
            revisions: revisions.iter().map(revision_shape).collect(),
        })?);
    }
    for (at, revision) in revisions.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        print_revision(revision, out)?;
    }
    Ok(())
}

fn revision_shape(revision: &Revision) -> RevisionShape<'_> {
    RevisionShape {
        id: revision.id.0,
        kind: revision.kind.word(),
        recorded_us: revision.recorded_us,
        content: revision.content.as_ref().map(ContentShape::from),
        ended: revision.ended.as_ref().map(EndedShape::from),
    }
}

fn print_revision(revision: &Revision, out: &mut Out) -> Result<()> {
    let at = time::utc(revision.recorded_us);
    out.heading(&format!(
        "document {}, {}, {at}",
        revision.id, revision.kind
    ))?;
    match &revision.content {
        None => out.line("  (forgotten)")?,
        Some(content) => {
            for line in shown_lines(&content.text).lines() {
                out.line(format!("  {line}").trim_end())?;
            }
            if !content.sources.is_empty() {
                let sources = shown(&content.sources.join(", "));
                let from = out.paint(Style::Dim, &format!("from {sources}"));
                out.line(format!("  {from}"))?;
            }
        }
    }
    if let Some(ended) = &revision.ended {
        let words = out.paint(Style::Warn, &shape::ended_words(ended));
        out.line(format!("  {words}"))?;
    }
    Ok(())
}

async fn of_memory(args: &History, memory: &Memory, out: &mut Out) -> Result<()> {
    let version = when::find(args.as_of.as_of, memory).await?;
    let after = match args.limit {
        0 => 0,
        limit => version.sequence.saturating_sub(limit as u64),
    };
    let until = AsOf::Version(version);
    let changes = memory.changes(AsOf::Sequence(after), until).await?;
    if out.is_json() {
        return Ok(out.json(&MemoryDocument {
            schema: "dalsegno.memory-history/1",
            memory: &args.memory,
            version: version.into(),
            changes: changes.iter().map(change_shape).collect(),
            more: after > 0,
        })?);
    }
    if after > 0 {
        out.line(format!("… {after} earlier events: --limit 0 shows all"))?;
    }
    for change in &changes {
        let content = content_of(change, memory).await?;
        out.line(line_of(change, content.as_ref(), out))?;
    }
    if changes.is_empty() {
        out.line(format!("nothing happened to {}", shown(&args.memory)))?;
    }
    Ok(())
}

fn change_shape(change: &Change) -> ChangeShape<'_> {
    let (what, ids, corrects) = parts(&change.what);
    ChangeShape {
        sequence: change.sequence,
        at_us: change.at_us,
        by: change.by.as_deref(),
        what,
        ids: ids.into_iter().map(|id| id.0).collect(),
        corrects: corrects.map(|id| id.0),
        reason: change.reason.as_deref(),
    }
}

/// In a word, the documents that it is about, and what they correct.
fn parts(what: &Changed) -> (&'static str, Vec<DocId>, Option<DocId>) {
    match what {
        Changed::Added(id) => ("added", vec![*id], None),
        Changed::Corrected { old, new } => ("corrected", vec![*new], Some(*old)),
        Changed::Retracted(id) => ("retracted", vec![*id], None),
        Changed::Forgotten(ids) => ("forgotten", ids.clone(), None),
        _ => ("changed", Vec::new(), None),
    }
}

async fn content_of(change: &Change, memory: &Memory) -> Result<Option<Content>> {
    match &change.what {
        Changed::Added(id) | Changed::Corrected { new: id, .. } | Changed::Retracted(id) => {
            content(memory, *id).await
        }
        _ => Ok(None),
    }
}

/// What a document says; `None` if that is forgotten.
///
/// # Errors
/// The store cannot be read.
pub async fn content(memory: &Memory, id: DocId) -> Result<Option<Content>> {
    match memory.get(id).await {
        Ok(document) => Ok(Some(document.content)),
        Err(MemoryError::Ended { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn line_of(change: &Change, content: Option<&Content>, out: &Out) -> String {
    let (what, ids, corrects) = parts(&change.what);
    let style = match change.what {
        Changed::Added(_) => Style::Good,
        Changed::Corrected { .. } => Style::Active,
        _ => Style::Warn,
    };
    let at = time::utc(change.at_us);
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let instead = corrects.map_or(String::new(), |old| format!(" (was {old})"));
    let by = change.by.as_deref();
    let by = by.map_or(String::new(), |by| format!(" by {}", shown(by)));
    let reason = change.reason.as_deref().filter(|reason| !reason.is_empty());
    let reason = reason.map_or(String::new(), |reason| {
        format!(", because {}", shown(reason))
    });
    let text = match (content, &change.what) {
        (Some(content), _) => format!(": {}", shape::in_short(content)),
        (None, Changed::Forgotten(_)) => String::new(),
        (None, _) => ": (forgotten)".to_owned(),
    };
    let what = out.paint(style, what);
    let (sequence, ids) = (change.sequence, ids.join(", "));
    format!("{at}  {sequence:>5}  {what} {ids}{instead}{by}{reason}{text}")
}
