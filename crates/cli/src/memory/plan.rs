//! What is to be done so that a memory has of a file what the file says now.
//!
//! | a chunk of the file | then |
//! |---|---|
//! | says what a live slot does, each slot once | it is there; corrected if it has other tags, … |
//! | says what somebody retracted | it is left out, however often the file has it |
//! | is not known, and something of the file was forgotten | it may be that: it is withheld |
//! | is not known, and the next live slot behind that of the chunk before it has vanished | it corrects that one |
//! | is not known otherwise | it is added in a slot that is gone, else in a new one |
//!
//! `--anew` is a person's word that the file is right as it is: nothing is left out or withheld. If
//! something was forgotten, what is not known then begins a generation.
//!
//! A slot whose text the file does not have any more, and that nothing corrects, has vanished: it is
//! retracted.
//!
//! Invariant: what is left of a plan that was carried out in part is the plan for what is there then.

use std::collections::{HashMap, HashSet, VecDeque};

use dalsegno_memory::DocId;
use dalsegno_store::Hash;

use super::slots::{Known, Place, State};

/// What is to be done with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is there.
    Keep,
    /// It comes into the place of a document.
    Correct {
        /// Which.
        id: DocId,
        /// The number of its slot.
        number: usize,
    },
    /// It is new.
    Add {
        /// Where.
        place: Place,
        /// The number of its slot.
        number: usize,
    },
    /// Somebody retracted it.
    Leave,
    /// It may be what somebody forgot.
    Withhold,
}

/// What is to be done with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// With each chunk.
    pub steps: Vec<Step>,
    /// What is not in the file any more.
    pub vanished: Vec<DocId>,
}

/// Decides. `chunks` are what the chunks say, in the order of the file.
pub fn plan(known: &Known, chunks: &[Hash], anew: bool) -> Plan {
    let slots = &known.slots;
    let mut live: HashMap<Hash, VecDeque<usize>> = HashMap::new();
    let mut vanished: HashSet<usize> = HashSet::new();
    for (at, slot) in slots.iter().enumerate() {
        if let State::Live { said, .. } = slot.state {
            live.entry(said).or_default().push_back(at);
            vanished.insert(at);
        }
    }
    let there: Vec<Option<usize>> = chunks
        .iter()
        .map(|chunk| live.get_mut(chunk)?.pop_front())
        .collect();
    for at in there.iter().flatten() {
        vanished.remove(at);
    }
    let mut room = Room::new(known, anew);
    // The slot of the chunk before.
    let mut before: Option<usize> = None;
    let steps = chunks.iter().zip(there).map(|(chunk, there)| {
        if let Some(at) = there {
            before = Some(at);
            return match slots[at].state {
                State::Live {
                    id,
                    is_as_asked: false,
                    ..
                } => Step::Correct { id, number: at + 1 },
                _ => Step::Keep,
            };
        }
        let retracted = known.retracted(chunk);
        if let (Some(at), false) = (retracted, anew) {
            before = Some(at);
            return Step::Leave;
        }
        if known.has_forgotten() && !anew {
            return Step::Withhold;
        }
        let from = before.map_or(0, |before| before + 1);
        let mut behind = (from..slots.len()).filter_map(|at| match slots[at].state {
            State::Live { id, .. } => Some((at, id)),
            _ => None,
        });
        // What was retracted comes back as a document of its own, so that it counts as added since.
        if let (None, Some((at, id))) = (retracted, behind.next())
            && vanished.remove(&at)
        {
            before = Some(at);
            return Step::Correct { id, number: at + 1 };
        }
        let (at, place) = room.take();
        before = Some(at);
        let number = at + 1;
        Step::Add { place, number }
    });
    let steps = steps.collect();
    let ids = slots.iter().enumerate().filter_map(|(at, slot)| {
        let State::Live { id, .. } = slot.state else {
            return None;
        };
        vanished.contains(&at).then_some(id)
    });
    Plan {
        steps,
        vanished: ids.collect(),
    }
}

/// Where something can be added.
struct Room {
    gone: VecDeque<(usize, Place)>,
    new: (usize, Place),
}

impl Room {
    fn new(known: &Known, anew: bool) -> Room {
        let new = known.next_new();
        let count = known.slots.len();
        if anew && known.has_forgotten() {
            return Room {
                gone: VecDeque::new(),
                new: (count, Place::first(new.generation + 1)),
            };
        }
        let slots = known.slots.iter().enumerate();
        let gone = slots.filter(|(_, slot)| matches!(slot.state, State::Gone));
        Room {
            gone: gone.map(|(at, slot)| (at, slot.next)).collect(),
            new: (count, new),
        }
    }

    fn take(&mut self) -> (usize, Place) {
        self.gone.pop_front().unwrap_or_else(|| {
            let (at, place) = self.new;
            self.new = (at + 1, place.next());
            (at, place)
        })
    }
}
