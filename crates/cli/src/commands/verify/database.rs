//! `dalsegno verify` of a store in PostgreSQL.

use dalsegno_postgres::PostgresReport;

use super::{Document, print_found, rows};
use crate::address;
use crate::args::Global;
use crate::args::verify::Verify;
use crate::exit::{Exit, Result};
use crate::open::{self, Opened};
use crate::output::style::Style;
use crate::output::{Out, size};
use crate::progress::Progress;
use crate::runtime;

/// Verifies the store.
///
/// # Errors
/// It could not be read.
pub fn verify(args: &Verify, global: &Global, out: &mut Out) -> Result<Exit> {
    let Opened::Database(database) = open::any_reader(global)? else {
        return Ok(Exit::Done);
    };
    let progress = Progress::new("verifying", out);
    let told = progress.clone();
    let report = runtime::block_on(async {
        let told = move |events| told.say(|| format!("{events} events read"));
        Ok(database.verify(told).await?)
    });
    progress.end();
    let report = report?;
    match out.is_json() {
        true => out.json(&document(&report, args.heads, global))?,
        false => print(&report, args.heads, out)?,
    }
    Ok(match report.is_sound() {
        true => Exit::Done,
        false => Exit::Damaged,
    })
}

fn document<'a>(report: &'a PostgresReport, heads: bool, global: &Global) -> Document<'a> {
    Document {
        schema: "dalsegno.verify/1",
        store: address::unescaped(&global.store),
        sound: report.is_sound(),
        position: 0,
        segments: 0,
        streams: report.streams,
        events: report.events,
        pieces: report.pieces,
        snapshots: 0,
        indexes: 0,
        letters: report.letters,
        archives: 0,
        torn: None,
        losses: Vec::new(),
        problems: rows(&report.problems),
        heads: heads.then(|| {
            let heads = report.heads.iter();
            heads.map(|(id, hash)| (&**id, hash.to_string())).collect()
        }),
    }
}

fn print(report: &PostgresReport, heads: bool, out: &mut Out) -> Result<()> {
    print_found(heads.then_some(&report.heads), &report.problems, out)?;
    let counts = [
        (report.streams, "stream"),
        (report.events, "event"),
        (report.pieces, "piece"),
        (report.letters, "letter"),
    ];
    let counts = counts.map(|(number, what)| size::count(number, what));
    out.line(format!("read {}", counts.join(", ")))?;
    match report.problems.len() as u64 {
        0 => {
            let sound = out.paint(Style::Good, "sound");
            Ok(out.line(format!(
                "{sound}: every event, and what follows from it, is as it was written"
            ))?)
        }
        number => {
            let damaged = out.paint(Style::Bad, "damaged");
            let number = size::count(number, "place");
            Ok(out.line(format!(
                "{damaged} in {number}: restore a backup of the database; runs that are whole can \
                 be taken out with `dalsegno export`"
            ))?)
        }
    }
}
