//! Walks the frames of one segment file, checking each one fully.
//!
//! Invariant: what comes out is exactly what was written, in order. Every frame is checked for its
//! checksums, its place, and that LSN, group and epoch continue those of the frame before it:
//!
//! | frame | LSN | group | epoch |
//! |---|---|---|---|
//! | any | that of the frame before, plus the records that one stood for | the same, or the next one | the same or later |
//! | `Start` of a rewritten segment | likewise | any later one: the segment is one group, numbered like its first seal | likewise |
//!
//! A `Gap` stands for the records it counts, and only a rewritten segment has one. The buffer never
//! grows past what the file can hold.

use std::io;

use crate::Lsn;
use crate::frame::{self, HEADER_BYTES, Header, Kind, NotAFrame, PlaceSeed};
use crate::fs::FsFile;
use crate::marks::Gap;
use crate::rules::{Mutant, Rule};
use crate::segment::{self, checksum_text};

/// LSNs, groups and epochs stay below this: no log gets that far, and sums cannot overflow.
pub(crate) const NUMBER_LIMIT: u64 = 1 << 62;
/// The first read of a cursor; often only the first frame is wanted.
const FIRST_CHUNK_BYTES: usize = 4 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

/// What the next frame has to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expect {
    pub lsn: Lsn,
    pub group: u64,
    /// The last frame was marked as the end of `group`.
    pub group_ended: bool,
    pub epoch: u64,
}

impl Expect {
    /// The group that a frame which cannot be read at this place belonged to, at the earliest.
    pub fn group_of_a_bad_frame(&self) -> u64 {
        self.group + u64::from(self.group_ended)
    }
}

/// A frame that passed every check. Its payload is [`Cursor::payload`], until the next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub offset: u64,
    pub header: Header,
    /// How many records it stands for: one if it is one.
    pub records: u64,
}

impl Frame {
    /// The LSN that comes after it.
    pub fn next_lsn(&self) -> Lsn {
        self.header.lsn + self.records
    }
}

/// Why the bytes at the cursor are not the next frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub expected: String,
    pub found: String,
    /// The header reads as unwritten space, or the file ends here.
    pub unwritten: bool,
}

impl Bad {
    fn new(expected: impl Into<String>, found: impl Into<String>) -> Bad {
        Bad {
            expected: expected.into(),
            found: found.into(),
            unwritten: false,
        }
    }
}

/// The outcome of a step.
#[derive(Debug)]
pub(crate) enum Step {
    Frame(Frame),
    Bad(Bad),
}

/// Where a cursor stands, to come back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub offset: u64,
    pub expect: Option<Expect>,
}

/// A position in a segment file.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Box<dyn FsFile>,
    header: segment::SegmentHeader,
    seed: PlaceSeed,
    mutant: Mutant,
    /// Where the next frame begins.
    offset: u64,
    /// `None` at the start of a log or of a segment opened in its middle: the first frame tells.
    expect: Option<Expect>,
    buffer: Vec<u8>,
    buffer_at: u64,
    chunk_bytes: usize,
}

impl Cursor {
    /// At the first frame of a segment; `expect` is the state after the segment before it.
    pub fn new(
        file: Box<dyn FsFile>,
        header: segment::SegmentHeader,
        expect: Option<Expect>,
        mutant: Mutant,
    ) -> Cursor {
        Cursor {
            file,
            header,
            seed: PlaceSeed::new(header.log_id, header.number),
            mutant,
            offset: segment::HEADER_BYTES,
            expect,
            buffer: Vec::new(),
            buffer_at: 0,
            chunk_bytes: FIRST_CHUNK_BYTES,
        }
    }

