//! Writes a portable file, from the first byte to the last.
//!
//! Invariant: what cannot be read again is refused before a byte of it is written. After a failed
//! write nothing more is written, so that a file without an end is all that can be left.

use std::io;

use super::book::{Book, Wrong};
use super::frame::{self, End, HEADS_PER_FRAME, Tag};
use super::{About, PortableError, PortableReport};
use crate::event::Version;
use crate::hash::Hash;

/// Writes a portable file.
///
/// ```
/// use dalsegno_store::portable::{About, Holds, PortableWriter, verify_portable};
/// use dalsegno_store::{Event, Kind, StreamId};
///
/// let run = StreamId::run("order-42")?;
/// let about = About {
///     holds: Holds::Streams([run.clone()].into()),
///     created_us: 0,
/// };
/// let mut writer = PortableWriter::new(Vec::new(), about)?;
/// writer.event(&Event::new(run, 1, 1, 0, Kind::RunCreated).encode())?;
/// let (file, written) = writer.finish()?;
/// assert_eq!(verify_portable(file.as_slice())?, written);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PortableWriter<W: io::Write> {
    to: W,
    about: About,
    book: Book,
    hasher: blake3::Hasher,
    offset: u64,
    /// A write failed.
    stopped: bool,
}

impl<W: io::Write> PortableWriter<W> {
    /// Begins a file. Many small writes go to `to`: give it a buffer.
    ///
    /// # Errors
    /// `about` names no stream, or more than fit; or the write failed.
    pub fn new(to: W, about: About) -> Result<PortableWriter<W>, PortableError> {
        let content = frame::encode_about(&about);
        frame::decode_about(&content)
            .map_err(|found| refused(Wrong::new("a list of streams", found)))?;
        let mut writer = PortableWriter {
            to,
            book: Book::new(about.holds.clone()),
            about,
            hasher: blake3::Hasher::new(),
            offset: 0,
            stopped: false,
        };
        check_length(Tag::About, content.len())?;
        writer.write(&frame::head())?;
        writer.frame(Tag::About, &[&content])?;
        Ok(writer)
    }

    /// Whether the piece is in the file, and everything below it.
    pub fn has_piece(&self, hash: &Hash) -> bool {
        self.book.has_piece(hash)
    }

    /// Adds a piece as stored, if it is not in the file yet; says whether it was added.
    ///
    /// # Errors
    /// The bytes are not the piece with this hash, a child of it has not come before, or the write
    /// failed.
    pub fn piece(&mut self, hash: &Hash, bytes: &[u8]) -> Result<bool, PortableError> {
        self.check_going()?;
        if self.book.has_piece(hash) {
            return Ok(false);
        }
        check_length(Tag::Piece, frame::HASH_BYTES + bytes.len())?;
        self.book.piece(hash, bytes).map_err(refused)?;
        self.frame(Tag::Piece, &[hash.as_bytes(), bytes])?;
        Ok(true)
    }

    /// Adds an event by its bytes, and gives the version of its stream at it.
    ///
    /// # Errors
    /// The bytes are no event, it is not the next of its stream, its stream is not one of those
    /// that the file holds, the root of a payload of it has not come before, or the write failed.
    pub fn event(&mut self, bytes: &[u8]) -> Result<Version, PortableError> {
        self.check_going()?;
        check_length(Tag::Event, bytes.len())?;
        let (_, version) = self.book.event(bytes).map_err(refused)?;
        self.frame(Tag::Event, &[bytes])?;
        Ok(version)
    }

    /// Ends the file and flushes it. To make it durable is left to who knows where it is.
    ///
    /// # Errors
    /// A stream that the file says it holds has no event, or a write failed. The file is of no use
    /// then.
    pub fn finish(mut self) -> Result<(W, PortableReport), PortableError> {
        self.check_going()?;
        self.book.check_complete().map_err(refused)?;
        let mut heads = Vec::new();
        let mut all = self.book.heads().iter().peekable();
        while all.peek().is_some() {
            let some: Vec<_> = all.by_ref().take(HEADS_PER_FRAME).collect();
            heads.push(frame::encode_heads(&some));
        }
        for content in heads {
            self.frame(Tag::Heads, &[&content])?;
        }
        let end = End {
            events: self.book.events(),
            pieces: self.book.pieces(),
            streams: self.book.heads().len() as u64,
            hash: Hash::from_bytes(*self.hasher.finalize().as_bytes()),
        };
        self.frame(Tag::End, &[&end.encode()])?;
        let offset = self.offset;
        let flushed = self.to.flush();
        flushed.map_err(|error| PortableError::Io { offset, error })?;
        let report = PortableReport {
            about: self.about,
            events: end.events,
            pieces: end.pieces,
            bytes: offset,
            hash: end.hash,
            streams: self.book.into_heads(),
        };
        Ok((self.to, report))
    }

    fn check_going(&self) -> Result<(), PortableError> {
        match self.stopped {
            true => Err(PortableError::Stopped),
            false => Ok(()),
        }
    }

    /// Writes a frame, whose length was checked.
    fn frame(&mut self, tag: Tag, parts: &[&[u8]]) -> Result<(), PortableError> {
        let len = parts.iter().map(|part| part.len() as u32).sum();
        self.write(&frame::frame_head(tag, len, parts))?;
        parts.iter().try_for_each(|part| self.write(part))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PortableError> {
        let offset = self.offset;
        self.to.write_all(bytes).map_err(|error| {
            self.stopped = true;
            PortableError::Io { offset, error }
        })?;
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn check_length(tag: Tag, found: usize) -> Result<(), PortableError> {
    let limit = tag.limit_bytes();
    if found > limit {
        let expected = format!("at most {limit} bytes of {}", tag.word());
        return Err(refused(Wrong::new(expected, format!("{found} bytes"))));
    }
    Ok(())
}

fn refused(Wrong { expected, found }: Wrong) -> PortableError {
    PortableError::Refused { expected, found }
}
