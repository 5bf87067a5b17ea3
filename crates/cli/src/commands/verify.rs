//! `dalsegno verify`: reads everything, and names what is not as it was written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use dalsegno_store::portable::{PortableError, verify_portable};
use dalsegno_store::{Hash, Options, Problem, StoreError, StoreReport};
use serde::Serialize;

#[cfg(feature = "postgres")]
use crate::address::Place;
use crate::args::Global;
use crate::args::verify::Verify;
use crate::exit::{Error, Exit, Result};
use crate::open;
use crate::output::style::Style;
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::progress::Progress;

#[cfg(feature = "postgres")]
mod database;

/// `dalsegno.verify/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    store: String,
    sound: bool,
    position: u64,
    segments: u64,
    streams: u64,
    events: u64,
    pieces: u64,
    snapshots: u64,
    indexes: u64,
    letters: u64,
    archives: u64,
    torn: Option<Torn<'a>>,
    losses: Vec<Row<'a>>,
    problems: Vec<Row<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heads: Option<BTreeMap<&'a str, String>>,
}

#[derive(Serialize)]
struct Torn<'a> {
    segment: u64,
    offset: u64,
    bytes: u64,
    reason: &'a str,
}

/// A place that is not as it was written.
#[derive(Serialize)]
pub struct Row<'a> {
    place: &'a str,
    expected: &'a str,
    found: &'a str,
}

/// `dalsegno.verify-file/1`
#[derive(Serialize)]
struct FileDocument {
    schema: &'static str,
    file: String,
    sound: bool,
    problem: Option<String>,
    streams: Vec<super::export::Stream>,
    events: u64,
    pieces: u64,
    bytes: u64,
    hash: Option<String>,
}

/// Verifies the store, or a portable file.
///
/// # Errors
/// It could not be read.
pub fn run(args: &Verify, global: &Global, out: &mut Out) -> Result<Exit> {
    match &args.file {
        Some(file) => verify_file(file, args.heads, out),
        None => verify_store(args, global, out),
    }
}

fn verify_store(args: &Verify, global: &Global, out: &mut Out) -> Result<Exit> {
    #[cfg(feature = "postgres")]
    if Place::of(&global.store).is_database() {
        return database::verify(args, global, out);
    }
    let report = report(global, out)?;
    match out.is_json() {
        true => out.json(&document(&report, args.heads))?,
        false => print(&report, args.heads, out)?,
    }
    Ok(match report.is_sound() {
        true => Exit::Done,
        false => Exit::Damaged,
    })
}

/// Verifies the store, and shows on a terminal that it goes on.
///
/// # Errors
/// It could not be read.
pub fn report(global: &Global, out: &Out) -> Result<StoreReport> {
    let progress = Progress::new("verifying", out);
    let report = Options::new().fs(progress.fs()).verify(&global.store);
    progress.end();
    report.map_err(|e| open::not_opened(&global.store, e))
}

fn document(report: &StoreReport, heads: bool) -> Document<'_> {
    Document {
        schema: "dalsegno.verify/1",
        store: report.dir.display().to_string(),
        sound: report.is_sound(),
        position: report.position,
        segments: report.segments,
        streams: report.streams,
        events: report.events,
        pieces: report.pieces,
        snapshots: report.snapshots,
        indexes: report.indexes,
        letters: report.letters,
        archives: report.archives,
        torn: report.torn.as_ref().map(|torn| Torn {
            segment: torn.segment,
            offset: torn.offset,
            bytes: torn.bytes,
            reason: &torn.reason,
        }),
        losses: rows(&report.losses),
        problems: rows(&report.problems),
        heads: heads.then(|| {
            let heads = report.heads.iter();
            heads.map(|(id, hash)| (&**id, hash.to_string())).collect()
        }),
    }
}

/// For a document.
pub fn rows(problems: &[Problem]) -> Vec<Row<'_>> {
    let rows = problems.iter().map(|problem| Row {
        place: &problem.place,
        expected: &problem.expected,
        found: &problem.found,
    });
    rows.collect()
}

