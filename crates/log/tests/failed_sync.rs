//! When the disk fails a sync or a write, everybody who waits is told, nothing is acknowledged any
//! more, the file is left alone, and opening the log again finds everything acknowledged before.
//!
//! A small library is put between a child process and the C library, see `common/faults.c`. It
//! lets the N-th operation fail and notes all of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use dalsegno_log::{AppendError, DropError, Log, LogView, Lsn, Options, SyncError};

mod common;
use common::{Folder, all_records, reported, this_program};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EINTR: i32 = 4;
/// Written as a number for the library: half of what was asked.
const SHORT: i32 = 0;

const SEGMENT_BYTES: u64 = 4096;
const THREADS: u64 = 4;

fn payload(thread: u64, count: u64) -> Vec<u8> {
    let text = format!("thread {thread} record {count} ");
    text.repeat(1 + (thread + count) as usize % 7).into_bytes()
}

// --- The child -------------------------------------------------------------------------------

fn acknowledge(lsn: Lsn, payload: &[u8]) {
    println!("@ack {lsn} {}", String::from_utf8_lossy(payload));
}

fn open(dir: &str) -> Log {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.open(dir).unwrap()
}

fn append_some(log: &Log, thread: u64, records: u64) {
    for count in 0..records {
        let payload = payload(thread, count);
        let lsn = log.append(&payload).unwrap();
        log.wait_durable(lsn).unwrap();
        acknowledge(lsn, &payload);
    }
}

fn arm() {
    std::fs::write(std::env::var("FAULT_ARM").unwrap(), "").unwrap();
}

fn disarm() {
    std::fs::remove_file(std::env::var("FAULT_ARM").unwrap()).unwrap();
}

/// Appends and waits until the log is poisoned; odd threads wait with a future.
fn append_until_poisoned(log: &Log, thread: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for count in 0.. {
        let payload = payload(thread, count);
        let lsn = match log.append(&payload) {
            Ok(lsn) => lsn,
            Err(AppendError::Poisoned(_)) => return,
            Err(other) => panic!("{other}"),
        };
        let waited = if thread % 2 == 1 {
            runtime.block_on(log.durable(lsn))
        } else {
            log.wait_durable(lsn)
        };
        match waited {
            Ok(()) => acknowledge(lsn, &payload),
            Err(SyncError::Poisoned(_)) => return,
            Err(other) => panic!("{other}"),
        }
        assert!(count < 10_000, "the fault never came");
    }
}

/// After the failure: whatever is asked of the log, it refuses.
fn check_all_is_refused(log: &Log, durable: Lsn) {
    let last = log.last_lsn();
    assert!(matches!(log.append(b"x"), Err(AppendError::Poisoned(_))));
    let batch = log.append_batch(&[b"x", b"y"]);
    assert!(matches!(batch, Err(AppendError::Poisoned(_))));
    assert_eq!(log.last_lsn(), last, "a refused append takes no LSN");
    assert!(matches!(log.seal(), Err(SyncError::Poisoned(_))));
    let dropped = log.drop_before(last);
    let poisoned = matches!(dropped, Err(DropError::Sync(SyncError::Poisoned(_))));
    assert!(poisoned || matches!(dropped, Ok(0)), "{dropped:?}");
    for lsn in 1..=last {
        let expected = lsn <= log.durable_lsn();
        let waited = log.wait_durable(lsn);
        match waited {
            Ok(()) => assert!(expected, "LSN {lsn}"),
            Err(SyncError::Poisoned(_)) => assert!(!expected, "LSN {lsn}"),
            Err(other) => panic!("{other}"),
        }
        let polled =
            pin!(log.durable(lsn)).poll(&mut Context::from_waker(std::task::Waker::noop()));
        match polled {
            Poll::Ready(Ok(())) => assert!(expected, "LSN {lsn}"),
            Poll::Ready(Err(SyncError::Poisoned(_))) => assert!(!expected, "LSN {lsn}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(log.durable_lsn() >= durable);
    assert_eq!(
        log.durable_lsn(),
        read_all(log),
        "what is durable can be read"
    );
}

fn read_all(log: &Log) -> Lsn {
    let mut reader = log.read_from(1).unwrap();
    while reader.next_record().unwrap().is_some() {}
    reader.next_lsn() - 1
}

#[test]
#[ignore = "the process whose disk fails"]
fn works_on_a_failing_disk() {
    let Ok(dir) = std::env::var("FAILED_SYNC_DIR") else {
        return;
    };
    let log = open(&dir);
    append_some(&log, 0, 20);
    match std::env::var("FAILED_SYNC_ACT").unwrap().as_str() {
        "until poisoned" => until_poisoned(log),
        "until full" => until_full(&log),
        "through" => {
            arm();
            append_some(&log, 1, 200);
            log.close().unwrap();
        }
        other => panic!("{other}"),
    }
    println!("@done");
}

fn until_poisoned(log: Log) {
    let durable = log.durable_lsn();
    let mut follower = log.follow(durable + 1).unwrap();
    let followed = std::thread::spawn(move || while follower.next_blocking().unwrap().is_some() {});
    arm();
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let log = log.clone();
            scope.spawn(move || append_until_poisoned(&log, thread));
        }
    });
    followed.join().unwrap();
    check_all_is_refused(&log, durable);
    assert!(matches!(log.close(), Err(SyncError::Poisoned(_))));
}

