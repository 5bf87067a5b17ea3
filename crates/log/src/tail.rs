//! What comes after the last good frame: nothing, a torn tail, or damage.
//!
//! At most one sync group is ever written and not yet synced. So when a crash tears bytes, all
//! torn bytes belong to one group, and no frame of a later group can exist anywhere. That tells a
//! torn tail, which was never acknowledged, from damage to bytes that were. A rewritten segment was
//! synced before it got its name; nothing in it can be torn, wherever it stands.

use std::io;

use crate::error::Damage;
use crate::frame::{self, ALIGN, HEADER_BYTES, PlaceSeed};
use crate::fs::FsFile;

/// What is read is looked at once, and stays close to the processor.
const CHUNK_BYTES: usize = 64 * 1024;

/// What to do about bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The log ends here.
    Clean,
    /// A crash interrupted a write here. Nothing of it was acknowledged: cut it off.
    Torn,
    /// Acknowledged bytes have changed or vanished: refuse.
    Damage,
}

/// The rule.
pub(crate) fn verdict(may_be_torn: bool, written: bool, later_group_follows: bool) -> Verdict {
    match (may_be_torn, written, later_group_follows) {
        // the last one,    | bytes other than | a valid frame of
        // not rewritten    | zero follow      | a later group follows
        (true, false, false) => Verdict::Clean,
        (true, true, false) => Verdict::Torn,
        (true, _, true) => Verdict::Damage,
        // A segment with a successor, or rewritten, ends in a seal; anything else is damage.
        (false, _, _) => Verdict::Damage,
    }
}

/// What was found behind the last good frame of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Behind the last byte that is not zero; `None` if all are.
    pub written_until: Option<u64>,
    /// The first valid frame of a later group than the one that can be torn.
    pub later_frame: Option<u64>,
}

impl Rest {
    /// Whether this is damage, behind a seal. Nobody reads there. A torn tail was overwritten with
    /// zeros and then the sealed file was cut; but if the syncs of both failed, the torn bytes can
    /// come back, also when other segments have followed. They are of no later group than the seal,
    /// and never in a segment that was rewritten.
    pub fn is_damage_behind_seal(&self, rewritten: bool) -> bool {
        self.later_frame.is_some() || rewritten && self.written_until.is_some()
    }
}

/// Reads everything from `from` to the end of the file, looking for valid frames of any group
/// after `group`.
pub(crate) fn examine(
    file: &dyn FsFile,
    seed: PlaceSeed,
    from: u64,
    group: u64,
) -> io::Result<Rest> {
    let mut rest = Rest {
        written_until: None,
        later_frame: None,
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = from;
    loop {
        let got = file.read_full(&mut chunk, at)?;
        let bytes = &chunk[..got];
        if let Some(last) = last_nonzero(bytes) {
            rest.written_until = Some(at + last as u64 + 1);
            if rest.later_frame.is_none() {
                let later = |h: &frame::Header| h.group > group;
                let found = find_frame(file, seed, bytes, at, later)?;
                rest.later_frame = found.map(|(offset, _)| offset);
            }
        }
        // Headers that begin near the end of this chunk are looked at in the next one.
        if got < chunk.len() {
            return Ok(rest);
        }
        at += (got - HEADER_BYTES) as u64 / ALIGN * ALIGN;
    }
}

/// The first valid frame at or after `from`, and its group. For going on behind damage.
pub(crate) fn next_frame(
    file: &dyn FsFile,
    seed: PlaceSeed,
    from: u64,
) -> io::Result<Option<(u64, u64)>> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = from;
    loop {
        let got = file.read_full(&mut chunk, at)?;
        let found = find_frame(file, seed, &chunk[..got], at, |_| true)?;
        if found.is_some() || got < chunk.len() {
            return Ok(found);
        }
        at += (got - HEADER_BYTES) as u64 / ALIGN * ALIGN;
    }
}

/// The group of the valid frame at exactly this place, if there is one.
pub(crate) fn frame_at(file: &dyn FsFile, seed: PlaceSeed, at: u64) -> io::Result<Option<u64>> {
    let mut bytes = [0; HEADER_BYTES];
    let got = file.read_full(&mut bytes, at)?;
    let found = find_frame(file, seed, &bytes[..got], at, |_| true)?;
    Ok(found.map(|(_, group)| group))
}

