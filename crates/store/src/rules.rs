//! The rules of a store by name, so that the simulator can break each one on purpose.
//!
//! Each rule is kept in exactly one place: where `breaks(Rule::…)` asks for it. Without the
//! `mutants` feature that question is the constant `false` and compiles away.

/// A rule that the promises of a store rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A snapshot is placed only when the log is durable up to its last event.
    SnapshotAfterDurable,
    /// A snapshot counts only if it has the hash that stands at its end.
    CheckSnapshot,
    /// A snapshot that cannot be read is passed over for the one before it.
    PassOverSnapshot,
    /// An index that is damaged is made again from its segment.
    RebuildIndex,
    /// Events are in the log before they are in the state.
    AppendBeforeApply,
    /// The events of an append are one batch, over all its streams.
    OneBatch,
    /// Pieces are in the log before the event that refers to them.
    PiecesBeforeEvents,
    /// An append is refused if its stream is not where the caller thinks.
    CheckExpected,
    /// An append is refused if its fencing token is not the newest.
    CheckToken,
    /// A letter's file goes only when the event that came of it is durable.
    RemoveAfterDurable,
    /// A letter that was taken up is known by its number, and is not taken again.
    KnowLetters,
    /// What is known of letters is repeated when runs that had taken them up go.
    RepeatLetters,
    /// What an unclean opening found becomes an event.
    RecordRecovery,
}

#[cfg(feature = "mutants")]
impl Rule {
    /// All of them.
    pub const ALL: [Rule; 13] = [
        Rule::SnapshotAfterDurable,
        Rule::CheckSnapshot,
        Rule::PassOverSnapshot,
        Rule::RebuildIndex,
        Rule::AppendBeforeApply,
        Rule::OneBatch,
        Rule::PiecesBeforeEvents,
        Rule::CheckExpected,
        Rule::CheckToken,
        Rule::RemoveAfterDurable,
        Rule::KnowLetters,
        Rule::RepeatLetters,
        Rule::RecordRecovery,
    ];
}

/// Which rule, if any, is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mutant(#[cfg(feature = "mutants")] pub Option<Rule>);

impl Mutant {
    #[cfg(feature = "mutants")]
    pub fn breaks(self, rule: Rule) -> bool {
        self.0 == Some(rule)
    }

    #[cfg(not(feature = "mutants"))]
    pub const fn breaks(self, _rule: Rule) -> bool {
        false
    }
}
