//! Group commit under every interleaving that a model checker can think of: nobody waits for
//! ever, nobody is acknowledged too early, also when the disk fails or the power goes.
//!
//! Runs only with `RUSTFLAGS="--cfg shuttle"`; see CONTRIBUTING.md.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dalsegno_log::{Log, Lsn, Options, RewriteError, Rewritten, Rule, SyncError, may_block};
use dalsegno_sim::disk::{Faults, OpKind, Random, SimDisk, errno};
use dalsegno_sim::rng::Rng;
use shuttle::rand::Rng as _;
use shuttle::thread;

const ROUNDS: usize = 4_000;
const DIR: &str = "log";

fn options(disk: &SimDisk) -> Options {
    Options::new()
        .segment_bytes(2048)
        .buffer_bytes(600)
        .fs(Arc::new(disk.clone()))
}

fn seed() -> u64 {
    shuttle::rand::thread_rng().r#gen()
}

fn payload(thread: usize, round: usize) -> Vec<u8> {
    format!("thread {thread} round {round} {}", "x".repeat(70 * thread)).into_bytes()
}

fn read_all(log: &Log) -> Vec<(Lsn, Vec<u8>)> {
    let mut found = Vec::new();
    let mut reader = log.read_from(log.first_lsn()).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        found.push((record.lsn, record.payload.to_vec()));
    }
    found
}

/// Everything acknowledged is in the log that is found on the disk. Says what else is.
fn check_reopened(disk: &SimDisk, acknowledged: &[(Lsn, Vec<u8>)]) -> Vec<(Lsn, Vec<u8>)> {
    let found = read_all(&options(disk).without_threads().open(DIR).unwrap());
    for record in acknowledged {
        assert!(found.contains(record), "LSN {} is missing", record.0);
    }
    found
}

/// Threads that append and wait: blocking, as futures, and as futures that may block. Returns what was acknowledged.
fn append_in_parallel(log: &Log, threads: usize, rounds: usize) -> Vec<(Lsn, Vec<u8>)> {
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let log = log.clone();
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for round in 0..rounds {
                    let payload = payload(number, round);
                    let Ok(lsn) = log.append(&payload) else { break };
                    let waited = match number % 3 {
                        0 => log.wait_durable(lsn),
                        1 => shuttle::future::block_on(log.durable(lsn)),
                        _ => may_block(Duration::MAX, || {
                            shuttle::future::block_on(log.durable(lsn))
                        }),
                    };
                    match waited {
                        Ok(()) => {
                            assert!(log.durable_lsn() >= lsn);
                            acknowledged.push((lsn, payload));
                        }
                        Err(SyncError::NoSpace(_)) => {}
                        Err(_) => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    workers
        .into_iter()
        .flat_map(|worker| worker.join().unwrap())
        .collect()
}

#[test]
fn everybody_is_woken_and_everything_is_there() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let log = options(&disk).open(DIR).unwrap();
            let acknowledged = append_in_parallel(&log, 3, 2);
            assert_eq!(acknowledged.len(), 6);
            log.close().unwrap();
            disk.reboot(&mut dalsegno_sim::disk::LoseAll);
            check_reopened(&disk, &acknowledged);
        },
        ROUNDS,
    );
}

#[test]
fn a_failed_sync_reaches_every_waiter() {
    shuttle::check_random(
        || {
            let seed = seed();
            let disk = SimDisk::new(seed);
            let log = options(&disk).open(DIR).unwrap();
            disk.fail_nth(OpKind::Sync, seed % 4, errno::EIO);
            let acknowledged = append_in_parallel(&log, 3, 2);
            drop(log);
            disk.heal();
            disk.reboot(&mut Random::new(Rng::new(seed)));
            check_reopened(&disk, &acknowledged);
        },
        ROUNDS,
    );
}

#[test]
fn a_power_cut_leaves_nobody_waiting_and_loses_nothing_acknowledged() {
    shuttle::check_random(
        || {
            let seed = seed();
            let disk = SimDisk::new(seed);
            let log = options(&disk).open(DIR).unwrap();
            disk.crash_at(disk.ops() + seed % 40);
            let acknowledged = append_in_parallel(&log, 3, 3);
            drop(log);
            disk.reboot(&mut Random::new(Rng::new(seed)));
            check_reopened(&disk, &acknowledged);
        },
        ROUNDS,
    );
}

