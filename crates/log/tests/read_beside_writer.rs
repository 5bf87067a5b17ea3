//! Readers beside a writer, in its process and in another one, see whole batches, in order, once,
//! across rotations; and are told when what they ask for has been dropped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dalsegno_log::{Log, LogView, Lsn, Options, ReadError, Reader};

mod common;
use common::{Folder, Rng, all_records, reported, this_program};

const SEGMENT_BYTES: u64 = 8 * 1024;
const BATCHES: u64 = 400;

fn open(dir: &Path) -> Log {
    let options = Options::new().segment_bytes(SEGMENT_BYTES);
    options.open(dir).unwrap()
}

/// Batch, place in it, size of it: enough for a reader to know what has to come next.
fn batch(number: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng(number);
    let records = 1 + rng.below(6);
    let payload = |index: u64| {
        let mut payload = Vec::new();
        for word in [number, index, records] {
            payload.extend_from_slice(&word.to_le_bytes());
        }
        payload.resize(24 + Rng(number + index).below(300) as usize, index as u8);
        payload
    };
    (0..records).map(payload).collect()
}

fn append_batches(log: &Log, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let lsns = log.append_batch(&batch(number)).unwrap();
        log.wait_durable(*lsns.end()).unwrap();
    }
}

/// What a reader has seen so far, and what must come next.
#[derive(Default)]
struct Seen {
    lsn: Lsn,
    batch: u64,
    rest: Vec<Vec<u8>>,
}

impl Seen {
    fn take(&mut self, lsn: Lsn, payload: &[u8]) {
        if self.rest.is_empty() {
            self.rest = batch(self.batch);
            self.rest.reverse();
            self.batch += 1;
        }
        assert_eq!(lsn, self.lsn + 1, "in order, none twice, none left out");
        assert!(self.rest.pop().unwrap() == payload, "LSN {lsn}");
        self.lsn = lsn;
    }

    fn take_all(&mut self, reader: &mut Reader) {
        while let Some(record) = reader.next_record().unwrap() {
            self.take(record.lsn, record.payload);
        }
        assert!(self.rest.is_empty(), "half a batch at LSN {}", self.lsn);
    }
}

#[test]
fn a_view_follows_across_rotations() {
    let folder = Folder::new("read-beside-view");
    let log = open(folder.path());
    let appended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..BATCHES {
                let lsns = log.append_batch(&batch(number)).unwrap();
                appended.store(*lsns.end(), Ordering::SeqCst);
                log.wait_durable(*lsns.end()).unwrap();
            }
        });
        let view = LogView::open(folder.path()).unwrap();
        let mut reader = view.read_from(1).unwrap();
        let mut seen = Seen::default();
        while seen.batch < BATCHES {
            let durable = log.durable_lsn();
            let shown = view.refresh().unwrap();
            assert!(shown >= durable, "what is durable can be seen");
            seen.take_all(&mut reader);
            assert_eq!(seen.lsn, shown);
            // Appended and reported may be a moment apart.
            while appended.load(Ordering::SeqCst) < shown {
                std::thread::yield_now();
            }
        }
        assert_eq!(view.refresh().unwrap(), log.last_lsn());
    });
}

#[test]
#[ignore = "the writing process"]
fn writes_batches() {
    let Some(dir) = std::env::var_os("READ_BESIDE_DIR") else {
        return;
    };
    let log = open(Path::new(&dir));
    println!("@open");
    append_batches(&log, 0..BATCHES);
    println!("@{}", log.last_lsn());
}

#[test]
fn a_view_follows_another_process() {
    let folder = Folder::new("read-beside-process");
    let mut child = this_program("writes_batches")
        .env("READ_BESIDE_DIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next_report = || {
        let mut lines = lines.by_ref().map(|line| line.unwrap());
        lines.find_map(|line| reported(&line).map(str::to_owned))
    };
    assert_eq!(next_report().as_deref(), Some("open"));
    let view = LogView::open(folder.path()).unwrap();
    let mut reader = view.read_from(1).unwrap();
    let mut seen = Seen::default();
    while seen.batch < BATCHES {
        let shown = view.refresh().unwrap();
        seen.take_all(&mut reader);
        assert_eq!(seen.lsn, shown);
    }
    let last = next_report().expect("the last LSN");
    assert_eq!(view.refresh().unwrap(), last.parse::<Lsn>().unwrap());
    assert_eq!(next_report(), None);
    assert!(child.wait().unwrap().success());
}

#[test]
fn views_can_be_opened_at_any_moment() {
    let folder = Folder::new("read-beside-any");
    let log = open(folder.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            append_batches(&log, 0..BATCHES);
            done.store(true, Ordering::SeqCst);
        });
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            let view = LogView::open(folder.path()).unwrap();
            let mut seen = Seen::default();
            seen.take_all(&mut view.read_from(1).unwrap());
            assert!(seen.lsn >= last, "what was seen once is seen again");
            last = seen.lsn;
            let report = dalsegno_log::verify(folder.path()).unwrap();
            assert!(report.is_sound(), "{:?}", report.damages);
        }
    });
}

