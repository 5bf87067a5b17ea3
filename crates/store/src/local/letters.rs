//! Letters: from the mailbox into the streams they are for.
//!
//! Invariant: a letter's file goes only when the event that came of it is durable; and that event
//! says which letter it was, so that a letter whose file survives is not taken twice.

use std::sync::{Arc, Mutex, OnceLock};

use super::disk::Disk;
use super::folder::Folder;
use super::{Inner, lock};
use crate::engine;
use crate::error::StoreError;
use crate::event::{EventRef, LetterRef};
use crate::mailbox::{Arrived, Inbox, Letter, MailboxError, NewLetter, Outbox};
use crate::rules::Rule;
use crate::store::{Append, LettersTaken, Limits};

/// So many letters are taken before their files are removed. Far below the number of senders that
/// a state remembers.
const AT_ONCE: usize = 256;

/// Both sides of a store's mailbox, opened when first used.
#[derive(Debug)]
pub(crate) struct Boxes {
    folder: Folder,
    limit_bytes: u64,
    outbox: OnceLock<Outbox>,
    inbox: Mutex<Option<Inbox>>,
}

impl Boxes {
    pub fn new(folder: &Folder, limits: &Limits) -> Boxes {
        Boxes {
            folder: folder.clone(),
            limit_bytes: limits.letter_bytes,
            outbox: OnceLock::new(),
            inbox: Mutex::default(),
        }
    }

    fn outbox(&self) -> Result<&Outbox, MailboxError> {
        if let Some(outbox) = self.outbox.get() {
            return Ok(outbox);
        }
        let fs = Arc::clone(&self.folder.fs);
        let outbox = Outbox::open(fs, &self.folder.mailbox())?;
        Ok(self
            .outbox
            .get_or_init(|| outbox.limit_bytes(self.limit_bytes)))
    }
}

impl Inner {
    /// Puts a letter into the mailbox.
    pub fn send(&self, letter: NewLetter) -> Result<LetterRef, StoreError> {
        engine::check_letter(&letter.to, &letter.kind)?;
        Ok(self.letters.outbox()?.send(letter)?)
    }

    /// Whether a letter has left the mailbox.
    pub fn is_taken(&self, letter: &LetterRef) -> Result<bool, StoreError> {
        Ok(self.letters.outbox()?.is_taken(letter)?)
    }

    /// Takes up all letters that wait.
    pub fn take_letters(&self) -> Result<LettersTaken, StoreError> {
        let mut all = LettersTaken::default();
        self.with_inbox(|inbox| {
            while self.take_some(inbox, &mut all)? {}
            Ok(())
        })?;
        Ok(all)
    }

    /// One at a time uses the inbox, and only if there is something in it, and when all that the
    /// state knows is durable: a letter is a leftover only then.
    fn with_inbox(
        &self,
        using: impl FnOnce(&Inbox) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let log = self.disk.log()?;
        let mut inbox = lock(&self.letters.inbox);
        let applied = {
            let core = lock(&self.core);
            if core.closed {
                return Err(StoreError::Closed);
            }
            core.applied
        };
        let inbox = match &mut *inbox {
            Some(inbox) => inbox,
            // Most of the time nobody has said anything, and a folder need not be made for that.
            None if self.folder.list(&self.folder.mailbox())?.is_empty() => return Ok(()),
            none => {
                let fs = Arc::clone(&self.folder.fs);
                none.insert(Inbox::open(fs, &self.folder.mailbox())?)
            }
        };
        // Who looks often must not pay for a sync each time.
        if inbox.is_empty()? {
            return Ok(());
        }
        if applied > 0 {
            log.wait_durable(applied)?;
        }
        using(inbox)
    }

    /// Takes up some letters; whether there may be more.
    fn take_some(&self, inbox: &Inbox, all: &mut LettersTaken) -> Result<bool, StoreError> {
        let forgetful = self.options.mutant.breaks(Rule::KnowLetters);
        let last = |sender: &str| match forgetful {
            true => 0,
            false => lock(&self.core).state.last_letter(sender),
        };
        let arrived = inbox.pending(&last, AT_ONCE)?;
        let mut done = Vec::new();
        let mut set_aside = false;
        let mut position = 0;
        for arrived in arrived {
            match arrived {
                Arrived::Letter(letter) => {
                    let letter_ref = letter.letter_ref();
                    position = self.take_letter(letter, all)?;
                    done.push(letter_ref);
                }
                Arrived::Bad { file, reason } => {
                    inbox.set_aside(&file)?;
                    set_aside = true;
                    all.bad.push((file, reason));
                }
                Arrived::Held { .. } => {}
            }
        }
        let hasty = self.options.mutant.breaks(Rule::RemoveAfterDurable);
        if let (Disk::Owner(log), false) = (&self.disk, done.is_empty() || hasty) {
            log.wait_durable(position)?;
        }
        inbox.remove(&done)?;
        // How many there are in a batch says nothing: it may have been full by its size.
        Ok(set_aside || !done.is_empty())
    }

    /// Makes a letter an event of its stream, or of the store's if that does not take it.
    fn take_letter(&self, letter: Letter, all: &mut LettersTaken) -> Result<u64, StoreError> {
        let letter_ref = letter.letter_ref();
        let to = letter.to.clone();
        let taken = engine::letter_event(letter)
            .and_then(|event| self.append(vec![Append::to(to.clone(), vec![event])]));
        let why = match taken {
            Ok(appended) => {
                let sequence = appended.heads.first().map_or(0, |head| head.sequence);
                let event = EventRef {
                    stream: to,
                    sequence,
                };
                all.taken.push((letter_ref, event));
                return Ok(appended.position);
            }
            Err(e) if engine::is_letters_fault(&e) => e.to_string(),
            // The disk, not the letter: it stays where it is.
            Err(e) => return Err(e),
        };
        let event = engine::letter_refused(&letter_ref, &to, &why);
        let appended = self.append_own(vec![event])?;
        all.refused.push((letter_ref, why));
        Ok(appended.position)
    }
}
