//! A transaction over streams that are locked: read, judge, write, commit.
//!
//! While a run is held under a lease that lives, only its holder's handle gives places in its
//! stream: the holder answers appends before they are sent, and its answers name places. So what
//! others append to such a run becomes a *letter* to it in the same transaction, and an event when
//! the holder next takes letters. Their append is as durable and as whole as any; only the place is
//! given later.
//!
//! Invariants: streams are locked in the order of their names. A run that this handle holds is judged
//! by what it keeps in memory, and its queue is written in front, or nothing of it is. A commit
//! whose answer was lost is looked up by the hashes of what it would have written.

use std::collections::{BTreeMap, HashMap};

use dalsegno_store::engine::{self, Judge, Payloads, decode_state};
use dalsegno_store::payload::Piece;
use dalsegno_store::{
    Append, Event, Lease, StoreError, StreamId, StreamKind, StreamState, Version,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::Inner;
use crate::pool::Lent;
use crate::save::{ClaimChange, EventRow, StreamSave, kind_number, save, us_of};

const LOCK: &str = include_str!("sql/lock.sql");
const HOLDERS: &str = include_str!("sql/holders.sql");
const NEW_STREAM: &str = "INSERT INTO stream (kind, name, sequence, clock, token, state)
     VALUES ($1, $2, 0, 0, 0, '') ON CONFLICT (kind, name) DO NOTHING RETURNING no";
const NEW_LETTER: &str = "INSERT INTO letter (sender, number, kind, name, form, bytes)
     VALUES ($1, $2, $3, $4, $5, $6)";
const TAKE_LETTER: &str = "DELETE FROM letter WHERE sender = $1 AND number = $2";
const SET_ASIDE: &str = "UPDATE letter SET bad = $3 WHERE sender = $1 AND number = $2";
const EVENT_HASH: &str = "SELECT hash FROM event WHERE stream = $1 AND sequence = $2";

/// The form of a letter's bytes that are an event's, of one who does not hold the run.
pub(crate) const EVENT_FORM: i16 = 2;
/// The form of a letter's bytes that are a letter's.
pub(crate) const LETTER_FORM: i16 = 1;

/// A stream as a transaction has it.
#[derive(Debug)]
pub(crate) struct Locked {
    no: Option<i64>,
    token: u64,
    /// As it is in the database.
    before: StreamState,
    /// With what this transaction adds.
    pub draft: StreamState,
    /// Nothing that was found is there, or it has ended: judged when something is to be added.
    exists: bool,
    clock: u64,
    queued: Vec<EventRow>,
    added: Vec<EventRow>,
    pub claim: ClaimChange,
    /// The lease that is live, and the handle that has it.
    pub holder: Option<(Lease, String)>,
    /// This handle holds it, whether the time is over or not.
    is_ours: bool,
    /// As of [`crate::memory::Held`].
    pub news: bool,
    has_claim: bool,
}

/// A letter that a transaction writes.
#[derive(Debug)]
struct Said {
    to: StreamId,
    number: u64,
    bytes: Vec<u8>,
}

/// A transaction.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    inner: &'a Inner,
    lent: Lent,
    pub streams: BTreeMap<StreamId, Locked>,
    /// The time of leases.
    pub now_us: i64,
    judge: Judge,
    pieces: Vec<Piece>,
    said: Vec<Said>,
    taken: Vec<(String, i64)>,
    aside: Vec<(String, i64, String)>,
}

