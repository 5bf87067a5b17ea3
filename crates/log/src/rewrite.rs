//! Replacing a sealed segment by one from which some records were removed.
//!
//! 1. Read all of the old file and check it, down to its seal; ask which records to keep.
//! 2. Write the new file under another name and sync it.
//! 3. Give it the segment's name and sync the folder.
//!
//! Whatever a crash leaves is the old file or the new one, complete: 3 is one step, and what the
//! segments around it know of this one (first LSN, last group and epoch, how it ended) is the same
//! in both. What the new file is made of is at the head of `rebuild.rs`.
//!
//! If there is nothing to remove, the file stays as it is; but not if it was rewritten before this
//! opening. Then its name may be in the cache only, because the sync of the folder failed or never
//! came, and what is missing from it could come back with the old file. So it is written once more.
//!
//! Invariant: a segment is rewritten only from bytes that passed every check.

use std::io;
use std::path::Path;

use crate::Lsn;
use crate::commit::Shared;
use crate::cursor::{Cursor, Frame, Step};
use crate::error::{Damage, IoFailure, OpenError, RewriteError, SyncError};
use crate::frame::{self, Kind};
use crate::fs::{Fs, OpenMode, PlaceError, place};
use crate::layout;
use crate::marks::{Ending, Gap, Seal, Start, Why};
use crate::rebuild::{Builder, Identity};
use crate::rules::{Mutant, Rule};
use crate::segment::{self, SegmentHeader};
use crate::tail;
use crate::writer::WriteError;

/// What [`crate::Log::rewrite_segment`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewritten {
    /// Records that are still there.
    pub records_kept: u64,
    /// Records that were removed now.
    pub records_removed: u64,
    /// The size of the segment's file before.
    pub bytes_before: u64,
    /// The size of the segment's file now.
    pub bytes_after: u64,
}

/// What reading the old file found.
struct Plan {
    identity: Identity,
    /// Ranges of LSNs to be removed, `from..until`, ascending.
    remove: Vec<(Lsn, Lsn)>,
    rewritten_before: bool,
    done: Rewritten,
}

/// Rewrites a sealed segment. The caller sees to it that nobody else changes files, and knows
/// whether the file as it is was `named` durably.
pub(crate) fn rewrite(
    shared: &Shared,
    number: u64,
    named: bool,
    keep: impl FnMut(Lsn, &[u8]) -> bool,
) -> Result<Rewritten, RewriteError> {
    let (fs, dir) = (shared.options.fs.as_ref(), shared.dir.as_path());
    let mutant = shared.options.mutant;
    let plan = plan(fs, dir, number, mutant, keep)?;
    let mut done = plan.done;
    let named = named || !plan.rewritten_before || mutant.breaks(Rule::NameRewrittenAgain);
    if done.records_removed == 0 && named {
        done.bytes_after = done.bytes_before;
        return Ok(done);
    }
    let path = segment::path(dir, number);
    let (file, header) =
        layout::open_segment(fs, dir, number, OpenMode::Read).map_err(open_error)?;
    let mut old = Cursor::new(file, header, None, mutant);
    let written = place::write_file(fs, &path, mutant, |new| {
        done.bytes_after = copy(&mut old, new, &plan)?;
        Ok(())
    });
    match written {
        Ok(_) => {}
        Err(PlaceError::NotPlaced(e)) => return Err(IoFailure::new("rewrite", &path, e).into()),
        Err(PlaceError::Sync(e)) => {
            let failure = IoFailure::new("sync", &path, e);
            return Err(shared.poison(failure).into());
        }
    }
    let named = shared.with_folder(|| match place::name_file(fs, dir, &path, mutant) {
        Ok(()) => Ok(Ok(())),
        Err(PlaceError::NotPlaced(e)) => Ok(Err(IoFailure::new("rename", &path, e))),
        Err(PlaceError::Sync(e)) => Err(WriteError::Fatal(IoFailure::new("sync", dir, e))),
    });
    match named {
        Ok(Ok(())) => Ok(done),
        Ok(Err(failure)) => Err(failure.into()),
        Err(error) => Err(sync_error(error)),
    }
}

/// What a failure to get the turn, or to use it, means to who rewrites.
pub(crate) fn sync_error(error: SyncError) -> RewriteError {
    match error {
        SyncError::NoSpace(failure) => failure.into(),
        SyncError::Poisoned(poisoned) => poisoned.into(),
        SyncError::Closed | SyncError::NotAppended { .. } => RewriteError::Closed,
    }
}

