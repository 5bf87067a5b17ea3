//! A table on disk from keys to values: one read of one block finds a key, or that it is not there.
//!
//! Entries are sorted by key and lie in blocks of 4 KiB. The first eight bytes of a key, as a
//! fraction of all they can be, say in which block its *home* is. An entry is in its home, or, if
//! that is full, in the first block behind it that has room. Homes rise with the keys, so that the
//! whole table is sorted, and a search ends at a block that has room, or that has a greater key.
//!
//! Keys are parts of hashes, and homes are made for three quarters of what a block holds; almost
//! every home has room then. Whatever the keys are, also all the same, a table can be made and is
//! right; only its searches are longer.
//!
//! | offset | size | field of a block |
//! |---:|---:|---|
//! | 0 | 4 | checksum of bytes 4..4096, see `source.rs` |
//! | 4 | 2 | entries in it |
//! | 6 | 2 | zero |
//! | 8 | | the entries: key, then value |
//! | | | zero to the end |
//!
//! Invariant: no answer without the checksum of every block that it follows from.

use super::bytes::{array_at, u16_at, u32_at};
use super::source::{self, Source, Window};
use super::{Identity, IndexError};

pub(super) const BLOCK_BYTES: usize = 4096;
const CRC_BYTES: usize = 4;
const COUNT_AT: usize = 4;
const ENTRIES_AT: usize = 8;

/// How large the entries of a table are. Keys have at least eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub key_bytes: usize,
    pub value_bytes: usize,
}

impl Shape {
    const fn entry_bytes(&self) -> usize {
        self.key_bytes + self.value_bytes
    }