    /// Behind a frame that was checked before, whose end and state are `at`.
    pub fn resume(
        file: Box<dyn FsFile>,
        header: segment::SegmentHeader,
        at: Mark,
        mutant: Mutant,
    ) -> Cursor {
        let mut cursor = Cursor::new(file, header, at.expect, mutant);
        cursor.offset = at.offset;
        cursor
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn expect(&self) -> Option<Expect> {
        self.expect
    }

    /// The header of the segment it is in.
    pub fn segment_header(&self) -> &segment::SegmentHeader {
        &self.header
    }

    pub fn seed(&self) -> PlaceSeed {
        self.seed
    }

    /// The segment was complete when it got its name: what is bad in it was never torn.
    pub fn rewritten(&self) -> bool {
        self.header.rewritten
    }

    pub fn file(&self) -> &dyn FsFile {
        self.file.as_ref()
    }

    pub fn into_file(self) -> Box<dyn FsFile> {
        self.file
    }

    /// Forgets what was read ahead, which the writer may have overwritten since.
    pub fn forget_read_ahead(&mut self) {
        self.buffer.clear();
    }

    /// Goes to a frame found by other means, whatever came before it.
    pub fn jump(&mut self, offset: u64) {
        self.offset = offset;
        self.expect = None;
    }

    pub fn mark(&self) -> Mark {
        Mark {
            offset: self.offset,
            expect: self.expect,
        }
    }

    /// Goes back to a mark and reads afresh from there.
    pub fn back_to(&mut self, mark: Mark) {
        self.offset = mark.offset;
        self.expect = mark.expect;
        self.forget_read_ahead();
    }

    /// Reads the next frame and moves behind it, or says why there is none and stays.
    pub fn step(&mut self) -> io::Result<Step> {
        let header = match self.header()? {
            Ok(header) => header,
            Err(bad) => return Ok(Step::Bad(bad)),
        };
        let frame_bytes = header.frame_bytes();
        if let Some(bad) = self.load_frame(frame_bytes)? {
            return Ok(Step::Bad(bad));
        }
        let at = (self.offset - self.buffer_at) as usize;
        let payload_at = at + HEADER_BYTES;
        let padding_at = payload_at + header.payload_bytes as usize;
        let payload = &self.buffer[payload_at..padding_at];
        let crc = crc32c::crc32c(payload);
        if crc != header.payload_crc && !self.mutant.breaks(Rule::CheckPayload) {
            let expected = format!("payload {}", checksum_text(header.payload_crc));
            return Ok(Step::Bad(Bad::new(expected, checksum_text(crc))));
        }
        let padding = &self.buffer[padding_at..at + frame_bytes as usize];
        if padding.iter().any(|byte| *byte != 0) {
            let found = format!("{padding:02x?}");
            return Ok(Step::Bad(Bad::new("zeros up to the next frame", found)));
        }
        let Some(records) = records_in(&header, payload) else {
            return Ok(Step::Bad(Bad::new("a gap that counts records", "none")));
        };
        let offset = self.offset;
        self.offset += frame_bytes;
        self.expect = Some(Expect {
            lsn: header.lsn + records,
            group: header.group,
            group_ended: header.ends_group(),
            epoch: header.epoch,
        });
        Ok(Step::Frame(Frame {
            offset,
            header,
            records,
        }))
    }

    /// The payload of the frame that the last step returned.
    pub fn payload(&self, frame: &Frame) -> &[u8] {
        let at = (frame.offset - self.buffer_at) as usize + HEADER_BYTES;
        &self.buffer[at..at + frame.header.payload_bytes as usize]
    }

    /// Moves behind the next frame if it is a whole record below `lsn`, without looking at its
    /// payload. For seeking; what is handed out is always read with [`Cursor::step`].
    pub fn skip_below(&mut self, lsn: Lsn) -> io::Result<bool> {
        let Ok(header) = self.header()? else {
            return Ok(false);
        };
        let below = header.kind == Kind::Record && header.lsn < lsn;
        if below {
            self.offset += header.frame_bytes();
            self.expect = Some(Expect {
                lsn: header.lsn + 1,
                group: header.group,
                group_ended: header.ends_group(),
                epoch: header.epoch,
            });
        }
        Ok(below)
    }

    fn header(&mut self) -> io::Result<Result<Header, Bad>> {
        if !self.load(HEADER_BYTES)? {
            return Ok(Err(Bad {
                expected: self.what_comes_next(),
                found: "the end of the file".into(),
                unwritten: true,
            }));
        }
        let at = (self.offset - self.buffer_at) as usize;
        let bytes = &self.buffer[at..at + HEADER_BYTES];
        let header = match frame::decode(bytes, self.seed, self.offset) {
            Ok(header) => header,
            Err(not_a_frame) => return Ok(Err(self.explain(not_a_frame))),
        };
        Ok(self.check_order(&header).map(|()| header))
    }

    fn check_order(&self, header: &Header) -> Result<(), Bad> {
        let first = self.offset == segment::HEADER_BYTES;
        if first != (header.kind == Kind::Start) {
            let expected = if first {
                "a start frame"
            } else {
                "no start frame"
            };
            return Err(Bad::new(expected, format!("{:?}", header.kind)));
        }
        if header.kind != Kind::Record && !header.ends_batch() {
            return Err(Bad::new("a mark that stands alone", "part of a batch"));
        }
        if header.kind == Kind::Gap && !self.rewritten() {
            return Err(Bad::new("no gap in a segment as it was written", "a gap"));
        }
        let numbers = [header.lsn, header.group, header.epoch];
        if numbers.iter().any(|n| !(1..NUMBER_LIMIT).contains(n)) {
            let found = format!("{numbers:?}");
            return Err(Bad::new("numbers from 1 to 2^62", found));
        }
        let Some(expect) = self.expect else {
            return Ok(());
        };
        if header.lsn != expect.lsn {
            let (expected, found) = (expect.lsn, header.lsn);
            return Err(Bad::new(format!("LSN {expected}"), format!("LSN {found}")));
        }
        let same_group = header.group == expect.group && !expect.group_ended;
        let next_group = if first && self.rewritten() {
            header.group > expect.group
        } else {
            header.group == expect.group + 1
        };
        if !same_group && !next_group {
            let expected = format!("sync group {}", expect.group_of_a_bad_frame());
            return Err(Bad::new(expected, format!("{}", header.group)));
        }
        if header.epoch < expect.epoch {
            let expected = format!("epoch {} or later", expect.epoch);
            return Err(Bad::new(expected, format!("{}", header.epoch)));
        }
        Ok(())
    }

    fn what_comes_next(&self) -> String {
        match self.expect {
            Some(expect) => format!("a frame with LSN {}", expect.lsn),
            None => "a frame".into(),
        }
    }

    fn explain(&self, not_a_frame: NotAFrame) -> Bad {
        let next = self.what_comes_next();
        match not_a_frame {
            NotAFrame::Unwritten => Bad {
                expected: next,
                found: "unwritten space".into(),
                unwritten: true,
            },
            NotAFrame::UnknownKind(kind) => Bad::new(next, format!("a frame of kind {kind}")),
            NotAFrame::Malformed => Bad::new(next, "reserved bits that are not zero"),
            NotAFrame::HeaderChecksum { expected, found } => Bad::new(
                format!("{next}, header {}", checksum_text(expected)),
                checksum_text(found),
            ),
        }
    }

    /// Brings a whole frame into the buffer, or says why that is impossible.
    fn load_frame(&mut self, frame_bytes: u64) -> io::Result<Option<Bad>> {
        let buffered = self.buffer_at + self.buffer.len() as u64;
        if self.offset + frame_bytes > buffered {
            // Before allocating: the length is from outside.
            let left = self.file.len()?.saturating_sub(self.offset);
            if frame_bytes > left {
                let expected = format!("a frame within the {left} bytes left");
                return Ok(Some(Bad::new(expected, format!("{frame_bytes} bytes"))));
            }
        }
        if self.load(frame_bytes as usize)? {
            return Ok(None);
        }
        Ok(Some(Bad::new("the rest of a frame", "the end of the file")))
    }

    /// Makes sure that `bytes` from the cursor on are in the buffer; false if the file ends first.
    fn load(&mut self, bytes: usize) -> io::Result<bool> {
        let in_buffer = self.offset >= self.buffer_at
            && self.offset + bytes as u64 <= self.buffer_at + self.buffer.len() as u64;
        if in_buffer {
            return Ok(true);
        }
        let want = bytes.max(self.chunk_bytes);
        self.chunk_bytes = (self.chunk_bytes * 4).min(CHUNK_BYTES);
        self.buffer.resize(want, 0);
        self.buffer_at = self.offset;
        let got = self.file.read_full(&mut self.buffer, self.offset);
        // On an error nothing in the buffer may be taken for what is on disk.
        self.buffer.truncate(*got.as_ref().unwrap_or(&0));
        Ok(got? >= bytes)
    }
}

/// How many records a frame stands for; `None` if it is a gap that does not say.
fn records_in(header: &Header, payload: &[u8]) -> Option<u64> {
    match header.kind {
        Kind::Record => Some(1),
        Kind::Gap => {
            let gap = Gap::decode(payload)?;
            // Like every LSN, the one behind it is below the limit.
            header
                .lsn
                .checked_add(gap.records)
                .filter(|lsn| *lsn < NUMBER_LIMIT)?;
            Some(gap.records)
        }
        Kind::Start | Kind::Seal | Kind::Opened | Kind::Closed | Kind::Dropped => Some(0),
    }
}
