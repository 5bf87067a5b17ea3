//! `dalsegno memory ls`, `at` and `get`: memories and their documents, at any version.

use dalsegno_memory::{AsOf, DocId, Document, Filter, Memory};
use dalsegno_store::{Store, StreamId, StreamKind, Version};
use serde::Serialize;

use super::opening;
use super::shape::{self, DocumentShape, VersionShape};
use super::when::{self, When};
use crate::args::Global;
use crate::args::memory::look::{At, Get, Ls};
use crate::exit::{Error, Exit, Result};
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::text::shown;
use crate::output::{Out, time};
use crate::{open, runtime};

/// `dalsegno.memory-ls/1`
#[derive(Serialize)]
struct MemoriesDocument {
    schema: &'static str,
    memories: Vec<MemoryShape>,
}

#[derive(Serialize)]
struct MemoryShape {
    memory: String,
    version: VersionShape,
    documents: u64,
    updated_us: u64,
    model: Option<String>,
    dimensions: Option<usize>,
}

/// `dalsegno.memory-documents/1`
#[derive(Serialize)]
struct ListDocument<'a> {
    schema: &'static str,
    memory: &'a str,
    version: VersionShape,
    /// At which time they held, if that was asked.
    valid_at_us: Option<i64>,
    documents: Vec<DocumentShape<'a>>,
    more: bool,
}

/// `dalsegno.memory-get/1`
#[derive(Serialize)]
struct GetDocument<'a> {
    schema: &'static str,
    memory: &'a str,
    #[serde(flatten)]
    document: DocumentShape<'a>,
}

/// Lists memories, or the documents of one.
///
/// # Errors
/// There is no such memory or version, or the store cannot be read.
pub fn ls(args: &Ls, global: &Global, out: &mut Out) -> Result<Exit> {
    let Some(name) = &args.memory else {
        let about_documents = args.wanted.filter() != Filter::default()
            || args.as_of.as_of.is_some()
            || args.after.is_some();
        return match about_documents {
            true => Err(Error::usage("no memory is named whose documents to list")
                .hint("`dalsegno memory ls` lists the memories")),
            false => memories(global, out),
        };
    };
    opening::read(global, name, async |memory| {
        let version = when::find(args.as_of.as_of, &memory).await?;
        let filter = args.wanted.filter();
        let after = args.after.map(DocId);
        let listed = Listed::read(&memory, &filter, version, after, args.limit).await?;
        listed.say(name, &filter, out)
    })
}

/// Lists what a memory held.
///
/// # Errors
/// As [`ls`].
pub fn at(args: &At, global: &Global, out: &mut Out) -> Result<Exit> {
    opening::read(global, &args.memory, async |memory| {
        let version = args.when.find(&memory).await?;
        let mut filter = args.wanted.filter();
        let then_us = match args.when {
            When::Time(time) => time.last_us(),
            When::Version(_) => recorded_us(&memory, version).await?,
        };
        filter.valid_at_us = filter.valid_at_us.or(i64::try_from(then_us).ok());
        let listed = Listed::read(&memory, &filter, version, None, args.limit).await?;
        listed.say(&args.memory, &filter, out)
    })
}

/// When the last event of a version was recorded.
async fn recorded_us(memory: &Memory, version: Version) -> Result<u64> {
    let before = AsOf::Sequence(version.sequence.saturating_sub(1));
    let changes = memory.changes(before, AsOf::Version(version)).await?;
    Ok(changes.last().map_or(0, |change| change.at_us))
}

/// Shows a document.
///
/// # Errors
/// There is no such document, it is forgotten, or the store cannot be read.
pub fn get(args: &Get, global: &Global, out: &mut Out) -> Result<Exit> {
    opening::read(global, &args.memory, async |memory| {
        let version = when::find(args.as_of.as_of, &memory).await?;
        let mut document = memory.get(DocId(args.id)).await?;
        if document.id.0 > version.sequence {
            let (id, sequence) = (args.id, version.sequence);
            let what = format!("version {sequence} has no document {id}");
            return Err(Error::failed(what).hint("it was added later"));
        }
        let then = |ended: &dalsegno_memory::Ended| ended.sequence <= version.sequence;
        document.ended = document.ended.filter(then);
        match out.is_json() {
            true => out.json(&GetDocument {
                schema: "dalsegno.memory-get/1",
                memory: &args.memory,
                document: (&document).into(),
            })?,
            false => shape::print(&document, out)?,
        }
        Ok(Exit::Done)
    })
}

