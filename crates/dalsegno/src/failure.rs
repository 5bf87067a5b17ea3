//! What a step or an agent fails with.
//!
//! Invariant: a [`Failure`] is data. It is recorded as the outcome of its step and comes back the
//! same on replay, so that code which branches on it takes the same branch.

use std::fmt;

/// What a step, or a whole agent, gives back.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why something did not succeed.
///
/// Any error becomes one with `?`. For a step that may be tried again it means "try again"; for a
/// `once` step it means that nobody knows whether it happened, see [`Certainty`].
///
/// ```
/// use dalsegno::{Certainty, Failure, Result};
///
/// fn parse(text: &str) -> Result<u32> {
///     Ok(text.parse::<u32>()?)
/// }
/// assert_eq!(parse("x").unwrap_err().certainty(), Certainty::Unknown);
///
/// let declined = Failure::terminal("the card was declined");
/// assert_eq!(declined.to_string(), "the card was declined");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    certainty: Certainty,
    message: String,
    step: Option<String>,
}

/// What is known about a failed step, and so what may be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Nothing was said. A `once` step is in doubt; any other may be tried again.
    Unknown,
    /// It did not happen, and may be tried again.
    NotDone,
    /// It did not happen, and trying again is pointless.
    Terminal,
}

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The code of the step or agent said so.
    Failed,
    /// The step took longer than its time limit.
    TimedOut,
    /// The code of the step panicked.
    Panicked,
    /// A person said no.
    Rejected,
    /// The approval was not answered before it expired.
    Expired,
    /// Nobody answered in the time that the run was ready to wait; the request had not expired.
    NoAnswer,
    /// The child run failed, or was cancelled.
    ChildFailed,
    /// A result, an input or a name is larger than it may be.
    TooLarge,
    /// A value could not be written or read as JSON.
    Encoding,
    /// Something was asked for that cannot be.
    Misuse,
    /// A document of a memory was corrected, retracted or forgotten before: read again and decide
    /// anew.
    Ended,
}

macro_rules! numbered {
    ($type:ident: $($name:ident = $number:literal, $word:literal;)*) => {
        impl $type {
            pub(crate) fn number(self) -> u64 {
                match self { $($type::$name => $number,)* }
            }

            pub(crate) fn from_number(number: u64) -> Option<$type> {
                match number { $($number => Some($type::$name),)* _ => None }
            }

            /// As it is printed.
            pub fn word(self) -> &'static str {
                match self { $($type::$name => $word,)* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub(crate) use numbered;

// The numbers are part of the format.
numbered! { FailureKind:
    Failed = 1, "failed";
    TimedOut = 2, "timed-out";
    Panicked = 3, "panicked";
    Rejected = 4, "rejected";
    Expired = 5, "expired";
    NoAnswer = 6, "no-answer";
    ChildFailed = 7, "child-failed";
    TooLarge = 8, "too-large";
    Encoding = 9, "encoding";
    Misuse = 10, "misuse";
    Ended = 11, "ended";
}

numbered! { Certainty:
    Unknown = 0, "unknown";
    NotDone = 1, "not-done";
    Terminal = 2, "terminal";
}

impl Failure {
    /// It failed, and more is not known.
    pub fn new(message: impl fmt::Display) -> Failure {
        Failure::of(FailureKind::Failed, Certainty::Unknown, message)
    }

    /// It did not happen, and may be tried again.
    pub fn not_done(message: impl fmt::Display) -> Failure {
        Failure::of(FailureKind::Failed, Certainty::NotDone, message)
    }

    /// It did not happen, and trying again is pointless.
    pub fn terminal(message: impl fmt::Display) -> Failure {
        Failure::of(FailureKind::Failed, Certainty::Terminal, message)
    }

    pub(crate) fn of(
        kind: FailureKind,
        certainty: Certainty,
        message: impl fmt::Display,
    ) -> Failure {
        Failure {
            kind,
            certainty,
            // Cut here and not when it is recorded: the code must see the same text at every replay.
            message: crate::record::bounded(&message.to_string()),
            step: None,
        }
    }

    /// With the step that failed, unless it has one.
    pub(crate) fn at(mut self, step: &str) -> Failure {
        self.step.get_or_insert_with(|| step.to_owned());
        self
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What is known about it.
    pub fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// What happened, in words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The step that failed, if it was one.
    pub fn step(&self) -> Option<&str> {
        self.step.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Some(step) => write!(f, "step {step}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Any error is a failure of which no more is known. (So a `Failure` itself is no
/// `std::error::Error`; [`Failure::into_error`] gives one.)
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !message.contains(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        Failure::new(message)
    }
}

/// A [`Failure`] as a `std::error::Error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FailureError(pub Failure);

impl Failure {
    /// As an error for code that wants one.
    pub fn into_error(self) -> FailureError {
        FailureError(self)
    }
}
