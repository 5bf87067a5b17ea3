//! `dalsegno show`.

use clap::Args;

/// Show a run step by step
///
/// The steps of a run with how long each took, which process did it (its life) and how often it was
/// taken from the record instead of being done again, attempts, tokens and cost, and what recovery
/// has saved.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno show order-42
  dalsegno show order-42 --events      every event instead of the steps
  dalsegno show order-42 --at 17       what was known when event 17 was the last
  dalsegno show order-42 --json | jq '.steps[] | {step, took_us}'

Exit codes: 0 shown; 1 failed; 3 shown, and the run needs a person (not with --at); 4 damaged")]
pub struct Show {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Every event instead of the steps
    #[arg(long, short)]
    pub events: bool,
    /// As it was when this event was the last
    #[arg(long, value_name = "SEQ")]
    pub at: Option<u64>,
    /// At most so many steps or events, the last ones; 0 for all
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 200)]
    pub limit: usize,
}
