//! Opening a store: the newest good snapshot, then the log behind it.
//!
//! 1. The folder must be a store, or empty.
//! 2. The log opens, and recovers from a crash by itself.
//! 3. The newest snapshot that can be read is the state; else the one before it; else the empty
//!    state. What was passed over is said.
//! 4. The records behind it are applied, in order.
//!
//! Invariant: which snapshot was used makes no difference to the state that comes of it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use dalsegno_log::{FoundRecords, Reader, TornTail};

use super::disk::{Disk, Records};
use super::folder::Folder;
use super::indexes::Indexes;
use super::keeper::Keeper;
use super::leases::Leases;
use super::letters::Boxes;
use super::options::Options;
use super::recent::{Gathered, Recent};
use super::record::{self, Peek, Record};
use super::snapshots::{self, Snapshot};
use super::watch::Watch;
use super::{Core, Inner, LocalStore};
use crate::error::StoreError;
use crate::event::Event;
use crate::fields::Fields;
use crate::kind::Kind;
use crate::name::StreamId;
use crate::rules::Rule;
use crate::state::State;
use crate::store::NewEvent;

/// More than anybody reads; a log full of garbage must not fill the memory with them.
const NOTICES_LIMIT: usize = 1000;

/// What opening a store found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opened {
    /// The store was new, or its last owner closed it.
    pub clean: bool,
    /// The last position before this opening.
    pub position: u64,
    /// The position of the snapshot it began with; `None` if it read the whole log.
    pub snapshot: Option<u64>,
    /// How many records were read behind the snapshot.
    pub replayed: u64,
    /// An append that a crash had interrupted, and that was never acknowledged.
    pub torn: Option<TornTail>,
    /// What was not as it should be, and what was done instead.
    pub notices: Vec<String>,
}

/// What the texts of one of the store's own events may take: they fit into the smallest segment.
const OWN_TEXT_BYTES: usize = 4096;

/// Numbers of the fields of a `StoreRecovered` event.
pub(crate) mod recovered {
    pub const SNAPSHOT: u64 = 1;
    pub const REPLAYED: u64 = 2;
    pub const TORN_BYTES: u64 = 3;
    pub const NOTICES: u64 = 4;
}

impl LocalStore {
    pub(super) fn open_with(dir: &Path, options: &Options) -> Result<LocalStore, StoreError> {
        let fs = Arc::clone(&options.fs);
        let folder = Folder::open(fs, dir, options.create)?;
        folder.settle_marker()?;
        let mut opened = Opened::default();
        // Opening the log waits for the disk; its records are read meanwhile.
        let log = folder.log();
        let read = |found: &FoundRecords| {
            // Now that nobody else can make one: two may have begun at the same time.
            let mut folder = Folder::open(folder.fs, &folder.dir, false)?;
            folder.mutant = options.mutant;
            opened.position = found.last_lsn();
            let core = Core::load(&folder, found, &mut opened)?;
            Ok::<_, StoreError>((folder, core))
        };
        let (log, read) = options.log.open_reading(log, read)?;
        let (folder, core) = read?;
        let recovery = log.recovery();
        opened.clean = recovery.clean;
        opened.torn = recovery.torn.clone();
        let store = assemble(folder, options, Disk::Owner(log), core, opened);
        store.inner.record_opening()?;
        store.inner.keeper.start(&store.inner);
        Ok(store)
    }

    pub(super) fn open_read_only_with(
        dir: &Path,
        options: &Options,
    ) -> Result<LocalStore, StoreError> {
        let folder = Folder::open(Arc::clone(&options.fs), dir, false)?;
        let view = options.log.open_read_only(folder.log())?;
        let mut opened = Opened {
            clean: true,
            position: view.last_lsn(),
            ..Opened::default()
        };
        let disk = Disk::Reader(Box::new(view));
        let core = Core::load(&folder, &disk, &mut opened)?;
        let store = assemble(folder, options, disk, core, opened);
        store.inner.keeper.start(&store.inner);
        Ok(store)
    }
}

