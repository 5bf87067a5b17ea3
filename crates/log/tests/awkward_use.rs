//! Uses of the log that nobody intends and somebody will make: each has a sane outcome.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use dalsegno_log::{AppendError, Log, OpenError, Options, ReadError, SyncError};

fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("awkward-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    dir
}

fn payloads(log: &Log) -> Vec<Vec<u8>> {
    let mut reader = log.read_from(log.first_lsn()).unwrap();
    let mut payloads = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        payloads.push(record.payload.to_vec());
    }
    payloads
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let dir = folder("files");
    std::fs::create_dir_all(dir.join("cache.tmp")).unwrap();
    std::fs::write(dir.join("thesis.tmp"), b"years of work").unwrap();
    std::fs::write(dir.join("0000000000000009.seg.tmp"), b"left by a crash").unwrap();
    Log::open(&dir).unwrap().close().unwrap();
    assert!(dir.join("cache.tmp").is_dir());
    assert!(dir.join("thesis.tmp").is_file());
    assert!(!dir.join("0000000000000009.seg.tmp").exists());
}

#[test]
fn a_file_in_place_of_the_folder_is_an_error() {
    let dir = folder("file");
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    std::fs::write(&dir, b"not a folder").unwrap();
    assert!(matches!(Log::open(&dir), Err(OpenError::Io(_))));
    std::fs::remove_file(dir).unwrap();
}

#[test]
fn options_out_of_range_are_errors() {
    for bytes in [0, 1, 1500, (1 << 30) + 1, u64::MAX] {
        let opened = Options::new().segment_bytes(bytes).open(folder("never"));
        assert!(matches!(opened, Err(OpenError::Options(_))), "{bytes}");
    }
}

#[test]
fn a_bound_of_for_ever_is_no_bound() {
    let log = Options::new()
        .segment_bytes(1 << 16)
        .bounded(Duration::MAX)
        .open(folder("bound"))
        .unwrap();
    let lsn = log.append(b"x").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(log.durable(lsn)).unwrap();
}

#[test]
fn a_record_is_asked_for_its_bytes_once() {
    struct Fickle(AtomicUsize);
    impl AsRef<[u8]> for Fickle {
        fn as_ref(&self) -> &[u8] {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => b"first answer",
                _ => panic!("asked again"),
            }
        }
    }
    let log = Log::open(folder("fickle")).unwrap();
    log.append(Fickle(AtomicUsize::new(0))).unwrap();
    let batch = [Fickle(AtomicUsize::new(0)), Fickle(AtomicUsize::new(0))];
    let lsns = log.append_batch(&batch).unwrap();
    log.wait_durable(*lsns.end()).unwrap();
    assert_eq!(payloads(&log), vec![b"first answer".to_vec(); 3]);
}

#[test]
fn a_batch_that_panics_leaves_nothing() {
    struct Bomb(bool);
    impl AsRef<[u8]> for Bomb {
        fn as_ref(&self) -> &[u8] {
            assert!(!self.0, "boom");
            b"half of a batch"
        }
    }
    let log = Log::open(folder("bomb")).unwrap();
    let appended = catch_unwind(AssertUnwindSafe(|| {
        log.append_batch(&[Bomb(false), Bomb(true)])
    }));
    assert!(appended.is_err());
    log.wait_durable(log.append(b"innocent").unwrap()).unwrap();
    assert_eq!(payloads(&log), [b"innocent".to_vec()]);
}

#[test]
fn limits_and_ends_have_their_errors() {
    let dir = folder("limits");
    let log = Options::new().segment_bytes(4096).open(&dir).unwrap();
    let empty: [&[u8]; 0] = [];
    assert!(matches!(
        log.append_batch(&empty),
        Err(AppendError::EmptyBatch)
    ));
    assert!(matches!(
        log.append(vec![0; 4096]),
        Err(AppendError::TooLarge { .. })
    ));
    assert!(matches!(
        log.wait_durable(1),
        Err(SyncError::NotAppended { lsn: 1, last: 0 })
    ));
    assert!(matches!(log.read_from(0), Err(ReadError::Dropped { .. })));
    assert_eq!(log.wait_durable(0).unwrap(), ());
    log.append(b"").unwrap();
    assert_eq!(log.drop_before(u64::MAX).unwrap(), 0);
    let mut beyond = log.read_from(u64::MAX).unwrap();
    assert!(beyond.next_record().unwrap().is_none());

    let clone = log.clone();
    log.close().unwrap();
    assert_eq!(payloads(&clone), [b"".to_vec()]);
    assert!(matches!(clone.append(b"x"), Err(AppendError::Closed)));
    assert!(matches!(clone.seal(), Err(SyncError::Closed)));
    assert!(matches!(clone.close(), Err(SyncError::Closed)));
    assert!(clone.follow(2).unwrap().next_blocking().unwrap().is_none());
    // Closed is closed, also while clones are around.
    Log::open(&dir).unwrap().close().unwrap();
}

