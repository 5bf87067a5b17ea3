//! A log has one writer at a time. A second one is told who the first is, and nobody has to clean
//! up behind a writer that was killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use dalsegno_log::{Log, LogView, OpenError};

mod common;
use common::{Folder, all_records, reported, this_program};

#[track_caller]
fn check_locked_by(dir: &Path, pid: u32) {
    match Log::open(dir) {
        Err(OpenError::Locked { dir: named, owner }) => {
            assert_eq!(owner, format!("process {pid}"));
            assert_eq!(named, dir);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "the other process"]
fn holds_the_log_until_its_input_ends() {
    let Ok(dir) = std::env::var("SECOND_WRITER_DIR") else {
        return;
    };
    match Log::open(dir) {
        Ok(log) => {
            let lsn = log.append(b"from the other process").unwrap();
            log.wait_durable(lsn).unwrap();
            println!("@open");
            // Ends with the parent, or is killed by it.
            drop(std::io::stdin().read_to_end(&mut Vec::new()));
            log.close().unwrap();
        }
        Err(e) => println!("@{e}"),
    }
    std::io::stdout().flush().unwrap();
}

/// Starts the other process and returns what it said of opening the log.
fn other_process(dir: &Path) -> (Other, String) {
    let mut child = this_program("holds_the_log_until_its_input_ends")
        .env("SECOND_WRITER_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while reported(&line).is_none() {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it said nothing");
    }
    let said = reported(line.trim_end()).unwrap().to_owned();
    (Other { child, output }, said)
}

struct Other {
    child: Child,
    /// Open as long as the process has something to say.
    output: BufReader<ChildStdout>,
}

impl Other {
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.output.read_to_end(&mut Vec::new()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn the_same_process_is_refused_too() {
    let folder = Folder::new("second-writer-same");
    let log = Log::open(folder.path()).unwrap();
    check_locked_by(folder.path(), std::process::id());
    let clone = log.clone();
    drop(log);
    check_locked_by(folder.path(), std::process::id());
    drop(clone);
    Log::open(folder.path()).unwrap();
}

#[test]
fn closing_lets_the_next_one_in_although_clones_are_left() {
    let folder = Folder::new("second-writer-close");
    let log = Log::open(folder.path()).unwrap();
    let clone = log.clone();
    log.close().unwrap();
    Log::open(folder.path()).unwrap();
    assert!(clone.append(b"late").is_err());
}

#[test]
fn another_process_is_refused_and_told_who_has_it() {
    let folder = Folder::new("second-writer-other");
    let log = Log::open(folder.path()).unwrap();
    let (other, said) = other_process(folder.path());
    let me = format!("is in use by process {}", std::process::id());
    assert!(said.contains(&me), "{said}");
    other.end();
    log.close().unwrap();
    let (other, said) = other_process(folder.path());
    assert_eq!(said, "open");
    other.end();
}

#[test]
fn a_killed_owner_leaves_nothing_that_blocks() {
    let folder = Folder::new("second-writer-killed");
    let (other, said) = other_process(folder.path());
    assert_eq!(said, "open");
    check_locked_by(folder.path(), other.child.id());
    other.kill();
    let log = Log::open(folder.path()).unwrap();
    assert_eq!(log.last_lsn(), 1);
    assert!(!log.recovery().clean);
    check_locked_by(folder.path(), std::process::id());
}

#[test]
fn a_lock_file_with_any_text_does_not_block() {
    for text in ["process 1", "", "process 4711\nand more", "\u{0}\u{1}"] {
        let folder = Folder::new("second-writer-stale");
        std::fs::write(folder.join("lock"), text).unwrap();
        let log = Log::open(folder.path()).unwrap();
        check_locked_by(folder.path(), std::process::id());
        drop(log);
    }
}

#[test]
fn an_owner_that_cannot_be_named_is_refused_all_the_same() {
    let folder = Folder::new("second-writer-unnamed");
    let log = Log::open(folder.path()).unwrap();
    for bytes in [&b""[..], &[0xff, 0xfe]] {
        std::fs::write(folder.join("lock"), bytes).unwrap();
        match Log::open(folder.path()) {
            Err(OpenError::Locked { owner, .. }) => assert_eq!(owner, "another process"),
            other => panic!("{other:?}"),
        }
    }
    drop(log);
}

#[test]
fn reading_needs_no_lock() {
    let folder = Folder::new("second-writer-read");
    let (other, said) = other_process(folder.path());
    assert_eq!(said, "open");
    let view = LogView::open(folder.path()).unwrap();
    let expected = b"from the other process".to_vec();
    assert_eq!(all_records(&view), [(1, expected)]);
    // A view does not keep a writer out either.
    other.end();
    Log::open(folder.path()).unwrap();
}