/// Whether any byte from `from` on is not zero.
pub(crate) fn any_nonzero(file: &dyn FsFile, from: u64) -> io::Result<bool> {
    each_chunk(file, from, |_, bytes| last_nonzero(bytes).is_none())
        .map(|all_looked_at| !all_looked_at)
}

/// Behind the last byte from `from` on that is not zero; `None` if all are.
pub(crate) fn written_until(file: &dyn FsFile, from: u64) -> io::Result<Option<u64>> {
    let mut until = None;
    each_chunk(file, from, |at, bytes| {
        if let Some(last) = last_nonzero(bytes) {
            until = Some(at + last as u64 + 1);
        }
        true
    })?;
    Ok(until)
}

/// Reads to the end of the file, as long as `go_on` says so; true if it came to the end.
fn each_chunk(
    file: &dyn FsFile,
    from: u64,
    mut go_on: impl FnMut(u64, &[u8]) -> bool,
) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = from;
    loop {
        let got = file.read_full(&mut chunk, at)?;
        if !go_on(at, &chunk[..got]) {
            return Ok(false);
        }
        if got < chunk.len() {
            return Ok(true);
        }
        at += got as u64;
    }
}

/// The damage that the bytes at `offset` are.
pub(crate) fn damage(segment: u64, offset: u64, bad: &crate::cursor::Bad) -> Damage {
    Damage {
        segment,
        offset,
        expected: bad.expected.clone(),
        found: bad.found.clone(),
    }
}

fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 4096;
    // Whole blocks first: comparing with zeros is a memcmp.
    let mut end = bytes.len();
    while end > 0 {
        let start = (end - 1) / BLOCK * BLOCK;
        if bytes[start..end] != [0; BLOCK][..end - start] {
            return bytes[start..end]
                .iter()
                .rposition(|byte| *byte != 0)
                .map(|position| start + position);
        }
        end = start;
    }
    None
}

fn find_frame(
    file: &dyn FsFile,
    seed: PlaceSeed,
    bytes: &[u8],
    bytes_at: u64,
    wanted: impl Fn(&frame::Header) -> bool,
) -> io::Result<Option<(u64, u64)>> {
    let mut at = 0;
    while at + HEADER_BYTES <= bytes.len() {
        let offset = bytes_at + at as u64;
        if let Ok(header) = frame::decode(&bytes[at..], seed, offset)
            && wanted(&header)
            && payload_is_whole(file, &header, offset)?
        {
            return Ok(Some((offset, header.group)));
        }
        at += ALIGN as usize;
    }
    Ok(None)
}

fn payload_is_whole(file: &dyn FsFile, header: &frame::Header, offset: u64) -> io::Result<bool> {
    let payload_at = offset + HEADER_BYTES as u64;
    if u64::from(header.payload_bytes) > file.len()?.saturating_sub(payload_at) {
        return Ok(false);
    }
    let mut payload = vec![0; header.payload_bytes as usize];
    let got = file.read_full(&mut payload, payload_at)?;
    Ok(got == payload.len() && crc32c::crc32c(&payload) == header.payload_crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_one_verdict() {
        let mut seen = Vec::new();
        for last in [false, true] {
            for written in [false, true] {
                for later in [false, true] {
                    seen.push(verdict(last, written, later));
                }
            }
        }
        let torn = seen.iter().filter(|v| **v == Verdict::Torn).count();
        let clean = seen.iter().filter(|v| **v == Verdict::Clean).count();
        assert_eq!((torn, clean, seen.len()), (1, 1, 8));
    }

    #[test]
    fn finds_the_last_byte_that_is_not_zero() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            assert_eq!(last_nonzero(&vec![0; len]), None);
            for at in [0, len / 2, len.saturating_sub(1)] {
                let mut bytes = vec![0; len];
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 1;
                    assert_eq!(last_nonzero(&bytes), Some(at));
                }
            }
        }
    }
}
