//! `dalsegno fork`.

use clap::Args;

/// Begin a new run with the past of another one
///
/// The fork shares the origin's events up to --at: what was done there is not done again. Approvals
/// are not inherited: the fork asks for itself. The fork is recorded, and starts when a program that
/// has its agent opens the store. The origin is not touched. Nobody else may own the store.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno fork order-42 --at 12
  dalsegno fork order-42 --at 12 --as 'order-42 without discount' --outcome 'discount#1=0'
  dalsegno fork order-42 --at 1 --input '{\"amount\": 5}'    the same from the beginning, with another input

Exit codes: 0 forked, or that fork is there already; 1 failed; 2 wrong use; 4 the store is damaged")]
pub struct Fork {
    /// The run to fork
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The last event that is shared; without it, the last there is
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    pub at: Option<u64>,
    /// The name of the fork; without it, the origin's name and the event, as in order-42@12
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// Another input for the run
    #[arg(long, value_name = "JSON")]
    pub input: Option<String>,
    /// Another result of a step, which was the last that is shared; may be given more than once
    #[arg(long, value_name = "STEP=JSON")]
    pub outcome: Vec<String>,
}
