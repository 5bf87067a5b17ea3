//! Reads a portable file and checks everything that can be checked from the file alone.
//!
//! Invariant: the end is reported only if every byte was what the writer of the file wrote, as far
//! as its own checksums tell, and nothing came after it. Nothing is set aside for a length before as
//! many bytes were read.

use std::io::{BufReader, Read};
use std::ops::Bound;

use super::book::{Book, Wrong};
use super::frame::{self, End, FRAME_HEAD_BYTES, HASH_BYTES, HEAD_BYTES, MAGIC, Tag};
use super::{About, EVENT_FORMAT, PORTABLE_FORMAT, PortableError, PortableReport};
use crate::event::{Event, Version};
use crate::hash::Hash;
use crate::name::StreamId;
use crate::payload;

/// As much is set aside for a frame at first.
const FIRST_CAPACITY_BYTES: usize = 16 << 10;

/// What a portable file holds, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // There is one at a time, and it is taken apart at once.
pub enum Item {
    /// A piece of a payload. Its children have come before.
    Piece {
        /// Its name.
        hash: Hash,
        /// Its bytes as stored.
        bytes: Vec<u8>,
    },
    /// An event. The pieces of its payloads have come before.
    Event {
        /// As read.
        event: Event,
        /// As it was in the file.
        bytes: Vec<u8>,
        /// Of its stream, at this event.
        version: Version,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Items,
    Heads,
    End,
    Error,
}

/// Reads a portable file, item by item.
///
/// Nothing that it hands out may be trusted before [`PortableReader::next`] has returned `None`:
/// each item was checked on its own, but only the end shows that the file is whole. Who imports a
/// file verifies it first, or keeps what comes apart until the end.
pub struct PortableReader<R: Read> {
    input: BufReader<R>,
    about: About,
    book: Book,
    hasher: blake3::Hasher,
    offset: u64,
    at: At,
    /// The stream whose head came last.
    last_head: Option<StreamId>,
    /// Over all bytes before the end frame, once that has come.
    hash: Hash,
}

impl<R: Read> PortableReader<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// It is no portable file, or one in a newer format, or damaged; or it cannot be read.
    pub fn open(input: R) -> Result<PortableReader<R>, PortableError> {
        let mut reader = PortableReader {
            input: BufReader::new(input),
            about: About {
                holds: super::Holds::Store,
                created_us: 0,
            },
            book: Book::new(super::Holds::Store),
            hasher: blake3::Hasher::new(),
            offset: 0,
            at: At::Items,
            last_head: None,
            hash: Hash::ZERO,
        };
        reader.read_head()?;
        let at = reader.offset;
        let (tag, content) = reader.read_frame()?;
        if tag != Tag::About {
            return Err(damaged(at, Wrong::new("an about frame", tag.word())));
        }
        let read = frame::decode_about(&content)
            .map_err(|found| damaged(at, Wrong::new("an about frame", found)))?;
        for (what, found, known) in [
            ("events", read.event_format, EVENT_FORMAT),
            ("pieces", read.piece_format, u64::from(payload::FORMAT)),
        ] {
            check_version(what, found, known, at)?;
        }
        reader.about = read.about;
        reader.book = Book::new(reader.about.holds.clone());
        Ok(reader)
    }

    /// What the file says about itself. Not to be trusted before the end, like all else.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The next piece or event. `None` only at the end, once the heads of all streams, the counts
    /// and the hash over the file were found right and nothing came after them.
    ///
    /// # Errors
    /// The file is damaged or could not be read. It stays so.
    #[allow(clippy::should_implement_trait)] // Adaptors of iterators would hide the error at the end.
    pub fn next(&mut self) -> Result<Option<Item>, PortableError> {
        match self.at {
            At::End => return Ok(None),
            At::Error => return Err(PortableError::Stopped),
            At::Items | At::Heads => {}
        }
        let item = self.read_item();
        if item.is_err() {
            self.at = At::Error;
        }
        item
    }

    /// What the file holds; `None` before its end was reached.
    pub fn into_report(self) -> Option<PortableReport> {
        (self.at == At::End).then(|| PortableReport {
            about: self.about,
            events: self.book.events(),
            pieces: self.book.pieces(),
            bytes: self.offset,
            hash: self.hash,
            streams: self.book.into_heads(),
        })
    }

