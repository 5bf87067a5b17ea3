//! `dalsegno gc`: old runs that have ended go, and their space with them.

use std::path::Path;

use dalsegno_store::{LocalStore, Retention, RunInfo, RunQuery, Status, Store, StreamId};
use serde::Serialize;

use crate::args::Global;
use crate::args::gc::Gc;
use crate::exit::{Exit, Result};
use crate::open::{self, Opened};
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::text::shown;
use crate::output::{Out, size, time};
use crate::{interrupt, runtime};

#[cfg(feature = "postgres")]
mod database;

/// So many runs are named to a person.
const NAMED: usize = 20;

/// `dalsegno.gc/1`
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    dry_run: bool,
    runs: Vec<Run>,
    left: Vec<Left>,
    archives: Vec<String>,
    records: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Run {
    run: String,
    status: String,
    ended_us: u64,
}

#[derive(Serialize)]
struct Left {
    run: String,
    why: String,
}

/// Removes old runs, or says which would go.
///
/// # Errors
/// The store is in use or cannot be read, or something could not be written.
pub fn run(args: &Gc, global: &Global, out: &mut Out) -> Result<Exit> {
    let opened = match args.dry_run {
        true => open::any_reader(global)?,
        false => open::writer(global)?,
    };
    let ended = ended(&*opened.store())?;
    let retention = Retention {
        ended_before_us: cutoff(args, &ended),
        archive: false,
    };
    let of = |id: &StreamId| {
        let info = ended.iter().find(|info| info.run == *id);
        Run {
            run: id.name().to_owned(),
            status: info.map_or(String::new(), |info| info.status.to_string()),
            ended_us: info.map_or(0, |info| info.updated_us),
        }
    };
    let document = match (&opened, args.dry_run) {
        #[cfg(feature = "postgres")]
        (Opened::Database(database), dry_run) => {
            let old = ended.iter();
            let old: Vec<_> = old
                .filter(|info| info.updated_us < retention.ended_before_us)
                .collect();
            match dry_run {
                true => database::would_retire(&old, of),
                false => database::retire(args, database, &retention, &old, of)?,
            }
        }
        (Opened::Folder(store), true) => {
            let would = store.would_retire(&retention)?;
            Document {
                schema: "dalsegno.gc/1",
                dry_run: true,
                runs: would.runs.iter().map(of).collect(),
                left: Vec::new(),
                archives: Vec::new(),
                records: would.records,
                bytes: would.bytes,
            }
        }
        (Opened::Folder(store), false) => retire(args, store, &retention, of)?,
    };
    match out.is_json() {
        true => out.json(&document)?,
        false => print(&document, out)?,
    }
    Ok(match document.left.is_empty() {
        true => Exit::Done,
        false => Exit::Damaged,
    })
}

fn retire(
    args: &Gc,
    store: &LocalStore,
    retention: &Retention,
    of: impl Fn(&StreamId) -> Run,
) -> Result<Document> {
    let retired = match &args.archive {
        Some(dir) => {
            let retired = archived(store, retention, dir);
            retired.map_err(|e| interrupt::or(e.into()))?
        }
        None => store.retire(retention)?,
    };
    store.close()?;
    let left = retired.left.iter().map(|(run, why)| Left {
        run: run.name().to_owned(),
        why: why.clone(),
    });
    let archives = retired.archives.iter();
    Ok(Document {
        schema: "dalsegno.gc/1",
        dry_run: false,
        runs: retired.runs.iter().map(of).collect(),
        left: left.collect(),
        archives: archives.map(|path| path.display().to_string()).collect(),
        records: retired.records_removed,
        bytes: retired.bytes_before.saturating_sub(retired.bytes_after),
    })
}

/// A signal in the middle must leave no half of an archive: it is noted, and what is not whole is
/// removed before the command ends.
fn archived(
    store: &LocalStore,
    retention: &Retention,
    dir: &Path,
) -> Result<dalsegno_store::Retired, dalsegno_store::StoreError> {
    interrupt::watch();
    let half_made = interrupt::HalfMade::in_folder(dir, ".dalsegno.tmp");
    let retired = store.retire_into(retention, dir);
    drop(half_made);
    retired
}

fn ended(store: &dyn Store) -> Result<Vec<RunInfo>> {
    let query = RunQuery {
        status: vec![Status::Completed, Status::Failed, Status::Cancelled],
        ..RunQuery::default()
    };
    runtime::block_on(async { Ok(store.runs(&query).await?) })
}

/// Runs that ended before this go.
fn cutoff(args: &Gc, ended: &[RunInfo]) -> u64 {
    let by_age = args.older_than.map_or(u64::MAX, |age| {
        time::now_us().saturating_sub(age.as_micros() as u64)
    });
    let mut times: Vec<_> = ended.iter().map(|info| info.updated_us).collect();
    times.sort_unstable_by_key(|time| std::cmp::Reverse(*time));
    let by_count = match args.keep {
        None | Some(0) => u64::MAX,
        // The last one that is kept; others of the same microsecond are kept, too.
        Some(keep) => times.get(keep - 1).copied().unwrap_or(0),
    };
    by_age.min(by_count)
}

fn print(document: &Document, out: &mut Out) -> Result<()> {
    for left in &document.left {
        let word = out.paint(Style::Bad, "damaged, and stays");
        out.line(format!(
            "{word}: {}: {}",
            shown(&left.run),
            shown(&left.why)
        ))?;
    }
    if !document.runs.is_empty() {
        let now_us = time::now_us();
        let mut table = Table::new()
            .text("RUN")
            .flexible()
            .text("STATUS")
            .number("ENDED");
        for run in document.runs.iter().take(NAMED) {
            table.row([
                Cell::new(&run.run),
                Cell::new(&run.status),
                Cell::new(format!("{} ago", time::age(run.ended_us, now_us))),
            ]);
        }
        out.table(&table)?;
        if let Some(more) = document.runs.len().checked_sub(NAMED).filter(|n| *n > 0) {
            out.line(format!("… and {more} more: --json names all"))?;
        }
    }
    for archive in &document.archives {
        out.line(format!("archived in {}", shown(archive)))?;
    }
    let runs = size::count(document.runs.len() as u64, "run");
    let records = size::count(document.records, "record");
    let bytes = size::bytes(document.bytes);
    let line = match (document.dry_run, document.runs.len(), document.records) {
        (_, 0, 0) => "nothing to remove".to_owned(),
        (true, ..) => format!("would remove {runs}: {records}, {bytes}"),
        (false, ..) => format!("removed {runs}: {records}, {bytes}"),
    };
    Ok(out.line(line)?)
}
