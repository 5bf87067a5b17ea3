//! Export and import: streams leave the store in a portable file, and another store on the same
//! disk takes them in, whatever the disk does meanwhile.
//!
//! | promise | check |
//! |---|---|
//! | a file is whole or absent | what has its name is the last that an export placed, or one that a later export was to place |
//! | a stream is imported whole or not at all | it ends where a file ends that was to be imported |
//! | what an import has reported stays | when it has, nothing less is allowed any more |
//! | another history is refused | an import is refused exactly if one may be there |

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dalsegno_log::fs::Fs;
use dalsegno_store::portable::{Item, PortableReader};
use dalsegno_store::{
    Export, Hash, ImportReport, LocalStore, Store, StoreError, StreamId, StreamKind, Version,
};

use super::compare::Trouble;
use super::{After, World, now};
use crate::disk::SimDisk;

const FILES: &str = "files";
const FILE: &str = "files/streams.dalsegno";
/// More than an event takes in the log beside its bytes.
const OVERHEAD_BYTES: u64 = 96;

/// The hash of a stream after each of its events.
type Chain = Vec<Hash>;

/// What there is beside the store.
#[derive(Clone, Debug)]
pub(super) struct Elsewhere {
    /// What the portable file may be.
    files: Vec<Option<Arc<[u8]>>>,
    /// Which store it is imported into; `None` before the first import.
    other: Option<u64>,
    /// What each stream may be there; those not named are not there.
    streams: BTreeMap<StreamId, Vec<Chain>>,
}

impl Elsewhere {
    /// A folder for a file that is not there yet.
    pub fn new(disk: &SimDisk) -> Elsewhere {
        // On a disk that is still in order.
        drop(disk.create_dir(Path::new(FILES)));
        Elsewhere {
            files: vec![None],
            other: None,
            streams: BTreeMap::new(),
        }
    }

    fn dir(&self) -> Option<String> {
        self.other.map(|n| format!("other-{n}"))
    }

    fn allowed(&self, stream: &StreamId) -> Vec<Chain> {
        let none = || vec![Chain::new()];
        self.streams.get(stream).cloned().unwrap_or_else(none)
    }

    /// Whether what may be there of a stream is another history than that of a file.
    fn may_refuse(&self, content: &Content) -> bool {
        let mut chains = content.chains.iter();
        chains.any(|(stream, chain)| {
            let allowed = self.allowed(stream);
            allowed.iter().any(|there| joined(there, chain).is_none())
        })
    }

    /// An import is about to begin; or, if it is `done`, it has ended well.
    fn importing(&mut self, content: &Content, done: bool) {
        for (stream, chain) in &content.chains {
            let there = self.allowed(stream);
            let after = there.iter().filter_map(|there| joined(there, chain));
            let mut allowed: Vec<Chain> = after.collect();
            if !done {
                allowed.extend(there);
            }
            allowed.sort();
            allowed.dedup();
            self.streams.insert(stream.clone(), allowed);
        }
    }
}

/// The longer of two, if it begins with the other.
fn joined(one: &Chain, other: &Chain) -> Option<Chain> {
    let (short, long) = match one.len() < other.len() {
        true => (one, other),
        false => (other, one),
    };
    long.starts_with(short).then(|| long.clone())
}

/// What is in a portable file that can be imported.
struct Content {
    chains: BTreeMap<StreamId, Chain>,
    /// More than the largest stream takes in the log.
    largest: u64,
}

impl Content {
    fn read(bytes: &[u8]) -> Result<Content, String> {
        let failed = |e: dalsegno_store::portable::PortableError| format!("a portable file: {e}");
        let mut reader = PortableReader::open(bytes).map_err(failed)?;
        let mut chains: BTreeMap<StreamId, Chain> = BTreeMap::new();
        let mut sizes: BTreeMap<StreamId, u64> = BTreeMap::new();
        while let Some(item) = reader.next().map_err(failed)? {
            let Item::Event {
                event,
                bytes,
                version,
            } = item
            else {
                continue;
            };
            if event.stream.kind() != StreamKind::Store {
                *sizes.entry(event.stream.clone()).or_default() +=
                    bytes.len() as u64 + OVERHEAD_BYTES;
                chains.entry(event.stream).or_default().push(version.hash);
            }
        }
        let largest = sizes.into_values().max().unwrap_or(0);
        Ok(Content { chains, largest })
    }
}

impl World {
    /// Exports everything or a few streams, into the one file there is.
    pub(super) fn export(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let all: Vec<StreamId> = self.history.streams.keys().cloned().collect();
        if all.is_empty() {
            return Ok(After::GoOn);
        }
        let what = if self.rng.chance(150) {
            Export::Store
        } else {
            let some = (0..3).map(|_| all[self.rng.index(all.len())].clone());
            Export::Streams(some.collect())
        };
        self.pause_faults();
        let mut expected = Vec::new();
        let written = store.export_to(&what, &mut expected);
        self.resume_faults();
        if let Err(e) = written {
            return self.failed("export", &e);
        }
        self.compare_export(&what, &expected)?;
        let expected: Option<Arc<[u8]>> = Some(expected.into());
        self.elsewhere.files.push(expected.clone());
        match store.export(&what, Path::new(FILE)) {
            Ok(_) => {
                self.elsewhere.files = vec![expected];
                self.summary.exports += 1;
                self.check_file()?;
                Ok(After::GoOn)
            }
            Err(e) => self.failed("export", &e),
        }
    }

