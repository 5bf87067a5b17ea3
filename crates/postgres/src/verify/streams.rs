//! Streams: their events, what follows from them, and what other tables say of them.

use std::collections::{BTreeMap, HashMap};

use dalsegno_store::engine::{decode_state, forgotten_by, queue_of, status_number};
use dalsegno_store::{
    Applied, Body, Event, Hash, State, StreamId, StreamKind, StreamState, Version,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Reading, hash_of};
use crate::error::Trouble;
use crate::save::{db_text, db_us};

const STREAMS: &str = "SELECT s.no, s.kind, s.name, s.sequence, s.clock, s.token, s.state,
         r.name, r.status, r.agent, r.attention, r.changed_us,
         c.queue, c.priority, c.agent, c.token
     FROM stream s LEFT JOIN run r ON r.stream = s.no LEFT JOIN claimable c ON c.stream = s.no
     WHERE s.no > $1 ORDER BY s.no LIMIT $2";
const EVENTS: &str = "SELECT sequence, bytes, hash FROM event
     WHERE stream = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
const TIMERS: &str = "SELECT stream, id, due_us FROM timer WHERE stream = ANY($1)";
const STREAMS_AT_ONCE: i64 = 500;
const EVENTS_AT_ONCE: i64 = 2000;

/// What the events of a stream come to.
struct Folded {
    head: Version,
    clock: u64,
    state: Option<StreamState>,
    first: Option<Event>,
    /// Payloads of a memory, by event: they are there unless an event behind them says that they
    /// are forgotten.
    stored: BTreeMap<u64, Vec<(Hash, u64)>>,
    /// Something is wrong with the events, so that what follows from them cannot be compared.
    is_broken: bool,
}

/// Timers by their stream: which, and when.
type Timers = HashMap<i64, BTreeMap<Vec<u8>, i64>>;

impl Reading {
    /// Reads all streams with their events.
    pub async fn read_streams(&mut self, progress: &(dyn Fn(u64) + Sync)) -> Result<(), Trouble> {
        let mut after = i64::MIN;
        loop {
            let rows = self.rows(STREAMS, &[&after, &STREAMS_AT_ONCE]).await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = last.get(0);
            let numbers: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let mut timers = Timers::new();
            for row in self.rows(TIMERS, &[&numbers]).await? {
                let of = timers.entry(row.get(0)).or_default();
                of.insert(row.get(1), row.get(2));
            }
            for row in &rows {
                let timers = timers.remove(&row.get(0)).unwrap_or_default();
                self.read_stream(row, &timers, progress).await?;
            }
        }
    }

