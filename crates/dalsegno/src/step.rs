//! Which step it is: identity and idempotency key.
//!
//! A step's identity is its scope, its name, and how often that name has come in that scope:
//! `research#1/search#2` is the second `search` in the first `research`. It is fixed when the call is
//! made, not when it is polled or finishes. Branches that run in parallel have scopes of their own
//! ([`crate::Ctx::branch`]), so that scheduling cannot change it.
//!
//! Invariant: the key follows from the run's lineage and the identity alone, so it is the same on
//! every attempt, process and machine, and different for an intended second call.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::failure::numbered;

/// The longest name of a step, in bytes.
pub const STEP_NAME_LIMIT_BYTES: usize = 100;
/// The longest identity. Deeper nesting is refused.
pub const STEP_PATH_LIMIT_BYTES: usize = 1000;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepKind {
    /// A call of a model.
    Model,
    /// A call of a tool.
    Tool,
    /// A decision.
    Decision,
    /// A part of the plan, with steps of its own.
    PlanStep,
    /// A wait for a time.
    Sleep,
    /// A wait for a signal.
    Signal,
    /// A signal sent to another run.
    SendSignal,
    /// A wait for a person's approval.
    Approval,
    /// A run of another agent.
    Child,
    /// The time, a random number or an id.
    Value,
    /// An event of the user's own kind.
    Event,
    /// Whether code was changed on purpose.
    Patched,
    /// A lookup in a memory.
    Retrieval,
    /// A mark with state and resources.
    Checkpoint,
    /// A message of a conversation.
    Message,
    /// A write to a memory.
    Memory,
}

// The numbers are part of the format.
numbered! { StepKind:
    Model = 1, "model";
    Tool = 2, "tool";
    Decision = 3, "decision";
    PlanStep = 4, "plan-step";
    Sleep = 5, "sleep";
    Signal = 6, "signal";
    SendSignal = 7, "send-signal";
    Approval = 8, "approval";
    Child = 9, "child";
    Value = 10, "value";
    Event = 11, "event";
    Patched = 12, "patched";
    Retrieval = 13, "retrieval";
    Checkpoint = 14, "checkpoint";
    Message = 15, "message";
    Memory = 16, "memory";
}

/// A step's identity within its run.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(Arc<str>);

impl StepId {
    pub(crate) fn new(path: impl Into<Arc<str>>) -> StepId {
        StepId(path.into())
    }

    /// As in `research#1/search#2`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A map of steps can be asked with a path.
impl Borrow<str> for StepId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a name cannot be one.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a step's name must not be empty".into());
    }
    if name.len() > STEP_NAME_LIMIT_BYTES {
        let start: String = name.chars().take(30).collect();
        return Err(format!(
            "the step's name \"{start}…\" has {} bytes, the limit is {STEP_NAME_LIMIT_BYTES}",
            name.len()
        ));
    }
    // `/` and `#` build identities, `!` marks the library's own timers.
    let bad = |c: &char| matches!(c, '/' | '#' | '!' | '@') || c.is_control();
    match name.chars().find(bad) {
        Some(c) => Err(format!(
            "the step's name {name:?} must not contain {c:?}: leave it out"
        )),
        None => Ok(()),
    }
}

/// How often each name has come, in each scope.
#[derive(Debug, Default)]
pub(crate) struct Occurrences(HashMap<Box<str>, u64>);

impl Occurrences {
    /// The next identity of a name in a scope.
    pub fn take(&mut self, scope: &str, name: &str) -> StepId {
        let mut path = String::with_capacity(scope.len() + name.len() + 8);
        if !scope.is_empty() {
            path.push_str(scope);
            path.push('/');
        }
        path.push_str(name);
        let count = match self.0.get_mut(path.as_str()) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                self.0.insert(path.as_str().into(), 1);
                1
            }
        };
        path.push('#');
        push_number(&mut path, count);
        StepId::new(path)
    }

    /// Forgets everything: a new turn has its own scope, and old ones never come again.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn push_number(text: &mut String, number: u64) {
    use fmt::Write;
    // Writing to a string cannot fail.
    let _ = write!(text, "{number}");
}

/// The idempotency key of a step: 32 hex digits.
pub(crate) fn idempotency_key(lineage: &str, step: &str) -> String {
    // Deriving the context's own key costs more than all the rest.
    static CONTEXT: OnceLock<blake3::Hasher> = OnceLock::new();
    let context = "dalsegno 2026-11 idempotency key of a step";
    let mut hasher = CONTEXT
        .get_or_init(|| blake3::Hasher::new_derive_key(context))
        .clone();
    hasher.update(&(lineage.len() as u64).to_le_bytes());
    hasher.update(lineage.as_bytes());
    hasher.update(step.as_bytes());
    let hex = hasher.finalize().to_hex();
    hex.as_str()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_again_is_another_step() {
        let mut occurrences = Occurrences::default();
        let mut take = |scope, name| occurrences.take(scope, name).to_string();
        assert_eq!(take("", "search"), "search#1");
        assert_eq!(take("", "search"), "search#2");
        assert_eq!(take("plan#1", "search"), "plan#1/search#1");
        assert_eq!(take("", "other"), "other#1");
    }

    #[test]
    fn keys_differ_by_lineage_and_step_and_never_change() {
        let key = idempotency_key("order-42", "charge#1");
        assert_eq!(key.len(), 32);
        assert_ne!(key, idempotency_key("order-42", "charge#2"));
        assert_ne!(key, idempotency_key("order-43", "charge#1"));
        assert_ne!(idempotency_key("ab", "c"), idempotency_key("a", "bc"));
        assert_eq!(key, idempotency_key("order-42", "charge#1"));
    }

    #[test]
    fn names_that_would_confuse_identities_are_refused() {
        for name in ["", "a/b", "a#1", "a!", "@1", "a\n", &"x".repeat(101)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["search", "two words", "überweisung", "🙂"] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
