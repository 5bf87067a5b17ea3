//! `dalsegno recover`.

use clap::Args;

/// Recover the store after a crash, and say what will become of each run
///
/// Agents are code, and this command has none: the program that has them goes on with its runs by
/// itself when it opens the store. What is done here is what needs no agent: the store is opened
/// as its owner, which cuts off a torn write, records the recovery and ends the leases of dead
/// workers; letters that wait are taken up. With --dry-run not even that: it is only said what the
/// next program will do with each unfinished run, and why.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno recover --dry-run
  dalsegno recover --dry-run --json | jq -r '.runs[] | select(.action == \"needs-person\").run'

Exit codes: 0 done; 1 failed; 3 the same, and some run needs a person; 4 the store is damaged")]
pub struct Recover {
    /// Change nothing; works beside the program that owns the store
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}