/// Reads and checks all of a sealed segment and asks about each of its records.
fn plan(
    fs: &dyn Fs,
    dir: &Path,
    number: u64,
    mutant: Mutant,
    mut keep: impl FnMut(Lsn, &[u8]) -> bool,
) -> Result<Plan, RewriteError> {
    let path = segment::path(dir, number);
    let failed = |e| IoFailure::new("read", &path, e);
    let (file, header) =
        layout::open_segment(fs, dir, number, OpenMode::Read).map_err(open_error)?;
    let mut done = Rewritten {
        bytes_before: file.len().map_err(failed)?,
        ..Rewritten::default()
    };
    let mut cursor = Cursor::new(file, header, None, mutant);
    let mut read = SealedRead::default();
    let mut remove: Vec<(Lsn, Lsn)> = Vec::new();
    loop {
        let frame = match cursor.step().map_err(failed)? {
            Step::Frame(frame) => frame,
            Step::Bad(bad) => return Err(tail::damage(number, cursor.offset(), &bad).into()),
        };
        let payload = cursor.payload(&frame);
        if let Some(identity) = read.take(&header, &cursor, &frame, mutant)? {
            return Ok(Plan {
                identity,
                remove,
                rewritten_before: header.rewritten,
                done,
            });
        }
        if frame.header.kind != Kind::Record {
            continue;
        }
        let lsn = frame.header.lsn;
        if keep(lsn, payload) {
            done.records_kept += 1;
            continue;
        }
        done.records_removed += 1;
        match remove.last_mut() {
            Some((_, until)) if *until == lsn => *until += 1,
            _ => remove.push((lsn, lsn + 1)),
        }
    }
}

/// What the marks of a sealed segment say, gathered on the way to its seal.
#[derive(Default)]
struct SealedRead {
    first: Option<(Lsn, Start)>,
    oldest: u64,
    chain: u32,
}

impl SealedRead {
    /// Takes in a frame; at the seal, checks it and tells what the segment is.
    fn take(
        &mut self,
        header: &SegmentHeader,
        cursor: &Cursor,
        frame: &Frame,
        mutant: Mutant,
    ) -> Result<Option<Identity>, Damage> {
        let chain_before = self.chain;
        self.chain = frame::chain_next(self.chain, frame.header.crc);
        let payload = cursor.payload(frame);
        let damage = |expected: &str, found: String| Damage {
            segment: header.number,
            offset: frame.offset,
            expected: expected.into(),
            found,
        };
        if matches!(
            frame.header.kind,
            Kind::Start | Kind::Opened | Kind::Dropped
        ) {
            self.oldest = layout::oldest_in(cursor, frame, header.number)
                .ok_or_else(|| damage("the number of a segment", format!("{payload:02x?}")))?;
        }
        if frame.header.kind == Kind::Start {
            let start = Start::decode(payload)
                .ok_or_else(|| damage("a start frame", format!("{payload:02x?}")))?;
            self.first = Some((frame.header.lsn, start));
        }
        // The first frame is a start, or the cursor would have refused it.
        let (Kind::Seal, Some((first_lsn, start))) = (frame.header.kind, self.first) else {
            return Ok(None);
        };
        let seal = Seal::decode(payload)
            .filter(|seal| seal.first_lsn == first_lsn && seal.chain == chain_before)
            .filter(|seal| seal.original.is_some() == header.rewritten)
            .ok_or_else(|| {
                let expected = "a seal of the frames before it";
                damage(expected, format!("{:?}", Seal::decode(payload)))
            })?;
        let original = seal.original.unwrap_or(Ending {
            offset: cursor.offset(),
            chain: self.chain,
        });
        Ok(Some(Identity {
            log_id: header.log_id,
            number: header.number,
            first_lsn,
            group: frame.header.group,
            epoch: frame.header.epoch,
            start: Start {
                oldest: self.oldest,
                ..start
            },
            original: Some(original).filter(|_| !mutant.breaks(Rule::KeepEnding)),
        }))
    }
}

/// Copies what is kept; says how long the new file is.
fn copy(old: &mut Cursor, new: &dyn crate::fs::FsFile, plan: &Plan) -> io::Result<u64> {
    let mut builder = Builder::new(new, plan.identity);
    let mut remove = plan.remove.iter().peekable();
    loop {
        let frame = match old.step()? {
            Step::Frame(frame) => frame,
            // It was readable a moment ago.
            Step::Bad(bad) => return Err(io::Error::other(bad.found)),
        };
        let payload = old.payload(&frame);
        match frame.header.kind {
            Kind::Record => {
                let lsn = frame.header.lsn;
                remove.next_if(|(_, until)| *until <= lsn);
                match remove.peek() {
                    Some((from, _)) if *from <= lsn => builder.gap_until(lsn + 1, Why::Removed),
                    _ => builder.record(&frame.header, payload)?,
                }
            }
            Kind::Gap => {
                let why = Gap::decode(payload).map_or(Why::Lost, |gap| gap.why);
                builder.gap_until(frame.next_lsn(), why);
            }
            Kind::Seal => return builder.finish(),
            Kind::Start | Kind::Opened | Kind::Closed | Kind::Dropped => {}
        }
    }
}

fn open_error(error: OpenError) -> RewriteError {
    match error {
        OpenError::Damage { damage, .. } => damage.into(),
        OpenError::Io(failure) => failure.into(),
        other => IoFailure::new("read", "a segment".as_ref(), io::Error::other(other)).into(),
    }
}
