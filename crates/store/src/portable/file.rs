//! Portable files through the one door to the file system: `io::Read` and `io::Write` over a file
//! that has positions and no cursor.
//!
//! Invariant: a write that failed can be tried again, since what it was to write is still in the
//! buffer and its place is known.

use std::io;

use dalsegno_log::fs::FsFile;

const BUFFER_BYTES: usize = 256 * 1024;

/// Writes a file from its beginning on, through a buffer. `flush` writes what is left in it; who
/// opened the file syncs it.
#[derive(Debug)]
pub struct FsWriter<'a> {
    file: &'a dyn FsFile,
    /// Where the buffer's first byte goes.
    offset: u64,
    buffer: Vec<u8>,
}

impl FsWriter<'_> {
    /// Into a file that is empty.
    pub fn new(file: &dyn FsFile) -> FsWriter<'_> {
        FsWriter {
            file,
            offset: 0,
            buffer: Vec::new(),
        }
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.file.write_full(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl io::Write for FsWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        let some = &bytes[..bytes.len().min(BUFFER_BYTES - self.buffer.len())];
        self.buffer.extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }
}

/// Reads a file from its beginning on.
#[derive(Debug)]
pub struct FsReader {
    file: Box<dyn FsFile>,
    offset: u64,
}

impl FsReader {
    /// From a file's first byte.
    pub fn new(file: Box<dyn FsFile>) -> FsReader {
        FsReader { file, offset: 0 }
    }
}

impl io::Read for FsReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(bytes, self.offset)?;
        self.offset += got as u64;
        Ok(got)
    }
}
