//! What the demonstration tells, for a person: a line or two for each thing that happened.

use std::io;

use super::told::{Counted, Happening, Step, UnderWay};
use crate::output::style::Style;
use crate::output::table::{Cell, Table};
use crate::output::text::shown;
use crate::output::{Out, time};

/// Prints for a person.
#[derive(Default)]
pub struct Words {
    /// The rows of the ledger, printed when all are there.
    counted: Vec<Counted>,
}

impl Words {
    pub fn tell(&mut self, happening: &Happening, out: &mut Out) -> io::Result<()> {
        match happening {
            Happening::Begun { .. } => begun(happening, out),
            Happening::WorkerStarted { worker, pid } => {
                out.line("")?;
                let title = out.paint(Style::Bold, &format!("worker {worker}"));
                out.line(format!("{title}  process {pid}"))
            }
            Happening::RunStarted {
                run,
                recovered,
                replayed,
                saved_calls,
                saved_tokens,
                ..
            } => {
                let run = shown(run);
                if replayed.is_empty() {
                    return out.line(match recovered {
                        true => format!("  goes on with {run}: nothing was recorded yet"),
                        false => format!("  begins {run}"),
                    });
                }
                let words = format!("{} replayed from the record", ranges(replayed));
                let words = out.paint(Style::Good, &words);
                out.line(format!("  goes on with {run}: {words}"))?;
                match saved_calls {
                    0 => Ok(()),
                    calls => {
                        let calls = count(*calls, "model call");
                        let words = format!("{calls}, {saved_tokens} tokens not paid again");
                        let words = out.paint(Style::Dim, &words);
                        out.line(format!("      {words}"))
                    }
                }
            }
            Happening::Step {
                step,
                kind,
                effect,
                took_us,
                ..
            } => step_line(step, kind, effect, *took_us, out),
            Happening::ApprovalAsked { step, what, .. } => {
                let asks = out.paint(Style::Warn, "asks a person:");
                row(
                    step,
                    "approval",
                    &format!("{asks} publish {}?", shown(what)),
                    out,
                )
            }
            Happening::Attention { reason, .. } => {
                let title = out.paint(Style::Warn, "a person is needed");
                out.line(format!("      {title}: {}", shown(reason)))
            }
            Happening::PersonSaid { said, because, .. } => {
                let because = match *said {
                    "approved" => String::new(),
                    _ => format!(" ({})", shown(because)),
                };
                let said = out.paint(Style::Warn, &said.replace('_', " "));
                let who = "the demo, as the person, through the mailbox";
                out.line(format!("      {who}: {said}{because}"))
            }
            Happening::Resolved {
                step, by, happened, ..
            } => {
                let found = match happened {
                    true => "it happened, and is not done again",
                    false => "it did not happen, and is done now",
                };
                let found = out.paint(Style::Good, found);
                let words = format!("was in doubt: {found} (says the {})", shown(by));
                row(step, "once", &words, out)
            }
            Happening::Killed { .. } => killed(happening, out),
            Happening::RunEnded { run, status, .. } => {
                let style = match status.as_str() {
                    "completed" => Style::Good,
                    _ => Style::Bad,
                };
                let status = out.paint(style, &shown(status));
                out.line(format!("  {} {status}", shown(run)))
            }
            Happening::Counted(counted) => {
                self.counted.push(counted.clone());
                Ok(())
            }
            Happening::Checked { check, ok, words } => {
                if *check == "effects" {
                    self.ledger(out)?;
                }
                let mark = match ok {
                    true => out.paint(Style::Good, "ok   "),
                    false => out.paint(Style::Bad, "WRONG"),
                };
                out.line(format!("  {mark}  {}", shown(words)))
            }
            Happening::Summary { .. } => summary(happening, out),
        }
    }

    fn ledger(&mut self, out: &mut Out) -> io::Result<()> {
        out.line("")?;
        out.heading("What the world counted in its own ledger")?;
        let mut table = Table::new().number("STEP").text("").text("EFFECT");
        table = table.number("ASKED").number("DONE").text("");
        for row in &self.counted {
            let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
            let again = row.asked.is_some_and(|asked| asked > row.runs as u64);
            let (style, note) = match (row.done, again) {
                (Some(_), _) if !row.ok => (Style::Bad, "WRONG: not once"),
                (Some(_), _) if row.asked.is_none() => (Style::Good, "on disk"),
                (Some(_), true) => (Style::Good, "once: asked again under the same key"),
                (Some(_), false) => (Style::Good, "once"),
                (None, true) => (Style::Dim, "asked again after a kill, changes nothing"),
                (None, false) => (Style::Dim, ""),
            };
            table.row([
                Cell::new(row.number.to_string()),
                Cell::new(row.step),
                Cell::new(row.effect),
                Cell::new(number(row.asked)),
                Cell::styled(style, number(row.done)),
                Cell::styled(style, note),
            ]);
        }
        out.table(&table)?;
        out.line("")?;
        out.heading("Checks")
    }
}

