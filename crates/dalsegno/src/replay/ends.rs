//! Ends of turns and runs, compared and in words.

use dalsegno_store::NewPayload;

use super::Side;
use crate::failure::{Failure, FailureKind, Result};
use crate::journal::Outcome;
use crate::run::{same_payload, shown};

pub(super) fn turn_side(turn: u64, state: Option<String>, event: Option<u64>) -> Side {
    let state = state.as_deref().unwrap_or("nothing");
    Side::other(format!("ends turn {turn} with {state}"), event)
}

pub(super) fn ends_with(end: &Outcome) -> String {
    match end {
        Outcome::Succeeded(Some(output)) => format!("ends with {}", shown(output)),
        Outcome::Succeeded(None) => "ends with nothing".to_owned(),
        Outcome::Failed(failure) => format!("fails: {failure}"),
    }
}

/// Whether the code has ended as it had.
pub(super) fn same_end(then: &Outcome, now: &Result<NewPayload>) -> bool {
    match (then, now) {
        (Outcome::Succeeded(Some(then)), Ok(now)) => same_payload(then, now),
        (Outcome::Succeeded(None), Ok(now)) => now.bytes == b"null",
        (Outcome::Failed(then), Err(now)) => same_failure(then, now),
        // It was done, and its result could not be recorded.
        (Outcome::Failed(then), Ok(_)) => {
            then.kind() == FailureKind::TooLarge && then.step().is_none()
        }
        (Outcome::Succeeded(_), Err(_)) => false,
    }
}

fn same_failure(then: &Failure, now: &Failure) -> bool {
    let parts = |f: &Failure| (f.kind(), f.certainty(), f.step().map(str::to_owned));
    parts(then) == parts(now) && then.message() == now.message()
}
