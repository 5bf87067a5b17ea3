//! `dalsegno fork`: a new run with the past of another one.

use dalsegno::{Journal, StepId};
use dalsegno_store::{Store, StreamId};
use serde::Serialize;
use serde_json::Value;

use crate::args::Global;
use crate::args::fork::Fork;
use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::{find, open, runtime};

/// `dalsegno.fork/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    run: &'a str,
    origin: &'a str,
    at: u64,
    agent: &'a str,
    inherited: Inherited,
    not_inherited: Vec<String>,
}

#[derive(Serialize)]
struct Inherited {
    outcomes: Vec<String>,
    in_doubt: Vec<String>,
    resources: Vec<String>,
    turn: Option<u64>,
}

/// Forks a run.
///
/// # Errors
/// There is no such run, event or step; the name is taken; or the store is in use.
pub fn run(args: &Fork, global: &Global, out: &mut Out) -> Result<Exit> {
    let fork = fork(args)?;
    let opened = open::writer(global).map_err(|e| in_use(e, global))?;
    let store = &*opened.store();
    let (name, forked, origin) = runtime::block_on(async {
        let (id, _) = find::run(store, &args.run).await?;
        let name = dalsegno::fork_in(store, &args.run, fork).await;
        let name = match name {
            Ok(name) => name,
            Err(e) => return Err(explained(args, store, &id, e).await),
        };
        let forked = journal(store, &StreamId::run(&name)?, usize::MAX).await?;
        let at = forked.forked.as_ref().map_or(0, |forked| forked.sequence);
        let origin = journal(store, &id, usize::try_from(at).unwrap_or(usize::MAX)).await?;
        Ok((name, forked, origin))
    })?;
    opened.close()?;
    let document = Document {
        schema: "dalsegno.fork/1",
        run: &name,
        origin: &args.run,
        at: forked.forked.as_ref().map_or(0, |forked| forked.sequence),
        agent: &forked.created.agent,
        inherited: inherited(&forked),
        not_inherited: not_inherited(&origin, &forked),
    };
    match out.is_json() {
        true => out.json(&document)?,
        false => print(&document, out)?,
    }
    Ok(Exit::Done)
}

/// What is asked for.
fn fork(args: &Fork) -> Result<dalsegno::Fork> {
    let mut fork = args.at.map_or(dalsegno::Fork::at_end(), dalsegno::Fork::at);
    if let Some(name) = &args.name {
        fork = fork.named(name);
    }
    if let Some(input) = &args.input {
        fork = fork.with_input(&json("--input", input)?)?;
    }
    for outcome in &args.outcome {
        let Some((step, value)) = outcome.split_once('=') else {
            let wrong = Error::usage(format!("--outcome {:?} has no =", shown(outcome)));
            return Err(wrong.hint("as in --outcome 'discount#1=0'"));
        };
        fork = fork.with_outcome(step, &json("--outcome", value)?)?;
    }
    Ok(fork)
}

fn json(option: &str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| {
        let wrong = Error::usage(format!("{option} is no JSON: {e}: {}", shown(text)));
        wrong.hint("text needs quotes of its own, as in '\"text\"'")
    })
}

fn in_use(error: Error, global: &Global) -> Error {
    match open::owner_now(global) {
        Some(_) => error
            .hint("only the owner can fork: stop it first, or call Dalsegno::fork in that program"),
        None => error,
    }
}

/// With the step that may have been meant.
async fn explained(args: &Fork, store: &dyn Store, id: &StreamId, e: dalsegno::Error) -> Error {
    let steps = match (&e, journal(store, id, usize::MAX).await) {
        (dalsegno::Error::Fork { .. }, Ok(journal)) => journal.steps,
        _ => return e.into(),
    };
    let known: Vec<_> = steps.iter().map(|(step, _)| step.as_str()).collect();
    let asked = args.outcome.iter().filter_map(|o| o.split_once('='));
    let unknown = asked
        .map(|(step, _)| step)
        .find(|step| !known.contains(step));
    let near = unknown.and_then(|step| find::nearest(step, known.iter().copied()));
    let error = Error::from(e);
    match near {
        Some(near) => error.hint(format!("did you mean {:?}?", shown(near))),
        None => error,
    }
}

async fn journal(store: &dyn Store, id: &StreamId, events: usize) -> Result<Journal> {
    Ok(Journal::fold(store.events(id, 1, events).await?))
}

fn inherited(forked: &Journal) -> Inherited {
    let steps = forked.steps_in_order();
    let with = |pick: &dyn Fn(&dalsegno::StepRecord) -> bool| -> Vec<String> {
        let steps = steps.iter().filter(|(_, step)| pick(step));
        steps.map(|(id, _)| id.to_string()).collect()
    };
    Inherited {
        outcomes: with(&|step| step.outcome.is_some()),
        in_doubt: with(&|step| step.is_open() && step.effect == dalsegno::Effect::Once),
        resources: forked.resources.values().map(ToString::to_string).collect(),
        turn: forked.turn.as_ref().and_then(|turn| turn.turn),
    }
}

/// What people were asked in the shared past, but for answers that were used there.
fn not_inherited(origin: &Journal, forked: &Journal) -> Vec<String> {
    let asked = origin.approvals.keys();
    let is_used = |id: &StepId| forked.steps.get(id).is_some_and(|s| s.outcome.is_some());
    let open = asked.filter(|id| !is_used(id));
    let mut open: Vec<_> = open.map(|id| format!("approval {id}")).collect();
    open.sort();
    open
}

fn print(document: &Document<'_>, out: &mut Out) -> Result<()> {
    let (run, origin) = (shown(document.run), shown(document.origin));
    out.line(format!(
        "{run} is a fork of {origin} at event {}",
        document.at
    ))?;
    let inherited = &document.inherited;
    let outcomes = size::count(inherited.outcomes.len() as u64, "outcome");
    out.line(format!(
        "inherited: {outcomes}, which will not be done again"
    ))?;
    for step in &inherited.outcomes {
        out.line(format!("  {}", shown(step)))?;
    }
    if let Some(turn) = inherited.turn {
        out.line(format!("  the state after turn {turn}"))?;
    }
    for step in &inherited.in_doubt {
        out.line(format!("  {} is in doubt, as in {origin}", shown(step)))?;
    }
    for resource in &inherited.resources {
        out.line(format!("  depends on {}", shown(resource)))?;
    }
    match document.not_inherited.as_slice() {
        [] => out.line("not inherited: approvals; the fork asks for itself")?,
        asked => {
            let asked: Vec<_> = asked.iter().map(|name| shown(name)).collect();
            let asked = asked.join(", ");
            out.line(format!("not inherited: {asked}; the fork asks for itself"))?;
        }
    }
    let agent = shown(document.agent);
    Ok(out.line(format!(
        "it starts when a program that has agent {agent} opens the store"
    ))?)
}
