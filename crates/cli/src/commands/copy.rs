//! `dalsegno copy`: all of a store into another place.
//!
//! | TO | is made as | has its name |
//! |---|---|---|
//! | a folder that is empty or missing | `TO.copying` | when it is whole |
//! | a folder with a part of the same | itself | before |
//! | a database | itself; its runs cannot be claimed | before |
//!
//! Invariant: FROM is only read. Whatever interrupts it, the same command goes on.

use std::fs::File;
use std::path::{Path, PathBuf};

use dalsegno_store::transfer::{self, CopyError, CopyReport, Copying};
use dalsegno_store::{RunQuery, Status};
use serde::Serialize;

use super::step::AGENT;
use crate::address::{self, Place};
use crate::args::Global;
use crate::args::copy::Copy;
use crate::exit::{Error, Exit, Result};
use crate::open::{self, Opened};
use crate::output::style::Style;
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::place::cannot_write;
use crate::progress::Progress;
use crate::run_lock::RunLock;
use crate::{interrupt, runtime};

/// So many streams are named to a person.
const NAMED: usize = 20;

/// `dalsegno.copy/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    from: String,
    to: String,
    live: bool,
    /// Both have the same streams with the same hashes.
    same: bool,
    streams: usize,
    events: u64,
    copied: Copied,
    differences: Vec<Difference>,
    went_on: Vec<String>,
    archives_left: usize,
    #[serde(skip)]
    report: &'a CopyReport,
}

/// What was written this time.
#[derive(Serialize)]
struct Copied {
    streams: u64,
    events: u64,
    pieces: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Difference {
    stream: String,
    expected: String,
    found: String,
}

/// Copies.
///
/// # Errors
/// One of the stores cannot be opened, FROM is in use, or TO has something else in it.
pub fn run(args: &Copy, global: &Global, out: &mut Out) -> Result<Exit> {
    if is_same(&args.from, &args.to) {
        let same = "FROM and TO are the same place";
        return Err(Error::usage(same).hint("name another folder, or another schema"));
    }
    let from = Global {
        store: args.from.clone(),
        ..global.clone()
    };
    let source = open::any_reader(&from)?;
    if !args.live {
        runtime::block_on(check_free(&source, &from))?;
    }
    interrupt::watch();
    let target = Target::open(&args.to)?;
    let progress = Progress::new("copying", out);
    let copied = runtime::block_on(async {
        let mut go_on = |at: Copying| {
            progress.say(|| said(at));
            !interrupt::is_requested()
        };
        let (from, to) = (source.store(), target.opened.store());
        let copied = transfer::copy(&*from, &*to, args.live, &mut go_on).await;
        copied.map_err(|e| not_copied(e, args))
    });
    progress.end();
    let closed = target.opened.close();
    let report = copied?;
    closed?;
    if report.differences.is_empty() {
        target.name_it(&args.to)?;
    }
    let document = document(args, &report);
    match out.is_json() {
        true => out.json(&document)?,
        false => print(&document, out)?,
    }
    end(args, &report)
}

fn said(at: Copying) -> String {
    let all = at.all_events;
    match at.verified {
        0 => format!("{} of {all} events, {}", at.events, size::bytes(at.bytes)),
        verified => format!("{verified} of {all} events compared"),
    }
}

fn is_same(from: &Path, to: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match (Place::of(from), Place::of(to)) {
        (Place::Folder(from), Place::Folder(to)) => real(from) == real(to),
        _ => from == to,
    }
}

/// Fails if somebody works on the store, or has said something to it that is not recorded yet.
async fn check_free(source: &Opened, from: &Global) -> Result<()> {
    let in_use = |by: String| {
        let store = address::named(&from.store);
        Error::failed(format!("{store} is in use: {by}")).hint(
            "stop it first, so that no run goes on in both places; --live copies what is recorded \
             so far",
        )
    };
    if let Some(owner) = open::owner_now(from) {
        return Err(in_use(format!("{} owns it", shown(&owner))));
    }
    let query = RunQuery {
        status: vec![Status::Pending, Status::Running, Status::Checkpointed],
        ..RunQuery::default()
    };
    let store = source.store();
    for info in store.runs(&query).await? {
        let name = shown(info.run.name());
        // A lease in a folder says nothing without its owner, which there is none of.
        if let Some(lease) = info.lease.filter(|_| store.is_shared()) {
            let by = shown(&lease.owner);
            return Err(in_use(format!("{by} holds the run {name}")));
        }
        let is_script = info.agent.as_deref() == Some(AGENT) && !store.is_shared();
        if is_script && let Ok(Some(by)) = RunLock::holder(&from.store, info.run.name()) {
            return Err(in_use(format!("{} works on the run {name}", shown(&by))));
        }
    }
    match source.letters_waiting(from).await? {
        0 => Ok(()),
        letters => {
            let letters = size::count(letters, "letter");
            let store = address::named(&from.store);
            let waiting =
                format!("in the mailbox of {store} is what nobody has taken up: {letters}");
            Err(Error::failed(waiting)
                .hint("take that up with `dalsegno recover --store FROM`, then copy"))
        }
    }
}

/// Where the copy is made.
struct Target {
    opened: Opened,
    /// The folder that gets its name when all is there.
    part: Option<PathBuf>,
}

impl Target {
    fn open(to: &Path) -> Result<Target> {
        let Place::Folder(dir) = Place::of(to) else {
            let opened = open::writer_or_new(to)?;
            return Ok(Target { opened, part: None });
        };
        if dir.join("store").exists() {
            let opened = open::writer_or_new(dir)?;
            return Ok(Target { opened, part: None });
        }
        let is_taken = match std::fs::read_dir(dir) {
            Ok(mut entries) => entries.next().is_some(),
            Err(e) => e.kind() != std::io::ErrorKind::NotFound,
        };
        if is_taken {
            let folder = address::named(dir);
            let taken = format!("there is something in {folder} already, which is no store");
            return Err(Error::failed(taken)
                .hint("name a folder that is empty or missing: nothing is ever overwritten"));
        }
        let mut part = dir.as_os_str().to_owned();
        part.push(".copying");
        let part = PathBuf::from(part);
        let opened = open::writer_or_new(&part)?;
        let part = Some(part);
        Ok(Target { opened, part })
    }

