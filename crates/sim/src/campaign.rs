//! Many lives, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{store_world, world};

/// What lives went through, in numbers.
pub trait Total: Default + Send {
    /// Adds another life's numbers.
    fn add(&mut self, other: &Self);
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// What the command needs beside the seed to live the same life.
    pub arguments: String,
    /// The last file system operations.
    pub trace: Vec<String>,
}

impl Failure {
    /// The command that shows it again.
    pub fn reproduce(&self) -> String {
        let words = ["--seed", &self.seed.to_string(), &self.arguments].join(" ");
        format!(
            "cargo run --release -p dalsegno-sim -- {}",
            words.trim_end()
        )
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}: {}: {}", self.seed, self.what, self.reproduce())
    }
}

/// What many lives came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome<T> {
    /// How many there were.
    pub lives: u64,
    /// Their numbers, added up.
    pub summary: T,
    /// A life in which a promise was broken, with its trace. It ended the campaign.
    pub failure: Option<Failure>,
}

/// Lives `seeds` lives of a log, from seed `from` on, until one fails.
pub fn run(from: u64, seeds: u64, rule: Option<dalsegno_log::Rule>) -> Outcome<world::Summary> {
    many(from, seeds, |seed, trace| world::live(seed, rule, trace))
}

/// Lives `seeds` lives of a store, from seed `from` on, until one fails.
pub fn run_store(
    from: u64,
    seeds: u64,
    rule: Option<dalsegno_store::Rule>,
) -> Outcome<store_world::Summary> {
    many(from, seeds, |seed, trace| {
        store_world::live(seed, rule, trace)
    })
}

fn many<T: Total>(
    from: u64,
    seeds: u64,
    live: impl Fn(u64, bool) -> Result<T, Failure> + Sync,
) -> Outcome<T> {
    let next = AtomicU64::new(from);
    let end = from.saturating_add(seeds);
    let work = || {
        let mut outcome = Outcome::<T>::default();
        while outcome.failure.is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            outcome.lives += 1;
            match live(seed, false) {
                Ok(life) => T::add(&mut outcome.summary, &life),
                Err(failure) => {
                    next.store(end, Ordering::Relaxed);
                    // Once more, for the trace.
                    outcome.failure = live(seed, true).err().or(Some(failure));
                }
            }
        }
        outcome
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut total = Outcome::<T>::default();
        for worker in workers {
            // A panic of what is tested is a failure like any other, and is passed on.
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
