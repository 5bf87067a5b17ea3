//! Whoever looks at a log while it is written sees a log: never damage that is not there, never a
//! file that is missing only because it was dropped, and nothing durable left out.
//!
//! The writer acts between any two file system calls of a look. It may do only some of its own
//! calls then, and the rest when the look is over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Display;
use std::io::ErrorKind;
use std::sync::{Arc, mpsc};
use std::thread;

use dalsegno_log::{Log, LogView, Lsn, Options, ReadError, Reader, verify_on};

mod common;
use common::mem_fs::MemFs;
use common::moments::Moments;
use common::{all_records, restamp};

const DIR: &str = "log";
/// When the writer does only a part, one in so many moments is tried.
const STEP: u64 = 3;
/// What is durable before anybody looks: three sealed segments, and one more.
const DURABLE: Lsn = 14;

fn options(fs: &Moments) -> Options {
    let options = Options::new().segment_bytes(4096);
    options.without_threads().fs(Arc::new(fs.clone()))
}

fn payload(lsn: Lsn) -> Vec<u8> {
    vec![lsn as u8; 60 + lsn as usize % 50]
}

// --- The writer ------------------------------------------------------------------------------

struct Writer {
    options: Options,
    log: Log,
}

impl Writer {
    fn new(fs: &Moments) -> Writer {
        let options = options(fs);
        let log = options.open(DIR).unwrap();
        let writer = Writer { options, log };
        for _ in 0..3 {
            writer.groups(4, 1);
            writer.log.seal().unwrap();
        }
        writer.groups(2, 1);
        assert_eq!(writer.log.durable_lsn(), DURABLE);
        writer
    }

    fn groups(&self, count: usize, records: u64) {
        for _ in 0..count {
            let first = self.log.last_lsn() + 1;
            let payloads: Vec<_> = (first..first + records).map(payload).collect();
            let lsns = self.log.append_batch(&payloads).unwrap();
            self.log.wait_durable(*lsns.end()).unwrap();
        }
    }

    fn rotations(&self) {
        for _ in 0..3 {
            self.groups(1, 1);
            self.log.seal().unwrap();
        }
        self.groups(1, 1);
    }

    fn open_again(&mut self, segment_bytes: u64) {
        self.log.clone().close().unwrap();
        let options = self.options.clone().segment_bytes(segment_bytes);
        self.log = options.open(DIR).unwrap();
    }
}

type Act = fn(&mut Writer);

const ACTS: [(&str, Act); 7] = [
    ("groups", |writer| writer.groups(2, 1)),
    ("batches", |writer| writer.groups(3, 2)),
    ("rotations", |writer| writer.rotations()),
    ("a drop", |writer| {
        writer.log.drop_before(9).unwrap();
        writer.groups(1, 1);
    }),
    ("rotations and a drop", |writer| {
        writer.rotations();
        writer.log.drop_before(writer.log.last_lsn()).unwrap();
    }),
    ("opening again", |writer| {
        writer.open_again(4096);
        writer.groups(1, 1);
    }),
    (
        "opening again behind a seal, with larger segments",
        |writer| {
            writer.log.seal().unwrap();
            writer.open_again(8192);
            writer.groups(1, 2);
        },
    ),
];

// --- Looks -----------------------------------------------------------------------------------

/// What is left of a look.
#[derive(Default)]
struct Looked {
    view: Option<LogView>,
    /// It was told that what it wanted to read had been dropped.
    dropped: bool,
}

type Look = fn(&Moments) -> Result<Looked, String>;

fn text(what: &'static str) -> impl Fn(&dyn Display) -> String {
    move |error| format!("{what}: {error}")
}

fn verified(fs: &Moments) -> Result<Looked, String> {
    let report = verify_on(fs, DIR.as_ref()).map_err(|e| text("verify")(&e))?;
    if !report.is_sound() {
        return Err(format!("{:?}", report.damages));
    }
    let (first, last) = (report.first_lsn.unwrap(), report.last_lsn.unwrap());
    if last < DURABLE || report.records != last + 1 - first {
        return Err(format!("{} records, {first} to {last}", report.records));
    }
    Ok(Looked::default())
}

/// A view is opened, read, and follows.
fn viewed(fs: &Moments) -> Result<Looked, String> {
    let opened = options(fs).open_read_only(DIR);
    let view = opened.map_err(|e| text("open")(&e))?;
    let mut reader = view
        .read_from(view.first_lsn())
        .map_err(|e| text("seek")(&e))?;
    let mut dropped = read_on(&mut reader, view.last_lsn().max(DURABLE))?;
    let last = view.refresh().map_err(|e| text("refresh")(&e))?;
    if !dropped {
        dropped = read_on(&mut reader, last)?;
    }
    let view = Some(view);
    Ok(Looked { view, dropped })
}

/// Reads up to the end, which is not before `last`. Says whether it came upon a drop.
fn read_on(reader: &mut Reader, last: Lsn) -> Result<bool, String> {
    loop {
        let next = reader.next_lsn();
        match reader.next_record() {
            Ok(Some(record)) if record.lsn == next && record.payload == payload(next) => {}
            Ok(None) if next > last => return Ok(false),
            Err(ReadError::Dropped { lsn, first }) if lsn == next && first > next => {
                return Ok(true);
            }
            other => return Err(format!("{other:?} at LSN {next}, up to {last}")),
        }
    }
}

