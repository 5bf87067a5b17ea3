//! Writes small real logs, as the fuzzer's input, into the folder given: `make_seeds seeds`.
//!
//! To be run again whenever the file format changes.

use std::path::Path;

use dalsegno_fuzz::mem_fs::MemFs;
use dalsegno_fuzz::{DIR, encode, options};
use dalsegno_log::Log;

fn main() {
    let to = std::env::args().nth(1).expect("usage: make_seeds FOLDER");
    let logs = [
        ("empty", made(|_| {}, true)),
        ("one-record", made(|log| append(log, 1, 0), true)),
        ("segments", made(segments, true)),
        ("dropped", made(dropped, true)),
        ("killed", made(dropped, false)),
        ("rewritten", made(rewritten, true)),
        ("rewritten-last", made(rewritten, false)),
    ];
    for (name, fs) in &logs {
        for flags in 0..4 {
            let path = Path::new(&to).join(format!("{name}-{flags}"));
            std::fs::write(path, encode(fs, flags)).expect("the folder is there");
        }
    }
}

/// The files of a log after `work`, closed or as a kill would leave them.
fn made(work: fn(&Log), close: bool) -> MemFs {
    let fs = MemFs::new();
    let log = options(&fs).open(DIR).expect("a new log opens");
    work(&log);
    if !close {
        return fs.copy();
    }
    log.close().expect("nothing fails here");
    fs
}

fn append(log: &Log, records: usize, bytes: usize) {
    let lsns = log
        .append_batch(&vec![vec![7; bytes]; records])
        .expect("there is room");
    log.wait_durable(*lsns.end()).expect("nothing fails here");
}

fn segments(log: &Log) {
    for bytes in [0, 5, 100] {
        append(log, 3, bytes);
        append(log, 1, 8);
        log.seal().expect("nothing fails here");
    }
    append(log, 2, 20);
}

fn rewritten(log: &Log) {
    segments(log);
    log.seal().expect("nothing fails here");
    for info in log.segments() {
        log.rewrite_segment(info.number, |lsn, _| lsn % 3 == 0)
            .expect("nothing fails here");
    }
}

fn dropped(log: &Log) {
    segments(log);
    log.drop_before(8).expect("nothing fails here");
    append(log, 2, 30);
}