#[test]
fn a_view_that_keeps_up_follows_across_drops() {
    let folder = Folder::new("read-beside-drops");
    let log = open(folder.path());
    let view = LogView::open(folder.path()).unwrap();
    let mut reader = view.read_from(1).unwrap();
    let mut seen = Seen::default();
    let mut dropped = 0;
    for number in (0..BATCHES).step_by(20) {
        append_batches(&log, number..number + 20);
        view.refresh().unwrap();
        seen.take_all(&mut reader);
        dropped += log.drop_before(seen.lsn).unwrap();
        view.refresh().unwrap();
        assert_eq!(view.first_lsn(), log.first_lsn());
        let first = view.first_lsn();
        let records = all_records(&view);
        assert_eq!((records[0].0, records.last().unwrap().0), (first, seen.lsn));
    }
    assert!(dropped > 10);
}

#[test]
fn followers_see_every_record_once() {
    let folder = Folder::new("read-beside-follow");
    let log = open(folder.path());
    append_batches(&log, 0..50);
    let mut blocking = log.follow(1).unwrap();
    let mut waiting = log.follow(1).unwrap();
    let threads = [
        std::thread::spawn(move || {
            let mut seen = Seen::default();
            while let Some(record) = blocking.next_blocking().unwrap() {
                seen.take(record.lsn, record.payload);
            }
            seen
        }),
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let follow = async {
                let mut seen = Seen::default();
                while let Some(record) = waiting.next().await.unwrap() {
                    seen.take(record.lsn, record.payload);
                }
                seen
            };
            { runtime }.build().unwrap().block_on(follow)
        }),
    ];
    append_batches(&log, 50..BATCHES);
    let last = log.last_lsn();
    log.close().unwrap();
    for thread in threads {
        let seen = thread.join().unwrap();
        assert_eq!((seen.lsn, seen.rest.len()), (last, 0));
    }
}

#[test]
fn many_followers_and_many_appenders() {
    let folder = Folder::new("read-beside-many");
    let log = open(folder.path());
    let followers: Vec<_> = (0..4)
        .map(|_| {
            let mut follower = log.follow(1).unwrap();
            std::thread::spawn(move || {
                let mut payloads = Vec::new();
                while let Some(record) = follower.next_blocking().unwrap() {
                    assert_eq!(record.lsn, payloads.len() as u64 + 1);
                    payloads.push(record.payload.to_vec());
                }
                payloads
            })
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = log.clone();
            scope.spawn(move || append_batches(&log, thread * 1000..thread * 1000 + 100));
        }
    });
    log.close().unwrap();
    let expected: Vec<_> = all_records(&LogView::open(folder.path()).unwrap());
    let expected: Vec<Vec<u8>> = expected.into_iter().map(|(_, payload)| payload).collect();
    for follower in followers {
        assert!(follower.join().unwrap() == expected);
    }
}

#[test]
fn a_dropped_record_is_named_with_the_first_one_there_is() {
    let folder = Folder::new("read-beside-dropped");
    let log = open(folder.path());
    append_batches(&log, 0..100);
    let view = LogView::open(folder.path()).unwrap();
    let mut at_the_start = log.read_from(1).unwrap();
    assert!(log.drop_before(log.last_lsn()).unwrap() > 1);
    let first = log.first_lsn();
    assert!(first > 1);
    view.refresh().unwrap();
    let refused = |result: Result<Reader, ReadError>, lsn: Lsn| match result {
        Err(ReadError::Dropped {
            lsn: named,
            first: f,
        }) => assert_eq!((named, f), (lsn, first)),
        other => panic!("{other:?}"),
    };
    for lsn in [0, 1, first - 1] {
        refused(log.read_from(lsn), lsn);
        refused(view.read_from(lsn), lsn);
        assert!(matches!(log.follow(lsn), Err(ReadError::Dropped { .. })));
    }
    match at_the_start.next_record() {
        Err(ReadError::Dropped { lsn: 1, first: f }) => assert_eq!(f, first),
        other => panic!("{other:?}"),
    }
    assert!(
        log.read_from(first)
            .unwrap()
            .next_record()
            .unwrap()
            .is_some()
    );
    assert!(
        view.read_from(first)
            .unwrap()
            .next_record()
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_reader_inside_a_dropped_segment_finishes_it() {
    let folder = Folder::new("read-beside-inside");
    let log = open(folder.path());
    append_batches(&log, 0..100);
    let mut reader = log.read_from(1).unwrap();
    reader.next_record().unwrap().unwrap();
    log.drop_before(log.last_lsn()).unwrap();
    let mut last = 1;
    let error = loop {
        match reader.next_record() {
            Ok(record) => last = record.unwrap().lsn,
            Err(e) => break e,
        }
    };
    let first = log.first_lsn();
    assert!(last > 1, "it has been read up to the segment's end");
    match error {
        ReadError::Dropped { lsn, first: f } => assert_eq!((lsn, f), (last + 1, first)),
        other => panic!("{other}"),
    }
}
