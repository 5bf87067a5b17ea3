//! `dalsegno cancel`.

use clap::Args;

use super::order::How;

/// Ask a run and its children to end
///
/// The run is cancelled where it waits, or between two steps; a step that is under way is not
/// interrupted.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno cancel order-42
  dalsegno cancel order-42 --reason \"the customer called\" --wait 5

Exit codes: 0 sent, with --wait also taken up; 1 refused, or not taken up in time; 4 damaged")]
pub struct Cancel {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Why, in words
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// How
    #[command(flatten)]
    pub how: How,
}