    /// Gives a folder its name. It is durable when this returns.
    fn name_it(&self, to: &Path) -> Result<()> {
        let Some(part) = &self.part else {
            return Ok(());
        };
        let failed = |e: std::io::Error| cannot_write(to, &e);
        // In the place of an empty folder, or of nothing.
        std::fs::rename(part, to).map_err(failed)?;
        let parent = to.parent().filter(|parent| *parent != Path::new(""));
        let folder = File::open(parent.unwrap_or(Path::new("."))).map_err(failed)?;
        folder.sync_all().map_err(failed)
    }
}

fn not_copied(error: CopyError, args: &Copy) -> Error {
    let to = address::named(&args.to);
    match error {
        CopyError::From(e) => match Place::of(&args.from) {
            Place::Folder(dir) => open::not_opened(dir, e),
            Place::Database(_) => e.into(),
        },
        CopyError::To(e) => {
            let error = Error::from(e);
            let what = format!("{to}: {}", error.what);
            Error { what, ..error }
        }
        CopyError::NotACopy { stream, why } => {
            let stream = shown(&stream.to_string());
            Error::failed(format!(
                "{to} has something else in it: {stream}, and {why}"
            ))
            .hint("name an empty place: nothing is ever overwritten")
        }
        _ => Error::new(
            Exit::Interrupted,
            "interrupted: the same command goes on where it was",
        ),
    }
}

fn document<'a>(args: &Copy, report: &'a CopyReport) -> Document<'a> {
    let differences = report.differences.iter().map(|difference| Difference {
        stream: difference.stream.to_string(),
        expected: difference.expected.hash.to_string(),
        found: difference.found.clone(),
    });
    let archives = match Place::of(&args.from) {
        Place::Folder(dir) => {
            std::fs::read_dir(dir.join("archive")).map_or(0, |entries| entries.flatten().count())
        }
        Place::Database(_) => 0,
    };
    Document {
        schema: "dalsegno.copy/1",
        from: address::unescaped(&args.from),
        to: address::unescaped(&args.to),
        live: args.live,
        same: report.differences.is_empty() && report.went_on.is_empty(),
        streams: report.heads.len(),
        events: report.heads.values().map(|head| head.sequence).sum(),
        copied: Copied {
            streams: report.streams,
            events: report.events,
            pieces: report.pieces,
            bytes: report.bytes,
        },
        differences: differences.collect(),
        went_on: report.went_on.iter().map(ToString::to_string).collect(),
        archives_left: archives,
        report,
    }
}

fn print(document: &Document<'_>, out: &mut Out) -> Result<()> {
    let (from, to) = (shown(&document.from), shown(&document.to));
    let copied = &document.copied;
    let streams = size::count(document.streams as u64, "stream");
    let events = size::count(document.events, "event");
    if copied.streams == 0 {
        out.line(format!("nothing was to be copied: {to} has all of {from}"))?;
    } else {
        let what = [
            size::count(copied.streams, "stream"),
            size::count(copied.events, "event"),
            size::count(copied.pieces, "piece"),
        ];
        let bytes = size::bytes(copied.bytes);
        out.line(format!("copied {}, {bytes} to {to}", what.join(", ")))?;
    }
    for difference in document.report.differences.iter().take(NAMED) {
        let word = out.paint(Style::Bad, "differs");
        let stream = shown(&difference.stream.to_string());
        let hash = difference.expected.hash;
        let found = shown(&difference.found);
        out.line(format!("{word}: {stream}: expected {hash}, found {found}"))?;
    }
    match (document.archives_left, document.from.as_str()) {
        (0, _) => {}
        (count, from) => {
            let files = size::count(count as u64, "file");
            let from = shown(from);
            out.line(format!("{files} of removed runs stay in {from}/archive"))?;
        }
    }
    if document.same {
        let same = out.paint(Style::Good, "the same");
        out.line(format!("{same}: {streams}, {events}, every hash"))?;
    } else if document.live && document.differences.is_empty() {
        let count = size::count(document.went_on.len() as u64, "stream");
        out.line(format!(
            "{count} went on meanwhile: copy again without --live when nobody works on {from}"
        ))?;
    }
    Ok(())
}

fn end(args: &Copy, report: &CopyReport) -> Result<Exit> {
    match (report.differences.len(), report.went_on.len()) {
        (0, 0) => Ok(Exit::Done),
        (0, _) if args.live => Ok(Exit::Done),
        (0, count) => {
            let from = address::named(&args.from);
            let streams = size::count(count as u64, "stream");
            Err(
                Error::failed(format!("{streams} of {from} went on while it was copied"))
                    .hint("stop who works on it, and run the same command again: it goes on"),
            )
        }
        (count, _) => {
            let streams = size::count(count as u64, "stream");
            let what = format!("the copy differs in {streams}");
            Err(Error::new(Exit::Damaged, what).hint("see both with `dalsegno verify --heads`"))
        }
    }
}
