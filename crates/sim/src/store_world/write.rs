//! Appending: legal and illegal events, to one stream or several, with payloads that share their
//! beginnings.

use std::sync::Arc;

use dalsegno_store::{
    Append, EventRef, Fields, Kind, NewEvent, NewPayload, Store, StreamId, StreamKind, Value, field,
};

use super::verdict::{Refusal, Wish};
use super::{After, World, now};

/// Names of runs in one life. Ended ones cannot be used again.
const RUNS: u64 = 14;

impl World {
    /// A run, most often one that goes on.
    pub(super) fn any_run(&mut self) -> StreamId {
        let live = self.history.state.streams.keys();
        let live: Vec<&StreamId> = live.filter(|id| id.kind() == StreamKind::Run).collect();
        if !live.is_empty() && self.rng.chance(650) {
            return live[self.rng.index(live.len())].clone();
        }
        named(StreamId::run(&format!("order-{}", self.rng.below(RUNS))))
    }

    pub(super) fn memory(&mut self) -> StreamId {
        named(StreamId::memory(&format!("about-{}", self.rng.below(2))))
    }

    /// Anything from nothing to several pieces, often with a beginning that others have too.
    pub(super) fn payload(&mut self) -> NewPayload {
        let size = match self.rng.below(10) {
            0..5 => self.rng.range(0, 200),
            5 => self.rng.range(1000, 1050),
            6..9 => self.rng.range(1000, 7000),
            _ => self.rng.range(7000, 22_000),
        };
        let shared = &self.prefixes[self.rng.index(self.prefixes.len())];
        let own = self.rng.range(0, 600).min(size);
        let mut bytes = shared[..(size - own) as usize].to_vec();
        if self.rng.chance(800) {
            bytes.extend(self.rng.bytes(own as usize));
        }
        let kind = if self.rng.chance(20) {
            "long ".repeat(50)
        } else {
            "text/plain".into()
        };
        NewPayload::new(kind, bytes)
    }

    fn event(&mut self, stream: &StreamId) -> NewEvent {
        let there = self.history.head(stream) > 0;
        let run = stream.kind() == StreamKind::Run;
        let kind = if run && !there && self.rng.chance(850) {
            Kind::RunCreated
        } else {
            self.kind(run)
        };
        let fields = self.fields(stream, &kind);
        let mut event = NewEvent::new(kind).with_fields(fields);
        if self.rng.chance(450) {
            event.input = Some(self.payload());
        }
        if self.rng.chance(250) {
            event.output = Some(self.payload());
        }
        if self.rng.chance(100) {
            event.sources = vec!["a page".into(), format!("page {}", self.rng.below(9))];
        }
        if self.rng.chance(100) {
            event.cause = Some(EventRef {
                stream: stream.clone(),
                sequence: self.rng.range(1, 9),
            });
        }
        if self.rng.chance(100) {
            let memory = self.memory();
            let memory = self.history.state.streams.get(&memory);
            event.memory = memory.map(|memory| memory.head);
        }
        event
    }

    fn kind(&mut self, run: bool) -> Kind {
        if !run && self.rng.chance(900) {
            let kinds = [Kind::FactConfirmed, Kind::MemoryUpdated, Kind::PlanUpdated];
            return kinds[self.rng.index(kinds.len())].clone();
        }
        match self.rng.below(100) {
            0..12 => Kind::StepIntended,
            12..25 => Kind::StepSucceeded,
            25..30 => Kind::RunCompleted,
            30..35 => Kind::StepFailed,
            35..45 => Kind::User("my own".into()),
            45..57 => Kind::TimerSet,
            57..60 => Kind::TimerFired,
            60..63 => Kind::TimerCancelled,
            63..66 => Kind::AttentionRaised,
            66..68 => Kind::AttentionCleared,
            68..74 => Kind::RunStarted,
            74..78 => Kind::RunCheckpointed,
            78..82 => Kind::RunCompleted,
            82..84 => Kind::RunFailed,
            84..86 => Kind::RunCancelled,
            86..88 => Kind::RunCreated,
            88..91 => Kind::LeaseTaken,
            91..93 => Kind::LeaseReleased,
            93 => Kind::Unknown(4711),
            94 => Kind::Unknown(0x8001),
            95 => Kind::Unknown(4712),
            96 => Kind::User(String::new()),
            97 => Kind::RunsRetired,
            98 => Kind::LetterRefused,
            _ => Kind::ResourceNoted,
        }
    }

