//! The mailbox: how other processes say something to the runs of a store that one process owns.
//!
//! Only one process writes to a store. Everybody else, such as a command that approves, signals or
//! cancels, puts a [`Letter`] into the store's folder `mailbox` with an [`Outbox`]; the owner finds
//! it there with its [`Inbox`], now or when it is started again. The bytes of a letter are in
//! `docs/format.md`.
//!
//! | step | who | what a crash behind it leaves |
//! |---|---|---|
//! | write under a temporary name, sync | sender | a temporary file, which nobody reads |
//! | rename | sender | the whole letter or none, and the sender was told nothing yet |
//! | sync the folder, say `Ok` | sender | the letter |
//! | record an event that names the letter, wait until it is durable | owner | the event, and a letter that is a leftover |
//! | remove the file | owner | the event |
//!
//! Invariants: a letter is durable before `send` returns. The owner takes each one up once, because
//! the event that it becomes says which letter it came from ([`LetterRef`](crate::LetterRef)), and a
//! letter whose number is not above the last one taken from its sender is removed, not taken. The
//! letters of a sender are taken in the order of its calls. A letter that cannot be read never
//! blocks another sender's and is never deleted.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("dalsegno-doc-mailbox-{}", std::process::id()));
//! use std::sync::Arc;
//! use dalsegno_log::fs::RealFs;
//! use dalsegno_store::mailbox::{Arrived, Inbox, NewLetter, Outbox};
//! use dalsegno_store::{Fields, Kind, StreamId};
//!
//! // In one process:
//! let outbox = Outbox::open(Arc::new(RealFs), &dir)?;
//! let mut letter = NewLetter::new(StreamId::run("order-42")?, Kind::SignalReceived, 1_700_000_000);
//! letter.fields = Fields::new().with(1, "paid");
//! let sent = outbox.send(letter)?;
//!
//! // In the owner:
//! let inbox = Inbox::open(Arc::new(RealFs), &dir)?;
//! for arrived in inbox.pending(&|_sender| 0, 100)? {
//!     let Arrived::Letter(letter) = arrived else { continue };
//!     assert_eq!(letter.fields.text(1), Some("paid"));
//!     // Here the event is recorded, and waited for until it is durable.
//!     inbox.remove(&[letter.letter_ref()])?;
//! }
//! assert!(outbox.is_taken(&sent)?);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod inbox;
pub(crate) mod letter;
mod outbox;

pub use error::MailboxError;
pub use inbox::{Arrived, Inbox};
pub use letter::{Letter, NewLetter};
pub use outbox::Outbox;

/// The largest letter that an owner reads, in bytes of its file. Part of the format.
pub const LETTER_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// The largest letter that an [`Outbox`] sends unless it is told otherwise.
pub const DEFAULT_LETTER_LIMIT_BYTES: u64 = 1024 * 1024;

/// Checks a file of the mailbox's folder; `None` if it is no letter's.
pub(crate) fn check_file(
    name: &str,
    read: impl FnOnce() -> Result<Vec<u8>, crate::StoreError>,
) -> Option<Result<(), crate::StoreError>> {
    let letter = letter::parse_name(name)?;
    Some(
        read().and_then(|bytes| match Letter::decode(&bytes, &letter) {
            Ok(_) => Ok(()),
            Err(e) => Err(crate::StoreError::damaged(name, "a letter", e.to_string())),
        }),
    )
}
