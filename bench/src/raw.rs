//! The anchor for durable appends: the least that any program has to do.
//!
//! One thread writes a frame's bytes at ascending offsets into a file that was filled with zeros
//! and synced before, and calls `fdatasync` after each write. No numbers, no checksums, no sharing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;

/// How tables call it.
pub const NAME: &str = "raw write + fdatasync loop";

const FILE_BYTES: u64 = 16 * 1024 * 1024;
/// As the log does it. After one large write instead, appends took about a tenth longer: a handicap
/// that an anchor must not have.
const ZERO_CHUNK_BYTES: usize = 256 * 1024;

/// The file, and where the next write goes.
#[derive(Debug)]
pub struct RawLoop {
    file: File,
    frame: Vec<u8>,
    at: u64,
}

impl RawLoop {
    /// Prepares the file in `dir` for writes of `frame_bytes`.
    pub fn new(dir: &Path, frame_bytes: usize) -> Result<RawLoop, Error> {
        let path = dir.join("raw");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let zeros = vec![0; ZERO_CHUNK_BYTES];
        for _ in 0..FILE_BYTES / ZERO_CHUNK_BYTES as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        Ok(RawLoop {
            file,
            frame: vec![0xa5; frame_bytes],
            at: 0,
        })
    }

    /// One durable append. At the end of the file it begins again at the start.
    pub fn append(&mut self) -> Result<(), Error> {
        let bytes = self.frame.len() as u64;
        if self.at + bytes > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&self.frame, self.at)?;
        self.file.sync_data()?;
        self.at += bytes;
        Ok(())
    }
}
