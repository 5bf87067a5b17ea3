//! `dalsegno copy`.

use std::path::PathBuf;

use clap::Args;

/// Copy a store between folders and databases
///
/// Copies all runs and memories with their bytes and hashes, reads the copy again from the first
/// event on, and compares the hash of every stream. The other place must be empty, or have nothing
/// but a part of the same: a copy that was interrupted goes on. Into a folder, it is made beside it
/// and gets its name when it is whole; in a database, no worker can claim a run before all are there.
///
/// Nothing is changed where it is copied from, and both can go on from there: to move a store, stop
/// using the old one. What happened to a store itself, such as repairs, stays there.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno copy .dalsegno postgres://app@db/agents
  dalsegno copy postgres://app@db/agents ./from-the-database
  dalsegno copy --live postgres://app@db/agents postgres://app@db/agents?schema=trial

Exit codes: 0 copied, or the same already; 1 failed, or it is in use; 4 a store is damaged, or the
copy differs")]
pub struct Copy {
    /// The store: a folder, or an address
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
    /// Where to: a folder that is empty or missing, or an address
    #[arg(value_name = "TO")]
    pub to: PathBuf,
    /// Also while processes work on it: what they add meanwhile is not copied. Run it again without
    /// this when they are stopped, and it goes on
    #[arg(long)]
    pub live: bool,
}
