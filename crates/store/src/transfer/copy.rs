//! All streams of one store into another.
//!
//! | where the other store is | what is done |
//! |---|---|
//! | it has nothing | everything is copied |
//! | each of its streams is the beginning of the same one here | the rest is copied: an interrupted copy goes on |
//! | it has a stream that is not here, or has another history | nothing: that is an error |
//!
//! Invariants: nothing is written before all streams were compared. What was copied is read again at
//! the end, from the first event on, and its hashes must be those that are here. Runs of a store that
//! processes share can be claimed only when that is so.

use std::collections::{BTreeMap, HashSet};

use super::{PAGE_EVENTS, pieces};
use crate::error::StoreError;
use crate::event::Version;
use crate::forgotten::{forgotten_by, forgotten_in};
use crate::hash::Hash;
use crate::name::{StreamId, StreamKind};
use crate::payload::Piece;
use crate::store::{Foreign, Store};

/// What is taken over in one go, in bytes of events: less than the smallest store takes.
const BATCH_BYTES: usize = 512 << 10;
/// The same, by count.
const BATCH_STREAMS: usize = 64;
/// Pieces that are stored in one go, in bytes.
const PIECES_BYTES: usize = 4 << 20;
/// So many streams are listed, or let go on, at a time.
const STREAMS_AT_ONCE: usize = 1000;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copying {
    /// Events and pieces that were written, in bytes.
    pub bytes: u64,
    /// Events that were written.
    pub events: u64,
    /// Events that were read again.
    pub verified: u64,
    /// Events there are to copy.
    pub all_events: u64,
}

/// What a copy came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// Every stream that was copied, now or before, with its head where it comes from.
    pub heads: BTreeMap<StreamId, Version>,
    /// Streams of which something was written.
    pub streams: u64,
    /// Events that were written.
    pub events: u64,
    /// Pieces of payloads that were written.
    pub pieces: u64,
    /// Events and pieces that were written, in bytes.
    pub bytes: u64,
    /// Streams that are not the same in both.
    pub differences: Vec<Difference>,
    /// Streams that went on where they come from, while they were copied.
    pub went_on: Vec<StreamId>,
}

/// A stream that is not the same in both stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub stream: StreamId,
    /// Where it is in the store that was copied.
    pub expected: Version,
    /// What the other one came to.
    pub found: String,
}

/// Why nothing, or not everything, was copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The store to copy from failed.
    #[error(transparent)]
    From(StoreError),
    /// The store to copy to failed.
    #[error(transparent)]
    To(StoreError),
    /// The store to copy to has something of its own. Nothing was written.
    #[error("{stream} is there already, and {why}")]
    NotACopy {
        /// What it has.
        stream: StreamId,
        /// Why it is not a part of the store to copy from.
        why: String,
    },
    /// It was told to stop. What was copied stays, and copying again goes on.
    #[error("the copy was stopped")]
    Stopped,
}

/// Copies all runs and memories of a store into another one, which has nothing but what such a copy
/// has brought there. `go_on` is asked again and again.
///
/// With `is_live`, more may be appended to the store meanwhile: what came since is not copied, and
/// nobody may claim runs of the copy yet. Without, all streams must be the same in the end.
///
/// # Errors
/// See [`CopyError`].
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    is_live: bool,
    go_on: &mut dyn FnMut(Copying) -> bool,
) -> Result<CopyReport, CopyError> {
    let mut heads = heads(from).await.map_err(CopyError::From)?;
    let there = self::heads(to).await.map_err(CopyError::To)?;
    compare(from, &heads, &there).await?;
    let mut writer = Writer {
        from,
        to,
        go_on,
        report: CopyReport::default(),
        all_events: heads.values().map(|head| head.sequence).sum(),
        batch: Vec::new(),
        batch_bytes: 0,
        pieces: Vec::new(),
        pieces_bytes: 0,
        stored: HashSet::new(),
        to_erase: Vec::new(),
        position: 0,
    };
    for (stream, head) in &mut heads {
        let after = there.get(stream).copied().unwrap_or(Version::START);
        if after != *head {
            *head = writer.stream(stream, after, *head).await?;
        }
    }
    writer.write().await?;
    if writer.report.streams > 0 {
        let position = writer.position;
        to.durable(position).await.map_err(CopyError::To)?;
        for (stream, said_at) in std::mem::take(&mut writer.to_erase) {
            let erased = to.erase_forgotten(&stream, said_at).await;
            erased.map_err(CopyError::To)?;
        }
    }
    // Also if all was there: a copy that was interrupted while it was read again has not been.
    writer.verify(&heads).await?;
    let mut report = writer.report;
    let now = self::heads(from).await.map_err(CopyError::From)?;
    let moved = now.iter().filter(|(id, head)| heads.get(*id) != Some(head));
    report.went_on = moved.map(|(id, _)| id.clone()).collect();
    report.heads = heads;
    if report.differences.is_empty() && report.went_on.is_empty() && !is_live {
        let runs = report.heads.keys().filter(|s| s.kind() == StreamKind::Run);
        let runs: Vec<StreamId> = runs.cloned().collect();
        for some in runs.chunks(STREAMS_AT_ONCE) {
            to.let_go_on(some).await.map_err(CopyError::To)?;
        }
    }
    Ok(report)
}

