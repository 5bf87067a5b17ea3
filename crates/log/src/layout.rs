//! Which segments a folder holds, and what each says about itself. Reads, changes nothing.
//!
//! Invariant: the segments of a log have numbers without a gap, and all carry the same log id.

use std::io;
use std::path::Path;

use crate::Lsn;
use crate::cursor::{Bad, Cursor, Expect, Frame, Mark, NUMBER_LIMIT, Step};
use crate::error::{Damage, IoFailure, OpenError};
use crate::frame::{self, Kind, PlaceSeed};
use crate::fs::{Fs, FsFile, OpenMode, place};
use crate::marks::{self, Ending, Seal, Start};
use crate::recovery;
use crate::repair;
use crate::rules::{Mutant, Rule};
use crate::segment::{self, HeaderError, SegmentHeader};
use crate::tail;

/// The state before the very first frame of a log.
pub(crate) const BEFORE_THE_FIRST: Expect = Expect {
    lsn: 1,
    group: 0,
    group_ended: true,
    epoch: 0,
};

/// The segment numbers in a folder, ascending.
pub(crate) fn numbers(fs: &dyn Fs, dir: &Path) -> Result<Vec<u64>, IoFailure> {
    let names = fs.list(dir).map_err(|e| IoFailure::new("list", dir, e))?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| segment::parse_name(name))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes what work that was interrupted has left. Nothing depends on it.
