//! Whatever bytes are in a log's folder, opening them ends: with a log or with an error, without
//! a panic, in bounded time and memory.
//!
//! The folders hold files of random bytes, or segments of a real log that were changed. Some
//! changes get their checksums made right, as if somebody had meant them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The allocator is the one place where a trait demands it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use dalsegno_log::{Log, Options, ReadError, Reader, verify_on};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;

mod common;
use common::mem_fs::MemFs;
use common::restamp;

const DIR: &str = "log";
const SEGMENT_BYTES: u64 = 4096;

// --- Memory ----------------------------------------------------------------------------------

/// The system's allocator; counts what each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: both calls go to the system's allocator unchanged; the counters are plain cells of the
// thread, which need neither allocation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `at` is from `alloc` above, and so from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that `work` held at a time, beyond what was held before it.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

// --- What is done with a folder --------------------------------------------------------------

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.without_threads().fs(Arc::new(fs.clone()))
}

/// Reads up to the end or to an error, and says how many records there were.
fn read_all(mut reader: Reader) -> Result<u64, ReadError> {
    let mut records = 0;
    let mut next = reader.next_lsn();
    while let Some(record) = reader.next_record()? {
        assert!(record.lsn >= next, "LSNs ascend");
        next = record.lsn + 1;
        records += 1;
    }
    Ok(records)
}

/// Everything that can be done to a folder of unknown content.
fn use_folder(fs: &MemFs) {
    let verified = verify_on(fs, DIR.as_ref());
    if let Ok(view) = options(fs).open_read_only(DIR) {
        let read = view.read_from(view.first_lsn()).and_then(read_all);
        let report = verified.expect("what can be opened can be verified");
        if let (true, Ok(records)) = (report.is_sound() && report.torn.is_none(), read) {
            assert_eq!(report.records, records);
        }
        drop(view.refresh());
    }
    if let Ok(log) = options(fs).open(DIR) {
        drop(log.read_from(log.first_lsn()).and_then(read_all));
        use_log(log);
        let again = options(fs).open(DIR).expect("a log that was closed opens");
        let last = again.last_lsn();
        let mut reader = again.read_from(last).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(record.payload, b"new");
    }
}

fn use_log(log: Log) {
    let lsns = log
        .append_batch(&[b"something", b"new".as_slice()])
        .unwrap();
    log.wait_durable(*lsns.end()).unwrap();
    log.close().unwrap();
}

fn check(fs: &MemFs) {
    let bytes = fs.total_bytes();
    let peak = peak_of(|| use_folder(fs));
    assert!(
        peak <= bytes * 8 + 2 * 1024 * 1024,
        "{peak} bytes of memory for {bytes} bytes of files"
    );
    // Each file is read a few times, in chunks; what has no end would ask for more.
    let files = fs.paths().len() as u64;
    assert!(
        fs.calls() < 2_000 + 200 * files + bytes as u64,
        "{}",
        fs.calls()
    );
}

// --- Folders ---------------------------------------------------------------------------------

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// Logs to start from: one of several segments, one with some dropped, one that was not closed,
/// and one with segments rewritten.
fn real_logs() -> &'static [Files; 4] {
    static LOGS: OnceLock<[Files; 4]> = OnceLock::new();
    LOGS.get_or_init(|| {
        let make = |drop_before: u64, rewrite: bool, close: bool| {
            let fs = MemFs::new();
            let log = options(&fs).open(DIR).unwrap();
            for number in 0..60_u64 {
                let record = vec![number as u8; number as usize * 3];
                let lsns = log.append_batch(&vec![record; 1 + number as usize % 3]);
                log.wait_durable(*lsns.unwrap().end()).unwrap();
            }
            log.drop_before(drop_before).unwrap();
            if rewrite {
                log.seal().unwrap();
                for info in log.segments() {
                    log.rewrite_segment(info.number, |lsn, _| lsn % 5 < 2)
                        .unwrap();
                }
            }
            let files = if close {
                log.close().unwrap();
                fs.clone()
            } else {
                fs.copy()
            };
            let paths = files.paths();
            let named = paths.iter().map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                (name.to_owned(), files.get(path).unwrap())
            });
            named.collect()
        };
        [
            make(0, false, true),
            make(80, false, true),
            make(80, false, false),
            make(40, true, false),
        ]
    })
}