/// A full disk is met while a segment is made. It passes, and the same log goes on.
fn until_full(log: &Log) {
    arm();
    let mut count = 0;
    let (lsn, payload) = loop {
        let payload = payload(1, count);
        let lsn = match log.append(&payload) {
            Ok(lsn) => lsn,
            Err(other) => panic!("{other}"),
        };
        match log.wait_durable(lsn) {
            Ok(()) => acknowledge(lsn, &payload),
            Err(SyncError::NoSpace(_)) => break (lsn, payload),
            Err(other) => panic!("{other}"),
        }
        count += 1;
        assert!(count < 10_000, "the fault never came");
    };
    assert!(matches!(log.wait_durable(lsn), Err(SyncError::NoSpace(_))));
    assert!(log.durable_lsn() < lsn);
    println!("@full");
    disarm();
    log.wait_durable(lsn).unwrap();
    acknowledge(lsn, &payload);
    append_some(log, 2, 100);
}

// --- The parent ------------------------------------------------------------------------------

fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/faults.c");
        let to = format!("faults-{}.so", std::process::id());
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(to);
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&to, &source])
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("this test needs a C compiler called cc");
        assert!(built.success(), "cc failed");
        to
    })
}

struct Fault {
    call: &'static str,
    file: &'static str,
    nth: u64,
    times: u64,
    errno: i32,
}

struct Outcome {
    /// What the child saw acknowledged.
    acknowledged: Vec<(Lsn, Vec<u8>)>,
    said: Vec<String>,
    /// What was done to segments: call, file, result.
    calls: Vec<[String; 3]>,
}

impl Outcome {
    fn failed_at(&self) -> Option<usize> {
        self.calls.iter().position(|call| call[2] == "failed")
    }
}

fn run(folder: &Folder, act: &str, fault: &Fault) -> Outcome {
    let calls = folder.join("calls");
    let output = this_program("works_on_a_failing_disk")
        .env("FAILED_SYNC_DIR", folder.join("log"))
        .env("FAILED_SYNC_ACT", act)
        .env("LD_PRELOAD", library())
        .env("FAULT_LOG", &calls)
        .env("FAULT_ARM", folder.join("armed"))
        .env("FAULT_CALL", fault.call)
        .env("FAULT_FILE", fault.file)
        .env("FAULT_NTH", fault.nth.to_string())
        .env("FAULT_TIMES", fault.times.to_string())
        .env("FAULT_ERRNO", fault.errno.to_string())
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let said: Vec<String> = stdout
        .lines()
        .filter_map(reported)
        .map(str::to_owned)
        .collect();
    assert_eq!(said.last().map(String::as_str), Some("done"), "{stderr}");
    let acknowledged = said.iter().filter_map(|line| {
        let (lsn, payload) = line.strip_prefix("ack ")?.split_once(' ')?;
        Some((lsn.parse().unwrap(), payload.as_bytes().to_vec()))
    });
    let calls = std::fs::read_to_string(&calls).expect("the library notes calls");
    let calls = calls.lines().map(|line| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words.try_into().unwrap()
    });
    Outcome {
        acknowledged: acknowledged.collect(),
        said: said.clone(),
        calls: calls.collect(),
    }
}

