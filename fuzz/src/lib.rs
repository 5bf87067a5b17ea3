//! A log folder as one string of bytes, for a fuzzer to change.
//!
//! | bytes | meaning |
//! |---:|---|
//! | 1 | flags: 1 = make the checksums of segment headers right, 2 = those of frames |
//! | then, for each file | |
//! | 1 | its segment's number; from 240 on the highest numbers there are |
//! | 1 | multiples of 512 up to which it is filled with zeros |
//! | 2 | how many bytes follow, little-endian |
//! | … | its first bytes |
//!
//! Any bytes are a folder: what is missing at the end is left out.

use std::path::PathBuf;
use std::sync::Arc;

use dalsegno_log::Options;

#[path = "../../crates/log/tests/common/mem_fs.rs"]
pub mod mem_fs;
#[path = "../../crates/log/tests/common/restamp.rs"]
pub mod restamp;

use mem_fs::MemFs;

pub const DIR: &str = "log";
pub const SEGMENT_BYTES: u64 = 4096;

const FIX_HEADERS: u8 = 1;
const FIX_FRAMES: u8 = 2;
const SECTOR: usize = 512;

/// How both programs open a log.
pub fn options(fs: &MemFs) -> Options {
    Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .without_threads()
        .fs(Arc::new(fs.clone()))
}

fn number(byte: u8) -> u64 {
    match byte {
        240.. => 9_999_999_999_999_999 - u64::from(255 - byte),
        _ => u64::from(byte),
    }
}

fn path(number: u64) -> PathBuf {
    PathBuf::from(DIR).join(restamp::file_name(number))
}

/// Whether the checksums of frames are made right, whatever the frames say.
pub fn is_forged(input: &[u8]) -> bool {
    input.first().is_some_and(|flags| flags & FIX_FRAMES != 0)
}

/// The folder that some bytes stand for.
pub fn decode(input: &[u8]) -> MemFs {
    let fs = MemFs::new();
    let Some((flags, mut rest)) = input.split_first() else {
        return fs;
    };
    while let [which, sectors, low, high, bytes @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(bytes.len());
        let (content, next) = bytes.split_at(length);
        rest = next;
        let mut content = content.to_vec();
        let size = usize::from(*sectors) * SECTOR;
        content.resize(content.len().max(size), 0);
        let number = number(*which);
        if flags & FIX_HEADERS != 0 && content.len() >= SECTOR {
            content[24..32].copy_from_slice(&number.to_le_bytes());
            restamp::header(&mut content);
        }
        if flags & FIX_FRAMES != 0 {
            for at in restamp::frame_offsets(&content) {
                restamp::frame(&mut content, number, at);
            }
        }
        fs.put(path(number), content);
    }
    fs
}

/// The bytes that stand for a folder, with these flags. Its segments must have small numbers.
pub fn encode(fs: &MemFs, flags: u8) -> Vec<u8> {
    let mut input = vec![flags];
    for path in fs.paths() {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(restamp::number_of);
        let (Some(number), Some(bytes)) = (number, fs.get(&path)) else {
            continue;
        };
        let end = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        input.push(number as u8);
        input.push((bytes.len() / SECTOR) as u8);
        input.extend_from_slice(&(end as u16).to_le_bytes());
        input.extend_from_slice(&bytes[..end]);
    }
    input
}
