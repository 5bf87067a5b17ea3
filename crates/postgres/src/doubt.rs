//! What became of something whose answer was lost with the connection.
//!
//! Invariant: before it is looked for, whoever may still be writing it is waited for: a server may
//! have received a whole transaction of a client that is gone, and may be about to commit it. That
//! transaction has locked the rows that it writes, and made those that are new; so who locks or makes
//! the same rows comes after it.

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::{Event, LetterRef, StoreError, StreamId};
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::Inner;
use crate::pool::Conn;
use crate::save::{StreamSave, kind_number};
use crate::tx::{LETTER_FORM, LOCK, NEW_STREAM};

const EVENT_HASH: &str = "SELECT hash FROM event WHERE stream = $1 AND sequence = $2";
/// Waits for whoever writes the same letter.
const SEND_AGAIN: &str = "INSERT INTO letter (sender, number, kind, name, form, bytes)
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sender, number) DO NOTHING";
const LATEST: &str = "SELECT e.sequence, e.bytes FROM event e
     WHERE e.stream = (SELECT no FROM stream WHERE kind = $1 AND name = $2) AND e.sequence < $3
     ORDER BY e.sequence DESC LIMIT 500";
/// Clocks of two machines differ by less.
const SKEW_US: u64 = 600 * 1_000_000;

/// Does something again and again until the database is there to answer.
macro_rules! patiently {
    ($inner:expr, $why:expr, $look:expr) => {{
        let mut backoff = $inner.backoff();
        loop {
            match $look.await {
                Ok(found) => break Ok(found),
                Err(Trouble::Store(error)) => break Err(Trouble::Store(error)),
                Err(_) if backoff.wait().await => {}
                Err(_) => break Err(not_known($why)),
            }
        }
    }};
}

fn not_known(why: &str) -> Trouble {
    Trouble::Store(StoreError::Backend(format!(
        "the connection to PostgreSQL was lost while it committed ({why}), and it did not come \
         back: it is not known whether the events are recorded; read the stream when the database \
         is back"
    )))
}

impl Inner {
    /// Whether a transaction was committed that wrote this stream.
    pub async fn was_committed(&self, save: &StreamSave, why: &str) -> Result<bool, Trouble> {
        patiently!(self, why, self.look_for_event(save))
    }

    async fn look_for_event(&self, save: &StreamSave) -> Result<bool, Trouble> {
        let Some((no, sequence, hash)) = save.last() else {
            return Ok(false);
        };
        let mut lent = self.pool.lend().await?;
        let conn = &mut lent.conn;
        let (kind, name) = (kind_number(save.stream.kind()), save.stream.name());
        conn.say("BEGIN").await?;
        conn.execute(NEW_STREAM, &[&kind, &name]).await?;
        conn.query(LOCK, &[&vec![kind], &vec![name]]).await?;
        let rows = conn.query(EVENT_HASH, &[&no, &sequence]).await?;
        conn.say("ROLLBACK").await?;
        self.pool.give_back(lent);
        let found = rows.first().map(|row| row.get::<_, Vec<u8>>(0));
        Ok(found.is_some_and(|found| found == hash.as_bytes()))
    }

    /// Whether a letter was sent, and perhaps taken up since.
    pub async fn was_sent(
        &self,
        letter: &LetterRef,
        to: &StreamId,
        since_us: u64,
        why: &str,
    ) -> Result<bool, Trouble> {
        patiently!(self, why, self.send_again(letter, to, b"", since_us, false))
    }

    /// Sends a letter if it was not.
    pub async fn send_for_sure(
        &self,
        letter: &LetterRef,
        new: &NewLetter,
        bytes: &[u8],
        since_us: u64,
        why: &str,
    ) -> Result<(), Trouble> {
        let sent = patiently!(
            self,
            why,
            self.send_again(letter, &new.to, bytes, since_us, true)
        );
        sent.map(drop)
    }

    /// Makes the letter's row. If that is possible, it was never there, or has been taken up; and
    /// nobody else can make it meanwhile.
    async fn send_again(
        &self,
        letter: &LetterRef,
        to: &StreamId,
        bytes: &[u8],
        since_us: u64,
        keep: bool,
    ) -> Result<bool, Trouble> {
        let mut lent = self.pool.lend().await?;
        let conn = &mut lent.conn;
        let number = letter.number as i64;
        let (kind, name) = (kind_number(to.kind()), to.name());
        let params: [&(dyn ToSql + Sync); 6] =
            [&letter.sender, &number, &kind, &name, &LETTER_FORM, &bytes];
        conn.say("BEGIN").await?;
        if !keep {
            // Whoever sent it in a transaction has locked the stream, and may not have come to the
            // letter yet.
            conn.query(LOCK, &[&vec![kind], &vec![name]]).await?;
        }
        let is_there = conn.execute(SEND_AGAIN, &params).await? == 0
            || is_taken_up(conn, letter, to, since_us).await?
            || is_taken_up(conn, letter, &StreamId::store(), since_us).await?;
        let end = match keep && !is_there {
            true => "COMMIT",
            false => "ROLLBACK",
        };
        conn.say(end).await?;
        self.pool.give_back(lent);
        Ok(is_there || keep)
    }
}

/// Whether a letter has become an event of a stream, or was refused there.
async fn is_taken_up(
    conn: &mut Conn,
    letter: &LetterRef,
    stream: &StreamId,
    since_us: u64,
) -> Result<bool, Trouble> {
    let (kind, name) = (kind_number(stream.kind()), stream.name());
    let mut before = i64::MAX;
    loop {
        let rows = conn.query(LATEST, &[&kind, &name, &before]).await?;
        let Some(last) = rows.last() else {
            return Ok(false);
        };
        before = last.get(0);
        for row in &rows {
            // What cannot be read is told to who reads it.
            let Ok(event) = Event::decode(row.get(1)) else {
                continue;
            };
            if event.letter.as_ref() == Some(letter) {
                return Ok(true);
            }
            if event.time_us.saturating_add(SKEW_US) < since_us {
                return Ok(false);
            }
        }
    }
}
