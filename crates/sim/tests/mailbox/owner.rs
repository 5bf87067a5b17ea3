//! A small owner of a store, and the promises as an oracle.
//!
//! The owner's events are a list that no crash touches: it stands for the log, which is tested
//! elsewhere. Senders number what they say, so that the list shows whether anything is missing,
//! there twice, or out of order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dalsegno_log::fs::Fs;
use dalsegno_sim::disk::SimDisk;
use dalsegno_store::mailbox::{Arrived, Inbox, Letter, MailboxError, NewLetter, Outbox};
use dalsegno_store::{Fields, Kind, LetterRef, StreamId};

pub const DIR: &str = "store/mailbox";

/// A letter that says `word`.
pub fn saying(word: u64) -> NewLetter {
    let mut letter = NewLetter::new(StreamId::run("r").unwrap(), Kind::SignalReceived, 7);
    letter.fields = Fields::new().with(1, word);
    letter
}

pub fn outbox(fs: impl Fs + 'static) -> Result<Outbox, MailboxError> {
    Outbox::open(Arc::new(fs), Path::new(DIR))
}

/// What senders were told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Each sender's letters that were acknowledged: number and word.
    pub sent: BTreeMap<String, Vec<(u64, u64)>>,
    /// Letters that may have been sent: sender, number and word.
    pub in_doubt: Vec<(String, u64, u64)>,
}

impl Told {
    /// Notes what `send` said about a letter with this word. True if it was sent.
    pub fn note(
        &mut self,
        outbox: &Outbox,
        word: u64,
        said: Result<LetterRef, MailboxError>,
    ) -> bool {
        match said {
            Ok(letter) => {
                assert_eq!(letter.sender, outbox.sender());
                let sent = self.sent.entry(letter.sender).or_default();
                sent.push((letter.number, word));
                return true;
            }
            Err(MailboxError::Unknown { letter, .. }) => {
                self.in_doubt.push((letter.sender, letter.number, word));
            }
            Err(MailboxError::NotSent(_) | MailboxError::Stopped(_)) => {}
            Err(other) => panic!("{other}"),
        }
        false
    }
}

/// What the owner has on record.
#[derive(Clone, Debug, Default)]
pub struct Events(Vec<(LetterRef, u64)>);

impl Events {
    fn last(&self, sender: &str) -> u64 {
        let numbers = self.0.iter().filter(|(letter, _)| letter.sender == sender);
        numbers.map(|(letter, _)| letter.number).max().unwrap_or(0)
    }

    fn record(&mut self, letter: &Letter) {
        let word = letter.fields.number(1).unwrap();
        self.0.push((letter.letter_ref(), word));
    }

    /// One round of the owner. Says how many letters it took; an error may come behind that.
    pub fn take_up(&mut self, inbox: &Inbox, limit: usize) -> (usize, Result<(), MailboxError>) {
        let arrived = match inbox.pending(&|sender| self.last(sender), limit) {
            Ok(arrived) => arrived,
            Err(e) => return (0, Err(e)),
        };
        let mut taken = Vec::new();
        for arrived in arrived {
            match arrived {
                Arrived::Letter(letter) => {
                    self.record(&letter);
                    taken.push(letter.letter_ref());
                }
                Arrived::Held { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(taken.len() <= limit);
        (taken.len(), inbox.remove(&taken))
    }

    /// A new process of the owner on a disk that works takes everything up, and the mailbox is
    /// empty but for temporary files.
    pub fn take_up_all(&mut self, disk: &SimDisk) {
        let inbox = Inbox::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
        loop {
            let (taken, result) = self.take_up(&inbox, 2);
            result.unwrap();
            if taken == 0 {
                break;
            }
        }
        let left = disk.files(DIR);
        assert!(left.iter().all(|name| name.ends_with(".tmp")), "{left:?}");
    }

    /// Nothing twice, nothing out of order or left out in between, nothing made up.
    pub fn check(&self, told: &Told) {
        let mut by_sender = BTreeMap::<&str, Vec<(u64, u64)>>::new();
        for (letter, word) in &self.0 {
            by_sender
                .entry(&letter.sender)
                .or_default()
                .push((letter.number, *word));
        }
        for (sender, taken) in by_sender {
            let numbers: Vec<u64> = taken.iter().map(|(number, _)| *number).collect();
            let dense: Vec<u64> = (1..=numbers.len() as u64).collect();
            assert_eq!(numbers, dense, "of {sender}");
            for (number, word) in taken {
                let sent = told
                    .sent
                    .get(sender)
                    .is_some_and(|s| s.contains(&(number, word)));
                let doubt = told.in_doubt.contains(&(sender.to_owned(), number, word));
                assert!(sent || doubt, "{sender} never sent {number} saying {word}");
            }
        }
    }

    /// The same, and everything that was acknowledged is there.
    pub fn check_all(&self, told: &Told) {
        self.check(told);
        for (sender, sent) in &told.sent {
            for (number, word) in sent {
                let found = self.0.iter().any(|(letter, found)| {
                    letter.sender == *sender && letter.number == *number && found == word
                });
                assert!(found, "letter {number} of {sender} is lost");
            }
        }
    }
}
