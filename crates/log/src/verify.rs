//! Reads every frame of a log and reports what it found. Changes nothing.
//!
//! Opening a log reads its tail only; this reads all of it, and goes on behind each damage to find
//! the next.

use std::io;
use std::path::Path;

use crate::Lsn;
use crate::cursor::{Bad, Cursor, Expect, Frame, Step};
use crate::error::{Damage, IoFailure, OpenError};
use crate::frame::{self, ALIGN, Kind};
use crate::fs::{Fs, FsFile, OpenMode, RealFs};
use crate::layout::{self, BEFORE_THE_FIRST};
use crate::marks::{Ending, Gap, Seal, Start, Why};
use crate::reader::ATTEMPTS;
use crate::recovery::TornTail;
use crate::rules::Mutant;
use crate::segment::{self, HeaderError, SegmentHeader};
use crate::tail;

mod report;

pub use report::{Report, SegmentReport};

/// Reads all of the log in a folder. Works beside a writer, too.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("dalsegno-doc-verify-{}", std::process::id()));
/// # let log = dalsegno_log::Log::open(&dir)?;
/// # log.append(b"one")?;
/// # log.close()?;
/// let report = dalsegno_log::verify(&dir)?;
/// assert!(report.is_sound(), "{:?}", report.damages);
/// assert_eq!((report.first_lsn, report.last_lsn), (Some(1), Some(1)));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// There is no log, it is from a newer version, or a file could not be read. Damage is no error
/// here: it is in the report.
pub fn verify(dir: impl AsRef<Path>) -> Result<Report, OpenError> {
    verify_on(&RealFs, dir.as_ref())
}

/// [`verify`] on another file system.
///
/// # Errors
/// As [`verify`].
pub fn verify_on(fs: &dyn Fs, dir: &Path) -> Result<Report, OpenError> {
    let mut attempt = 1;
    loop {
        match verify_once(fs, dir) {
            // A segment was listed and then dropped by the writer.
            Err(OpenError::Io(failure))
                if failure.error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            other => return other,
        }
    }
}

fn verify_once(fs: &dyn Fs, dir: &Path) -> Result<Report, OpenError> {
    let numbers = match layout::numbers(fs, dir) {
        Ok(numbers) if !numbers.is_empty() => numbers,
        Err(failure) if failure.error.kind() != io::ErrorKind::NotFound => {
            return Err(failure.into());
        }
        _ => {
            let dir = dir.to_owned();
            return Err(OpenError::Missing { dir });
        }
    };
    let last = last_used(fs, dir, &numbers)?;
    let newest = last_started(fs, dir, last)?;
    let oldest = newest.as_ref().map_or(1, |scan| scan.oldest);
    let mut walk = Walk {
        report: Report::default(),
        before: (oldest == 1).then_some(Before {
            expect: BEFORE_THE_FIRST,
            end: Ending::default(),
        }),
        log_id: log_id(fs, dir, &numbers)?,
        last,
    };
    let mut expected = oldest;
    // Below the oldest one they are dropped; the next opening removes them.
    for number in numbers.into_iter().filter(|number| *number >= oldest) {
        if number > expected {
            let missing = layout::missing(expected, number - 1);
            walk.report.damages.push(missing);
            walk.before = None;
        }
        expected = number + 1;
        let path = segment::path(dir, number);
        let failed = |e| IoFailure::new("read", &path, e);
        let file = fs.open(&path, OpenMode::Read).map_err(failed)?;
        let header = match segment::read_header(file.as_ref(), number) {
            Ok(header) => Some(header),
            Err(HeaderError::Io(e)) => return Err(failed(e).into()),
            Err(HeaderError::Version(found)) => {
                let known = segment::FORMAT_VERSION;
                return Err(OpenError::Version { path, found, known });
            }
            Err(HeaderError::Damage(damage)) => {
                walk.report.damages.push(damage);
                None
            }
        };
        walk.segment(file, number, header).map_err(failed)?;
    }
    if let Some(scan) = newest
        && let Some(at_end) = scan.at_end
    {
        let damage = layout::beyond_reach(scan.header.number, scan.end, &at_end);
        walk.report.damages.extend(damage);
    }
    Ok(walk.report)
}

/// The last segment that has anything in it.
fn last_used(fs: &dyn Fs, dir: &Path, numbers: &[u64]) -> Result<u64, IoFailure> {
    for number in numbers.iter().rev() {
        let path = segment::path(dir, *number);
        let failed = |e| IoFailure::new("read", &path, e);
        let file = fs.open(&path, OpenMode::Read).map_err(failed)?;
        let rewritten = match segment::read_header(file.as_ref(), *number) {
            Ok(header) => header.rewritten,
            Err(HeaderError::Io(e)) => return Err(failed(e)),
            Err(_) => false,
        };
        if layout::has_content(file.as_ref(), rewritten).map_err(failed)? {
            return Ok(*number);
        }
    }
    Ok(numbers.first().copied().unwrap_or(1))
}

