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

use dalsegno_store::engine::{self, Judge, Payloads};
use dalsegno_store::payload::Piece;
use dalsegno_store::{Append, LetterRef, StoreError, StreamId, Version};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::Inner;
use crate::locked::{Locked, holder_of};
use crate::pool::Lent;
use crate::save::{ClaimChange, EventRow, StreamSave, Writing, kind_number};

mod foreign;

pub(crate) const LOCK: &str = include_str!("sql/lock.sql");
const HOLDERS: &str = include_str!("sql/holders.sql");
pub(crate) const NEW_STREAM: &str = "INSERT INTO stream (kind, name, sequence, clock, token, state)
     VALUES ($1, $2, 0, 0, 0, '') ON CONFLICT (kind, name) DO NOTHING RETURNING no";
const NEW_LETTERS: &str = "INSERT INTO letter (sender, number, kind, name, form, bytes)
     SELECT $1, l.number, l.kind, l.name, $2, l.bytes
     FROM unnest($3::bigint[], $4::smallint[], $5::text[], $6::bytea[])
         AS l (number, kind, name, bytes)";
const TAKE_LETTERS: &str = "DELETE FROM letter l
     USING unnest($1::text[], $2::bigint[]) AS w (sender, number)
     WHERE l.sender = w.sender AND l.number = w.number";
const SET_ASIDE: &str = "UPDATE letter SET bad = $3 WHERE sender = $1 AND number = $2";

