//! What opening costs: one pass over the newest segment, whether to write or only to read.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use dalsegno_log::Options;

mod common;
use common::mem_fs::MemFs;

const SEGMENT_BYTES: u64 = 4 << 20;

fn options(fs: &MemFs) -> Options {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.without_threads().fs(Arc::new(fs.clone()))
}

/// The newest segment is nearly full, and not sealed.
fn full_log() -> MemFs {
    let fs = MemFs::new();
    let log = options(&fs).open("log").unwrap();
    for _ in 0..32 {
        let lsns = log.append_batch(&vec![vec![7; 190]; 500]).unwrap();
        log.wait_durable(*lsns.end()).unwrap();
    }
    assert_eq!(log.segments().len(), 1);
    log.close().unwrap();
    fs
}

fn bytes_to(fs: &MemFs, open: impl FnOnce()) -> u64 {
    let before = fs.bytes_read();
    open();
    fs.bytes_read() - before
}

/// A pass and what is read ahead, and once more what is behind the end.
const ONE_PASS: u64 = SEGMENT_BYTES + SEGMENT_BYTES / 2;

#[test]
fn a_view_reads_the_newest_segment_once() {
    let fs = full_log();
    let read = bytes_to(&fs, || {
        let view = options(&fs).open_read_only("log").unwrap();
        assert_eq!(view.last_lsn(), 16_000);
    });
    assert!(read < ONE_PASS, "{read} bytes");
}

#[test]
fn a_writer_reads_the_newest_segment_once() {
    let fs = full_log();
    let read = bytes_to(&fs, || {
        let log = options(&fs).open("log").unwrap();
        assert_eq!(log.last_lsn(), 16_000);
    });
    // And the prepared one: that nothing was ever written to it.
    assert!(read < ONE_PASS + SEGMENT_BYTES, "{read} bytes");
}
