//! `dalsegno verify`.

use std::path::PathBuf;

use clap::Args;

/// Read everything in the store, and name what is not as it was written
///
/// Every byte of the log, every event and its chain of hashes, every payload, index, snapshot,
/// letter and archive. Changes nothing, and works beside the program that owns the store. With a
/// file, reads that portable file instead, and no store.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno verify
  dalsegno verify --heads              the hash of every stream, to compare with a trusted copy
  dalsegno verify order-42.dalsegno    a file that was exported
  dalsegno verify --json | jq '.problems'

Exit codes: 0 sound; 1 failed; 4 damaged")]
pub struct Verify {
    /// A portable file, instead of the store
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Also the hash of every stream's history, by which nothing in it can be changed unseen
    #[arg(long)]
    pub heads: bool,
}