    /// How many entries a block holds.
    pub const fn per_block(&self) -> usize {
        (BLOCK_BYTES - ENTRIES_AT) / self.entry_bytes()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// Where its first block is in the file.
    pub at: u64,
    pub entries: u64,
    /// Blocks that are somebody's home.
    pub homes: u64,
    /// All blocks: the homes, and those behind them that were needed because the last were full.
    pub blocks: u64,
    pub shape: Shape,
}

/// Appends the table of these entries, keys and values joined, to a file in the making. They are
/// sorted by key.
pub(super) fn encode<const ENTRY_BYTES: usize>(
    out: &mut Vec<u8>,
    identity: &Identity,
    shape: Shape,
    entries: &[[u8; ENTRY_BYTES]],
) -> Table {
    let per_block = shape.per_block();
    let homes = match entries.len() {
        few if few <= per_block => few.min(1),
        many => many.div_ceil(per_block * 3 / 4),
    };
    let mut table = Table {
        at: out.len() as u64,
        entries: entries.len() as u64,
        homes: homes as u64,
        blocks: 0,
        shape,
    };
    let mut rest = entries;
    while !rest.is_empty() || table.blocks < table.homes {
        let belong = |entry: &&[u8; ENTRY_BYTES]| table.home(*entry) <= table.blocks;
        let here = rest.iter().take(per_block).take_while(belong).count();
        let (block, later) = rest.split_at(here);
        push_block(out, identity, block);
        table.blocks += 1;
        rest = later;
    }
    table
}

fn push_block<const ENTRY_BYTES: usize>(
    out: &mut Vec<u8>,
    identity: &Identity,
    entries: &[[u8; ENTRY_BYTES]],
) {
    let at = out.len();
    out.extend_from_slice(&[0; CRC_BYTES]);
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.extend_from_slice(entries.as_flattened());
    out.resize(at + BLOCK_BYTES, 0);
    let crc = source::checksum(identity, at as u64, &out[at + CRC_BYTES..]);
    out[at..at + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// A block whose checksum is right.
struct Block<'a> {
    shape: Shape,
    entries: &'a [u8],
    unused: &'a [u8],
}

impl<'a> Block<'a> {
    fn decode(
        source: &Source,
        at: u64,
        shape: Shape,
        bytes: &'a [u8],
    ) -> Result<Block<'a>, IndexError> {
        source.compare(at, &bytes[CRC_BYTES..], u32_at(bytes, 0))?;
        let count = usize::from(u16_at(bytes, COUNT_AT));
        if count > shape.per_block() || u16_at(bytes, COUNT_AT + 2) != 0 {
            let expected = format!("a block of at most {} entries", shape.per_block());
            return Err(source.damage(at, expected, format!("{count}")));
        }
        let (entries, unused) = bytes[ENTRIES_AT..].split_at(count * shape.entry_bytes());
        Ok(Block {
            shape,
            entries,
            unused,
        })
    }

    fn len(&self) -> usize {
        self.entries.len() / self.shape.entry_bytes()
    }

    fn is_full(&self) -> bool {
        self.len() == self.shape.per_block()
    }

    fn entry(&self, index: usize) -> (&'a [u8], &'a [u8]) {
        let bytes = self.shape.entry_bytes();
        self.entries[index * bytes..][..bytes].split_at(self.shape.key_bytes)
    }

    /// The index of the first entry whose key is not less.
    fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.entry(middle).0 < key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

impl Table {
    /// Whether a table can have these numbers.
    pub fn is_possible(&self) -> bool {
        let room = self.blocks.saturating_mul(self.shape.per_block() as u64);
        self.homes <= self.blocks && self.entries <= room && (self.homes == 0) == (room == 0)
    }

    /// The block in which the search for a key begins.
    fn home(&self, key: &[u8]) -> u64 {
        let fraction = u64::from_be_bytes(array_at(key, 0));
        ((u128::from(fraction) * u128::from(self.homes)) >> 64) as u64
    }

    /// Where it ends in the file.
    pub fn end(&self) -> u64 {
        self.block_at(self.blocks)
    }

    fn block_at(&self, number: u64) -> u64 {
        self.at + number * BLOCK_BYTES as u64
    }

    /// Shows the values of a key, one after the other, until one of them is what is looked for.
    pub fn find<T>(
        &self,
        source: &Source,
        key: &[u8],
        mut is_it: impl FnMut(&[u8]) -> Result<Option<T>, IndexError>,
    ) -> Result<Option<T>, IndexError> {
        for number in self.home(key)..self.blocks {
            let at = self.block_at(number);
            let bytes = source.read(at, BLOCK_BYTES as u64)?;
            let block = Block::decode(source, at, self.shape, &bytes)?;
            for index in block.lower_bound(key)..block.len() {
                let (found, value) = block.entry(index);
                if found != key {
                    return Ok(None);
                }
                if let Some(answer) = is_it(value)? {
                    return Ok(Some(answer));
                }
            }
            if !block.is_full() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Reads every block, and shows every entry: where its block is, key and value. Each is where a
    /// search finds it, or this is an error.
    pub fn check(
        &self,
        source: &Source,
        mut each: impl FnMut(u64, &[u8], &[u8]) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut window = Window::new(source, self.end());
        let mut last: Vec<u8> = Vec::new();
        let mut entries = 0;
        // All blocks from this one on to the one before the present one are full.
        let mut full_from = 0;
        for number in 0..self.blocks {
            let at = self.block_at(number);
            let bytes = window.get(at, BLOCK_BYTES as u64)?;
            let block = Block::decode(source, at, self.shape, bytes)?;
            if block.unused.iter().any(|byte| *byte != 0) {
                return Err(source.damage(at, "zeros behind the entries", "others"));
            }
            for index in 0..block.len() {
                let (key, value) = block.entry(index);
                if !(full_from..=number).contains(&self.home(key)) || key < &last[..] {
                    let expected = "entries where a search finds them";
                    return Err(source.damage(at, expected, format!("entry {index} elsewhere")));
                }
                key.clone_into(&mut last);
                each(at, key, value)?;
            }
            entries += block.len() as u64;
            if !block.is_full() {
                full_from = number + 1;
            }
        }
        if entries != self.entries {
            let expected = format!("a table of {} entries", self.entries);
            return Err(source.damage(self.at, expected, format!("{entries}")));
        }
        Ok(())
    }
}
