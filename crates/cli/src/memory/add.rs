//! `dalsegno memory add`: files, folders and single texts.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use dalsegno_memory::{AsOf, DocId, DocKind, Filter, Memory, NewDocument};
use dalsegno_store::Version;
use serde::Serialize;

use super::chunk::Sizes;
use super::files::{self, Bad, Found};
use super::ingest::{Counts, How, Ingest, said};
use super::model::{self, Model};
use super::opening::{self, IfMissing, interrupted};
use super::shape::VersionShape;
use crate::args::Global;
use crate::args::memory::add::Add;
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::output::text::{quoted, shown};
use crate::output::{Out, size};
use crate::progress::Progress;

/// So often files are looked at again because others change what is known of them.
const TRIES: usize = 20;
/// So many documents are listed at a time.
const PAGE: usize = 1000;
/// What standard input is called.
const STDIN: &str = "stdin";
/// How wide the bar is.
const BAR_COLUMNS: u64 = 24;

/// `dalsegno.memory-add/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    memory: &'a str,
    version: VersionShape,
    /// Of one text.
    id: Option<u64>,
    files: usize,
    added: u64,
    corrected: u64,
    retracted: u64,
    unchanged: u64,
    left_out: u64,
    withheld: Vec<WithheldShape<'a>>,
    bad: &'a [Bad],
    model: Option<&'a str>,
}

/// A file of which something was forgotten, and chunks that may be that.
#[derive(Serialize)]
struct WithheldShape<'a> {
    file: &'a str,
    chunks: u64,
}

/// What was done.
struct Done {
    id: Option<DocId>,
    files: usize,
    counts: Counts,
    /// Chunks by file.
    withheld: BTreeMap<String, u64>,
    bad: Vec<Bad>,
    version: Version,
    model: Option<String>,
}

/// Adds.
///
/// # Errors
/// The memory cannot be written, or something is no text.
pub fn run(args: &Add, global: &Global, out: &mut Out) -> Result<Exit> {
    if args.text.is_none() {
        check_files(args)?;
    }
    interrupt::watch();
    let (found, bad) = files::find(&args.paths, &args.ext, stdin_name(args))?;
    let by = &args.who.by;
    let done = opening::write(global, &args.memory, IfMissing::Make, by, async |memory| {
        let model = model::to_write(&memory, &args.model).await?;
        let mut done = match &args.text {
            Some(text) => one(args, text, &memory, model.as_ref()).await?,
            None => all(args, &found, bad, &memory, model.as_ref(), out).await?,
        };
        done.version = memory.version().await?;
        done.model = model.map(|model| model.name().to_owned());
        Ok(done)
    });
    let done = done.map_err(interrupted)?;
    say(args, &done, out)?;
    match (done.bad.len() as u64, args.skip_bad) {
        (0, _) | (_, true) => Ok(Exit::Done),
        (bad, false) => Err(Error::failed(format!(
            "left out {}: the rest is added",
            size::count(bad, "file")
        ))
        .hint("--skip-bad leaves out what is no text without failing")),
    }
}

/// What is said about each chunk by its file must not be said by hand.
fn check_files(args: &Add) -> Result<()> {
    let from_stdin = args.paths.iter().any(|path| path == Path::new("-"));
    if args.about.title.is_some() {
        return Err(Error::usage("the titles of chunks are their headings")
            .hint("leave out --title, or add one text with --text"));
    }
    match (from_stdin, args.paths.len(), args.about.source.as_slice()) {
        (_, _, []) => Ok(()),
        (true, 1, [_]) => Ok(()),
        _ => Err(Error::usage("the sources of chunks are their files")
            .hint("--source names a text (--text), or standard input (-) alone")),
    }
}

fn stdin_name(args: &Add) -> &str {
    args.about.source.first().map_or(STDIN, String::as_str)
}

async fn one(args: &Add, text: &str, memory: &Memory, model: Option<&Model>) -> Result<Done> {
    let about = &args.about;
    let kind = about.kind.map_or(DocKind::Fact, |kind| kind.kind());
    let mut new = said(NewDocument::new(kind, text), about);
    for source in &about.source {
        new = new.source(source);
    }
    if let Some(title) = &about.title {
        new = new.title(title);
    }
    if let Some(key) = &args.key {
        new = new.key(key);
    }
    if let Some(model) = model {
        new = model.apply(new, about.title.as_deref(), text)?;
    }
    let before = memory.version().await?;
    let id = memory.add(new).await?;
    // Under a key it may have been there.
    let is_new = u64::from(id.0 > before.sequence);
    Ok(Done {
        id: Some(id),
        files: 0,
        counts: Counts {
            added: is_new,
            unchanged: 1 - is_new,
            ..Counts::default()
        },
        withheld: BTreeMap::new(),
        bad: Vec::new(),
        version: before,
        model: None,
    })
}

async fn all(
    args: &Add,
    found: &[Found],
    mut bad: Vec<Bad>,
    memory: &Memory,
    model: Option<&Model>,
    out: &Out,
) -> Result<Done> {
    let sizes = Sizes {
        chunk: args.chunk_bytes as usize,
        overlap: args.overlap_bytes as usize,
    };
    let how = How {
        about: &args.about,
        sizes,
        anew: args.anew,
    };
    let progress = Progress::new("adding", out);
    let mut ingest = Ingest::new(memory, model, how);
    let not_read = bad.len();
    let mut result = bring_in(found, &mut ingest, &mut bad, &progress).await;
    if result.is_ok() && args.prune {
        result = prune(args, found, memory, &mut ingest).await;
    }
    progress.end();
    result?;
    Ok(Done {
        id: None,
        files: found.len() - (bad.len() - not_read),
        counts: ingest.counts,
        withheld: ingest.withheld,
        bad,
        version: Version::START,
        model: None,
    })
}

