//! `dalsegno export`: runs, or everything, as one portable file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use dalsegno_store::portable::{PortableError, PortableReport};
use dalsegno_store::transfer;
use dalsegno_store::{Export as What, Store, StoreError};
use serde::Serialize;

use crate::args::Global;
use crate::args::export::Export;
use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;
use crate::output::{Out, size, time};
use crate::place::{Placing, cannot_write};
use crate::{find, interrupt, open, runtime};

/// `dalsegno.export/1`
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    file: String,
    streams: Vec<Stream>,
    events: u64,
    pieces: u64,
    bytes: u64,
    hash: String,
}

/// A stream, and the hash of its history.
#[derive(Serialize)]
pub struct Stream {
    /// As in `run/order-42`.
    pub stream: String,
    /// Its last event.
    pub events: u64,
    /// The hash of all up to it.
    pub hash: String,
}

/// Exports.
///
/// # Errors
/// There is no such run, the file is there, or it cannot be written.
pub fn run(args: &Export, global: &Global, out: &mut Out) -> Result<Exit> {
    if args.all != args.runs().is_empty() {
        let wrong = match args.all {
            true => Error::usage("runs are named, and --all as well"),
            false => Error::usage("no run is named"),
        };
        return Err(wrong.hint("name runs and then the file, or --all and the file"));
    }
    let named = |store: &dyn Store| match args.all {
        true => Ok(What::Store),
        false => named(store, args.runs()),
    };
    write(args.file(), args.force, global, out, named)
}

/// Writes what `what` finds in the store into a file, or to standard output.
///
/// # Errors
/// It is not there, the file is, or it cannot be written.
pub fn write(
    to: &Path,
    force: bool,
    global: &Global,
    out: &mut Out,
    what: impl FnOnce(&dyn Store) -> Result<What>,
) -> Result<Exit> {
    let to_stdout = to == Path::new("-");
    if to_stdout && out.is_json() {
        let both = Error::usage("standard output cannot have the file and a document");
        return Err(both.hint("leave out --json, or name a file"));
    }
    if to_stdout && io::stdout().is_terminal() {
        let terminal = Error::usage("a portable file is not for a terminal");
        return Err(terminal.hint("send it into a file or a pipe"));
    }
    let store = open::reader(global)?;
    let what = what(&*store)?;
    if to_stdout {
        let exported = export(&*store, &what, ToOut(out));
        out.flush()?;
        return match (exported, out.is_gone()) {
            (_, true) => Err(Error::failed(
                "the reader went away before the end of the file",
            )),
            (exported, false) => Ok(exported?.map(|_| Exit::Done)?),
        };
    }
    let exported = to_file(&*store, &what, to, force);
    let report = exported.map_err(interrupt::or)?;
    match out.is_json() {
        true => out.json(&Document {
            schema: "dalsegno.export/1",
            file: to.display().to_string(),
            streams: streams(&report),
            events: report.events,
            pieces: report.pieces,
            bytes: report.bytes,
            hash: report.hash.to_string(),
        })?,
        false => {
            let file = shown(&to.display().to_string());
            out.line(format!("wrote {} to {file}", counts(&report)))?;
        }
    }
    Ok(Exit::Done)
}

fn named(store: &dyn Store, runs: &[OsString]) -> Result<What> {
    runtime::block_on(async {
        let mut streams = BTreeSet::new();
        for run in runs {
            // A name in a store is text.
            let run = run.to_string_lossy();
            streams.insert(find::run(store, &run).await?.0);
        }
        Ok(What::Streams(streams))
    })
}

/// Exports; what went wrong with the store or the file is in the inner answer.
fn export(
    store: &dyn Store,
    what: &What,
    to: impl Write,
) -> Result<Result<PortableReport, StoreError>> {
    runtime::block_on(async { Ok(transfer::export(store, what, time::now_us(), to).await) })
}

/// Writes streams into a file that is whole under its name, or not there.
///
/// # Errors
/// A stream is not there or damaged, the file is there, or it cannot be written.
pub fn to_file(store: &dyn Store, what: &What, path: &Path, force: bool) -> Result<PortableReport> {
    let mut file = BufWriter::with_capacity(1 << 20, Placing::begin(path, force)?);
    let report = match export(store, what, &mut file)? {
        Err(StoreError::Portable(PortableError::Io { error, .. })) => {
            return Err(cannot_write(path, &error));
        }
        other => other?,
    };
    let file = file.into_inner();
    let file = file.map_err(|e| cannot_write(path, e.error()))?;
    file.finish()?;
    Ok(report)
}

/// The streams of a file.
pub fn streams(report: &PortableReport) -> Vec<Stream> {
    let streams = report.streams.iter().map(|(id, head)| Stream {
        stream: id.to_string(),
        events: head.sequence,
        hash: head.hash.to_string(),
    });
    streams.collect()
}

/// What is in a file, in words.
pub fn counts(report: &PortableReport) -> String {
    let streams = size::count(report.streams.len() as u64, "stream");
    let events = size::count(report.events, "event");
    let pieces = size::count(report.pieces, "piece");
    let bytes = size::bytes(report.bytes);
    format!("{streams}, {events}, {pieces}, {bytes}")
}

/// Standard output. A reader that goes away has not got all of it, which here is an error.
struct ToOut<'a>(&'a mut Out);

impl Write for ToOut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.raw(bytes)?;
        match self.0.is_gone() {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
