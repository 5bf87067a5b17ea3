//! Repairing a damaged log: what is readable stays, what is not becomes a gap that says so.
//!
//! Opening never does this by itself. A segment is *rebuilt* if anything is wrong with it, or if it
//! does not fit to the one after it; the others are not touched. For each one to be rebuilt:
//!
//! 1. Its file is copied, as it is, to `damaged-<segment>-<n>.seg`, durably.
//! 2. A rewritten segment takes its place (see the head of `rebuild.rs`), with every record that is
//!    readable, and gaps marked as lost for the LSNs between them.
//!
//! | what is needed | where it is taken from, the first that is readable |
//! |---|---|
//! | log id | the header of most segments |
//! | oldest segment | the latest mark that says it; the lowest number there is |
//! | first LSN | 1 for segment 1; its `Start`; the `Seal` before; where the readable part of the one before ends; its first frame; the next one's |
//! | group | one less than that of the next `Start`; its `Seal`; its last frame |
//! | how it ended | the next `Start`; its `Seal` |
//!
//! Invariant: at every moment each byte that there was is in the segment's file or in the copy. A
//! repair that was interrupted is done by running it again; one that is done finds nothing to do.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::Lsn;
use crate::error::{Damage, IoFailure, OpenError};
use crate::frame::{self, HEADER_BYTES, Kind, PlaceSeed};
use crate::fs::{Fs, FsFile, OpenMode, PlaceError, RealFs, place};
use crate::layout;
use crate::marks::{Gap, Why};
use crate::open::take_lock;
use crate::rebuild::{Builder, Identity};
use crate::recovery;
use crate::rules::Mutant;
use crate::salvage::{self, Salvage};
use crate::segment::{self, HeaderError, SegmentHeader};
use crate::tail;

mod plan;

use plan::Seen;

/// What [`repair`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// One for each segment that was rebuilt; none if the log was sound.
    pub actions: Vec<RepairAction>,
}

impl RepairReport {
    /// How many records were given up.
    pub fn lost_records(&self) -> u64 {
        let ranges = self.actions.iter().flat_map(|action| &action.lost);
        ranges.map(|lsns| lsns.end() - lsns.start() + 1).sum()
    }
}

/// What [`repair`] did to one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairAction {
    /// Its number.
    pub segment: u64,
    /// What was wrong with it first of all.
    pub damage: Damage,
    /// The records that could not be read, in order. Reading the log passes over them.
    pub lost: Vec<RangeInclusive<Lsn>>,
    /// Its end looked like a write that a crash had interrupted, and was left out, as opening would
    /// have done.
    pub torn: bool,
    /// The file that has the segment's bytes as they were; `None` if there was no file.
    pub set_aside: Option<PathBuf>,
}

/// Makes a damaged log usable again. Every record that is readable is kept, under its LSN; those
/// that are not are given up, and the report says which. The damaged files are kept aside, under
/// other names, and never removed. A batch that damage has hit may be there in part, and of the last
/// batch, if the file was cut off, also the part that nobody had waited for yet.
///
/// Restoring the log from a copy is better, if there is one. A sound log is not changed.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-repair-{}", std::process::id()));
/// # let log = dalsegno_log::Log::open(&dir)?;
/// # log.append(b"one")?;
/// # log.close()?;
/// for action in dalsegno_log::repair(&dir)?.actions {
///     println!("{}: lost {:?}, see {:?}", action.damage, action.lost, action.set_aside);
/// }
/// assert!(dalsegno_log::verify(&dir)?.is_sound());
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The log is open elsewhere or from a newer version, nothing in it is readable, or the file system
/// failed or is full. After a failure of the file system, run it again. If it was a sync that
/// failed, a power cut may still bring the damage back, though no more than that: then repair it
/// once more.
pub fn repair(dir: impl AsRef<Path>) -> Result<RepairReport, OpenError> {
    repair_on(&RealFs, dir.as_ref())
}

