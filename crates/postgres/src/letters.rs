//! Letters: rows that become events of the streams they are for, once.
//!
//! A handle takes up the letters for what it holds itself and for what nobody holds; those for a run
//! that another holds wait for that one, or for the end of its lease.
//!
//! Invariants: a letter's row goes in the transaction that writes its event. The letters of a sender
//! to one stream are taken in the order of its calls.

use dalsegno_store::engine::{self, Payloads};
use dalsegno_store::mailbox::{MailboxError, NewLetter};
use dalsegno_store::payload::Piece;
use dalsegno_store::{
    Append, Event, EventRef, LetterRef, LettersTaken, NewEvent, StoreError, StreamId, StreamKind,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::{Inner, trying};
use crate::save::kind_number;
use crate::tx::{EVENT_FORM, LETTER_FORM, Tx};

const SEND: &str = "INSERT INTO letter (sender, number, kind, name, form, bytes)
     VALUES ($1, $2, $3, $4, $5, $6)";
const IS_THERE: &str = "SELECT bad FROM letter WHERE sender = $1 AND number = $2";
const WAITING: &str = "SELECT l.sender, l.number, l.kind, l.name
     FROM letter l
     LEFT JOIN LATERAL (
         SELECT no FROM stream WHERE kind = l.kind AND name = l.name OFFSET 0
     ) s ON true
     LEFT JOIN LATERAL (
         SELECT token, holder, ready_us FROM claimable WHERE stream = s.no OFFSET 0
     ) c ON true
     WHERE l.bad IS NULL AND NOT COALESCE(
         c.token IS NOT NULL AND c.holder <> $1 AND c.ready_us
             > COALESCE($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
         false)
     ORDER BY l.sender, l.number LIMIT 32";
/// Behind the locks of their streams: those that nobody else has taken since.
const STILL_THERE: &str = "SELECT l.sender, l.number, l.kind, l.name, l.form, l.bytes
     FROM unnest($1::text[], $2::bigint[]) AS w (sender, number)
     CROSS JOIN LATERAL (
         SELECT sender, number, kind, name, form, bytes FROM letter
         WHERE sender = w.sender AND number = w.number AND bad IS NULL OFFSET 0
     ) l
     ORDER BY l.sender, l.number";

/// What a letter says.
struct Opened {
    event: NewEvent,
    /// Of a letter that was an append: they are stored already.
    payloads: Option<Payloads>,
}

impl Inner {
    /// Sends a letter; it is durable then.
    pub async fn send(&self, letter: &NewLetter) -> Result<LetterRef, StoreError> {
        engine::check_letter(&letter.to, &letter.kind)?;
        let number = self.next_letter();
        let letter_ref = LetterRef {
            sender: self.handle.clone(),
            number,
        };
        let limit_bytes = self.options.limits.letter_bytes;
        let bytes = engine::seal_letter(letter.clone(), &letter_ref, limit_bytes)?;
        let (kind, name) = (kind_number(letter.to.kind()), letter.to.name());
        let number = number as i64;
        let params: [&(dyn ToSql + Sync); 6] =
            [&self.handle, &number, &kind, &name, &LETTER_FORM, &bytes];
        let since_us = self.options.now_us();
        trying!(self, {
            let mut lent = self.pool.lend().await?;
            match lent.conn.execute(SEND, &params).await {
                Ok(_) => self.pool.give_back(lent),
                Err(Trouble::Gone(why)) => {
                    // It may have been sent, and even have been taken up since.
                    drop(lent);
                    self.send_for_sure(&letter_ref, letter, &bytes, since_us, &why)
                        .await?;
                }
                Err(other) => return Err(other),
            }
            Ok(())
        })?;
        self.tell_others();
        Ok(letter_ref)
    }

    /// Whether a letter has been taken up or refused.
    pub async fn is_taken(&self, letter: &LetterRef) -> Result<bool, StoreError> {
        engine::check_letter_ref(letter)?;
        let number = letter.number as i64;
        let rows = self.rows(IS_THERE, &[&letter.sender, &number]).await?;
        let Some(row) = rows.first() else {
            return Ok(true);
        };
        match row.get::<_, Option<String>>(0) {
            None => Ok(false),
            Some(_) => Err(MailboxError::SetAside {
                letter: letter.clone(),
                file: format!("row {}-{} of the table letter", letter.sender, number),
            }
            .into()),
        }
    }

    /// Takes up all letters that wait for what nobody else holds.
    pub async fn take_letters(&self) -> Result<LettersTaken, StoreError> {
        let mut all = LettersTaken::default();
        loop {
            let clock = self.options.lease_now_us();
            let waiting = self.rows(WAITING, &[&self.handle, &clock]).await?;
            if waiting.is_empty() {
                return Ok(all);
            }
            if !self.take_some(&waiting, &mut all).await? {
                return Ok(all);
            }
        }
    }

    /// Takes up some letters; whether any were.
    async fn take_some(&self, waiting: &[Row], all: &mut LettersTaken) -> Result<bool, StoreError> {
        let senders: Vec<&str> = waiting.iter().map(|row| row.get(0)).collect();
        let numbers: Vec<i64> = waiting.iter().map(|row| row.get(1)).collect();
        let mut streams = vec![StreamId::store()];
        streams.extend(waiting.iter().filter_map(stream_of));
        streams.sort();
        streams.dedup();
        let _ours = self.take_ours(&streams).await?;
        let taken = trying!(self, {
            let mut tx = self.begin(&streams).await?;
            let rows = tx.query(STILL_THERE, &[&senders, &numbers]).await?;
            let mut taken = LettersTaken::default();
            for row in &rows {
                self.take_letter(&mut tx, row, &mut taken)?;
            }
            match tx.is_empty() {
                true => tx.leave().await?,
                false => drop(self.commit(tx).await?),
            }
            Ok(taken)
        })?;
        let any = !taken.taken.is_empty() || !taken.refused.is_empty() || !taken.bad.is_empty();
        all.taken.extend(taken.taken);
        all.refused.extend(taken.refused);
        all.bad.extend(taken.bad);
        Ok(any)
    }

    /// Makes a letter an event of its stream, or of the store's if that does not take it.
    fn take_letter(
        &self,
        tx: &mut Tx<'_>,
        row: &Row,
        all: &mut LettersTaken,
    ) -> Result<(), StoreError> {
        let (sender, number): (String, i64) = (row.get(0), row.get(1));
        let letter_ref = LetterRef {
            sender: sender.clone(),
            number: number as u64,
        };
        let name = format!("{sender}-{number}");
        let opened = match stream_of(row).ok_or_else(|| "no such stream can be".to_owned()) {
            Ok(to) => open(row, &letter_ref).map(|opened| (to, opened)),
            Err(why) => Err(why),
        };
        let (to, opened) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                tx.set_aside(&sender, number, &why);
                all.bad.push((name, why));
                return Ok(());
            }
        };
        let locked = tx.streams.get(&to);
        let holder = locked.and_then(|locked| locked.holder.as_ref());
        if holder.is_some_and(|(_, handle)| *handle != self.handle) {
            // Somebody has taken the run since.
            return Ok(());
        }
        let added = opened.and_then(|opened| self.add(tx, &to, opened));
        match added {
            Ok(()) => {
                let sequence = tx.head(&to).sequence;
                let event = EventRef {
                    stream: to,
                    sequence,
                };
                all.taken.push((letter_ref, event));
            }
            Err(e) if engine::is_letters_fault(&e) => {
                let why = e.to_string();
                let event = engine::letter_refused(&letter_ref, &to, &why);
                let append = Append::to(StreamId::store(), vec![event]);
                tx.append(append, Vec::new())?;
                all.refused.push((letter_ref, why));
            }
            Err(e) => return Err(e),
        }
        tx.take_letter(&sender, number);
        Ok(())
    }

    fn add(&self, tx: &mut Tx<'_>, to: &StreamId, opened: Opened) -> Result<(), StoreError> {
        let append = Append::to(to.clone(), vec![opened.event]);
        engine::check_streams(std::slice::from_ref(&append))?;
        let prepared = self.prepare(vec![append])?;
        let pieces: Vec<Piece> = prepared.pieces;
        let parts = prepared.batch.into_iter().zip(prepared.payloads);
        for (append, payloads) in parts {
            let payloads = opened
                .payloads
                .clone()
                .map_or(payloads, |stored| vec![stored]);
            tx.append(append, payloads)?;
        }
        tx.store(pieces);
        Ok(())
    }
}

