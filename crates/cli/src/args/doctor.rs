//! `dalsegno doctor`.

use clap::Args;

/// Check that the store and the machine can keep a promise
///
/// Whether the folder can be written and synced and how long that takes, the space left, the file
/// system, permissions, limits, the clock, the format, who owns the store and whether letters wait.
/// Each check is ok, warn or bad, with what to do. Works beside the program that owns the store.
/// Damage inside of the log is found by `dalsegno verify`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno doctor
  dalsegno doctor --json | jq '.checks[] | select(.verdict != \"ok\")'

Exit codes: 0 nothing is bad; 1 something is; 4 the store is damaged")]
pub struct Doctor {}