    fn read_item(&mut self) -> Result<Option<Item>, PortableError> {
        loop {
            let at = self.offset;
            let (tag, content) = self.read_frame()?;
            let content_at = at + FRAME_HEAD_BYTES as u64;
            match (tag, self.at) {
                (Tag::Piece, At::Items) => {
                    return self.take_piece(content_at, &content).map(Some);
                }
                (Tag::Event, At::Items) => {
                    let taken = self.book.event(&content);
                    let (event, version) = taken.map_err(|wrong| damaged(content_at, wrong))?;
                    return Ok(Some(Item::Event {
                        event,
                        bytes: content,
                        version,
                    }));
                }
                (Tag::Heads, _) => {
                    self.at = At::Heads;
                    self.check_heads(&content)
                        .map_err(|wrong| damaged(content_at, wrong))?;
                }
                (Tag::End, _) => {
                    self.check_end(&content)
                        .map_err(|wrong| damaged(content_at, wrong))?;
                    self.check_nothing_follows()?;
                    self.at = At::End;
                    return Ok(None);
                }
                (Tag::About | Tag::Piece | Tag::Event, _) => {
                    let expected = match self.at {
                        At::Items => "a piece, an event, heads or the end",
                        _ => "heads or the end",
                    };
                    return Err(damaged(at, Wrong::new(expected, tag.word())));
                }
            }
        }
    }

    fn take_piece(&mut self, at: u64, content: &[u8]) -> Result<Item, PortableError> {
        let Some((hash, bytes)) = content.split_first_chunk::<HASH_BYTES>() else {
            let found = format!("{} bytes", content.len());
            return Err(damaged(at, Wrong::new("a hash of 32 bytes", found)));
        };
        let hash = Hash::from_bytes(*hash);
        let taken = self.book.piece(&hash, bytes);
        taken.map_err(|wrong| damaged(at, wrong))?;
        Ok(Item::Piece {
            hash,
            bytes: bytes.to_owned(),
        })
    }

    /// Each head must be that of the next stream.
    fn check_heads(&mut self, content: &[u8]) -> Result<(), Wrong> {
        let heads = frame::decode_heads(content)
            .map_err(|found| Wrong::new("the heads of streams", found))?;
        for head in heads {
            let next = self.next_head();
            if next != Some((&head.0, &head.1)) {
                let expected = head_text(next);
                return Err(Wrong::new(expected, head_text(Some((&head.0, &head.1)))));
            }
            self.last_head = Some(head.0);
        }
        Ok(())
    }

    /// The head that has to come next.
    fn next_head(&self) -> Option<(&StreamId, &Version)> {
        let from = match &self.last_head {
            Some(last) => Bound::Excluded(last),
            None => Bound::Unbounded,
        };
        let heads = self.book.heads();
        heads.range::<StreamId, _>((from, Bound::Unbounded)).next()
    }

    fn check_end(&self, content: &[u8]) -> Result<(), Wrong> {
        self.book.check_complete()?;
        if let Some(missing) = self.next_head() {
            return Err(Wrong::new(head_text(Some(missing)), "the end"));
        }
        let end = End {
            events: self.book.events(),
            pieces: self.book.pieces(),
            streams: self.book.heads().len() as u64,
            hash: self.hash,
        };
        if end.encode() != content {
            let found = match crate::fields::Fields::decode(content) {
                Ok(fields) => format!("{fields:?}"),
                Err(error) => error.to_string(),
            };
            return Err(Wrong::new(end.to_string(), found));
        }
        Ok(())
    }

    fn check_nothing_follows(&mut self) -> Result<(), PortableError> {
        let at = self.offset;
        let rest = self.read_up_to(1)?;
        if !rest.is_empty() {
            let wrong = Wrong::new("nothing after the end", "more bytes");
            return Err(damaged(at, wrong));
        }
        Ok(())
    }

