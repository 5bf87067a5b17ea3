//! The rules of recovery by name, so that the test kit can break each one on purpose.
//!
//! Each rule is kept in exactly one place: where `breaks(Rule::…)` asks for it. Without the
//! `mutants` feature that question is the constant `false` and compiles away.

/// A rule that the promises to an agent rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// An effect that can be seen starts when its intent, and all before it, is durable.
    IntentBeforeEffect,
    /// A `once` step that was begun is never begun again unless it is known not to have happened.
    NeverRepeatOnce,
    /// The key follows from the run and the step's identity alone.
    KeyFromIdentity,
    /// What was kept back is recorded in front of whatever is recorded next.
    RecordWhatItDependsOn,
    /// Who waits for the end of a run is told when it is durable.
    TellWhenDurable,
    /// The end of a child and the step of its parent are one append.
    OneEnd,
    /// A write to a memory and the outcome of its step are one append.
    // Without memories nobody can break it.
    #[cfg_attr(not(feature = "memory"), allow(dead_code))]
    OneWrite,
}

#[cfg(feature = "mutants")]
impl Rule {
    /// All of them.
    pub const ALL: [Rule; 7] = [
        Rule::IntentBeforeEffect,
        Rule::NeverRepeatOnce,
        Rule::KeyFromIdentity,
        Rule::RecordWhatItDependsOn,
        Rule::TellWhenDurable,
        Rule::OneEnd,
        Rule::OneWrite,
    ];
}

/// Which rule, if any, is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mutant(#[cfg(feature = "mutants")] pub Option<Rule>);

impl Mutant {
    /// Whether this rule is switched off.
    #[cfg(feature = "mutants")]
    pub fn breaks(self, rule: Rule) -> bool {
        self.0 == Some(rule)
    }

    /// Whether this rule is switched off: never.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub fn breaks(self, _rule: Rule) -> bool {
        false
    }
}
