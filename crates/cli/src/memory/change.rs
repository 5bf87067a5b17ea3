//! `dalsegno memory correct` and `retract`.

use dalsegno_memory::{DocId, Document, Memory, NewDocument};

use super::model;
use super::opening::{self, IfMissing};
use super::shape::Changed;
use crate::args::Global;
use crate::args::memory::change::{Correct, Retract};
use crate::exit::{Exit, Result};
use crate::output::Out;
use crate::output::text::shown;

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
        true => {
            let mut changed = Changed::new(name, "corrected", &[id], version);
            changed.corrects = Some(old.0);
            out.json(&changed)?;
        }
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
        true => out.json(&Changed::new(name, "retracted", &[id], version))?,
        false => {
            let (memory, version) = (shown(name), version.sequence);
            out.line(format!(
                "document {id} retracted; {memory} is at version {version}"
            ))?;
        }
    }
    Ok(Exit::Done)
}