/// Everything acknowledged is there, before and after recovery; and the log can be used.
fn check_reopened(folder: &Folder, outcome: &Outcome) {
    let dir = folder.join("log");
    let before = all_records(&LogView::open(&dir).unwrap());
    let log = open(dir.to_str().unwrap());
    let lsn = log.append(b"goes on").unwrap();
    log.wait_durable(lsn).unwrap();
    log.close().unwrap();
    let after = all_records(&LogView::open(&dir).unwrap());
    assert_eq!(after.split_last().unwrap().1, before);
    for (lsn, payload) in &outcome.acknowledged {
        let (found, record) = &after[*lsn as usize - 1];
        assert!(found == lsn && record == payload, "LSN {lsn}");
    }
    let report = dalsegno_log::verify(&dir).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
}

#[track_caller]
fn check_poisons(fault: Fault) {
    let folder = Folder::new("failed-sync");
    let outcome = run(&folder, "until poisoned", &fault);
    let failed_at = outcome.failed_at().expect("the library let a call fail");
    let file = &outcome.calls[failed_at][1];
    let again = outcome.calls[failed_at + 1..].iter();
    let again: Vec<_> = again.filter(|call| call[1] == *file).collect();
    assert!(again.is_empty(), "after the failure of {file}: {again:?}");
    check_reopened(&folder, &outcome);
}

#[test]
fn a_failed_sync_is_final() {
    for nth in 1..=12 {
        check_poisons(Fault {
            call: "fdatasync",
            file: ".seg",
            nth,
            times: 1,
            errno: EIO,
        });
    }
}

#[test]
fn a_failed_sync_of_a_segment_in_the_making_is_final() {
    for nth in 1..=3 {
        check_poisons(Fault {
            call: "fdatasync",
            file: ".seg.tmp",
            nth,
            times: 1,
            errno: EIO,
        });
    }
}

#[test]
fn a_failed_write_is_final() {
    for (nth, errno) in [(1, EIO), (2, EIO), (5, EIO), (9, EIO), (3, ENOSPC)] {
        check_poisons(Fault {
            call: "pwrite",
            file: ".seg",
            nth,
            times: 1,
            errno,
        });
    }
}

#[test]
fn no_room_for_a_segment_can_be_waited_out() {
    // The first write into a new segment is its header, the second one its zeros.
    for nth in 1..=4 {
        let folder = Folder::new("failed-sync-full");
        let fault = Fault {
            call: "pwrite",
            file: ".seg.tmp",
            nth,
            times: 1_000_000,
            errno: ENOSPC,
        };
        let outcome = run(&folder, "until full", &fault);
        assert!(outcome.said.iter().any(|line| line == "full"));
        check_reopened(&folder, &outcome);
    }
}

#[test]
fn what_passes_by_itself_is_not_noticed() {
    let cases = [
        ("pwrite", ".seg.tmp", ENOSPC, 1), // tried again when the segment is needed
        ("pwrite", ".seg", EINTR, 3),
        ("pwrite", ".seg", SHORT, 5),
        ("pwrite", ".seg.tmp", SHORT, 20),
        ("pwrite", ".seg.tmp", EINTR, 20),
    ];
    for (call, file, errno, times) in cases {
        let folder = Folder::new("failed-sync-passes");
        let fault = Fault {
            call,
            file,
            nth: 1,
            times,
            errno,
        };
        let outcome = run(&folder, "through", &fault);
        assert!(outcome.failed_at().is_some(), "the fault never came");
        assert_eq!(outcome.acknowledged.len(), 220);
        check_reopened(&folder, &outcome);
    }
}
