//! Many lives, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_log::Rule;

use crate::world::{Failure, Summary, live};

/// What many lives came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many there were.
    pub lives: u64,
    /// Their numbers, added up.
    pub summary: Summary,
    /// A life in which a promise was broken, with its trace. It ended the campaign.
    pub failure: Option<Failure>,
}

/// Lives `seeds` lives, from seed `from` on, until one fails.
pub fn run(from: u64, seeds: u64, rule: Option<Rule>) -> Outcome {
    let next = AtomicU64::new(from);
    let end = from.saturating_add(seeds);
    let work = || {
        let mut outcome = Outcome::default();
        while outcome.failure.is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            outcome.lives += 1;
            match live(seed, rule, false) {
                Ok(life) => outcome.summary.add(&life),
                Err(failure) => {
                    next.store(end, Ordering::Relaxed);
                    // Once more, for the trace.
                    outcome.failure = live(seed, rule, true).err().or(Some(failure));
                }
            }
        }
        outcome
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut total = Outcome::default();
        for worker in workers {
            // A panic of the log is a failure like any other, and is passed on.
            let outcome = match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            total.lives += outcome.lives;
            total.summary.add(&outcome.summary);
            total.failure = total.failure.or(outcome.failure);
        }
        total
    })
}
