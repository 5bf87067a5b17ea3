//! `dalsegno ls`.

use clap::{Args, ValueEnum};
use dalsegno_store::Status;

/// List runs, those that need a person first
///
/// The runs of the store with their status, age and what they wait for. Those that need a person
/// come first, then what is going on, then what has ended; within these the newest first.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno ls                              all runs, the newest 50
  dalsegno ls --waiting                    what waits, and for what
  dalsegno ls --status failed --limit 0    everything that has failed
  dalsegno ls --json | jq -r '.runs[].run'

Exit codes: 0 listed, also if there is none; 1 failed; 4 the store is damaged")]
pub struct Ls {
    /// Only runs of this status; may be given more than once
    #[arg(long, short, value_name = "STATUS", value_delimiter = ',')]
    pub status: Vec<StatusArg>,
    /// Only runs of this agent
    #[arg(long, short, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only runs that wait for something: a person, a signal, a time, another run, a process
    #[arg(long, short)]
    pub waiting: bool,
    /// At most so many runs; 0 for all
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    pub limit: usize,
}

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusArg {
    /// Created, not begun
    Pending,
    /// A worker has it
    Running,
    /// Written down, waiting, in no worker's memory
    Checkpointed,
    /// Done
    Completed,
    /// Ended in an error
    Failed,
    /// Ended by somebody
    Cancelled,
    /// Whatever its status: only a person can move it on
    NeedsPerson,
}

impl StatusArg {
    /// The store's word; `None` for what is no status of the store.
    pub fn status(self) -> Option<Status> {
        Some(match self {
            StatusArg::Pending => Status::Pending,
            StatusArg::Running => Status::Running,
            StatusArg::Checkpointed => Status::Checkpointed,
            StatusArg::Completed => Status::Completed,
            StatusArg::Failed => Status::Failed,
            StatusArg::Cancelled => Status::Cancelled,
            StatusArg::NeedsPerson => return None,
        })
    }
}
