//! Verifying a store: every frame, event, chain, piece, index, snapshot, letter and archive. Changes
//! nothing, and works beside an owner.
//!
//! Invariant: a byte of a store that is not as it was written is named, unless nothing ever reads
//! it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dalsegno_log::fs::OpenMode;
use dalsegno_log::{OpenError, ReadError, TornTail, verify_on};

use super::disk::{Disk, Records};
use super::folder::Folder;
use super::indexes::{self, Indexes};
use super::options::Options;
use super::snapshots;
use crate::error::StoreError;
use crate::hash::Hash;
use crate::mailbox;
use crate::portable::{FsReader, verify_portable};

mod history;
mod json;

use history::History;

/// An index is smaller than its segment, and a segment has at most a gigabyte.
const INDEX_LIMIT_BYTES: u64 = 4 << 30;

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Problem {
    fn new(
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Problem {
        Problem {
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            place,
            expected,
            found,
        } = self;
        write!(f, "{place}: expected {expected}, found {found}")
    }
}

/// What verifying a store found. `Display` says it in words, [`StoreReport::to_json`] in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// The folder.
    pub dir: PathBuf,
    /// The last position that can be read.
    pub position: u64,
    /// The log's segments.
    pub segments: u64,
    /// Streams that have events.
    pub streams: u64,
    /// Events whose chain fits.
    pub events: u64,
    /// Payload pieces whose hash fits.
    pub pieces: u64,
    /// Snapshots that were read.
    pub snapshots: u64,
    /// Indexes that were compared with their segments.
    pub indexes: u64,
    /// Letters that wait.
    pub letters: u64,
    /// Portable files of retired runs.
    pub archives: u64,
    /// The head of every stream.
    pub heads: BTreeMap<String, Hash>,
    /// A write that a crash interrupted, or that is under way. The next opening cuts it off.
    pub torn: Option<TornTail>,
    /// What is missing since a repair, which recorded that it happened.
    pub losses: Vec<Problem>,
    /// What is not as it was written.
    pub problems: Vec<Problem>,
}

impl StoreReport {
    /// Whether everything is as it was written, but for what a repair has given up.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} segments, {} streams, {} events, {} pieces, {} snapshots, {} indexes, {} letters, \
             {} archives in {}",
            self.segments,
            self.streams,
            self.events,
            self.pieces,
            self.snapshots,
            self.indexes,
            self.letters,
            self.archives,
            self.dir.display()
        )?;
        if let Some(torn) = &self.torn {
            writeln!(
                f,
                "torn: {} bytes in segment {} from byte {} on were never acknowledged; the next \
                 opening cuts them off",
                torn.bytes, torn.segment, torn.offset
            )?;
        }
        for loss in &self.losses {
            writeln!(f, "lost: {loss}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        match self.problems.len() {
            0 => write!(f, "sound"),
            1 => write!(f, "1 problem: restore a copy, or repair"),
            n => write!(f, "{n} problems: restore a copy, or repair"),
        }
    }
}

