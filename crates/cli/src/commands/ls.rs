//! `dalsegno ls`: the runs, those that need a person first.

use dalsegno::views::{self, Listed};
use dalsegno_store::{RunInfo, RunQuery, Status, Store};
use serde::Serialize;

use crate::args::Global;
use crate::args::ls::{Ls, StatusArg};
use crate::exit::{Exit, Result};
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::{Out, time};
use crate::{left_behind, open, runtime};

/// `dalsegno.ls/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    runs: Vec<Row<'a>>,
    /// There are more than were asked for.
    more: bool,
}

#[derive(Serialize)]
struct Row<'a> {
    run: &'a str,
    agent: Option<&'a str>,
    status: String,
    needs_person: bool,
    attention: Option<&'a str>,
    waits: &'a [String],
    next_timer_us: Option<u64>,
    created_us: u64,
    updated_us: u64,
    events: u64,
    worker: Option<&'a str>,
}

/// Lists runs.
///
/// # Errors
/// The store cannot be read.
pub fn run(args: &Ls, global: &Global, out: &mut Out) -> Result<Exit> {
    let store = open::reader(global)?;
    let (runs, more) = runtime::block_on(find(global, &*store, args))?;
    match out.is_json() {
        true => out.json(&Document {
            schema: "dalsegno.ls/1",
            runs: runs.iter().map(row).collect(),
            more,
        })?,
        false => print(&runs, more, out)?,
    }
    Ok(Exit::Done)
}

/// The runs to show, and whether there are more. All that are not finished are looked at, because
/// those that need a person may be old; of the others, which may be very many, no more than needed.
async fn find(global: &Global, store: &dyn Store, args: &Ls) -> Result<(Vec<Listed>, bool)> {
    let limit = match args.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let mut runs = match query(args, &LIVE, 0) {
        Some(live) => views::list(store, &live).await?,
        None => Vec::new(),
    };
    left_behind::mark(global, store, &mut runs).await?;
    runs.retain(|run| wanted(args, run));
    runs.sort_by_key(|run| !run.needs_person());
    if runs.len() <= limit && !args.waiting {
        let room = limit.saturating_add(1) - runs.len();
        if let Some(ended) = query(args, &ENDED, room) {
            runs.extend(views::list(store, &ended).await?);
        }
    }
    let more = runs.len() > limit;
    runs.truncate(limit);
    Ok((runs, more))
}

const LIVE: [Status; 3] = [Status::Pending, Status::Running, Status::Checkpointed];
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

/// What the store can leave out by itself; `None` if that is everything.
fn query(args: &Ls, among: &[Status], limit: usize) -> Option<RunQuery> {
    let asked = |status: &Status| {
        let is_it = |asked: &StatusArg| match asked.status() {
            Some(asked) => asked == *status,
            // Only a person can move it on: that is never finished.
            None => !status.is_final(),
        };
        args.status.is_empty() || args.status.iter().any(is_it)
    };
    let status: Vec<_> = among.iter().copied().filter(asked).collect();
    let query = RunQuery {
        status,
        agent: args.agent.clone(),
        newest: true,
        limit,
        ..RunQuery::default()
    };
    (!query.status.is_empty()).then_some(query)
}

fn wanted(args: &Ls, run: &Listed) -> bool {
    let status = args.status.is_empty()
        || args.status.iter().any(|status| match status.status() {
            Some(status) => status == run.info.status,
            None => run.needs_person(),
        });
    status && (!args.waiting || !run.waits.is_empty() || run.needs_person())
}

fn row(run: &Listed) -> Row<'_> {
    let info = &run.info;
    Row {
        run: info.run.name(),
        agent: info.agent.as_deref(),
        status: info.status.to_string(),
        needs_person: run.needs_person(),
        attention: info.attention.as_deref().filter(|_| !run.answered),
        waits: &run.waits,
        next_timer_us: info.next_timer_us,
        created_us: info.created_us,
        updated_us: info.updated_us,
        events: info.head.sequence,
        worker: info.lease.as_ref().map(|lease| &*lease.owner),
    }
}

fn print(runs: &[Listed], more: bool, out: &mut Out) -> Result<()> {
    if runs.is_empty() {
        return Ok(out.line("no runs")?);
    }
    let now_us = time::now_us();
    let columns = Table::new().text("RUN").text("AGENT").text("STATUS");
    let columns = columns.number("AGE").number("CHANGED");
    let mut table = columns.text("WAITS FOR").flexible();
    for run in runs {
        let info = &run.info;
        let status = match run.needs_person() {
            true => Cell::styled(Style::Warn, "needs person"),
            false if is_left(info) => Cell::styled(Style::Warn, "process gone"),
            false => Cell::styled(Style::of(info.status), info.status.to_string()),
        };
        table.row([
            Cell::new(info.run.name()),
            Cell::new(info.agent.as_deref().unwrap_or("-")),
            status,
            Cell::new(time::age(info.created_us, now_us)),
            Cell::new(time::age(info.updated_us, now_us)),
            Cell::new(waits_for(run)),
        ]);
    }
    out.table(&table)?;
    if more {
        out.line("… and more: --limit 0 shows all")?;
    }
    Ok(())
}

/// A worker had it, and nobody has it now.
fn is_left(info: &RunInfo) -> bool {
    info.status == Status::Running && info.lease.is_none()
}

fn waits_for(run: &Listed) -> String {
    match &run.info.attention {
        Some(reason) if !run.answered => reason.clone(),
        _ => run.waits.join(", "),
    }
}
