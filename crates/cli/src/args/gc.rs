//! `dalsegno gc`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Remove old runs that have ended, and give their space back
///
/// A run goes if it has ended, is older than --older-than, and is not among the newest that --keep
/// keeps. With it go the pieces of payloads that nobody else needs. Runs that have not ended are
/// never touched. What an interrupted gc left is taken up, too. Nobody else may own the store, but
/// for --dry-run.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno gc --older-than 30d --dry-run
  dalsegno gc --older-than 30d --archive /backup/runs
  dalsegno gc --keep 1000

Exit codes: 0 done; 1 failed; 4 runs that were to be archived are damaged, and stay")]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
pub struct Gc {
    /// Only runs that ended so long ago, as in 90s, 45m, 12h, 30d, 2w
    #[arg(long, value_name = "AGE", value_parser = age, group = "which")]
    pub older_than: Option<Duration>,
    /// Keep so many of the runs that ended last
    #[arg(long, value_name = "COUNT", group = "which")]
    pub keep: Option<usize>,
    /// Write the runs into portable files in this folder first
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
    /// Only say what would go, and how many bytes that is
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// A number and a unit.
fn age(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err("give a number and s, m, h, d or w, as in 30d".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "give a whole number".to_owned())?;
    let seconds = number.checked_mul(seconds);
    // Microseconds have to fit, too.
    let seconds = seconds.filter(|seconds| *seconds < u64::MAX / 1_000_000);
    seconds
        .map(Duration::from_secs)
        .ok_or("that is too long ago".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(age("2w"), Ok(Duration::from_secs(14 * 86_400)));
        assert_eq!(age("0s"), Ok(Duration::ZERO));
        for bad in [
            "",
            "30",
            "d",
            "3.5d",
            "-1d",
            "99999999999999999999w",
            "30 d",
            "30é",
        ] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
