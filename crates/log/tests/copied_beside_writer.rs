//! A log that is copied while it is written to: the copy is sound, opens, and has at least what was
//! durable when the copying began.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering};

use dalsegno_log::{Log, LogView, Options, ReadError, verify};

mod common;
use common::{Folder, all_records};

fn open(folder: &Folder, name: &str) -> Log {
    let options = Options::new().segment_bytes(8 * 1024);
    options.open(folder.path().join(name)).unwrap()
}

fn payload(lsn: u64) -> Vec<u8> {
    let mut payload = lsn.to_le_bytes().to_vec();
    payload.resize(8 + (lsn % 700) as usize, lsn as u8);
    payload
}

#[test]
fn a_copy_of_a_log_that_grows_is_sound() {
    let folder = Folder::new("copied");
    let log = open(&folder, "log");
    let done = AtomicBool::new(false);
    log.wait_durable(log.append(payload(1)).unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for lsn in 2..=4000 {
                assert_eq!(log.append(payload(lsn)).unwrap(), lsn);
                if lsn % 7 == 0 {
                    log.wait_durable(lsn).unwrap();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let view = LogView::open(folder.path().join("log")).unwrap();
        let mut round = 0;
        loop {
            let last_round = done.load(Ordering::SeqCst);
            round += 1;
            let durable = view.refresh().unwrap();
            let to = folder.path().join(format!("copy-{round}"));
            view.copy_to(&to).unwrap();
            let report = verify(&to).unwrap();
            assert!(report.is_sound() && report.torn.is_none(), "{report:?}");
            let copy = open(&folder, &format!("copy-{round}"));
            assert!(
                copy.last_lsn() >= durable,
                "{} of {durable}",
                copy.last_lsn()
            );
            for (lsn, bytes) in all_records(&LogView::open(&to).unwrap()) {
                assert_eq!(bytes, payload(lsn));
            }
            // It is a log like any other.
            let next = copy.append(b"and on").unwrap();
            copy.wait_durable(next).unwrap();
            copy.close().unwrap();
            std::fs::remove_dir_all(&to).unwrap();
            if last_round {
                break;
            }
        }
    });
}

#[test]
fn what_was_dropped_is_not_copied_and_an_empty_log_can_be() {
    let folder = Folder::new("copied-parts");
    let log = open(&folder, "log");
    let view = LogView::open(folder.path().join("log")).unwrap();
    view.copy_to(folder.path().join("empty")).unwrap();
    assert_eq!(open(&folder, "empty").last_lsn(), 0);
    for lsn in 1..=200 {
        log.append(payload(lsn)).unwrap();
    }
    log.wait_durable(200).unwrap();
    log.drop_before(100).unwrap();
    match view.copy_to(folder.path().join("copy")) {
        Ok(_) => {}
        Err(ReadError::Io(failure)) if failure.error.kind() == std::io::ErrorKind::NotFound => {
            view.copy_to(folder.path().join("copy")).unwrap();
        }
        Err(e) => panic!("{e}"),
    }
    let copy = open(&folder, "copy");
    assert_eq!((copy.first_lsn(), copy.last_lsn()), (log.first_lsn(), 200));
}