    async fn read_stream(
        &mut self,
        row: &Row,
        timers: &BTreeMap<Vec<u8>, i64>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Trouble> {
        self.report.streams += 1;
        let kind = match row.get::<_, i16>(1) {
            1 => StreamKind::Run,
            2 => StreamKind::Memory,
            _ => StreamKind::Store,
        };
        let name: &str = row.get(2);
        let stream: StreamId = match format!("{kind}/{name}").parse() {
            Ok(stream) => stream,
            Err(_) if kind == StreamKind::Store => StreamId::store(),
            Err(e) => {
                let place = format!("the row {} of the table stream", row.get::<_, i64>(0));
                self.report
                    .wrong(place, "the name of a stream", format!("{e}"));
                return Ok(());
            }
        };
        let folded = self.fold(row.get(0), &stream, progress).await?;
        let name = stream.to_string();
        self.report.heads.insert(name, folded.head.hash);
        let sequence = row.get::<_, i64>(3) as u64;
        if folded.head.sequence != sequence && !folded.is_broken {
            let expected = format!("events up to {sequence}");
            let found = format!("events up to {}", folded.head.sequence);
            self.report.wrong(stream.to_string(), expected, found);
            return Ok(());
        }
        if !folded.is_broken {
            self.compare(&stream, row, timers, &folded);
        }
        Ok(())
    }

    /// Reads the events of a stream, checks their chain, and folds them.
    async fn fold(
        &mut self,
        no: i64,
        stream: &StreamId,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Folded, Trouble> {
        let mut folded = Folded {
            head: Version::START,
            clock: 0,
            state: None,
            first: None,
            stored: BTreeMap::new(),
            is_broken: false,
        };
        let mut state = State::default();
        let mut after = 0_i64;
        loop {
            let params: [&(dyn ToSql + Sync); 3] = [&no, &after, &EVENTS_AT_ONCE];
            let rows = self.rows(EVENTS, &params).await?;
            let Some(last) = rows.last() else {
                break;
            };
            after = last.get(0);
            for row in &rows {
                self.report.events += 1;
                if !folded.is_broken && !self.event(stream, row, &mut folded, &mut state) {
                    folded.is_broken = true;
                }
            }
            progress(self.report.events);
        }
        self.check_remembered(stream, &mut folded);
        if folded.state.is_none() {
            folded.state = state.streams.remove(stream);
        }
        Ok(folded)
    }

    /// Checks that the payloads of a memory are there that it has not forgotten.
    fn check_remembered(&mut self, stream: &StreamId, folded: &mut Folded) {
        for (sequence, stored) in std::mem::take(&mut folded.stored) {
            for (root, bytes) in stored {
                let place = || format!("the payload {root} of event {sequence} of {stream}");
                self.check_piece(&root, bytes, place);
            }
        }
    }

    /// Takes one event in; whether it fits.
    fn event(
        &mut self,
        stream: &StreamId,
        row: &Row,
        folded: &mut Folded,
        state: &mut State,
    ) -> bool {
        let (sequence, bytes): (i64, &[u8]) = (row.get(0), row.get(1));
        let head = folded.head.after(bytes);
        let place = format!("event {sequence} of {stream}");
        if sequence as u64 != head.sequence {
            let missing = format!("event {} of {stream}", head.sequence);
            self.report.wrong(missing, "an event", "none");
            return false;
        }
        let event = match Event::decode(bytes) {
            Ok(event) => event,
            Err(e) => {
                self.report.wrong(place, "an event", e.to_string());
                return false;
            }
        };
        if event.stream != *stream || event.sequence != head.sequence {
            let found = format!("event {} of {}", event.sequence, event.stream);
            self.report.wrong(place, "that event", found);
            return false;
        }
        let stored = hash_of(row.get(2));
        if stored != Some(head.hash) {
            let found = stored.map_or("no hash".to_owned(), |hash| hash.to_string());
            self.report
                .wrong(place, format!("the hash {}", head.hash), found);
            return false;
        }
        if stream.kind() == StreamKind::Memory {
            for payload in event.payloads() {
                if let Body::Stored { root, bytes } = &payload.body {
                    let of = folded.stored.entry(event.sequence).or_default();
                    of.push((*root, *bytes));
                }
            }
            for sequence in forgotten_by(&event) {
                folded.stored.remove(&sequence);
            }
        } else {
            self.check_payloads(&event, || place.clone());
        }
        if let Applied::Ended(last) = state.apply(&event, bytes) {
            folded.state = Some(*last);
        }
        folded.head = head;
        folded.clock = folded.clock.max(event.clock);
        if event.sequence == 1 {
            folded.first = Some(event);
        }
        true
    }

    /// Compares what other rows say with what follows from the events.
    fn compare(
        &mut self,
        stream: &StreamId,
        row: &Row,
        timers: &BTreeMap<Vec<u8>, i64>,
        folded: &Folded,
    ) {
        let Some(state) = &folded.state else {
            self.report.wrong(stream.to_string(), "events", "none");
            return;
        };
        let place = format!("the row of {stream}");
        match decode_state(row.get(6)) {
            Ok(stored) if stored == *state => {}
            Ok(stored) => {
                let (expected, found) = difference(state, &stored);
                self.report.wrong(place.clone(), expected, found);
            }
            Err(e) => self.report.wrong(place.clone(), "a state", e.to_string()),
        }
        let clock = row.get::<_, i64>(4) as u64;
        if clock != folded.clock {
            let expected = format!("clock {}", folded.clock);
            self.report
                .wrong(place.clone(), expected, format!("clock {clock}"));
        }
        let token = row.get::<_, i64>(5) as u64;
        if token != state.last_token {
            let expected = format!("token {}", state.last_token);
            self.report.wrong(place, expected, format!("token {token}"));
        }
        let due: BTreeMap<Vec<u8>, i64> = state
            .timers
            .iter()
            .map(|(id, due)| (id.clone().into_bytes(), db_us(*due)))
            .collect();
        if due != *timers {
            let place = format!("the timers of {stream}");
            let (expected, found) = (format!("{} of them", due.len()), timers.len());
            let found = match found == due.len() {
                true => "others, or other times".to_owned(),
                false => format!("{found}"),
            };
            self.report.wrong(place, expected, found);
        }
        if stream.kind() == StreamKind::Run {
            self.compare_list(stream, row, state);
            self.compare_claim(stream, row, state, folded);
        }
    }

    fn compare_list(&mut self, stream: &StreamId, row: &Row, state: &StreamState) {
        let place = format!("the row of {stream} in the list of runs");
        let agent = db_text(state.agent.as_deref().unwrap_or_default());
        let status = state.status.map_or(0, status_number) as i16;
        let expected = (stream.name(), status, &*agent, state.attention.is_some());
        let Some(name) = row.get::<_, Option<&str>>(7) else {
            self.report.wrong(place, "a row", "none");
            return;
        };
        let found: (&str, i16, &str, bool) = (name, row.get(8), row.get(9), row.get(10));
        if found != expected {
            let words = |(name, status, agent, attention): (&str, i16, &str, bool)| {
                format!("{name:?}, status {status}, agent {agent:?}, attention {attention}")
            };
            self.report.wrong(place, words(expected), words(found));
            return;
        }
        let changed_us: i64 = row.get(11);
        if changed_us > db_us(state.updated_us) || changed_us < db_us(state.created_us) {
            let expected = format!("from {} to {} µs", state.created_us, state.updated_us);
            self.report
                .wrong(place, expected, format!("{changed_us} µs"));
        }
    }

    fn compare_claim(
        &mut self,
        stream: &StreamId,
        row: &Row,
        state: &StreamState,
        folded: &Folded,
    ) {
        let place = format!("the row of {stream} in the table claimable");
        let queue: Option<&str> = row.get(12);
        let (Some(queue), false) = (queue, state.has_ended()) else {
            match (queue, state.has_ended()) {
                (Some(_), _) => self.report.wrong(place, "none: it has ended", "a row"),
                (None, false) => self.report.wrong(place, "a row", "none"),
                (None, true) => {}
            }
            return;
        };
        let fields = folded.first.as_ref().map(|first| &first.fields);
        let (of, priority) = fields.map_or(("", 0), queue_of);
        let agent = db_text(state.agent.as_deref().unwrap_or_default());
        let of = db_text(of);
        let priority = i32::try_from(priority).unwrap_or(i32::MAX);
        let expected = (&*of, priority, &*agent);
        let found: (&str, i32, &str) = (queue, row.get(13), row.get(14));
        if found != expected {
            let words = |(queue, priority, agent): (&str, i32, &str)| {
                format!("queue {queue:?}, priority {priority}, agent {agent:?}")
            };
            self.report.wrong(place, words(expected), words(found));
            return;
        }
        let holds = state.lease.as_ref().map(|lease| lease.token as i64);
        match row.get::<_, Option<i64>>(15) {
            Some(token) if holds != Some(token) => {
                let expected = holds.map_or("none".to_owned(), |token| format!("token {token}"));
                self.report.wrong(place, expected, format!("token {token}"));
            }
            _ => {}
        }
    }
}

/// The first thing in which two states differ, in words.
fn difference(expected: &StreamState, found: &StreamState) -> (String, String) {
    let words: [fn(&StreamState) -> String; 7] = [
        |s| format!("event {} with hash {}", s.head.sequence, s.head.hash),
        |s| format!("status {:?}", s.status),
        |s| format!("agent {:?}", s.agent),
        |s| format!("attention {:?}", s.attention),
        |s| format!("lease {:?}, last token {}", s.lease, s.last_token),
        |s| format!("timers {:?}", s.timers),
        |s| format!("times {} and {}", s.created_us, s.updated_us),
    ];
    let both = words.iter().map(|say| (say(expected), say(found)));
    let mut differ = both.filter(|(expected, found)| expected != found);
    let same = || ("what its events come to".to_owned(), "another".to_owned());
    differ.next().unwrap_or_else(same)
}
