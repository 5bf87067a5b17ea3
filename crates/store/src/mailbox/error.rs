//! What can go wrong with letters, in words that say whether a letter may have been sent.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dalsegno_log::IoFailure;

use crate::event::LetterRef;

/// An operation of the mailbox failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxError {
    /// The letter is too large. Nothing was sent.
    #[error(
        "a letter of {bytes} bytes is over the limit of {limit_bytes}: nothing was sent; shorten \
         it, or raise the limit of this outbox"
    )]
    TooLarge {
        /// What its file would take.
        bytes: u64,
        /// What it may take.
        limit_bytes: u64,
    },
    /// The letter holds something that its reader would refuse, such as lists nested too deep.
    /// Nothing was sent.
    #[error("the owner could not read this letter ({0}): nothing was sent; change its fields")]
    Unsendable(String),
    /// The letter could not be written. Nothing was sent, and the outbox goes on.
    #[error("{0}: nothing was sent; make room or mend that, and send it again")]
    NotSent(IoFailure),
    /// A rename or a sync failed. The letter may be taken up, now or after a crash, or never.
    #[error(
        "{cause}: whether the letter was sent is unknown, and this outbox sends no more; see what \
         became of its run, then open another outbox"
    )]
    Unknown {
        /// The letter in doubt.
        letter: LetterRef,
        /// What failed.
        cause: IoFailure,
    },
    /// An earlier letter is in doubt, and this one must not overtake it. Nothing was sent.
    #[error("an earlier letter failed ({0}): nothing was sent; open another outbox")]
    Stopped(IoFailure),
    /// The outbox belongs to another process, of which this one is a fork. Nothing was sent: both
    /// would give the same names to their letters.
    #[error(
        "this process is a fork of the one that opened the outbox: nothing was sent; open one here"
    )]
    Forked,
    /// The letter is not taken and never will be: its file is not as it was sent.
    #[error(
        "letter {} of sender {} was damaged and set aside as {file}: send it again",
        letter.number,
        letter.sender
    )]
    SetAside {
        /// The letter.
        letter: LetterRef,
        /// The file's name now.
        file: String,
    },
    /// No letter has such a name.
    #[error("{0:?} is not a letter: give a name as this mailbox reports it")]
    NoLetter(String),
    /// The file system failed. Nothing is lost.
    #[error("{0}: no letter is lost; mend that and try again")]
    Io(#[from] IoFailure),
}

pub(super) fn failure(operation: &'static str, path: &Path, error: io::Error) -> IoFailure {
    IoFailure {
        operation,
        path: path.to_owned(),
        error: Arc::new(error),
    }
}