    fn fields(&mut self, stream: &StreamId, kind: &Kind) -> Fields {
        let fields = Fields::new();
        if self.rng.chance(30) {
            return self.strange_fields();
        }
        let state = self.history.state.streams.get(stream);
        match kind {
            Kind::RunCreated => fields.with(field::AGENT, "buyer"),
            Kind::AttentionRaised => fields.with(field::REASON, "unclear"),
            Kind::TimerSet => {
                let timer = format!("timer-{}", self.rng.below(4));
                let due = self.time() + self.rng.below(100_000_000);
                fields.with(field::TIMER, timer).with(field::DUE, due)
            }
            Kind::TimerFired | Kind::TimerCancelled => {
                fields.with(field::TIMER, format!("timer-{}", self.rng.below(4)))
            }
            Kind::LeaseTaken | Kind::LeaseReleased => {
                let last = state.map_or(0, |state| state.last_token);
                let token = match self.rng.below(20) {
                    0 => u64::MAX,
                    1..8 => last,
                    _ => last + 1,
                };
                fields
                    .with(field::OWNER, "worker")
                    .with(field::TOKEN, token)
            }
            Kind::RunsRetired => {
                let names = vec![Value::Text("run/order-1".into())];
                fields.with(field::RUNS, Value::List(names))
            }
            _ => fields.with(7, self.rng.next_u64()),
        }
    }

    /// Fields that can be built, though not all of them can be read back.
    fn strange_fields(&mut self) -> Fields {
        let value = match self.rng.below(5) {
            0 => Value::Other(vec![0xff]),
            1 => Value::Other(vec![0x01]),
            2 => Value::Other(vec![0xf6]),
            3 => Value::Other(Vec::new()),
            _ => (0..12).fold(Value::Flag(true), |inner, _| Value::List(vec![inner])),
        };
        Fields::new().with(1, value)
    }

    fn append_to(&mut self, stream: StreamId) -> Append {
        let count = match self.rng.below(20) {
            0..14 => 1,
            14..19 => self.rng.range(2, 4),
            _ => 0,
        };
        let events = (0..count).map(|_| self.event(&stream)).collect();
        let head = self.history.head(&stream);
        let lease = self.history.state.streams.get(&stream);
        let lease = lease.and_then(|state| state.lease.as_ref().map(|lease| lease.token));
        let mut append = Append::to(stream, events);
        append.expected = match self.rng.below(20) {
            0..10 => None,
            10..18 => Some(head),
            _ => Some((head + self.rng.range(0, 2)).saturating_sub(1)),
        };
        append.token = match lease {
            Some(token) if self.rng.chance(400) => Some(token),
            Some(token) if self.rng.chance(100) => Some(token.wrapping_sub(1)),
            None if self.rng.chance(20) => Some(1),
            _ => None,
        };
        append
    }

    pub(super) fn append(&mut self) -> Result<After, String> {
        let Some(store) = self.store.clone() else {
            return Ok(After::Reopen);
        };
        let streams = if self.rng.chance(750) {
            1
        } else {
            self.rng.range(2, 3)
        };
        let mut batch = Vec::new();
        for _ in 0..streams {
            let stream = match self.rng.below(40) {
                0 => StreamId::store(),
                1..8 => self.memory(),
                _ => self.any_run(),
            };
            batch.push(self.append_to(stream));
        }
        let wishes: Vec<Wish> = batch.iter().map(Wish::from).collect();
        for wish in &wishes {
            self.history.names.insert(wish.stream.clone());
        }
        let expected = self.history.judge(&wishes, self.time(), self.sizes);
        match now(store.append(batch)) {
            Ok(appended) => {
                let entries = expected.map_err(|r| format!("{wishes:?} must be {r:?}"))?;
                self.summary.appended += entries.len() as u64;
                let ended = self.history.ended.len();
                for entry in entries {
                    self.history.push(Arc::new(entry));
                }
                self.summary.ended_runs += (self.history.ended.len() - ended) as u64;
                let count = self.history.entries.len();
                self.positions.push((appended.position, count));
                for (wish, head) in wishes.iter().zip(&appended.heads) {
                    if head.sequence != self.history.head(&wish.stream) {
                        return Err(format!("{} is said to be at {head:?}", wish.stream));
                    }
                }
                Ok(After::GoOn)
            }
            Err(e) => match (Refusal::of(&e), expected) {
                (Some(found), Err(expected)) if found == expected => {
                    self.summary.refused += 1;
                    Ok(After::GoOn)
                }
                (Some(found), expected) => Err(format!(
                    "an append was {found:?} ({e}), expected {:?}: {wishes:?}",
                    expected.map(|entries| entries.len())
                )),
                (None, _) => self.failed("append", &e),
            },
        }
    }
}

/// Names made here are names.
fn named(name: Result<StreamId, dalsegno_store::NameError>) -> StreamId {
    name.unwrap_or_else(|_| StreamId::store())
}
