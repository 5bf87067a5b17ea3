//! Repairing a store: explicit, and never more than is needed.
//!
//! 1. A marker that cannot be read is written again.
//! 2. If the log is damaged, that is noted in `aside/`. Then it is repaired by its own rules: what is
//!    readable stays, the damaged files are kept.
//! 3. Snapshots and indexes that do not fit what the log says now are put into `aside/`. If the log
//!    was damaged, that is all snapshots. They follow from the log and are made again.
//! 4. Letters that cannot be read are set aside in their folder.
//! 5. `StoreRepaired` says what was done, and what was lost. When it is durable, the note goes.
//!
//! Invariants: nothing that is readable is given up; whatever is taken away is kept under another
//! name; a repair that was interrupted is done by running it again; a sound store is not changed.

use std::path::Path;
use std::sync::Arc;

use dalsegno_log::{IoFailure, OpenError, RepairReport, repair_on, verify_on};

use super::folder::{self, Folder};
use super::opening::texts_for_an_event;
use super::options::Options;
use super::{LocalStore, snapshots};
use crate::error::StoreError;
use crate::fields::Fields;
use crate::kind::Kind;
use crate::local::verify::StoreReport;
use crate::mailbox::Inbox;
use crate::state::field;
use crate::store::NewEvent;

/// `StoreRepaired`: how many records were lost, and what was done, in words.
const LOST_RECORDS: u64 = 1;
const ACTIONS: u64 = 2;
/// In `aside/`: that the log was damaged, until that is recorded in the store.
const PENDING: &str = "damage-not-recorded.txt";
/// A file that is set aside; larger than any that a store writes.
const FILE_LIMIT_BYTES: u64 = 8 << 30;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreRepair {
    /// What was done to the log.
    pub log: RepairReport,
    /// What was done, in words; nothing if the store was sound.
    pub actions: Vec<String>,
    /// What verifying says now.
    pub report: StoreReport,
}