/// The log's id, from the newest header that is whole.
fn log_id(fs: &dyn Fs, dir: &Path, numbers: &[u64]) -> Result<u64, OpenError> {
    for number in numbers.iter().rev() {
        let opened = layout::open_segment(fs, dir, *number, OpenMode::Read);
        if let Some((_, header)) = unless_it_failed(opened)? {
            return Ok(header.log_id);
        }
    }
    Ok(0)
}

/// The last segment with a `Start`, if it is whole: it knows which segment is the oldest one.
fn last_started(fs: &dyn Fs, dir: &Path, last: u64) -> Result<Option<layout::Scan>, OpenError> {
    let scan = |number| {
        let opened = layout::open_segment(fs, dir, number, OpenMode::Read);
        let Some((file, header)) = unless_it_failed(opened)? else {
            return Ok(None);
        };
        let path = segment::path(dir, number);
        let scan = layout::scan(file, header, None, Mutant::default());
        let scan = scan.map_err(|e| IoFailure::new("read", &path, e))?;
        Ok::<_, OpenError>(Some(scan).filter(|scan| scan.first_lsn.is_some()))
    };
    // If the group that was to open the last one is torn, the one before knows.
    match (scan(last)?, last.checked_sub(1)) {
        (None, Some(before)) => scan(before),
        (found, _) => Ok(found),
    }
}

/// `None` for what is damaged or not there; an error if the file system failed. To take the one
/// for the other would be to report damage where there is none.
fn unless_it_failed<T>(opened: Result<T, OpenError>) -> Result<Option<T>, OpenError> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(OpenError::Io(e)) if e.error.kind() != io::ErrorKind::NotFound => Err(e.into()),
        Err(_) => Ok(None),
    }
}

/// What the segment before left.
#[derive(Clone, Copy, Debug)]
struct Before {
    expect: Expect,
    end: Ending,
}

struct Walk {
    report: Report,
    /// `None` at the oldest segment and behind damage.
    before: Option<Before>,
    log_id: u64,
    /// The last segment that has anything in it.
    last: u64,
}

/// What can be read in a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    records: u64,
    payload_bytes: u64,
    first_lsn: Option<Lsn>,
    last_lsn: Option<Lsn>,
    removed_records: u64,
    lost_records: u64,
}

impl Counts {
    fn add(&mut self, lsn: Lsn, payload_bytes: u64) {
        self.records += 1;
        self.payload_bytes += payload_bytes;
        self.first_lsn = self.first_lsn.or(Some(lsn));
        self.last_lsn = Some(lsn);
    }
}

/// Bad bytes of which it is not known yet whether a later group follows.
struct Suspect {
    offset: u64,
    bad: Bad,
    /// The group that was being written there, if a crash stopped it.
    group: u64,
    /// What had been counted up to the last whole batch, and where that ended.
    counted: Counts,
    whole_until: u64,
}

/// The state of the walk through one segment.
struct Place {
    number: u64,
    chain: u32,
    first_lsn: Lsn,
    counts: Counts,
    /// What had been counted up to the last whole batch, and where that ended.
    counted: Counts,
    whole_until: u64,
    /// Nothing in this segment was damaged so far.
    whole: bool,
    sealed: bool,
    /// It was complete when it got its name: nothing in it can be torn.
    rewritten: bool,
    /// How the segment ended before it was rewritten, as its seal says.
    original: Option<Ending>,
    suspects: Vec<Suspect>,
}

impl Walk {
    fn segment(
        &mut self,
        file: Box<dyn FsFile>,
        number: u64,
        header: Option<SegmentHeader>,
    ) -> io::Result<()> {
        if let Some(header) = header.filter(|header| header.log_id != self.log_id) {
            let damage = layout::foreign(number, self.log_id, header.log_id);
            self.report.damages.push(damage);
        }
        // With a damaged header, the frames may be readable all the same.
        let header = header.unwrap_or(SegmentHeader {
            log_id: self.log_id,
            number,
            size_bytes: 0,
            rewritten: false,
        });
        let file_bytes = file.len()?;
        self.report.segments.push(SegmentReport {
            number,
            file_bytes,
            ..SegmentReport::default()
        });
        if number > self.last {
            // Prepared, and not used yet; unless a writer has begun, and even sealed it, since we
            // looked for the last one.
            let damage = layout::cut_short(&header, file_bytes, segment::HEADER_BYTES);
            if damage.is_some() && !layout::has_content(file.as_ref(), header.rewritten)? {
                self.report.damages.extend(damage);
            }
            return Ok(());
        }
        let expect = self.before.take().map(|before| (before.expect, before.end));
        let mut cursor = Cursor::new(file, header, expect.map(|(e, _)| e), Mutant::default());
        let mut place = Place {
            number,
            chain: 0,
            first_lsn: 0,
            counts: Counts::default(),
            counted: Counts::default(),
            whole_until: segment::HEADER_BYTES,
            whole: true,
            sealed: false,
            rewritten: header.rewritten,
            original: None,
            suspects: Vec::new(),
        };
        self.walk(&mut cursor, &mut place, expect.map(|(_, end)| end))?;
        if place.sealed {
            self.finish_sealed(&cursor, &place)?;
        } else if number < self.last || place.rewritten {
            self.condemn(&mut place);
        } else {
            self.finish_last(&mut cursor, &mut place)?;
            let damage = layout::cut_short(&header, file_bytes, place.whole_until);
            self.report.damages.extend(damage);
        }
        self.add(place.counts);
        Ok(())
    }

