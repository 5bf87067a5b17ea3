//! Helpers: what memories keep so that they open faster, in parts.
//!
//! ```text
//! begin: the row without a name, made if there is none; its number is what is begun with
//! keep:  parts ─► lock that row, if it has that number ─► the helper's row ─► the parts before go ─► commit
//! drop:  lock that row ─► all rows of the stream and their parts go ─► commit
//! ```
//!
//! Invariants: a helper is whole or absent, because its row names its parts and both come in one
//! transaction. Who keeps and who drops lock the same row; so a drop sees everything that was kept
//! before it, and what was begun before it and comes later finds no row with its number. Nothing here
//! locks a row that an append needs. What is not committed is undone by the server, whenever its
//! client vanishes.

use dalsegno_store::engine::check_helper_name;
use dalsegno_store::{NewHelper, StoreError, StreamId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{Trouble, or_read_only};
use crate::inner::{Inner, random, trying};
use crate::pool::Conn;
use crate::save::kind_number;

const BEGUN: &str = "SELECT h.writing FROM helper h
     WHERE h.stream = (SELECT no FROM stream WHERE kind = $1 AND name = $2) AND h.name = ''";
const BEGIN: &str = "INSERT INTO helper (stream, name, sequence, writing)
     SELECT no, '', 0, $3 FROM stream WHERE kind = $1 AND name = $2
     ON CONFLICT (stream, name) DO NOTHING";
/// Whether it is worth sending the parts.
const IS_WANTED: &str = "SELECT b.stream FROM helper b
     WHERE b.stream = (SELECT no FROM stream WHERE kind = $1 AND name = $2)
         AND b.name = '' AND b.writing = $3
         AND NOT EXISTS (SELECT 1 FROM helper h
             WHERE h.stream = b.stream AND h.name = $4 AND h.sequence >= $5)";
const PART: &str = "INSERT INTO helper_part (writing, part, bytes) VALUES ($1, $2, $3)";
const LOCK: &str = "SELECT writing FROM helper WHERE stream = $1 AND name = '' FOR UPDATE";
const BEFORE: &str = "SELECT sequence, writing FROM helper WHERE stream = $1 AND name = $2";
const KEEP: &str = "INSERT INTO helper (stream, name, sequence, writing)
     VALUES ($1, $2, $3, $4)
     ON CONFLICT (stream, name) DO UPDATE
     SET sequence = excluded.sequence, writing = excluded.writing";
const REMOVE_PARTS: &str = "DELETE FROM helper_part WHERE writing = ANY($1)";
/// In one statement, so that it is one state of the database that is seen. One that has lost its parts
/// is there, too: who reads it sees what it is, and has it dropped.
const READ: &str = "SELECT p.bytes FROM helper h LEFT JOIN helper_part p ON p.writing = h.writing
     WHERE h.stream = (SELECT no FROM stream WHERE kind = $1 AND name = $2) AND h.name = $3
     ORDER BY p.part";
const ANY: &str = "SELECT h.stream FROM helper h
     WHERE h.stream = (SELECT no FROM stream WHERE kind = $1 AND name = $2) LIMIT 1";
const REMOVE: &str = "DELETE FROM helper WHERE stream = $1 RETURNING writing";

/// So large is a part.
const PART_BYTES: usize = 1 << 20;
/// A larger helper is not kept: it is made again from the stream.
const LIMIT_BYTES: usize = 1 << 30;

impl Inner {
    /// As [`dalsegno_store::Store::begin_helpers`].
    pub async fn begin_helpers(&self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        let (kind, name) = (kind_number(stream.kind()), stream.name());
        let begun = trying!(self, {
            let mut lent = self.pool.lend().await?;
            let mut begun = ask(&mut lent.conn, BEGUN, &[&kind, &name]).await?;
            if begun.is_empty() {
                let number = random() as i64;
                ask(&mut lent.conn, BEGIN, &[&kind, &name, &number]).await?;
                // Of somebody else, if that one was faster.
                begun = ask(&mut lent.conn, BEGUN, &[&kind, &name]).await?;
            }
            self.pool.give_back(lent);
            Ok(begun.first().map(|row| row.get::<_, i64>(0) as u64))
        });
        match begun {
            // Who may not write keeps nothing.
            Err(StoreError::ReadOnly) => Ok(None),
            begun => begun,
        }
    }

    /// As [`dalsegno_store::Store::keep_helper`]. It is not tried twice: it can be large, and is made
    /// again by who needs it.
    pub async fn keep_helper(
        &self,
        stream: &StreamId,
        begun: u64,
        helper: &NewHelper,
    ) -> Result<bool, StoreError> {
        check_helper_name(&helper.name)?;
        if helper.bytes.len() > LIMIT_BYTES {
            return Ok(false);
        }
        let kept = async {
            // Whatever goes wrong, the connection goes with it, and what was sent is undone.
            let mut lent = self.pool.lend().await?;
            let kept = keep(&mut lent.conn, stream, begun, helper).await?;
            self.pool.give_back(lent);
            Ok(kept)
        };
        match kept.await {
            Ok(kept) => Ok(kept),
            Err(Trouble::Store(error)) => Err(error),
            Err(Trouble::Again) => Ok(false),
            Err(Trouble::Gone(why)) => Err(StoreError::Backend(format!(
                "the connection to PostgreSQL was lost ({why}): an index of {stream} is not kept, \
                 and is made again when it is needed"
            ))),
        }
    }

    /// As [`dalsegno_store::Store::helper`].
    pub async fn helper(
        &self,
        stream: &StreamId,
        name: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        check_helper_name(name)?;
        let kind = kind_number(stream.kind());
        let rows = self.rows(READ, &[&kind, &stream.name(), &name]).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let part = |row: &Row| row.get::<_, Option<&[u8]>>(0).map_or(0, <[u8]>::len);
        let mut bytes = Vec::with_capacity(rows.iter().map(part).sum());
        // Each is let go of as soon as it is copied.
        for row in rows {
            bytes.extend_from_slice(row.get::<_, Option<&[u8]>>(0).unwrap_or_default());
        }
        Ok(Some(bytes))
    }

    /// As [`dalsegno_store::Store::drop_helpers`].
    pub async fn drop_helpers(&self, stream: &StreamId) -> Result<(), StoreError> {
        let kind = kind_number(stream.kind());
        trying!(self, {
            let mut lent = self.pool.lend().await?;
            // What somebody begins after this is made of what is there now. So who may only read has
            // nothing to do where there is nothing.
            let there = ask(&mut lent.conn, ANY, &[&kind, &stream.name()]).await?;
            if let Some(row) = there.first() {
                drop_all(&mut lent.conn, row.get(0)).await?;
            }
            self.pool.give_back(lent);
            Ok(())
        })
    }
}

/// Keeps a helper, in a transaction that is open only if this fails.
async fn keep(
    conn: &mut Conn,
    stream: &StreamId,
    begun: u64,
    helper: &NewHelper,
) -> Result<bool, Trouble> {
    let (kind, begun) = (kind_number(stream.kind()), begun as i64);
    let of = i64::try_from(helper.of).unwrap_or(i64::MAX);
    let name = &helper.name;
    let to = stream.name();
    let params: [&(dyn ToSql + Sync); 5] = [&kind, &to, &begun, name, &of];
    let wanted = conn.query(IS_WANTED, &params).await?;
    let Some(stream) = wanted.first().map(|row| row.get::<_, i64>(0)) else {
        return Ok(false);
    };
    let writing = random() as i64;
    conn.say("BEGIN").await?;
    // One of no length has a part too, so that it is told from none.
    let empty = helper.bytes.is_empty().then_some(&[][..]);
    let parts = helper.bytes.chunks(PART_BYTES).chain(empty);
    for (part, bytes) in (0_i32..).zip(parts) {
        conn.execute(PART, &[&writing, &part, &bytes]).await?;
    }
    // From here on others who keep or drop helpers of this stream wait, for what is short.
    let locked = conn.query(LOCK, &[&stream]).await?;
    let is_begun = |row: &Row| row.get::<_, i64>(0) == begun;
    let before = conn.query(BEFORE, &[&stream, name]).await?;
    let is_older = |row: &Row| row.get::<_, i64>(0) < of;
    if !locked.first().is_some_and(is_begun) || !before.iter().all(is_older) {
        conn.say("ROLLBACK").await?;
        return Ok(false);
    }
    conn.execute(KEEP, &[&stream, name, &of, &writing]).await?;
    let replaced: Vec<i64> = before.iter().map(|row| row.get(1)).collect();
    conn.execute(REMOVE_PARTS, &[&replaced]).await?;
    conn.say("COMMIT").await?;
    Ok(true)
}

async fn drop_all(conn: &mut Conn, stream: i64) -> Result<(), Trouble> {
    conn.say("BEGIN").await?;
    // Only then all is seen that was kept until now.
    ask(conn, LOCK, &[&stream]).await?;
    let removed = ask(conn, REMOVE, &[&stream]).await?;
    let writings: Vec<i64> = removed.iter().map(|row| row.get(0)).collect();
    ask(conn, REMOVE_PARTS, &[&writings]).await?;
    conn.say("COMMIT").await
}

/// The rows of a statement, which a user that may only read cannot have sent.
async fn ask(
    conn: &mut Conn,
    sql: &'static str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Trouble> {
    let statement = conn.statement(sql).await.map_err(or_read_only)?;
    let rows = conn.client.query(&statement, params).await;
    rows.map_err(or_read_only)
}
