//! `dalsegno diff`.

use std::path::PathBuf;

use clap::Args;

/// Find where two runs first differ
///
/// Compares agent, input, steps with their inputs and outcomes, and the end, and shows both sides of
/// the first difference. What a clock, a die or an id gave is not compared, nor the order in which
/// parallel branches came.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno diff order-42 order-42-retry
  dalsegno diff order-42 order-42 --other-store ./yesterday.dalsegno

Exit codes: 0 the same; 1 they differ, or it failed (then there is an error); 4 damaged")]
pub struct Diff {
    /// The one run
    #[arg(value_name = "RUN")]
    pub left: String,
    /// The other run
    #[arg(value_name = "OTHER")]
    pub right: String,
    /// The store of the other run, if it is another one: a folder, or an address
    #[arg(long, value_name = "STORE")]
    pub other_store: Option<PathBuf>,
}
