//! `dalsegno ls`: the runs, those that need a person first.

use std::cmp::Reverse;

use dalsegno::views::{self, Listed};
use dalsegno_store::{RunQuery, Status};
use serde::Serialize;

use crate::args::Global;
use crate::args::ls::{Ls, StatusArg};
use crate::exit::{Exit, Result};
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::{Out, time};
use crate::{open, runtime};

/// `dalsegno.ls/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    runs: Vec<Row<'a>>,
    /// How many more there are than were asked for.
    left_out: usize,
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
    let mut runs = runtime::block_on(async { Ok(views::list(&store, &query(args)).await?) })?;
    runs.retain(|run| wanted(args, run));
    runs.sort_by_key(|run| (rank(run), Reverse(run.info.updated_us)));
    let limit = if args.limit == 0 {
        usize::MAX
    } else {
        args.limit
    };
    let left_out = runs.len().saturating_sub(limit);
    runs.truncate(limit);
    match out.is_json() {
        true => out.json(&Document {
            schema: "dalsegno.ls/1",
            runs: runs.iter().map(row).collect(),
            left_out,
        })?,
        false => print(&runs, left_out, out)?,
    }
    Ok(Exit::Done)
}

/// What the store can leave out by itself.
fn query(args: &Ls) -> RunQuery {
    let any_status = args.status.contains(&StatusArg::NeedsPerson);
    let status = match (any_status || args.status.is_empty(), args.waiting) {
        (false, _) => args.status.iter().filter_map(|s| s.status()).collect(),
        (true, true) => vec![Status::Pending, Status::Running, Status::Checkpointed],
        (true, false) => Vec::new(),
    };
    RunQuery {
        status,
        agent: args.agent.clone(),
        ..RunQuery::default()
    }
}

fn wanted(args: &Ls, run: &Listed) -> bool {
    let status = args.status.is_empty()
        || args.status.iter().any(|status| match status.status() {
            Some(status) => status == run.info.status,
            None => run.needs_person(),
        });
    status && (!args.waiting || !run.waits.is_empty() || run.needs_person())
}

fn rank(run: &Listed) -> u8 {
    match () {
        () if run.needs_person() => 0,
        () if !run.info.status.is_final() => 1,
        () => 2,
    }
}

fn row(run: &Listed) -> Row<'_> {
    let info = &run.info;
    Row {
        run: info.run.name(),
        agent: info.agent.as_deref(),
        status: info.status.to_string(),
        needs_person: run.needs_person(),
        attention: info.attention.as_deref(),
        waits: &run.waits,
        next_timer_us: info.next_timer_us,
        created_us: info.created_us,
        updated_us: info.updated_us,
        events: info.head.sequence,
        worker: info.lease.as_ref().map(|lease| &*lease.owner),
    }
}

fn print(runs: &[Listed], left_out: usize, out: &mut Out) -> Result<()> {
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
    if left_out > 0 {
        out.line(format!("… and {left_out} more: --limit 0 shows all"))?;
    }
    Ok(())
}

fn waits_for(run: &Listed) -> String {
    match &run.info.attention {
        Some(reason) => reason.clone(),
        None => run.waits.join(", "),
    }
}
