//! `dalsegno memory correct`, `retract` and `forget`.

use std::collections::BTreeSet;

use dalsegno_memory::{DocId, Document, Memory, NewDocument};
use dalsegno_store::Version;
use serde::Serialize;

use super::model;
use super::opening::{self, IfMissing};
use super::shape::{self, VersionShape};
use crate::args::Global;
use crate::args::memory::change::{Correct, Forget, Retract};
use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;
use crate::output::{Out, size};

/// `dalsegno.memory-change/1`
#[derive(Serialize)]
struct Changed<'a> {
    schema: &'static str,
    memory: &'a str,
    what: &'static str,
    ids: Vec<u64>,
    corrects: Option<u64>,
    /// Nothing was changed: --yes is missing.
    dry_run: bool,
    version: VersionShape,
}

/// Corrects.
///
/// # Errors
/// There is no such document, somebody was faster, or the memory cannot be written.
pub fn correct(args: &Correct, global: &Global, out: &mut Out) -> Result<Exit> {
    let (name, by) = (&args.memory, &args.who.by);
    let old = DocId(args.id);
    let done = opening::write(global, name, IfMissing::Fail, by, async |memory| {
        let new = corrected(args, &memory).await?;
        let id = memory.correct(old, new).await?;
        Ok((id, memory.version().await?))
    });
    let (id, version) = done?;
    match out.is_json() {
        true => say_json(name, "corrected", &[id], Some(old), version, out)?,
        false => {
            let (memory, version) = (shown(name), version.sequence);
            out.line(format!(
                "document {id} stands for {old}; {memory} is at version {version}"
            ))?;
        }
    }
    Ok(Exit::Done)
}

/// The old document with what is said otherwise.
async fn corrected(args: &Correct, memory: &Memory) -> Result<NewDocument> {
    let Document { kind, content, .. } = memory.get(DocId(args.id)).await?;
    let about = &args.about;
    let text = args.text.as_ref().unwrap_or(&content.text);
    let title = about.title.as_ref().or(content.title.as_ref());
    let mut new = NewDocument::new(about.kind.map_or(kind, |kind| kind.kind()), text);
    if let Some(title) = title {
        new = new.title(title);
    }
    let or = |said: &Vec<String>, old: &Vec<String>| match said.is_empty() {
        true => old.clone(),
        false => said.clone(),
    };
    for source in or(&about.source, &content.sources) {
        new = new.source(source);
    }
    for tag in or(&about.tag, &content.tags) {
        new = new.tag(tag);
    }
    new = new
        .confidence(about.confidence.unwrap_or(content.confidence))
        .scope(about.scope.clone().unwrap_or(content.scope));
    let from = about.valid_from.map(|time| time.start_us());
    if let Some(from) = from.or(content.valid_from_us) {
        new = new.valid_from_us(from);
    }
    let until = about.valid_until.map(|time| time.start_us());
    if let Some(until) = until.or(content.valid_until_us) {
        new = new.valid_until_us(until);
    }
    let is_same_text = *text == content.text && title == content.title.as_ref();
    if let (true, Some(vector)) = (is_same_text, content.vector) {
        // What it means has not changed, so no model is needed.
        new = new.vector(vector);
        return Ok(match memory.model().await? {
            Some(model) => new.model(model),
            None => new,
        });
    }
    match model::to_write(memory, &args.model).await? {
        Some(model) => model.apply(new, title.map(String::as_str), text),
        None => Ok(new),
    }
}

/// Retracts.
///
/// # Errors
/// As [`correct`].
pub fn retract(args: &Retract, global: &Global, out: &mut Out) -> Result<Exit> {
    let (name, by) = (&args.memory, &args.who.by);
    let id = DocId(args.id);
    let version = opening::write(global, name, IfMissing::Fail, by, async |memory| {
        Ok(memory.retract(id, &args.reason).await?)
    })?;
    match out.is_json() {
        true => say_json(name, "retracted", &[id], None, version, out)?,
        false => {
            let (memory, version) = (shown(name), version.sequence);
            out.line(format!(
                "document {id} retracted; {memory} is at version {version}"
            ))?;
        }
    }
    Ok(Exit::Done)
}

/// Forgets.
///
/// # Errors
/// There is no such document, or the memory cannot be written.
pub fn forget(args: &Forget, global: &Global, out: &mut Out) -> Result<Exit> {
    let (name, by) = (&args.memory, &args.who.by);
    if !args.yes {
        return opening::read(global, name, async |memory| would(args, &memory, out).await);
    }
    let forgotten = opening::write(global, name, IfMissing::Fail, by, async |memory| {
        let ids = meant(args, &memory).await?;
        Ok(memory.forget(&ids, &args.reason).await?)
    })?;
    match out.is_json() {
        true => say_json(
            name,
            "forgotten",
            &forgotten.ids,
            None,
            forgotten.version,
            out,
        )?,
        false => {
            let count = size::count(forgotten.ids.len() as u64, "document");
            let (memory, version) = (shown(name), forgotten.version.sequence);
            out.line(format!(
                "{count} forgotten; {memory} is at version {version}"
            ))?;
        }
    }
    Ok(Exit::Done)
}

/// The documents that are to be forgotten.
async fn meant(args: &Forget, memory: &Memory) -> Result<Vec<DocId>> {
    let mut ids: BTreeSet<DocId> = args.ids.iter().copied().map(DocId).collect();
    if args.all_revisions {
        for id in &args.ids {
            let revisions = memory.history(DocId(*id)).await?;
            let there = revisions
                .iter()
                .filter(|revision| revision.content.is_some());
            ids.extend(there.map(|revision| revision.id));
        }
    }
    Ok(ids.into_iter().collect())
}

/// Says what would be forgotten.
async fn would(args: &Forget, memory: &Memory, out: &mut Out) -> Result<Exit> {
    let ids = meant(args, memory).await?;
    for id in &ids {
        // Fails if it is not there, or forgotten.
        let document = memory.get(*id).await?;
        if !out.is_json() {
            let text = shape::in_short(&document.content);
            out.line(format!("would forget {id}, {}: {text}", document.kind))?;
        }
    }
    if out.is_json() {
        out.json(&Changed {
            schema: "dalsegno.memory-change/1",
            memory: &args.memory,
            what: "forgotten",
            ids: ids.iter().map(|id| id.0).collect(),
            corrects: None,
            dry_run: true,
            version: memory.version().await?.into(),
        })?;
    }
    Err(Error::new(
        Exit::NeedsPerson,
        "nothing was forgotten: it cannot be undone",
    )
    .hint("add --yes to do it"))
}

fn say_json(
    memory: &str,
    what: &'static str,
    ids: &[DocId],
    corrects: Option<DocId>,
    version: Version,
    out: &mut Out,
) -> Result<()> {
    Ok(out.json(&Changed {
        schema: "dalsegno.memory-change/1",
        memory,
        what,
        ids: ids.iter().map(|id| id.0).collect(),
        corrects: corrects.map(|id| id.0),
        dry_run: false,
        version: version.into(),
    })?)
}
