//! What failing operations leave behind.

use super::*;

#[test]
fn a_script_fails_the_operation_it_names_and_only_that() {
    let disk = disk(1);
    let a = file(&disk, b"abc");
    disk.fail_nth(OpKind::Write, 1, errno::EINTR);
    assert_eq!(a.write_at(b"x", 0).unwrap(), 1);
    assert_eq!(a.len().unwrap(), 3);
    assert_errno(a.write_at(b"y", 0), errno::EINTR);
    assert_eq!(a.write_at(b"z", 1).unwrap(), 1);
    assert_eq!(disk.read_file("d/a").unwrap(), b"xzc");
    disk.fail_next(OpKind::Open, errno::EMFILE);
    disk.fail_next(OpKind::Open, errno::EIO);
    let path = Path::new("d/new");
    assert_errno(disk.open(path, OpenMode::CreateNew), errno::EMFILE);
    assert_errno(disk.open(path, OpenMode::CreateNew), errno::EIO);
    assert_eq!(disk.files("d"), ["a"]);
    disk.fail_next(OpKind::Remove, errno::EIO);
    assert_errno(remove(&disk, "a"), errno::EIO);
    assert_eq!(disk.files("d"), ["a"]);
}

#[test]
fn every_kind_can_be_scripted() {
    let disk = disk(1);
    let a = file(&disk, b"abc");
    let d = Path::new("d");
    let lock = || match disk.lock(&d.join("L"), "me") {
        Err(LockError::Io(e)) => Err(e),
        _ => Ok(()),
    };
    let mut buf = [0; 3];
    let check = |kind, run: &mut dyn FnMut() -> io::Result<()>| {
        disk.fail_next(kind, errno::EINVAL);
        assert_errno(run(), errno::EINVAL);
        assert!(run().is_ok(), "{kind} again");
    };
    check(OpKind::CreateDir, &mut || disk.create_dir(d));
    check(OpKind::List, &mut || disk.list(d).map(drop));
    check(OpKind::Open, &mut || {
        disk.open(&d.join("a"), OpenMode::Read).map(drop)
    });
    check(OpKind::Lock, &mut || lock());
    check(OpKind::Read, &mut || a.read_at(&mut buf, 0).map(drop));
    check(OpKind::Write, &mut || a.write_at(b"x", 0).map(drop));
    check(OpKind::Sync, &mut || a.sync());
    check(OpKind::Len, &mut || a.len().map(drop));
    check(OpKind::Truncate, &mut || a.truncate(1));
    check(OpKind::SyncDir, &mut || sync_dir(&disk));
    check(OpKind::Rename, &mut || rename(&disk, "a", "b"));
    check(OpKind::Remove, &mut || remove(&disk, "b"));
}

#[test]
fn faults_by_chance_hit_every_kind_they_name() {
    let disk = disk(1);
    let a = file(&disk, &[7; 100]);
    let mut buf = [0; 100];
    let set = |faults| disk.set_faults(faults);
    let none = Faults::default();
    set(Faults {
        open_emfile: 1000,
        ..none
    });
    assert_errno(disk.open(Path::new("d/a"), OpenMode::Read), errno::EMFILE);
    set(Faults {
        read_eio: 1000,
        ..none
    });
    assert_errno(a.read_at(&mut buf, 0), errno::EIO);
    set(Faults {
        read_eintr: 1000,
        ..none
    });
    assert_errno(a.read_at(&mut buf, 0), errno::EINTR);
    set(Faults {
        read_short: 1000,
        write_short: 1000,
        ..none
    });
    assert!((1..100).contains(&a.read_at(&mut buf, 0).unwrap()));
    assert!((1..100).contains(&a.write_at(&[8; 100], 0).unwrap()));
    a.write_full(&[9; 100], 0).unwrap();
    assert_eq!(disk.read_file("d/a").unwrap(), [9; 100]);
    set(Faults {
        write_eintr: 500,
        ..none
    });
    a.write_full(&[1; 100], 0).unwrap();
    disk.heal();
    assert_eq!(a.read_at(&mut buf, 0).unwrap(), 100);
}

