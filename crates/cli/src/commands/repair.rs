//! `dalsegno repair`: makes a damaged store usable again.
//!
//! What it would do is found by doing it, all of it, on a shadow of the store
//! ([`crate::shadow::Shadow`]): so what is announced is what is done.

use std::sync::Arc;

use dalsegno_store::{Options, Problem, StoreRepair, StoreReport};
use serde::Serialize;

use super::verify;
use crate::args::Global;
use crate::args::repair::Repair;
use crate::exit::{Error, Exit, Result};
use crate::open;
use crate::output::style::Style;
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::shadow::Shadow;

/// `dalsegno.repair/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    dry_run: bool,
    actions: &'a [String],
    lost_records: u64,
    losses: Vec<verify::Row<'a>>,
    /// Bytes at the end of the log that look like a write which a crash interrupted.
    torn_bytes: u64,
    set_aside: Vec<String>,
    sound: bool,
    problems: Vec<verify::Row<'a>>,
}

/// Repairs the store, or says what that would do.
///
/// # Errors
/// It is in use, cannot be read, or `--yes` is missing.
pub fn run(args: &Repair, global: &Global, out: &mut Out) -> Result<Exit> {
    let instead = "PostgreSQL mends its own files: restore a base backup, or a dump of pg_dump; \
                   `dalsegno verify` says what is damaged";
    open::folder_only(global, "repair", instead)?;
    let dir = &global.store;
    let not_opened = |e| open::not_opened(dir, e);
    let before = verify::report(global, out)?;
    let shadow = Options::new().fs(Arc::new(Shadow::default()));
    let planned = shadow.without_threads().repair(dir).map_err(not_opened)?;
    let is_needed = !planned.actions.is_empty();
    if !is_needed || !args.yes {
        say(&planned, &before, !is_needed || args.dry_run, true, out)?;
        return match (is_needed, args.dry_run) {
            (false, _) => Ok(exit(&planned)),
            (true, true) => Ok(Exit::Damaged),
            (true, false) => Err(Error::new(Exit::NeedsPerson, "nothing was changed yet")
                .hint("restore a copy if there is one; else `dalsegno repair --yes` does this")),
        };
    }
    let done = Options::new().repair(dir).map_err(not_opened)?;
    say(&done, &before, true, false, out)?;
    Ok(exit(&done))
}

fn exit(repair: &StoreRepair) -> Exit {
    match repair.report.is_sound() {
        true => Exit::Done,
        false => Exit::Damaged,
    }
}

/// What was lost by this repair, and not by one before.
fn new_losses<'a>(repair: &'a StoreRepair, before: &[Problem]) -> Vec<&'a Problem> {
    let losses = repair.report.losses.iter();
    losses.filter(|loss| !before.contains(loss)).collect()
}

fn say(
    repair: &StoreRepair,
    before: &StoreReport,
    is_last_word: bool,
    dry_run: bool,
    out: &mut Out,
) -> Result<()> {
    let losses = new_losses(repair, &before.losses);
    let torn = before.torn.as_ref().map_or(0, |torn| torn.bytes);
    let actions = repair.log.actions.iter();
    let aside = actions.filter_map(|action| action.set_aside.as_ref());
    let aside: Vec<_> = aside.map(|path| path.display().to_string()).collect();
    if out.is_json() {
        let losses: Vec<Problem> = losses.into_iter().cloned().collect();
        // An error follows, which is a document of its own.
        return Ok(out.json(&Document {
            schema: "dalsegno.repair/1",
            dry_run,
            actions: &repair.actions,
            lost_records: repair.log.lost_records(),
            losses: verify::rows(&losses),
            torn_bytes: torn,
            set_aside: aside,
            sound: repair.report.is_sound(),
            problems: verify::rows(&repair.report.problems),
        })?);
    }
    if repair.actions.is_empty() {
        out.line("there is nothing to repair")?;
    } else {
        out.heading(if dry_run { "would be done" } else { "done" })?;
        for action in &repair.actions {
            out.line(format!("  {}", shown(action)))?;
        }
        out.heading(if dry_run { "would be lost" } else { "lost" })?;
        let records = repair.log.lost_records();
        if torn > 0 {
            let torn = size::bytes(torn);
            out.line(format!(
                "  {torn} at the log's end that look like an unfinished write"
            ))?;
        }
        if records == 0 && torn == 0 && losses.is_empty() {
            out.line("  nothing")?;
        } else if records > 0 {
            let records = size::count(records, "record");
            out.line(format!("  {records} of the log that cannot be read"))?;
        }
        for loss in losses {
            out.line(format!("  {}", shown(&loss.to_string())))?;
        }
        out.heading(if dry_run { "would be kept" } else { "kept" })?;
        let events = size::count(repair.report.events, "event");
        let streams = size::count(repair.report.streams, "stream");
        out.line(format!("  {events} of {streams}"))?;
        for file in aside {
            out.line(format!("  the damaged bytes, as {}", shown(&file)))?;
        }
    }
    for problem in &repair.report.problems {
        let word = out.paint(Style::Bad, "still damaged");
        out.line(format!("{word}: {}", shown(&problem.to_string())))?;
    }
    if is_last_word && !dry_run && repair.report.is_sound() {
        let sound = out.paint(Style::Good, "sound");
        out.line(format!("{sound}: the store records that it was repaired"))?;
    }
    Ok(())
}
