//! A future that may block syncs by itself if nobody else does and the disk is quick; else it waits as
//! any other does.

#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dalsegno_log::{Durable, Log, SyncError, may_block};

fn log(name: &str) -> Log {
    let name = format!("may-block-{name}-{}", std::process::id());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    Log::open(&dir).unwrap()
}

fn polled(durable: Pin<&mut Durable>, limit: Option<Duration>) -> Poll<Result<(), SyncError>> {
    let mut context = Context::from_waker(Waker::noop());
    match limit {
        Some(limit) => may_block(limit, || durable.poll(&mut context)),
        None => durable.poll(&mut context),
    }
}

#[test]
fn it_syncs_by_itself_if_nobody_else_does() {
    let log = log("alone");
    for _ in 0..3 {
        let lsn = log.append(b"record").unwrap();
        let durable = pin!(log.durable(lsn));
        assert!(polled(durable, Some(Duration::MAX)).is_ready());
        assert_eq!(log.durable_lsn(), lsn);
    }
}

#[test]
fn it_leaves_a_slow_disk_to_others() {
    let log = log("slow");
    log.wait_durable(log.append(b"one").unwrap()).unwrap();
    let lsn = log.append(b"two").unwrap();
    // No sync takes no time at all.
    assert!(polled(pin!(log.durable(lsn)), Some(Duration::ZERO)).is_pending());
    log.wait_durable(lsn).unwrap();
}

#[test]
fn what_may_block_ends_with_the_call() {
    let log = log("ends");
    may_block(Duration::MAX, || {
        may_block(Duration::ZERO, || ());
        let lsn = log.append(b"one").unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(log.durable(lsn)).poll(&mut context).is_ready());
    });
    let lsn = log.append(b"two").unwrap();
    assert!(polled(pin!(log.durable(lsn)), None).is_pending());
    log.wait_durable(lsn).unwrap();
}
