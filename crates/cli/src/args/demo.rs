//! `dalsegno demo`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Kill a real agent in the middle of its work, and see that nothing is lost or done twice
///
/// Runs an agent of 12 steps in a process of its own, against a world in another process that keeps
/// its own ledger. The agent's process is killed with SIGKILL at step 7; another one is started and
/// goes on. What is recorded is shown as it comes, then what the world has counted, then whether
/// today's code still does what is recorded. Needs nothing but this binary, and leaves nothing.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno demo                        one kill, in the middle of step 7
  dalsegno demo --at 10                in the middle of an effect that must not happen twice
  dalsegno demo --at 10 --no-probe     the same, where nobody can tell: a person is asked
  dalsegno demo --kills 10 --seed 1    ten kills at random moments
  dalsegno demo --keep my-demo         keep the store, to look at with the other commands

Exit codes: 0 every effect happened exactly once, the result is that of a run that was never
disturbed, and replay goes the same way; 1 not so, or it could not be run; 130 interrupted")]
pub struct Demo {
    /// Kill so many times at random moments, instead of once
    #[arg(long, value_name = "COUNT", conflicts_with = "at")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub kills: Option<u32>,
    /// What the random moments follow from; a new one each time if it is not given
    #[arg(long, value_name = "NUMBER", requires = "kills")]
    pub seed: Option<u64>,
    /// The step to kill in
    #[arg(long, value_name = "STEP", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=12))]
    pub at: u8,
    /// Nobody can ask the world whether an effect happened: a person is needed then
    #[arg(long)]
    pub no_probe: bool,
    /// How long the world takes for a reply, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub pace: u64,
    /// Keep the store and the ledger in this folder, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// For tests: the world does what it should do once twice
    #[arg(long, hide = true)]
    pub broken_world: bool,
    /// Which of its own processes this is
    #[arg(long, hide = true, value_name = "PART")]
    pub part: Option<Part>,
    /// What that process is told
    #[arg(last = true, hide = true)]
    pub told: Vec<OsString>,
}

/// A process of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Keeps the ledger.
    World,
    /// Executes the agent, and is killed.
    Worker,
}
