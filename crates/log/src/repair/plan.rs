//! Which segments to rebuild, and as what: decided from what was seen, before anything is changed.
//!
//! Invariant: if all that is planned is done, each segment continues the one before it.

use crate::Lsn;
use crate::cursor::Expect;
use crate::error::Damage;
use crate::fs::FsFile;
use crate::layout::{self, BEFORE_THE_FIRST};
use crate::marks::{Ending, Start};
use crate::rebuild::Identity;
use crate::salvage::{Salvage, Survey};
use crate::segment::{self, SegmentHeader};

/// More missing segments than this are no damage but another mistake.
const MISSING_MAX: u64 = 10_000;

const NOTHING_TELLS: &str = "nothing in it tells where its records begin";

/// One segment's file, as far as it can be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub number: u64,
    pub file_bytes: u64,
    /// The last one with anything in it.
    pub may_be_torn: bool,
    /// Behind the last one with anything in it.
    pub prepared: bool,
    pub header_is_whole: bool,
    pub rewritten: bool,
    /// See [`Salvage::new`].
    pub torn_group: Option<u64>,
    pub survey: Survey,
}

impl Seen {
    /// A new walk over what is readable.
    pub fn salvage(&self, file: Box<dyn FsFile>, log_id: u64) -> Salvage {
        let header = SegmentHeader {
            log_id,
            number: self.number,
            size_bytes: self.file_bytes,
            // Who cannot read the header accepts what either kind of segment may hold.
            rewritten: self.rewritten || !self.header_is_whole,
        };
        Salvage::new(file, header, self.torn_group)
    }

    /// The group that the next segment begins with, if it begins.
    pub fn group_after(&self) -> u64 {
        let end = self.survey.end.map_or(0, |end| end.group);
        self.survey.seal.map_or(end, |(seal, _)| seal.group) + 1
    }

    fn start(&self) -> Option<(crate::frame::Header, Start)> {
        self.survey.start
    }

    /// Nothing was ever written here but, perhaps, a group that a crash has torn.
    fn not_begun(&self) -> bool {
        let survey = &self.survey;
        self.may_be_torn && survey.end.is_none() && survey.damage.is_none()
    }
}

/// A segment to be rebuilt.
pub(super) struct Rebuild<'a> {
    pub identity: Identity,
    /// The LSN behind its last one.
    pub until: Lsn,
    /// `None` if there is no file.
    pub seen: Option<&'a Seen>,
    pub damage: Damage,
}

pub(super) struct Plan<'a> {
    pub rebuild: Vec<Rebuild<'a>>,
    /// Prepared segments that are of no use.
    pub remove: Vec<(u64, Damage)>,
}

/// What a segment leaves to the next.
#[derive(Clone, Copy, Debug)]
struct Before {
    expect: Expect,
    ending: Ending,
}

/// Decides. An error says why nothing can be done.
pub(super) fn plan(all: &[Seen], log_id: u64) -> Result<Plan<'_>, String> {
    let mut plan = Plan {
        rebuild: Vec::new(),
        remove: useless_spares(all),
    };
    let Some(last) = all.iter().rfind(|seen| !seen.prepared) else {
        // A log without a record has only segment 1; with another number, records were lost.
        let first = all.first().map_or(1, |seen| seen.number);
        return if first == 1 {
            Ok(plan)
        } else {
            Err(NOTHING_TELLS.to_owned())
        };
    };
    let oldest = oldest(all, last.number);
    if last.number - oldest >= MISSING_MAX + all.len() as u64 {
        return Err(format!(
            "more than {MISSING_MAX} segments between {oldest} and {} are missing",
            last.number
        ));
    }
    let slots: Vec<Slot<'_>> = (oldest..=last.number)
        .map(|number| Slot {
            number,
            seen: all.iter().find(|seen| seen.number == number),
        })
        .collect();
    let firsts = first_lsns(&slots)?;
    let mut before = (oldest == 1).then_some(Before {
        expect: BEFORE_THE_FIRST,
        ending: Ending::default(),
    });
    for (i, slot) in slots.iter().enumerate() {
        let next = slots.get(i + 1).and_then(Slot::start);
        if let Some(after) = slot.stays(before, next, i + 1 == slots.len()) {
            before = after.or(before);
            continue;
        }
        let until = firsts.get(i + 1).copied().unwrap_or(slot.end(firsts[i]));
        let rebuild = slot.rebuild(
            log_id,
            firsts[i],
            until.max(firsts[i]),
            before,
            next,
            oldest,
        );
        let identity = &rebuild.identity;
        before = Some(Before {
            expect: Expect {
                lsn: rebuild.until,
                group: identity.group,
                group_ended: true,
                epoch: identity.epoch,
            },
            ending: identity.original.unwrap_or_default(),
        });
        plan.rebuild.push(rebuild);
    }
    Ok(plan)
}

