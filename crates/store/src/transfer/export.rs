//! Streams of any store into a portable file.
//!
//! Invariant: what is written of a stream is its history up to one moment, whose hashes fit.
//! What it has forgotten when that begins is not written, also if the store has not removed it yet.
//! What is forgotten while it is read is not missed: then the history is written up to there.

use std::collections::BTreeSet;
use std::io::Write;

use super::{PAGE_EVENTS, pieces};
use crate::error::StoreError;
use crate::event::Version;
use crate::forgotten::forgotten_in;
use crate::hash::Hash;
use crate::name::{StreamId, StreamKind};
use crate::portable::{About, Holds, PortableReport, PortableWriter};
use crate::store::Store;

/// What to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// Everything.
    Store,
    /// These streams.
    Streams(BTreeSet<StreamId>),
}

/// Writes streams to anything that takes bytes. `created_us` is when, in microseconds since 1970.
///
/// # Errors
/// A stream is not there or damaged, or the bytes were not taken.
pub async fn export(
    store: &dyn Store,
    what: &Export,
    created_us: u64,
    to: impl Write,
) -> Result<PortableReport, StoreError> {
    let (streams, holds) = match what {
        Export::Streams(streams) => {
            let holds = Holds::Streams(streams.clone());
            (streams.iter().cloned().collect(), holds)
        }
        Export::Store => {
            let mut all = Vec::new();
            for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
                let streams = store.streams(kind, None, 0).await?;
                all.extend(streams.into_iter().map(|(stream, _)| stream));
            }
            (all, Holds::Store)
        }
    };
    let mut writer = PortableWriter::new(to, About { holds, created_us })?;
    for stream in &streams {
        export_stream(store, stream, &mut writer).await?;
    }
    let (_, report) = writer.finish()?;
    Ok(report)
}

async fn export_stream<W: Write>(
    store: &dyn Store,
    stream: &StreamId,
    writer: &mut PortableWriter<W>,
) -> Result<(), StoreError> {
    // What is appended from now on is not part of it.
    let mut head = head(store, stream).await?;
    let mut forgotten = forgotten_in(store, stream, head).await?;
    let mut next = 1;
    let mut hash = Hash::ZERO;
    while next <= head.sequence {
        let left = usize::try_from(head.sequence - next + 1).unwrap_or(usize::MAX);
        let page = store.events(stream, next, left.min(PAGE_EVENTS)).await?;
        if page.is_empty() {
            let expected = format!("event {next}");
            return Err(StoreError::damaged(stream.to_string(), expected, "none"));
        }
        next += page.len() as u64;
        for event in page {
            if !forgotten.contains(&event.sequence) {
                let needed = pieces::of_event(store, &event, |hash| writer.has_piece(hash)).await;
                let needed = match needed {
                    Ok(needed) => needed,
                    Err(missing) => {
                        head = self::head(store, stream).await?;
                        forgotten = forgotten_in(store, stream, head).await?;
                        let is_forgotten = forgotten.contains(&event.sequence);
                        is_forgotten.then(Vec::new).ok_or(missing)?
                    }
                };
                for piece in needed {
                    writer.piece(&piece.hash, &piece.bytes)?;
                }
            }
            let bytes = event.encode();
            hash = hash.chain(&bytes);
            writer.event(&bytes)?;
        }
    }
    if hash != head.hash {
        let (expected, found) = (head.hash.to_string(), hash.to_string());
        return Err(StoreError::damaged(stream.to_string(), expected, found));
    }
    Ok(())
}

async fn head(store: &dyn Store, stream: &StreamId) -> Result<Version, StoreError> {
    let head = store.head(stream).await?;
    head.ok_or_else(|| StoreError::NotFound {
        stream: stream.clone(),
    })
}
