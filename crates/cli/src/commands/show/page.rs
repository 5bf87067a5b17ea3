//! A run as a page for a person: what it is, then its steps or events.

use dalsegno::{Effect, Outcome, StepRecord, TimedStep};

use super::Shown;
use crate::exit::Result;
use crate::output::event::{self, payload_words};
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::text::{fit, shown};
use crate::output::{Out, time};

/// So much of a value is shown on the page; JSON has all of it.
const VALUE_COLUMNS: usize = 200;

/// Prints the page.
pub fn print(run: &Shown, out: &mut Out) -> Result<()> {
    heading(run, out)?;
    out.table(&facts(run))?;
    out.line("")?;
    if run.left_out > 0 {
        let what = if run.events.is_some() {
            "events"
        } else {
            "steps"
        };
        let left_out = format!("… {} earlier {what}: --limit 0 shows all", run.left_out);
        let left_out = out.paint(Style::Dim, &left_out);
        out.line(left_out)?;
    }
    match &run.events {
        Some(events) => {
            for event in events {
                out.line(event::line(event))?;
            }
        }
        None if run.timeline.steps.is_empty() => out.line("no steps")?,
        None => out.table(&steps(run))?,
    }
    Ok(())
}

fn heading(run: &Shown, out: &mut Out) -> Result<()> {
    let journal = run.journal();
    let (name, agent) = (shown(&run.run), shown(&journal.created.agent));
    let name = out.paint(Style::Bold, &name);
    let status = match run.needs_person() {
        true => out.paint(Style::Warn, &format!("{}, needs a person", journal.status)),
        false => out.paint(Style::of(journal.status), &journal.status.to_string()),
    };
    Ok(out.line(format!("run {name} of agent {agent}: {status}"))?)
}

/// What there is to say of the run as a whole.
fn facts(run: &Shown) -> Table {
    let journal = run.journal();
    let mut table = Table::new().text("").text("").flexible();
    let mut fact = |name: &str, what: String| {
        let name = Cell::styled(Style::Dim, format!("  {name}"));
        table.row([name, Cell::new(fit(&what, VALUE_COLUMNS))]);
    };
    let when = |us: u64| match time::age(us, run.now_us).as_str() {
        // Just now, or by a clock that was ahead of ours.
        "now" => time::utc(us),
        age => format!("{} ({age} ago)", time::utc(us)),
    };
    fact("created", when(journal.created.time_us));
    fact(
        "at event",
        format!("{}, {}", journal.last, when(journal.last_us)),
    );
    if let Some((parent, step)) = &journal.created.parent {
        fact("child of", format!("{} at {step}", parent.name()));
    }
    if let Some(forked) = &journal.forked {
        fact(
            "fork of",
            format!("{} at event {}", forked.origin.name(), forked.sequence),
        );
    }
    if let Some(input) = &journal.created.input {
        fact("input", payload_words(input));
    }
    fact("lives", lives(run));
    if journal.usage != dalsegno::Usage::default() {
        let used = &journal.usage;
        let cost = cost(used.cost_micros);
        fact(
            "used",
            format!("{} calls, {} tokens{cost}", used.steps, used.tokens()),
        );
    }
    if journal.saved_calls > 0 {
        let (calls, saved) = (journal.saved_calls, &journal.saved);
        let cost = cost(saved.cost_micros);
        let what = format!(
            "{calls} model calls, {} tokens{cost} not paid again",
            saved.tokens()
        );
        fact("saved", what);
    }
    if let Some(written) = &journal.checkpoint {
        let state = run.state.as_deref().map(String::from_utf8_lossy);
        let state = state.map_or(String::new(), |state| format!(": {state}"));
        fact(
            "state",
            format!("written at event {}{state}", written.sequence),
        );
    }
    if let Some(gone) = &run.gone {
        fact("process", gone.words.clone());
    }
    if journal.is_answered() {
        fact(
            "waits for",
            "its next process: a person has answered".to_owned(),
        );
    } else if let Some(attention) = &journal.attention {
        fact("attention", attention.reason.clone());
    } else if !journal.waits.is_empty() {
        fact("waits for", journal.waits.join(", "));
    }
    if let Some(damage) = &journal.damage {
        fact("damage", damage.clone());
    }
    match (&journal.end, &run.result) {
        (Some(Outcome::Failed(failure)), _) => fact("failed", failure.to_string()),
        (_, Some(result)) => fact("result", String::from_utf8_lossy(result).into_owned()),
        _ => {}
    }
    table
}

