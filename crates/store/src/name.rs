//! Names of streams: what a run or a memory is called.
//!
//! Invariant: a [`StreamId`] is safe to print, to put into a file name after escaping, and to sort;
//! it comes from outside and is checked once, here.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name, in bytes.
pub const NAME_LIMIT_BYTES: usize = 200;

/// What a stream is the history of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// One execution of an agent.
    Run,
    /// What agents know.
    Memory,
    /// The store itself: recoveries, retention, repairs.
    Store,
}

impl StreamKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            StreamKind::Run => "run",
            StreamKind::Memory => "memory",
            StreamKind::Store => "store",
        }
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A stream's name, as in `run/order-42`.
///
/// ```
/// use dalsegno_store::StreamId;
///
/// let id = StreamId::run("order-42")?;
/// assert_eq!(id.to_string(), "run/order-42");
/// assert_eq!("run/order-42".parse::<StreamId>()?, id);
/// assert!(StreamId::run("").is_err());
/// # Ok::<(), dalsegno_store::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    kind: StreamKind,
    /// Shared: names are copied with every event.
    name: Arc<str>,
}

/// A name that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no characters.
    #[error("a name must not be empty: give it at least one character")]
    Empty,
    /// It is too long.
    #[error("a name of {bytes} bytes is over the limit of {NAME_LIMIT_BYTES}: shorten it")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It has a character that would confuse terminals or files.
    #[error("a name must not contain the character {0:?}: leave it out")]
    Character(char),
    /// It is no stream's name.
    #[error("{0:?} does not begin with run/, memory/ or store/")]
    Kind(String),
}

impl StreamId {
    /// The stream of a run.
    ///
    /// # Errors
    /// The id is empty, too long, or has control characters.
    pub fn run(id: &str) -> Result<StreamId, NameError> {
        StreamId::new(StreamKind::Run, id)
    }

    /// The stream of a memory.
    ///
    /// # Errors
    /// As [`StreamId::run`].
    pub fn memory(name: &str) -> Result<StreamId, NameError> {
        StreamId::new(StreamKind::Memory, name)
    }

    /// The stream of the store's own events.
    pub fn store() -> StreamId {
        StreamId {
            kind: StreamKind::Store,
            name: "events".into(),
        }
    }

    fn new(kind: StreamKind, name: &str) -> Result<StreamId, NameError> {
        check_name(name)?;
        Ok(StreamId {
            kind,
            name: Arc::from(name),
        })
    }

    /// What it is the history of.
    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    /// Whether these bytes are this name, as `to_string` would give it.
    pub(crate) fn is_text(&self, bytes: &[u8]) -> bool {
        let name = bytes.strip_prefix(self.kind.word().as_bytes());
        name.and_then(|rest| rest.strip_prefix(b"/")) == Some(self.name.as_bytes())
    }

    /// The name without the kind.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Checks a name from outside.
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_LIMIT_BYTES {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    // Also those that turn the text around, which make a name look like another.
    let confusing = |c: &char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(c);
    match name.chars().find(confusing) {
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl FromStr for StreamId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<StreamId, NameError> {
        let kinds = [StreamKind::Run, StreamKind::Memory, StreamKind::Store];
        for kind in kinds {
            if let Some(name) = text
                .strip_prefix(kind.word())
                .and_then(|rest| rest.strip_prefix('/'))
            {
                return StreamId::new(kind, name);
            }
        }
        Err(NameError::Kind(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["run/a", "run/ünïcode 😀", "memory/a/b", "store/events"] {
            assert_eq!(good.parse::<StreamId>().unwrap().to_string(), good);
        }
        let long = format!("run/{}", "x".repeat(201));
        for bad in [
            "",
            "run",
            "run/",
            "walk/a",
            "run/a\nb",
            "run/\u{202e}x",
            &long,
        ] {
            assert!(bad.parse::<StreamId>().is_err(), "{bad:?}");
        }
    }
}
