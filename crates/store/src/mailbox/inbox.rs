//! The owner's side: finds letters, and removes those that have been taken up.
//!
//! Invariants: the letters of a sender are given in the order of its calls, none left out in
//! between. A file is removed only if the owner's durable events have it already. What is no
//! letter's name is never touched: foreign files, letters set aside, and temporary files.
//!
//! A temporary file (`<letter>.tmp`) may be one that a live sender is writing, so it is not removed
//! either. A sender that is killed while it sends leaves at most one, and nobody reads it. It may
//! be deleted by hand at any time: at worst a sender that was just writing it is told that its
//! letter is in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dalsegno_log::IoFailure;
use dalsegno_log::fs::{Fs, OpenMode};

use super::error::failure;
use super::letter::{Letter, Unreadable, parse_name};
use super::outbox::{open_folder, path_of, set_aside_path};
use super::{LETTER_LIMIT_BYTES, MailboxError};
use crate::event::LetterRef;

/// A batch of letters ends when its files together have this many bytes: with the largest letter
/// that may come on top, this bounds what is held in memory.
const BATCH_BYTES: u64 = LETTER_LIMIT_BYTES;

/// What was found in the mailbox.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Arrived {
    /// A letter, to be taken up.
    Letter(Letter),
    /// A file with a letter's name that is not as any sender wrote it: bits have rotted, or it is
    /// foreign. To be [set aside](Inbox::set_aside).
    Bad {
        /// Its name in the folder.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A letter that cannot be read now: the disk failed, or it is from a newer version of this
    /// program. It stays where it is, and the later letters of its sender wait behind it.
    Held {
        /// Its name in the folder.
        file: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// The mailbox as the owner of the store sees it. There must be one only.
#[derive(Debug)]
pub struct Inbox {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// The sender at whose letters the last batch was full.
    stopped_at: Mutex<String>,
}

impl Inbox {
    /// Opens the mailbox in `dir`, which is made if it is missing. Only the owner of the store may.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path) -> Result<Inbox, MailboxError> {
        let dir = open_folder(fs.as_ref(), dir)?;
        Ok(Inbox {
            fs,
            dir,
            stopped_at: Mutex::default(),
        })
    }

    /// Whether nothing waits. Cheap, for who looks often.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn is_empty(&self) -> Result<bool, MailboxError> {
        Ok(self.waiting()?.is_empty())
    }

    /// What waits, each sender's letters together and in order: at most `limit` letters (and at
    /// least one), at most as many bad ones, and for each sender at most one that is held.
    ///
    /// `taken` says which letter of a sender was the last that became a *durable* event; 0 if
    /// none did. Letters up to it are leftovers of a crash between recording and removing: they
    /// are removed and not given again. So the next call, with what `taken` says then, goes on
    /// where this one stopped, and begins with another sender if this one's letters filled it.
    ///
    /// # Errors
    /// The folder cannot be listed. That a single file cannot be read is no error but
    /// [`Arrived::Held`].
    pub fn pending(
        &self,
        taken: &dyn Fn(&str) -> u64,
        limit: usize,
    ) -> Result<Vec<Arrived>, MailboxError> {
        let waiting = self.waiting()?;
        let mut stopped_at = self
            .stopped_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let after = (Bound::Excluded(stopped_at.as_str()), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(stopped_at.as_str()));
        let turns = waiting
            .range::<str, _>(after)
            .chain(waiting.range::<str, _>(up_to));
        let mut batch = Batch::new(limit);
        for (sender, numbers) in turns {
            self.read_sender(sender, numbers, taken(sender), &mut batch);
            if batch.is_full() {
                *stopped_at = sender.clone();
                break;
            }
        }
        Ok(batch.found)
    }

    /// Removes letters that were taken up. To be called only when the events that came of them
    /// are durable.
    ///
    /// # Errors
    /// A file could not be removed, or the folder not synced. That is harmless: what stays, or
    /// comes back after a crash, is a leftover that [`pending`](Self::pending) drops.
    pub fn remove(&self, letters: &[LetterRef]) -> Result<(), MailboxError> {
        let mut first = None;
        for letter in letters {
            let path = path_of(&self.dir, letter)?;
            match self.fs.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    first.get_or_insert(failure("remove", &path, e));
                }
                _ => {}
            }
        }
        self.sync()?;
        first.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Whether a file with a letter's name is no letter. One that cannot be read now may be.
    pub(crate) fn is_bad(&self, file: &str) -> bool {
        let letter = parse_name(file);
        letter
            .is_some_and(|letter| matches!(self.read(&self.dir.join(file), &letter), Found::Bad(_)))
    }

    /// Takes a bad letter out of the way: it is renamed to `<file>.bad` and kept for a person to
    /// look at. What it said is best sent again by a new letter: under its old name it would be
    /// taken for a leftover once later ones of its sender are taken.
    ///
    /// # Errors
    /// `file` is no letter's name, or the file system failed; the letter is found again then.
    pub fn set_aside(&self, file: &str) -> Result<(), MailboxError> {
        if parse_name(file).is_none() {
            return Err(MailboxError::NoLetter(file.chars().take(80).collect()));
        }
        let path = self.dir.join(file);
        let mut aside = set_aside_path(&path);
        // A rename replaces what has the name; but nothing set aside is ever deleted.
        match self.fs.open(&aside, OpenMode::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            _ => {
                let other = format!("{file}.{:016x}", self.fs.unique());
                aside = set_aside_path(&self.dir.join(other));
            }
        }
        self.fs
            .rename(&path, &aside)
            .map_err(|e| failure("set aside", &path, e))?;
        self.sync()?;
        Ok(())
    }

    fn sync(&self) -> Result<(), IoFailure> {
        self.fs
            .sync_dir(&self.dir)
            .map_err(|e| failure("sync", &self.dir, e))
    }

    /// The letters in the folder, by sender and number, without a gap where there is none.
    ///
    /// A listing shows every file that was there before it began, but of those that come while it
    /// runs any or none: it may show letter 8 and not letter 7, which came just before. So there
    /// are two listings. If the first shows letter 8 of a sender, then letters 1 to 7 had their
    /// names before, as a sender begins no letter before the last one has its name; the second
    /// listing begins after that, and must show them. Of what is above the highest number of the
    /// first listing, the same cannot be said: that waits for the next call.
    fn waiting(&self) -> Result<BTreeMap<String, BTreeSet<u64>>, MailboxError> {
        let mut waiting = self.list()?;
        let again = self.list()?;
        for (sender, numbers) in &mut waiting {
            let Some(highest) = numbers.last().copied() else {
                continue;
            };
            if let Some(more) = again.get(sender) {
                numbers.extend(more.range(..=highest));
            }
        }
        Ok(waiting)
    }

    fn list(&self) -> Result<BTreeMap<String, BTreeSet<u64>>, IoFailure> {
        let names = self
            .fs
            .list(&self.dir)
            .map_err(|e| failure("list", &self.dir, e))?;
        let mut letters = BTreeMap::<String, BTreeSet<u64>>::new();
        for LetterRef { sender, number } in names.iter().filter_map(|name| parse_name(name)) {
            letters.entry(sender).or_default().insert(number);
        }
        Ok(letters)
    }

    /// Reads the letters of one sender into the batch, until it is full or one is held.
    fn read_sender(&self, sender: &str, numbers: &BTreeSet<u64>, taken: u64, batch: &mut Batch) {
        for &number in numbers {
            if batch.is_full() {
                return;
            }
            let letter = LetterRef {
                sender: sender.to_owned(),
                number,
            };
            let Ok(path) = path_of(&self.dir, &letter) else {
                continue;
            };
            let leftover = number <= taken;
            match self.read(&path, &letter) {
                Found::Gone => {}
                Found::Letter(..) if leftover => {
                    // If this fails, or a crash undoes it, it is tried again with the next call.
                    drop(self.fs.remove(&path));
                }
                Found::Letter(letter, bytes) => batch.letter(letter, bytes),
                // A leftover too: whether it was taken before it went bad, nobody knows.
                Found::Bad(reason) => batch.bad(name_of(&path), reason),
                Found::Held(_) if leftover => {}
                Found::Held(reason) => {
                    let file = name_of(&path);
                    batch.found.push(Arrived::Held { file, reason });
                    return;
                }
            }
        }
    }

    fn read(&self, path: &Path, letter: &LetterRef) -> Found {
        let bytes = match self.read_bytes(path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                return Found::Bad(format!(
                    "it is larger than any letter may be, which is {LETTER_LIMIT_BYTES} bytes"
                ));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Found::Gone,
            Err(e) => {
                let failure = failure("read", path, e);
                return Found::Held(format!(
                    "{failure}: mend the disk, or give the letter up by setting it aside"
                ));
            }
        };
        match Letter::decode(&bytes, letter) {
            Ok(letter) => Found::Letter(letter, bytes.len() as u64),
            Err(Unreadable::Bad(reason)) => Found::Bad(reason),
            Err(newer @ Unreadable::Newer(_)) => Found::Held(newer.to_string()),
        }
    }

    /// All bytes of a file, or none if they are too many for a letter.
    fn read_bytes(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let file = self.fs.open(path, OpenMode::Read)?;
        let len = file.len()?;
        if len > LETTER_LIMIT_BYTES {
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        let read = file.read_full(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(Some(bytes))
    }
}

enum Found {
    /// With the length of its file.
    Letter(Letter, u64),
    Bad(String),
    Held(String),
    Gone,
}

/// What one call gives.
struct Batch {
    found: Vec<Arrived>,
    letters_left: usize,
    /// Bad ones are counted apart, so that some which cannot be set aside keep no letter from
    /// being read.
    bad_left: usize,
    bytes: u64,
}

impl Batch {
    fn new(limit: usize) -> Batch {
        Batch {
            found: Vec::new(),
            letters_left: limit.max(1),
            bad_left: limit.max(1),
            bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.letters_left == 0 || self.bytes >= BATCH_BYTES
    }

    fn letter(&mut self, letter: Letter, bytes: u64) {
        self.found.push(Arrived::Letter(letter));
        self.letters_left = self.letters_left.saturating_sub(1);
        self.bytes += bytes;
    }

    fn bad(&mut self, file: String, reason: String) {
        if self.bad_left > 0 {
            self.bad_left -= 1;
            self.found.push(Arrived::Bad { file, reason });
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