#[test]
fn the_last_clone_may_go_inside_a_waker() {
    struct DropsLog(Mutex<Option<Log>>);
    impl DropsLog {
        /// Without the lock in hand: who drops the last clone waits for the flusher, which may be about to wake us.
        fn drop_log(&self) {
            let log = self.0.lock().unwrap().take();
            drop(log);
        }
    }
    impl Wake for DropsLog {
        fn wake(self: Arc<Self>) {
            self.drop_log();
        }
    }
    let dir = folder("waker");
    let log = Log::open(&dir).unwrap();
    let lsn = log.append(b"x").unwrap();
    let mut durable = Box::pin(log.durable(lsn));
    let waker = Arc::new(DropsLog(Mutex::new(None)));
    *waker.0.lock().unwrap() = Some(log);
    let task = Waker::from(Arc::clone(&waker));
    let context = &mut Context::from_waker(&task);
    let _pending_or_ready = durable.as_mut().poll(context);
    // The flusher closes the log from within the waker; then the folder is free.
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    let reopened = loop {
        match Log::open(&dir) {
            Ok(log) => break log,
            Err(OpenError::Locked { .. }) if std::time::Instant::now() < patience => {
                // Ready at once: nobody was woken, so it is ours to drop.
                if durable.as_mut().poll(context).is_ready() {
                    waker.drop_log();
                }
                std::thread::yield_now();
            }
            Err(e) => panic!("{e}"),
        }
    };
    assert_eq!(payloads(&reopened), [b"x".to_vec()]);
}

#[test]
fn opening_and_closing_alone_does_not_fill_the_log() {
    let dir = folder("idle");
    let log = Options::new().segment_bytes(2048).open(&dir).unwrap();
    log.append(b"x").unwrap();
    log.close().unwrap();
    for _ in 0..200 {
        let log = Options::new().segment_bytes(2048).open(&dir).unwrap();
        assert!(log.recovery().clean);
        log.close().unwrap();
    }
    assert_eq!(dalsegno_log::verify(&dir).unwrap().segments.len(), 1);
}

#[test]
fn a_segment_of_another_history_of_the_same_log_is_noticed() {
    // One log, copied, and gone on with in two ways: the same numbers everywhere.
    let (one, other) = (folder("history-1"), folder("history-2"));
    let options = Options::new().segment_bytes(2048);
    options.open(&one).unwrap().close().unwrap();
    std::fs::create_dir_all(&other).unwrap();
    for entry in std::fs::read_dir(&one).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, other.join(path.file_name().unwrap())).unwrap();
    }
    for (dir, payload) in [(&one, b"charged"), (&other, b"refused")] {
        let log = options.open(dir).unwrap();
        log.append(payload).unwrap();
        log.seal().unwrap();
        log.append(b"later").unwrap();
        log.close().unwrap();
    }
    let first = "0000000000000001.seg";
    std::fs::copy(other.join(first), one.join(first)).unwrap();
    let report = dalsegno_log::verify(&one).unwrap();
    assert!(!report.is_sound(), "{report:?}");
}

#[test]
fn saved_torn_tails_go_with_their_segments() {
    let dir = folder("torn");
    let options = Options::new().segment_bytes(2048);
    let log = options.open(&dir).unwrap();
    log.append(b"x").unwrap();
    log.seal().unwrap();
    log.append(b"y").unwrap();
    log.close().unwrap();
    let old = dir.join("torn-0000000000000001-700-1.bin");
    let young = dir.join("torn-0000000000000002-700-1.bin");
    std::fs::write(&old, b"torn").unwrap();
    std::fs::write(&young, b"torn").unwrap();
    let log = options.open(&dir).unwrap();
    assert_eq!(log.drop_before(2).unwrap(), 1);
    assert!(!old.exists() && young.exists());
}
