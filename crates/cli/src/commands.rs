//! The commands, one file each: `run(args, global, out)` does what was asked and says how it ended.

use crate::args::{Cli, Command};
use crate::exit::{Exit, Result};
use crate::output::Out;

mod ls;

/// Does what was asked.
///
/// # Errors
/// It could not be done.
pub fn run(cli: Cli, out: &mut Out) -> Result<Exit> {
    let global = &cli.global;
    match cli.command {
        Command::Ls(args) => ls::run(&args, global, out),
    }
}
