//! `dalsegno why`.

use clap::Args;

/// Say why a run is where it is, and what to do
///
/// What it was doing, what it knew, what changed last, what is in doubt, what comes next; and if it
/// is not moving, why not, and the command that moves it on.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno why order-42
  dalsegno why order-42 --json | jq -r .standing

Exit codes: 0 told; 1 failed; 3 told, and the run needs a person; 4 its events are damaged")]
pub struct Why {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: String,
}
