//! Writing streams: what changed of each becomes the arrays of one statement.
//!
//! Invariant: a stream is written only if it is where it was thought to be, and then with everything
//! that follows from its events. What follows is the difference of two states, so that no table can
//! say something else than the state does.

use std::collections::HashSet;

use dalsegno_store::engine::{encode_state, status_number};
use dalsegno_store::payload::Piece;
use dalsegno_store::{Hash, StreamId, StreamKind, StreamState};
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::pool::Conn;

const SAVE: &str = include_str!("sql/save.sql");
const SAVE_ALL: &str = include_str!("sql/save_all.sql");

/// What is not known to come: a time after all others.
pub(crate) const NEVER_US: i64 = i64::MAX;

/// A time as the database has it. What is beyond its numbers is never.
pub(crate) fn db_us(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(NEVER_US)
}

/// A time that the database has.
pub(crate) fn us_of(us: i64) -> u64 {
    match us {
        NEVER_US => u64::MAX,
        us => u64::try_from(us).unwrap_or(0),
    }
}

/// The number of a kind of stream.
pub(crate) fn kind_number(kind: StreamKind) -> i16 {
    match kind {
        StreamKind::Run => 1,
        StreamKind::Memory => 2,
        StreamKind::Store => 3,
    }
}

/// A text that a column can hold: no text of PostgreSQL has the character 0.
pub(crate) fn db_text(text: &str) -> String {
    text.replace('\0', "")
}

/// An event as it is written.
#[derive(Clone, Debug)]
pub(crate) struct EventRow {
    pub sequence: u64,
    pub bytes: Vec<u8>,
    pub hash: Hash,
}

/// What becomes of the row that says when a run may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimChange {
    /// Nothing.
    Keep,
    /// The run is new.
    New {
        queue: String,
        priority: i32,
        ready_us: i64,
    },
    /// It may go on then, and is held until then if there is a token.
    Set {
        ready_us: i64,
        token: Option<i64>,
        holder: Option<String>,
    },
    /// It has ended.
    Gone,
}

/// What is to be written of one stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamSave {
    pub no: i64,
    pub stream: StreamId,
    /// As it is in the database.
    pub before: StreamState,
    /// The token in its row.
    pub token: u64,
    pub after: StreamState,
    /// The clock of the last event.
    pub clock: u64,
    pub events: Vec<EventRow>,
    pub claim: ClaimChange,
    /// As of [`crate::memory::Held`].
    pub news: bool,
}

impl StreamSave {
    /// The last event, by which it is known whether this was written.
    pub fn last(&self) -> Option<(i64, i64, Hash)> {
        let last = self.events.last()?;
        Some((self.no, last.sequence as i64, last.hash))
    }

    /// Whether a list shows it in another way now.
    fn relists(&self) -> bool {
        let shown = |state: &StreamState| (state.status, state.attention.is_some());
        self.stream.kind() == StreamKind::Run && shown(&self.before) != shown(&self.after)
            || self.is_new_run()
    }

    fn is_new_run(&self) -> bool {
        self.stream.kind() == StreamKind::Run && self.before.head.sequence == 0
    }

    fn is_plain(&self) -> bool {
        !self.relists()
            && self.before.timers == self.after.timers
            && self.claim == ClaimChange::Keep
    }
}

/// The arrays of the statement's longer form.
#[derive(Default)]
struct More<'a> {
    run: Vec<i64>,
    name: Vec<&'a str>,
    status: Vec<i16>,
    agent: Vec<String>,
    attention: Vec<bool>,
    changed_us: Vec<i64>,
    set: Vec<i64>,
    set_id: Vec<&'a [u8]>,
    set_due: Vec<i64>,
    gone: Vec<i64>,
    gone_id: Vec<&'a [u8]>,
    new: Vec<i64>,
    new_queue: Vec<String>,
    new_priority: Vec<i32>,
    new_agent: Vec<String>,
    new_ready: Vec<i64>,
    claim: Vec<i64>,
    claim_ready: Vec<i64>,
    claim_token: Vec<Option<i64>>,
    claim_holder: Vec<Option<&'a str>>,
    ended: Vec<i64>,
}

