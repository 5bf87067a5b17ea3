//! What an event says happened.
//!
//! Numbers are part of the format and never change their meaning. A reader that does not know a
//! number keeps the event as it is; from [`MUST_UNDERSTAND`] on, it must not go on with the run
//! that has it.

use std::fmt;

/// Kinds from this number on change the meaning of what follows them.
pub const MUST_UNDERSTAND: u64 = 0x8000;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal;)*) => {
        /// The kind of an event.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $name,)*
            /// A kind of the user's own.
            User(String),
            /// A kind that a newer version wrote.
            Unknown(u64),
        }

        impl Kind {
            /// All kinds that have a number.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// Its number; `None` for the user's own.
            pub fn number(&self) -> Option<u64> {
                match self {
                    $(Kind::$name => Some($number),)*
                    Kind::User(_) => None,
                    Kind::Unknown(number) => Some(*number),
                }
            }

            /// The kind with a number.
            pub fn from_number(number: u64) -> Kind {
                match number {
                    $($number => Kind::$name,)*
                    _ => Kind::Unknown(number),
                }
            }

            fn word(&self) -> Option<&'static str> {
                match self {
                    $(Kind::$name => Some($word),)*
                    Kind::User(_) | Kind::Unknown(_) => None,
                }
            }
        }
    };
}

// A macro, because the enum, the numbers and the words must not drift apart.
kinds! {
    /// A run exists: agent and input are known.
    RunCreated = 1, "run-created";
    /// A worker began, or began again, to execute the run.
    RunStarted = 2, "run-started";
    /// The run's state is written down, and it may leave memory.
    RunCheckpointed = 3, "run-checkpointed";
    /// The run is done.
    RunCompleted = 4, "run-completed";
    /// The run ended in an error.
    RunFailed = 5, "run-failed";
    /// Somebody ended the run.
    RunCancelled = 6, "run-cancelled";
    /// Somebody asked for the run to end.
    CancelRequested = 7, "cancel-requested";
    /// Only a person can move the run on.
    AttentionRaised = 8, "attention-raised";
    /// A person did.
    AttentionCleared = 9, "attention-cleared";
    /// The state of a run is written down, at the end of a turn or where its code says so.
    CheckpointWritten = 10, "checkpoint-written";
    /// A run was found unfinished when its store was opened, and this is what was known of it.
    RunRecovered = 11, "run-recovered";

    /// A step is about to be done.
    StepIntended = 16, "step-intended";
    /// A step was done; its output is the result.
    StepSucceeded = 17, "step-succeeded";
    /// A step was tried and failed.
    StepFailed = 18, "step-failed";
    /// Somebody, or a probe, said what became of a step in doubt.
    StepResolved = 19, "step-resolved";

    /// A signal arrived.
    SignalReceived = 32, "signal-received";
    /// A timer was set.
    TimerSet = 33, "timer-set";
    /// A timer's time has come.
    TimerFired = 34, "timer-fired";
    /// A timer is no longer wanted.
    TimerCancelled = 35, "timer-cancelled";
    /// A person is asked for approval.
    ApprovalRequested = 36, "approval-requested";
    /// A person answered.
    ApprovalAnswered = 37, "approval-answered";

    /// A worker took the run, under a new fencing token.
    LeaseTaken = 48, "lease-taken";
    /// The worker gave it back.
    LeaseReleased = 50, "lease-released";

    /// The run is a fork of another one's past.
    RunForked = 64, "run-forked";
    /// The run has a child.
    ChildStarted = 65, "child-started";
    /// The run depends on something outside: a file, a branch, a page.
    ResourceNoted = 66, "resource-noted";
    /// What the run may spend.
    BudgetSet = 67, "budget-set";
    /// What the run has spent.
    BudgetSpent = 68, "budget-spent";

    /// A decision was made.
    DecisionCommitted = 80, "decision-committed";
    /// A task was begun.
    TaskStarted = 81, "task-started";
    /// A task was finished.
    TaskCompleted = 82, "task-completed";
    /// Something must be observed from now on.
    ConstraintAdded = 83, "constraint-added";
    /// Something is known to be so.
    FactConfirmed = 84, "fact-confirmed";
    /// The plan is another one now.
    PlanUpdated = 85, "plan-updated";
    /// Something was looked up in a memory.
    RetrievalPerformed = 86, "retrieval-performed";
    /// A memory was given something to keep.
    MemoryUpdated = 87, "memory-updated";
    /// Payloads of earlier events of a memory are forgotten: what they said is gone.
    MemoryForgotten = 88, "memory-forgotten";
    /// Something that a memory was given is not so any more.
    MemoryRetracted = 89, "memory-retracted";

    /// The store was opened, and this is what recovery found.
    StoreRecovered = 96, "store-recovered";
    /// Finished runs are being dropped; from here on they do not exist.
    RunsRetired = 97, "runs-retired";
    /// Damage was repaired.
    StoreRepaired = 98, "store-repaired";
    /// The history up to here came from a portable file.
    Imported = 99, "imported";
    /// The space of retired runs is free again.
    SpaceReclaimed = 100, "space-reclaimed";
    /// A letter could not be taken up by the stream it was for.
    LetterRefused = 101, "letter-refused";
}

impl Kind {
    /// Whether a reader that does not know this kind may pass over it.
    pub fn may_be_skipped(&self) -> bool {
        !matches!(self, Kind::Unknown(number) if *number >= MUST_UNDERSTAND)
    }

    /// Whether a run ends with it.
    pub fn ends_run(&self) -> bool {
        matches!(
            self,
            Kind::RunCompleted | Kind::RunFailed | Kind::RunCancelled
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.word()) {
            (_, Some(word)) => f.write_str(word),
            (Kind::User(name), None) => write!(f, "user:{name}"),
            (Kind::Unknown(number), None) => write!(f, "unknown:{number}"),
            (_, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_kind_and_every_kind_one_number() {
        let mut numbers = std::collections::BTreeSet::new();
        let mut words = std::collections::BTreeSet::new();
        for kind in Kind::ALL {
            let number = kind.number().unwrap_or(0);
            assert_eq!(Kind::from_number(number), *kind);
            assert!(number < MUST_UNDERSTAND);
            assert!(numbers.insert(number) && words.insert(kind.to_string()));
        }
        assert_eq!(Kind::from_number(0x7fff), Kind::Unknown(0x7fff));
        assert!(Kind::from_number(0x7fff).may_be_skipped());
        assert!(!Kind::from_number(0x8000).may_be_skipped());
    }
}
