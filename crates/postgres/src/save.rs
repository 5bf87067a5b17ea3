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

/// Which streams were written.
macro_rules! some {
    ($file:literal) => {
        concat!(include_str!($file), "SELECT no FROM moved")
    };
}
/// All of them, or the transaction is broken off.
macro_rules! all {
    ($file:literal) => {
        concat!(
            include_str!($file),
            "SELECT 1 / (CASE WHEN count(*) = cardinality($1::bigint[]) THEN 1 ELSE 0 END) FROM moved"
        )
    };
}
const SAVE_ONE: &str = include_str!("sql/save_one.sql");
const SAVE: &str = some!("sql/save.sql");
const SAVE_MORE: &str = some!("sql/save_all.sql");
const SAVE_WHOLLY: &str = all!("sql/save.sql");
const SAVE_MORE_WHOLLY: &str = all!("sql/save_all.sql");

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

/// What the statement's longer form takes beside it.
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

    fn params(&self) -> [&(dyn ToSql + Sync); 21] {
        [
            &self.run,
            &self.name,
            &self.status,
            &self.agent,
            &self.attention,
            &self.changed_us,
            &self.set,
            &self.set_id,
            &self.set_due,
            &self.gone,
            &self.gone_id,
            &self.new,
            &self.new_queue,
            &self.new_priority,
            &self.new_agent,
            &self.new_ready,
            &self.claim,
            &self.claim_ready,
            &self.claim_token,
            &self.claim_holder,
            &self.ended,
        ]
    }
}

/// The statements by which [`Writing::sql`] writes.
pub(crate) const SAVES: [&str; 3] = [SAVE_ONE, SAVE, SAVE_MORE];

/// The parameters of the statement that writes streams.
pub(crate) struct Writing<'a> {
    no: Vec<i64>,
    expected: Vec<i64>,
    token: Vec<i64>,
    new_token: Vec<i64>,
    sequence: Vec<i64>,
    clock: Vec<i64>,
    state: Vec<Vec<u8>>,
    of: Vec<i64>,
    at: Vec<i64>,
    bytes: Vec<&'a [u8]>,
    hash: Vec<&'a [u8]>,
    piece_hash: Vec<&'a [u8]>,
    piece_bytes: Vec<&'a [u8]>,
    now_us: i64,
    /// None if only events are added.
    more: Option<More<'a>>,
}

impl<'a> Writing<'a> {
    pub fn new(saves: &'a [StreamSave], pieces: &'a [Piece], now_us: u64) -> Writing<'a> {
        let each = |of: fn(&StreamSave) -> u64| saves.iter().map(|s| of(s) as i64).collect();
        let events = || {
            let of_one = |save: &'a StreamSave| save.events.iter().map(|event| (save.no, event));
            saves.iter().flat_map(of_one)
        };
        // A piece may be in several payloads; the statement takes each once.
        let mut seen = HashSet::new();
        let once = pieces.iter().filter(|piece| seen.insert(piece.hash));
        let once: Vec<&Piece> = once.collect();
        let is_plain = pieces.is_empty() && saves.iter().all(StreamSave::is_plain);
        let more = (!is_plain).then(|| {
            let mut more = More::default();
            saves.iter().for_each(|save| more.take(save));
            more
        });
        Writing {
            no: saves.iter().map(|save| save.no).collect(),
            expected: each(|save| save.before.head.sequence),
            token: each(|save| save.token),
            new_token: each(|save| save.after.last_token),
            sequence: each(|save| save.after.head.sequence),
            clock: each(|save| save.clock),
            state: saves.iter().map(|s| encode_state(&s.after)).collect(),
            of: events().map(|(no, _)| no).collect(),
            at: events().map(|(_, event)| event.sequence as i64).collect(),
            bytes: events().map(|(_, event)| &event.bytes[..]).collect(),
            hash: events().map(|(_, e)| &e.hash.as_bytes()[..]).collect(),
            piece_hash: once.iter().map(|p| &p.hash.as_bytes()[..]).collect(),
            piece_bytes: once.iter().map(|p| &p.bytes[..]).collect(),
            now_us: db_us(now_us),
            more,
        }
    }

    /// The statement that answers which streams were where they were thought to be.
    pub fn sql(&self) -> &'static str {
        match (&self.more, self.no.len()) {
            (None, 1) => SAVE_ONE,
            (None, _) => SAVE,
            (Some(_), _) => SAVE_MORE,
        }
    }

    /// What it takes.
    pub fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let (None, [no]) = (&self.more, &self.no[..]) else {
            return self.params_of_all();
        };
        vec![
            no,
            &self.expected[0],
            &self.token[0],
            &self.new_token[0],
            &self.sequence[0],
            &self.clock[0],
            &self.state[0],
            &self.at,
            &self.bytes,
            &self.hash,
        ]
    }

    /// The statement that fails if one was not.
    pub fn sql_of_all(&self) -> &'static str {
        match self.more {
            None => SAVE_WHOLLY,
            Some(_) => SAVE_MORE_WHOLLY,
        }
    }

    /// What it takes.
    pub fn params_of_all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &self.no,
            &self.expected,
            &self.token,
            &self.new_token,
            &self.sequence,
            &self.clock,
            &self.state,
            &self.of,
            &self.at,
            &self.bytes,
            &self.hash,
        ];
        if let Some(more) = &self.more {
            let pieces: [&(dyn ToSql + Sync); 3] =
                [&self.piece_hash, &self.piece_bytes, &self.now_us];
            params.extend(pieces);
            params.extend(more.params());
        }
        params
    }
}

/// The streams that a statement has written.
pub(crate) fn numbers(rows: &[tokio_postgres::Row]) -> HashSet<i64> {
    rows.iter().map(|row| row.get(0)).collect()
}
