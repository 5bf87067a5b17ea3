//! `dalsegno doctor`: whether the store and the machine can keep a promise.
//!
//! | check | bad if |
//! |---|---|
//! | store | it cannot be opened for reading, or is of a newer format |
//! | writable | a file cannot be made, written, synced and removed |
//! | sync | (only a warning: it takes too long, or suspiciously little) |
//! | space | the next segments do not fit |
//! | file system | (only a warning) it is a network's, or goes away with the machine or container |
//! | permissions | files cannot be read and written by this user |
//! | open files | so few are allowed that a store cannot work |
//! | clock | it is before the first release, or behind the store's newest event |
//! | owner | (only said) |
//! | mailbox | (only a warning) letters wait, or were set aside |
//! | repair | one was interrupted |
//!
//! Of a database (`doctor/database.rs`): store, server, commit, clock, workers, mailbox, size.
//!
//! Invariant: nothing is left behind, and nothing of the store is changed.

use serde::Serialize;

use crate::address::{self, Place};
use crate::args::Global;
use crate::args::doctor::Doctor;
use crate::exit::{Exit, Result};
use crate::open;
use crate::output::Out;
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::text::shown;

#[cfg(feature = "postgres")]
mod database;
mod machine;
mod store;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Bad,
}

impl Verdict {
    fn word(self) -> (&'static str, Style) {
        match self {
            Verdict::Ok => ("ok", Style::Good),
            Verdict::Warn => ("warn", Style::Warn),
            Verdict::Bad => ("bad", Style::Bad),
        }
    }
}

/// One check.
#[derive(Clone, Debug, Serialize)]
struct Check {
    check: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What to do; empty if nothing is to be done.
    to_do: String,
}

impl Check {
    fn new(check: &'static str, verdict: Verdict, found: impl Into<String>, to_do: &str) -> Check {
        Check {
            check,
            verdict,
            found: found.into(),
            to_do: to_do.to_owned(),
        }
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Check {
        Check::new(check, Verdict::Ok, found, "")
    }

    fn warn(check: &'static str, found: impl Into<String>, to_do: &str) -> Check {
        Check::new(check, Verdict::Warn, found, to_do)
    }

    fn bad(check: &'static str, found: impl Into<String>, to_do: &str) -> Check {
        Check::new(check, Verdict::Bad, found, to_do)
    }
}

/// `dalsegno.doctor/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    store: String,
    verdict: Verdict,
    damaged: bool,
    checks: &'a [Check],
}

/// Checks everything.
///
/// # Errors
/// There is no store.
pub fn run(_: &Doctor, global: &Global, out: &mut Out) -> Result<Exit> {
    let (checks, damaged) = match Place::of(&global.store) {
        Place::Folder(_) => folder(global)?,
        Place::Database(_) => (of_database(global)?, false),
    };
    let verdict = match () {
        () if checks.iter().any(|c| c.verdict == Verdict::Bad) => Verdict::Bad,
        () if checks.iter().any(|c| c.verdict == Verdict::Warn) => Verdict::Warn,
        () => Verdict::Ok,
    };
    match out.is_json() {
        true => out.json(&Document {
            schema: "dalsegno.doctor/1",
            store: address::unescaped(&global.store),
            verdict,
            damaged,
            checks: &checks,
        })?,
        false => print(&checks, out)?,
    }
    Ok(match (damaged, verdict) {
        (true, _) => Exit::Damaged,
        (false, Verdict::Bad) => Exit::Failed,
        _ => Exit::Done,
    })
}

fn folder(global: &Global) -> Result<(Vec<Check>, bool)> {
    let opened = match open::folder_reader(global, "doctor", "") {
        // Without a folder that could be one, there is nothing to look at.
        Err(error) if !may_be_there(global) => return Err(error),
        other => other,
    };
    let damaged = opened.as_ref().is_err_and(|e| e.exit == Exit::Damaged);
    let mut checks = vec![store::format(&opened, global)];
    checks.extend(machine::checks(&global.store));
    checks.extend(store::checks(opened.as_ref().ok(), global));
    Ok((checks, damaged))
}

#[cfg(feature = "postgres")]
fn of_database(global: &Global) -> Result<Vec<Check>> {
    database::checks(global)
}

#[cfg(not(feature = "postgres"))]
fn of_database(global: &Global) -> Result<Vec<Check>> {
    // Says why there is none.
    open::any_reader(global).map(|_| Vec::new())
}

/// A folder that may not be entered may have a store in it.
fn may_be_there(global: &Global) -> bool {
    let looked = global.store.join("store").metadata();
    looked.map_or_else(
        |e| e.kind() == std::io::ErrorKind::PermissionDenied,
        |_| true,
    )
}

fn print(checks: &[Check], out: &mut Out) -> Result<()> {
    let mut table = Table::new().text("").text("").text("");
    for check in checks {
        let (word, style) = check.verdict.word();
        table.row([
            Cell::styled(style, word),
            Cell::new(check.check),
            Cell::new(&check.found),
        ]);
    }
    out.table(&table)?;
    for check in checks.iter().filter(|check| !check.to_do.is_empty()) {
        out.line(format!(
            "to do about {}: {}",
            check.check,
            shown(&check.to_do)
        ))?;
    }
    Ok(())
}
