//! The same disk, opened in many ways: without its newest snapshot, without any, without indexes,
//! with bits flipped in them. All that follows from the log must come out the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use dalsegno_log::fs::Fs;
use dalsegno_store::{LocalStore, Store, StoreError};

use super::compare::{Asked, Trouble, all_events, same_answers, same_payloads};
use super::{DIR, INDEX, LOG, SNAPSHOTS, World, now};
use crate::disk::{KeepAll, SimDisk};

/// What is done to a copy before it is opened.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Nothing,
    NoNewestSnapshot,
    NoSnapshots,
    NoIndexes,
    OnlyTheLog,
    RottenSnapshot,
    RottenIndex,
}

const HARMS: [Harm; 7] = [
    Harm::Nothing,
    Harm::NoNewestSnapshot,
    Harm::NoSnapshots,
    Harm::NoIndexes,
    Harm::OnlyTheLog,
    Harm::RottenSnapshot,
    Harm::RottenIndex,
];

impl World {
    /// Opens some copies of the disk as it is, beside the open store.
    pub(super) fn copies(&mut self) -> Result<(), String> {
        let Some(store) = self.store.clone() else {
            return Ok(());
        };
        let waited = now(store.position()).and_then(|position| now(store.durable(position)));
        match waited {
            Ok(()) => self.acknowledge(self.history.entries.len()),
            Err(e) => return self.failed("durable", &e).map(|_| ()),
        }
        for _ in 0..2 {
            let harm = HARMS[self.rng.index(HARMS.len())];
            let disk = self.copy();
            let result = self.harm(&disk, harm).and_then(|rotten| {
                if self.rng.chance(500) {
                    self.copy_for_reading(&disk)
                } else {
                    self.copy_for_writing(&disk, rotten)
                }
            });
            result.map_err(|e| format!("a copy with {harm:?}: {}", e.told()))?;
            self.summary.copies += 1;
        }
        Ok(())
    }

    /// The disk as it is, with nothing wrong and no process on it.
    pub(super) fn copy(&self) -> SimDisk {
        let disk = self.disk.snapshot();
        disk.restart_process();
        disk.heal();
        disk
    }

    /// The state comes out the same from the newest snapshot, from the one before, and from the
    /// whole log.
    fn same_from_every_snapshot(&mut self) -> Result<(), String> {
        let Some(store) = self.store.clone() else {
            return Ok(());
        };
        let waited = now(store.position()).and_then(|position| now(store.durable(position)));
        waited.map_err(|e| e.to_string())?;
        let mut begun = Vec::new();
        for harm in [Harm::Nothing, Harm::NoNewestSnapshot, Harm::NoSnapshots] {
            let disk = self.copy();
            self.harm(&disk, harm).map_err(Trouble::told)?;
            let options = self.options.clone().fs(Arc::new(disk));
            let view = options.open_read_only(DIR).map_err(|e| e.to_string())?;
            let digest = view.state_digest();
            if digest != store.state_digest() || digest != self.history.state.digest() {
                return Err(format!("another state with {harm:?}: {:?}", view.opened()));
            }
            begun.push(view.opened().snapshot);
        }
        match begun[..] {
            [newest, older, None] if newest > older => Ok(()),
            _ => Err(format!("not from three beginnings: {begun:?}")),
        }
    }

    /// A quiet life; after every seal, and a little later, the state comes out the same from
    /// wherever it is read. Says how often that was compared.
    pub(super) fn quiet_life(&mut self) -> Result<u64, String> {
        self.faults = crate::disk::Faults::default();
        self.capacity = None;
        self.open()?;
        let (mut compared, mut sealed) = (0, 0);
        for _ in 0..40 {
            let operations = self.rng.range(1, 12);
            self.work_a_little(operations)?;
            if self.store.is_none() {
                self.die();
                self.open()?;
            }
            let segments = self.disk.files(LOG).len();
            // A pinned one may be of the same moment as another.
            let snapshots = self.disk.files(SNAPSHOTS);
            let moments: BTreeSet<_> = snapshots.iter().map(|name| name.get(..20)).collect();
            if segments != sealed && moments.len() > 1 {
                sealed = segments;
                compared += 1;
                self.same_from_every_snapshot()?;
                self.work_a_little(4)?;
                self.same_from_every_snapshot()?;
            }
        }
        Ok(compared)
    }

    /// True if a bit was flipped in what an opening reads.
    fn harm(&mut self, disk: &SimDisk, harm: Harm) -> Result<bool, Trouble> {
        let snapshots = disk.files(SNAPSHOTS);
        let newest = snapshots.last().cloned();
        let (from, names) = match harm {
            Harm::Nothing => return Ok(false),
            Harm::NoNewestSnapshot => {
                // There may be a pinned one of the same moment.
                let moment = newest.and_then(|name| Some(name.get(..20)?.to_owned()));
                let newest = |name: &String| moment.as_ref().is_some_and(|m| name.starts_with(m));
                (SNAPSHOTS, snapshots.into_iter().filter(newest).collect())
            }
            Harm::NoSnapshots => (SNAPSHOTS, snapshots),
            Harm::NoIndexes => (INDEX, disk.files(INDEX)),
            Harm::OnlyTheLog => {
                remove(disk, INDEX, &disk.files(INDEX))?;
                (SNAPSHOTS, snapshots)
            }
            Harm::RottenSnapshot => {
                let Some(newest) = newest else {
                    return Ok(false);
                };
                self.flip(disk, SNAPSHOTS, &newest);
                // A second flip can undo the first.
                return Ok(!newest.ends_with(".tmp") && !self.rotten);
            }
            Harm::RottenIndex => {
                let indexes = disk.files(INDEX);
                if !indexes.is_empty() {
                    let name = &indexes[self.rng.index(indexes.len())];
                    self.flip(disk, INDEX, name);
                }
                return Ok(false);
            }
        };
        remove(disk, from, &names)?;
        Ok(false)
    }

