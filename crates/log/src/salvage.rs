//! Reads everything that is readable in one segment, over any damage in it. For repairs.
//!
//! Invariant: what comes out passed every check a frame can pass alone, and LSN, group and epoch
//! never fall from one frame to the next; so no frame is taken for another, and none comes twice.

use std::io;

use crate::Lsn;
use crate::cursor::{Cursor, Expect, Frame, Step};
use crate::error::Damage;
use crate::frame::{self, ALIGN, Header, Kind};
use crate::fs::FsFile;
use crate::layout;
use crate::marks::{Ending, Seal, Start};
use crate::rules::Mutant;
use crate::segment::SegmentHeader;
use crate::tail;

/// A walk over the readable frames of a segment.
#[derive(Debug)]
pub(crate) struct Salvage {
    number: u64,
    cursor: Cursor,
    /// The group that a crash may have torn, if even the first frame is bad; `None` if nothing in
    /// this segment can be torn.
    torn_group: Option<u64>,
    /// The state after the last frame that was taken.
    last: Option<Expect>,
    /// What is wrong first of all.
    pub damage: Option<Damage>,
    /// Behind the end, as a crash may have left it, there are bytes.
    torn: bool,
    ended: bool,
}

impl Salvage {
    pub fn new(file: Box<dyn FsFile>, header: SegmentHeader, torn_group: Option<u64>) -> Salvage {
        Salvage {
            number: header.number,
            cursor: Cursor::new(file, header, None, Mutant::default()),
            torn_group,
            last: None,
            damage: None,
            torn: false,
            ended: false,
        }
    }

    /// The next frame that can be read; `None` behind the seal or at the end.
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        while !self.ended {
            let bad = match self.cursor.step()? {
                Step::Frame(frame) if self.beyond_reach(&frame) => {
                    self.go_on_from(frame.offset + ALIGN)?;
                    continue;
                }
                Step::Frame(frame) if self.continues(&frame.header) => {
                    self.last = self.cursor.expect();
                    self.ended = frame.header.kind == Kind::Seal;
                    return Ok(Some(frame));
                }
                Step::Frame(frame) => {
                    // Of an earlier time, left behind the end.
                    let behind = frame.offset + ALIGN;
                    self.go_on_from(behind)?;
                    continue;
                }
                Step::Bad(bad) => bad,
            };
            if self.is_end()? {
                self.ended = true;
                break;
            }
            let offset = self.cursor.offset();
            let damage = tail::damage(self.number, offset, &bad);
            self.damage.get_or_insert(damage);
            self.go_on_from(offset + ALIGN)?;
        }
        Ok(None)
    }

    pub fn payload(&self, frame: &Frame) -> &[u8] {
        self.cursor.payload(frame)
    }

    /// The same judgement as in opening: is this the end, clean or torn, and not damage?
    fn is_end(&mut self) -> io::Result<bool> {
        let Some(first_group) = self.torn_group else {
            return Ok(false);
        };
        let group = self.last.map_or(first_group, |e| e.group_of_a_bad_frame());
        let (file, seed) = (self.cursor.file(), self.cursor.seed());
        let rest = tail::examine(file, seed, self.cursor.offset(), group)?;
        self.torn = rest.later_frame.is_none() && rest.written_until.is_some();
        Ok(rest.later_frame.is_none())
    }

    fn go_on_from(&mut self, offset: u64) -> io::Result<()> {
        match tail::next_frame(self.cursor.file(), self.cursor.seed(), offset)? {
            Some((next, _)) => self.cursor.jump(next),
            None => self.ended = true,
        }
        Ok(())
    }

    /// Whether a frame has numbers with which opening would refuse the log. Then they are damage,
    /// however right its checksums are: a log that went on from there would not be opened again.
    fn beyond_reach(&mut self, frame: &Frame) -> bool {
        let after = self.cursor.expect();
        let damage = after.and_then(|e| layout::beyond_reach(self.number, frame.offset, &e));
        if self.damage.is_none() {
            self.damage.clone_from(&damage);
        }
        damage.is_some()
    }

    fn continues(&self, header: &Header) -> bool {
        self.last.is_none_or(|last| {
            header.lsn >= last.lsn && header.group >= last.group && header.epoch >= last.epoch
        })
    }
}