    fn add(&mut self, counts: Counts) {
        let report = &mut self.report;
        report.records += counts.records;
        report.payload_bytes += counts.payload_bytes;
        report.removed_records += counts.removed_records;
        report.lost_records += counts.lost_records;
        report.first_lsn = report.first_lsn.or(counts.first_lsn);
        report.last_lsn = counts.last_lsn.or(report.last_lsn);
        if let Some(segment) = report.segments.last_mut() {
            segment.records = counts.records;
            segment.first_lsn = counts.first_lsn;
            segment.last_lsn = counts.last_lsn;
            segment.removed_records = counts.removed_records;
            segment.lost_records = counts.lost_records;
        }
    }

    /// Walks all frames, over bad bytes, to the seal or the end of the file.
    fn walk(
        &mut self,
        cursor: &mut Cursor,
        place: &mut Place,
        previous: Option<Ending>,
    ) -> io::Result<()> {
        let mut read_afresh = false;
        while !place.sealed {
            match cursor.step()? {
                Step::Frame(frame) => {
                    read_afresh = false;
                    self.settle_suspects(place, frame.header.group);
                    self.frame(cursor, &frame, place, previous);
                }
                Step::Bad(_) if !read_afresh => {
                    // A writer may have been at it.
                    cursor.forget_read_ahead();
                    read_afresh = true;
                }
                Step::Bad(bad) => {
                    self.suspect(cursor, place, bad)?;
                    let (at, here) = (cursor.offset(), cursor.mark());
                    let next = tail::next_frame(cursor.file(), cursor.seed(), at + ALIGN)?;
                    // Again here: it may have been written between the two looks.
                    cursor.forget_read_ahead();
                    if next.is_some() && matches!(cursor.step()?, Step::Frame(_)) {
                        place.suspects.pop();
                        cursor.back_to(here);
                        continue;
                    }
                    match next {
                        Some((next, _)) => cursor.jump(next),
                        None => return Ok(()),
                    }
                    read_afresh = false;
                }
            }
        }
        Ok(())
    }

    /// Notes bad bytes. A whole frame that is only in the wrong place may itself show that they
    /// are of an earlier group.
    fn suspect(&mut self, cursor: &Cursor, place: &mut Place, bad: Bad) -> io::Result<()> {
        let offset = cursor.offset();
        // If it was found behind other bad bytes, and is not whole after all, it may be of their
        // group.
        let group = match cursor.expect() {
            Some(expect) => expect.group_of_a_bad_frame(),
            None => place.suspects.last().map_or(0, |before| before.group),
        };
        place.suspects.push(Suspect {
            offset,
            bad,
            group,
            counted: place.counted,
            whole_until: place.whole_until,
        });
        if place.rewritten {
            // All of it is one group, which was whole.
            self.condemn(place);
            return Ok(());
        }
        if let Some(group) = tail::frame_at(cursor.file(), cursor.seed(), offset)? {
            self.settle_suspects(place, group);
        }
        Ok(())
    }

    /// A frame of this group is there: bad bytes of any earlier group were once good.
    fn settle_suspects(&mut self, place: &mut Place, group: u64) {
        if place.suspects.iter().any(|suspect| suspect.group < group) {
            self.condemn(place);
        }
    }

    /// The suspects are damage.
    fn condemn(&mut self, place: &mut Place) {
        for suspect in place.suspects.drain(..) {
            place.whole = false;
            let damage = tail::damage(place.number, suspect.offset, &suspect.bad);
            self.report.damages.push(damage);
        }
    }

