//! Reading streams and payloads.
//!
//! Invariants: events are handed out only with a chain that fits; a hole or another event in its
//! place is an error that names it. A piece is handed out only under the hash that it was asked for.

use std::collections::HashMap;

use dalsegno_store::engine::damaged;
use dalsegno_store::payload::{self, AssembleError};
use dalsegno_store::{Body, Event, Hash, Payload, Recorded, StoreError, StreamId, Version};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::inner::Inner;
use crate::locked::read_state;
use crate::save::kind_number;

const EVENTS: &str = "SELECT e.sequence, e.bytes, e.hash
     FROM event e
     WHERE e.stream = (SELECT no FROM stream WHERE kind = $1 AND name = $2) AND e.sequence >= $3
     ORDER BY e.sequence LIMIT $4";
const STATE: &str = "SELECT state FROM stream WHERE kind = $1 AND name = $2";
pub(crate) const PIECES: &str = "SELECT hash, bytes FROM piece WHERE hash = ANY($1)";
/// So many pieces are asked for at once.
const PIECES_AT_ONCE: usize = 512;

impl Inner {
    /// The last event of a stream.
    pub async fn head(&self, stream: &StreamId) -> Result<Option<Version>, StoreError> {
        self.check_open()?;
        if let Some(held) = self.memory().held.get(stream) {
            return Ok(Some(held.state.head));
        }
        let kind = kind_number(stream.kind());
        let rows = self.rows(STATE, &[&kind, &stream.name()]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(read_state(stream, row.get(0))?.head))
    }

    /// Events of a stream from a sequence on, with the hashes of the chain.
    pub async fn read(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let from = from.max(1);
        // The one before, for the hash that the first one follows.
        let rows = self.event_rows(stream, from - 1, limit, 1).await?;
        let mut hash = Hash::ZERO;
        let mut next = from;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let stored = hash_of(stream, row.get(2))?;
            if row.get::<_, i64>(0) as u64 == from - 1 {
                hash = stored;
                continue;
            }
            let event = event_of(stream, next, row)?;
            hash = hash.chain(row.get(1));
            if hash != stored {
                let what = format!("event {next} of {stream}");
                return Err(damaged(what, hash.to_string(), stored.to_string()));
            }
            found.push(Recorded { event, hash });
            next += 1;
        }
        Ok(found)
    }

    /// The same without the chain.
    pub async fn events(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let from = from.max(1);
        let rows = self.event_rows(stream, from, limit, 0).await?;
        let numbered = rows.iter().zip(from..);
        numbered
            .map(|(row, sequence)| event_of(stream, sequence, row))
            .collect()
    }

    async fn event_rows(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
        more: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let head = {
            let memory = self.memory();
            memory.held.get(stream).map(|held| held.state.head)
        };
        // What is held is known without asking.
        let beyond = head.is_some_and(|head| from > head.sequence);
        let (Ok(first), false) = (i64::try_from(from), limit == 0 || beyond) else {
            return Ok(Vec::new());
        };
        self.flushed().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let limit = limit.saturating_add(more);
        let kind = kind_number(stream.kind());
        let params: [&(dyn ToSql + Sync); 4] = [&kind, &stream.name(), &first, &limit];
        let rows = self.rows(EVENTS, &params).await?;
        // Without the one before, everything is one too many.
        let whole = match rows.first().map(|row| row.get::<_, i64>(0)) {
            Some(at) if more > 0 && at != first => rows.len().min(limit as usize - 1),
            _ => rows.len(),
        };
        Ok(rows.into_iter().take(whole).collect())
    }

    /// The bytes of a payload.
    pub async fn payload(&self, payload: &Payload) -> Result<Vec<u8>, StoreError> {
        let (root, bytes) = match &payload.body {
            Body::Inline(bytes) => return Ok(bytes.clone()),
            Body::Stored { root, bytes } => (root, *bytes),
        };
        self.flushed().await?;
        let pieces = self.pieces_under(root, bytes).await?;
        let limit = self.options.limits.payload_bytes.max(bytes);
        let fetch = |hash: &Hash| pieces.get(hash).ok_or(*hash);
        payload::assemble(root, bytes, limit, fetch).map_err(|e| {
            let found = match e {
                AssembleError::Fetch { error, .. } => format!("no piece {error}"),
                other => other.to_string(),
            };
            damaged(format!("the payload {root}"), "its pieces", found)
        })
    }

    /// All pieces under a root, level by level.
    pub async fn pieces_under(
        &self,
        root: &Hash,
        bytes: u64,
    ) -> Result<HashMap<Hash, Vec<u8>>, StoreError> {
        let mut found: HashMap<Hash, Vec<u8>> = HashMap::new();
        let mut level = vec![*root];
        let mut depth = 0;
        while !level.is_empty() && depth <= payload::MAX_DEPTH {
            depth += 1;
            let mut below = Vec::new();
            for some in level.chunks(PIECES_AT_ONCE) {
                let hashes: Vec<&[u8]> = some.iter().map(|h| &h.as_bytes()[..]).collect();
                for row in self.rows(PIECES, &[&hashes]).await? {
                    let hash = hash_of(&"a payload", row.get(0))?;
                    let piece: Vec<u8> = row.get(1);
                    let children = payload::children(&piece).unwrap_or_default();
                    // What claims to be longer than the payload is none of it.
                    let fits = children.into_iter().filter(|child| child.len <= bytes);
                    let new = fits.filter(|child| !found.contains_key(&child.hash));
                    below.extend(new.map(|child| child.hash));
                    found.insert(hash, piece);
                }
            }
            below.sort_unstable();
            below.dedup();
            level = below;
        }
        Ok(found)
    }
}

fn event_of(stream: &StreamId, sequence: u64, row: &Row) -> Result<Event, StoreError> {
    let what = || format!("event {sequence} of {stream}");
    let event = Event::decode(row.get(1));
    let event = event.map_err(|e| damaged(what(), "an event", e.to_string()))?;
    if event.stream != *stream || event.sequence != sequence {
        let found = format!("event {} of {}", event.sequence, event.stream);
        return Err(damaged(what(), "that event", found));
    }
    Ok(event)
}

fn hash_of(of: &dyn std::fmt::Display, bytes: &[u8]) -> Result<Hash, StoreError> {
    match bytes.try_into() {
        Ok(bytes) => Ok(Hash::from_bytes(bytes)),
        Err(_) => Err(damaged(
            format!("a row of {of}"),
            "a hash of 32 bytes",
            format!("{} bytes", bytes.len()),
        )),
    }
}
