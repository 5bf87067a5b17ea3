//! Failures in corners that random lives rarely reach.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use dalsegno_log::{AppendError, OpenError, Options, SyncError, repair_on, verify_on};
use dalsegno_sim::disk::{Enumerate, Fault, LoseAll, OpKind, Random, SimDisk, errno};
use dalsegno_sim::rng::Rng;

fn options(disk: &SimDisk) -> Options {
    Options::new()
        .segment_bytes(4096)
        .without_threads()
        .fs(Arc::new(disk.clone()))
}

#[test]
fn a_failed_sync_of_a_segment_being_prepared_is_final_too() {
    let disk = SimDisk::new(1);
    let log = options(&disk).open("log").unwrap();
    // The group's own sync, and then that of the segment which is prepared behind it.
    disk.fail_nth(OpKind::Sync, 1, errno::EIO);
    let lsn = log.append(vec![1; 2000]).unwrap();
    log.wait_durable(lsn).unwrap();
    let next = log.append(b"next").unwrap();
    let waited = log.wait_durable(next);
    assert!(matches!(waited, Err(SyncError::Poisoned(_))), "{waited:?}");
    assert!(matches!(log.append(b"x"), Err(AppendError::Poisoned(_))));
    assert_eq!(log.durable_lsn(), lsn);
}

#[test]
fn what_a_view_has_shown_no_power_cut_takes_back() {
    let disk = SimDisk::new(1);
    let log = options(&disk).open("log").unwrap();
    log.append(b"written, but killed before its sync").unwrap();
    disk.crash_at_sync(0);
    assert!(log.wait_durable(1).is_err());
    // A kill: the bytes are in the cache and not on the disk.
    disk.restart_process();
    drop(log);
    let view = options(&disk).open_read_only("log").unwrap();
    assert_eq!(view.last_lsn(), 1);
    disk.reboot(&mut LoseAll);
    let log = options(&disk).open("log").unwrap();
    assert_eq!(log.recovery().last_lsn, 1);
}

#[test]
fn a_torn_tail_on_a_full_disk_does_not_keep_the_log_closed() {
    let mut torn = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let log = options(&disk).open("log").unwrap();
        log.wait_durable(log.append(b"kept").unwrap()).unwrap();
        log.append(vec![5; 1200]).unwrap();
        disk.crash_at_sync(0);
        assert!(log.wait_durable(2).is_err());
        disk.reboot(&mut Random::new(Rng::new(seed)));
        drop(log);
        disk.set_capacity(Some(disk.used()));
        let log = options(&disk).open("log").unwrap();
        assert!(log.recovery().last_lsn >= 1);
        if let Some(tail) = &log.recovery().torn {
            assert_eq!(tail.saved_as, None);
            torn += 1;
        }
    }
    assert!(torn > 10, "only {torn}");
}

#[test]
fn the_epoch_rises_when_something_was_written() {
    let disk = SimDisk::new(1);
    let mut last = 0;
    for _ in 0..3 {
        let log = options(&disk).open("log").unwrap();
        assert!(log.recovery().epoch > last);
        last = log.recovery().epoch;
        log.append(b"x").unwrap();
        log.close().unwrap();
    }
}

/// Calls `check` with a copy of the disk for every outcome of a power cut.
fn each_outcome(disk: &SimDisk, mut check: impl FnMut(&SimDisk)) {
    let mut choices = Enumerate::new(4096);
    loop {
        let machine = disk.snapshot();
        machine.reboot(&mut choices);
        check(&machine);
        if !choices.next_combination() {
            assert!(choices.exhausted());
            return;
        }
    }
}

/// Appends a batch that spans sectors, and loses power at its sync.
fn crash_in_a_batch(disk: &SimDisk) {
    let log = options(disk).open("log").unwrap();
    log.append_batch(&[vec![1; 700], vec![2; 700]]).unwrap();
    disk.crash_at_sync(0);
    assert!(log.wait_durable(log.last_lsn()).is_err());
}

#[test]
fn two_torn_groups_at_the_start_of_a_segment_are_never_taken_for_damage() {
    let disk = SimDisk::new(1);
    let log = options(&disk).open("log").unwrap();
    log.append(b"kept").unwrap();
    log.seal().unwrap();
    // A kill: closing would begin the next segment.
    disk.restart_process();
    drop(log);
    crash_in_a_batch(&disk);
    // Of the first, only the segment's start may be left.
    each_outcome(&disk, |once| {
        crash_in_a_batch(once);
        each_outcome(once, |twice| {
            let log = options(twice).open("log").unwrap();
            assert!([1, 3, 5].contains(&log.recovery().last_lsn));
        });
    });
}

