//! What a memory has of a file: its slots, and what became of what was in them.
//!
//! Every chunk of a file that was ever added has a slot: 1, 2, 3 …, given once, in the order of adding.
//! What is in it is found by a key: a hash of the file's name, the generation, the slot, and the time,
//! which counts how often something was added there again. So nobody looks for it among all
//! documents, and the place of a chunk in its file does not matter.
//!
//! | word | means |
//! |---|---|
//! | live | the slot has a text |
//! | gone | the text was retracted because its file did not have it any more; the slot may be used again |
//! | closed | somebody retracted the text, or forgot it |
//! | generation | begun by `--anew` after something was forgotten: from then on only what is forgotten later counts |
//!
//! Invariant: the slots of a generation have no gaps, and a generation that was begun has a first slot.
//! So reading ends at the first key that is not there.

use std::collections::HashMap;

use dalsegno_memory::{Content, DocId, DocKind, HowEnded, Memory, Revision};
use dalsegno_store::Hash;

use super::opening::interrupted;
use crate::exit::Result;
use crate::interrupt;

/// Why a chunk was retracted that its file does not have any more.
pub const GONE: &str = "no longer in its file";

/// Where chunks come from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// What it is called in the memory.
    pub name: &'a str,
    /// From standard input: no file, also if there is one of this name.
    pub is_input: bool,
}

/// Where something was added, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub generation: u32,
    /// From 1, in its generation.
    pub slot: usize,
    /// How often it was used before.
    pub time: u32,
}

impl Place {
    /// The first one of a generation.
    pub fn first(generation: u32) -> Place {
        Place {
            generation,
            slot: 1,
            time: 0,
        }
    }

    /// The one behind it.
    pub fn next(self) -> Place {
        Place {
            slot: self.slot + 1,
            time: 0,
            ..self
        }
    }

    /// The same, the next time.
    fn again(self) -> Place {
        Place {
            time: self.time + 1,
            ..self
        }
    }
}

impl Origin<'_> {
    /// Under which something is added there. A hash: the key stays when the document is forgotten, so
    /// it should say nothing.
    pub fn key(&self, place: Place) -> String {
        let what = match self.is_input {
            true => "input",
            false => "chunk",
        };
        let slot = match place.generation {
            0 => place.slot.to_string(),
            generation => format!("{generation}/{}", place.slot),
        };
        let place = format!("dalsegno {what} {slot} {} {}", place.time, self.name);
        let hash = Hash::of(place.as_bytes()).to_string();
        format!("chunk-{}", &hash[..32])
    }

    /// Shows all that was ever added of it, in the order of slots: each with what it was corrected to.
    ///
    /// # Errors
    /// The memory cannot be read, or the command is to end.
    pub async fn walk(
        &self,
        memory: &Memory,
        mut visit: impl FnMut(Place, Vec<Revision>),
    ) -> Result<()> {
        let mut at = Place::first(0);
        loop {
            go_on()?;
            at = match memory.under_key(&self.key(at)).await? {
                Some(id) => {
                    let revisions = memory.history(id).await?;
                    let is_live = revisions.last().is_some_and(is_live);
                    visit(at, revisions);
                    match is_live {
                        true => at.next(),
                        false => at.again(),
                    }
                }
                None if at.time > 0 => at.next(),
                None if at.slot > 1 => Place::first(at.generation + 1),
                None => return Ok(()),
            };
        }
    }
}

/// Whether it is what the memory says now.
pub fn is_live(revision: &Revision) -> bool {
    revision.ended.is_none() && revision.content.is_some()
}

/// An error if the command is to end.
///
/// # Errors
/// It is.
pub fn go_on() -> Result<()> {
    interrupt::check().map_err(|e| interrupted(e.into()))
}

/// What a chunk says, in short. Two that say the same have the same.
pub fn said(title: Option<&str>, text: &str) -> Hash {
    let title = title.map_or(String::new(), |title| format!("{} {title}", title.len()));
    Hash::of(format!("{title}\n{text}").as_bytes())
}

