//! Crash points, reboots, restarts, and that a run depends on its seed alone.

use super::*;
use crate::rng::Rng;

#[test]
fn the_power_goes_at_the_operation_asked_for_and_stays_off() {
    let disk = disk(1);
    let a = file(&disk, &sectors("aa"));
    disk.crash_at(disk.ops() + 1);
    a.write_full(&sectors("b"), 0).unwrap();
    assert!(!disk.crashed());
    assert_crash(a.write_at(&sectors("c"), 512));
    assert!(disk.crashed());
    let ops = disk.ops();
    let left = (disk.unsynced(), seen(&disk));
    assert_crash(a.write_at(b"x", 0));
    assert_crash(a.read_at(&mut [0], 0));
    assert_crash(a.sync());
    assert_crash(a.len());
    assert_crash(a.truncate(0));
    assert_crash(disk.open(Path::new("d/n"), OpenMode::CreateNew));
    assert_crash(rename(&disk, "a", "b"));
    assert_crash(remove(&disk, "a"));
    assert_crash(sync_dir(&disk));
    assert_crash(disk.create_dir(Path::new("e")));
    assert_crash(disk.list(Path::new("d")));
    match disk.lock(Path::new("d/L"), "me") {
        Err(LockError::Io(e)) => assert!(SimDisk::is_crash(&e)),
        other => panic!("{other:?}"),
    }
    assert_eq!((disk.unsynced(), seen(&disk)), left);
    assert_eq!(disk.ops(), ops);
    // The sectors of the write at which it happened may have survived.
    assert_eq!(keys(&every_crash(&disk, seen)), ["aa", "ac", "ba", "bc"]);
}

#[test]
fn a_sync_at_which_the_power_goes_has_saved_any_subset() {
    let disk = disk(1);
    let a = file(&disk, &sectors("a"));
    drop(create(&disk, "x"));
    a.write_full(&sectors("b"), 0).unwrap();
    disk.crash_at(disk.ops());
    assert_crash(a.sync());
    let states = every_crash(&disk, |d| format!("{} {:?}", seen(d), d.files("d")));
    assert_eq!(states.len(), 4);
}

#[test]
fn other_operations_at_which_the_power_goes_do_nothing() {
    let disk = disk(1);
    drop(file(&disk, &sectors("a")));
    for op in [
        &(|disk: &SimDisk| remove(disk, "a")) as &dyn Fn(&SimDisk) -> io::Result<()>,
        &|disk| rename(disk, "a", "b"),
        &|disk| disk.open(Path::new("d/n"), OpenMode::CreateNew).map(drop),
    ] {
        let disk = disk.snapshot();
        disk.crash_at(0);
        assert_crash(op(&disk));
        assert_eq!(disk.unsynced(), Unsynced::default());
        disk.reboot(&mut KeepAll);
        assert_eq!(disk.files("d"), ["a"]);
    }
}

#[test]
fn a_reboot_kills_old_handles_for_ever_and_clears_the_crash_point() {
    let disk = disk(1);
    let old = file(&disk, b"abc");
    disk.crash_at(disk.ops() + 100);
    disk.power_off_now();
    assert_crash(old.len());
    disk.reboot(&mut KeepAll);
    assert!(!disk.crashed());
    let ops = disk.ops();
    assert_crash(old.write_at(b"x", 0));
    assert_crash(old.sync());
    assert_eq!(disk.ops(), ops, "dead handles are no operations");
    let new = open(&disk, "a");
    for _ in 0..200 {
        new.write_full(b"y", 0).unwrap();
    }
    drop(old);
    new.write_full(b"y", 0).unwrap();
    disk.restart_process();
    assert_crash(new.len());
}

#[test]
fn a_restart_of_the_process_keeps_what_was_written_and_keeps_it_pending() {
    let disk = disk(1);
    let a = file(&disk, &sectors("a"));
    a.write_full(&sectors("b"), 0).unwrap();
    drop(create(&disk, "n"));
    let pending = disk.unsynced();
    disk.restart_process();
    assert_crash(a.sync());
    assert_eq!(seen(&disk), "b");
    assert_eq!(disk.unsynced(), pending);
    assert_eq!(seen(&survivor(&disk, &mut LoseAll)), "a");
    // The next process can make it durable: that is why recovery syncs before it reads.
    open(&disk, "a").sync().unwrap();
    sync_dir(&disk).unwrap();
    let after = survivor(&disk, &mut LoseAll);
    assert_eq!((seen(&after).as_str(), after.files("d").len()), ("b", 2));
}

