//! Reading all of a store, and naming what is not as it was written.
//!
//! | what | must be |
//! |---|---|
//! | events | those of a stream, without a gap, each with the hash that follows from its bytes |
//! | the row of a stream | what its events come to |
//! | rows of lists, of timers, of when runs may go on | what the row of the stream says |
//! | pieces | what their hashes say; all there that events, letters and other pieces refer to |
//! | letters | readable, but for those that were set aside |
//!
//! Invariant: all is read in one transaction that sees one moment, so that workers can go on and
//! nothing looks wrong because of them.

use std::collections::{BTreeMap, HashMap};

use dalsegno_store::{Body, Event, Hash, LetterRef, Problem, StoreError, engine, payload};
use tokio_postgres::types::ToSql;

use crate::error::Trouble;
use crate::inner::{Inner, trying};
use crate::pool::Lent;
use crate::tx::LETTER_FORM;

mod streams;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const PIECES: &str = "SELECT hash, bytes FROM piece WHERE hash > $1 ORDER BY hash LIMIT $2";
const LETTERS: &str = "SELECT sender, number, form, bytes FROM letter
     WHERE bad IS NULL AND (sender, number) > ($1, $2) ORDER BY sender, number LIMIT $3";
/// Rows that belong to no stream.
const ORPHANS: [(&str, &str); 4] = [
    (
        "event",
        "SELECT DISTINCT e.stream FROM event e
         WHERE NOT EXISTS (SELECT 1 FROM stream s WHERE s.no = e.stream) LIMIT 100",
    ),
    (
        "run",
        "SELECT r.stream FROM run r
         WHERE NOT EXISTS (SELECT 1 FROM stream s WHERE s.no = r.stream) LIMIT 100",
    ),
    (
        "timer",
        "SELECT DISTINCT t.stream FROM timer t
         WHERE NOT EXISTS (SELECT 1 FROM stream s WHERE s.no = t.stream) LIMIT 100",
    ),
    (
        "claimable",
        "SELECT c.stream FROM claimable c
         WHERE NOT EXISTS (SELECT 1 FROM stream s WHERE s.no = c.stream) LIMIT 100",
    ),
];
const ROWS_AT_ONCE: i64 = 1000;

/// What is in a database, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresReport {
    /// Streams that have a row.
    pub streams: u64,
    /// Events that were read.
    pub events: u64,
    /// Payload pieces whose hash fits.
    pub pieces: u64,
    /// Letters that wait.
    pub letters: u64,
    /// The head of every stream.
    pub heads: BTreeMap<String, Hash>,
    /// What is not as it was written.
    pub problems: Vec<Problem>,
}

impl PostgresReport {
    /// Whether everything is as it was written.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn wrong(
        &mut self,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.problems.push(Problem {
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        });
    }
}

/// What is known of a piece: the length of all content under it.
type Pieces = HashMap<Hash, u64>;

impl Inner {
    /// As [`crate::PostgresStore::verify`].
    pub async fn verify(
        &self,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<PostgresReport, StoreError> {
        self.flushed().await?;
        trying!(self, {
            let lent = self.pool.lend().await?;
            lent.conn.say(BEGIN).await?;
            let mut reading = Reading {
                lent,
                report: PostgresReport::default(),
                pieces: Pieces::new(),
            };
            reading.read_pieces().await?;
            reading.read_streams(progress).await?;
            reading.read_letters().await?;
            reading.look_for_orphans().await?;
            let Reading { lent, report, .. } = reading;
            lent.conn.say("COMMIT").await?;
            self.pool.give_back(lent);
            Ok(report)
        })
    }
}

/// A verification under way.
struct Reading {
    lent: Lent,
    report: PostgresReport,
    pieces: Pieces,
}

impl Reading {
    async fn rows(
        &mut self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, Trouble> {
        self.lent.conn.query(sql, params).await
    }

    async fn read_pieces(&mut self) -> Result<(), Trouble> {
        let mut after: Vec<u8> = Vec::new();
        // Who refers to what, with the length that is said there.
        let mut below: Vec<(Hash, Hash, u64)> = Vec::new();
        loop {
            let rows = self.rows(PIECES, &[&after, &ROWS_AT_ONCE]).await?;
            let Some(last) = rows.last() else {
                break;
            };
            after = last.get(0);
            for row in &rows {
                let Some(hash) = hash_of(row.get(0)) else {
                    let place = "a row of the table piece";
                    self.report
                        .wrong(place, "a hash of 32 bytes", "another length");
                    continue;
                };
                match payload::under(&hash, row.get(1)) {
                    Ok((len, children)) => {
                        self.report.pieces += 1;
                        self.pieces.insert(hash, len);
                        below.extend(children.iter().map(|c| (hash, c.hash, c.len)));
                    }
                    Err(e) => {
                        let place = format!("the payload piece {hash}");
                        self.report
                            .wrong(place, "what its hash says", e.to_string());
                    }
                }
            }
        }
        for (parent, child, len) in below {
            let place = || format!("the payload piece {child}, below {parent}");
            self.check_piece(&child, len, place);
        }
        Ok(())
    }

    fn check_piece(&mut self, hash: &Hash, len: u64, place: impl Fn() -> String) {
        match self.pieces.get(hash) {
            Some(known) if *known == len => {}
            Some(known) => {
                let (expected, found) = (format!("{len} bytes"), format!("{known} bytes"));
                self.report.wrong(place(), expected, found);
            }
            None => self
                .report
                .wrong(place(), format!("{len} bytes"), "no such piece"),
        }
    }

    /// What an event refers to must be there.
    fn check_payloads(&mut self, event: &Event, of: impl Fn() -> String) {
        for payload in event.payloads() {
            if let Body::Stored { root, bytes } = &payload.body {
                let place = || format!("the payload {root} of {}", of());
                self.check_piece(root, *bytes, place);
            }
        }
    }

    async fn read_letters(&mut self) -> Result<(), Trouble> {
        let mut after = (String::new(), 0_i64);
        loop {
            let params: [&(dyn ToSql + Sync); 3] = [&after.0, &after.1, &ROWS_AT_ONCE];
            let rows = self.rows(LETTERS, &params).await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = (last.get(0), last.get(1));
            for row in &rows {
                self.report.letters += 1;
                let letter = LetterRef {
                    sender: row.get(0),
                    number: row.get::<_, i64>(1) as u64,
                };
                let wrong = match row.get::<_, i16>(2) {
                    LETTER_FORM => engine::open_letter(row.get(3), &letter).err(),
                    _ => match Event::decode(row.get(3)) {
                        Ok(event) => {
                            self.check_payloads(&event, || {
                                format!("letter {}-{}", letter.sender, letter.number)
                            });
                            None
                        }
                        Err(e) => Some(e.to_string()),
                    },
                };
                if let Some(why) = wrong {
                    let place = format!("letter {}-{}", letter.sender, letter.number);
                    self.report.wrong(place, "what its sender wrote", why);
                }
            }
        }
    }

    async fn look_for_orphans(&mut self) -> Result<(), Trouble> {
        for (table, sql) in ORPHANS {
            for row in self.rows(sql, &[]).await? {
                let no: i64 = row.get(0);
                let place = format!("rows of the table {table} with stream {no}");
                self.report.wrong(place, "a row of that stream", "none");
            }
        }
        Ok(())
    }
}

fn hash_of(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash::from_bytes)
}
