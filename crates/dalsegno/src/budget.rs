//! What a run has used, and what it may use, with its children.
//!
//! Invariant: limits are checked before a step is begun and never by losing one that was done. A
//! run that has used up its budget pauses for a person.

use std::time::Duration;

/// What steps used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Model and tool calls.
    pub steps: u64,
    /// Tokens that models read.
    pub tokens_in: u64,
    /// Tokens that models wrote.
    pub tokens_out: u64,
    /// Money, in millionths of whatever currency the caller counts in.
    pub cost_micros: u64,
}

impl Usage {
    /// All tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    pub(crate) fn add(&mut self, other: &Usage) {
        self.steps = self.steps.saturating_add(other.steps);
        self.tokens_in = self.tokens_in.saturating_add(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(other.tokens_out);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }

    pub(crate) fn subtract(&mut self, other: &Usage) {
        self.steps = self.steps.saturating_sub(other.steps);
        self.tokens_in = self.tokens_in.saturating_sub(other.tokens_in);
        self.tokens_out = self.tokens_out.saturating_sub(other.tokens_out);
        self.cost_micros = self.cost_micros.saturating_sub(other.cost_micros);
    }
}

/// What a run and its children may use together. What is not set is not limited.
///
/// ```
/// use dalsegno::Budget;
/// let budget = Budget::default().steps(100).tokens(50_000).cost_micros(2_000_000);
/// assert_eq!(budget.steps, Some(100));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Model and tool calls.
    pub steps: Option<u64>,
    /// Tokens, read and written.
    pub tokens: Option<u64>,
    /// Money, in millionths.
    pub cost_micros: Option<u64>,
    /// Time since the run was created.
    pub wall: Option<Duration>,
}

impl Budget {
    /// At most so many model and tool calls.
    pub fn steps(mut self, limit: u64) -> Budget {
        self.steps = Some(limit);
        self
    }

    /// At most so many tokens.
    pub fn tokens(mut self, limit: u64) -> Budget {
        self.tokens = Some(limit);
        self
    }

    /// At most so much money, in millionths.
    pub fn cost_micros(mut self, limit: u64) -> Budget {
        self.cost_micros = Some(limit);
        self
    }

    /// At most so long since the run was created.
    pub fn wall(mut self, limit: Duration) -> Budget {
        self.wall = Some(limit);
        self
    }

    /// Whether anything is set.
    pub(crate) fn is_limited(&self) -> bool {
        *self != Budget::default()
    }

    pub(crate) fn wall_us(&self) -> Option<u64> {
        self.wall
            .map(|wall| u64::try_from(wall.as_micros()).unwrap_or(u64::MAX))
    }

    /// Takes limits from another one where it has them.
    pub(crate) fn update(&mut self, other: &Budget) {
        self.steps = other.steps.or(self.steps);
        self.tokens = other.tokens.or(self.tokens);
        self.cost_micros = other.cost_micros.or(self.cost_micros);
        self.wall = other.wall.or(self.wall);
    }

    /// Which limit another step would go beyond, in words.
    pub(crate) fn exceeded(&self, used: &Usage, wall_us: u64) -> Option<String> {
        let over = |what: &str, used: u64, limit: Option<u64>| {
            limit
                .filter(|limit| used >= *limit)
                .map(|limit| format!("{used} of {limit} {what} are used"))
        };
        over("steps", used.steps, self.steps)
            .or_else(|| over("tokens", used.tokens(), self.tokens))
            .or_else(|| over("millionths of cost", used.cost_micros, self.cost_micros))
            .or_else(|| over("microseconds of time", wall_us, self.wall_us()))
    }
}