fn begun(happening: &Happening, out: &mut Out) -> io::Result<()> {
    let Happening::Begun {
        kills,
        at,
        seed,
        probe,
        store,
        kept,
        world_pid,
        world,
        ..
    } = happening
    else {
        return Ok(());
    };
    let when = match (at, seed) {
        (Some(step), _) => format!("killed with SIGKILL in step {step}"),
        (None, Some(_)) if *kills == 0 => "never killed".to_owned(),
        (None, Some(seed)) => format!(
            "killed with SIGKILL {} at random moments (--seed {seed})",
            times(*kills)
        ),
        (None, None) => "never killed".to_owned(),
    };
    out.heading(&format!(
        "An agent of 12 steps that plans a trip; its process is {when}"
    ))?;
    let kept = if *kept { "" } else { ", removed at the end" };
    out.line(format!("  store  {}{kept}", shown(store)))?;
    let probe = match probe {
        true => "",
        false => ", cannot say whether it has notified somebody",
    };
    out.line(format!(
        "  world  process {world_pid} at {}, keeps its own ledger{probe}",
        shown(world)
    ))
}

fn step_line(
    step: &Step,
    kind: &str,
    effect: &str,
    took_us: Option<u64>,
    out: &mut Out,
) -> io::Result<()> {
    let took = took_us.map_or(String::new(), |us| format!("  {}", time::span(us)));
    let took = out.paint(Style::Dim, &took);
    let (what, words) = match kind {
        "tool" => (effect, format!("ran{took}")),
        "model" => ("model", format!("ran{took}")),
        "decision" => ("decision", "made".to_owned()),
        "plan-step" => ("plan", "done".to_owned()),
        "approval" => ("approval", "answer recorded".to_owned()),
        other => (other, "done".to_owned()),
    };
    row(step, what, &words, out)
}

fn row(step: &Step, what: &str, words: &str, out: &mut Out) -> io::Result<()> {
    let number = step
        .number
        .map_or("·".to_owned(), |number| number.to_string());
    let name = shown(&step.step);
    out.line(format!("  {number:>2}  {name:<13} {what:<11} {words}"))
}

fn killed(happening: &Happening, out: &mut Out) -> io::Result<()> {
    let Happening::Killed {
        pid,
        kill,
        of,
        had_begun,
        recorded,
        under_way,
        ..
    } = happening
    else {
        return Ok(());
    };
    let which = match of {
        1 => String::new(),
        of => format!("{kill} of {of}: "),
    };
    let title = out.paint(Style::Bad, &format!("  ✗ {which}SIGKILL to process {pid}"));
    let is_waiting = |step: &&UnderWay| step.step.step == "publish";
    let (waiting, begun): (Vec<_>, Vec<_>) = under_way.iter().partition(is_waiting);
    let (seen, unseen): (Vec<&UnderWay>, Vec<_>) = begun.iter().partition(|step| step.in_world);
    let (place, what) = match () {
        () if !had_begun => ("before it had taken up the run".to_owned(), ""),
        () if !seen.is_empty() => (
            format!("in the middle of {}", names(&seen)),
            "the world has the request, nobody has the reply; ",
        ),
        () if !unseen.is_empty() => (
            format!("at the start of {}", names(&unseen)),
            "the world has not heard of it; ",
        ),
        () if !waiting.is_empty() => ("while it waits for the person".to_owned(), ""),
        () => ("between two steps".to_owned(), ""),
    };
    out.line(format!("{title} {place}"))?;
    out.line(format!("    {what}recorded: {recorded} of 12 steps"))
}

fn names(steps: &[&UnderWay]) -> String {
    let name = |step: &&UnderWay| {
        let name = shown(&step.step.step);
        let number = step.step.number;
        number.map_or(name.clone(), |number| format!("step {number}, {name}"))
    };
    let names: Vec<_> = steps.iter().map(name).collect();
    names.join(" and ")
}

fn summary(happening: &Happening, out: &mut Out) -> io::Result<()> {
    let Happening::Summary {
        ok,
        kills,
        workers,
        runs,
        replayed,
        took_us,
        wrong,
        store,
    } = happening
    else {
        return Ok(());
    };
    out.line("")?;
    let words = format!(
        "{}, {}, {}; {} from the record; {}",
        count(*kills, "kill"),
        count(*workers, "worker"),
        count(*runs as u64, "run"),
        count(*replayed, "step"),
        time::span(*took_us)
    );
    match ok {
        true => {
            let title = out.paint(Style::Good, "Nothing was lost, nothing happened twice.");
            out.line(format!("{title} ({words})"))?;
        }
        false => {
            let title = out.paint(Style::Bad, "Something is wrong:");
            out.line(format!("{title} {}", shown(&wrong.join("; "))))?;
            out.line(words)?;
        }
    }
    out.line("")?;
    out.heading("Try next")?;
    match store {
        Some(store) => {
            let store = shown(store);
            out.line(format!("  dalsegno --store {store} show trip-0000"))?;
            out.line(format!("  dalsegno --store {store} why trip-0000"))?;
            out.line(format!("  dalsegno --store {store} verify"))
        }
        None => {
            out.line("  dalsegno demo --at 10 --no-probe         in the middle of what must not happen twice")?;
            out.line("  dalsegno demo --kills 10                 at random moments")?;
            out.line("  dalsegno demo --keep my-demo             keeps the store; then:")?;
            out.line("  dalsegno --store my-demo/store show trip-0000")
        }
    }
}

fn count(count: impl Into<u64>, thing: &str) -> String {
    match count.into() {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// As in `steps 1-4 and 6`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let words: Vec<_> = ranges
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("step{plural} {}", words.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_ranges() {
        assert_eq!(ranges(&[1]), "step 1");
        assert_eq!(ranges(&[1, 2, 3]), "steps 1-3");
        assert_eq!(ranges(&[1, 2, 4, 6, 7]), "steps 1-2 and 4 and 6-7");
    }
}
