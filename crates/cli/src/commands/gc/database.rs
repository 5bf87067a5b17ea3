//! `dalsegno gc` of a store in PostgreSQL, beside its workers.

use std::collections::BTreeSet;
use std::path::Path;

use dalsegno_store::{Export, Retention, RunInfo, StreamId};

use super::{Document, Run};
use crate::args::gc::Gc;
use crate::commands::export::to_file;
use crate::exit::Result;
use crate::open::Database;
use crate::output::time;
use crate::place::cannot_write;
use crate::{interrupt, runtime};

/// So many runs are in one portable file.
const RUNS_PER_ARCHIVE: usize = 1000;

/// What would go. PostgreSQL does not tell how many bytes that is.
pub fn would_retire(old: &[&RunInfo], of: impl Fn(&StreamId) -> Run) -> Document {
    Document {
        schema: "dalsegno.gc/1",
        dry_run: true,
        runs: old.iter().map(|info| of(&info.run)).collect(),
        left: Vec::new(),
        archives: Vec::new(),
        records: old.iter().map(|info| info.head.sequence).sum(),
        bytes: 0,
    }
}

/// Lets runs go; first into files, if that was asked for.
///
/// # Errors
/// A run is damaged, a file cannot be written, or the database cannot be reached. What was to be
/// archived and could not be is still there then.
pub fn retire(
    args: &Gc,
    database: &Database,
    retention: &Retention,
    old: &[&RunInfo],
    of: impl Fn(&StreamId) -> Run,
) -> Result<Document> {
    let archives = match &args.archive {
        Some(dir) => archive(database, old, dir).map_err(interrupt::or)?,
        None => Vec::new(),
    };
    let retired = runtime::block_on(async { Ok(database.retire(retention).await?) })?;
    database.close()?;
    Ok(Document {
        schema: "dalsegno.gc/1",
        dry_run: false,
        runs: retired.runs.iter().map(of).collect(),
        left: Vec::new(),
        archives,
        records: retired.records_removed,
        bytes: 0,
    })
}

fn archive(database: &Database, old: &[&RunInfo], dir: &Path) -> Result<Vec<String>> {
    interrupt::watch();
    std::fs::create_dir_all(dir).map_err(|e| cannot_write(dir, &e))?;
    let mut archives = Vec::new();
    let now_us = time::now_us();
    for (n, runs) in old.chunks(RUNS_PER_ARCHIVE).enumerate() {
        let path = dir.join(format!("runs-{now_us:020}-{n}.dalsegno"));
        let runs: BTreeSet<StreamId> = runs.iter().map(|info| info.run.clone()).collect();
        to_file(database, &Export::Streams(runs), &path, false)?;
        archives.push(path.display().to_string());
    }
    Ok(archives)
}
