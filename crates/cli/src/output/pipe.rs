//! Writing to whoever reads.
//!
//! Invariants: a reader that has gone away (`| head`) is no error: what is written then is dropped,
//! and the command ends with its own code. Any other failure is one, and comes out of the write or
//! of the last flush: nothing is lost without a word.

use std::io::{self, BufWriter, ErrorKind, Write};

/// So much is written at once.
const BUFFER_BYTES: usize = 64 * 1024;

pub struct Pipe {
    writer: BufWriter<Box<dyn Write>>,
    gone: bool,
}

impl Pipe {
    pub fn new(writer: Box<dyn Write>) -> Pipe {
        Pipe {
            writer: BufWriter::with_capacity(BUFFER_BYTES, writer),
            gone: false,
        }
    }

    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.write_bytes(text.as_bytes())
    }

    pub fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.attempt(|writer| writer.write_all(bytes))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.attempt(|writer| writer.flush())
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    fn attempt(
        &mut self,
        write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        match write(&mut self.writer) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error() {
        let mut pipe = Pipe::new(Box::new(Failing(ErrorKind::BrokenPipe)));
        assert!(pipe.write("a line\n").is_ok());
        assert!(!pipe.is_gone(), "it is only buffered");
        assert!(pipe.flush().is_ok());
        assert!(pipe.is_gone());
        assert!(pipe.write("a line\n").is_ok());
    }

    #[test]
    fn a_full_disk_is_one() {
        let mut pipe = Pipe::new(Box::new(Failing(ErrorKind::StorageFull)));
        assert!(pipe.write("a line\n").is_ok());
        assert!(pipe.flush().is_err());
    }
}