impl<'a> Tx<'a> {
    /// Locks streams. Those that this handle holds must be busy for the caller.
    pub async fn begin(
        inner: &'a Inner,
        lent: Lent,
        streams: &[StreamId],
    ) -> Result<Tx<'a>, Trouble> {
        lent.conn.say("BEGIN").await?;
        Tx::inside(inner, lent, streams).await
    }

    /// The same in a transaction that has begun.
    pub async fn inside(
        inner: &'a Inner,
        mut lent: Lent,
        streams: &[StreamId],
    ) -> Result<Tx<'a>, Trouble> {
        let kinds: Vec<i16> = streams.iter().map(|s| kind_number(s.kind())).collect();
        let names: Vec<&str> = streams.iter().map(StreamId::name).collect();
        let clock = inner.options.lease_now_us();
        let rows = lent.conn.query(LOCK, &[&kinds, &names]).await?;
        let holders: [&(dyn ToSql + Sync); 3] = [&kinds, &names, &clock];
        let holders = lent.conn.query(HOLDERS, &holders).await?;
        let now_us = holders.first().map_or(0, |row| row.get::<_, i64>(0));
        let event_now_us = inner.options.now_us();
        let mut tx = Tx {
            inner,
            lent,
            streams: BTreeMap::new(),
            now_us,
            judge: Judge::new(0, event_now_us, &inner.options.limits),
            pieces: Vec::new(),
            said: Vec::new(),
            taken: Vec::new(),
            aside: Vec::new(),
        };
        tx.read(streams, &rows, &holders)?;
        Ok(tx)
    }

    fn read(&mut self, streams: &[StreamId], rows: &[Row], holders: &[Row]) -> Result<(), Trouble> {
        let by_name: HashMap<(i16, &str), &Row> = rows
            .iter()
            .map(|row| ((row.get(0), row.get(1)), row))
            .collect();
        let claims: HashMap<i64, &Row> = holders
            .iter()
            .filter_map(|row| Some((row.get::<_, Option<i64>>(1)?, row)))
            .collect();
        let mut memory = self.inner.memory();
        self.judge.clock = memory.clock;
        for stream in streams {
            let row = by_name.get(&(kind_number(stream.kind()), stream.name()));
            let mut locked = match row {
                None => Locked::new(self.judge.now_us),
                Some(row) => Locked::read(stream, row)?,
            };
            self.judge.clock = self.judge.clock.max(locked.clock);
            if let Some(row) = locked.no.and_then(|no| claims.get(&no)) {
                locked.has_claim = true;
                locked.holder = holder_of(row, &locked.before, self.now_us);
            }
            if let Some(held) = memory.held.get(stream) {
                let same = Some(held.no) == locked.no
                    && held.token == locked.token
                    && held.saved.head == locked.before.head;
                if !same {
                    // Somebody else has written: the lease is worth nothing any more.
                    let current = locked.token;
                    memory.lose(stream, &[], current);
                } else {
                    locked.is_ours = true;
                    locked.news = held.news;
                    locked.draft = held.state.clone();
                    locked.clock = held.clock;
                    locked.queued.clone_from(&held.queue.events);
                    self.pieces.extend(held.queue.pieces.iter().cloned());
                    self.judge.clock = self.judge.clock.max(held.clock);
                }
            }
            self.streams.insert(stream.clone(), locked);
        }
        Ok(())
    }

    /// Adds a part of an append, and the pieces of its payloads.
    pub fn append(
        &mut self,
        mut append: Append,
        payloads: Vec<Payloads>,
    ) -> Result<(), StoreError> {
        let inner = self.inner;
        if let Some(fence) = inner.memory().fence(&append.stream, append.token) {
            return Err(fence.error());
        }
        let stream = append.stream.clone();
        let Some(locked) = self.streams.get_mut(&stream) else {
            return Err(StoreError::NotFound { stream });
        };
        let found = locked.exists.then_some(&locked.draft);
        let mut draft = engine::draft(&append, found, self.judge.now_us)?;
        let before = self.judge.placed.len();
        let others = locked.held_by_another(inner, append.token);
        let head = draft.head;
        let taken = self
            .judge
            .take(&mut append, &mut draft, &mut payloads.into_iter());
        if let Err(e) = taken {
            self.judge.placed.truncate(before);
            return Err(e);
        }
        let placed: Vec<engine::Placed> = self.judge.placed.drain(before..).collect();
        if let Some(lease) = others.filter(|_| !placed.is_empty()) {
            if append.expected.is_some() {
                // Nobody but the holder knows where the stream is.
                return Err(StoreError::Held { stream, lease });
            }
            debug_assert_eq!(head, locked.draft.head);
            for placed in placed {
                self.said.push(Said {
                    to: stream.clone(),
                    number: inner.next_letter(),
                    bytes: placed.event.encode(),
                });
            }
            return Ok(());
        }
        let events = placed.iter().map(|placed| &placed.event);
        locked.arrives(&stream, events, self.now_us);
        locked.exists = locked.exists || !placed.is_empty();
        if !placed.is_empty() {
            locked.news = append.token.is_none();
        }
        locked.draft = draft;
        if !placed.is_empty() {
            locked.clock = self.judge.clock;
        }
        locked.added.extend(placed.into_iter().map(EventRow::from));
        Ok(())
    }

    /// The rows of a statement inside the transaction.
    pub async fn query(
        &mut self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        self.lent.conn.query(sql, params).await
    }

    /// How many rows a statement inside the transaction changed.
    pub async fn execute(
        &mut self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Trouble> {
        self.lent.conn.execute(sql, params).await
    }

    /// Pieces that the events refer to.
    pub fn store(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        self.pieces.extend(pieces);
    }

    /// A letter that is an event now, or that was refused.
    pub fn take_letter(&mut self, sender: &str, number: i64) {
        self.taken.push((sender.to_owned(), number));
    }

    /// A letter that cannot be read.
    pub fn set_aside(&mut self, sender: &str, number: i64, why: &str) {
        self.aside.push((sender.to_owned(), number, why.to_owned()));
    }

    /// Where each of the streams is now.
    pub fn head(&self, stream: &StreamId) -> Version {
        let locked = self.streams.get(stream);
        locked.map_or(Version::START, |locked| locked.draft.head)
    }

    /// Whether there is nothing to be written.
    pub fn is_empty(&self) -> bool {
        let unchanged = |l: &Locked| l.added.is_empty() && l.claim == ClaimChange::Keep;
        self.streams.values().all(unchanged)
            && self.said.is_empty()
            && self.taken.is_empty()
            && self.aside.is_empty()
    }

    /// Whether others have a reason to look.
    fn concerns_others(&self) -> bool {
        let others = |locked: &Locked| !locked.added.is_empty() && !locked.is_ours;
        let free = |l: &Locked| matches!(l.claim, ClaimChange::Set { token: None, .. });
        !self.said.is_empty() || self.streams.values().any(|l| others(l) || free(l))
    }

    /// Undoes it, and gives the connection back.
    pub async fn leave(self) -> Result<(), Trouble> {
        self.lent.conn.say("ROLLBACK").await?;
        self.inner.pool.give_back(self.lent);
        Ok(())
    }

    /// Writes it all. What this handle holds is in its memory as it is in the database then.
    pub async fn commit(mut self) -> Result<Committed, Trouble> {
        let concerns_others = self.concerns_others();
        for (stream, locked) in &mut self.streams {
            if locked.no.is_none() && !locked.added.is_empty() {
                let kind = kind_number(stream.kind());
                let name = stream.name();
                let rows = self.lent.conn.query(NEW_STREAM, &[&kind, &name]).await?;
                // Somebody else made it since: it has to be read.
                let row = rows.first().ok_or(Trouble::Again)?;
                locked.no = Some(row.get(0));
            }
        }
        let saves: Vec<StreamSave> = self
            .streams
            .iter_mut()
            .filter_map(|(stream, locked)| locked.save(stream))
            .collect();
        if !saves.is_empty() {
            let conn = &mut self.lent.conn;
            let moved = save(conn, &saves, &self.pieces, self.judge.now_us).await?;
            if moved.len() != saves.len() {
                return Err(Trouble::Again);
            }
        }
        self.write_letters().await?;
        if let Err(trouble) = self.lent.conn.say("COMMIT").await {
            let last: Vec<_> = saves.iter().filter_map(StreamSave::last).collect();
            match (trouble, last.first()) {
                (Trouble::Gone(why), Some(last)) => {
                    drop(self.lent);
                    if !self.inner.was_committed(*last, &why).await? {
                        return Err(Trouble::Again);
                    }
                }
                (Trouble::Gone(why), None) => {
                    return Err(Trouble::Store(StoreError::Backend(format!(
                        "the connection to PostgreSQL was lost ({why}), and it is not known \
                         whether the letter was sent: see what became of its run"
                    ))));
                }
                (other, _) => return Err(other),
            }
        } else {
            self.inner.pool.give_back(self.lent);
        }
        let pieces = self.pieces.iter().map(|piece| piece.hash);
        self.inner.know(pieces);
        if concerns_others {
            self.inner.tell_others();
        }
        Ok(Committed {
            saves,
            clock: self.judge.clock,
        })
    }

    async fn write_letters(&mut self) -> Result<(), Trouble> {
        let conn = &mut self.lent.conn;
        for said in &self.said {
            let number = said.number as i64;
            let kind = kind_number(said.to.kind());
            let name = said.to.name();
            let sender = &self.inner.handle;
            let params: [&(dyn ToSql + Sync); 6] =
                [sender, &number, &kind, &name, &EVENT_FORM, &said.bytes];
            conn.execute(NEW_LETTER, &params).await?;
        }
        for (sender, number) in &self.taken {
            conn.execute(TAKE_LETTER, &[sender, number]).await?;
        }
        for (sender, number, why) in &self.aside {
            conn.execute(SET_ASIDE, &[sender, number, why]).await?;
        }
        Ok(())
    }
}

