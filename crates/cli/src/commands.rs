//! The commands, one file each: `run(args, global, out)` does what was asked and says how it ended.

use crate::args::{Cli, Command};
use crate::exit::{Exit, Result};
use crate::output::Out;

mod approve;
mod cancel;
mod completions;
mod copy;
mod demo;
mod diff;
mod doctor;
mod end;
mod exec;
pub mod export;
mod fork;
mod gc;
pub mod import;
mod ls;
mod man;
mod order;
mod recover;
mod repair;
mod resolve;
mod show;
mod signal;
mod snapshot;
mod start;
pub mod step;
mod tail;
#[cfg(feature = "top")]
mod top;
mod verify;
mod why;
mod worker;

/// Does what was asked.
///
/// # Errors
/// It could not be done.
pub fn run(cli: Cli, out: &mut Out) -> Result<Exit> {
    let global = &cli.global;
    match cli.command {
        Command::Demo(args) => demo::run(&args, out),
        Command::Ls(args) => ls::run(&args, global, out),
        Command::Show(args) => show::run(&args, global, out),
        Command::Tail(args) => tail::run(&args, global, out),
        Command::Why(args) => why::run(&args, global, out),
        Command::Memory(args) => crate::memory::run(&args.command, global, out),
        Command::Diff(args) => diff::run(&args, global, out),
        Command::Approve(args) => approve::run(&args, global, out),
        Command::Deny(args) => approve::run_deny(&args, global, out),
        Command::Resolve(args) => resolve::run(&args, global, out),
        Command::Signal(args) => signal::run(&args, global, out),
        Command::Cancel(args) => cancel::run(&args, global, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Man(args) => man::run(&args, out),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args, global, out),
        Command::Recover(args) => recover::run(&args, global, out),
        Command::Fork(args) => fork::run(&args, global, out),
        Command::Doctor(args) => doctor::run(&args, global, out),
        Command::Verify(args) => verify::run(&args, global, out),
        Command::Repair(args) => repair::run(&args, global, out),
        Command::Export(args) => export::run(&args, global, out),
        Command::Import(args) => import::run(&args, global, out),
        Command::Copy(args) => copy::run(&args, global, out),
        Command::Snapshot(args) => snapshot::run(&args, global, out),
        Command::Gc(args) => gc::run(&args, global, out),
        Command::Step(args) => step::run(&args, global, out),
        Command::End(args) => end::run(&args, global, out),
        Command::Exec(args) => exec::run(&args, global, out),
        Command::Start(args) => start::run(&args, global, out),
        Command::Worker(args) => worker::run(&args, global, out),
    }
}
