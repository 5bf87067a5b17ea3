//! `dalsegno import`: a portable file into the store.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dalsegno_store::portable::{PortableReport, verify_portable};
use dalsegno_store::transfer::{self, Importing};
use dalsegno_store::{ImportReport, StoreError, StreamId};
use serde::Serialize;

use super::export::Stream;
use crate::address::Place;
use crate::args::Global;
use crate::args::import::{FromFile, Import};
use crate::exit::{Error, Exit, Result};
use crate::interrupt::{self, HalfMade};
use crate::open::{self, Opened};
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::place::cannot_write;
use crate::runtime;

/// `dalsegno.import/1`
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    file: String,
    imported: Vec<Stream>,
    present: Vec<String>,
    left_out: Vec<String>,
    events: u64,
}

/// Imports.
///
/// # Errors
/// The file or the store cannot be read, or they contradict each other.
pub fn run(args: &Import, global: &Global, out: &mut Out) -> Result<Exit> {
    let name = args.from.name.as_deref().map(StreamId::run).transpose()?;
    read(&args.from, name.as_ref(), global, out, |_| Ok(()))
}

/// Reads a file, or standard input, into the store, if `check` has nothing against what is in it.
///
/// # Errors
/// The file or the store cannot be read, or they contradict each other.
pub fn read(
    from: &FromFile,
    name: Option<&StreamId>,
    global: &Global,
    out: &mut Out,
    check: impl FnOnce(&PortableReport) -> Result<()>,
) -> Result<Exit> {
    let file = from.file.as_path();
    let spooled = match file == Path::new("-") {
        true => Some(spool().map_err(interrupt::or)?),
        false => None,
    };
    let path = spooled.as_ref().map_or(file, |(path, _)| path);
    // Before a store is made for it.
    let opened = File::open(path).map_err(|e| {
        let path = shown(&path.display().to_string());
        Error::failed(format!("cannot read {path}: {e}"))
    })?;
    let found = verify_portable(BufReader::with_capacity(1 << 20, opened));
    check(&found.map_err(StoreError::from)?)?;
    let store = match from.create {
        true => open::writer_or_new(&global.store)?,
        false => open::writer(global).map_err(|e| no_store(e, global))?,
    };
    let report = match &store {
        Opened::Folder(local) => local.import(path, name).map_err(Error::from),
        #[cfg(feature = "postgres")]
        Opened::Database(database) => into_database(database, path, name),
    };
    let closed = store.close();
    let report = report?;
    closed?;
    say(file, &report, out)?;
    Ok(Exit::Done)
}

#[cfg(feature = "postgres")]
fn into_database(
    database: &open::Database,
    path: &Path,
    rename: Option<&StreamId>,
) -> Result<ImportReport> {
    use dalsegno_log::IoFailure;
    let how = Importing {
        rename,
        ..Importing::default()
    };
    let open = || {
        let file = File::open(path).map_err(|e| IoFailure::new("open", path, e))?;
        Ok(BufReader::with_capacity(1 << 20, file))
    };
    runtime::block_on(async { Ok(transfer::import(database, &how, open).await?) })
}

/// The one thing that a missing store can mean here and nowhere else.
fn no_store(error: Error, global: &Global) -> Error {
    if Place::of(&global.store).is_database() {
        return error;
    }
    match global.store.join("store").exists() || error.exit != Exit::Failed {
        true => error,
        false => error.hint("name the store with --store DIR; --create makes a new one there"),
    }
}

/// Standard input as a file: it is read twice.
fn spool() -> Result<(PathBuf, HalfMade)> {
    interrupt::watch();
    let path = std::env::temp_dir().join(format!("dalsegno-import-{}.tmp", std::process::id()));
    let half_made = HalfMade::new(&path);
    let failed = |e: &io::Error| cannot_write(&path, e);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| failed(&e))?;
    let mut part = vec![0; 1 << 20];
    let mut stdin = io::stdin().lock();
    loop {
        let read = stdin.read(&mut part);
        interrupt::check().map_err(|e| failed(&e))?;
        let read = match read {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Error::failed(format!("cannot read standard input: {e}"))),
        };
        file.write_all(&part[..read]).map_err(|e| failed(&e))?;
    }
    Ok((path, half_made))
}

fn say(file: &Path, report: &ImportReport, out: &mut Out) -> Result<()> {
    let names =
        |streams: &[StreamId]| -> Vec<String> { streams.iter().map(ToString::to_string).collect() };
    if out.is_json() {
        let imported = report.imported.iter().map(|(id, head)| Stream {
            stream: id.to_string(),
            events: head.sequence,
            hash: head.hash.to_string(),
        });
        return Ok(out.json(&Document {
            schema: "dalsegno.import/1",
            file: file.display().to_string(),
            imported: imported.collect(),
            present: names(&report.present),
            left_out: names(&report.left_out),
            events: report.events,
        })?);
    }
    for (stream, head) in &report.imported {
        let stream = shown(&stream.to_string());
        out.line(format!("imported {stream}, up to event {}", head.sequence))?;
    }
    for stream in names(&report.present) {
        out.line(format!("{} was here already", shown(&stream)))?;
    }
    for stream in names(&report.left_out) {
        out.line(format!("{} stays where it came from", shown(&stream)))?;
    }
    Ok(out.line(format!("{} added", size::count(report.events, "event")))?)
}
