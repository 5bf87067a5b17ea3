//! Letters: what was sent, by the store and by other processes, and what has to become of it.

use std::collections::BTreeMap;

use dalsegno_store::mailbox::{MailboxError, NewLetter, Outbox};
use dalsegno_store::{
    Event, EventRef, Fields, Kind, LetterRef, LettersTaken, NewEvent, NewPayload, Store,
    StoreError, StreamId, field,
};

use super::verdict::{Refusal, Wanted, Wish};
use super::{After, MAILBOX, World, now};

/// `LetterRefused`: whom the letter was for, and why it was not taken.
const TO: u64 = 1;
const WHY: u64 = 2;

/// A letter that was sent, or may have been.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    letter: NewLetter,
    /// Its sender was told that it is durable.
    certain: bool,
}

/// All letters that were ever sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Post(BTreeMap<(String, u64), Sent>);

impl Post {
    pub fn get(&self, letter: &LetterRef) -> Option<&Sent> {
        self.0.get(&(letter.sender.clone(), letter.number))
    }

    /// A letter of a sender that was certainly sent, from one number to before another.
    pub fn certain(&self, sender: &str, from: u64, to: u64) -> Option<u64> {
        let range = (sender.to_owned(), from)..(sender.to_owned(), to);
        let mut letters = self.0.range(range);
        letters.find_map(|((_, number), sent)| sent.certain.then_some(*number))
    }

    fn certain_ones(&self) -> impl Iterator<Item = &(String, u64)> {
        let all = self.0.iter();
        all.filter_map(|(name, sent)| sent.certain.then_some(name))
    }
}

impl Sent {
    /// What its owner does with it.
    pub fn wish(&self, letter: &LetterRef) -> Wish {
        let sent = &self.letter;
        let mut new = NewEvent::new(sent.kind.clone()).with_fields(sent.fields.clone());
        let payload = sent.payload.clone();
        new.input = payload.map(|(kind, bytes)| NewPayload::new(kind, bytes));
        if !may_be_sent(&sent.kind) {
            // Anything that is refused in every stream.
            new.kind = Kind::Unknown(u64::MAX);
        }
        Wish {
            stream: sent.to.clone(),
            expected: None,
            token: None,
            events: vec![Wanted {
                new,
                letter: Some(letter.clone()),
            }],
        }
    }

    /// The event that says that it was refused, with the words of the one found.
    pub fn refusal(&self, found: &Event) -> Wanted {
        let fields = Fields::new()
            .with(TO, self.letter.to.to_string())
            .with(WHY, found.fields.text(WHY).unwrap_or_default());
        Wanted::new(NewEvent::new(Kind::LetterRefused).with_fields(fields))
    }
}

/// What may be said to a run from outside.
fn may_be_sent(kind: &Kind) -> bool {
    let said = [
        Kind::SignalReceived,
        Kind::ApprovalAnswered,
        Kind::CancelRequested,
        Kind::StepResolved,
        Kind::AttentionCleared,
    ];
    said.contains(kind) || matches!(kind, Kind::User(_))
}

impl World {
    fn letter(&mut self) -> NewLetter {
        let to = match self.rng.below(12) {
            0 => StreamId::store(),
            1 => self.memory(),
            _ => self.any_run(),
        };
        let kind = match self.rng.below(10) {
            0..5 => Kind::SignalReceived,
            5 => Kind::ApprovalAnswered,
            6 => Kind::AttentionCleared,
            7 => Kind::User("note".into()),
            8 => Kind::RunCompleted,
            _ => Kind::CancelRequested,
        };
        let mut letter = NewLetter::new(to, kind, self.time());
        letter.fields = Fields::new().with(field::REASON, self.rng.next_u64());
        if self.rng.chance(300) {
            let payload = self.payload();
            letter.payload = Some((payload.content_type, payload.bytes));
        }
        letter
    }

    /// Sends a letter through the store, or as another process would.
    pub(super) fn send(&mut self) -> Result<After, String> {
        let letter = self.letter();
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        if self.rng.chance(400) {
            return match now(store.send(&letter)) {
                Ok(sent) => self.sent(&sent, letter),
                Err(StoreError::Mailbox(e)) => self.not_sent(letter, e),
                Err(e) if Refusal::of(&e) == Some(Refusal::Refused) => {
                    if may_be_sent(&letter.kind) {
                        return Err(format!("send: {e}"));
                    }
                    Ok(After::GoOn)
                }
                Err(e) => self.failed("send", &e),
            };
        }
        if self.outboxes.is_empty() || self.rng.chance(100) {
            let fs = std::sync::Arc::new(self.disk.clone());
            match Outbox::open(fs, MAILBOX.as_ref()) {
                Ok(outbox) => self.outboxes.push(outbox),
                Err(e) => return self.failed("outbox", &e.into()),
            }
        }
        let at = self.rng.index(self.outboxes.len());
        match self.outboxes[at].send(letter.clone()) {
            Ok(sent) => self.sent(&sent, letter),
            Err(e) => {
                if matches!(e, MailboxError::Unknown { .. } | MailboxError::Stopped(_)) {
                    self.outboxes.swap_remove(at);
                }
                self.not_sent(letter, e)
            }
        }
    }