/// [`repair`] on another file system.
///
/// # Errors
/// As [`repair`].
pub fn repair_on(fs: &dyn Fs, dir: &Path) -> Result<RepairReport, OpenError> {
    match layout::numbers(fs, dir) {
        Ok(numbers) if !numbers.is_empty() => {}
        Err(failure) if failure.error.kind() != io::ErrorKind::NotFound => {
            return Err(failure.into());
        }
        _ => {
            let dir = dir.to_owned();
            return Err(OpenError::Missing { dir });
        }
    }
    let _lock = take_lock(fs, dir)?;
    let repair = Repair { fs, dir };
    repair.run()
}

struct Repair<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
}

impl Repair<'_> {
    fn run(&self) -> Result<RepairReport, OpenError> {
        let log_id = self.log_id()?;
        let seen = self.look_at_all(log_id)?;
        let planned = plan::plan(&seen, log_id).map_err(|why| OpenError::Unrepairable {
            dir: self.dir.to_owned(),
            why,
        })?;
        layout::remove_half_made_files(self.fs, self.dir)?;
        let mut report = RepairReport::default();
        for rebuild in planned.rebuild {
            report.actions.push(self.rebuild(log_id, rebuild)?);
        }
        for (number, damage) in planned.remove {
            report.actions.push(self.remove(number, damage)?);
        }
        // Also if there was nothing to do: an earlier repair may have been killed before its sync.
        let synced = self.fs.sync_dir(self.dir);
        synced.map_err(|e| IoFailure::new("sync", self.dir, e))?;
        Ok(report)
    }

    fn fail<T>(&self, number: u64, result: io::Result<T>) -> Result<T, OpenError> {
        let path = segment::path(self.dir, number);
        result.map_err(|e| IoFailure::new("read", &path, e).into())
    }

    fn open(&self, number: u64) -> Result<Box<dyn FsFile>, OpenError> {
        let path = segment::path(self.dir, number);
        self.fail(number, self.fs.open(&path, OpenMode::Read))
    }

    /// A segment's header, or what is wrong with it.
    fn header(
        &self,
        number: u64,
        file: &dyn FsFile,
    ) -> Result<Result<SegmentHeader, Damage>, OpenError> {
        match segment::read_header(file, number) {
            Ok(header) => Ok(Ok(header)),
            Err(HeaderError::Damage(damage)) => Ok(Err(damage)),
            Err(other) => Err(layout::header_error(other, self.dir, number)),
        }
    }

    /// The log id in most headers; if none is whole, one under which frames can be read.
    fn log_id(&self) -> Result<u64, OpenError> {
        let mut votes: Vec<(u64, usize)> = Vec::new();
        let numbers = layout::numbers(self.fs, self.dir)?;
        for number in &numbers {
            let file = self.open(*number)?;
            if let Ok(header) = self.header(*number, file.as_ref())? {
                match votes.iter_mut().find(|(id, _)| *id == header.log_id) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((header.log_id, 1)),
                }
            }
        }
        // The first of those with as many.
        if let Some((id, _)) = votes.iter().rev().max_by_key(|(_, count)| *count) {
            return Ok(*id);
        }
        for number in numbers {
            let file = self.open(number)?;
            if let Some(id) = self.fail(number, proven_log_id(file.as_ref(), number))? {
                return Ok(id);
            }
        }
        Err(OpenError::Unrepairable {
            dir: self.dir.to_owned(),
            why: "no segment in it can be read".into(),
        })
    }

    /// Reads all segments, down to the last byte.
    fn look_at_all(&self, log_id: u64) -> Result<Vec<Seen>, OpenError> {
        let mut all: Vec<Seen> = Vec::new();
        let numbers = layout::numbers(self.fs, self.dir)?;
        let mut last = None;
        for number in &numbers {
            let file = self.open(*number)?;
            let rewritten = self
                .header(*number, file.as_ref())?
                .is_ok_and(|header| header.rewritten);
            let has_content = layout::has_content(file.as_ref(), rewritten);
            if self.fail(*number, has_content)? {
                last = Some(*number);
            }
        }
        for number in numbers {
            // What a crash could have torn: the last group of the last segment.
            let before = all.last().filter(|before| before.number + 1 == number);
            let torn_group = match before {
                _ if last != Some(number) => None,
                Some(before) => Some(before.group_after()),
                None => Some(1),
            };
            all.push(self.look_at(number, log_id, torn_group, last < Some(number))?);
        }
        Ok(all)
    }

    fn look_at(
        &self,
        number: u64,
        log_id: u64,
        torn_group: Option<u64>,
        prepared: bool,
    ) -> Result<Seen, OpenError> {
        let file = self.open(number)?;
        let file_bytes = self.fail(number, file.len())?;
        let header = self.header(number, file.as_ref())?;
        let header = header.and_then(|header| check_log_id(header, log_id));
        let mut seen = Seen {
            number,
            file_bytes,
            may_be_torn: torn_group.is_some(),
            prepared,
            ..Seen::default()
        };
        if prepared {
            let too_short = |header| layout::cut_short(header, file_bytes, segment::HEADER_BYTES);
            seen.survey.damage = header.as_ref().map_or_else(|e| Some(e.clone()), too_short);
            return Ok(seen);
        }
        let rewritten = header.as_ref().is_ok_and(|header| header.rewritten);
        seen.torn_group = torn_group.filter(|_| header.is_ok() && !rewritten);
        seen.header_is_whole = header.is_ok();
        seen.rewritten = rewritten;
        let salvage = seen.salvage(file, log_id);
        let survey = salvage::survey(salvage, rewritten);
        seen.survey = self.fail(number, survey)?;
        if let Ok(header) = &header
            && seen.survey.seal.is_none()
        {
            let end = seen.survey.whole_until.max(segment::HEADER_BYTES);
            if let Some(damage) = layout::cut_short(header, file_bytes, end) {
                // It had been sealed, or worse; in either case no crash explains its end. What is
                // readable there may have been acknowledged, and is kept. If it was not, it is of
                // the group that was being written, because frames of an earlier opening do not
                // continue (see `Salvage`); and opening, too, keeps such a group if all of it is
                // there.
                seen.torn_group = None;
                let salvage = seen.salvage(self.open(number)?, log_id);
                seen.survey = self.fail(number, salvage::survey(salvage, rewritten))?;
                seen.survey.damage = seen.survey.damage.or(Some(damage));
            }
        }
        seen.survey.damage = header.err().or(seen.survey.damage);
        Ok(seen)
    }

    /// Sets a segment's file aside and puts what is readable of it in its place.
    fn rebuild(&self, log_id: u64, rebuild: plan::Rebuild) -> Result<RepairAction, OpenError> {
        let number = rebuild.identity.number;
        let path = segment::path(self.dir, number);
        let set_aside = match rebuild.seen {
            Some(_) => Some(self.set_aside(number)?),
            None => None,
        };
        let old = match rebuild.seen {
            Some(seen) => Some(seen.salvage(self.open(number)?, log_id)),
            None => None,
        };
        let mut lost = Vec::new();
        let placed = place::place(self.fs, self.dir, &path, Mutant::default(), |new| {
            lost = copy(old, new, rebuild.identity, rebuild.until)?;
            Ok(())
        });
        match placed {
            Ok(_) => Ok(RepairAction {
                segment: number,
                damage: rebuild.damage,
                lost,
                torn: rebuild.seen.is_some_and(|seen| seen.survey.torn),
                set_aside,
            }),
            Err(PlaceError::NotPlaced(e) | PlaceError::Sync(e)) => {
                Err(IoFailure::new("rebuild", &path, e).into())
            }
        }
    }

    /// Sets a file aside that nothing is lost with: a prepared segment.
    fn remove(&self, number: u64, damage: Damage) -> Result<RepairAction, OpenError> {
        let set_aside = self.set_aside(number)?;
        let path = segment::path(self.dir, number);
        let removed = self.fs.remove(&path);
        removed.map_err(|e| IoFailure::new("remove", &path, e))?;
        Ok(RepairAction {
            segment: number,
            damage,
            lost: Vec::new(),
            torn: false,
            set_aside: Some(set_aside),
        })
    }

    /// Copies a segment's file to a name of its own. If a copy is there already, from a repair that
    /// was interrupted, it is written once more, because it may be in the cache only.
    fn set_aside(&self, number: u64) -> Result<PathBuf, OpenError> {
        let from = self.open(number)?;
        let bytes = self.fail(number, from.len())?;
        let mut n = 1;
        let path = loop {
            let path = self.dir.join(damaged_file_name(number, n));
            match self.fs.open(&path, OpenMode::Read) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => break path,
                Err(e) => return Err(IoFailure::new("read", &path, e).into()),
                Ok(there) => {
                    let same = same_bytes(from.as_ref(), there.as_ref());
                    if same.map_err(|e| IoFailure::new("read", &path, e))? {
                        break path;
                    }
                }
            }
            n += 1;
        };
        let placed = place::place(self.fs, self.dir, &path, Mutant::default(), |to| {
            recovery::copy(from.as_ref(), 0, bytes, to)
        });
        match placed {
            Ok(_) => Ok(path),
            Err(PlaceError::NotPlaced(e) | PlaceError::Sync(e)) => {
                Err(IoFailure::new("set a damaged segment aside as", &path, e).into())
            }
        }
    }
}

