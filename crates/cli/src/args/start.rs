//! `dalsegno start`.

use clap::Args;

/// Start a run, for a worker to execute
///
/// The run is recorded, and taken up by a worker that has its agent: `dalsegno worker`, or a program
/// that uses the library. In a folder that is the next program that opens the store; while one owns
/// it, only that one can start runs there. The same start again is one run. The store is made if there
/// is none.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno start report 'on whales' --input '\"whales\"'
  dalsegno start load night-17 --input @rows.json --queue slow --priority 5
  make-input | dalsegno start report 'on whales' --input -

Exit codes: 0 started, or that run is there already; 1 failed, also if the name is taken by a run with
  another agent or input; 2 wrong use; 4 the store is damaged")]
pub struct StartArgs {
    /// The agent that the run is of
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The name of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// What it is started with, as JSON; @FILE reads it from a file, - from the standard input
    #[arg(long, value_name = "JSON", default_value = "null")]
    pub input: String,
    /// Only workers that look into this queue take it
    #[arg(long, value_name = "QUEUE", default_value = "")]
    pub queue: String,
    /// Workers take runs with a higher number first
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub priority: u32,
}