    fn read_head(&mut self) -> Result<(), PortableError> {
        let head = self.read_up_to(HEAD_BYTES)?;
        let magic = &head[..head.len().min(MAGIC.len())];
        if magic.is_empty() || !MAGIC.starts_with(magic) {
            let found = String::from_utf8_lossy(magic).into_owned();
            return Err(PortableError::OtherFile { found });
        }
        if head.len() < HEAD_BYTES {
            return Err(self.cut_off("the head of the file"));
        }
        let (expected, found) = (crc32c::crc32c(&head[..20]), frame::u32_at(&head, 20));
        if expected != found {
            return Err(damaged(16, checksum("the head", expected, found)));
        }
        let version = frame::u32_at(&head, 16);
        check_version("itself", version.into(), PORTABLE_FORMAT.into(), 16)?;
        self.hasher.update(&head);
        Ok(())
    }

    /// The next frame, whose checksum is right.
    fn read_frame(&mut self) -> Result<(Tag, Vec<u8>), PortableError> {
        let at = self.offset;
        let head = self.read_up_to(FRAME_HEAD_BYTES)?;
        if head.len() < FRAME_HEAD_BYTES {
            return Err(self.cut_off("a frame"));
        }
        let Some(tag) = Tag::from_byte(head[0]) else {
            let found = format!("{}", head[0]);
            return Err(damaged(at, Wrong::new("a tag from 1 to 5", found)));
        };
        let (len, crc) = (frame::u32_at(&head, 1), frame::u32_at(&head, 5));
        let limit = tag.limit_bytes();
        if len as usize > limit {
            let expected = format!("at most {limit} bytes of {}", tag.word());
            let wrong = Wrong::new(expected, format!("{len} bytes"));
            return Err(damaged(at + 1, wrong));
        }
        let content = self.read_up_to(len as usize)?;
        if content.len() < len as usize {
            return Err(self.cut_off(&format!("{len} bytes of {}", tag.word())));
        }
        let expected = frame::frame_head(tag, len, &[&content]);
        if expected[..] != head[..] {
            let wrong = checksum(tag.word(), frame::u32_at(&expected, 5), crc);
            return Err(damaged(at, wrong));
        }
        if tag == Tag::End {
            self.hash = Hash::from_bytes(*self.hasher.finalize().as_bytes());
        }
        self.hasher.update(&head);
        self.hasher.update(&content);
        Ok((tag, content))
    }

    /// The next bytes, fewer only if the file ends.
    fn read_up_to(&mut self, len: usize) -> Result<Vec<u8>, PortableError> {
        let mut bytes = Vec::with_capacity(len.min(FIRST_CAPACITY_BYTES));
        let offset = self.offset;
        let read = (&mut self.input).take(len as u64).read_to_end(&mut bytes);
        read.map_err(|error| PortableError::Io { offset, error })?;
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    fn cut_off(&self, expected: &str) -> PortableError {
        damaged(self.offset, Wrong::new(expected, "the end of the file"))
    }
}

/// Reads a portable file to its end and says what is in it.
///
/// # Errors
/// As [`PortableReader::open`] and [`PortableReader::next`].
pub fn verify_portable<R: Read>(input: R) -> Result<PortableReport, PortableError> {
    let mut reader = PortableReader::open(input)?;
    while reader.next()?.is_some() {}
    reader.into_report().ok_or(PortableError::Stopped)
}

fn check_version(what: &'static str, found: u64, known: u64, at: u64) -> Result<(), PortableError> {
    match found {
        0 => {
            let expected = format!("{what} in a format from 1 on");
            Err(damaged(at, Wrong::new(expected, "format 0")))
        }
        found if found > known => Err(PortableError::Newer { what, found, known }),
        _ => Ok(()),
    }
}

fn damaged(offset: u64, Wrong { expected, found }: Wrong) -> PortableError {
    PortableError::Damaged {
        offset,
        expected,
        found,
    }
}

fn checksum(what: &str, expected: u32, found: u32) -> Wrong {
    let expected = format!("{what} with checksum 0x{expected:08x}");
    Wrong::new(expected, format!("0x{found:08x}"))
}

fn head_text(head: Option<(&StreamId, &Version)>) -> String {
    match head {
        Some((stream, Version { sequence, hash })) => {
            format!("the head of {stream} at event {sequence} with hash {hash}")
        }
        None => "the end".into(),
    }
}