impl Options {
    /// Makes a damaged store usable again. Nothing readable is lost, what is taken away is kept
    /// aside, and the store records that it happened. Restoring a copy is better, if there is one.
    ///
    /// # Errors
    /// The store is open elsewhere or from a newer version, nothing of its log is readable, or the
    /// file system failed. After a failure of the file system, run it again.
    pub fn repair(&self, dir: impl AsRef<Path>) -> Result<StoreRepair, StoreError> {
        let mut done = StoreRepair::default();
        let folder = self.repair_marker(dir.as_ref(), &mut done)?;
        let pending = self.note_damage(&folder)?;
        match repair_on(self.fs.as_ref(), &folder.log()) {
            Ok(log) => done.log = log,
            Err(OpenError::Missing { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        for action in &done.log.actions {
            let lost: u64 = action.lost.iter().map(|l| l.end() - l.start() + 1).sum();
            done.actions.push(format!(
                "segment {} rebuilt, {lost} records lost: {}",
                action.segment, action.damage
            ));
        }
        if let Some(found) = &pending {
            // Of a repair that was interrupted, nobody knows any more what it lost.
            done.actions.push(format!("the log was damaged: {found}"));
            for info in snapshots::list(&folder)? {
                set_aside(&folder, &folder.snapshots(), &info.file, &mut done)?;
            }
        }
        self.repair_caches(&folder, &mut done)?;
        if !done.actions.is_empty() {
            let store = self.existing_only_store(&folder)?;
            store.record(&done, pending.is_some())?;
        }
        if pending.is_some() {
            folder.remove(&folder.aside(), &[PENDING.to_owned()])?;
        }
        done.report = self.verify(&folder.dir)?;
        Ok(done)
    }

    /// Notes that the log is damaged, durably, before anything is done about it: if the repair is
    /// interrupted when the log is sound again, the next one still has to record it.
    fn note_damage(&self, folder: &Folder) -> Result<Option<String>, StoreError> {
        let path = folder.aside().join(PENDING);
        match folder.read(&path, FILE_LIMIT_BYTES) {
            Ok(found) => return Ok(Some(String::from_utf8_lossy(&found).into_owned())),
            Err(StoreError::Io(e)) if e.error.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let damages = match verify_on(self.fs.as_ref(), &folder.log()) {
            Ok(report) => report.damages,
            Err(OpenError::Missing { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let Some(first) = damages.first() else {
            return Ok(None);
        };
        let found = first.to_string();
        folder.place(&folder.aside(), PENDING, found.as_bytes())?;
        Ok(Some(found))
    }

    fn repair_marker(&self, dir: &Path, done: &mut StoreRepair) -> Result<Folder, StoreError> {
        let fs = Arc::clone(&self.fs);
        match Folder::open(Arc::clone(&fs), dir, false) {
            Err(StoreError::Damaged { found, .. }) => {
                let absolute = fs.absolute(dir);
                let dir = absolute.map_err(|e| IoFailure::new("find", dir, e))?;
                let id = fs.unique();
                let folder = Folder::new(fs, dir, id);
                set_aside(&folder, &folder.dir, folder::MARKER, done)?;
                folder.write_marker()?;
                done.actions
                    .push(format!("marker written again; it was {found}"));
                Ok(folder)
            }
            other => other,
        }
    }

    /// Removes what does not fit the log.
    fn repair_caches(&self, folder: &Folder, done: &mut StoreRepair) -> Result<(), StoreError> {
        let report = self.verify(&folder.dir)?;
        let mut inbox = None;
        for problem in &report.problems {
            let place = problem.place.split(" at byte ").next().unwrap_or_default();
            let place = place.strip_prefix(&format!("{}/", folder.dir.display()));
            let place = place.unwrap_or(&problem.place);
            let place = place.split(" at byte ").next().unwrap_or_default();
            if let Some(file) = place.strip_prefix("snapshots/") {
                set_aside(folder, &folder.snapshots(), file, done)?;
            } else if let Some(file) = place.strip_prefix("index/") {
                set_aside(folder, &folder.index(), file, done)?;
            } else if let Some(file) = place.strip_prefix("mailbox/") {
                let inbox = match &inbox {
                    Some(inbox) => inbox,
                    None => &*inbox.insert(Inbox::open(Arc::clone(&folder.fs), &folder.mailbox())?),
                };
                // It may be one that could not be read for a moment, or is from a newer version.
                if inbox.is_bad(file) {
                    inbox.set_aside(file)?;
                    done.actions
                        .push(format!("{place} set aside: {}", problem.found));
                }
            }
        }
        Ok(())
    }

    fn existing_only_store(&self, folder: &Folder) -> Result<LocalStore, StoreError> {
        self.clone().existing_only().open(&folder.dir)
    }
}

impl LocalStore {
    /// Writes into the store's own stream that it was repaired.
    fn record(&self, done: &StoreRepair, log_was_damaged: bool) -> Result<(), StoreError> {
        let lost = done.log.lost_records();
        let recorded = self.inner.append_own_at(|lsn, _| {
            let mut fields = Fields::new()
                .with(LOST_RECORDS, lost)
                .with(ACTIONS, texts_for_an_event(&done.actions));
            if log_was_damaged {
                fields = fields.with(field::REPAIRED_PIECES_FROM, lsn);
            }
            vec![NewEvent::new(Kind::StoreRepaired).with_fields(fields)]
        })?;
        self.inner.disk.log()?.wait_durable(recorded.position)?;
        self.close()
    }
}

/// Puts a file into `aside/`: there is a durable copy of it before it goes.
fn set_aside(
    folder: &Folder,
    dir: &Path,
    file: &str,
    done: &mut StoreRepair,
) -> Result<(), StoreError> {
    let path = dir.join(file);
    let bytes = match folder.read(&path, FILE_LIMIT_BYTES) {
        Ok(bytes) => bytes,
        Err(StoreError::Io(e)) if e.error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let there = folder.list(&folder.aside())?;
    let mut n = 1;
    let mut name = format!("{file}.{n}");
    while there.contains(&name) {
        n += 1;
        name = format!("{file}.{n}");
    }
    folder.place(&folder.aside(), &name, &bytes)?;
    folder.remove(dir, &[file.to_owned()])?;
    done.actions.push(format!("{file} put into aside/{name}"));
    Ok(())
}