    fn flip(&mut self, disk: &SimDisk, dir: &str, name: &str) {
        let path = Path::new(dir).join(name);
        let Ok(len) = disk.file_len(&path) else {
            return;
        };
        let (offset, bit) = (self.rng.below(len), self.rng.below(8) as u32);
        self.summary.flipped_bits += u64::from(disk.flip_bit(&path, offset, bit).is_ok());
    }

    fn copy_for_reading(&mut self, disk: &SimDisk) -> Result<(), Trouble> {
        let options = self.options.clone().fs(Arc::new(disk.clone()));
        let view = options.open_read_only(DIR)?;
        let found = all_events(&view, &self.history.names, &mut self.rng)?;
        let (count, read) = self.history.check_beginning(&found)?;
        if read != found.len() || count != self.history.entries.len() {
            let all = self.history.entries.len();
            return Err(Trouble::Wrong(format!(
                "{count} of {all} events, {} there",
                found.len()
            )));
        }
        same_answers(&view, &self.history, Asked::Reader)?;
        same_payloads(&view, &self.history, |_| true)
    }

    fn copy_for_writing(&mut self, disk: &SimDisk, rotten: bool) -> Result<(), Trouble> {
        let options = self.options.clone().fs(Arc::new(disk.clone()));
        let store = options.open(DIR)?;
        let noticed = !store.opened().notices.is_empty();
        if rotten && !noticed {
            return Err(Trouble::Wrong("a flipped bit was not noticed".into()));
        }
        let mut history = self.history.clone();
        self.compare_copy(&store, &mut history, 1)?;
        let (digest, close) = (store.state_digest(), self.rng.chance(500));
        if close {
            store.close()?;
        }
        disk.power_off_now();
        drop(store);
        disk.reboot(&mut KeepAll);
        let again = options.open(DIR)?;
        let clean = close && !self.syncs_fail;
        if clean && (again.state_digest() != digest || !again.opened().clean) {
            let opened = again.opened();
            let wrong = format!("closed, opened, and another state: {opened:?}");
            return Err(Trouble::Wrong(wrong));
        }
        self.compare_copy(&again, &mut history, 1)?;
        disk.power_off_now();
        Ok(())
    }

    fn compare_copy(
        &mut self,
        store: &LocalStore,
        history: &mut super::History,
        recoveries: usize,
    ) -> Result<(), Trouble> {
        let found = all_events(store, &history.names, &mut self.rng)?;
        history.adopt(&found, &self.post, self.sizes, recoveries)?;
        same_answers(store, history, Asked::NewOwner)?;
        same_payloads(store, history, |_| true)
    }

    /// Between two lives, bits flip in snapshots and indexes of the disk itself.
    pub(super) fn rot_in_place(&mut self) {
        let disk = self.disk.clone();
        for dir in [SNAPSHOTS, INDEX] {
            let names = disk.files(dir);
            if !names.is_empty() && self.rng.chance(700) {
                let name = names[self.rng.index(names.len())].clone();
                self.flip(&disk, dir, &name);
                self.rotten = true;
            }
        }
    }

    /// Looking at everything finds nothing, unless bits were flipped.
    pub(super) fn verify(&mut self) -> Result<(), String> {
        let report = self.options.verify(DIR);
        let report = report.map_err(|e| format!("verify: {e}"))?;
        match report.is_sound() || self.rotten {
            true => Ok(()),
            false => Err(format!("verify found {:?}", report.problems)),
        }
    }

    /// A bit flips in the log: opening and reading fail and say why, or all is right.
    pub(super) fn rot_of_the_log(&mut self) -> Result<(), String> {
        let disk = self.disk.snapshot();
        let names: Vec<String> = disk.files(LOG);
        let names: Vec<&String> = names.iter().filter(|n| n.ends_with(".seg")).collect();
        if names.is_empty() {
            return Ok(());
        }
        let name = names[self.rng.index(names.len())].clone();
        self.flip(&disk, LOG, &name);
        let options = self.options.clone().fs(Arc::new(disk.clone()));
        let compared = options.open(DIR).map_err(Trouble::from).and_then(|store| {
            let mut history = self.history.clone();
            if store.opened().torn.is_some() {
                // Only the last group can be taken for a torn write, and then that is said.
                history.durable = 0;
            }
            self.compare_copy(&store, &mut history, 1)
        });
        disk.power_off_now();
        match compared {
            Ok(()) => Ok(()),
            Err(Trouble::Failed(e)) if is_damage(&e) => Ok(()),
            Err(e) => Err(format!("a bit flipped in {name}: {}", e.told())),
        }
    }
}

/// It says that the log is damaged.
fn is_damage(error: &StoreError) -> bool {
    use dalsegno_log::{OpenError, ReadError};
    matches!(
        error,
        StoreError::Damaged { .. }
            | StoreError::Open(OpenError::Damage { .. } | OpenError::Version { .. })
            | StoreError::Read(ReadError::Damage(_))
    )
}

fn remove(disk: &SimDisk, dir: &str, names: &[String]) -> Result<(), Trouble> {
    for name in names {
        let removed = disk.remove(&Path::new(dir).join(name));
        removed.map_err(|e| Trouble::Wrong(e.to_string()))?;
    }
    Ok(())
}
