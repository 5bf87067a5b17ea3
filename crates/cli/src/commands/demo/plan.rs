//! When the worker is killed.

use std::time::Duration;

use dalsegno_story::agent::{STEPS, requests_before};

/// When one worker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// So long after it was started.
    AfterStart(Duration),
    /// So long after it has opened the store.
    AfterOpen(Duration),
    /// So long after the world has had so many requests of it.
    AfterRequests(u64, Duration),
    /// As soon as this step is seen in the store: it asks nothing of the world.
    AtStep(&'static str),
    /// It is left alone.
    Never,
}

impl Plan {
    /// In the middle of a step, counted from 1, of a run that was not disturbed before.
    pub fn at(step: u8) -> Plan {
        let name = STEPS[usize::from(step.clamp(1, 12)) - 1];
        match requests_before(name) {
            Some(before) => Plan::AfterRequests(before + 1, Duration::ZERO),
            None => Plan::AtStep(name),
        }
    }
}

/// The kills that are to come.
#[derive(Clone, Debug)]
pub enum Kills {
    /// One, in the middle of a step.
    At(u8),
    /// So many at random moments.
    Random {
        left: u32,
        numbers: Random,
        /// How long the world takes for a reply.
        pace: Duration,
    },
}

impl Kills {
    /// For the next worker.
    pub fn next(&mut self, made: u32) -> Plan {
        match self {
            Kills::At(step) if made == 0 => Plan::at(*step),
            Kills::At(_) => Plan::Never,
            Kills::Random { left, .. } if made >= *left => Plan::Never,
            Kills::Random { numbers, pace, .. } => {
                let reply_us = pace.as_micros() as u64 + 5_000;
                let kind = numbers.below(8);
                let requests = 1 + numbers.below(3);
                let mut within = |us: u64| Duration::from_micros(numbers.below(us));
                match kind {
                    0 => Plan::AfterStart(within(25_000)),
                    1 => Plan::AfterOpen(within(reply_us)),
                    _ => Plan::AfterRequests(requests, within(reply_us)),
                }
            }
        }
    }

    /// The request that the world must not answer, for the kill to be in the middle of it.
    pub fn holds(&self) -> Option<u64> {
        match self {
            Kills::At(step) => match Plan::at(*step) {
                Plan::AfterRequests(number, _) => Some(number),
                _ => None,
            },
            Kills::Random { .. } => None,
        }
    }

    /// How many are to be made in all.
    pub fn wanted(&self) -> u32 {
        match self {
            Kills::At(_) => 1,
            Kills::Random { left, .. } => *left,
        }
    }
}

/// Numbers that follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_moments() {
        let moments = |seed| {
            let mut kills = Kills::Random {
                left: 20,
                numbers: Random(seed),
                pace: Duration::from_millis(100),
            };
            (0..21).map(|made| kills.next(made)).collect::<Vec<_>>()
        };
        assert_eq!(moments(1), moments(1));
        assert_ne!(moments(1), moments(2));
        assert_eq!(moments(1)[20], Plan::Never);
    }

    #[test]
    fn step_7_is_the_sixth_request() {
        assert_eq!(Plan::at(7), Plan::AfterRequests(6, Duration::ZERO));
        assert_eq!(Plan::at(9), Plan::AtStep("publish"));
        assert_eq!(Plan::at(10), Plan::AfterRequests(7, Duration::ZERO));
    }
}
