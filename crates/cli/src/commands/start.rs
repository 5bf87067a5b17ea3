//! `dalsegno start`: a run for a worker to execute.
//!
//! Invariant: who is told that the run is started can rely on it: it is durable then.

use std::io::Read;

use dalsegno::Start;
use dalsegno_store::Limits;
use serde::Serialize;
use serde_json::Value;

use super::resolve::json;
use crate::args::Global;
use crate::args::start::StartArgs;
use crate::exit::{Error, Exit, Result};
use crate::open::{self, Opened};
use crate::output::Out;
use crate::output::text::shown;
use crate::runtime;

/// `dalsegno.start/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    run: &'a str,
    agent: &'a str,
    /// It was not there before.
    new: bool,
    /// What was asked for; a run that was there keeps its own.
    queue: &'a str,
    priority: u32,
}

/// Starts a run.
///
/// # Errors
/// The name is taken by another one, or the store does not work or is another process's.
pub fn run(args: &StartArgs, global: &Global, out: &mut Out) -> Result<Exit> {
    let input = input(&args.input)?;
    if args.agent.is_empty() {
        return Err(Error::usage("an agent has a name").hint("as in dalsegno start report RUN"));
    }
    let start = Start::new()
        .queue(args.queue.as_str())
        .priority(args.priority);
    // A name that cannot be one makes no store.
    dalsegno_store::StreamId::run(&args.run)?;
    let opened = open::writer_or_new(&global.store).map_err(|e| in_use(e, global))?;
    let new = runtime::block_on(async {
        let store = opened.store();
        let made = dalsegno::create_in(&*store, &args.agent, &args.run, &input, &start).await;
        Ok(made?)
    })?;
    opened.close()?;
    if out.is_json() {
        out.json(&Document {
            schema: "dalsegno.start/1",
            run: &args.run,
            agent: &args.agent,
            new,
            queue: &args.queue,
            priority: args.priority,
        })?;
    } else {
        out.line(words(args, &opened, new))?;
    }
    Ok(Exit::Done)
}

fn words(args: &StartArgs, opened: &Opened, new: bool) -> String {
    let (run, agent) = (shown(&args.run), shown(&args.agent));
    match (new, opened) {
        (false, _) => format!("run {run} of agent {agent} is there already"),
        (true, Opened::Folder(_)) => format!(
            "run {run} is started: it goes on when a program that has agent {agent} opens the store"
        ),
        #[cfg(feature = "postgres")]
        (true, Opened::Database(_)) => {
            format!("run {run} is started: a worker that has agent {agent} takes it up")
        }
    }
}

fn in_use(error: Error, global: &Global) -> Error {
    match open::owner_now(global) {
        Some(owner) => Error::failed(format!(
            "only the process that owns a store in a folder can start runs in it, and that is {}",
            shown(&owner)
        ))
        .hint("stop it first, or call Dalsegno::start in that program"),
        None => error,
    }
}

/// What a run is started with.
fn input(text: &str) -> Result<Value> {
    match text.strip_prefix('@') {
        Some(file) => {
            let opened = std::fs::File::open(file)
                .map_err(|e| Error::failed(format!("cannot read {}: {e}", shown(file))))?;
            json(&all_of(opened, file)?, &format!("the file {}", shown(file)))
        }
        None if text == "-" => {
            let what = "the standard input";
            json(&all_of(std::io::stdin(), what)?, what)
        }
        None => json(text, "--input"),
    }
}

/// No more than a payload can be, and a byte to notice that it is more.
fn all_of(from: impl Read, what: &str) -> Result<String> {
    let limit = Limits::default().payload_bytes;
    let mut text = String::new();
    let read = from.take(limit + 1).read_to_string(&mut text);
    read.map_err(|e| Error::failed(format!("cannot read {}: {e}", shown(what))))?;
    match text.len() as u64 > limit {
        true => {
            let what = format!("{} is longer than {limit} bytes", shown(what));
            Err(Error::usage(what).hint("put it elsewhere, and start the run with its name"))
        }
        false => Ok(text),
    }
}