/// What a transaction wrote.
#[derive(Debug)]
pub(crate) struct Committed {
    pub saves: Vec<StreamSave>,
    pub clock: u64,
}

impl Locked {
    fn new(now_us: u64) -> Locked {
        let nothing = Append::to(StreamId::store(), Vec::new());
        // A stream that is not there takes everything.
        let state = engine::draft(&nothing, None, now_us);
        let state = state.unwrap_or_else(|_| unreachable!("nothing was found that could refuse"));
        Locked {
            no: None,
            token: 0,
            before: state.clone(),
            draft: state,
            exists: false,
            clock: 0,
            queued: Vec::new(),
            added: Vec::new(),
            claim: ClaimChange::Keep,
            holder: None,
            is_ours: false,
            news: false,
            has_claim: false,
        }
    }

    fn read(stream: &StreamId, row: &Row) -> Result<Locked, Trouble> {
        let state = read_state(stream, row.get(6))?;
        Ok(Locked {
            no: Some(row.get(2)),
            token: row.get::<_, i64>(5) as u64,
            before: state.clone(),
            draft: state,
            exists: true,
            clock: row.get::<_, i64>(4) as u64,
            queued: Vec::new(),
            added: Vec::new(),
            claim: ClaimChange::Keep,
            holder: None,
            is_ours: false,
            news: false,
            has_claim: false,
        })
    }

