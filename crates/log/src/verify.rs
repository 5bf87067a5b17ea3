//! Reads every frame of a log and reports what it found. Changes nothing.
//!
//! Opening a log reads its tail only; this reads all of it, and goes on behind each damage to find
//! the next.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::Lsn;
use crate::cursor::{Cursor, Expect, Frame, Step};
use crate::error::{Damage, IoFailure, OpenError};
use crate::frame::{self, ALIGN, Kind, PlaceSeed};
use crate::fs::{Fs, FsFile, OpenMode, RealFs};
use crate::layout::{self, BEFORE_THE_FIRST};
use crate::marks::{Ending, Gap, Seal, Start, Why};
use crate::recovery::TornTail;
use crate::rules::Mutant;
use crate::segment::{self, HeaderError, SegmentHeader};
use crate::tail::{self, Verdict};

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Every segment, in order.
    pub segments: Vec<SegmentReport>,
    /// How many records are readable.
    pub records: u64,
    /// Bytes of these records' payloads.
    pub payload_bytes: u64,
    /// The first readable LSN; `None` if there is no record.
    pub first_lsn: Option<Lsn>,
    /// The last readable LSN.
    pub last_lsn: Option<Lsn>,
    /// How many records were removed on purpose, by rewriting their segments.
    pub removed_records: u64,
    /// How many records a repair gave up.
    pub lost_records: u64,
    /// Which ones these are, in order.
    pub lost: Vec<RangeInclusive<Lsn>>,
    /// A write that a crash interrupted, or that is under way. The next opening cuts it off.
    pub torn: Option<TornTail>,
    /// Everything that is not as it was written.
    pub damages: Vec<Damage>,
}

impl Report {
    /// Whether all bytes are as they were written. A torn tail does not count against it.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }
}

/// One segment in a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Its number.
    pub number: u64,
    /// How many records are readable in it.
    pub records: u64,
    /// The LSN of the first one.
    pub first_lsn: Option<Lsn>,
    /// The LSN of the last one.
    pub last_lsn: Option<Lsn>,
    /// The size of its file.
    pub file_bytes: u64,
    /// It has ended, and nothing is ever added to it.
    pub sealed: bool,
    /// How many of its records were removed on purpose.
    pub removed_records: u64,
    /// How many of its records a repair gave up.
    pub lost_records: u64,
}

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
    let mut files = Vec::new();
    for number in numbers {
        let path = segment::path(dir, number);
        let failed = |e| IoFailure::new("read", &path, e);
        let file = fs.open(&path, OpenMode::Read).map_err(failed)?;
        let header = segment::read_header(file.as_ref(), number);
        let rewritten = header.is_ok_and(|header| header.rewritten);
        let has_content = layout::has_content(file.as_ref(), rewritten).map_err(failed)?;
        files.push((number, file, has_content));
    }
    let last = files
        .iter()
        .rposition(|(_, _, content)| *content)
        .unwrap_or(0);
    let last = files[last].0;
    let oldest = oldest(fs, dir, last).unwrap_or(files[0].0);
    let mut walk = Walk {
        report: Report::default(),
        before: (oldest == 1).then_some(Before {
            expect: BEFORE_THE_FIRST,
            end: Ending::default(),
        }),
        log_id: None,
    };
    let mut expected = oldest;
    for (number, file, has_content) in files {
        if number < oldest {
            // Dropped; the next opening removes it.
            continue;
        }
        for missing in expected..number {
            walk.report.damages.push(layout::missing(missing));
            walk.before = None;
        }
        expected = number + 1;
        let path = segment::path(dir, number);
        let header = match segment::read_header(file.as_ref(), number) {
            Ok(header) => header,
            Err(HeaderError::Io(e)) => return Err(IoFailure::new("read", &path, e).into()),
            Err(HeaderError::Version(found)) => {
                let known = segment::FORMAT_VERSION;
                return Err(OpenError::Version { path, found, known });
            }
            Err(HeaderError::Damage(damage)) => {
                walk.report.damages.push(damage);
                // The frames may be readable all the same.
                SegmentHeader {
                    log_id: walk.log_id.unwrap_or(0),
                    number,
                    size_bytes: 0,
                    rewritten: false,
                }
            }
        };
        walk.segment(file, header, number == last, has_content)
            .map_err(|e| IoFailure::new("read", &path, e))?;
    }
    Ok(walk.report)
}

/// The oldest segment that belongs to the log, if the newest ones can be read.
fn oldest(fs: &dyn Fs, dir: &Path, last: u64) -> Option<u64> {
    let scan = |number| {
        let (file, header) = layout::open_segment(fs, dir, number, OpenMode::Read).ok()?;
        layout::scan(file, header, None, Mutant::default()).ok()
    };
    // If the group that was to open the last one is torn, the one before knows.
    let known = |scan: &layout::Scan| scan.first_lsn.is_some();
    let last_scan = scan(last).filter(known);
    let scan = last_scan.or_else(|| scan(last.checked_sub(1)?).filter(known))?;
    Some(scan.oldest)
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
    log_id: Option<u64>,
}

/// The state of the walk through one segment.
struct Place {
    number: u64,
    chain: u32,
    first_lsn: Lsn,
    /// Behind the last whole batch.
    whole_until: u64,
    /// Nothing in this segment was damaged so far.
    whole: bool,
    rewritten: bool,
    /// How the segment ended before it was rewritten, as its seal says.
    original: Option<Ending>,
}

