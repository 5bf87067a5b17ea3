//! `dalsegno snapshot`: recovery points of the store, and copies of it.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use dalsegno_store::{LocalStore, Options, SnapshotInfo, StoreCopy};
use serde::Serialize;

use crate::args::Global;
use crate::args::snapshot::Snapshot;
use crate::exit::{Error, Exit, Result};
use crate::interrupt::{self, HalfMade};
use crate::open;
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::progress::Progress;

/// `dalsegno.snapshot/1`
#[derive(Default, Serialize)]
struct Document {
    schema: &'static str,
    snapshots: Vec<Row>,
    written: Option<u64>,
    unpinned: Option<u64>,
}

#[derive(Serialize)]
struct Row {
    position: u64,
    role: String,
    pinned: bool,
    bytes: u64,
    file: String,
}

/// `dalsegno.snapshot-copy/1`
#[derive(Serialize)]
struct CopyDocument {
    schema: &'static str,
    dir: String,
    position: u64,
    bytes: u64,
    events: u64,
    sound: bool,
    problems: Vec<String>,
}

/// Writes, pins, unpins or lists recovery points; or copies the store.
///
/// # Errors
/// The store is in use or cannot be read, or something could not be written.
pub fn run(args: &Snapshot, global: &Global, out: &mut Out) -> Result<Exit> {
    let instead = "PostgreSQL has its own: pg_dump, or base backups with pg_basebackup; `dalsegno \
                   copy` makes a folder of it";
    open::folder_only(global, "snapshot", instead)?;
    if let Some(dir) = &args.dir {
        return copy(dir, global, out);
    }
    let mut document = Document {
        schema: "dalsegno.snapshot/1",
        ..Document::default()
    };
    let store = match args.list {
        true => open::folder_reader(global, "snapshot", instead)?,
        false => open::folder_owner(global, "snapshot", instead).map_err(|e| in_use(e, global))?,
    };
    match args.unpin {
        Some(position) => {
            if !store.unpin(position)? {
                let none = Error::failed(format!("nothing is pinned at {position}"));
                return Err(none.hint("`dalsegno snapshot --list` lists the recovery points"));
            }
            document.unpinned = Some(position);
        }
        None if !args.list => document.written = Some(store.snapshot(args.pin)?.position),
        None => {}
    }
    let snapshots = store.snapshots()?;
    document.snapshots = snapshots.iter().map(|info| row(&store, info)).collect();
    match out.is_json() {
        true => out.json(&document)?,
        false => print(args, &document, out)?,
    }
    if !args.list {
        store.close()?;
    }
    Ok(Exit::Done)
}

fn in_use(error: Error, global: &Global) -> Error {
    match open::owner_now(global) {
        Some(_) => error.hint(
            "the program that owns it writes them by itself; `dalsegno snapshot DIR` copies the \
             store beside it",
        ),
        None => error,
    }
}

fn row(store: &LocalStore, info: &SnapshotInfo) -> Row {
    let path = store.dir().join("snapshots").join(&info.file);
    Row {
        position: info.position,
        role: info.role.to_string(),
        pinned: info.pinned,
        bytes: path.metadata().map_or(0, |data| data.len()),
        file: info.file.clone(),
    }
}

fn print(args: &Snapshot, document: &Document, out: &mut Out) -> Result<()> {
    if let Some(position) = document.written {
        let kind = if args.pin {
            "pinned recovery point"
        } else {
            "recovery point"
        };
        out.line(format!("wrote a {kind} at position {position}"))?;
    }
    if let Some(position) = document.unpinned {
        out.line(format!(
            "unpinned the recovery point at position {position}"
        ))?;
    }
    if !args.list {
        return Ok(());
    }
    if document.snapshots.is_empty() {
        return Ok(out.line("no recovery points: opening reads the whole log")?);
    }
    let mut table = Table::new()
        .number("POSITION")
        .text("ROLE")
        .number("SIZE")
        .text("FILE");
    for row in &document.snapshots {
        table.row([
            Cell::new(row.position.to_string()),
            Cell::new(&row.role),
            Cell::new(size::bytes(row.bytes)),
            Cell::new(&row.file),
        ]);
    }
    Ok(out.table(&table)?)
}

/// Copies the store: the folder is whole, or is not there.
fn copy(to: &Path, global: &Global, out: &mut Out) -> Result<Exit> {
    interrupt::watch();
    let was_there = to.exists();
    let half_made = match std::fs::DirBuilder::new().mode(0o700).create(to) {
        Ok(()) => Some(HalfMade::new(to)),
        // Not ours to remove; the copy is refused if there is anything in it.
        Err(_) => None,
    };
    let progress = Progress::new("copying", out);
    let options = Options::new().fs(progress.fs());
    let copied = options.copy(&global.store, to);
    let copied = copied.map_err(|e| not_copied(e, to, was_there, global));
    let copied = copied.map_err(interrupt::or)?;
    let report = options.verify(to).map_err(|e| interrupt::or(e.into()));
    progress.end();
    let report = report?;
    if let Some(half_made) = half_made {
        half_made.keep();
    }
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    match out.is_json() {
        true => out.json(&CopyDocument {
            schema: "dalsegno.snapshot-copy/1",
            dir: copied.dir.display().to_string(),
            position: copied.position,
            bytes: copied.bytes,
            events: report.events,
            sound: problems.is_empty(),
            problems: problems.clone(),
        })?,
        false => print_copy(&copied, &problems, out)?,
    }
    Ok(match problems.is_empty() {
        true => Exit::Done,
        false => Exit::Damaged,
    })
}

fn not_copied(
    error: dalsegno_store::StoreError,
    to: &Path,
    was_there: bool,
    global: &Global,
) -> Error {
    if let dalsegno_store::StoreError::Io(failure) = &error
        && failure.error.kind() == std::io::ErrorKind::DirectoryNotEmpty
    {
        let folder = shown(&to.display().to_string());
        return Error::failed(format!("there is something in {folder} already"))
            .hint("name a folder that is empty or missing: nothing is ever overwritten");
    }
    let error = open::not_opened(&global.store, error);
    match was_there {
        true => error.hint("what was copied until then is still in that folder: remove it"),
        false => error,
    }
}

fn print_copy(copied: &StoreCopy, problems: &[String], out: &mut Out) -> Result<()> {
    let dir = shown(&copied.dir.display().to_string());
    let bytes = size::bytes(copied.bytes);
    out.line(format!(
        "copied {bytes}, up to position {}, to {dir}",
        copied.position
    ))?;
    for problem in problems {
        let word = out.paint(Style::Bad, "damaged, as in the store");
        out.line(format!("{word}: {}", shown(problem)))?;
    }
    if problems.is_empty() {
        let sound = out.paint(Style::Good, "sound");
        out.line(format!("{sound}: open it with --store {dir}"))?;
    }
    Ok(())
}
