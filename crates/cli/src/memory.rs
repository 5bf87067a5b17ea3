//! `dalsegno memory`: what agents know, from the shell.
//!
//! | file | what it does |
//! |---|---|
//! | `add`, `ingest`, `slots`, `plan`, `chunk`, `files` | files, folders and texts become documents |
//! | `list`, `search`, `history`, `diff` | looking, at any version |
//! | `change`, `forget`, `remains` | correct, retract, forget |
//! | `transfer` | export and import |
//! | `opening`, `model`, `when`, `shape` | what they share: stores, models, times, words |
//!
//! Invariant: looking needs no lock and makes nothing. Whatever a command says it has written is on
//! disk by then.

use crate::args::Global;
use crate::args::memory::MemoryCommand;
use crate::exit::{Exit, Result};
use crate::output::Out;

mod add;
mod change;
mod chunk;
mod diff;
mod files;
mod forget;
mod history;
mod ingest;
mod list;
mod model;
mod opening;
mod plan;
mod remains;
mod search;
mod shape;
mod slots;
mod transfer;
pub mod when;

/// Does what was asked.
///
/// # Errors
/// It could not be done.
pub fn run(command: &MemoryCommand, global: &Global, out: &mut Out) -> Result<Exit> {
    match command {
        MemoryCommand::Add(args) => add::run(args, global, out),
        MemoryCommand::Ls(args) => list::ls(args, global, out),
        MemoryCommand::Get(args) => list::get(args, global, out),
        MemoryCommand::Search(args) => search::run(args, global, out),
        MemoryCommand::History(args) => history::run(args, global, out),
        MemoryCommand::At(args) => list::at(args, global, out),
        MemoryCommand::Diff(args) => diff::run(args, global, out),
        MemoryCommand::Correct(args) => change::correct(args, global, out),
        MemoryCommand::Retract(args) => change::retract(args, global, out),
        MemoryCommand::Forget(args) => forget::forget(args, global, out),
        MemoryCommand::Export(args) => transfer::export(args, global, out),
        MemoryCommand::Import(args) => transfer::import(args, global, out),
    }
}
