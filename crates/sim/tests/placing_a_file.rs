//! A file put in place is there, whole; one that was not put in place left alone what was there.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io;
use std::path::Path;

use dalsegno_log::fs::{Fs, PlaceError, place_file};
use dalsegno_sim::disk::{Enumerate, KeepAll, LoseAll, OpKind, SimDisk, errno};

const PATH: &str = "folder/file";

fn place(disk: &SimDisk, content: &[u8]) -> Result<(), PlaceError> {
    place_file(disk, Path::new("folder"), Path::new(PATH), |file| {
        file.write_full(content, 0)
    })
}

/// A disk with the old file on it, durably.
fn with_the_old_one(old: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("folder")).unwrap();
    place(&disk, old).unwrap();
    disk.reboot(&mut LoseAll);
    disk
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_old_or_the_new_file() {
    let (old, new) = (vec![1; 700], vec![2; 1100]);
    let mut placed = false;
    for op in 0.. {
        let disk = with_the_old_one(&old);
        disk.crash_at(disk.ops() + op);
        placed = place(&disk, &new).is_ok();
        let mut choices = Enumerate::new(4096);
        loop {
            let machine = disk.snapshot();
            machine.reboot(&mut choices);
            let found = machine.read_file(PATH).unwrap();
            assert!(found == new || (found == old && !placed), "operation {op}");
            // What the attempt left is not in the way of the next one.
            place(&machine, b"another").unwrap();
            assert_eq!(machine.read_file(PATH).unwrap(), b"another");
            if !choices.next_combination() {
                break;
            }
        }
        if placed {
            break;
        }
    }
    assert!(placed);
}

#[test]
fn every_failure_is_told_apart_and_can_be_followed_by_another_attempt() {
    for (kind, errno, is_sync) in [
        (OpKind::Open, errno::EIO, false),
        (OpKind::Write, errno::ENOSPC, false),
        (OpKind::Sync, errno::EIO, true),
        (OpKind::Rename, errno::EIO, false),
        (OpKind::SyncDir, errno::EIO, true),
    ] {
        let disk = with_the_old_one(b"old");
        disk.fail_next(kind, errno);
        let error = place(&disk, b"new").unwrap_err();
        assert_eq!(matches!(error, PlaceError::Sync(_)), is_sync, "{kind:?}");
        let cause = io::Error::from_raw_os_error(errno);
        let text = error.to_string();
        let error = io::Error::from(error);
        assert_eq!(error.kind(), cause.kind());
        assert!(error.to_string() == text && text.contains(&cause.to_string()));
        let crashed = disk.snapshot();
        crashed.reboot(&mut KeepAll);
        let found = crashed.read_file(PATH).unwrap();
        assert!(found == b"old" || found == b"new", "{kind:?}");
        place(&disk, b"third").unwrap();
        disk.reboot(&mut LoseAll);
        assert_eq!(disk.read_file(PATH).unwrap(), b"third", "{kind:?}");
    }
}