#[test]
fn sealing_dropping_and_closing_get_along_with_appending() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let log = options(&disk).open(DIR).unwrap();
            let keeper = {
                let log = log.clone();
                thread::spawn(move || {
                    log.seal().unwrap();
                    log.drop_before(log.durable_lsn()).unwrap();
                })
            };
            let acknowledged = append_in_parallel(&log, 2, 2);
            keeper.join().unwrap();
            let first = log.first_lsn();
            let closer = log.clone();
            let closing = thread::spawn(move || closer.close());
            // Either before the close, and then it is kept, or refused.
            let late = log.append(b"late").ok();
            closing.join().unwrap().unwrap();
            drop(log);
            let kept: Vec<_> = acknowledged
                .into_iter()
                .filter(|(lsn, _)| *lsn >= first)
                .chain(late.map(|lsn| (lsn, b"late".to_vec())))
                .collect();
            check_reopened(&disk, &kept);
        },
        ROUNDS,
    );
}

/// A log with a sealed segment, and what is in it.
fn with_a_sealed_segment(disk: &SimDisk) -> (Log, Vec<(Lsn, Vec<u8>)>) {
    let log = options(disk).open(DIR).unwrap();
    let payloads: Vec<Vec<u8>> = (1..=4).map(|lsn| vec![lsn; 30]).collect();
    log.append_batch(&payloads).unwrap();
    log.seal().unwrap();
    (log, (1..).zip(payloads).collect())
}

/// Removes every other record of the sealed segment.
fn rewrite(log: &Log) -> Result<Rewritten, RewriteError> {
    log.rewrite_segment(1, |lsn, _| lsn % 2 == 0)
}

#[test]
fn rewriting_gets_along_with_appending_and_reading() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let (log, sealed) = with_a_sealed_segment(&disk);
            let kept: Vec<_> = sealed.iter().filter(|(lsn, _)| lsn % 2 == 0).collect();
            let rewriter = {
                let log = log.clone();
                thread::spawn(move || {
                    assert_eq!(rewrite(&log).unwrap().records_removed, 2);
                    assert_eq!(rewrite(&log).unwrap().records_removed, 0);
                })
            };
            let reader = {
                let log = log.clone();
                thread::spawn(move || read_all(&log))
            };
            let acknowledged = append_in_parallel(&log, 2, 2);
            assert_eq!(acknowledged.len(), 4);
            // The segment as it was or as it is, and nothing else.
            let read = reader.join().unwrap();
            let of_sealed: Vec<_> = read.iter().filter(|(lsn, _)| *lsn <= 4).collect();
            assert!(of_sealed == kept || of_sealed == sealed.iter().collect::<Vec<_>>());
            assert!(read.is_sorted_by_key(|(lsn, _)| *lsn));
            rewriter.join().unwrap();
            disk.reboot(&mut dalsegno_sim::disk::LoseAll);
            drop(log);
            let found = check_reopened(&disk, &acknowledged);
            let of_sealed: Vec<_> = found.iter().filter(|(lsn, _)| *lsn <= 4).collect();
            assert_eq!(of_sealed, kept);
        },
        ROUNDS,
    );
}

#[test]
fn a_power_cut_while_rewriting_leaves_the_segment_as_it_was_or_as_it_is() {
    shuttle::check_random(
        || {
            let seed = seed();
            let disk = SimDisk::new(seed);
            let (log, sealed) = with_a_sealed_segment(&disk);
            disk.crash_at(disk.ops() + seed % 40);
            let rewriter = {
                let log = log.clone();
                thread::spawn(move || rewrite(&log).is_ok())
            };
            let acknowledged = append_in_parallel(&log, 2, 2);
            let rewritten = rewriter.join().unwrap();
            drop(log);
            disk.reboot(&mut Random::new(Rng::new(seed)));
            let found = check_reopened(&disk, &acknowledged);
            let of_sealed: Vec<_> = found.into_iter().filter(|(lsn, _)| *lsn <= 4).collect();
            let kept: Vec<_> = sealed.iter().filter(|(lsn, _)| lsn % 2 == 0).collect();
            let as_it_was = of_sealed == sealed && !rewritten;
            assert!(as_it_was || of_sealed.iter().collect::<Vec<_>>() == kept);
        },
        ROUNDS,
    );
}

