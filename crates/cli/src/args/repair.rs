//! `dalsegno repair`.

use clap::Args;

/// Make a damaged store usable again, keeping all that is readable
///
/// Says exactly what will be done and what will be lost, and does it with --yes only. Nothing that
/// is readable is given up; whatever is taken away is kept under another name; the store records
/// that it was repaired. Restoring a copy is better, if there is one. Nobody else may own the store.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno repair --dry-run    what would be done, and lost
  dalsegno repair --yes        do it

Exit codes: 0 sound, or sound again; 1 failed; 3 --yes is missing; 4 damaged, with --dry-run or
where a repair cannot help")]
pub struct Repair {
    /// Only say what would be done; changes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do it
    #[arg(long, short, conflicts_with = "dry_run")]
    pub yes: bool,
}