/// One change of a file. Places are fractions of the file, so that they fit any.
#[derive(Clone, Debug)]
enum Change {
    Flip {
        at: f64,
        bit: u8,
    },
    Overwrite {
        at: f64,
        bytes: Vec<u8>,
    },
    Cut {
        at: f64,
    },
    Extend {
        bytes: Vec<u8>,
    },
    Remove {
        at: f64,
        length: usize,
    },
    Repeat {
        from: f64,
        to: f64,
        length: usize,
    },
    Zero {
        at: f64,
        length: usize,
    },
    /// A field of a frame's header, with checksums made right.
    Frame {
        frame: f64,
        field: usize,
        value: u64,
    },
    /// A field of the segment's header, with all checksums made right.
    Header {
        field: usize,
        value: u64,
    },
    /// All checksums of what the other changes have left.
    Restamp,
    Lose,
}

/// Offset and size of the fields of a frame's header.
const FRAME_FIELDS: [(usize, usize); 7] =
    [(0, 1), (1, 1), (2, 2), (4, 4), (8, 8), (16, 8), (24, 8)];
/// And of a segment's.
const HEADER_FIELDS: [(usize, usize); 5] = [(8, 4), (12, 4), (16, 8), (24, 8), (32, 8)];

fn at(bytes: &[u8], fraction: f64) -> usize {
    (bytes.len() as f64 * fraction) as usize
}

fn put(bytes: &mut [u8], at: usize, size: usize, value: u64) {
    if let Some(field) = bytes.get_mut(at..at + size) {
        field.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, number: u64) {
        let end = bytes.len();
        match self {
            Change::Flip { at: place, bit } => {
                let place = at(bytes, *place);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << bit;
                }
            }
            Change::Overwrite {
                at: place,
                bytes: new,
            } => {
                let place = at(bytes, *place);
                let n = new.len().min(end - place);
                bytes[place..place + n].copy_from_slice(&new[..n]);
            }
            Change::Cut { at: place } => bytes.truncate(at(bytes, *place)),
            Change::Extend { bytes: new } => bytes.extend_from_slice(new),
            Change::Remove { at: place, length } => {
                let place = at(bytes, *place);
                bytes.drain(place..(place + length).min(end));
            }
            Change::Repeat { from, to, length } => {
                let (from, to) = (at(bytes, *from), at(bytes, *to) / 8 * 8);
                let piece = bytes[from..(from + length).min(end)].to_vec();
                bytes.splice(to..to, piece);
            }
            Change::Zero { at: place, length } => {
                let place = at(bytes, *place);
                bytes[place..(place + length).min(end)].fill(0);
            }
            Change::Frame {
                frame,
                field,
                value,
            } => {
                let frames = restamp::frame_offsets(bytes);
                let which = (frames.len() as f64 * frame) as usize;
                if let Some(frame) = frames.get(which) {
                    let (offset, size) = FRAME_FIELDS[field % FRAME_FIELDS.len()];
                    put(bytes, frame + offset, size, *value);
                    restamp::frame(bytes, number, *frame);
                }
            }
            Change::Header { field, value } => {
                let (offset, size) = HEADER_FIELDS[field % HEADER_FIELDS.len()];
                put(bytes, offset, size, *value);
                restamp::segment(bytes, number);
            }
            Change::Restamp => restamp::segment(bytes, number),
            Change::Lose => bytes.clear(),
        }
    }
}

/// Numbers at which arithmetic goes wrong, and any others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..8,
        (0_u64..4).prop_map(|n| u64::MAX - n),
        (0_u64..4).prop_map(|n| u64::from(u32::MAX) - n),
        (0_u32..64).prop_map(|bit| 1 << bit),
        0_u64..300,
        any::<u64>(),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![blind_change(), knowing_change()]
}