fn damaged_file_name(segment: u64, n: u64) -> String {
    format!("damaged-{segment:016}-{n}.seg")
}

/// The segment whose damaged file this is.
pub(crate) fn parse_damaged_name(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("damaged-")?.strip_suffix(".seg")?;
    rest.split('-').next()?.parse().ok()
}

/// The log id in a header that is damaged, if frames prove it: as it stands there, or with one bit
/// flipped.
fn proven_log_id(file: &dyn FsFile, number: u64) -> io::Result<Option<u64>> {
    let mut id = [0; 8];
    file.read_full(&mut id, segment::LOG_ID_AT)?;
    let id = u64::from_le_bytes(id);
    let mut start = [0; HEADER_BYTES];
    file.read_full(&mut start, segment::HEADER_BYTES)?;
    let starts = |id: &u64| {
        let seed = PlaceSeed::new(*id, number);
        frame::decode(&start, seed, segment::HEADER_BYTES).is_ok()
    };
    let flipped = (0..u64::BITS).map(|bit| id ^ 1 << bit);
    if let Some(id) = [id].into_iter().chain(flipped).find(starts) {
        return Ok(Some(id));
    }
    let seed = PlaceSeed::new(id, number);
    let frame = tail::next_frame(file, seed, segment::HEADER_BYTES)?;
    Ok(frame.map(|_| id))
}