#[test]
fn a_failed_write_may_have_written_a_part() {
    let mut written = BTreeMap::<usize, u64>::new();
    for seed in 0..200 {
        let disk = disk(seed);
        let a = file(&disk, &[b'a'; 4]);
        disk.fail_next(OpKind::Write, errno::EIO);
        assert_errno(a.write_at(b"bbbb", 0), errno::EIO);
        let bytes = disk.read_file("d/a").unwrap();
        let part = bytes.iter().take_while(|b| **b == b'b').count();
        assert_eq!(bytes[part..], b"aaaa"[part..]);
        *written.entry(part).or_default() += 1;
    }
    assert_eq!(written.len(), 5);
}

#[test]
fn after_eio_a_rename_or_a_truncation_has_happened_or_not() {
    let mut states = BTreeMap::<_, u64>::new();
    for seed in 0..50 {
        let disk = disk(seed);
        let a = file(&disk, b"abc");
        disk.fail_next(OpKind::Truncate, errno::EIO);
        assert_errno(a.truncate(1), errno::EIO);
        disk.fail_next(OpKind::Rename, errno::EIO);
        assert_errno(rename(&disk, "a", "b"), errno::EIO);
        *states
            .entry((disk.files("d"), a.len().unwrap()))
            .or_default() += 1;
    }
    assert_eq!(states.len(), 4, "{states:?}");
}

/// What reads show after a failed sync of two sectors, and what a crash leaves, although a second
/// sync said ok.
#[test]
fn a_failed_sync_gives_up_sectors_which_reads_may_still_show() {
    let mut states = BTreeMap::<String, u64>::new();
    for seed in 0..300 {
        let disk = disk(seed);
        let a = file(&disk, &sectors("aa"));
        a.write_full(&sectors("bb"), 0).unwrap();
        disk.fail_next(OpKind::Sync, errno::EIO);
        assert_errno(a.sync(), errno::EIO);
        assert_eq!(disk.unsynced(), Unsynced::default());
        a.sync().unwrap();
        let crash = every_crash(&disk, seen);
        assert_eq!(crash.len(), 1, "nothing is pending any more");
        *states
            .entry(format!("{}/{}", seen(&disk), keys(&crash)[0]))
            .or_default() += 1;
    }
    let keep = ["bb/aa", "bb/ab", "bb/ba", "bb/bb"];
    let revert = ["aa/aa", "ab/ab", "ba/ba"];
    assert_eq!(keys(&states), [revert.as_slice(), keep.as_slice()].concat());
}

#[test]
fn a_sector_given_up_is_saved_whole_when_it_is_written_again() {
    let mut checked = 0;
    for seed in 0..100 {
        let disk = disk(seed);
        let a = file(&disk, &sectors("aa"));
        a.write_full(&sectors("bb"), 0).unwrap();
        disk.fail_next(OpKind::Sync, errno::EIO);
        assert_errno(a.sync(), errno::EIO);
        if seen(&disk) != "bb" || seen(&survivor(&disk, &mut LoseAll)) != "aa" {
            continue;
        }
        checked += 1;
        // One byte of the first sector, the same as it shows: the whole sector is dirty again.
        a.write_full(b"b", 9).unwrap();
        assert_eq!(keys(&every_crash(&disk, seen)), ["aa", "ba"]);
        a.sync().unwrap();
        assert_eq!(seen(&disk), "bb");
        assert_eq!(keys(&every_crash(&disk, seen)), ["ba"]);
    }
    assert!(checked > 5, "{checked}");
}

#[test]
fn a_failed_sync_may_give_up_the_length() {
    let mut states = BTreeMap::<String, u64>::new();
    for seed in 0..300 {
        let disk = disk(seed);
        let a = file(&disk, &sectors("a"));
        a.write_full(&sectors("b"), 512).unwrap();
        disk.fail_next(OpKind::Sync, errno::EIO);
        assert_errno(a.sync(), errno::EIO);
        a.sync().unwrap();
        let crashed = seen(&survivor(&disk, &mut KeepAll));
        *states
            .entry(format!("{}/{crashed}", seen(&disk)))
            .or_default() += 1;
    }
    assert_eq!(keys(&states), ["a/a", "a_/a_", "ab/a", "ab/a_", "ab/ab"]);
}

