//! The answer as a page for a person: a heading, then aligned lines.

use std::fmt;

use super::events::one_line;
use super::time::{ago, utc};
use super::{StepLine, Why, shorten};

/// So much of a value fits on a line.
const LINE_BYTES: usize = 120;

/// Lines with a name in front of the first of each group.
struct Page<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    width: usize,
}

impl Page<'_, '_> {
    fn group<T: AsRef<str>>(&mut self, name: &str, lines: &[T], none: &str) -> fmt::Result {
        let width = self.width;
        if lines.is_empty() {
            return writeln!(self.f, "{name:width$}  {none}");
        }
        for (at, line) in lines.iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            writeln!(self.f, "{name:width$}  {}", line.as_ref())?;
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now_us = self.asked_us;
        let since = ago(self.updated_us, now_us);
        let (run, agent, status) = (&self.run, &self.agent, self.status);
        writeln!(
            f,
            "run {run} of agent {agent}: {status}, last event {since}"
        )?;
        let mut page = Page { f, width: 14 };
        let because = one_line(&self.because);
        page.group("standing", &[format!("{}: {because}", self.standing)], "")?;
        page.group("to do", &to_do(self), "nothing")?;
        page.group("was doing", &doing(self), "nothing that was begun is open")?;
        let last: Vec<_> = self.last.iter().map(|line| done(line, now_us)).collect();
        page.group("last steps", &last, "none")?;
        page.group("knew", &knew(self), "nothing is written down")?;
        let changed = self.changed.iter().map(|change| {
            let (at, what) = (utc(change.time_us), &change.what);
            format!("{at}  event {}: {what}", change.sequence)
        });
        page.group("changed last", &changed.collect::<Vec<_>>(), "nothing")?;
        let doubts = self.in_doubt.iter().map(|doubt| {
            let input = value(doubt.input.as_deref());
            let (since, key) = (utc(doubt.since_us), &doubt.key);
            let (step, attempt) = (&doubt.step, doubt.attempt);
            format!("{step}, attempt {attempt}, key {key}, since {since}{input}")
        });
        page.group("in doubt", &doubts.collect::<Vec<_>>(), "nothing")?;
        let next: Vec<_> = self.next.iter().map(|next| next.to_string()).collect();
        page.group("comes next", &next, "nothing")
    }
}

fn to_do(why: &Why) -> Vec<String> {
    let to_do = one_line(&why.to_do);
    Some(to_do)
        .filter(|to_do| !to_do.is_empty())
        .into_iter()
        .collect()
}

fn doing(why: &Why) -> Vec<String> {
    let line = |line: &StepLine| {
        let since = ago(line.begun_us, why.asked_us);
        let (kind, step, effect) = (line.kind, &line.step, line.effect);
        let input = value(line.input.as_deref());
        let attempts = line.attempts;
        format!("{kind} {step} ({effect}), attempt {attempts}, begun {since}{input}")
    };
    why.open.iter().map(line).collect()
}

fn done(line: &StepLine, now_us: u64) -> String {
    let (kind, step, begun) = (line.kind, &line.step, ago(line.begun_us, now_us));
    let outcome = match &line.outcome {
        Some(Ok(result)) if result.is_empty() => "done".to_owned(),
        Some(Ok(result)) => short(result),
        Some(Err(failure)) => format!("failed: {}", short(failure)),
        None => "open".to_owned(),
    };
    format!("{kind} {step}, begun {begun}: {outcome}")
}

fn knew(why: &Why) -> Vec<String> {
    let knew = &why.knew;
    let mut lines = Vec::new();
    lines.extend(knew.damage.iter().map(|damage| one_line(damage)));
    lines.extend(
        knew.input
            .iter()
            .map(|input| format!("input {}", short(input))),
    );
    if let Some(written) = &knew.checkpoint {
        let (place, event) = (&written.place, written.sequence);
        let at = utc(written.time_us);
        let progress = written.progress;
        let progress = progress.map_or(String::new(), |(at, of)| format!(", step {at} of {of}"));
        let state = written.state.as_deref().map_or(String::new(), short);
        lines.push(format!(
            "state at {place}{progress} (event {event}, {at}): {state}"
        ));
    }
    if let Some(memory) = &knew.memory {
        lines.push(format!(
            "memory version {} {}",
            memory.sequence, memory.hash
        ));
    }
    if !knew.signals.is_empty() {
        lines.push(format!(
            "signals not taken yet: {}",
            one_line(&knew.signals.join(", "))
        ));
    }
    lines.extend(knew.resources.iter().map(|resource| one_line(resource)));
    let usage = &knew.usage;
    if *usage != crate::budget::Usage::default() {
        lines.push(format!(
            "used {} calls, {} tokens, {} millionths of cost",
            usage.steps,
            usage.tokens(),
            usage.cost_micros
        ));
    }
    lines
}

fn value(text: Option<&str>) -> String {
    text.map_or(String::new(), |text| format!(": {}", short(text)))
}

fn short(text: &str) -> String {
    shorten(&one_line(text), LINE_BYTES)
}