    /// The file has the streams asked for as they are now.
    fn compare_export(&self, what: &Export, bytes: &[u8]) -> Result<(), String> {
        let found = Content::read(bytes)?.chains;
        let wanted: BTreeSet<StreamId> = match what {
            Export::Store => self.history.streams.keys().cloned().collect(),
            Export::Streams(streams) => streams.clone(),
        };
        let wanted = wanted.into_iter();
        let wanted = wanted.filter(|stream| stream.kind() != StreamKind::Store);
        let expected: BTreeMap<StreamId, Chain> = wanted
            .map(|stream| {
                let mut chain = Version::START;
                let events = self.history.of(&stream).map(|entry| {
                    chain = chain.after(&entry.bytes);
                    chain.hash
                });
                let events = events.collect();
                (stream, events)
            })
            .collect();
        match found == expected {
            true => Ok(()),
            false => Err(format!("exported {found:?}, expected {expected:?}")),
        }
    }

    /// Imports the file into the other store.
    pub(super) fn import(&mut self) -> Result<After, String> {
        let Ok(bytes) = self.disk.read_file(FILE) else {
            return Ok(After::GoOn);
        };
        let content = Content::read(&bytes)?;
        let may_refuse = self.elsewhere.may_refuse(&content);
        self.elsewhere.other.get_or_insert(0);
        let Some(dir) = self.elsewhere.dir() else {
            return Ok(After::GoOn);
        };
        let other = match self.options.open(&dir) {
            Ok(other) => other,
            Err(e) => return self.failed("opening the other store", &e),
        };
        self.elsewhere.importing(&content, false);
        match other.import(Path::new(FILE), None) {
            Ok(report) => {
                self.elsewhere.importing(&content, true);
                self.summary.imports += 1;
                check_report(&report, &content)?;
                Ok(After::GoOn)
            }
            Err(StoreError::Refused { .. }) if may_refuse => {
                // Another one, for histories that have parted.
                self.elsewhere.other = self.elsewhere.other.map(|n| n + 1);
                self.elsewhere.streams.clear();
                Ok(After::GoOn)
            }
            Err(StoreError::TooLarge { .. }) if content.largest > self.sizes.batch_bytes => {
                Ok(After::GoOn)
            }
            Err(e) => self.failed("import", &e),
        }
    }

    /// The portable file is one that may be there.
    fn check_file(&self) -> Result<(), String> {
        let found = self.disk.read_file(FILE).ok();
        let mut allowed = self.elsewhere.files.iter();
        match allowed.any(|file| file.as_deref() == found.as_deref()) {
            true => Ok(()),
            false => Err(format!(
                "the portable file has {:?} bytes, and none of {} exports was to write them",
                found.map(|bytes| bytes.len()),
                self.elsewhere.files.len()
            )),
        }
    }

    /// The file and the other store are as they may be. Looks at a copy of the disk.
    pub(super) fn check_elsewhere(&mut self) -> Result<(), String> {
        self.check_file()?;
        let Some(dir) = self.elsewhere.dir() else {
            return Ok(());
        };
        let disk = self.copy();
        let options = self.options.clone().fs(Arc::new(disk.clone()));
        let compared = options.open(&dir).map_err(Trouble::from);
        let compared = compared.and_then(|other| self.compare_other(&other));
        compared.map_err(|e| format!("the other store: {}", e.told()))?;
        let report = options.verify(&dir);
        let report = report.map_err(|e| format!("verifying the other store: {e}"))?;
        match report.is_sound() {
            true => Ok(()),
            false => Err(format!("the other store: {:?}", report.problems)),
        }
    }

    fn compare_other(&self, other: &LocalStore) -> Result<(), Trouble> {
        let mut streams: BTreeSet<StreamId> = self.elsewhere.streams.keys().cloned().collect();
        for kind in [StreamKind::Run, StreamKind::Memory] {
            let there = now(other.streams(kind, None, 0))?;
            streams.extend(there.into_iter().map(|(stream, _)| stream));
        }
        for stream in streams {
            let mut chain = Version::START;
            let mut found = Chain::new();
            for recorded in now(other.read(&stream, 1, usize::MAX))? {
                chain = chain.after(&recorded.event.encode());
                found.push(recorded.hash);
                if chain.hash != recorded.hash {
                    return Err(format!("the chain of {stream} breaks at {chain:?}").into());
                }
                for payload in recorded.event.payloads() {
                    now(other.payload(payload))?;
                }
            }
            if !self.elsewhere.allowed(&stream).contains(&found) {
                let wrong = format!("{} events of {stream}, which no file had", found.len());
                return Err(wrong.into());
            }
        }
        Ok(())
    }
}

/// The report names the streams of the file, as they are in it if they are new.
fn check_report(report: &ImportReport, content: &Content) -> Result<(), String> {
    let named: BTreeSet<&StreamId> = report.imported.keys().chain(&report.present).collect();
    let heads_fit = report.imported.iter().all(|(stream, head)| {
        let chain = content.chains.get(stream);
        chain.is_some_and(|chain| {
            (chain.len() as u64, chain.last()) == (head.sequence, Some(&head.hash))
        })
    });
    match heads_fit && named.iter().copied().eq(content.chains.keys()) {
        true => Ok(()),
        false => Err(format!("an import reported {report:?}")),
    }
}