    fn sent(&mut self, sent: &LetterRef, letter: NewLetter) -> Result<After, String> {
        self.summary.letters += 1;
        self.note_letter(sent, letter, true)?;
        Ok(After::GoOn)
    }

    fn not_sent(&mut self, letter: NewLetter, error: MailboxError) -> Result<After, String> {
        if let MailboxError::Unknown { letter: name, .. } = &error {
            self.note_letter(name, letter, false)?;
        }
        self.failed("send", &error.into())
    }

    fn note_letter(
        &mut self,
        name: &LetterRef,
        letter: NewLetter,
        certain: bool,
    ) -> Result<(), String> {
        self.history.names.insert(letter.to.clone());
        let key = (name.sender.clone(), name.number);
        match self.post.0.insert(key, Sent { letter, certain }) {
            Some(_) => Err(format!("two letters with one name: {name:?}")),
            None => Ok(()),
        }
    }

    /// Takes up the letters that wait, and compares what became of them.
    pub(super) fn take_letters(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let before = self.history.entries.len();
        let result = now(store.take_letters());
        if self.catch_up()? {
            return Ok(After::Reopen);
        }
        let taken = match result {
            Ok(taken) => taken,
            Err(e) => return self.failed("take_letters", &e),
        };
        self.compare_taken(before, &taken)?;
        if self.history.entries.len() > before {
            // What was taken is durable, and so is what was before it.
            self.history.acknowledge(self.history.entries.len());
        }
        for (letter, _) in &taken.taken {
            match now(store.is_taken(letter)) {
                Ok(false) => return Err(format!("{letter:?} was taken, and is still there")),
                Ok(true) => {}
                Err(e) => return self.failed("is_taken", &e),
            }
        }
        Ok(After::GoOn)
    }

    fn compare_taken(&mut self, before: usize, answer: &LettersTaken) -> Result<(), String> {
        let mut taken = Vec::new();
        let mut refused = Vec::new();
        for entry in &self.history.entries[before..] {
            let Some(letter) = entry.event.letter.clone() else {
                continue;
            };
            match entry.event.kind {
                Kind::LetterRefused => refused.push(letter),
                _ => taken.push((
                    letter,
                    EventRef {
                        stream: entry.event.stream.clone(),
                        sequence: entry.event.sequence,
                    },
                )),
            }
        }
        self.summary.letters_taken += taken.len() as u64;
        self.summary.letters_refused += refused.len() as u64;
        let told: Vec<LetterRef> = answer.refused.iter().map(|(l, _)| l.clone()).collect();
        if answer.taken != taken || told != refused || !answer.bad.is_empty() {
            return Err(format!(
                "taking letters answered {answer:?}, expected {taken:?} and {refused:?} refused"
            ));
        }
        Ok(())
    }

    /// Takes in the events that the store made of a call. True if the power went meanwhile.
    pub(super) fn catch_up(&mut self) -> Result<bool, String> {
        let Some(store) = self.store.clone() else {
            return Ok(true);
        };
        let mut found = Vec::new();
        self.pause_faults();
        let names: Vec<StreamId> = self.history.names.iter().cloned().collect();
        for name in names.iter().chain([&StreamId::store()]) {
            let from = self.history.head(name) + 1;
            match now(store.read(name, from, usize::MAX)) {
                Ok(events) => found.extend(events),
                Err(_) if self.disk.crashed() => return Ok(true),
                Err(e) => return Err(format!("reading {name} behind {from}: {e}")),
            }
        }
        self.resume_faults();
        found.sort_by_key(|recorded| recorded.event.clock);
        found.dedup_by_key(|recorded| recorded.event.clock);
        for recorded in found {
            self.history
                .adopt_event(&recorded.event, &self.post, self.sizes)?;
        }
        Ok(false)
    }

    /// Every letter that was certainly sent is in the mailbox or has become an event.
    pub(super) fn check_post(&self, files: &[String]) -> Result<(), String> {
        for (sender, number) in self.post.certain_ones() {
            let name = (sender.clone(), *number);
            let file = format!("{sender}-{number:016}.letter");
            if !self.history.letters.contains(&name) && !files.contains(&file) {
                return Err(format!("letter {number} of {sender} was sent, and is gone"));
            }
        }
        Ok(())
    }

    /// At the end, on a healthy disk: all letters that were certainly sent are events.
    pub(super) fn all_letters_taken(&mut self) -> Result<(), String> {
        self.take_letters()?;
        let left = self.post.certain_ones();
        let taken = &self.history.letters;
        match left.into_iter().find(|name| !taken.contains(*name)) {
            Some((sender, number)) => Err(format!(
                "letter {number} of {sender} was sent, and never taken"
            )),
            None => Ok(()),
        }
    }
}
