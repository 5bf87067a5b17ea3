//! Failures and errors on their way to Python and back.
//!
//! A failure is four plain values there, so that an exception can carry it and give it back as it
//! was. An error is the name of an exception class of `dalsegno/_errors.py`, and what it says.

use dalsegno::{Certainty, Error, Failure, FailureKind, binding};
use dalsegno_memory::MemoryError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::value::RawValue;

/// Kind, certainty, message, step.
pub type FailureParts = (String, String, String, Option<String>);

/// As Python has it.
pub fn parts(failure: &Failure) -> FailureParts {
    (
        failure.kind().word().to_owned(),
        failure.certainty().word().to_owned(),
        failure.message().to_owned(),
        failure.step().map(str::to_owned),
    )
}

/// As the library has it.
pub fn from_parts((kind, certainty, message, step): FailureParts) -> Failure {
    const KINDS: [FailureKind; 11] = [
        FailureKind::Failed,
        FailureKind::TimedOut,
        FailureKind::Panicked,
        FailureKind::Rejected,
        FailureKind::Expired,
        FailureKind::NoAnswer,
        FailureKind::ChildFailed,
        FailureKind::TooLarge,
        FailureKind::Encoding,
        FailureKind::Misuse,
        FailureKind::Ended,
    ];
    const CERTAINTIES: [Certainty; 3] =
        [Certainty::Unknown, Certainty::NotDone, Certainty::Terminal];
    let kind = KINDS.into_iter().find(|known| known.word() == kind);
    let certain = CERTAINTIES.into_iter().find(|c| c.word() == certainty);
    binding::failure(
        kind.unwrap_or(FailureKind::Failed),
        certain.unwrap_or(Certainty::Unknown),
        &message,
        step.as_deref(),
    )
}

pub fn misuse(why: &str) -> Failure {
    binding::failure(FailureKind::Misuse, Certainty::Terminal, why, None)
}

pub fn failed(why: &str) -> Failure {
    binding::failure(FailureKind::Failed, Certainty::Unknown, why, None)
}

/// JSON that Python has written.
pub fn raw(json: &str) -> PyResult<Box<RawValue>> {
    RawValue::from_string(json.to_owned())
        .map_err(|e| PyValueError::new_err(format!("this is no JSON: {e}")))
}

/// The name of an exception class, what it says, the run, and how that failed.
pub type Problem = (&'static str, String, Option<String>, Option<FailureParts>);

/// As Python raises it.
pub fn problem(error: &Error) -> Problem {
    let words = error.to_string();
    let of = |run: &String| Some(run.clone());
    match error {
        Error::RunFailed { run, failure } => ("RunFailed", words, of(run), Some(parts(failure))),
        Error::RunCancelled(run) => ("RunCancelled", words, of(run), None),
        Error::NeedsAttention { run, .. } => ("NeedsAttention", words, of(run), None),
        Error::RunNotFound(run) => ("RunNotFound", words, of(run), None),
        Error::RunEnded { run, .. } => ("RunEnded", words, of(run), None),
        Error::AlreadyStarted { run, .. } => ("AlreadyStarted", words, of(run), None),
        Error::NoSuchApproval { run, .. } | Error::ApprovalClosed { run, .. } => {
            ("ApprovalError", words, of(run), None)
        }
        Error::NotInDoubt { run, .. } => ("NotInDoubt", words, of(run), None),
        Error::Fork { run, .. } | Error::NoSuchEvent { run, .. } => {
            ("ForkError", words, of(run), None)
        }
        Error::NotTaken { run, .. } | Error::Refused { run, .. } => {
            ("NotTaken", words, of(run), None)
        }
        Error::AgentNotFound { .. } => ("AgentNotFound", words, None, None),
        Error::Encoding { .. } => ("NotSerialisable", words, None, None),
        Error::Name(_) | Error::StepName(_) => ("BadUse", words, None, None),
        Error::Memory(MemoryError::Store(_)) => ("StoreError", words, None, None),
        Error::Memory(MemoryError::Ended { .. }) => ("DocumentEnded", words, None, None),
        Error::Memory(MemoryError::TooLarge { .. }) => ("TooLarge", words, None, None),
        Error::Memory(_) => ("MemoryFailure", words, None, None),
        Error::Closed => ("Closed", words, None, None),
        Error::Store(_) => ("StoreError", words, None, None),
        _ => ("Error", words, None, None),
    }
}

/// An exception of the package.
pub fn raise(py: Python<'_>, class: &str, words: &str) -> PyErr {
    let made = py
        .import("dalsegno._errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((words,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}