/// Prepared segments that are damaged, or behind one that is missing. Whatever was in that one,
/// nothing is left that tells.
fn useless_spares(all: &[Seen]) -> Vec<(u64, Damage)> {
    let mut useless = Vec::new();
    let mut missing = None;
    for (i, seen) in all.iter().enumerate().filter(|(_, seen)| seen.prepared) {
        let before = i.checked_sub(1).and_then(|i| all.get(i));
        if before.is_some_and(|before| before.number + 1 != seen.number) {
            missing = Some(layout::missing(seen.number - 1, seen.number - 1));
        }
        if let Some(damage) = seen.survey.damage.clone().or(missing.clone()) {
            missing = missing.or(Some(layout::missing(seen.number, seen.number)));
            useless.push((seen.number, damage));
        }
    }
    useless
}

/// The oldest segment that belongs to the log: the latest that is said counts, as in opening.
fn oldest(all: &[Seen], last: u64) -> u64 {
    let said = all.iter().rev().find_map(|seen| seen.survey.oldest);
    let said = said.filter(|oldest| (1..=last).contains(oldest));
    let lowest = all.first().map_or(1, |seen| seen.number);
    said.unwrap_or(lowest)
}

/// The place of one segment, with or without a file.
#[derive(Clone, Copy)]
struct Slot<'a> {
    number: u64,
    seen: Option<&'a Seen>,
}

/// The first LSN of each segment.
fn first_lsns(slots: &[Slot<'_>]) -> Result<Vec<Lsn>, String> {
    let mut known: Vec<Option<Lsn>> = Vec::new();
    for (i, slot) in slots.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| slots.get(i));
        let own = slot.start().map(|(header, _, _)| header.lsn);
        let from_before = || {
            let survey = &before?.seen?.survey;
            let seal = survey.seal.map(|(seal, _)| seal.lsn);
            seal.or(survey.end.map(|end| end.lsn))
        };
        let at_first = || slot.seen?.survey.first_lsn;
        // A log begins with LSN 1, whatever its first segment says.
        let begins = (slot.number == 1).then_some(BEFORE_THE_FIRST.lsn);
        known.push(begins.or(own).or_else(from_before).or_else(at_first));
    }
    // What nobody says is empty, and what overlaps belongs to the later one.
    let mut next = known
        .iter()
        .rev()
        .find_map(|lsn| *lsn)
        .ok_or_else(|| NOTHING_TELLS.to_owned())?;
    for lsn in known.iter_mut().rev() {
        next = lsn.map_or(next, |lsn| lsn.min(next));
        *lsn = Some(next);
    }
    Ok(known.into_iter().flatten().collect())
}

impl<'a> Slot<'a> {
    /// What its `Start` says, and whether it is that of a rewritten segment.
    fn start(&self) -> Option<(crate::frame::Header, Start, bool)> {
        let seen = self.seen?;
        let rewritten = seen.rewritten || !seen.header_is_whole;
        seen.start()
            .map(|(header, start)| (header, start, rewritten))
    }