#[test]
fn a_log_that_is_refused_is_not_changed() {
    let disk = SimDisk::new(1);
    let log = options(&disk).open("log").unwrap();
    // More than half of a segment, so that the next one is there.
    log.wait_durable(log.append(vec![1; 2000]).unwrap())
        .unwrap();
    disk.restart_process();
    drop(log);
    // A torn tail, which opening would cut; and a prepared segment that is damaged.
    let (used, prepared) = ("log/0000000000000001.seg", "log/0000000000000002.seg");
    let mut bytes = disk.read_file(used).unwrap();
    bytes[3900..3950].fill(0xa5);
    disk.write_raw(used, &bytes).unwrap();
    let short = disk.read_file(prepared).unwrap()[..1000].to_vec();
    disk.write_raw(prepared, &short).unwrap();
    let names = disk.files("log");
    let refused = options(&disk).open("log");
    assert!(
        matches!(refused, Err(OpenError::Damage { .. })),
        "{refused:?}"
    );
    assert_eq!(disk.read_file(used).unwrap(), bytes);
    assert_eq!(disk.read_file(prepared).unwrap(), short);
    assert_eq!(disk.files("log"), names);
}

/// A sync that failed over zeros on a torn tail, and another one over the cut of a sealed file: the
/// torn bytes can come back behind the seal, when other segments have long followed it.
#[test]
fn torn_bytes_that_come_back_behind_a_seal_are_not_taken_for_damage() {
    let mut came_back = 0;
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        let log = options(&disk).open("log").unwrap();
        log.wait_durable(log.append(b"kept").unwrap()).unwrap();
        log.append_batch(&[vec![1; 700], vec![2; 1500]]).unwrap();
        disk.crash_at_sync(0);
        assert!(log.wait_durable(3).is_err());
        disk.reboot(&mut Random::new(Rng::new(seed)));
        drop(log);
        // The first attempt fails where it zeroes the torn tail.
        disk.fail_nth(OpKind::Sync, 1, errno::EIO);
        drop(options(&disk).open("log"));
        disk.heal();
        let log = options(&disk).open("log").unwrap();
        if log.recovery().last_lsn > 1 {
            continue;
        }
        // That of the next segment succeeds, that of the seal does not.
        disk.fail_nth(OpKind::Sync, 1, errno::EIO);
        assert!(log.seal().is_err());
        disk.restart_process();
        drop(log);
        let log = options(&disk).open("log").unwrap();
        log.wait_durable(log.append(b"next").unwrap()).unwrap();
        let sealed = log.segments()[0].sealed;
        disk.reboot(&mut LoseAll);
        drop(log);

        let first = disk.read_file("log/0000000000000001.seg").unwrap();
        came_back += usize::from(sealed && first.iter().skip(1024).any(|byte| *byte != 0));
        let report = verify_on(&disk, "log".as_ref()).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.damages);
        assert_eq!(repair_on(&disk, "log".as_ref()).unwrap().actions, []);
        let log = options(&disk).open("log").unwrap();
        let mut reader = log.read_from(1).unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().payload, b"kept");
        assert_eq!(reader.next_record().unwrap().unwrap().payload, b"next");
    }
    assert!(came_back > 3, "only {came_back}");
}

#[test]
fn a_file_that_cannot_be_read_for_a_moment_is_not_reported_as_damage() {
    let base = SimDisk::new(1);
    let log = options(&base).open("log").unwrap();
    log.append(b"dropped").unwrap();
    log.seal().unwrap();
    log.append(b"kept").unwrap();
    log.seal().unwrap();
    log.drop_before(2).unwrap();
    log.close().unwrap();
    for op in 0.. {
        let disk = base.snapshot();
        let at = disk.ops() + op;
        disk.fail_at(at, Fault::Broken);
        match verify_on(&disk, "log".as_ref()) {
            Ok(report) => assert!(report.is_sound(), "operation {op}: {:?}", report.damages),
            Err(e) => assert!(matches!(e, OpenError::Io(_)), "{e}"),
        }
        if disk.ops() <= at {
            assert!(op > 10, "only {op}");
            return;
        }
    }
}
