//! Helpers: what somebody keeps beside a stream because it would take long to make again from it.
//!
//! Invariant: a name is one that every store can have, as part of a file's name too.

use crate::error::StoreError;
use crate::name::NameError;

/// A helper that is to be kept: bytes that follow from the events of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHelper {
    /// Which of the stream's helpers: lower case letters, digits and `-`.
    pub name: String,
    /// The sequence of the last event that it knows.
    pub of: u64,
    /// What it is.
    pub bytes: Vec<u8>,
}

/// Fails if no helper can have this name.
///
/// # Errors
/// It is empty, or has other characters.
pub fn check_helper_name(name: &str) -> Result<(), StoreError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match name.chars().find(|c| !is_plain(*c)) {
        Some(c) => Err(NameError::Character(c).into()),
        None if name.is_empty() => Err(NameError::Empty.into()),
        None => Ok(()),
    }
}