/// Documents of a version.
struct Listed {
    version: Version,
    documents: Vec<Document>,
    more: bool,
}

impl Listed {
    async fn read(
        memory: &Memory,
        filter: &Filter,
        version: Version,
        after: Option<DocId>,
        limit: usize,
    ) -> Result<Listed> {
        let limit = match limit {
            0 => usize::MAX,
            limit => limit,
        };
        let as_of = AsOf::Version(version);
        let ask = limit.saturating_add(1);
        let mut documents = memory.list(filter, as_of, after, ask).await?;
        let more = documents.len() > limit;
        documents.truncate(limit);
        // As it was then: what ended later had not ended.
        for document in &mut documents {
            let ended = document.ended.take();
            document.ended = ended.filter(|ended| ended.sequence <= version.sequence);
        }
        Ok(Listed {
            version,
            documents,
            more,
        })
    }

    fn say(&self, name: &str, filter: &Filter, out: &mut Out) -> Result<Exit> {
        if out.is_json() {
            out.json(&ListDocument {
                schema: "dalsegno.memory-documents/1",
                memory: name,
                version: self.version.into(),
                valid_at_us: filter.valid_at_us,
                documents: self.documents.iter().map(DocumentShape::from).collect(),
                more: self.more,
            })?;
            return Ok(Exit::Done);
        }
        let version = self.version.sequence;
        if self.documents.is_empty() {
            out.line(format!(
                "no documents in {} at version {version}",
                shown(name)
            ))?;
            return Ok(Exit::Done);
        }
        out.table(&table(&self.documents))?;
        if self.more {
            let last = self.documents.last().map_or(0, |document| document.id.0);
            out.line(format!(
                "… and more: --limit 0 shows all, --after {last} what follows"
            ))?;
        }
        Ok(Exit::Done)
    }
}

fn table(documents: &[Document]) -> Table {
    let now_us = time::now_us();
    let columns = Table::new().number("ID").text("KIND").number("AGE");
    let mut table = columns.text("SOURCE").flexible().text("TEXT").flexible();
    for document in documents {
        table.row([
            Cell::new(document.id.to_string()),
            Cell::new(document.kind.word()),
            Cell::new(time::age(document.recorded_us, now_us)),
            Cell::styled(Style::Dim, shape::source(&document.content)),
            // Escaped already.
            Cell::new(shape::in_short(&document.content)),
        ]);
    }
    table
}

fn memories(global: &Global, out: &mut Out) -> Result<Exit> {
    let store = open::reader(global)?;
    let found = runtime::block_on(async {
        let mut found = Vec::new();
        for (id, head) in store.streams(StreamKind::Memory, None, 0).await? {
            found.push(about(&store, &id, head).await?);
        }
        Ok(found)
    })?;
    if out.is_json() {
        out.json(&MemoriesDocument {
            schema: "dalsegno.memory-ls/1",
            memories: found,
        })?;
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        out.line("no memories: `dalsegno memory add` makes one")?;
        return Ok(Exit::Done);
    }
    let now_us = time::now_us();
    let columns = Table::new().text("MEMORY").number("DOCUMENTS");
    let columns = columns.number("VERSION").number("CHANGED");
    let mut table = columns.text("MODEL").flexible();
    for memory in &found {
        table.row([
            Cell::new(&memory.memory),
            Cell::new(memory.documents.to_string()),
            Cell::new(memory.version.sequence.to_string()),
            Cell::new(time::age(memory.updated_us, now_us)),
            Cell::new(memory.model.as_deref().unwrap_or("-")),
        ]);
    }
    out.table(&table)?;
    Ok(Exit::Done)
}

async fn about(
    store: &std::sync::Arc<dyn Store>,
    id: &StreamId,
    head: Version,
) -> Result<MemoryShape> {
    let memory = Memory::open(std::sync::Arc::clone(store), id.name()).await?;
    let last = store.events(id, head.sequence, 1).await?;
    Ok(MemoryShape {
        memory: id.name().to_owned(),
        version: head.into(),
        documents: memory.count(AsOf::Version(head)).await?,
        updated_us: last.first().map_or(0, |event| event.time_us),
        model: memory.model().await?,
        dimensions: memory.dimension().await?,
    })
}