    /// Whether there is such a stream.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// The lease of another handle that is live, unless the caller has its token.
    fn held_by_another(&self, inner: &Inner, token: Option<u64>) -> Option<Lease> {
        let (lease, handle) = self.holder.as_ref()?;
        (*handle != inner.handle && token != Some(lease.token)).then(|| lease.clone())
    }

    /// Events come that may let the run go on.
    fn arrives<'e>(
        &mut self,
        stream: &StreamId,
        mut events: impl Iterator<Item = &'e Event>,
        now_us: i64,
    ) {
        if stream.kind() != StreamKind::Run {
            return;
        }
        let Some(first) = events.next() else {
            return;
        };
        if self.no.is_none() && self.claim == ClaimChange::Keep {
            let (queue, priority) = engine::queue_of(&first.fields);
            self.claim = ClaimChange::New {
                queue: crate::save::db_text(queue),
                priority: i32::try_from(priority).unwrap_or(i32::MAX),
                ready_us: now_us,
            };
        } else if self.holder.is_none() && self.has_claim && self.claim == ClaimChange::Keep {
            self.claim = ClaimChange::Set {
                ready_us: now_us,
                token: None,
                holder: None,
            };
        }
    }

    /// What is to be written of it, if anything is.
    fn save(&mut self, stream: &StreamId) -> Option<StreamSave> {
        if self.added.is_empty() && self.claim == ClaimChange::Keep {
            return None;
        }
        let no = self.no?;
        let mut claim = std::mem::replace(&mut self.claim, ClaimChange::Keep);
        if self.draft.has_ended() {
            claim = match claim {
                ClaimChange::New { .. } => ClaimChange::Keep,
                _ => ClaimChange::Gone,
            };
        } else if self.draft.attention.is_some() {
            // Only a person can move it on; whoever holds it goes on holding it.
            match &mut claim {
                ClaimChange::New { ready_us, .. }
                | ClaimChange::Set {
                    ready_us,
                    token: None,
                    ..
                } => *ready_us = crate::save::NEVER_US,
                _ => {}
            }
        }
        let mut events = std::mem::take(&mut self.queued);
        events.append(&mut self.added);
        Some(StreamSave {
            no,
            stream: stream.clone(),
            before: self.before.clone(),
            token: self.token,
            after: self.draft.clone(),
            clock: self.clock,
            events,
            claim,
            news: self.news,
        })
    }
}

