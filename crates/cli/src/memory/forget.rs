//! `dalsegno memory forget`: removes what documents say, and names what of it is elsewhere.
//!
//! Invariant: what was forgotten before is no error, and when the command says so nothing of it is
//! left: opening a memory to write finishes what an earlier command could not.

use std::collections::BTreeSet;

use dalsegno_memory::{DocId, Memory};
use dalsegno_store::Version;

use super::opening::{self, IfMissing};
use super::remains::{self, Part, Twin};
use super::shape::{self, Changed};
use crate::args::Global;
use crate::args::memory::change::Forget;
use crate::exit::{Error, Exit, Result};
use crate::output::text::{quoted, shown};
use crate::output::{Out, size};

/// The documents that are meant.
struct Meant {
    /// To be forgotten.
    there: Vec<DocId>,
    /// Forgotten by now.
    before: Vec<DocId>,
}

impl Meant {
    /// In their order, in which histories are compared.
    fn all(&self) -> impl Iterator<Item = DocId> {
        let all: BTreeSet<DocId> = self.there.iter().chain(&self.before).copied().collect();
        all.into_iter()
    }
}

/// What it came to, or would.
struct Done {
    meant: Meant,
    parts: Vec<Part>,
    twins: Vec<Twin>,
    version: Version,
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
    let done = opening::write_in(global, name, IfMissing::Fail, by, async |memory, store| {
        let meant = meant(args, &memory).await?;
        let parts = remains::parts(&memory, &meant.there).await?;
        let all: Vec<DocId> = meant.all().collect();
        let events = remains::events(&*store, memory.stream(), &all).await?;
        let version = match meant.there.as_slice() {
            [] => memory.version().await?,
            ids => memory.forget(ids, &args.reason).await?.version,
        };
        let twins = remains::twins(&*store, memory.stream(), &events).await?;
        Ok(Done {
            meant,
            parts,
            twins,
            version,
        })
    })?;
    if out.is_json() {
        say_json(args, &done, false, out)?;
        return Ok(Exit::Done);
    }
    if !done.meant.before.is_empty() {
        let before = listed(done.meant.before.iter().map(|id| id.0));
        out.line(format!(
            "{before} forgotten before, and gone from this memory"
        ))?;
    }
    if !done.meant.there.is_empty() || done.meant.before.is_empty() {
        let count = size::count(done.meant.there.len() as u64, "document");
        let (memory, version) = (shown(name), done.version.sequence);
        out.line(format!(
            "{count} forgotten; {memory} is at version {version}"
        ))?;
    }
    note_parts(&done.parts, out);
    for twin in &done.twins {
        let (memory, id) = (&twin.memory, twin.id);
        out.note(&format!(
            "memory {} has document {id} with the same text: dalsegno memory forget {} {id}",
            shown(memory),
            quoted(memory)
        ));
    }
    Ok(Exit::Done)
}

/// The documents that are meant, and those of them that are forgotten by now.
async fn meant(args: &Forget, memory: &Memory) -> Result<Meant> {
    let mut there = BTreeSet::new();
    let mut before = BTreeSet::new();
    for id in args.ids.iter().copied().map(DocId) {
        let revisions = memory.history(id).await?.into_iter();
        for revision in revisions.filter(|revision| args.all_revisions || revision.id == id) {
            match revision.content {
                Some(_) => there.insert(revision.id),
                None => before.insert(revision.id),
            };
        }
    }
    Ok(Meant {
        there: there.into_iter().collect(),
        before: before.into_iter().collect(),
    })
}

/// Says what would be forgotten.
async fn would(args: &Forget, memory: &Memory, out: &mut Out) -> Result<Exit> {
    let meant = meant(args, memory).await?;
    let done = Done {
        parts: remains::parts(memory, &meant.there).await?,
        twins: Vec::new(),
        version: memory.version().await?,
        meant,
    };
    if out.is_json() {
        say_json(args, &done, true, out)?;
    } else {
        for id in &done.meant.there {
            let document = memory.get(*id).await?;
            let text = shape::in_short(&document.content);
            out.line(format!("would forget {id}, {}: {text}", document.kind))?;
        }
        if !done.meant.before.is_empty() {
            let before = listed(done.meant.before.iter().map(|id| id.0));
            out.line(format!("{before} forgotten before"))?;
        }
        note_parts(&done.parts, out);
    }
    Err(Error::new(
        Exit::NeedsPerson,
        "nothing was forgotten: it cannot be undone",
    )
    .hint("add --yes to do it"))
}

/// Says which documents have something of what is forgotten.
fn note_parts(parts: &[Part], out: &Out) {
    let of: BTreeSet<u64> = parts.iter().map(|part| part.of).collect();
    for of in of {
        let parts = parts.iter().filter(|part| part.of == of);
        let bytes = parts.clone().map(|part| part.bytes).max().unwrap_or(0);
        let (ids, bytes) = (
            parts.map(|part| part.id.to_string()).collect::<Vec<_>>(),
            size::bytes(bytes as u64),
        );
        let (what, has, it) = match ids.len() {
            1 => ("document", "has", "it"),
            _ => ("documents", "have", "them"),
        };
        let ids = ids.join(", ");
        out.note(&format!(
            "{what} {ids} of the same file still {has} a part of document {of}, up to {bytes}: \
             forget {it}, too, if that matters"
        ));
    }
}

/// As in `document 7 was` or `documents 7, 8 were`.
fn listed(ids: impl Iterator<Item = u64>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    match ids.as_slice() {
        [id] => format!("document {id} was"),
        ids => format!("documents {} were", ids.join(", ")),
    }
}

fn say_json(args: &Forget, done: &Done, dry_run: bool, out: &mut Out) -> Result<()> {
    let mut changed = Changed::new(&args.memory, "forgotten", &done.meant.there, done.version);
    changed.before = done.meant.before.iter().map(|id| id.0).collect();
    changed.still_in = &done.parts;
    changed.also_in = &done.twins;
    changed.dry_run = dry_run;
    Ok(out.json(&changed)?)
}