impl<'a> More<'a> {
    fn take(&mut self, save: &'a StreamSave) {
        let after = &save.after;
        let agent = || db_text(after.agent.as_deref().unwrap_or_default());
        if save.relists() {
            self.run.push(save.no);
            self.name.push(save.stream.name());
            let status = after.status.map_or(0, status_number);
            self.status.push(status as i16);
            self.agent.push(agent());
            self.attention.push(after.attention.is_some());
            self.changed_us.push(db_us(after.updated_us));
        }
        for (id, due) in &after.timers {
            if save.before.timers.get(id) != Some(due) {
                self.set.push(save.no);
                self.set_id.push(id.as_bytes());
                self.set_due.push(db_us(*due));
            }
        }
        for id in save.before.timers.keys() {
            if !after.timers.contains_key(id) {
                self.gone.push(save.no);
                self.gone_id.push(id.as_bytes());
            }
        }
        match &save.claim {
            ClaimChange::Keep => {}
            ClaimChange::New {
                queue,
                priority,
                ready_us,
            } => {
                self.new.push(save.no);
                self.new_queue.push(queue.clone());
                self.new_priority.push(*priority);
                self.new_agent.push(agent());
                self.new_ready.push(*ready_us);
            }
            ClaimChange::Set {
                ready_us,
                token,
                holder,
            } => {
                self.claim.push(save.no);
                self.claim_ready.push(*ready_us);
                self.claim_token.push(*token);
                self.claim_holder.push(holder.as_deref());
            }
            ClaimChange::Gone => self.ended.push(save.no),
        }
    }
}

/// Writes streams; the numbers of those that were where they were thought to be.
pub(crate) async fn save(
    conn: &mut Conn,
    saves: &[StreamSave],
    pieces: &[Piece],
    now_us: u64,
) -> Result<HashSet<i64>, Trouble> {
    let each = |of: fn(&StreamSave) -> u64| saves.iter().map(|s| of(s) as i64).collect::<Vec<_>>();
    let no: Vec<i64> = saves.iter().map(|save| save.no).collect();
    let expected = each(|save| save.before.head.sequence);
    let token = each(|save| save.token);
    let new_token = each(|save| save.after.last_token);
    let sequence = each(|save| save.after.head.sequence);
    let clock = each(|save| save.clock);
    let state: Vec<Vec<u8>> = saves.iter().map(|s| encode_state(&s.after)).collect();
    let events = || {
        saves
            .iter()
            .flat_map(|save| save.events.iter().map(move |event| (save.no, event)))
    };
    let of: Vec<i64> = events().map(|(no, _)| no).collect();
    let at: Vec<i64> = events().map(|(_, event)| event.sequence as i64).collect();
    let bytes: Vec<&[u8]> = events().map(|(_, event)| &event.bytes[..]).collect();
    let hash: Vec<&[u8]> = events().map(|(_, e)| &e.hash.as_bytes()[..]).collect();
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![
        &no, &expected, &token, &new_token, &sequence, &clock, &state, &of, &at, &bytes, &hash,
    ];
    if pieces.is_empty() && saves.iter().all(StreamSave::is_plain) {
        return Ok(numbers(&conn.query(SAVE, &params).await?));
    }
    let mut more = More::default();
    saves.iter().for_each(|save| more.take(save));
    // A piece may be in several payloads; the statement takes each once.
    let mut seen = HashSet::new();
    let once = pieces.iter().filter(|piece| seen.insert(piece.hash));
    let once: Vec<&Piece> = once.collect();
    let piece_hash: Vec<&[u8]> = once.iter().map(|p| &p.hash.as_bytes()[..]).collect();
    let piece_bytes: Vec<&[u8]> = once.iter().map(|p| &p.bytes[..]).collect();
    let now_us = db_us(now_us);
    let others: [&(dyn ToSql + Sync); 24] = [
        &piece_hash,
        &piece_bytes,
        &now_us,
        &more.run,
        &more.name,
        &more.status,
        &more.agent,
        &more.attention,
        &more.changed_us,
        &more.set,
        &more.set_id,
        &more.set_due,
        &more.gone,
        &more.gone_id,
        &more.new,
        &more.new_queue,
        &more.new_priority,
        &more.new_agent,
        &more.new_ready,
        &more.claim,
        &more.claim_ready,
        &more.claim_token,
        &more.claim_holder,
        &more.ended,
    ];
    params.extend(others);
    Ok(numbers(&conn.query(SAVE_ALL, &params).await?))
}

fn numbers(rows: &[tokio_postgres::Row]) -> HashSet<i64> {
    rows.iter().map(|row| row.get(0)).collect()
}
