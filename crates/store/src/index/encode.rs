//! Making the bytes of an index file.
//!
//! Invariant: the same contents give the same bytes, in whatever order they are given.

use super::header::{HEADER_BYTES, Header};
use super::part::{self, KEY_BYTES};
use super::table;
use super::{
    Contents, EndedRun, Identity, IndexError, PIECE_KEY_BYTES, PIECE_TABLE, StreamPart, ended,
};
use crate::hash::Hash;
use crate::name::StreamId;

/// The bytes of the index of a segment. A piece that is there several times is found at its first
/// place.
///
/// # Errors
/// The contents contradict themselves: see [`IndexError::Contents`].
pub(crate) fn encode(identity: &Identity, contents: &Contents) -> Result<Vec<u8>, IndexError> {
    encode_keyed(identity, contents, part::key_of)
}

/// The same with another key for names, so that tests can make names that share one.
pub(super) fn encode_keyed(
    identity: &Identity,
    contents: &Contents,
    key_of: fn(&str) -> [u8; KEY_BYTES],
) -> Result<Vec<u8>, IndexError> {
    let refused = |why: String| IndexError::Contents {
        segment: identity.segment,
        why,
    };
    let parts = by_name(&contents.streams, |part| &part.stream).map_err(refused)?;
    let runs = by_name(&contents.ended, |run| &run.run).map_err(refused)?;
    let pieces = piece_entries(&contents.pieces, identity.segment_bytes).map_err(refused)?;
    let wrong_part = |part: &&StreamPart| part.contradiction(identity.segment_bytes);
    let wrong_run = |run: &&EndedRun| run.contradiction();
    if let Some(why) = parts.iter().find_map(wrong_part) {
        return Err(refused(why));
    }
    if let Some(why) = runs.iter().find_map(wrong_run) {
        return Err(refused(why));
    }

    let mut out = vec![0; HEADER_BYTES];
    let mut entries = Vec::with_capacity(parts.len());
    for part in &parts {
        let at = out.len();
        part::push(&mut out, identity, part);
        let key = key_of(&part.stream.to_string());
        entries.push(part::entry(key, at as u64, (out.len() - at) as u64));
    }
    // Stable: names that share a key stay in their order.
    entries.sort_by(|a, b| a[..KEY_BYTES].cmp(&b[..KEY_BYTES]));
    let ended_at = out.len() as u64;
    for run in &runs {
        ended::push(&mut out, identity, run);
    }
    let header = Header {
        ended_at,
        ended: runs.len() as u64,
        streams: table::encode(&mut out, identity, part::TABLE, &entries),
        pieces: table::encode(&mut out, identity, PIECE_TABLE, &pieces),
    };
    out[..HEADER_BYTES].copy_from_slice(&header.encode(identity));
    Ok(out)
}

/// Sorted; an error says which name is there twice.
fn by_name<T>(items: &[T], name: impl Fn(&T) -> &StreamId) -> Result<Vec<&T>, String> {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort_by_key(|item| name(item));
    match sorted.windows(2).find(|two| name(two[0]) == name(two[1])) {
        Some(two) => Err(format!("{} is there twice", name(two[0]))),
        None => Ok(sorted),
    }
}

/// The entries of the piece table, sorted.
fn piece_entries(
    pieces: &[(Hash, u64)],
    segment_bytes: u64,
) -> Result<Vec<[u8; PIECE_KEY_BYTES + 8]>, String> {
    if let Some((hash, place)) = pieces.iter().find(|(_, place)| *place >= segment_bytes) {
        return Err(format!("the piece {hash} at {place} is behind its end"));
    }
    let mut sorted = pieces.to_vec();
    sorted.sort_unstable();
    sorted.dedup_by_key(|(hash, _)| *hash);
    let entry = |(hash, place): (Hash, u64)| {
        let mut entry = [0; PIECE_KEY_BYTES + 8];
        entry[..PIECE_KEY_BYTES].copy_from_slice(hash.as_bytes());
        entry[PIECE_KEY_BYTES..].copy_from_slice(&place.to_le_bytes());
        entry
    };
    Ok(sorted.into_iter().map(entry).collect())
}
