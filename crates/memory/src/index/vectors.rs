//! The vectors of a memory, side by side in the order of their documents.
//!
//! Invariant: the best are the same however the vectors are shared out among threads, because the
//! order of hits is total: by dot product, then by number.

use std::collections::HashSet;

use dalsegno_store::{Hash, Version};

use super::blob::{BlobReader, BlobWriter};
use super::table::{At, Table};
use crate::document::Content;
use crate::dot::Way;
use crate::top::Top;

/// With fewer vectors for each, a thread costs more than it saves.
const VECTORS_PER_THREAD: usize = 8192;

#[derive(Debug)]
pub(crate) struct VectorIndex {
    pub dimension: usize,
    /// How many documents it has seen.
    seen: u32,
    /// Those that have a vector.
    docs: Vec<u32>,
    components: Vec<i8>,
}

impl VectorIndex {
    /// After so many documents without a vector.
    pub fn new(dimension: usize, seen: u32) -> VectorIndex {
        VectorIndex {
            dimension,
            seen,
            docs: Vec::new(),
            components: Vec::new(),
        }
    }

    pub fn documents(&self) -> u32 {
        self.seen
    }

    /// Adds the next document. A vector of another dimension, which nobody should have written, is
    /// not searched.
    pub fn add(&mut self, content: Option<&Content>) {
        let vector = content.and_then(|content| content.vector.as_ref());
        if let Some(vector) = vector.filter(|v| v.dimension() == self.dimension) {
            self.docs.push(self.seen);
            self.components.extend_from_slice(vector.components());
        }
        self.seen += 1;
    }

    pub fn remove(&mut self, forgotten: &HashSet<u32>) {
        let rows = self.components.chunks_exact(self.dimension);
        let kept = self.docs.iter().zip(rows);
        let kept: Vec<(u32, &[i8])> = kept
            .filter(|(doc, _)| !forgotten.contains(doc))
            .map(|(doc, row)| (*doc, row))
            .collect();
        if kept.len() < self.docs.len() {
            let docs = kept.iter().map(|(doc, _)| *doc).collect();
            let components = kept.iter().flat_map(|(_, row)| row.iter().copied());
            (self.components, self.docs) = (components.collect(), docs);
        }
    }

    /// The best documents of a version.
    #[allow(clippy::too_many_arguments)] // What a scan needs; a struct for one call would hide it.
    pub fn best(
        &self,
        table: &Table,
        at: &At,
        query: &[i8],
        way: Way,
        threads: usize,
        depth: usize,
        wants: &(dyn Fn(u32) -> bool + Sync),
    ) -> Vec<(i64, u32)> {
        let born = self.docs.partition_point(|doc| *doc < at.born);
        let scan = |from: usize, to: usize| {
            let mut top = Top::new(depth);
            let rows = &self.components[from * self.dimension..to * self.dimension];
            let rows = rows.chunks_exact(self.dimension);
            for (doc, row) in self.docs[from..to].iter().zip(rows) {
                if table.deaths[*doc as usize] > at.version.sequence {
                    let dot = i64::from(way.dot(row, query));
                    top.offer(dot, *doc, wants);
                }
            }
            top.finish()
        };
        let threads = threads.min(born / VECTORS_PER_THREAD).max(1);
        if threads == 1 {
            return scan(0, born);
        }
        let share = born.div_ceil(threads);
        let parts: Vec<(usize, usize)> = (0..threads)
            .map(|n| ((n * share).min(born), ((n + 1) * share).min(born)))
            .collect();
        let mut top = Top::new(depth);
        std::thread::scope(|scope| {
            let (here, elsewhere) = parts.split_at(1);
            let scan = &scan;
            let running: Vec<_> = elsewhere
                .iter()
                .map(|(from, to)| {
                    let part = (*from, *to);
                    let thread = std::thread::Builder::new().name("dalsegno-vectors".into());
                    (
                        part,
                        thread.spawn_scoped(scope, move || scan(part.0, part.1)),
                    )
                })
                .collect();
            let mut found: Vec<_> = here
                .iter()
                .flat_map(|(from, to)| scan(*from, *to))
                .collect();
            for ((from, to), thread) in running {
                found.extend(match thread.map(std::thread::ScopedJoinHandle::join) {
                    Ok(Ok(part)) => part,
                    // The machine gives no more threads.
                    Err(_) => scan(from, to),
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                });
            }
            for (dot, doc) in found {
                top.offer(dot, doc, &|_| true);
            }
        });
        top.finish()
    }

    pub fn encode(&self, of: &Hash, version: Version) -> Vec<u8> {
        let mut writer = BlobWriter::new(of, version);
        writer.number(self.dimension as u64);
        writer.number(u64::from(self.seen));
        writer.number(self.docs.len() as u64);
        writer.numbers_u32(&self.docs);
        let bytes: Vec<u8> = self.components.iter().map(|c| *c as u8).collect();
        writer.bytes(&bytes);
        writer.finish()
    }

    pub fn decode(bytes: &[u8], of: &Hash) -> Option<(VectorIndex, Version)> {
        let mut reader = BlobReader::open(bytes, of)?;
        let dimension = usize::try_from(reader.number()?).ok()?;
        let seen = u32::try_from(reader.number()?).ok()?;
        let count = reader.count(4)?;
        let docs = reader.numbers_u32(count)?;
        let bytes = reader.take(count.checked_mul(dimension)?)?;
        reader.end()?;
        let fits = dimension > 0 && docs.last().is_none_or(|last| *last < seen);
        fits.then(|| {
            let index = VectorIndex {
                dimension,
                seen,
                docs,
                components: bytes.iter().map(|byte| *byte as i8).collect(),
            };
            (index, reader.version)
        })
    }
}
