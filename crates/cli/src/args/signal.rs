//! `dalsegno signal`.

use clap::Args;

use super::order::How;

/// Send a signal to a run
///
/// The signal is on disk when this ends. A run that does not wait for it yet finds it when it does.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno signal order-42 paid
  dalsegno signal order-42 paid '{\"amount\": 12}' --wait 5
  dalsegno signal order-42 note --text \"call her back\"
  dalsegno signal order-42 report - < report.json

Exit codes: 0 sent, with --wait also taken up; 1 refused, or not taken up in time; 4 damaged")]
pub struct Signal {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The name of the signal
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What it brings, as JSON; - reads it from the standard input
    #[arg(value_name = "JSON", default_value = "null")]
    pub value: String,
    /// What it brings, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "value")]
    pub text: Option<String>,
    /// How
    #[command(flatten)]
    pub how: How,
}