/// The form of a letter's bytes that are an event's, of one who does not hold the run.
pub(crate) const EVENT_FORM: i16 = 2;
/// The form of a letter's bytes that are a letter's.
pub(crate) const LETTER_FORM: i16 = 1;

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
        mut lent: Lent,
        streams: &[StreamId],
    ) -> Result<Tx<'a>, Trouble> {
        let kinds: Vec<i16> = streams.iter().map(|s| kind_number(s.kind())).collect();
        let names: Vec<&str> = streams.iter().map(StreamId::name).collect();
        let clock = inner.options.lease_now_us();
        let lock = lent.conn.statement(LOCK).await?;
        let holders = lent.conn.statement(HOLDERS).await?;
        let client = &lent.conn.client;
        let lock_params: [&(dyn ToSql + Sync); 2] = [&kinds, &names];
        let holders_params: [&(dyn ToSql + Sync); 3] = [&kinds, &names, &clock];
        // All are sent before the first is answered.
        let (begun, rows, holders) = tokio::join!(
            biased;
            client.batch_execute("BEGIN"),
            client.query(&lock, &lock_params),
            client.query(&holders, &holders_params),
        );
        begun?;
        Ok(Tx::of_rows(inner, lent, streams, &rows?, &holders?)?)
    }

    /// The same in a transaction that has locked them already.
    pub fn of_rows(
        inner: &'a Inner,
        lent: Lent,
        streams: &[StreamId],
        rows: &[Row],
        holders: &[Row],
    ) -> Result<Tx<'a>, StoreError> {
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
        tx.read(streams, rows, holders)?;
        Ok(tx)
    }

    fn read(
        &mut self,
        streams: &[StreamId],
        rows: &[Row],
        holders: &[Row],
    ) -> Result<(), StoreError> {
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
                locked.was_held = row.get::<_, Option<i64>>(2).is_some();
                locked.holder = holder_of(row, &locked.before, self.now_us);
            }
            if let Some(held) = memory.held.get(stream) {
                let same = Some(held.no) == locked.no
                    && held.token == locked.token
                    && held.saved.head == locked.before.head;
                if !same {
                    // Somebody else has written: the lease is worth nothing any more.
                    let current = locked.token;
                    let token = held.token;
                    memory.lose(stream, token, &[], current);
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

    /// Whether only a person can move a run on, and the worker that found that out is gone and has
    /// not given it back: then it is not to be claimed. One that nobody held is there to be claimed
    /// because something was said to it, which may be what it waits for.
    pub fn rests(&mut self, run: &StreamId) -> bool {
        let rests =
            |l: &&mut Locked| l.draft.attention.is_some() && l.holder.is_none() && l.was_held;
        let Some(locked) = self.streams.get_mut(run).filter(rests) else {
            return false;
        };
        locked.claim = ClaimChange::Set {
            ready_us: crate::save::NEVER_US,
            token: None,
            holder: None,
        };
        true
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
        self.set_letters_aside().await?;
        if let Err(trouble) = self.write_and_commit(&saves).await? {
            let Trouble::Gone(why) = trouble else {
                return Err(trouble);
            };
            // Not given back: the server may still be at it.
            drop(self.lent);
            let inner = self.inner;
            let saved = saves.iter().find(|save| save.last().is_some());
            let is_there = match (saved, self.said.first()) {
                (Some(save), _) => inner.was_committed(save, &why).await?,
                (None, Some(said)) => {
                    let letter = LetterRef {
                        sender: inner.handle.clone(),
                        number: said.number,
                    };
                    inner
                        .was_sent(&letter, &said.to, self.judge.now_us, &why)
                        .await?
                }
                // It is done again, and finds nothing to do if it was done.
                (None, None) => false,
            };
            if !is_there {
                return Err(Trouble::Again);
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

    /// Writes and commits in one round trip. The outer error is about what was written, and then
    /// nothing is committed; the inner one about the commit.
    async fn write_and_commit(
        &mut self,
        saves: &[StreamSave],
    ) -> Result<Result<(), Trouble>, Trouble> {
        let writing = Writing::new(saves, &self.pieces, self.judge.now_us);
        let conn = &mut self.lent.conn;
        // A letter alone may have payloads, too.
        let save = match saves.is_empty() && self.pieces.is_empty() {
            true => None,
            false => Some(conn.statement(writing.sql_of_all()).await?),
        };
        let say = match self.said.is_empty() {
            true => None,
            false => Some(conn.statement(NEW_LETTERS).await?),
        };
        let take = match self.taken.is_empty() {
            true => None,
            false => Some(conn.statement(TAKE_LETTERS).await?),
        };
        let said = &self.said;
        let numbers: Vec<i64> = said.iter().map(|said| said.number as i64).collect();
        let kinds: Vec<i16> = said
            .iter()
            .map(|said| kind_number(said.to.kind()))
            .collect();
        let names: Vec<&str> = said.iter().map(|said| said.to.name()).collect();
        let bytes: Vec<&[u8]> = said.iter().map(|said| &said.bytes[..]).collect();
        let handle = &self.inner.handle;
        let say_params: [&(dyn ToSql + Sync); 6] =
            [handle, &EVENT_FORM, &numbers, &kinds, &names, &bytes];
        let senders: Vec<&str> = self.taken.iter().map(|(sender, _)| &sender[..]).collect();
        let taken: Vec<i64> = self.taken.iter().map(|(_, number)| *number).collect();
        let take_params: [&(dyn ToSql + Sync); 2] = [&senders, &taken];
        let client = &conn.client;
        let save_params = writing.params_of_all();
        let execute = |statement, params| async move {
            match statement {
                Some(statement) => client.execute(&statement, params).await.map(drop),
                None => Ok(()),
            }
        };
        // All are sent before the first is answered. After an error, the server undoes at COMMIT.
        let (saved, said, taken, committed) = tokio::join!(
            biased;
            execute(save, &save_params[..]),
            execute(say, &say_params[..]),
            execute(take, &take_params[..]),
            client.batch_execute("COMMIT"),
        );
        let written = [saved, said, taken].into_iter().collect();
        match (written, committed) {
            // That the connection was lost says nothing about the commit.
            (Err(e), Err(_)) => match overtaken(e) {
                Trouble::Gone(why) => Ok(Err(Trouble::Gone(why))),
                other => Err(other),
            },
            (Err(e), Ok(())) => Err(overtaken(e)),
            (Ok(()), committed) => Ok(committed.map_err(Trouble::from)),
        }
    }

    async fn set_letters_aside(&mut self) -> Result<(), Trouble> {
        for (sender, number, why) in &self.aside {
            let conn = &mut self.lent.conn;
            conn.execute(SET_ASIDE, &[sender, number, why]).await?;
        }
        Ok(())
    }
}

/// A stream that was not where it was thought to be: the statement divides by zero then.
fn overtaken(error: tokio_postgres::Error) -> Trouble {
    match error.code() {
        Some(code) if *code == SqlState::DIVISION_BY_ZERO => Trouble::Again,
        _ => Trouble::from(error),
    }
}

/// What a transaction wrote.
#[derive(Debug)]
pub(crate) struct Committed {
    pub saves: Vec<StreamSave>,
    pub clock: u64,
}