#[test]
fn closing_leaves_nobody_behind_and_nothing_under_way() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let log = options(&disk).open(DIR).unwrap();
            // Past half of a segment, so that the next one is being prepared.
            log.wait_durable(log.append(vec![1; 900]).unwrap()).unwrap();
            let others: Vec<_> = (0..4)
                .map(|number| {
                    let log = log.clone();
                    thread::spawn(move || match number {
                        0 => drop(log.seal()),
                        1 => drop(log.drop_before(1)),
                        2 => drop(rewrite(&log)),
                        _ => drop(log.close()),
                    })
                })
                .collect();
            drop(log.close());
            let operations = disk.ops();
            for other in others {
                other.join().unwrap();
            }
            // Another process may have the log by now.
            assert_eq!(disk.ops(), operations, "the disk was used after closing");
        },
        ROUNDS,
    );
}

#[test]
fn a_full_disk_is_reported_to_all_and_can_be_waited_out() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let log = options(&disk).open(DIR).unwrap();
            disk.set_capacity(Some(disk.used() + 100));
            let mut acknowledged = append_in_parallel(&log, 3, 6);
            disk.set_capacity(None);
            let lsn = log.append(b"room again").unwrap();
            log.wait_durable(lsn).unwrap();
            acknowledged.push((lsn, b"room again".to_vec()));
            log.close().unwrap();
            check_reopened(&disk, &acknowledged);
        },
        ROUNDS,
    );
}

#[test]
fn what_gathers_on_a_full_disk_still_fits_into_segments() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let log = options(&disk).buffer_bytes(4000).open(DIR).unwrap();
            disk.set_capacity(Some(disk.used()));
            let fillers: Vec<_> = (0..2)
                .map(|_| {
                    let log = log.clone();
                    thread::spawn(move || {
                        let mut accepted = Vec::new();
                        for round in 0..5 {
                            let payload = vec![round; 350];
                            if let Ok(lsn) = log.append(&payload) {
                                accepted.push((lsn, payload));
                            }
                        }
                        accepted
                    })
                })
                .collect();
            let waiter = {
                let log = log.clone();
                thread::spawn(move || drop(log.wait_durable(log.last_lsn())))
            };
            waiter.join().unwrap();
            let mut accepted = Vec::new();
            for filler in fillers {
                accepted.extend(filler.join().unwrap());
            }
            disk.set_capacity(None);
            log.close().unwrap();
            check_reopened(&disk, &accepted);
        },
        ROUNDS,
    );
}

#[test]
#[should_panic(expected = "is missing")]
fn an_acknowledgement_before_the_sync_is_found_here_too() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let options = options(&disk).break_rule(Rule::AcknowledgeAfterSync);
            let log = options.open(DIR).unwrap();
            let acknowledged = append_in_parallel(&log, 2, 2);
            disk.reboot(&mut dalsegno_sim::disk::LoseAll);
            drop(log);
            check_reopened(&disk, &acknowledged);
        },
        ROUNDS,
    );
}

#[test]
fn a_future_can_be_dropped_at_any_time() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            disk.set_faults(Faults::default());
            let log = options(&disk).open(DIR).unwrap();
            let dropper = {
                let log = log.clone();
                thread::spawn(move || {
                    let lsn = log.append(b"dropped").unwrap();
                    let mut durable = Box::pin(log.durable(lsn));
                    let mut context = Context::from_waker(Waker::noop());
                    if let Poll::Ready(result) = durable.as_mut().poll(&mut context) {
                        result.unwrap();
                    }
                })
            };
            let acknowledged = append_in_parallel(&log, 2, 2);
            assert_eq!(acknowledged.len(), 4);
            dropper.join().unwrap();
            log.close().unwrap();
            check_reopened(&disk, &acknowledged);
        },
        ROUNDS,
    );
}

#[test]
fn a_follower_sees_each_record_once_and_the_end() {
    shuttle::check_random(
        || {
            let disk = SimDisk::new(seed());
            let log = options(&disk).open(DIR).unwrap();
            let mut follower = log.follow(1).unwrap();
            let following = thread::spawn(move || {
                let mut seen = Vec::new();
                while let Some(record) = follower.next_blocking().unwrap() {
                    seen.push(record.lsn);
                }
                seen
            });
            append_in_parallel(&log, 2, 2);
            log.close().unwrap();
            assert_eq!(following.join().unwrap(), [1, 2, 3, 4]);
        },
        ROUNDS,
    );
}