/// What became of a slot.
#[derive(Clone, Debug)]
pub enum State {
    /// It has a text.
    Live {
        /// The document.
        id: DocId,
        /// What it says.
        said: Hash,
        /// Kind, tags and so on are as was asked for.
        is_as_asked: bool,
    },
    /// Its text was gone from the file.
    Gone,
    /// Somebody wanted it away.
    Closed,
}

/// A slot.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Where something could be added in it next.
    pub next: Place,
    /// What became of it.
    pub state: State,
}

/// All that is known of a file.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The slots of all generations, in order. The number in a source is the place here, from 1.
    pub slots: Vec<Slot>,
    /// What somebody retracted: when, and in which slot it was.
    retracted: HashMap<Hash, (u64, usize)>,
    /// When what a chunk says was last added.
    added: HashMap<Hash, u64>,
    /// When something of the file was last forgotten.
    forgotten_at: u64,
    /// When the last generation was begun.
    begun_at: u64,
}

impl Known {
    /// Reads it. `is_as_asked` says whether what is said beside the text is what it should be.
    ///
    /// # Errors
    /// The memory cannot be read, or the command is to end.
    pub async fn read(
        memory: &Memory,
        origin: Origin<'_>,
        is_as_asked: impl Fn(DocKind, &Content) -> bool,
    ) -> Result<Known> {
        let mut known = Known::default();
        let walked = origin.walk(memory, |place, revisions| {
            known.take(place, &revisions, &is_as_asked);
        });
        walked.await?;
        Ok(known)
    }

    fn take(
        &mut self,
        place: Place,
        revisions: &[Revision],
        is_as_asked: impl Fn(DocKind, &Content) -> bool,
    ) {
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else {
            return;
        };
        if place == Place::first(place.generation) && place.generation > 0 {
            self.begun_at = first.id.0;
        }
        if place.time == 0 {
            let (next, state) = (place, State::Closed);
            self.slots.push(Slot { next, state });
        }
        for revision in revisions {
            let ended = revision.ended.as_ref();
            if let Some(forgotten) = ended.filter(|ended| ended.how == HowEnded::Forgotten) {
                self.forgotten_at = self.forgotten_at.max(forgotten.sequence);
            }
        }
        if let Some(content) = &first.content {
            let at = self.added.entry(said_by(content)).or_default();
            *at = first.id.0.max(*at);
        }
        let index = self.slots.len() - 1;
        let slot = &mut self.slots[index];
        slot.next = place.again();
        slot.state = match (&last.ended, &last.content) {
            (None, Some(content)) => State::Live {
                id: last.id,
                said: said_by(content),
                is_as_asked: is_as_asked(last.kind, content),
            },
            (Some(ended), Some(content)) if ended.how == HowEnded::Retracted => {
                if ended.reason.as_deref() == Some(GONE) {
                    State::Gone
                } else {
                    let entry = self.retracted.entry(said_by(content));
                    let last = entry.or_insert((0, index));
                    *last = (*last).max((ended.sequence, index));
                    State::Closed
                }
            }
            _ => State::Closed,
        };
    }

    /// Whether somebody retracted what a chunk says, and nobody added it anew since: the slot that it
    /// was in.
    pub fn retracted(&self, said: &Hash) -> Option<usize> {
        let (at, slot) = self.retracted.get(said)?;
        let added = self.added.get(said).copied().unwrap_or(0);
        (added < *at).then_some(*slot)
    }

    /// Whether something was forgotten since the last generation was begun. Then nobody can tell of a
    /// text that is not known whether it is the one.
    pub fn has_forgotten(&self) -> bool {
        self.forgotten_at > self.begun_at
    }

    /// Where a slot that never was would be.
    pub fn next_new(&self) -> Place {
        let last = self.slots.last();
        last.map_or(Place::first(0), |last| last.next.next())
    }
}

fn said_by(content: &Content) -> Hash {
    said(content.title.as_deref(), &content.text)
}
