//! What the commands share that say something to a run.

use std::time::Duration;

use clap::Args;

use super::{not_blank, unless_blank};

/// How something is said.
#[derive(Args, Clone, Debug)]
pub struct How {
    /// Wait up to so many seconds until it is taken up, and fail if it is not
    #[arg(long, short, value_name = "SECS", value_parser = seconds)]
    pub wait: Option<Duration>,
}

/// Who says it.
#[derive(Args, Clone, Debug)]
pub struct Who {
    /// Who says so
    #[arg(
        long,
        value_name = "NAME",
        env = unless_blank("USER"),
        default_value = "somebody",
        value_parser = not_blank,
        hide_env_values = true
    )]
    pub by: String,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}