impl From<engine::Placed> for EventRow {
    fn from(placed: engine::Placed) -> EventRow {
        EventRow {
            sequence: placed.event.sequence,
            bytes: placed.bytes,
            hash: placed.hash,
        }
    }
}

/// The state in a row.
pub(crate) fn read_state(stream: &StreamId, bytes: &[u8]) -> Result<StreamState, StoreError> {
    decode_state(bytes)
        .map_err(|e| engine::damaged(format!("the row of {stream}"), "a state", e.to_string()))
}

fn holder_of(row: &Row, state: &StreamState, now_us: i64) -> Option<(Lease, String)> {
    let token = row.get::<_, Option<i64>>(2)? as u64;
    let handle: Option<String> = row.get(3);
    let ready_us: i64 = row.get(4);
    let lease = live_lease(state, Some(token), ready_us, now_us)?;
    Some((lease, handle.unwrap_or_default()))
}

/// The lease of a run, if it is held now.
pub(crate) fn live_lease(
    state: &StreamState,
    token: Option<u64>,
    ready_us: i64,
    now_us: i64,
) -> Option<Lease> {
    let lease = state.lease.as_ref()?;
    (token == Some(lease.token) && ready_us > now_us).then(|| Lease {
        until_us: us_of(ready_us),
        ..lease.clone()
    })
}

impl Inner {
    /// Whether the event of a commit whose answer was lost is there.
    pub async fn was_committed(
        &self,
        (no, sequence, hash): (i64, i64, dalsegno_store::Hash),
        why: &str,
    ) -> Result<bool, Trouble> {
        let mut backoff = self.backoff();
        loop {
            let looked = async {
                let mut lent = self.pool.lend().await?;
                let rows = lent.conn.query(EVENT_HASH, &[&no, &sequence]).await?;
                self.pool.give_back(lent);
                Ok::<_, Trouble>(rows)
            };
            match looked.await {
                Ok(rows) => {
                    let found = rows.first().map(|row| row.get::<_, Vec<u8>>(0));
                    return Ok(found.is_some_and(|found| found == hash.as_bytes()));
                }
                Err(Trouble::Store(e)) => return Err(e.into()),
                Err(_) if backoff.wait().await => {}
                Err(_) => {
                    return Err(Trouble::Store(StoreError::Backend(format!(
                        "the connection to PostgreSQL was lost while it committed ({why}): it is \
                         not known whether the events are recorded; read the stream when the \
                         database is back"
                    ))));
                }
            }
        }
    }
}