fn blind_change() -> impl Strategy<Value = Change> {
    let place = 0.0..1.0;
    prop_oneof![
        (place.clone(), 0..8_u8).prop_map(|(at, bit)| Change::Flip { at, bit }),
        (place.clone(), vec(any::<u8>(), 0..64))
            .prop_map(|(at, bytes)| Change::Overwrite { at, bytes }),
        place.clone().prop_map(|at| Change::Cut { at }),
        vec(any::<u8>(), 0..2000).prop_map(|bytes| Change::Extend { bytes }),
        (place.clone(), 0..600_usize).prop_map(|(at, length)| Change::Remove { at, length }),
        (place.clone(), place.clone(), 0..1500_usize)
            .prop_map(|(from, to, length)| Change::Repeat { from, to, length }),
        (place, 0..1500_usize).prop_map(|(at, length)| Change::Zero { at, length }),
        Just(Change::Lose),
    ]
}

fn knowing_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0.0..1.0, 0..7_usize, number())
            .prop_map(|(frame, field, value)| Change::Frame { frame, field, value }),
        1 => (0..5_usize, number()).prop_map(|(field, value)| Change::Header { field, value }),
        1 => Just(Change::Restamp),
    ]
}

fn file_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0_u64..6).prop_map(restamp::file_name),
        1 => number().prop_map(restamp::file_name),
        1 => Just("lock".to_owned()),
        1 => Just("0000000000000001.seg.tmp".to_owned()),
        1 => Just("torn-0000000000000001-512-1.bin".to_owned()),
        1 => "[a-z0-9.-]{1,20}",
    ]
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        // A failure is printed in full; what is worth keeping becomes a test of its own.
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn of_a_changed_log(
        which in 0..4_usize,
        changes in vec((0.0..1.0, change()), 1..6),
    ) {
        let mut files = real_logs()[which].clone();
        for (file, change) in &changes {
            let file = (files.len() as f64 * file) as usize;
            let (name, bytes) = &mut files[file];
            change.apply(bytes, restamp::number_of(name).unwrap_or(0));
        }
        let fs = MemFs::new();
        for (name, bytes) in files {
            fs.put(path(&name), bytes);
        }
        check(&fs);
    }

    #[test]
    fn of_a_log_whose_files_were_mixed_up(
        places in vec((0..4_usize, 0.0..1.0, 1_u64..8, any::<bool>()), 1..8),
    ) {
        let fs = MemFs::new();
        for (log, file, number, right) in places {
            let files = &real_logs()[log];
            let mut bytes = files[(files.len() as f64 * file) as usize].1.clone();
            if right {
                put(&mut bytes, 24, 8, number);
                restamp::segment(&mut bytes, number);
            }
            fs.put(path(&restamp::file_name(number)), bytes);
        }
        check(&fs);
    }

    #[test]
    fn of_no_log_at_all(
        files in vec((file_name(), vec(any::<u8>(), 0..3000), any::<bool>()), 0..6),
    ) {
        let fs = MemFs::new();
        for (name, mut bytes, with_header) in files {
            let number = restamp::number_of(&name).unwrap_or(0);
            if with_header && bytes.len() >= 512 {
                bytes[..512].fill(0);
                bytes[..8].copy_from_slice(b"DALSEGNO");
                put(&mut bytes, 8, 4, 1);
                put(&mut bytes, 12, 4, 1);
                put(&mut bytes, 24, 8, number);
                restamp::segment(&mut bytes, number);
            }
            fs.put(path(&name), bytes);
        }
        check(&fs);
    }
}

#[test]
fn of_a_length_that_promises_gigabytes() {
    for length in [u64::from(u32::MAX), 1 << 31, 5000] {
        for (name, bytes) in &real_logs()[0] {
            let Some(number) = restamp::number_of(name) else {
                continue;
            };
            for frame in 0..restamp::frame_offsets(bytes).len() {
                let mut changed = bytes.clone();
                let at = restamp::frame_offsets(bytes)[frame];
                put(&mut changed, at + 4, 4, length);
                restamp::frame(&mut changed, number, at);
                let fs = MemFs::new();
                for (name, bytes) in &real_logs()[0] {
                    fs.put(path(name), bytes.clone());
                }
                fs.put(path(name), changed);
                check(&fs);
            }
        }
    }
}
