//! What can be asked for, as clap types: one file a command, what all commands share here.
//!
//! Invariant: every command has a line about it, a long help with an example that works, and the
//! options of [`Global`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;

pub mod approve;
pub mod cancel;
pub mod completions;
pub mod copy;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod duration;
pub mod exec;
pub mod export;
pub mod fork;
pub mod gc;
pub mod import;
pub mod ls;
pub mod memory;
pub mod order;
pub mod recover;
pub mod repair;
pub mod resolve;
pub mod show;
pub mod signal;
pub mod snapshot;
pub mod start;
pub mod step;
pub mod tail;
#[cfg(feature = "top")]
pub mod top;
pub mod verify;
pub mod why;
pub mod worker;

/// Headings in bold instead of underlined: a terminal is no typewriter.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// See, control and believe crash-safe agents
///
/// Reads and speaks to a store of agents' runs, also while a program owns it. Exit codes: 0 done,
/// 1 failed, 2 wrong use, 3 a person is needed, 4 the store is damaged.
#[derive(Debug, Parser)]
#[command(name = "dalsegno", version, styles = STYLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What all commands share.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What all commands share.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The store: a folder, or the address of a database, as in postgres://user@host/database
    #[arg(long, global = true, env = "DALSEGNO_STORE", value_name = "STORE")]
    #[arg(default_value = ".dalsegno", hide_env_values = true)]
    pub store: PathBuf,
    /// Print JSON, one document a line, as described in docs/cli.md
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colour; NO_COLOR in the environment means never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// A variable that an option may be in; none if it is blank there, which is as good as not set.
fn unless_blank(variable: &'static str) -> Option<&'static str> {
    let value = std::env::var_os(variable);
    let is_blank = value.is_some_and(|value| value.to_string_lossy().trim().is_empty());
    (!is_blank).then_some(variable)
}

/// Text that says something.
fn not_blank(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("it is blank: say something, or leave the option out".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Also in a pipe.
    Always,
    /// Not at all.
    Never,
}

/// What to do. What is said about a command stands at its own type.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Ls(ls::Ls),
    Show(show::Show),
    Tail(tail::Tail),
    Why(why::Why),
    #[cfg(feature = "top")]
    Top(top::Top),
    Approve(approve::Approve),
    Deny(approve::Deny),
    Resolve(resolve::Resolve),
    Signal(signal::Signal),
    Cancel(cancel::Cancel),
    Step(step::StepArgs),
    End(step::End),
    Exec(exec::Exec),
    Start(start::StartArgs),
    Worker(worker::WorkerArgs),
    Memory(memory::MemoryArgs),
    Diff(diff::Diff),
    Fork(fork::Fork),
    Recover(recover::Recover),
    Doctor(doctor::Doctor),
    Verify(verify::Verify),
    Repair(repair::Repair),
    Export(export::Export),
    Import(import::Import),
    Copy(copy::Copy),
    Snapshot(snapshot::Snapshot),
    Gc(gc::Gc),
    Completions(completions::Completions),
    Man(completions::Man),
}

/// What was asked for.
///
/// # Errors
/// It was help, or wrong: that was printed, and this is the code to end with.
pub fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse()
        .map_err(|error| exit::usage(&error, std::env::args_os().any(|a| a == "--json")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    /// Help without an example leaves its reader alone.
    #[test]
    fn every_command_has_an_example() {
        let cli = Cli::command();
        let all = cli.get_subcommands().flat_map(|command| {
            let name = command.get_name().to_owned();
            let inner = command.get_subcommands();
            let inner = inner.map(|c| (format!("{name} {}", c.get_name()), c));
            let inner: Vec<_> = inner.collect();
            inner.into_iter().chain([(name, command)])
        });
        for (name, command) in all.filter(|(name, _)| !name.ends_with("help")) {
            let after = command.get_after_long_help().map(ToString::to_string);
            let after = after.unwrap_or_default();
            assert!(after.contains("Example"), "{name} has no example");
            assert!(after.contains(&format!("dalsegno {name}")), "{name}");
            assert!(command.get_about().is_some(), "{name} has no about");
        }
    }
}