/// All streams that are copied, with their heads.
async fn heads(store: &dyn Store) -> Result<BTreeMap<StreamId, Version>, StoreError> {
    let mut all = BTreeMap::new();
    for kind in [StreamKind::Run, StreamKind::Memory] {
        let mut after: Option<StreamId> = None;
        loop {
            let page = store.streams(kind, after.as_ref(), STREAMS_AT_ONCE).await?;
            let Some((last, _)) = page.last() else {
                break;
            };
            after = Some(last.clone());
            all.extend(page);
        }
    }
    Ok(all)
}

/// Fails if what is there is not the beginning of what is here.
async fn compare(
    from: &dyn Store,
    here: &BTreeMap<StreamId, Version>,
    there: &BTreeMap<StreamId, Version>,
) -> Result<(), CopyError> {
    for (stream, other) in there {
        let not_a_copy = |why: String| CopyError::NotACopy {
            stream: stream.clone(),
            why,
        };
        let Some(head) = here.get(stream) else {
            return Err(not_a_copy("the store to copy from has none".into()));
        };
        if head == other {
            continue;
        }
        if other.sequence > head.sequence {
            return Err(not_a_copy(format!(
                "goes on after event {}, the last one of the store to copy from",
                head.sequence
            )));
        }
        let read = from.read(stream, other.sequence, 1).await;
        let read = read.map_err(CopyError::From)?;
        if read.first().map(|recorded| recorded.hash) != Some(other.hash) {
            let up_to = other.sequence;
            return Err(not_a_copy(format!(
                "its history up to event {up_to} is another"
            )));
        }
    }
    Ok(())
}

/// Of a stream that is here up to this event.
fn nothing(stream: &StreamId, after: Version) -> Foreign {
    Foreign {
        stream: stream.clone(),
        original: stream.clone(),
        after,
        events: Vec::new(),
        head: after,
    }
}

struct Writer<'a> {
    from: &'a dyn Store,
    to: &'a dyn Store,
    go_on: &'a mut dyn FnMut(Copying) -> bool,
    report: CopyReport,
    all_events: u64,
    batch: Vec<Foreign>,
    batch_bytes: usize,
    pieces: Vec<Piece>,
    pieces_bytes: usize,
    /// Pieces that were written.
    stored: HashSet<Hash>,
    /// Events that say what the other store has to forget.
    to_erase: Vec<(StreamId, u64)>,
    position: u64,
}

