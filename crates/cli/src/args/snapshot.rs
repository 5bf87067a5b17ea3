//! `dalsegno snapshot`.

use std::path::PathBuf;

use clap::Args;

/// Write, pin and list recovery points, or copy the store
///
/// A recovery point is the store's state, written down: opening begins with the newest, falls back
/// to the one before if that is damaged, and then to pinned ones, which are kept until unpinned.
/// Writing one needs a store that nobody else owns.
///
/// With a folder, copies the whole store there, also beside the program that owns it: a backup of
/// one moment that opens as it is. The copy is verified.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno snapshot --pin               a recovery point before something risky
  dalsegno snapshot --list
  dalsegno snapshot --unpin 1234
  dalsegno snapshot /backup/today       a copy of the store, while it is in use

Exit codes: 0 done; 1 failed; 4 the store, or what was copied, is damaged")]
pub struct Snapshot {
    /// Copy the store into this folder, which must be empty or missing
    #[arg(value_name = "DIR", conflicts_with_all = ["pin", "unpin", "list"])]
    pub dir: Option<PathBuf>,
    /// Keep the recovery point until it is unpinned
    #[arg(long)]
    pub pin: bool,
    /// Give up the recovery point that was pinned at this position
    #[arg(long, value_name = "POSITION", conflicts_with_all = ["pin", "list"])]
    pub unpin: Option<u64>,
    /// Only list the recovery points there are
    #[arg(long, short, conflicts_with = "pin")]
    pub list: bool,
}
