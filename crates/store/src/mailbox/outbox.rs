//! The sender's side: puts letters into the mailbox.
//!
//! Invariants: a letter is there, whole and durable, when `send` returns `Ok`. When a letter gets
//! its name, every earlier one of the same outbox has been durable before. A number is used again
//! only if the letter that had it certainly never got its name: an owner that had taken that one
//! would drop the second as a leftover.
//!
//! What it cannot know: all senders and the owner sync the same folder. If the sync of one of them
//! fails just between another's rename and sync, the second may be told that all is well, unless
//! the file system stops at such an error, as those with a journal usually do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dalsegno_log::IoFailure;
use dalsegno_log::fs::{Fs, OpenMode, PlaceError, place_file};

use super::error::failure;
use super::letter::{self, NewLetter, file_name};
use super::{DEFAULT_LETTER_LIMIT_BYTES, LETTER_LIMIT_BYTES, MailboxError};
use crate::event::LetterRef;

/// Sends letters to the owner of a store, whether one is running or not.
#[derive(Debug)]
pub struct Outbox {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    sender: String,
    limit_bytes: u64,
    opened_by: u32,
    line: Mutex<Line>,
}

/// The letters of one outbox stand in a line.
#[derive(Debug)]
enum Line {
    /// The next one gets this number.
    Next(u64),
    /// One is in doubt, and none may overtake it.
    Stopped(IoFailure),
}

impl Outbox {
    /// Opens the mailbox in `dir`, which is made if it is missing, as a sender of its own.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path) -> Result<Outbox, MailboxError> {
        let dir = open_folder(fs.as_ref(), dir)?;
        Ok(Outbox {
            // Never that of another outbox, so that no two ever write the same name.
            sender: format!("{:016x}", fs.unique()),
            fs,
            dir,
            limit_bytes: DEFAULT_LETTER_LIMIT_BYTES,
            opened_by: std::process::id(),
            line: Mutex::new(Line::Next(1)),
        })
    }

    /// Letters may be this large, header and hash included; at most [`LETTER_LIMIT_BYTES`].
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Outbox {
        self.limit_bytes = bytes.min(LETTER_LIMIT_BYTES);
        self
    }

    /// The name under which its letters go.
    pub fn sender(&self) -> &str {
        &self.sender
    }

    /// Sends a letter: it is durable when this returns `Ok`. The letters of all threads that share
    /// an outbox are taken up in the order of their calls.
    ///
    /// # Errors
    /// Only after [`MailboxError::Unknown`] may the letter have been sent, and from then on the
    /// outbox refuses every other with [`MailboxError::Stopped`].
    pub fn send(&self, letter: NewLetter) -> Result<LetterRef, MailboxError> {
        if std::process::id() != self.opened_by {
            return Err(MailboxError::Forked);
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match &*line {
            Line::Next(number) => *number,
            Line::Stopped(cause) => return Err(MailboxError::Stopped(cause.clone())),
        };
        let letter_ref = LetterRef {
            sender: self.sender.clone(),
            number,
        };
        let path = self.path(&letter_ref)?;
        let bytes = self.encode(letter, &letter_ref)?;
        match self.place(&path, &bytes) {
            Ok(()) => {
                *line = Line::Next(number + 1);
                Ok(letter_ref)
            }
            Err(Trouble::NotSent(cause)) => Err(MailboxError::NotSent(cause)),
            Err(Trouble::Unknown(cause)) => {
                *line = Line::Stopped(cause.clone());
                Err(MailboxError::Unknown {
                    letter: letter_ref,
                    cause,
                })
            }
        }
    }

    /// Whether the owner has taken the letter up: its file is gone. A power cut may bring the file
    /// back until the owner looks again; what the letter said has happened once nevertheless.
    ///
    /// # Errors
    /// The letter was set aside as damaged; there is no such letter; the file system failed.
    pub fn is_taken(&self, letter: &LetterRef) -> Result<bool, MailboxError> {
        let path = self.path(letter)?;
        if self.exists(&path)? {
            return Ok(false);
        }
        let aside = set_aside_path(&path);
        if self.exists(&aside)? {
            return Err(MailboxError::SetAside {
                letter: letter.clone(),
                file: aside.display().to_string(),
            });
        }
        Ok(true)
    }

    fn exists(&self, path: &Path) -> Result<bool, MailboxError> {
        match self.fs.open(path, OpenMode::Read) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failure("open", path, e).into()),
        }
    }

    fn path(&self, letter: &LetterRef) -> Result<PathBuf, MailboxError> {
        path_of(&self.dir, letter)
    }

    fn encode(&self, letter: NewLetter, as_ref: &LetterRef) -> Result<Vec<u8>, MailboxError> {
        letter::sealed(letter, as_ref, self.limit_bytes)
    }

    fn place(&self, path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
        let mut written = false;
        let placed = place_file(self.fs.as_ref(), &self.dir, path, |file| {
            file.write_full(bytes, 0)?;
            written = true;
            Ok(())
        });
        placed.map_err(|error| match error {
            PlaceError::NotPlaced(e) if !written => Trouble::NotSent(failure("write", path, e)),
            // Behind the writing it was the rename or the folder: a rename that reports an error
            // may have happened, and the owner may have seen the letter.
            PlaceError::NotPlaced(e) => Trouble::Unknown(failure("name", path, e)),
            PlaceError::Sync(e) => Trouble::Unknown(failure("sync", path, e)),
        })
    }
}

enum Trouble {
    NotSent(IoFailure),
    Unknown(IoFailure),
}

/// Makes the mailbox's folder if it is missing; says where it is, also for a process that has gone
/// to another folder since.
pub(super) fn open_folder(fs: &dyn Fs, dir: &Path) -> Result<PathBuf, IoFailure> {
    let absolute = fs.absolute(dir).map_err(|e| failure("find", dir, e))?;
    fs.create_dir(&absolute)
        .map_err(|e| failure("make", &absolute, e))?;
    Ok(absolute)
}

pub(super) fn path_of(dir: &Path, letter: &LetterRef) -> Result<PathBuf, MailboxError> {
    match file_name(letter) {
        Some(name) => Ok(dir.join(name)),
        None => Err(MailboxError::NoLetter(format!(
            "{:.40}-{}",
            letter.sender, letter.number
        ))),
    }
}

/// Where a bad letter goes.
pub(super) fn set_aside_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".bad");
    PathBuf::from(name)
}