impl Options {
    /// Reads everything in a store, and reports what is not as it was written. Changes nothing;
    /// works beside an owner.
    ///
    /// # Errors
    /// There is no store, it is from a newer version, or a file could not be read. Damage is no
    /// error here: it is in the report.
    pub fn verify(&self, dir: impl AsRef<Path>) -> Result<StoreReport, StoreError> {
        let fs = Arc::clone(&self.fs);
        let absolute = fs.absolute(dir.as_ref());
        let dir = absolute.map_err(|e| dalsegno_log::IoFailure::new("find", dir.as_ref(), e))?;
        let mut report = StoreReport {
            dir: dir.clone(),
            ..StoreReport::default()
        };
        let folder = match Folder::open(Arc::clone(&fs), &dir, false) {
            Ok(folder) => Some(folder),
            Err(e @ StoreError::Damaged { .. }) => {
                report.problems.push(from_error(&e));
                None
            }
            Err(e) => return Err(e),
        };
        let log = folder.as_ref().map_or(dir.join("log"), Folder::log);
        match verify_on(fs.as_ref(), &log) {
            Ok(found) => {
                report.segments = found.segments.len() as u64;
                report.torn = found.torn;
                let damages = found.damages.into_iter();
                report.problems.extend(damages.map(|damage| {
                    let place = format!(
                        "segment {} of the log at byte {}",
                        damage.segment, damage.offset
                    );
                    Problem::new(place, damage.expected, damage.found)
                }));
            }
            // Made when the store is first opened for writing.
            Err(OpenError::Missing { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        if let Some(folder) = folder {
            Verify {
                options: self,
                folder,
                report: &mut report,
            }
            .all()?;
        }
        Ok(report)
    }
}

struct Verify<'a> {
    options: &'a Options,
    folder: Folder,
    report: &'a mut StoreReport,
}

impl Verify<'_> {
    fn all(&mut self) -> Result<(), StoreError> {
        let snapshots = self.snapshots()?;
        match self.options.log.open_read_only(self.folder.log()) {
            Ok(view) => {
                let disk = Disk::Reader(Box::new(view));
                let reclaimed = self.history(&disk, snapshots)?;
                self.indexes(&disk, reclaimed)?;
            }
            // In the report already, or not made yet.
            Err(OpenError::Damage { .. } | OpenError::Missing { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        self.letters()?;
        self.archives()
    }

    /// Reads every snapshot; the digest of the state in each by its LSN.
    fn snapshots(&mut self) -> Result<Vec<(u64, String, Hash)>, StoreError> {
        let mut good = Vec::new();
        for info in snapshots::list(&self.folder)? {
            match snapshots::load(&self.folder, &info) {
                Ok(snapshot) => good.push((snapshot.lsn, info.file, snapshot.state.digest())),
                Err(e) if is_gone(&e) => continue,
                Err(e @ StoreError::Version { .. }) => return Err(e),
                Err(e) => self.report.problems.push(from_error(&e)),
            }
            self.report.snapshots += 1;
        }
        Ok(good)
    }

    /// Reads all records in order. False if retention was interrupted.
    fn history(
        &mut self,
        disk: &Disk,
        snapshots: Vec<(u64, String, Hash)>,
    ) -> Result<bool, StoreError> {
        let mut history = History::new(snapshots);
        if let Err(e) = history.read(disk) {
            if has_failed(&e) {
                return Err(e);
            }
            // Damage that the log has reported in its own words.
            if self.report.problems.is_empty() {
                self.report.problems.push(from_error(&e));
            }
        }
        Ok(history.finish(disk.last_lsn(), self.report))
    }

    /// Compares every index with what its segment says it must be.
    fn indexes(&mut self, disk: &Disk, reclaimed: bool) -> Result<(), StoreError> {
        let dir = self.folder.index();
        let names = self.folder.list(&dir)?;
        let segments = disk.segments();
        let known = Indexes::new(self.folder.clone(), false);
        for name in names {
            let Some(number) = indexes::parse_name(&name) else {
                continue;
            };
            let place = format!("index/{name}");
            let Some(at) = segments.iter().position(|s| s.number == number && s.sealed) else {
                // Of a segment that was dropped: removed with the next one.
                continue;
            };
            self.report.indexes += 1;
            let found = match self.folder.read(&dir.join(&name), INDEX_LIMIT_BYTES) {
                Ok(found) => found,
                Err(e) if is_gone(&e) => continue,
                Err(e) => return Err(e),
            };
            let checked = match known.check_bytes(disk, &segments[at], found.clone()) {
                Err(e) if has_failed(&e) => return Err(e),
                checked => checked,
            };
            match known.expected_bytes(disk, &segments[..at], &segments[at], &found) {
                Err(e) if has_failed(&e) => return Err(e),
                Ok(expected) if expected == found => self.report.problems.extend(
                    checked
                        .err()
                        .map(|e| Problem::new(&place, "an index", e.to_string())),
                ),
                // It was made when segments before it still had what is being removed, and is
                // made again when its own is rewritten.
                Ok(_) if !reclaimed && checked.is_ok() => {}
                Ok(expected) => {
                    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b);
                    let byte = same.count();
                    self.report.problems.push(Problem::new(
                        format!("{place} at byte {byte}"),
                        format!("{:02x?} of {} bytes", expected.get(byte), expected.len()),
                        format!("{:02x?} of {} bytes", found.get(byte), found.len()),
                    ));
                }
                // The segment is damaged, and the log has said so.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn letters(&mut self) -> Result<(), StoreError> {
        let dir = self.folder.mailbox();
        for name in self.folder.list(&dir)? {
            let path = dir.join(&name);
            let read = || self.folder.read(&path, mailbox::LETTER_LIMIT_BYTES);
            match mailbox::check_file(&name, read) {
                None => {}
                Some(Ok(())) => self.report.letters += 1,
                Some(Err(e)) if is_gone(&e) => {}
                Some(Err(e)) => {
                    let place = format!("mailbox/{name}");
                    let problem = Problem::new(place, "a letter", e.to_string());
                    self.report.problems.push(problem);
                }
            }
        }
        Ok(())
    }

    fn archives(&mut self) -> Result<(), StoreError> {
        let dir = self.folder.archive();
        for name in self.folder.list(&dir)? {
            if !name.ends_with(".dalsegno") {
                continue;
            }
            let path = dir.join(&name);
            let file = self.folder.fs.open(&path, OpenMode::Read);
            let file = file.map_err(|e| dalsegno_log::IoFailure::new("open", &path, e))?;
            self.report.archives += 1;
            if let Err(e) = verify_portable(FsReader::new(file)) {
                let place = format!("archive/{name}");
                let problem = Problem::new(place, "a portable file", e.to_string());
                self.report.problems.push(problem);
            }
        }
        Ok(())
    }
}

/// Whether a file went away while it was looked at.
fn is_gone(e: &StoreError) -> bool {
    failure_in(e).is_some_and(|kind| kind == io::ErrorKind::NotFound)
}

/// Whether the file system failed, and nothing is known of the bytes. If that were taken for
/// damage, a repair would take away what is good.
fn has_failed(e: &StoreError) -> bool {
    failure_in(e).is_some_and(|kind| kind != io::ErrorKind::NotFound)
}

fn failure_in(e: &StoreError) -> Option<io::ErrorKind> {
    match e {
        StoreError::Io(failure) | StoreError::Read(ReadError::Io(failure)) => {
            Some(failure.error.kind())
        }
        _ => None,
    }
}

fn from_error(e: &StoreError) -> Problem {
    match e {
        StoreError::Damaged {
            what,
            expected,
            found,
            ..
        } => Problem::new(what, expected, found),
        other => Problem::new("the store", "to be readable", other.to_string()),
    }
}
