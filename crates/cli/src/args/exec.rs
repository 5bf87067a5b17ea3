//! `dalsegno exec`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

/// Run a process and start it again when it crashes
///
/// For agents that hold their store themselves, and scripts of steps: both go on where they were.
/// SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on. After SIGTERM or SIGINT the
/// process is not started again; if it has not ended when the grace period is over, or when the
/// signal comes a second time, it is killed. It is killed too if this process is.
///
/// The process finds in its environment DALSEGNO_RUN, if --run is given, DALSEGNO_STORE, and in
/// DALSEGNO_RESTARTS how often it was started again. As PID 1 of a container this also reaps the
/// processes that others have left.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno exec -- ./agent
  dalsegno exec --run nightly --max-restarts 20 -- ./nightly.sh
  dalsegno exec --restart always --grace 1m -- ./server

Exit codes: that of the process at its last end, 128 + n if signal n ended it, also after SIGTERM;
  125 dalsegno failed, 126 the process cannot be run, 127 it was not found. A process that ends with
  3 (a person is needed) is not started again: it would only ask again.")]
pub struct Exec {
    /// The run that the process works on, for its environment
    #[arg(long, short, value_name = "RUN")]
    pub run: Option<String>,
    /// When to start it again
    #[arg(long, value_name = "WHEN", default_value = "on-failure")]
    pub restart: Restart,
    /// Give up after so many restarts in a row; 0 for never. A process that has run for a minute begins a new row
    #[arg(long, value_name = "TIMES", default_value_t = 10)]
    pub max_restarts: u32,
    /// How long to wait before the first restart; twice as long each time in a row
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    pub backoff: Duration,
    /// The longest wait before a restart
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration::parse)]
    pub max_backoff: Duration,
    /// How long it may take to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub grace: Duration,
    /// The process and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// When a process is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Restart {
    /// When a signal ended it, or with another code than 0
    OnFailure,
    /// Whenever it ends
    Always,
    /// Never
    Never,
}
