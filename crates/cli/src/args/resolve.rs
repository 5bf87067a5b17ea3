//! `dalsegno resolve`.

use clap::Args;

use super::order::{How, Who};

/// Say what became of a step in doubt, or let a stopped run go on
///
/// A step is in doubt if it must not happen twice and its process died in the middle. Look whether
/// it happened (its idempotency key is in `dalsegno why`), then say so. A run that stopped for
/// another reason goes on with --go-on when that is gone, or with more --budget.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(after_long_help = "\
Examples:
  dalsegno resolve order-42 --happened --result '{\"id\": 17}'
  dalsegno resolve order-42 pay#1 --did-not-happen --wait 5
  dalsegno resolve order-42 --fail
  dalsegno resolve order-42 --go-on
  dalsegno resolve order-42 --budget tokens=200000

Exit codes: 0 sent, with --wait also taken up; 1 refused, or not taken up in time; 4 damaged")]
pub struct Resolve {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The step in doubt; may be left out if there is only one
    #[arg(value_name = "STEP", conflicts_with_all = ["go_on", "budget"])]
    pub step: Option<String>,
    /// It happened: it is not done again
    #[arg(long, group = "what")]
    pub happened: bool,
    /// What it came to, as JSON
    #[arg(
        long,
        value_name = "JSON",
        requires = "happened",
        default_value = "null"
    )]
    pub result: String,
    /// It did not happen: it is done now
    #[arg(long, group = "what")]
    pub did_not_happen: bool,
    /// Nobody will know, or it does not matter: the run fails
    #[arg(long, group = "what")]
    pub fail: bool,
    /// The reason why the run stopped is gone: it tries again
    #[arg(long, group = "what")]
    pub go_on: bool,
    /// What it may use from now on: steps=N, tokens=N, cost=N (millionths), seconds=N
    #[arg(long, group = "what", value_name = "WHAT=N", value_delimiter = ',')]
    pub budget: Vec<String>,
    /// Who
    #[command(flatten)]
    pub who: Who,
    /// How
    #[command(flatten)]
    pub how: How,
}
