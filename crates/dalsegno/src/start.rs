//! What can be said about a run when it is started, beside its agent, name and input.

use dalsegno_store::{Fields, field};

use crate::budget::Budget;
use crate::record::created;

/// How a run is started.
///
/// ```
/// use dalsegno::{Budget, Start};
/// let start = Start::new()
///     .budget(Budget::default().tokens(50_000))
///     .queue("slow")
///     .priority(5);
/// assert_eq!(start, start.clone());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub(crate) budget: Budget,
    pub(crate) queue: String,
    pub(crate) priority: u32,
}

impl Start {
    /// Without limits, in the queue with the empty name, with priority 0.
    pub fn new() -> Start {
        Start::default()
    }

    /// What it and its children may use.
    pub fn budget(mut self, budget: Budget) -> Start {
        self.budget = budget;
        self
    }

    /// Only workers that look into this queue take it, and its children.
    pub fn queue(mut self, queue: impl Into<String>) -> Start {
        self.queue = queue.into();
        self
    }

    /// Workers take runs with a higher number first, and their children.
    pub fn priority(mut self, priority: u32) -> Start {
        self.priority = priority;
        self
    }

    /// Adds them to those of `RunCreated`.
    pub(crate) fn add_to(&self, mut fields: Fields) -> Fields {
        let budget = &self.budget;
        for (key, limit) in [
            (created::STEPS, budget.steps),
            (created::TOKENS, budget.tokens),
            (created::COST, budget.cost_micros),
            (created::WALL, budget.wall_us()),
        ] {
            if let Some(limit) = limit {
                fields = fields.with(key, limit);
            }
        }
        if !self.queue.is_empty() {
            fields = fields.with(field::QUEUE, self.queue.as_str());
        }
        if self.priority > 0 {
            fields = fields.with(field::PRIORITY, u64::from(self.priority));
        }
        fields
    }

    /// Out of those of `RunCreated`.
    pub(crate) fn of(fields: &Fields) -> Start {
        let number = |key| fields.number(key);
        let priority = number(field::PRIORITY).unwrap_or(0);
        Start {
            budget: Budget {
                steps: number(created::STEPS),
                tokens: number(created::TOKENS),
                cost_micros: number(created::COST),
                wall: number(created::WALL).map(std::time::Duration::from_micros),
            },
            queue: fields.text(field::QUEUE).unwrap_or_default().to_owned(),
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
        }
    }

    /// For a child: it shares its parent's budget, which is not its own.
    pub(crate) fn of_child(queue: &str, priority: u32) -> Start {
        Start::new().queue(queue).priority(priority)
    }
}
