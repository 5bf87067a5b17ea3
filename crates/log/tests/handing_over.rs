//! A log that is handed over is opened without a sync; and whatever the note says that does not
//! fit, the log is opened as after any crash.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::Folder;
use common::mem_fs::MemFs;
use dalsegno_log::{Log, Options};

fn options(fs: &MemFs) -> Options {
    Options::new()
        .segment_bytes(4096)
        .without_threads()
        .fs(Arc::new(fs.clone()))
}

fn read(log: &Log) -> Vec<Vec<u8>> {
    let mut reader = log.read_from(log.first_lsn()).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        found.push(record.payload.to_vec());
    }
    found
}

#[test]
fn one_append_in_each_of_many_processes_costs_one_sync_each() {
    let fs = MemFs::new();
    let dir = Path::new("log");
    options(&fs).open(dir).unwrap().hand_over().unwrap();
    let before = fs.syncs();
    for n in 0..20u64 {
        let log = options(&fs).open(dir).unwrap();
        assert!(log.recovery().handed_over && log.recovery().clean);
        let lsn = log.append(n.to_le_bytes()).unwrap();
        log.wait_durable(lsn).unwrap();
        log.hand_over().unwrap();
    }
    assert_eq!(fs.syncs() - before, 20);
    // Nor does looking cost one.
    let view = options(&fs).open_read_only(dir).unwrap();
    assert_eq!((view.last_lsn(), fs.syncs() - before), (20, 20));
    let log = options(&fs).open(dir).unwrap();
    let expected: Vec<_> = (0..20u64).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(read(&log), expected);
}

#[test]
fn what_was_not_waited_for_is_durable_too() {
    let dir = Folder::new("handing-over");
    let log = Log::open(dir.path()).unwrap();
    log.append(b"a").unwrap();
    log.hand_over().unwrap();
    let log = Log::open(dir.path()).unwrap();
    assert!(log.recovery().handed_over);
    assert_eq!(read(&log), [b"a"]);
}

#[test]
fn segments_follow_each_other_over_hand_overs() {
    let dir = Folder::new("handing-over");
    for n in 0..60u64 {
        let log = Options::new().segment_bytes(2048).open(dir.path()).unwrap();
        assert!(log.recovery().clean);
        log.append([n as u8; 300]).unwrap();
        log.hand_over().unwrap();
    }
    let report = dalsegno_log::verify(dir.path()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let log = Log::open(dir.path()).unwrap();
    assert_eq!(read(&log).len(), 60);
}

#[test]
fn closing_after_a_hand_over_leaves_a_mark_again() {
    let dir = Folder::new("handing-over");
    let log = Log::open(dir.path()).unwrap();
    log.append(b"a").unwrap();
    log.hand_over().unwrap();
    Log::open(dir.path()).unwrap().close().unwrap();
    let log = Log::open(dir.path()).unwrap();
    let recovery = log.recovery();
    assert!(recovery.clean && !recovery.handed_over, "{recovery:?}");
}

#[test]
fn a_note_that_does_not_fit_is_not_believed() {
    let dir = Folder::new("handing-over");
    let log = Log::open(dir.path()).unwrap();
    log.append(b"a").unwrap();
    log.hand_over().unwrap();
    let note = dir.path().join("handover");
    let old = std::fs::read(&note).unwrap();
    let log = Log::open(dir.path()).unwrap();
    log.append(b"b").unwrap();
    log.hand_over().unwrap();

    // An older one.
    let new = std::fs::read(&note).unwrap();
    std::fs::write(&note, &old).unwrap();
    let log = Log::open(dir.path()).unwrap();
    assert!(!log.recovery().handed_over && !log.recovery().clean);
    assert_eq!(read(&log).len(), 2);
    log.hand_over().unwrap();
    assert_ne!(
        std::fs::read(&note).unwrap(),
        new,
        "a mark was written meanwhile"
    );

    // Half of one, none, something else.
    for content in [&old[..40], b"", b"x"] {
        std::fs::write(&note, content).unwrap();
        let log = Log::open(dir.path()).unwrap();
        assert!(!log.recovery().handed_over);
        assert_eq!(read(&log).len(), 2);
        log.hand_over().unwrap();
    }
}

#[test]
fn a_torn_write_behind_the_end_is_cut_off() {
    use std::os::unix::fs::FileExt;

    let dir = Folder::new("handing-over");
    let log = Log::open(dir.path()).unwrap();
    log.append(b"a").unwrap();
    log.hand_over().unwrap();
    let segment = dir.path().join("0000000000000001.seg");
    let bytes = std::fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&segment);
    // As if the next process had been killed in its first write.
    file.unwrap()
        .write_all_at(b"torn", end.next_multiple_of(512))
        .unwrap();
    let log = Log::open(dir.path()).unwrap();
    assert!(log.recovery().torn.is_some() && !log.recovery().handed_over);
    assert_eq!(read(&log), [b"a"]);
}
