//! What a turn's checkpoint carries over from the events before it, so that a loop is recovered
//! from its last turn and not from its beginning.
//!
//! Invariant: what the journal knows after reading everything, and after reading the first event,
//! the last checkpoint and what follows, is the same but for steps of earlier turns.

use serde_json::{Value, json};

use super::Journal;
use crate::budget::{Budget, Usage};

/// What is carried over, as JSON in the checkpoint's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Carry {
    pub usage: Usage,
    pub budget: Budget,
    pub saved_calls: u64,
    pub saved: Usage,
    pub told_us: u64,
    /// Events of signals that nobody has taken yet, and of resources that the run depends on.
    pub open: Vec<u64>,
    /// Events of checkpoints that are kept.
    pub pinned: Vec<u64>,
    /// The event of the last recovery.
    pub recovered: Option<u64>,
    pub cancel: Option<String>,
    pub answered: bool,
    pub last_us: u64,
    /// Events up to this one were known. Of those between it and the checkpoint, others may have
    /// recorded some.
    pub seen: u64,
}

fn usage_json(usage: &Usage) -> Value {
    json!([
        usage.steps,
        usage.tokens_in,
        usage.tokens_out,
        usage.cost_micros
    ])
}

fn read_usage(value: &Value) -> Usage {
    let number = |at: usize| value.get(at).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        steps: number(0),
        tokens_in: number(1),
        tokens_out: number(2),
        cost_micros: number(3),
    }
}

impl Carry {
    /// From what is known now, which is every event up to `seen` and the run's own.
    pub fn of(journal: &Journal, seen: u64) -> Carry {
        Carry {
            usage: journal.usage,
            budget: journal.budget,
            saved_calls: journal.saved_calls,
            saved: journal.saved,
            told_us: journal.told_us,
            open: open(journal),
            pinned: journal.pinned.clone(),
            recovered: journal.recovered,
            cancel: journal.cancel.clone(),
            answered: journal.answered,
            last_us: journal.last_us,
            seen,
        }
    }

    pub fn to_json(&self) -> String {
        let budget = &self.budget;
        json!({
            "usage": usage_json(&self.usage),
            "budget": [budget.steps, budget.tokens, budget.cost_micros, budget.wall_us()],
            "saved_calls": self.saved_calls,
            "saved": usage_json(&self.saved),
            "told_us": self.told_us,
            "open": self.open,
            "pinned": self.pinned,
            "recovered": self.recovered,
            "cancel": self.cancel,
            "answered": self.answered,
            "last_us": self.last_us,
            "seen": self.seen,
        })
        .to_string()
    }

    /// From a checkpoint. What is missing or of another form counts as nothing: it was written by
    /// this library, and a number that is lost must not stop the run.
    pub fn from_json(bytes: &[u8]) -> Carry {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        let flag = |key: &str| value[key].as_bool().unwrap_or(false);
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let budget = |at: usize| value["budget"].get(at).and_then(Value::as_u64);
        let numbers = |key: &str| {
            let list = value[key].as_array();
            let list = list.map(|list| list.iter().filter_map(Value::as_u64).collect());
            list.unwrap_or_default()
        };
        Carry {
            usage: read_usage(&value["usage"]),
            budget: Budget {
                steps: budget(0),
                tokens: budget(1),
                cost_micros: budget(2),
                wall: budget(3).map(std::time::Duration::from_micros),
            },
            saved_calls: number("saved_calls"),
            saved: read_usage(&value["saved"]),
            told_us: number("told_us"),
            open: numbers("open"),
            pinned: numbers("pinned"),
            recovered: value["recovered"].as_u64(),
            cancel: text("cancel"),
            answered: flag("answered"),
            last_us: number("last_us"),
            seen: value["seen"].as_u64().unwrap_or(u64::MAX),
        }
    }

    pub fn restore(&self, journal: &mut Journal) {
        journal.usage = self.usage;
        journal.budget = self.budget;
        journal.saved_calls = self.saved_calls;
        journal.saved = self.saved;
        journal.told_us = journal.told_us.max(self.told_us);
        journal.pinned.clone_from(&self.pinned);
        journal.recovered = self.recovered;
        journal.cancel.clone_from(&self.cancel);
        journal.answered = self.answered;
        journal.last_us = journal.last_us.max(self.last_us);
    }
}

/// Events whose content is needed again, in order.
fn open(journal: &Journal) -> Vec<u64> {
    let noted = journal.resources.values().map(|noted| noted.sequence);
    let mut open: Vec<u64> = journal.signals.keys().copied().chain(noted).collect();
    open.sort_unstable();
    open
}
