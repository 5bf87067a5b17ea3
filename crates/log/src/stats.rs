//! How the disk behaves, measured while the log works.

use std::time::Duration;

/// Buckets double from 16 microseconds to over a second.
const BUCKETS: usize = 18;
const FIRST_BUCKET_MICROS: u64 = 16;
const SLOW: Duration = Duration::from_secs(1);

/// Times of the syncs since the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// How many syncs there were.
    pub syncs: u64,
    /// How many bytes they made durable.
    pub bytes: u64,
    /// The slowest one.
    pub slowest: Duration,
    /// How many took over a second: a reason to look at the disk.
    pub over_a_second: u64,
    counts: [u64; BUCKETS],
}

impl SyncTimes {
    pub(crate) fn add(&mut self, took: Duration, bytes: usize) {
        self.syncs += 1;
        self.bytes += bytes as u64;
        self.slowest = self.slowest.max(took);
        self.over_a_second += u64::from(took > SLOW);
        let doublings = (took.as_micros() as u64 / FIRST_BUCKET_MICROS)
            .checked_ilog2()
            .map_or(0, |n| n as usize + 1);
        self.counts[doublings.min(BUCKETS - 1)] += 1;
    }

    /// Upper limit and count of each bucket, from the fastest on. The last one has no limit.
    pub fn histogram(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        self.counts.iter().enumerate().map(|(i, count)| {
            let limit = Duration::from_micros(FIRST_BUCKET_MICROS << i);
            ((i + 1 < BUCKETS).then_some(limit), *count)
        })
    }
}

/// How far durability is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Records appended and not yet durable.
    pub records: u64,
    /// What they take on disk.
    pub bytes: u64,
    /// Since when the oldest of them waits; `None` if there is none.
    pub age: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_bucket_below_whose_limit_it_is() {
        let mut times = SyncTimes::default();
        for micros in [3, 15, 16, 31, 32, 2_000_000] {
            times.add(Duration::from_micros(micros), 10);
        }
        let counts: Vec<u64> = times.histogram().map(|(_, count)| count).collect();
        assert_eq!(counts[..3], [2, 2, 1]);
        assert_eq!(counts[BUCKETS - 1], 1);
        assert_eq!((times.syncs, times.bytes, times.over_a_second), (6, 60, 1));
        assert_eq!(times.histogram().last(), Some((None, 1)));
    }
}