#[test]
fn a_crash_point_can_be_a_kill_instead_of_a_power_cut() {
    let disk = disk(1);
    let a = file(&disk, &sectors("a"));
    a.write_full(&sectors("b"), 0).unwrap();
    disk.crash_at(disk.ops());
    assert_crash(a.sync());
    disk.restart_process();
    assert_eq!(seen(&disk), "b");
    open(&disk, "a").sync().unwrap();
}

#[test]
fn a_snapshot_is_another_disk() {
    let disk = disk(1);
    let a = file(&disk, b"abc");
    let _lock = disk.lock(Path::new("d/L"), "me").unwrap();
    let other = disk.snapshot();
    a.write_full(b"xyz", 0).unwrap();
    assert_eq!(other.read_file("d/a").unwrap(), b"abc");
    open(&other, "a").write_full(b"123456", 0).unwrap();
    assert_eq!(disk.read_file("d/a").unwrap(), b"xyz");
    assert!(other.lock(Path::new("d/L"), "you").is_ok());
}

#[test]
fn the_trace_tells_the_story() {
    let disk = SimDisk::new(1);
    disk.set_trace(true);
    disk.create_dir(Path::new("d")).unwrap();
    let a = create(&disk, "1.seg");
    a.write_full(&[1; 300], 512).unwrap();
    disk.fail_next(OpKind::Sync, errno::EIO);
    assert_errno(a.sync(), errno::EIO);
    disk.crash_at(4);
    assert_crash(a.write_at(&[1; 300], 0));
    assert_crash(a.sync());
    disk.reboot(&mut LoseAll);
    let eio = io::Error::from_raw_os_error(errno::EIO);
    assert_eq!(
        disk.trace(),
        [
            "0 create_dir d -> ok".to_owned(),
            "1 open 1.seg CreateNew -> ok".to_owned(),
            "2 write 1.seg @512 +300 -> ok 300".to_owned(),
            format!("3 sync 1.seg -> {eio}"),
            "4 write 1.seg @0 +300 -> power off".to_owned(),
            "-- reboot".to_owned(),
        ]
    );
    disk.set_trace(false);
    assert!(disk.trace().is_empty());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let traces: Vec<_> = [1, 1, 2]
        .into_iter()
        .map(|seed| wild_run(seed, true))
        .collect();
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], traces[2]);
    assert!(traces[0].0.len() > 100);
}

/// Some hundred operations with all faults, crashes and reboots; also checks what must hold in any
/// case: what reads show is decided by the cache, and a reboot leaves nothing pending.
fn wild_run(seed: u64, trace: bool) -> (Vec<String>, Vec<(String, Vec<u8>)>) {
    let disk = SimDisk::new(seed);
    disk.set_trace(trace);
    let mut rng = Rng::new(seed ^ 0xabcd);
    let mut random = Random::new(rng.fork());
    disk.write_raw("d/0", &rng.bytes(5000)).unwrap();
    disk.set_faults(Faults {
        open_eio: 20,
        open_emfile: 20,
        rename_eio: 50,
        remove_eio: 50,
        sync_dir_eio: 100,
        read_eio: 20,
        read_eintr: 20,
        read_short: 100,
        write_eio: 20,
        write_eintr: 20,
        write_short: 100,
        sync_eio: 50,
        truncate_eio: 50,
    });
    disk.set_capacity(Some(100_000));
    for _ in 0..6 {
        disk.crash_at(disk.ops() + rng.range(20, 80));
        while !disk.crashed() {
            let path = Path::new("d").join(rng.below(4).to_string());
            let mode = if rng.chance(300) {
                OpenMode::CreateNew
            } else {
                OpenMode::Write
            };
            let Ok(file) = disk.open(&path, mode) else {
                continue;
            };
            let _ = file.write_at(&rng.bytes(3000), rng.below(20_000));
            let _ = file.truncate(rng.below(30_000));
            let _ = file.read_at(&mut [0; 700], rng.below(20_000));
            let _ = file.sync();
            let _ = file.write_at(&rng.bytes(700), rng.below(20_000));
            let other = Path::new("d").join(disk.unique().rem_euclid(4).to_string());
            let _ = disk.rename(&path, &other);
            let _ = disk.sync_dir(Path::new("d"));
            if rng.chance(200) {
                let _ = disk.remove(&other);
            }
        }
        if rng.chance(300) {
            disk.restart_process();
        } else {
            disk.reboot(&mut random);
            assert_eq!(disk.unsynced(), Unsynced::default());
            assert_eq!(disk.outcomes(), 1);
        }
    }
    let files = disk.files("d").into_iter().map(|name| {
        let bytes = disk.read_file(Path::new("d").join(&name)).unwrap();
        (name, bytes)
    });
    (disk.trace(), files.collect())
}

#[test]
fn wild_runs_do_not_panic() {
    for seed in 0..300 {
        wild_run(seed, false);
    }
}
