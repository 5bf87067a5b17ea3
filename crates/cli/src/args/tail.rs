//! `dalsegno tail`.

use clap::Args;

/// Follow the events of a run, or of all runs
///
/// Prints events as they come, without a lock, beside whoever owns the store. Ends when the run
/// ends, or with Ctrl-C: everything that was seen is printed by then.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno tail                        all runs
  dalsegno tail order-42               until it ends
  dalsegno tail order-42 --from 1      from its first event on
  dalsegno tail --json | jq -c 'select(.kind == \"step-failed\")'

Exit codes: 0 the run has ended, or was left with Ctrl-C; 1 failed; 4 damaged")]
pub struct Tail {
    /// The run; all if none is named
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Begin with this event of the run; without a run, with this position of the store
    #[arg(long, value_name = "SEQ", conflicts_with = "last")]
    pub from: Option<u64>,
    /// Begin with so many events that are there already
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 10)]
    pub last: usize,
}
