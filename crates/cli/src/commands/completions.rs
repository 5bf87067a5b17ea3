//! `dalsegno completions`: what a shell needs to complete our words.

use clap::CommandFactory;

use crate::args::Cli;
use crate::args::completions::Completions;
use crate::exit::{Exit, Result};
use crate::output::Out;

/// Prints completions.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &Completions, out: &mut Out) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dalsegno", &mut script);
    out.raw(&script)?;
    Ok(Exit::Done)
}
