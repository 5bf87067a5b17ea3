//! When a failed step is tried again.
//!
//! Invariant: the time of the next attempt is recorded with the failure, so that a process that
//! takes over waits for the same time.

use std::time::Duration;

/// How often a step is tried, and how long it waits in between.
///
/// The wait doubles from attempt to attempt up to a limit; each is cut by up to a half, differently
/// for each step, so that runs which failed together do not come back together.
///
/// ```
/// use std::time::Duration;
/// use dalsegno::Retry;
///
/// let retry = Retry::times(5).first(Duration::from_millis(200)).at_most(Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    attempts: u64,
    first: Duration,
    factor: f64,
    at_most: Duration,
}

impl Retry {
    /// Tried once, and that is it.
    pub const NEVER: Retry = Retry::times(1);

    /// At most so many attempts in all.
    pub const fn times(attempts: u64) -> Retry {
        Retry {
            attempts,
            first: Duration::from_millis(100),
            factor: 2.0,
            at_most: Duration::from_secs(60),
        }
    }

    /// The longest wait before the second attempt.
    pub const fn first(mut self, wait: Duration) -> Retry {
        self.first = wait;
        self
    }

    /// What the wait is multiplied with from attempt to attempt.
    pub const fn factor(mut self, factor: f64) -> Retry {
        self.factor = factor;
        self
    }

    /// The longest wait.
    pub const fn at_most(mut self, wait: Duration) -> Retry {
        self.at_most = wait;
        self
    }

    /// How long to wait after an attempt; `None` if that was the last one.
    pub(crate) fn wait(&self, attempt: u64, key: &str) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let power = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
        let factor = if self.factor >= 1.0 { self.factor } else { 1.0 };
        let seconds = self.first.as_secs_f64() * factor.powi(power);
        let longest = seconds.min(self.at_most.as_secs_f64());
        let cut = blake3::hash(format!("{key} {attempt}").as_bytes());
        let cut = u16::from_le_bytes([cut.as_bytes()[0], cut.as_bytes()[1]]);
        let part = 1.0 - f64::from(cut) / f64::from(u16::MAX) / 2.0;
        // The longest time there is cannot be written as seconds with a fraction.
        let wait = Duration::try_from_secs_f64(longest * part);
        Some(wait.unwrap_or(self.at_most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_up_to_its_limit_and_is_cut_by_at_most_half() {
        let retry = Retry::times(10).at_most(Duration::from_secs(1));
        for attempt in 1..10 {
            let longest = 0.1 * f64::from(1 << (attempt - 1));
            let longest = longest.min(1.0);
            let wait = retry.wait(attempt, "key").map(|wait| wait.as_secs_f64());
            let wait = wait.unwrap_or(-1.0);
            assert!(
                wait <= longest && wait >= longest / 2.0 - 1e-6,
                "{attempt}: {wait}"
            );
        }
        assert_eq!(retry.wait(10, "key"), None);
        assert_eq!(Retry::NEVER.wait(1, "key"), None);
    }

    #[test]
    fn steps_that_fail_together_come_back_apart() {
        let retry = Retry::times(2);
        let waits: std::collections::HashSet<_> = (0..100)
            .map(|step| retry.wait(1, &format!("{step}")))
            .collect();
        assert!(waits.len() > 90, "{}", waits.len());
    }

    #[test]
    fn a_million_attempts_do_not_overflow() {
        let retry = Retry::times(u64::MAX);
        assert!(retry.wait(1_000_000_000_000, "key").is_some());
        // Whatever is cut from it.
        let retry = retry.first(Duration::MAX).at_most(Duration::MAX);
        for key in 0..200_000 {
            assert!(retry.wait(1, &key.to_string()).is_some());
        }
    }
}