fn check_log_id(header: SegmentHeader, log_id: u64) -> Result<SegmentHeader, Damage> {
    if header.log_id == log_id {
        return Ok(header);
    }
    Err(layout::foreign(header.number, log_id, header.log_id))
}

/// Copies what is readable, up to the LSN `until`; says what is not.
fn copy(
    old: Option<Salvage>,
    new: &dyn FsFile,
    identity: Identity,
    until: Lsn,
) -> io::Result<Vec<RangeInclusive<Lsn>>> {
    let mut builder = Builder::new(new, identity);
    let mut lost: Vec<RangeInclusive<Lsn>> = Vec::new();
    let mut lose_until = |builder: &mut Builder<'_>, lsn: Lsn| {
        let from = builder.next_lsn();
        if lsn > from {
            lost.push(from..=lsn - 1);
            builder.gap_until(lsn, Why::Lost);
        }
    };
    if let Some(mut old) = old {
        while let Some(frame) = old.next()? {
            let lsn = frame.header.lsn;
            match frame.header.kind {
                Kind::Record if lsn >= builder.next_lsn() && lsn < until => {
                    lose_until(&mut builder, lsn);
                    builder.record(&frame.header, old.payload(&frame))?;
                }
                Kind::Gap => {
                    let why = Gap::decode(old.payload(&frame)).map_or(Why::Lost, |gap| gap.why);
                    lose_until(&mut builder, lsn.min(until));
                    builder.gap_until(frame.next_lsn().min(until), why);
                }
                _ => {}
            }
        }
    }
    lose_until(&mut builder, until);
    builder.finish()?;
    Ok(lost)
}

fn same_bytes(one: &dyn FsFile, other: &dyn FsFile) -> io::Result<bool> {
    const CHUNK_BYTES: usize = 64 * HEADER_BYTES;
    let (mut a, mut b) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
    let mut at = 0;
    loop {
        let got = one.read_full(&mut a, at)?;
        if other.read_full(&mut b, at)? != got || a[..got] != b[..got] {
            return Ok(false);
        }
        if got < CHUNK_BYTES {
            return Ok(true);
        }
        at += got as u64;
    }
}