impl Walk {
    fn segment(
        &mut self,
        file: Box<dyn FsFile>,
        header: SegmentHeader,
        is_last: bool,
        has_content: bool,
    ) -> io::Result<()> {
        let log_id = *self.log_id.get_or_insert(header.log_id);
        if header.log_id != log_id {
            let expected = format!("log id {log_id:016x}");
            let found = format!("{:016x}", header.log_id);
            self.damage(header.number, 16, expected, found);
        }
        self.report.segments.push(SegmentReport {
            number: header.number,
            file_bytes: file.len()?,
            ..SegmentReport::default()
        });
        if !has_content {
            // Prepared and not used, unless a later one is in use.
            let used = !is_last && self.report.segments.len() == 1;
            if used {
                self.damage(
                    header.number,
                    segment::HEADER_BYTES,
                    "a frame".into(),
                    "none".into(),
                );
            }
            return Ok(());
        }
        let expect = self.before.map(|before| before.expect);
        let mut cursor = Cursor::new(file, header, expect, Mutant::default());
        let mut place = Place {
            number: header.number,
            chain: 0,
            first_lsn: 0,
            whole_until: segment::HEADER_BYTES,
            whole: true,
            rewritten: header.rewritten,
            original: None,
        };
        // What was complete when it got its name cannot be torn.
        let may_be_torn = is_last && !header.rewritten;
        let mut sealed = false;
        let mut read_afresh = false;
        while !sealed {
            match cursor.step()? {
                Step::Frame(frame) => {
                    sealed = self.frame(&cursor, &frame, &mut place);
                    read_afresh = false;
                }
                Step::Bad(_) if !read_afresh => {
                    // A writer may have been at it.
                    cursor.forget_read_ahead();
                    read_afresh = true;
                }
                Step::Bad(bad) => {
                    let at = cursor.offset();
                    let group = cursor.expect().map_or(0, |e| e.group_of_a_bad_frame());
                    let rest = tail::examine(cursor.file(), cursor.seed(), at, group)?;
                    let partial = (at > place.whole_until).then_some(at);
                    let written_until = rest.written_until.max(partial);
                    let later = rest.later_frame.is_some();
                    match tail::verdict(may_be_torn, written_until.is_some(), later) {
                        Verdict::Clean => break,
                        Verdict::Torn => {
                            self.report.torn = Some(TornTail {
                                segment: place.number,
                                offset: place.whole_until,
                                bytes: written_until.map_or(0, |u| u - place.whole_until),
                                saved_as: None,
                                reason: format!("expected {}, found {}", bad.expected, bad.found),
                            });
                            break;
                        }
                        Verdict::Damage => {
                            place.whole = false;
                            self.report
                                .damages
                                .push(tail::damage(place.number, at, &bad));
                            if !go_on_behind(&mut cursor, at)? {
                                break;
                            }
                            read_afresh = false;
                        }
                    }
                }
            }
        }
        self.finish(&cursor, &place, sealed)
    }

    /// Counts a frame; true if it is the seal.
    fn frame(&mut self, cursor: &Cursor, frame: &Frame, place: &mut Place) -> bool {
        let payload = cursor.payload(frame);
        let header = &frame.header;
        let chain_before = place.chain;
        place.chain = frame::chain_next(place.chain, header.crc);
        if header.ends_batch() {
            place.whole_until = cursor.offset();
        }
        match header.kind {
            Kind::Record => {
                let report = &mut self.report;
                report.records += 1;
                report.payload_bytes += payload.len() as u64;
                report.first_lsn = report.first_lsn.or(Some(header.lsn));
                report.last_lsn = Some(header.lsn);
                if let Some(segment) = report.segments.last_mut() {
                    segment.records += 1;
                    segment.first_lsn = segment.first_lsn.or(Some(header.lsn));
                    segment.last_lsn = Some(header.lsn);
                }
            }
            Kind::Start => {
                place.first_lsn = header.lsn;
                let found = Start::decode(payload);
                let previous = found.map(|start| start.previous);
                let expected = self.before.map(|before| before.end);
                if found.is_none() || expected.is_some_and(|expected| previous != Some(expected)) {
                    let expected = format!("a start that says {expected:?}");
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
                return true;
            }
            Kind::Gap => self.gap(frame, payload),
            Kind::Opened | Kind::Closed | Kind::Dropped => {}
        }
        false
    }

    /// Counts the records that a gap stands for. The cursor has seen that it is one.
    fn gap(&mut self, frame: &Frame, payload: &[u8]) {
        let (mut removed, mut lost) = (0, 0);
        match Gap::decode(payload).map(|gap| gap.why) {
            Some(Why::Removed) => removed = frame.records,
            Some(Why::Lost) => {
                lost = frame.records;
                let lsns = frame.header.lsn..=frame.next_lsn() - 1;
                self.report.lost.push(lsns);
            }
            None => {}
        }
        self.report.removed_records += removed;
        self.report.lost_records += lost;
        if let Some(segment) = self.report.segments.last_mut() {
            segment.removed_records += removed;
            segment.lost_records += lost;
        }
    }

    fn finish(&mut self, cursor: &Cursor, place: &Place, sealed: bool) -> io::Result<()> {
        self.before = None;
        if sealed {
            if tail::any_nonzero(cursor.file(), cursor.offset())? {
                let (expected, found) = ("nothing behind the seal", "bytes that are not zero");
                self.damage(place.number, cursor.offset(), expected.into(), found.into());
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
                        offset: cursor.offset(),
                        chain: place.chain,
                    }),
                });
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

/// Moves to the next valid frame behind damage; false if there is none.
fn go_on_behind(cursor: &mut Cursor, at: u64) -> io::Result<bool> {
    let seed: PlaceSeed = cursor.seed();
    match tail::next_frame(cursor.file(), seed, at + ALIGN)? {
        Some(next) => {
            cursor.jump(next);
            Ok(true)
        }
        None => Ok(false),
    }
}