/// Brings files in, and those that others changed meanwhile once more.
async fn bring_in(
    found: &[Found],
    ingest: &mut Ingest<'_>,
    bad: &mut Vec<Bad>,
    progress: &Progress,
) -> Result<()> {
    let mut files: Vec<&Found> = found.iter().collect();
    for _ in 0..TRIES {
        let all_bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let mut done_bytes = 0;
        for (at, file) in files.iter().enumerate() {
            let text = match files::read(file) {
                Ok(text) => text,
                Err(why) => {
                    let file = file.name.clone();
                    bad.push(Bad { file, why });
                    continue;
                }
            };
            let show = |chunk: usize, of: usize, counts: &Counts| {
                progress.say(|| {
                    let here = file.bytes * chunk as u64 / of.max(1) as u64;
                    let chunks = size::count(counts.chunks(), "chunk");
                    let bar = bar(done_bytes + here, all_bytes);
                    format!("{bar} {} of {} files, {chunks}", at, files.len())
                });
            };
            ingest.file(file.origin(), &text, show).await?;
            done_bytes += file.bytes;
        }
        ingest.flush().await?;
        let again = ingest.take_again();
        files.retain(|file| again.contains(&file.name));
        if files.is_empty() {
            return Ok(());
        }
    }
    let names = files.iter().map(|file| shown(&file.name));
    let names = names.collect::<Vec<_>>().join(", ");
    Err(Error::failed(format!("others change {names} all the time")).hint("try again later"))
}

/// As in `[######------]  50%`.
fn bar(done: u64, all: u64) -> String {
    let share = |of: u64| done.min(all) * of / all.max(1);
    let full = share(BAR_COLUMNS) as usize;
    let empty = BAR_COLUMNS as usize - full;
    format!(
        "[{}{}] {:>3}%",
        "#".repeat(full),
        "-".repeat(empty),
        share(100)
    )
}

/// Retracts the chunks of files that are gone from the folders that were named.
async fn prune(
    args: &Add,
    found: &[Found],
    memory: &Memory,
    ingest: &mut Ingest<'_>,
) -> Result<()> {
    let seen: HashSet<&str> = found.iter().map(|file| file.name.as_str()).collect();
    let folders = args.paths.iter().filter(|path| path.is_dir());
    let folders: Vec<String> = folders.map(|path| files::name_of(path)).collect();
    let is_in = |name: &str| {
        folders.iter().any(|folder| match folder.as_str() {
            "." => !Path::new(name).is_absolute(),
            folder => Path::new(name).starts_with(folder),
        })
    };
    let mut gone = BTreeSet::new();
    let mut after = None;
    loop {
        let page = memory
            .list(&Filter::default(), AsOf::Now, after, PAGE)
            .await?;
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.id);
        for document in page {
            let source = document.content.sources.first();
            if let Some((name, _)) = source.and_then(|source| source.rsplit_once('#'))
                && !seen.contains(name)
                && is_in(name)
                && files::is_gone(name)
            {
                gone.insert(name.to_owned());
            }
        }
    }
    for name in gone {
        ingest.gone(&name).await?;
    }
    Ok(())
}

fn say(args: &Add, done: &Done, out: &mut Out) -> Result<()> {
    let counts = &done.counts;
    if out.is_json() {
        let withheld = done.withheld.iter();
        let withheld = withheld.map(|(file, chunks)| WithheldShape {
            file,
            chunks: *chunks,
        });
        return Ok(out.json(&Document {
            schema: "dalsegno.memory-add/1",
            memory: &args.memory,
            version: done.version.into(),
            id: done.id.map(|id| id.0),
            files: done.files,
            added: counts.added,
            corrected: counts.corrected,
            retracted: counts.retracted,
            unchanged: counts.unchanged,
            left_out: counts.left_out,
            withheld: withheld.collect(),
            bad: &done.bad,
            model: done.model.as_deref(),
        })?);
    }
    let (memory, version) = (shown(&args.memory), done.version.sequence);
    if let Some(id) = done.id {
        let what = match counts.added {
            0 => "was there",
            _ => "added",
        };
        return Ok(out.line(format!(
            "document {id} {what}; {memory} is at version {version}"
        ))?);
    }
    for bad in &done.bad {
        out.line(format!("left out {}: it {}", shown(&bad.file), bad.why))?;
    }
    for (file, chunks) in &done.withheld {
        let chunks = size::count(*chunks, "chunk");
        let (name, again) = (shown(file), add_again(args, file));
        out.note(&format!(
            "{name}: {chunks} left out: something of this file was forgotten, and may be among them; \
             once the file no longer has it: {again} --anew"
        ));
    }
    let mut words = vec![format!("{} added", size::count(counts.added, "chunk"))];
    for (count, what) in [
        (counts.corrected, "corrected"),
        (counts.retracted, "retracted"),
        (counts.unchanged, "as before"),
        (counts.left_out, "left out as retracted or forgotten"),
    ] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    let files = size::count(done.files as u64, "file");
    let words = words.join(", ");
    Ok(out.line(format!(
        "{words}, of {files}; {memory} is at version {version}"
    ))?)
}

/// How one of the files is added.
fn add_again(args: &Add, name: &str) -> String {
    let (memory, quoted_name) = (quoted(&args.memory), quoted(name));
    let from_stdin = args.paths.iter().any(|path| path == Path::new("-"));
    match from_stdin && name == stdin_name(args) {
        true if name == STDIN => format!("dalsegno memory add {memory} -"),
        true => format!("dalsegno memory add {memory} - --source {quoted_name}"),
        false => format!("dalsegno memory add {memory} {quoted_name}"),
    }
}