fn assemble(
    folder: Folder,
    options: &Options,
    disk: Disk,
    core: Core,
    opened: Opened,
) -> LocalStore {
    let writes = matches!(disk, Disk::Owner(_));
    LocalStore::new(Inner {
        indexes: Indexes::new(folder.clone(), writes),
        watch: Watch::new(core.applied),
        leases: Mutex::new(Leases::default()),
        letters: Boxes::new(&folder, &options.limits),
        keeper: Keeper::new(options.threads),
        closing: Mutex::default(),
        retiring: Mutex::default(),
        helping: Mutex::default(),
        options: options.clone(),
        core: Mutex::new(core),
        folder,
        disk,
        opened,
    })
}

/// The newest snapshot that can be read and belongs to this log.
fn newest_snapshot(
    folder: &Folder,
    disk: &impl Records,
    opened: &mut Opened,
) -> Result<Option<Snapshot>, StoreError> {
    let infos = snapshots::list(folder)?;
    // The owner may have got further since the log was opened.
    disk.refresh()?;
    for info in &infos {
        match snapshots::load(folder, info) {
            Ok(snapshot) if snapshot.lsn <= disk.last_lsn() => return Ok(Some(snapshot)),
            Ok(snapshot) => {
                // A snapshot is made of what is durable, so the end of the log is missing.
                let expected = format!("records up to {}, as {} shows", snapshot.lsn, info.file);
                let found = format!("records up to {}", disk.last_lsn());
                let log = folder.log().display().to_string();
                return Err(StoreError::damaged(log, expected, found));
            }
            Err(e @ StoreError::Version { .. }) => return Err(e),
            Err(e) if folder.mutant.breaks(Rule::PassOverSnapshot) => return Err(e),
            Err(e) => opened.notices.push(format!("{e}; it was passed over")),
        }
    }
    if !infos.is_empty() {
        let notice = "no snapshot could be read: the whole log was";
        opened.notices.push(notice.into());
    }
    Ok(None)
}

impl Core {
    /// The state that a snapshot and the records after it give.
    fn load(
        folder: &Folder,
        records: &impl Records,
        opened: &mut Opened,
    ) -> Result<Core, StoreError> {
        let snapshot = newest_snapshot(folder, records, opened)?;
        let (lsn, state) = match snapshot {
            Some(snapshot) => (snapshot.lsn, snapshot.state),
            None => (0, State::default()),
        };
        opened.snapshot = (lsn > 0).then_some(lsn);
        let mut sealed = records.segments();
        sealed.retain(|segment| segment.sealed);
        let mut core = Core {
            state,
            recent: Recent::default(),
            applied: lsn,
            snapshot: lsn,
            erasing_from: 0,
            without_leftovers: false,
            written: 0,
            sealed: Arc::new(sealed),
            closed: false,
        };
        opened.replayed = core.read_on(records, &mut opened.notices)?;
        Ok(core)
    }

    /// Applies the records that are not in the state yet, and takes those that are in no sealed
    /// segment into the recent part. Says how many were applied.
    pub fn read_on(
        &mut self,
        disk: &impl Records,
        notices: &mut Vec<String>,
    ) -> Result<u64, StoreError> {
        let sealed = self.sealed.last().map_or(0, |segment| segment.last_lsn);
        let taken = self.recent.last_lsn().max(sealed);
        let start = taken.min(self.applied) + 1;
        let reader = disk.read_from(start.max(disk.first_lsn()))?;
        let mut odd = Vec::new();
        let mut gathered = Gathered::default();
        let read = self.read_records(reader, taken, &mut gathered, &mut odd, notices);
        // Also if it came to an error: the state has taken in what was read before that.
        self.recent.take_in(&mut gathered);
        let applied = read?;
        // Of a run that is being removed, some events are gone already.
        odd.retain(|(stream, _)| !self.state.retiring.contains(stream));
        notices.extend(odd.into_iter().map(|(_, notice)| notice));
        Ok(applied)
    }

    /// The records up to `taken` are in the recent part.
    fn read_records(
        &mut self,
        mut reader: Reader,
        taken: u64,
        gathered: &mut Gathered,
        odd: &mut Vec<(StreamId, String)>,
        notices: &mut Vec<String>,
    ) -> Result<u64, StoreError> {
        let mut applied = 0;
        while let Some(record) = reader.next_record()? {
            let lsn = record.lsn;
            let found = Record::read(lsn, record.payload);
            let peek = match &found {
                Ok(Record::Event(bytes)) => {
                    record::peek_named(lsn, bytes, |text| gathered.name(text)).ok()
                }
                _ => None,
            };
            if lsn > self.applied {
                applied += 1;
                self.applied = lsn;
                if odd.len() < NOTICES_LIMIT {
                    odd.extend(
                        peek.as_ref()
                            .and_then(|peek| out_of_place(&self.state, lsn, peek)),
                    );
                }
                match apply(&mut self.state, lsn, &found) {
                    Err(e) if notices.len() < NOTICES_LIMIT => notices.push(e.to_string()),
                    _ => {}
                }
            }
            if lsn > taken {
                self.remember(lsn, &found, peek, gathered);
            }
        }
        Ok(applied)
    }

