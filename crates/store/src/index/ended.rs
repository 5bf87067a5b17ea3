//! The runs that ended in a segment: enough of each to list it without its history.
//!
//! | offset | size | field |
//! |---:|---:|---|
//! | 0 | 4 | checksum of everything from byte 4 on, see `source.rs` |
//! | 4 | 4 | bytes of the agent's name |
//! | 8 | 8 | when it was created, microseconds since 1970 |
//! | 16 | 8 | when it ended |
//! | 24 | 8 | sequence of its last event |
//! | 32 | 32 | chain hash at its last event |
//! | 64 | 1 | how it ended: 3 = completed, 4 = failed, 5 = cancelled |
//! | 65 | 1 | 1 if it has an agent, else 0 |
//! | 66 | 2 | bytes of the run's name |
//! | 68 | | the run's name, as in `run/order-42`, then the agent's |
//!
//! They follow each other without gaps, in the order of their names.
//!
//! Invariant: what is shown was checked as a whole, its lengths included.

use super::bytes::{array_at, u16_at, u32_at, u64_at};
use super::source::{self, Source, Window};
use super::{EndedRun, Identity, IndexError};
use crate::event::Version;
use crate::hash::Hash;
use crate::state::Status;

const CRC_BYTES: usize = 4;
const AGENT_BYTES_AT: usize = 4;
const CREATED_AT: usize = 8;
const ENDED_AT: usize = 16;
const SEQUENCE_AT: usize = 24;
const HASH_AT: usize = 32;
const STATUS_AT: usize = 64;
const HAS_AGENT_AT: usize = 65;
const NAME_BYTES_AT: usize = 66;
/// A run without the names.
pub(super) const FIXED_BYTES: usize = 68;

/// Appends a run to a file in the making.
pub(super) fn push(out: &mut Vec<u8>, identity: &Identity, run: &EndedRun) {
    let name = run.run.to_string();
    let agent = run.agent.as_deref().unwrap_or("");
    let at = out.len();
    out.extend_from_slice(&[0; CRC_BYTES]);
    out.extend_from_slice(&(agent.len() as u32).to_le_bytes());
    out.extend_from_slice(&run.created_us.to_le_bytes());
    out.extend_from_slice(&run.ended_us.to_le_bytes());
    out.extend_from_slice(&run.head.sequence.to_le_bytes());
    out.extend_from_slice(run.head.hash.as_bytes());
    out.push(run.status.number() as u8);
    out.push(u8::from(run.agent.is_some()));
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(agent.as_bytes());
    let crc = source::checksum(identity, at as u64, &out[at + CRC_BYTES..]);
    out[at..at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// The run at `at`, and where the next one begins.
pub(super) fn read(
    source: &Source,
    window: &mut Window<'_>,
    at: u64,
) -> Result<(EndedRun, u64), IndexError> {
    let fixed = window.get(at, FIXED_BYTES as u64)?;
    let name_bytes = usize::from(u16_at(fixed, NAME_BYTES_AT));
    let agent_bytes = u64::from(u32_at(fixed, AGENT_BYTES_AT));
    // Not yet checked; the window allows no more than the section has.
    let length = (FIXED_BYTES + name_bytes) as u64 + agent_bytes;
    let bytes = window.get(at, length)?;
    source.compare(at, &bytes[CRC_BYTES..], u32_at(bytes, 0))?;
    let nonsense = |what: &str, found: String| source.damage(at, what, found);

    let (name, agent) = bytes[FIXED_BYTES..].split_at(name_bytes);
    let text = |bytes| {
        str::from_utf8(bytes).map_err(|e| nonsense("names in UTF-8", format!("bytes: {e}")))
    };
    let run = text(name)?
        .parse()
        .map_err(|e| nonsense("the name of a run", format!("{e}")))?;
    let agent = match (bytes[HAS_AGENT_AT], text(agent)?) {
        (0, "") => None,
        (1, agent) => Some(agent.to_owned()),
        (other, _) => return Err(nonsense("an agent or none", other.to_string())),
    };
    let number = bytes[STATUS_AT];
    let status = Status::from_number(u64::from(number))
        .filter(|status| status.is_final())
        .ok_or_else(|| nonsense("how a run ended", number.to_string()))?;
    let run = EndedRun {
        run,
        status,
        agent,
        created_us: u64_at(bytes, CREATED_AT),
        ended_us: u64_at(bytes, ENDED_AT),
        head: Version {
            sequence: u64_at(bytes, SEQUENCE_AT),
            hash: Hash::from_bytes(array_at(bytes, HASH_AT)),
        },
    };
    Ok((run, at + length))
}

impl EndedRun {
    /// Why this cannot be a run that ended, if it cannot.
    pub(super) fn contradiction(&self) -> Option<String> {
        let run = &self.run;
        if !self.status.is_final() {
            return Some(format!("{run} has ended and is {}", self.status));
        }
        let agent_bytes = self.agent.as_ref().map_or(0, String::len);
        u32::try_from(agent_bytes)
            .is_err()
            .then(|| format!("the agent of {run} has a name of {agent_bytes} bytes"))
    }
}