/// How often it was begun or gone on with: after a crash, and after each wait.
fn lives(run: &Shown) -> String {
    let lives = &run.timeline.lives;
    let recovered = lives.iter().filter(|life| life.recovered).count();
    if lives.is_empty() {
        return "none: no process has begun it".to_owned();
    }
    let taken_up = times(lives.len());
    let session = run.journal().session.as_deref();
    let by = session.map_or(String::new(), |session| {
        format!(", last by session {session}")
    });
    match recovered {
        0 => format!("taken up {taken_up}{by}"),
        _ => format!(
            "taken up {taken_up}, {} after a crash{by}",
            times(recovered)
        ),
    }
}

fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

fn steps(run: &Shown) -> Table {
    let columns = Table::new().text("STEP").text("KIND").text("EFFECT");
    let columns = columns.number("LIFE").text("WHAT HAPPENED").number("TRIES");
    let columns = columns.number("TOOK").number("TOKENS").number("COST");
    let mut table = columns.text("OUTCOME").flexible();
    for step in &run.timeline.steps {
        let record = &step.record;
        let or_none = |number: u64, text: String| if number == 0 { String::new() } else { text };
        let (tokens, cost) = (record.usage.tokens(), record.usage.cost_micros);
        table.row([
            Cell::new(step.id.as_str()),
            Cell::new(record.kind.word()),
            Cell::new(record.effect.word()),
            Cell::new(or_none(step.life as u64, step.life.to_string())),
            happened(step),
            Cell::new(or_none(record.attempts, record.attempts.to_string())),
            Cell::new(step.duration_us().map(time::span).unwrap_or_default()),
            Cell::new(or_none(tokens, tokens.to_string())),
            Cell::new(or_none(cost, money(cost))),
            outcome(record),
        ]);
    }
    table
}

/// Whether it was executed only, or also handed back from the record later.
fn happened(step: &TimedStep) -> Cell {
    let state = state(&step.record);
    match (state, step.replayed) {
        ("done", 0) => Cell::new("executed"),
        ("done", 1) => Cell::styled(Style::Active, "replayed"),
        ("done", times) => Cell::styled(Style::Active, format!("replayed {times} times")),
        ("failed", _) => Cell::styled(Style::Bad, state),
        ("in doubt", _) => Cell::styled(Style::Warn, state),
        _ => Cell::new(state),
    }
}

fn outcome(record: &StepRecord) -> Cell {
    match (&record.outcome, record.retry.as_deref()) {
        (Some(Outcome::Succeeded(output)), _) => {
            let output = match &record.summary {
                Some(summary) => summary.to_string(),
                None => output.as_ref().map(payload_words).unwrap_or_default(),
            };
            Cell::new(fit(&output, VALUE_COLUMNS))
        }
        (Some(Outcome::Failed(failure)), _) => {
            Cell::styled(Style::Bad, fit(failure.message(), VALUE_COLUMNS))
        }
        (None, Some((failure, at))) => {
            let again = time::utc(*at);
            Cell::styled(
                Style::Warn,
                format!("{}, again at {again}", failure.message()),
            )
        }
        (None, None) => Cell::default(),
    }
}

/// Where a step is.
pub fn state(record: &StepRecord) -> &'static str {
    match (&record.outcome, record.retry.as_deref()) {
        (Some(Outcome::Succeeded(_)), _) => "done",
        (Some(Outcome::Failed(_)), _) => "failed",
        (None, Some(_)) => "retries",
        (None, None) if record.is_open() && record.effect == Effect::Once => "in doubt",
        (None, None) if record.is_open() => "begun",
        (None, None) => "waits",
    }
}

fn cost(micros: u64) -> String {
    match micros {
        0 => String::new(),
        _ => format!(", {} cost", money(micros)),
    }
}

/// Millionths as a number with a point.
fn money(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let text = text.trim_end_matches('0');
    match text.strip_suffix('.') {
        Some(whole) => format!("{whole}.0"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_words() {
        assert_eq!([1, 2, 3].map(times), ["once", "twice", "3 times"]);
    }

    #[test]
    fn money_is_exact() {
        assert_eq!(money(1), "0.000001");
        assert_eq!(money(12_300), "0.0123");
        assert_eq!(money(2_000_000), "2.0");
    }
}
