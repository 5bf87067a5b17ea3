//! The state as bytes, for snapshots.
//!
//! Invariant: the same state gives the same bytes, and bytes that decode encode to themselves.

use minicbor::Decoder;

use super::{Lease, State, Status, StreamState, Taken};
use crate::event::Version;
use crate::fields::{Cbor, Fields, Malformed, Value, definite};
use crate::hash::Hash;
use crate::name::StreamId;

const WHAT: &str = "a state";

const HEAD: u64 = 1;
const HASH: u64 = 2;
const STATUS: u64 = 3;
const AGENT: u64 = 4;
const CREATED: u64 = 5;
const UPDATED: u64 = 6;
const ATTENTION: u64 = 7;
const LEASE: u64 = 8;
const LAST_TOKEN: u64 = 9;
const TIMERS: u64 = 10;
const BROKEN: u64 = 11;

impl StreamState {
    /// As deterministic CBOR.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode_stream(self).encode()
    }

    /// From deterministic CBOR.
    pub(crate) fn decode(bytes: &[u8]) -> Result<StreamState, Malformed> {
        let fields = Fields::decode(bytes)?;
        decode_stream(&fields).ok_or_else(|| Malformed::new(WHAT, "a stream is not complete"))
    }
}

impl State {
    /// As deterministic CBOR.
    pub fn encode(&self) -> Vec<u8> {
        let mut cbor = Cbor::new();
        cbor.list(5);
        cbor.number(self.clock);
        cbor.number(self.pieces_from);
        cbor.list(self.streams.len());
        for (id, stream) in &self.streams {
            cbor.list(2);
            cbor.text(&id.to_string());
            cbor.bytes(&stream.encode());
        }
        cbor.list(self.letters.len());
        for (sender, taken) in &self.letters {
            cbor.list(3);
            cbor.text(sender);
            cbor.number(taken.number);
            cbor.number(taken.clock);
        }
        cbor.list(self.retiring.len());
        for run in &self.retiring {
            cbor.text(&run.to_string());
        }
        cbor.finish()
    }

    /// From deterministic CBOR.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn decode(bytes: &[u8]) -> Result<State, Malformed> {
        let d = &mut Decoder::new(bytes);
        let mut state = State::default();
        expect_list(d, 5)?;
        state.clock = d.u64().map_err(wrong)?;
        state.pieces_from = d.u64().map_err(wrong)?;
        for _ in 0..definite(d.array().map_err(wrong)?, WHAT)? {
            expect_list(d, 2)?;
            let id = read_stream(d)?;
            let fields = Fields::decode(d.bytes().map_err(wrong)?)?;
            let stream = decode_stream(&fields)
                .ok_or_else(|| Malformed::new(WHAT, format!("{id} is not complete")))?;
            for (timer, due) in &stream.timers {
                state.due.insert((*due, id.clone(), timer.clone()));
            }
            state.streams.insert(id, stream);
        }
        for _ in 0..definite(d.array().map_err(wrong)?, WHAT)? {
            expect_list(d, 3)?;
            let sender = d.str().map_err(wrong)?.to_owned();
            let (number, clock) = (d.u64().map_err(wrong)?, d.u64().map_err(wrong)?);
            state.letters.insert(sender, Taken { number, clock });
        }
        for _ in 0..definite(d.array().map_err(wrong)?, WHAT)? {
            state.retiring.insert(read_stream(d)?);
        }
        if state.encode() != bytes {
            return Err(Malformed::new(WHAT, "not in the one form there is"));
        }
        Ok(state)
    }
}

#[allow(clippy::needless_pass_by_value)] // The shape that map_err wants.
fn wrong(error: minicbor::decode::Error) -> Malformed {
    Malformed::new(WHAT, error)
}

fn read_stream(d: &mut Decoder<'_>) -> Result<StreamId, Malformed> {
    let text = d.str().map_err(wrong)?;
    text.parse().map_err(|e| Malformed::new(WHAT, e))
}

fn expect_list(d: &mut Decoder<'_>, count: u64) -> Result<(), Malformed> {
    if d.array().map_err(wrong)? == Some(count) {
        return Ok(());
    }
    Err(Malformed::new(WHAT, "a list of another length"))
}

fn encode_stream(stream: &StreamState) -> Fields {
    let mut fields = Fields::new()
        .with(HEAD, stream.head.sequence)
        .with(HASH, stream.head.hash.as_bytes().to_vec())
        .with(CREATED, stream.created_us)
        .with(UPDATED, stream.updated_us)
        .with(LAST_TOKEN, stream.last_token);
    if let Some(status) = stream.status {
        fields = fields.with(STATUS, status.number());
    }
    if let Some(agent) = &stream.agent {
        fields = fields.with(AGENT, &**agent);
    }
    if let Some(attention) = &stream.attention {
        fields = fields.with(ATTENTION, attention.as_str());
    }
    if stream.broken {
        fields = fields.with(BROKEN, 1);
    }
    if let Some(lease) = &stream.lease {
        let list = vec![
            Value::from(&*lease.owner),
            lease.token.into(),
            lease.until_us.into(),
        ];
        fields = fields.with(LEASE, Value::List(list));
    }
    let timer = |(id, due): (&String, &u64)| Value::List(vec![id.as_str().into(), (*due).into()]);
    let timers = stream.timers.iter().map(timer).collect();
    fields.with(TIMERS, Value::List(timers))
}

fn decode_stream(fields: &Fields) -> Option<StreamState> {
    let mut timers = std::collections::BTreeMap::new();
    let Some(Value::List(list)) = fields.get(TIMERS) else {
        return None;
    };
    for timer in list {
        let Value::List(timer) = timer else {
            return None;
        };
        let [Value::Text(id), Value::Number(due)] = timer.as_slice() else {
            return None;
        };
        timers.insert(id.clone(), *due);
    }
    let lease = match fields.get(LEASE) {
        None => None,
        Some(Value::List(list)) => match list.as_slice() {
            [
                Value::Text(owner),
                Value::Number(token),
                Value::Number(until_us),
            ] => Some(Lease {
                owner: owner.as_str().into(),
                token: *token,
                until_us: *until_us,
            }),
            _ => return None,
        },
        Some(_) => return None,
    };
    let status = match fields.number(STATUS) {
        None => None,
        Some(number) => Some(Status::from_number(number)?),
    };
    Some(StreamState {
        head: Version {
            sequence: fields.number(HEAD)?,
            hash: Hash::from_bytes(fields.bytes(HASH)?.try_into().ok()?),
        },
        status,
        agent: fields.text(AGENT).map(Into::into),
        created_us: fields.number(CREATED)?,
        updated_us: fields.number(UPDATED)?,
        attention: fields.text(ATTENTION).map(str::to_owned),
        lease,
        last_token: fields.number(LAST_TOKEN)?,
        timers,
        broken: fields.number(BROKEN).is_some(),
    })
}