    /// Takes a frame in.
    fn frame(
        &mut self,
        cursor: &Cursor,
        frame: &Frame,
        place: &mut Place,
        previous: Option<Ending>,
    ) {
        let (header, payload) = (&frame.header, cursor.payload(frame));
        let chain_before = place.chain;
        place.chain = frame::chain_next(place.chain, header.crc);
        match header.kind {
            Kind::Record => place.counts.add(header.lsn, payload.len() as u64),
            Kind::Start => {
                place.first_lsn = header.lsn;
                let found = Start::decode(payload);
                let ending = found.map(|start| start.previous);
                let follows = previous.is_none() || ending == previous;
                let known = layout::oldest_in(cursor, frame, place.number).is_some();
                if !follows || !known {
                    let expected = format!("a start that says {previous:?}");
                    self.damage(place.number, frame.offset, expected, format!("{found:?}"));
                }
            }
            Kind::Seal => {
                let found = Seal::decode(payload);
                place.original = found.and_then(|seal| seal.original);
                let expected = Seal {
                    first_lsn: place.first_lsn,
                    chain: chain_before,
                    // The next segment's start tells whether it says the right thing.
                    original: place
                        .rewritten
                        .then_some(place.original.unwrap_or_default()),
                };
                if place.whole && found != Some(expected) {
                    let expected = format!("a seal that says {expected:?}");
                    self.damage(place.number, frame.offset, expected, format!("{found:?}"));
                }
                place.sealed = true;
            }
            Kind::Gap => self.gap(frame, payload, place),
            Kind::Opened | Kind::Dropped => {
                if layout::oldest_in(cursor, frame, place.number).is_none() {
                    let expected = "the number of a segment".to_owned();
                    self.damage(
                        place.number,
                        frame.offset,
                        expected,
                        format!("{payload:02x?}"),
                    );
                }
            }
            Kind::Closed => {}
        }
        if header.ends_batch() && place.suspects.is_empty() {
            place.whole_until = cursor.offset();
            place.counted = place.counts;
        }
    }

    /// Counts the records that a gap stands for. The cursor has seen that it is one.
    fn gap(&mut self, frame: &Frame, payload: &[u8], place: &mut Place) {
        match Gap::decode(payload).map(|gap| gap.why) {
            Some(Why::Removed) => place.counts.removed_records += frame.records,
            Some(Why::Lost) => {
                place.counts.lost_records += frame.records;
                let lsns = frame.header.lsn..=frame.next_lsn() - 1;
                self.report.lost.push(lsns);
            }
            None => {}
        }
    }

    fn finish_sealed(&mut self, cursor: &Cursor, place: &Place) -> io::Result<()> {
        let end = cursor.offset();
        let (expected, found) = ("nothing behind the seal", "bytes that are not zero");
        let group = cursor.expect().map_or(0, |e| e.group_of_a_bad_frame());
        let rest = tail::examine(cursor.file(), cursor.seed(), end, group)?;
        if rest.is_damage_behind_seal(place.rewritten) {
            self.damage(place.number, end, expected.into(), found.into());
        } else if let Some(until) = rest.written_until
            && place.number == self.last
        {
            // As opening would.
            let reason = format!("expected {expected}, found {found}");
            self.report.torn = Some(torn(place.number, end, until, reason));
        }
        if let Some(segment) = self.report.segments.last_mut() {
            segment.sealed = true;
        }
        self.before = cursor
            .expect()
            .filter(|_| place.whole)
            .map(|expect| Before {
                expect,
                end: place.original.unwrap_or(Ending {
                    offset: end,
                    chain: place.chain,
                }),
            });
        Ok(())
    }

    /// The log's last segment, without a seal. No group later than that of its suspects follows:
    /// they are the end of the log, or a torn tail. What was counted behind the last whole batch
    /// was never acknowledged.
    ///
    /// A readable start that does not continue the segment before is neither: opening goes by it,
    /// except in segment 1, of which it knows how it begins.
    fn finish_last(&mut self, cursor: &mut Cursor, place: &mut Place) -> io::Result<()> {
        let at = segment::HEADER_BYTES;
        if place.number > 1 && place.suspects.first().is_some_and(|s| s.offset == at) {
            cursor.jump(at);
            if matches!(cursor.step()?, Step::Frame(_)) {
                self.condemn(place);
            }
        }
        let Some(first) = place.suspects.drain(..).next() else {
            return Ok(());
        };
        place.counts = first.counted;
        place.whole_until = first.whole_until;
        let partial = (first.offset > first.whole_until).then_some(first.offset);
        let written = tail::written_until(cursor.file(), first.offset)?;
        if let Some(until) = written.max(partial) {
            let reason = format!("expected {}, found {}", first.bad.expected, first.bad.found);
            self.report.torn = Some(torn(place.number, first.whole_until, until, reason));
        }
        Ok(())
    }

    fn damage(&mut self, segment: u64, offset: u64, expected: String, found: String) {
        self.report.damages.push(Damage {
            segment,
            offset,
            expected,
            found,
        });
    }
}

fn torn(segment: u64, offset: u64, until: u64, reason: String) -> TornTail {
    TornTail {
        segment,
        offset,
        bytes: until - offset,
        saved_as: None,
        reason,
    }
}