fn stream_of(row: &Row) -> Option<StreamId> {
    let word = match row.get::<_, i16>(2) {
        1 => StreamKind::Run,
        2 => StreamKind::Memory,
        _ => StreamKind::Store,
    };
    format!("{word}/{}", row.get::<_, &str>(3)).parse().ok()
}

/// What a letter says; the outer error is about its bytes, the inner one about what they say.
fn open(row: &Row, letter_ref: &LetterRef) -> Result<Result<Opened, StoreError>, String> {
    let bytes: &[u8] = row.get(5);
    if row.get::<_, i16>(4) == EVENT_FORM {
        let event = Event::decode(bytes).map_err(|e| e.to_string())?;
        return Ok(Ok(of_event(event, letter_ref)));
    }
    let letter = engine::open_letter(bytes, letter_ref)?;
    Ok(engine::letter_event(letter).map(|event| Opened {
        event,
        payloads: None,
    }))
}

fn of_event(event: Event, letter_ref: &LetterRef) -> Opened {
    let mut new = NewEvent::new(event.kind).with_fields(event.fields);
    new.memory = event.memory;
    new.sources = event.sources;
    new.cause = event.cause;
    Opened {
        event: engine::from_letter(new, letter_ref.clone()),
        payloads: Some([event.input, event.output]),
    }
}
