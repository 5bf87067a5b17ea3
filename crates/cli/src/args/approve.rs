//! `dalsegno approve` and `dalsegno deny`.

use clap::Args;

use super::order::{How, Who};

/// Approve what a run asks for
///
/// The answer is on disk when this ends. The process that owns the store takes it up at once, or
/// when it is next started. It counts for exactly what was asked, and once.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno approve order-42                        if it asks for one thing only
  dalsegno approve order-42 refund#1 --by ada --wait 5

Exit codes: 0 sent, with --wait also taken up; 1 refused, or not taken up in time; 4 damaged")]
pub struct Approve {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// What it asks for, as `ls` and `why` show it; may be left out if it is one thing only
    #[arg(value_name = "APPROVAL")]
    pub approval: Option<String>,
    /// Who
    #[command(flatten)]
    pub who: Who,
    /// How
    #[command(flatten)]
    pub how: How,
}

/// Deny what a run asks for
///
/// The counterpart of approve: the run is told no, and goes on with that.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno deny order-42 --why \"too much\"
  dalsegno deny order-42 refund#1 --by ada --wait 5

Exit codes: 0 sent, with --wait also taken up; 1 refused, or not taken up in time; 4 damaged")]
pub struct Deny {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// What it asks for; may be left out if it is one thing only
    #[arg(value_name = "APPROVAL")]
    pub approval: Option<String>,
    /// Why not, in words
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub why: String,
    /// Who
    #[command(flatten)]
    pub who: Who,
    /// How
    #[command(flatten)]
    pub how: How,
}
