//! `dalsegno top`.

use clap::Args;

/// Watch the runs live in the terminal, and answer what they ask
///
/// A list of all runs, those that need a person first, and what is known of the selected one. Reads
/// without a lock, also beside a live owner; what you approve, deny, resolve, signal or cancel goes
/// through the store's mailbox, and you see when it is taken up. Nothing is sent before you have seen
/// exactly what, and have said yes. Press `?` for the keys.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno top                             watch the store in .dalsegno
  dalsegno top --store DIR --by ada        answer as ada
  dalsegno top --filter order              only runs whose name, agent or state has this in it

Keys: arrows or j k move, Enter opens, Tab turns the page, a approve, d deny, r resolve, s signal,
c cancel, g go on after attention, / filter, ? help, q quit

Exit codes: 0 left; 1 failed; 2 not on a terminal; 4 the store is damaged")]
pub struct Top {
    /// Who you are, as the record shall say it
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    #[arg(default_value = "somebody")]
    pub by: String,
    /// Only runs whose name, agent or state has this in it
    #[arg(long, short, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// For tests: panics
    #[arg(long, hide = true)]
    pub panic: bool,
}