#[test]
fn a_failed_folder_sync_gives_up_names_which_stay_visible() {
    let mut states = BTreeMap::<String, u64>::new();
    for seed in 0..200 {
        let disk = disk(seed);
        drop((create(&disk, "x"), create(&disk, "y")));
        disk.fail_next(OpKind::SyncDir, errno::EIO);
        assert_errno(sync_dir(&disk), errno::EIO);
        sync_dir(&disk).unwrap();
        assert_eq!(disk.files("d"), ["x", "y"]);
        assert_eq!(disk.unsynced().entries, 0);
        let after = survivor(&disk, &mut KeepAll);
        *states.entry(after.files("d").join(" ")).or_default() += 1;
        // A later operation that names the file again saves it.
        rename(&disk, "x", "z").unwrap();
        sync_dir(&disk).unwrap();
        assert!(
            survivor(&disk, &mut LoseAll)
                .files("d")
                .contains(&"z".to_owned())
        );
    }
    assert_eq!(keys(&states), ["", "x", "x y", "y"]);
}

#[test]
fn a_full_disk_stops_growth_but_not_overwriting() {
    let disk = disk(1);
    let a = file(&disk, &[1; 1000]);
    let b = create(&disk, "b");
    disk.set_capacity(Some(1600));
    assert_eq!(b.write_at(&[2; 500], 0).unwrap(), 500);
    assert_eq!(
        b.write_at(&[3; 500], 500).unwrap(),
        100,
        "a short write first"
    );
    assert_errno(b.write_at(&[3; 400], 600), errno::ENOSPC);
    assert_errno(b.write_full(&[4; 601], 0), errno::ENOSPC);
    assert_eq!(a.write_at(&[5; 1000], 0).unwrap(), 1000);
    assert_eq!(disk.used(), 1600);
    a.truncate(900).unwrap();
    assert_eq!(b.write_at(&[3; 400], 600).unwrap(), 100);
    remove(&disk, "a").unwrap();
    assert_errno(b.write_at(&[3; 300], 700), errno::ENOSPC);
    drop(a);
    assert_eq!(b.write_at(&[3; 300], 700).unwrap(), 300);
    disk.set_capacity(None);
    b.write_full(&[3; 9000], 1000).unwrap();
}

#[test]
fn length_given_by_truncate_is_not_room() {
    let disk = disk(1);
    let a = file(&disk, b"");
    disk.set_capacity(Some(0));
    a.truncate(4096).unwrap();
    assert_eq!(a.len().unwrap(), 4096);
    assert_errno(a.write_at(b"x", 0), errno::ENOSPC);
}

#[test]
fn room_that_a_crash_brings_back_is_still_allocated() {
    let disk = disk(1);
    let a = file(&disk, &[1; 2000]);
    a.truncate(0).unwrap();
    disk.set_capacity(Some(2000));
    disk.reboot(&mut LoseAll);
    assert_eq!(disk.used(), 2000);
    assert_eq!(open(&disk, "a").write_at(&[2; 2000], 0).unwrap(), 2000);
}

#[test]
fn a_fault_by_number_hits_the_kinds_to_which_it_happens() {
    let disk = disk(1);
    let a = file(&disk, &[7; 100]);
    let mut buf = [0; 100];
    let next = |fault| disk.fail_at(disk.ops(), fault);
    next(Fault::Short);
    assert!((1..100).contains(&a.read_at(&mut buf, 0).unwrap()));
    next(Fault::Short);
    assert!((1..100).contains(&a.write_at(&[8; 100], 0).unwrap()));
    next(Fault::Full);
    assert_errno(a.write_at(b"x", 0), errno::ENOSPC);
    next(Fault::TooManyFiles);
    assert_errno(sync_dir(&disk), errno::EMFILE);
    assert_eq!(disk.hits(), 4);
    // What does not happen to it, and the one after.
    next(Fault::Full);
    a.read_at(&mut buf, 0).unwrap();
    a.write_at(b"x", 0).unwrap();
    assert_eq!(disk.hits(), 4);
    disk.fail_from(disk.ops() + 1, Fault::Broken);
    a.len().unwrap();
    for _ in 0..3 {
        assert_errno(a.len(), errno::EIO);
    }
    disk.heal();
    a.len().unwrap();
    assert_eq!(disk.hits(), 0);
}