impl Writer<'_> {
    fn check(&mut self, verified: u64) -> Result<(), CopyError> {
        let copying = Copying {
            bytes: self.report.bytes,
            events: self.report.events,
            verified,
            all_events: self.all_events,
        };
        match (self.go_on)(copying) {
            true => Ok(()),
            false => Err(CopyError::Stopped),
        }
    }

    /// Copies a stream, from the event after this one on. How far: if something of it is forgotten
    /// meanwhile, up to the event that says so, because its pieces cannot be copied any more.
    async fn stream(
        &mut self,
        stream: &StreamId,
        after: Version,
        mut head: Version,
    ) -> Result<Version, CopyError> {
        self.report.streams += 1;
        let before = head;
        let forgotten = forgotten_in(self.from, stream, head).await;
        let mut forgotten = forgotten.map_err(CopyError::From)?;
        let mut at = after;
        let mut part = nothing(stream, after);
        while at.sequence < head.sequence {
            let left = usize::try_from(head.sequence - at.sequence).unwrap_or(usize::MAX);
            let limit = left.min(PAGE_EVENTS);
            let page = self.from.events(stream, at.sequence + 1, limit).await;
            let page = page.map_err(CopyError::From)?;
            if page.is_empty() {
                let expected = format!("event {}", at.sequence + 1);
                let missing = StoreError::damaged(stream.to_string(), expected, "none");
                return Err(CopyError::From(missing));
            }
            for event in page {
                if !forgotten.contains(&event.sequence) {
                    let stored = |hash: &Hash| self.stored.contains(hash);
                    let needed = match pieces::of_event(self.from, &event, stored).await {
                        Ok(needed) => needed,
                        Err(missing) => {
                            (head, forgotten) = self.by_now(stream).await?;
                            let is_forgotten = forgotten.contains(&event.sequence);
                            let missing = CopyError::From(missing);
                            is_forgotten.then(Vec::new).ok_or(missing)?
                        }
                    };
                    for piece in needed {
                        self.piece(piece).await?;
                    }
                }
                // An earlier part of the copy may have brought what is forgotten by now.
                let is_since = event.sequence > before.sequence;
                if forgotten_by(&event).any(|sequence| is_since || sequence <= after.sequence) {
                    self.to_erase.push((stream.clone(), event.sequence));
                }
                let bytes = event.encode();
                at = at.after(&bytes);
                self.batch_bytes += bytes.len();
                self.report.bytes += bytes.len() as u64;
                self.report.events += 1;
                part.events.push(bytes);
                part.head = at;
                if self.batch_bytes >= BATCH_BYTES {
                    let next = nothing(stream, at);
                    self.batch.push(std::mem::replace(&mut part, next));
                    self.write().await?;
                }
            }
        }
        if at.hash != head.hash {
            let (expected, found) = (head.hash.to_string(), at.hash.to_string());
            let damaged = StoreError::damaged(stream.to_string(), expected, found);
            return Err(CopyError::From(damaged));
        }
        if !part.events.is_empty() {
            self.batch.push(part);
        }
        if self.batch.len() >= BATCH_STREAMS {
            self.write().await?;
        }
        Ok(head)
    }

    /// How far a stream is by now, and what of it is forgotten.
    async fn by_now(&self, stream: &StreamId) -> Result<(Version, HashSet<u64>), CopyError> {
        let head = self.from.head(stream).await.map_err(CopyError::From)?;
        let not_found = || StoreError::NotFound {
            stream: stream.clone(),
        };
        let head = head.ok_or_else(|| CopyError::From(not_found()))?;
        let forgotten = forgotten_in(self.from, stream, head).await;
        Ok((head, forgotten.map_err(CopyError::From)?))
    }

    async fn piece(&mut self, piece: Piece) -> Result<(), CopyError> {
        self.stored.insert(piece.hash);
        self.pieces_bytes += piece.bytes.len();
        self.report.pieces += 1;
        self.report.bytes += piece.bytes.len() as u64;
        self.pieces.push(piece);
        if self.pieces_bytes < PIECES_BYTES {
            return Ok(());
        }
        // Before the events that need them.
        self.pieces_bytes = 0;
        let pieces = std::mem::take(&mut self.pieces);
        let taken = self.to.take_over(pieces, Vec::new()).await;
        self.position = taken.map_err(CopyError::To)?;
        self.check(0)
    }

    async fn write(&mut self) -> Result<(), CopyError> {
        self.check(0)?;
        if self.batch.is_empty() {
            return Ok(());
        }
        (self.batch_bytes, self.pieces_bytes) = (0, 0);
        let (pieces, batch) = (
            std::mem::take(&mut self.pieces),
            std::mem::take(&mut self.batch),
        );
        let taken = self.to.take_over(pieces, batch).await;
        self.position = taken.map_err(CopyError::To)?;
        Ok(())
    }

    /// Reads all streams of the copy, and compares what their hashes come to.
    async fn verify(&mut self, heads: &BTreeMap<StreamId, Version>) -> Result<(), CopyError> {
        let mut verified = 0;
        for (stream, head) in heads {
            let found = match self.chain(stream, &mut verified).await {
                Ok(at) if at == *head => continue,
                Ok(at) => format!("event {} with hash {}", at.sequence, at.hash),
                Err(CopyError::To(e @ StoreError::Damaged { .. })) => e.to_string(),
                Err(e) => return Err(e),
            };
            self.report.differences.push(Difference {
                stream: stream.clone(),
                expected: *head,
                found,
            });
        }
        Ok(())
    }

    async fn chain(&mut self, stream: &StreamId, verified: &mut u64) -> Result<Version, CopyError> {
        let mut at = Version::START;
        loop {
            let page = self.to.events(stream, at.sequence + 1, PAGE_EVENTS).await;
            let page = page.map_err(CopyError::To)?;
            if page.is_empty() {
                return Ok(at);
            }
            for event in &page {
                at = at.after(&event.encode());
            }
            *verified += page.len() as u64;
            self.check(*verified)?;
        }
    }
}