    fn remember(
        &mut self,
        lsn: u64,
        record: &Result<Record<'_>, StoreError>,
        peek: Option<Peek>,
        gathered: &mut Gathered,
    ) {
        match (record, peek) {
            (Ok(Record::Piece(hash, bytes)), _) => {
                // In the order of the log.
                self.recent.take_in(gathered);
                self.recent.piece(lsn, *hash, Arc::from(*bytes));
            }
            (Ok(Record::Event(bytes)), Some(peek)) => {
                self.recent.gather(gathered, lsn, peek, bytes);
            }
            _ => {}
        }
    }
}

/// Says so if an event does not follow the one before it in its stream.
fn out_of_place(state: &State, lsn: u64, peek: &Peek) -> Option<(StreamId, String)> {
    let head = state.streams.get(&peek.stream).map(|stream| stream.head);
    let expected = head.map_or(1, |head| head.sequence.saturating_add(1));
    if peek.sequence == expected {
        return None;
    }
    let what = format!("record {lsn} of the log");
    let expected = format!("event {expected} of {}", peek.stream);
    let found = format!("event {}", peek.sequence);
    let notice = StoreError::damaged(what, expected, found).to_string();
    Some((peek.stream.clone(), notice))
}

/// Applies one record of the log to a state. An error says what could not be read; the state has
/// stopped the stream that it was of, if that is known.
pub(crate) fn apply(
    state: &mut State,
    lsn: u64,
    record: &Result<Record<'_>, StoreError>,
) -> Result<(), StoreError> {
    let bytes = match record {
        Ok(Record::Event(bytes)) => bytes,
        Ok(Record::Piece(..)) => return Ok(()),
        Err(e) => {
            let what = format!("record {lsn} of the log");
            return Err(StoreError::damaged(
                what,
                "an event or a piece",
                e.to_string(),
            ));
        }
    };
    match Event::decode(bytes) {
        Ok(event) => {
            state.apply(&event, bytes);
            Ok(())
        }
        Err(e) => {
            if let Ok(peek) = record::peek(lsn, bytes) {
                state.freeze(&peek.stream, peek.sequence, bytes, &e.to_string());
            }
            let what = format!("record {lsn} of the log");
            Err(StoreError::damaged(what, "an event", e.to_string()))
        }
    }
}

/// As many texts as fit into any event, each cut to a sentence or two.
pub(crate) fn texts_for_an_event(texts: &[String]) -> crate::Value {
    let mut left = OWN_TEXT_BYTES;
    let cut = texts
        .iter()
        .map(|text| text.chars().take(300).collect::<String>());
    let fit = cut.take_while(|text| {
        left = left.saturating_sub(text.len() + 8);
        left > 0
    });
    crate::Value::List(fit.map(|text| text.as_str().into()).collect())
}

impl Inner {
    /// Writes into the recovery log what this opening found, unless all was well.
    fn record_opening(&self) -> Result<(), StoreError> {
        let opened = &self.opened;
        let all_was_well = opened.clean && opened.notices.is_empty();
        if all_was_well || self.options.mutant.breaks(Rule::RecordRecovery) {
            return Ok(());
        }
        let torn = opened.torn.as_ref().map_or(0, |torn| torn.bytes);
        let notices = texts_for_an_event(&opened.notices);
        let fields = Fields::new()
            .with(recovered::SNAPSHOT, opened.snapshot.unwrap_or(0))
            .with(recovered::REPLAYED, opened.replayed)
            .with(recovered::TORN_BYTES, torn)
            .with(recovered::NOTICES, notices);
        let event = NewEvent::new(Kind::StoreRecovered).with_fields(fields);
        self.append_own(vec![event])?;
        Ok(())
    }
}
