//! The durability rules by name, so that the simulator can break each one on purpose.
//!
//! Each rule is kept in exactly one place: where `breaks(Rule::…)` asks for it. Without the
//! `mutants` feature that question is the constant `false` and compiles away.

/// A rule that recovery rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A file gets its name only after its content was synced.
    SyncBeforeRename,
    /// A new name is used only after its folder was synced.
    SyncFolder,
    /// Nothing is acknowledged before the sync that covers it has returned.
    AcknowledgeAfterSync,
    /// A failed sync is final: the log is poisoned and no sync follows.
    FailedSyncIsFinal,
    /// Bad bytes with a valid frame of a later sync group behind them are damage: refuse.
    RefuseDamage,
    /// A frame counts only if its payload has the checksum that its header gives.
    CheckPayload,
    /// A batch that is not complete on disk does not exist.
    WholeBatches,
    /// Opening gives a prepared segment its name again and syncs the folder before it uses it. Its
    /// writer may have been killed before that sync, or the sync may have failed.
    NameSpareAgain,
    /// Opening writes the last group again and syncs it before it reports it. Its writer may have
    /// been killed before the sync, or the sync may have failed: then the cache shows bytes that
    /// the disk does not have, and another sync alone would not write them.
    RewriteLastGroup,
    /// A torn tail is overwritten with zeros before anything is appended.
    ZeroTornTail,
    /// A segment is sealed, durably, before the first frame of the next one is written.
    SealBeforeNext,
    /// Segments are removed only after the log says, durably, that they are gone.
    RecordDrop,
    /// A rewritten segment repeats how it ended before, which is what the next one knows of it.
    KeepEnding,
    /// A rewritten segment was complete when it got its name: bad bytes in it are damage, never a
    /// torn write, wherever it stands.
    RewrittenIsWhole,
    /// A segment that was rewritten before this opening is written once more before anybody relies
    /// on what is missing from it. The sync of its name may have failed, or never come.
    NameRewrittenAgain,
    /// A note that the log was handed over is believed only if it describes the end that was found.
    HandOverFits,
}

#[cfg(feature = "mutants")]
impl Rule {
    /// All of them.
    pub const ALL: [Rule; 16] = [
        Rule::SyncBeforeRename,
        Rule::SyncFolder,
        Rule::AcknowledgeAfterSync,
        Rule::FailedSyncIsFinal,
        Rule::RefuseDamage,
        Rule::CheckPayload,
        Rule::WholeBatches,
        Rule::NameSpareAgain,
        Rule::RewriteLastGroup,
        Rule::ZeroTornTail,
        Rule::SealBeforeNext,
        Rule::RecordDrop,
        Rule::KeepEnding,
        Rule::RewrittenIsWhole,
        Rule::NameRewrittenAgain,
        Rule::HandOverFits,
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