/// A view is opened, and the log is copied.
fn copied(fs: &Moments) -> Result<Looked, String> {
    let opened = options(fs).open_read_only(DIR);
    let view = opened.map_err(|e| text("open")(&e))?;
    let mut to = "copy";
    match view.copy_to(to) {
        // What was dropped meanwhile is not there to be copied.
        Err(ReadError::Io(failure)) if failure.error.kind() == ErrorKind::NotFound => {
            to = "second copy";
            view.copy_to(to)
        }
        other => other,
    }
    .map_err(|e| text("copy")(&e))?;
    let report = verify_on(fs, to.as_ref()).map_err(|e| text("verify")(&e))?;
    let (first, last) = (report.first_lsn.unwrap(), report.last_lsn.unwrap());
    let whole = last >= DURABLE && report.records == last + 1 - first;
    if !report.is_sound() || report.torn.is_some() || !whole {
        return Err(format!("{first} to {last}, {:?}", report.damages));
    }
    let view = Some(view);
    Ok(Looked {
        view,
        dropped: false,
    })
}

// --- Moments ---------------------------------------------------------------------------------

/// A moment: before which of its calls the look is interrupted, and before which of its own the
/// writer is.
#[derive(Clone, Copy, Debug)]
struct Moment {
    of_look: u64,
    of_writer: u64,
}

/// Whether each of the two was interrupted at all, or was done before.
struct Came {
    to_look: bool,
    to_writer: bool,
}

/// Looks, with the writer acting in this moment.
fn look_in(moment: Moment, act: Act, look: Look) -> Result<Came, String> {
    let files = MemFs::new();
    let (fs_of_look, fs_of_writer) = (Moments::of(&files), Moments::of(&files));
    let mut writer = Writer::new(&fs_of_writer);
    let (begin, may_begin) = mpsc::channel::<()>();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel::<()>();
    let tell_of_pause = tell.clone();
    fs_of_writer.before_call(moment.of_writer, move || {
        tell_of_pause.send(()).ok();
        // Ends when the look is over.
        may_go_on.recv().ok();
    });
    let acting = thread::spawn(move || {
        if may_begin.recv().is_ok() {
            act(&mut writer);
            // Nobody listens any more if it had paused.
            tell.send(()).ok();
        }
        writer
    });
    fs_of_look.before_call(moment.of_look, move || {
        begin.send(()).unwrap();
        // The writer has paused or is done.
        told.recv().ok();
    });
    let looked = look(&fs_of_look);
    let to_look = !fs_of_look.call_off();
    drop(go_on);
    let writer = acting.join().unwrap();
    let to_writer = !fs_of_writer.call_off();
    let Looked { view, dropped } = looked?;
    if dropped
        && files
            .get(format!("{DIR}/{}", restamp::file_name(1)))
            .is_some()
    {
        return Err("nothing was dropped".into());
    }
    if let Some(view) = view {
        check_follows(&view, &writer.log)?;
    }
    Ok(Came { to_look, to_writer })
}

/// Now that the writer is done, the view shows what there is.
fn check_follows(view: &LogView, log: &Log) -> Result<(), String> {
    let last = view.refresh().map_err(|e| text("refresh at the end")(&e))?;
    let shown = (view.first_lsn(), last);
    let there = (log.first_lsn(), log.last_lsn());
    if shown != there {
        return Err(format!("shows {shown:?} of {there:?}"));
    }
    let expected = (shown.0..=last).map(|lsn| (lsn, payload(lsn)));
    let same = all_records(view).into_iter().eq(expected);
    same.then_some(()).ok_or("other records".into())
}

/// In every moment, with the writer doing all it has to do; and in some of the moments when it
/// does only a part.
#[track_caller]
fn check(look: Look) {
    let mut failures = Vec::new();
    let mut moments = 0;
    for (what, act) in ACTS {
        let mut look_in = |of_look, of_writer| {
            moments += 1;
            let moment = Moment { of_look, of_writer };
            look_in(moment, act, look).unwrap_or_else(|e| {
                failures.push(format!("{what}, {moment:?}: {e}"));
                let (to_look, to_writer) = (true, true);
                Came { to_look, to_writer }
            })
        };
        let calls_of_look = (1..).find(|nth| !look_in(*nth, u64::MAX).to_look).unwrap();
        let calls_of_writer = (1..).find(|nth| !look_in(1, *nth).to_writer).unwrap();
        assert!(calls_of_look > 10 && calls_of_writer > 3, "{what}");
        for of_writer in 1..calls_of_writer {
            for of_look in (1 + of_writer % STEP..calls_of_look).step_by(STEP as usize) {
                look_in(of_look, of_writer);
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {moments}: {failures:#?}",
        failures.len()
    );
}

#[test]
fn verify_finds_nothing_wrong() {
    check(verified);
}

#[test]
fn a_view_opens_reads_and_follows() {
    check(viewed);
}

#[test]
fn a_copy_is_a_log() {
    check(copied);
}

#[test]
fn a_reader_of_the_log_itself_reads_on() {
    for (what, act) in ACTS {
        for nth in 1.. {
            let fs = Moments::of(&MemFs::new());
            let mut writer = Writer::new(&fs);
            let mut reader = writer.log.read_from(1).unwrap();
            fs.before_call(nth, move || act(&mut writer));
            let read = read_on(&mut reader, DURABLE);
            let done = fs.call_off();
            read.unwrap_or_else(|e| panic!("{what}, before call {nth}: {e}"));
            if done {
                assert!(nth > 5, "{what}");
                break;
            }
        }
    }
}