/// What is readable in a segment, in short.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    pub start: Option<(Header, Start)>,
    /// Its header, and how the segment ended as the next one knows it, if that can be told.
    pub seal: Option<(Header, Option<Ending>)>,
    /// The LSN of the first readable frame.
    pub first_lsn: Option<Lsn>,
    /// The state after the last frame.
    pub end: Option<Expect>,
    /// The state after the last frame that ends a batch.
    pub whole: Option<Expect>,
    /// Where that frame ends; 0 if there is none.
    pub whole_until: u64,
    /// The oldest segment of the log, as the last mark says that says so.
    pub oldest: Option<u64>,
    /// What is wrong first of all.
    pub damage: Option<Damage>,
    /// The end is a batch that is not whole, or has bytes behind it that are no frame.
    pub torn: bool,
}

/// Walks a segment to its end.
pub(crate) fn survey(mut salvage: Salvage, rewritten: bool) -> io::Result<Survey> {
    let mut survey = Survey::default();
    let mut chain = 0;
    while let Some(frame) = salvage.next()? {
        let header = frame.header;
        let chain_before = chain;
        chain = frame::chain_next(chain, header.crc);
        survey.first_lsn = survey.first_lsn.or(Some(header.lsn));
        survey.end = salvage.last;
        if header.ends_batch() {
            survey.whole = salvage.last;
            survey.whole_until = salvage.cursor.offset();
        }
        let oldest = layout::oldest_in(&salvage.cursor, &frame, salvage.number);
        survey.oldest = oldest.or(survey.oldest);
        let payload = salvage.payload(&frame);
        let wrong = |what: &str| Damage {
            segment: salvage.number,
            offset: frame.offset,
            expected: what.into(),
            found: format!("{payload:02x?}"),
        };
        let damage = match header.kind {
            Kind::Start => {
                survey.start = Start::decode(payload).map(|start| (header, start));
                let right = survey.start.is_some() && oldest.is_some();
                (!right).then(|| wrong("a start"))
            }
            Kind::Opened | Kind::Dropped => {
                oldest.is_none().then(|| wrong("the number of a segment"))
            }
            Kind::Seal => {
                let here = Ending {
                    offset: salvage.cursor.offset(),
                    chain,
                };
                let seal = Seal::decode(payload);
                let whole = salvage.damage.is_none();
                let ending = seal.and_then(|seal| seal.original.or(whole.then_some(here)));
                survey.seal = Some((header, ending));
                let says = seal.map(|seal| (seal.chain, seal.original.is_some()));
                let right = says == Some((chain_before, rewritten));
                (whole && !right).then(|| wrong("a seal of the frames before it"))
            }
            _ => None,
        };
        survey.damage = survey.damage.or(damage);
    }
    survey.damage = salvage.damage.take().or(survey.damage);
    survey.torn = salvage.torn || salvage.torn_group.is_some() && survey.whole != survey.end;
    if survey.seal.is_some() && survey.damage.is_none() {
        survey.damage = damage_behind_seal(&salvage, rewritten)?;
    }
    Ok(survey)
}

fn damage_behind_seal(salvage: &Salvage, rewritten: bool) -> io::Result<Option<Damage>> {
    let cursor = &salvage.cursor;
    let group = salvage.last.map_or(0, |e| e.group_of_a_bad_frame());
    let rest = tail::examine(cursor.file(), cursor.seed(), cursor.offset(), group)?;
    let damaged = rest.is_damage_behind_seal(rewritten);
    Ok(damaged.then(|| Damage {
        segment: salvage.number,
        offset: cursor.offset(),
        expected: "nothing behind the seal".into(),
        found: "bytes that are not zero".into(),
    }))
}
