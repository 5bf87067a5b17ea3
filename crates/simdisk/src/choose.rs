//! Who decides what a crash leaves.
//!
//! A crash is a sequence of questions, each with `n` answers: 0 is the oldest state (on the
//! platter, or "this operation is lost"), `n - 1` the newest. [`Random`] answers by chance with a
//! mood, [`Enumerate`] walks through every sequence of answers once.
//!
//! Invariant: which questions are asked depends only on the disk and on the answers so far.

use crate::rng::Rng;

/// Answers the questions of a crash.
pub trait Chooser {
    /// A number below `n`; `n` is at least 1.
    fn choose(&mut self, n: usize) -> usize;

    /// Called before the questions about each folder and each file.
    fn subject(&mut self) {}
}

/// Nothing that was not synced survives.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoseAll;

impl Chooser for LoseAll {
    fn choose(&mut self, _n: usize) -> usize {
        0
    }
}

/// Everything survives in its newest state.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepAll;

impl Chooser for KeepAll {
    fn choose(&mut self, n: usize) -> usize {
        n.saturating_sub(1)
    }
}

/// Answers by chance. Independent coins would almost never lose everything or nothing, so there is
/// a mood, which changes from file to file every second time.
#[derive(Clone, Debug)]
pub struct Random {
    rng: Rng,
    mood: Mood,
}

#[derive(Clone, Copy, Debug)]
enum Mood {
    Nothing,
    Everything,
    /// An even choice, but first the oldest or the newest with these chances in a thousand.
    Mixed {
        oldest: u16,
        newest: u16,
    },
}

const MOODS: [Mood; 5] = [
    Mood::Nothing,
    Mood::Everything,
    Mood::Mixed {
        oldest: 0,
        newest: 0,
    },
    Mood::Mixed {
        oldest: 900,
        newest: 0,
    },
    Mood::Mixed {
        oldest: 0,
        newest: 900,
    },
];

impl Random {
    /// A chooser whose answers are decided by the state of `rng`.
    #[must_use]
    pub fn new(mut rng: Rng) -> Self {
        let mood = MOODS[rng.index(MOODS.len())];
        Self { rng, mood }
    }
}

impl Chooser for Random {
    fn choose(&mut self, n: usize) -> usize {
        match self.mood {
            Mood::Nothing => 0,
            Mood::Everything => n.saturating_sub(1),
            Mood::Mixed { oldest, newest } => {
                if self.rng.chance(oldest) {
                    0
                } else if self.rng.chance(newest) {
                    n.saturating_sub(1)
                } else {
                    self.rng.index(n)
                }
            }
        }
    }

    fn subject(&mut self) {
        if self.rng.chance(500) {
            self.mood = MOODS[self.rng.index(MOODS.len())];
        }
    }
}

/// Walks through every combination of answers, like the wheels of an odometer.
///
/// ```
/// use dalsegno_simdisk::{Chooser, Enumerate};
///
/// let mut every = Enumerate::new(1_000);
/// let mut seen = Vec::new();
/// loop {
///     // In a test: crash a snapshot of the disk with `every`, and look at what is left.
///     seen.push((every.choose(2), every.choose(3)));
///     if !every.next_combination() {
///         break;
///     }
/// }
/// assert!(every.exhausted());
/// assert_eq!(seen.len(), 6);
/// ```
#[derive(Clone, Debug)]
pub struct Enumerate {
    /// The answer given and the number of answers, for each question so far.
    wheels: Vec<(usize, usize)>,
    at: usize,
    seen: u64,
    limit: u64,
    exhausted: bool,
}

impl Enumerate {
    /// Stops after `limit` combinations even if there are more.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            wheels: Vec::new(),
            at: 0,
            seen: 0,
            limit,
            exhausted: false,
        }
    }

    /// Ends the present combination and begins the next. False if there is none or the limit is
    /// reached; [`exhausted`](Self::exhausted) tells which.
    pub fn next_combination(&mut self) -> bool {
        if self.exhausted {
            return false;
        }
        self.seen += 1;
        self.wheels.truncate(self.at);
        self.at = 0;
        while let Some((answer, n)) = self.wheels.pop() {
            if answer + 1 < n {
                self.wheels.push((answer + 1, n));
                return self.seen < self.limit;
            }
        }
        self.exhausted = true;
        false
    }

    /// True once every combination has been seen.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// The number of combinations ended so far; once exhausted, the number that there are.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

impl Chooser for Enumerate {
    fn choose(&mut self, n: usize) -> usize {
        if n < 2 {
            return 0;
        }
        if self.at == self.wheels.len() {
            self.wheels.push((0, n));
        }
        let (answer, asked) = self.wheels[self.at];
        debug_assert_eq!(
            asked, n,
            "the questions changed although the answers did not"
        );
        self.at += 1;
        answer.min(n - 1)
    }
}