pub(crate) fn remove_half_made_files(fs: &dyn Fs, dir: &Path) -> Result<(), IoFailure> {
    let names = fs.list(dir).map_err(|e| IoFailure::new("list", dir, e))?;
    // Only those that we make: the folder may have other people's files in it.
    let ours = |name: &str| {
        segment::parse_name(name).is_some()
            || recovery::parse_torn_name(name).is_some()
            || repair::parse_damaged_name(name).is_some()
    };
    for name in &names {
        if place::without_temporary(name).is_some_and(ours) {
            let path = dir.join(name);
            match fs.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(IoFailure::new("remove", &path, e));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The first and last number of the newest run without a gap. What is below it was dropped, if
/// the log says so.
pub(crate) fn newest_run(numbers: &[u64]) -> Option<(u64, u64)> {
    let newest = *numbers.last()?;
    let run = numbers
        .windows(2)
        .rev()
        .take_while(|pair| pair[1] == pair[0] + 1);
    Some((newest - run.count() as u64, newest))
}

/// The first gap in the numbers from `oldest` on, as damage.
pub(crate) fn gap(numbers: &[u64], oldest: u64) -> Option<Damage> {
    let there = numbers.iter().filter(|number| **number >= oldest);
    let (expected, number) = (oldest..).zip(there).find(|(e, n)| e != *n)?;
    Some(missing(expected, number - 1))
}

/// Segments that should be there and are not.
pub(crate) fn missing(first: u64, last: u64) -> Damage {
    Damage {
        segment: first,
        offset: 0,
        expected: "a file for this segment".into(),
        found: match last - first {
            0 => "none".into(),
            more => format!("none, nor for the next {more}"),
        },
    }
}

/// Numbers at the end of a log from which it could not go on for long. Only forged ones are that
/// high: counting there takes longer than disks last.
pub(crate) fn beyond_reach(segment: u64, offset: u64, at_end: &Expect) -> Option<Damage> {
    let numbers = [at_end.lsn, at_end.group, at_end.epoch];
    let beyond = numbers.iter().any(|n| *n >= NUMBER_LIMIT / 2);
    beyond.then(|| Damage {
        segment,
        offset,
        expected: "numbers that a log can reach".into(),
        found: format!("{numbers:?}"),
    })
}

/// A segment whose file belongs to another log.
pub(crate) fn foreign(number: u64, log_id: u64, found: u64) -> Damage {
    Damage {
        segment: number,
        offset: segment::LOG_ID_AT,
        expected: format!("log id {log_id:016x}"),
        found: format!("{found:016x}"),
    }
}

/// A segment that is shorter than it was made, and was not being sealed when that happened.
pub(crate) fn cut_short(header: &SegmentHeader, file_bytes: u64, end: u64) -> Option<Damage> {
    let used = end > segment::HEADER_BYTES;
    let was_being_sealed = used && !header.rewritten && file_bytes == end + segment::seal_bytes();
    (file_bytes < header.size_bytes && !was_being_sealed).then(|| Damage {
        segment: header.number,
        offset: file_bytes,
        expected: format!("a file of {} bytes", header.size_bytes),
        found: format!("{file_bytes} bytes"),
    })
}

/// Adds a segment to those that have a `Start`, whose LSNs never fall.
pub(crate) fn add_started(
    started: &mut Vec<(u64, Lsn)>,
    number: u64,
    lsn: Lsn,
) -> Result<(), Damage> {
    if let Some((_, before)) = started.last().filter(|(_, before)| *before > lsn) {
        return Err(Damage {
            segment: number,
            offset: segment::HEADER_BYTES,
            expected: format!("a start from LSN {before} on"),
            found: format!("LSN {lsn}"),
        });
    }
    started.push((number, lsn));
    Ok(())
}

/// Opens a segment's file and reads its header.
pub(crate) fn open_segment(
    fs: &dyn Fs,
    dir: &Path,
    number: u64,
    mode: OpenMode,
) -> Result<(Box<dyn FsFile>, SegmentHeader), OpenError> {
    let path = segment::path(dir, number);
    let file = fs
        .open(&path, mode)
        .map_err(|e| IoFailure::new("open", &path, e))?;
    let header =
        segment::read_header(file.as_ref(), number).map_err(|e| header_error(e, dir, number))?;
    Ok((file, header))
}

pub(crate) fn header_error(error: HeaderError, dir: &Path, number: u64) -> OpenError {
    let path = segment::path(dir, number);
    match error {
        HeaderError::Io(e) => IoFailure::new("read", &path, e).into(),
        HeaderError::Version(found) => OpenError::Version {
            path,
            found,
            known: segment::FORMAT_VERSION,
        },
        HeaderError::Damage(damage) => OpenError::Damage {
            dir: dir.to_owned(),
            damage,
        },
    }
}

/// What a walk over all frames of a segment found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub header: SegmentHeader,
    pub file: Box<dyn FsFile>,
    pub seed: PlaceSeed,
    pub file_bytes: u64,
    /// The LSN its `Start` gives; `None` if there is no valid `Start`.
    pub first_lsn: Option<Lsn>,
    /// The oldest segment that belongs to the log, as the last mark about it says.
    pub oldest: u64,
    /// Behind the last whole batch. Everything from here on is to be judged by its `rest`.
    pub end: u64,
    /// State after the frame that ends at `end`.
    pub at_end: Option<Expect>,
    /// The chain over all frames up to `end`.
    pub chain: u32,
    /// Where the group that the last frame before `end` belongs to begins.
    pub last_group_at: u64,
    /// The last frame before `end`.
    pub last_kind: Option<Kind>,
    /// How the segment ended before it was rewritten, if it was.
    pub original: Option<Ending>,
    /// Where the walk stopped, and why. At or behind `end`.
    pub stopped_at: u64,
    pub bad: Bad,
    /// The group that was being written at `stopped_at`, if a crash stopped it.
    pub torn_group: u64,
}

impl Scan {
    pub fn sealed(&self) -> bool {
        self.last_kind == Some(Kind::Seal)
    }

    /// How the segment ended, as the next one's `Start` says it.
    pub fn ending(&self) -> Ending {
        self.original.unwrap_or(Ending {
            offset: self.end,
            chain: self.chain,
        })
    }

    /// Behind its last whole batch, to go on from there.
    pub fn into_cursor(self, mutant: Mutant) -> Cursor {
        let at = Mark {
            offset: self.end,
            expect: self.at_end,
        };
        Cursor::resume(self.file, self.header, at, mutant)
    }

    pub fn damage(&self) -> Damage {
        tail::damage(self.header.number, self.stopped_at, &self.bad)
    }
}

/// Walks a segment to its last whole batch. `expect` is the state after the segment before it,
/// if known.
pub(crate) fn scan(
    file: Box<dyn FsFile>,
    header: SegmentHeader,
    expect: Option<Expect>,
    mutant: Mutant,
) -> io::Result<Scan> {
    let (file_bytes, number) = (file.len()?, header.number);
    let mut cursor = Cursor::new(file, header, expect, mutant);
    let mut scan_end = segment::HEADER_BYTES;
    let mut at_end = expect;
    let (mut chain, mut chain_at_end) = (0, 0);
    let mut group: Option<(u64, u64)> = None;
    let mut last_group_at = scan_end;
    let mut first_lsn = None;
    let mut oldest = 1;
    let mut last_kind = None;
    let mut original = None;
    let bad = loop {
        if last_kind == Some(Kind::Seal) {
            break Bad {
                expected: "nothing behind the seal".into(),
                found: "bytes that are not zero".into(),
                unwritten: true,
            };
        }
        let frame = match cursor.step()? {
            Step::Frame(frame) => frame,
            Step::Bad(bad) => break bad,
        };
        let Frame { offset, header, .. } = frame;
        if header.kind == Kind::Seal {
            original = Seal::decode(cursor.payload(&frame)).and_then(|seal| seal.original);
        }
        if let Some(number) = oldest_in(&cursor, &frame, number) {
            oldest = number;
        }
        if group.is_none_or(|(number, _)| number != header.group) {
            group = Some((header.group, offset));
        }
        first_lsn = first_lsn.or(Some(header.lsn));
        chain = frame::chain_next(chain, header.crc);
        if header.ends_batch() || mutant.breaks(Rule::WholeBatches) {
            scan_end = cursor.offset();
            at_end = cursor.expect();
            chain_at_end = chain;
            last_kind = Some(header.kind);
            last_group_at = group.map_or(offset, |(_, at)| at);
        }
    };
    Ok(Scan {
        header,
        seed: cursor.seed(),
        file_bytes,
        first_lsn,
        oldest,
        end: scan_end,
        at_end,
        chain: chain_at_end,
        last_group_at,
        last_kind,
        original,
        stopped_at: cursor.offset(),
        bad,
        torn_group: cursor.expect().map_or(0, |e| e.group_of_a_bad_frame()),
        file: cursor.into_file(),
    })
}

/// The oldest segment of the log, if this frame, in segment `number`, says which one it is.
pub(crate) fn oldest_in(cursor: &Cursor, frame: &Frame, number: u64) -> Option<u64> {
    let payload = cursor.payload(frame);
    let oldest = match frame.header.kind {
        Kind::Start => Start::decode(payload).map(|start| start.oldest),
        Kind::Opened | Kind::Dropped => marks::decode_oldest(payload),
        Kind::Record | Kind::Gap | Kind::Seal | Kind::Closed => None,
    };
    oldest.filter(|oldest| (1..=number).contains(oldest))
}

/// The LSN that a segment's `Start` gives, if the segment has a valid one.
pub(crate) fn first_lsn(
    file: Box<dyn FsFile>,
    header: SegmentHeader,
    mutant: Mutant,
) -> io::Result<Option<Lsn>> {
    match Cursor::new(file, header, None, mutant).step()? {
        Step::Frame(frame) => Ok(Some(frame.header.lsn)),
        Step::Bad(_) => Ok(None),
    }
}

/// Whether anything was ever written behind the segment's header: as opposed to a prepared segment.
pub(crate) fn has_content(file: &dyn FsFile, rewritten: bool) -> io::Result<bool> {
    // What was rewritten has content, or had.
    Ok(rewritten || tail::any_nonzero(file, segment::HEADER_BYTES)?)
}

/// Whether anything was written where a segment begins, which is where the first write to it began.
pub(crate) fn starts_with_content(file: &dyn FsFile, rewritten: bool) -> io::Result<bool> {
    let mut start = vec![0; 4096];
    let got = file.read_full(&mut start, segment::HEADER_BYTES)?;
    Ok(rewritten || start[..got].iter().any(|byte| *byte != 0))
}