    /// The LSN behind the last one, for the last segment. Where a crash may have torn something, a
    /// batch that does not end does not count.
    fn end(&self, first: Lsn) -> Lsn {
        let end = self.seen.and_then(|seen| match seen.torn_group {
            Some(_) => seen.survey.whole,
            None => seen.survey.end,
        });
        end.map_or(first, |end| end.lsn)
    }

    /// If it can stay as it is: what it leaves to the next one, or nothing if it is not begun.
    fn stays(
        &self,
        before: Option<Before>,
        next: Option<(crate::frame::Header, Start, bool)>,
        is_last: bool,
    ) -> Option<Option<Before>> {
        let seen = self.seen?;
        let survey = &seen.survey;
        if survey.damage.is_some() || !seen.header_is_whole {
            return None;
        }
        if is_last && seen.not_begun() {
            // If it were the only one, opening would need to know where to begin.
            return before.is_some().then_some(None);
        }
        let (header, start, _) = self.start()?;
        if before.is_some_and(|before| !fits(before, (header, start, seen.rewritten))) {
            return None;
        }
        let Some((seal, Some(ending))) = survey.seal else {
            return is_last.then_some(None);
        };
        let after = Before {
            expect: Expect {
                lsn: seal.lsn,
                group: seal.group,
                group_ended: true,
                epoch: seal.epoch,
            },
            ending,
        };
        next.is_none_or(|next| fits(after, next))
            .then_some(Some(after))
    }

    fn rebuild(
        &self,
        log_id: u64,
        first_lsn: Lsn,
        until: Lsn,
        before: Option<Before>,
        next: Option<(crate::frame::Header, Start, bool)>,
        oldest: u64,
    ) -> Rebuild<'a> {
        let survey = self.seen.map(|seen| &seen.survey);
        let seal = survey.and_then(|survey| survey.seal);
        let end = survey.and_then(|survey| survey.end);
        let group = next.map(|(header, ..)| header.group.saturating_sub(1));
        let group = group.or(seal.map(|(seal, _)| seal.group));
        let group = group.or(end.map(|end| end.group)).unwrap_or(1);
        let least = before.map_or(1, |before| before.expect.group + 1);
        let epoch = seal
            .map(|(seal, _)| seal.epoch)
            .or(end.map(|end| end.epoch));
        let epoch = epoch
            .unwrap_or(1)
            .max(before.map_or(1, |before| before.expect.epoch));
        let latest = next.map_or(u64::MAX, |(header, ..)| header.epoch);
        let own = self.start().map(|(_, start, _)| start.previous);
        let previous = before
            .map(|before| before.ending)
            .or(own)
            .unwrap_or_default();
        let original = next.map(|(_, start, _)| start.previous);
        let original = original.or(seal.and_then(|(_, ending)| ending));
        let file_bytes = self.seen.map_or(0, |seen| seen.file_bytes);
        Rebuild {
            identity: Identity {
                log_id,
                number: self.number,
                first_lsn,
                group: group.max(least),
                epoch: epoch.min(latest),
                start: Start { previous, oldest },
                // Nobody knows: then anything will do that the next one repeats.
                original: Some(original.unwrap_or(Ending {
                    offset: file_bytes,
                    chain: 0,
                })),
            },
            until,
            seen: self.seen,
            damage: self.damage(),
        }
    }

    fn damage(&self) -> Damage {
        let Some(seen) = self.seen else {
            return layout::missing(self.number, self.number);
        };
        seen.survey.damage.clone().unwrap_or(Damage {
            segment: self.number,
            offset: segment::HEADER_BYTES,
            expected: "a segment that fits to those before and after it".into(),
            found: "another one".into(),
        })
    }
}

/// Whether a segment continues what the one before it left.
fn fits(before: Before, (header, start, rewritten): (crate::frame::Header, Start, bool)) -> bool {
    let group = before.expect.group + 1;
    header.lsn == before.expect.lsn
        && (header.group == group || rewritten && header.group > group)
        && header.epoch >= before.expect.epoch
        && start.previous == before.ending
}