/// Where each stream ends, if that is asked for, and what is wrong.
fn print_found(
    heads: Option<&BTreeMap<String, Hash>>,
    problems: &[Problem],
    out: &mut Out,
) -> Result<()> {
    for (stream, hash) in heads.into_iter().flatten() {
        out.line(format!("{hash}  {}", shown(stream)))?;
    }
    for problem in problems {
        let word = out.paint(Style::Bad, "damaged");
        out.line(format!("{word}: {}", shown(&problem.to_string())))?;
    }
    Ok(())
}

fn print(report: &StoreReport, heads: bool, out: &mut Out) -> Result<()> {
    print_found(heads.then_some(&report.heads), &report.problems, out)?;
    for loss in &report.losses {
        let word = out.paint(Style::Warn, "lost in a repair");
        out.line(format!("{word}: {}", shown(&loss.to_string())))?;
    }
    if let Some(torn) = &report.torn {
        let text = format!(
            "torn: {} in segment {} from byte {} on were never acknowledged; the next opening cuts \
             them off",
            size::bytes(torn.bytes),
            torn.segment,
            torn.offset
        );
        out.line(text)?;
    }
    let counts = [
        (report.segments, "segment"),
        (report.streams, "stream"),
        (report.events, "event"),
        (report.pieces, "piece"),
        (report.snapshots, "snapshot"),
        (report.archives, "archive"),
        (report.letters, "letter"),
    ];
    let counts = counts.map(|(number, what)| size::count(number, what));
    let indexes = match report.indexes {
        1 => "1 index".to_owned(),
        number => format!("{number} indexes"),
    };
    out.line(format!("read {}, {indexes}", counts.join(", ")))?;
    match report.problems.len() as u64 {
        0 => {
            let sound = out.paint(Style::Good, "sound");
            let but = match report.losses.is_empty() {
                true => "",
                false => ", but for what a repair has given up",
            };
            out.line(format!("{sound}: every byte is as it was written{but}"))?;
        }
        number => {
            let damaged = out.paint(Style::Bad, "damaged");
            let number = size::count(number, "place");
            out.line(format!(
                "{damaged} in {number}: restore a copy, or see what a repair would lose with \
                 `dalsegno repair --dry-run`"
            ))?;
        }
    }
    Ok(())
}

fn verify_file(path: &Path, heads: bool, out: &mut Out) -> Result<Exit> {
    let name = shown(&path.display().to_string());
    let file = File::open(path).map_err(|e| Error::failed(format!("cannot read {name}: {e}")))?;
    let verified = verify_portable(BufReader::with_capacity(1 << 20, file));
    let (report, problem) = match verified {
        Ok(report) => (Some(report), None),
        Err(e @ PortableError::Damaged { .. }) => (None, Some(e.to_string())),
        Err(e) => return Err(StoreError::from(e).into()),
    };
    let exit = match problem {
        None => Exit::Done,
        Some(_) => Exit::Damaged,
    };
    let streams = report.as_ref().map_or(Vec::new(), super::export::streams);
    if out.is_json() {
        let of = |pick: fn(&dalsegno_store::portable::PortableReport) -> u64| {
            report.as_ref().map_or(0, pick)
        };
        out.json(&FileDocument {
            schema: "dalsegno.verify-file/1",
            file: path.display().to_string(),
            sound: problem.is_none(),
            problem,
            streams,
            events: of(|report| report.events),
            pieces: of(|report| report.pieces),
            bytes: of(|report| report.bytes),
            hash: report.map(|report| report.hash.to_string()),
        })?;
        return Ok(exit);
    }
    match (&report, &problem) {
        (_, Some(problem)) => {
            let word = out.paint(Style::Bad, "damaged");
            out.line(format!("{word}: {}", shown(problem)))?;
        }
        (Some(report), None) => {
            if heads {
                for stream in &streams {
                    out.line(format!("{}  {}", stream.hash, shown(&stream.stream)))?;
                }
            }
            let sound = out.paint(Style::Good, "sound");
            let counts = super::export::counts(report);
            out.line(format!("{sound}: {name} has {counts}"))?;
        }
        (None, None) => {}
    }
    Ok(exit)
}
